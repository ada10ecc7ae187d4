"""What a user brought to the Calibrate page, in words, and the form that says what it was measured on."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pydantic import ValidationError

from planner.accuracy.names import model_named
from planner.calibration.importers import BenchmarkRun, Spread
from planner.calibration.records import CalibrationRecord, load_record
from planner.engines import ENGINE_VERSIONS
from planner.errors import InputError, as_input_error, one_line
from planner.exporters.table import spreadsheet_safe
from planner.hardware.device_names import gpu_of_device
from planner.models import QUANTIZATIONS
from planner.paths import PROFILES_DIR
from planner.tuning import Target, UserFile, read_file
from planner.ui import reading
from planner.ui.choices import gpu_names, model_names
from planner.ui.views.calibrate_collect import Place
from planner.ui.words import DASH, figure, plural, rate, seconds

EXAMPLE = PROFILES_DIR / "evidence" / "collected" / "vllm_cpu_grid.jsonl.gz"
FORMATS = (
    "A file of the collectors above, the result of vllm bench serve, GuideLLM, AIPerf, inference-perf or SGLang's bench_serving, "
    "or an engine's log with single steps. Several results of one deployment at different loads tell more."
)
CPU = "cpu-recorded"
_ENGINES = tuple(ENGINE_VERSIONS)
_ROWS = {"collected": "measurement", "step_log": "step", "benchmark": "run"}
_SAYS_ITSELF = frozenset({"collect_vllm.py", "collect_torch.py", "collect_links.py"})


class Given(NamedTuple):
    """One file as it came; id : tells uploads of one name apart."""

    name: str
    data: bytes
    id: str


class ReadFile(NamedTuple):
    """One file as read: what it holds, or what is wrong with it."""

    name: str
    file: UserFile | None
    fault: InputError | None


def each_once(given: Sequence[Given], most: int) -> tuple[tuple[Given, ...], tuple[str, ...]]:
    """Return files without those that hold the same bytes as one before, at most `most` of them, and a note on each left out.

    A file that counts twice would weigh twice in a fit, and stand on both sides of a test of it.
    """
    names: dict[str, str] = {}
    kept: list[Given] = []
    notes: list[str] = []
    for each in given:
        digest = hashlib.sha256(each.data).hexdigest()
        if each.data and digest in names:
            notes.append(f"{one_line(each.name)} holds the same as {one_line(names[digest])}: it counts once.")
        else:
            names[digest] = each.name
            kept.append(each)
    if len(kept) > most:
        notes.append(f"The first {most} files are read, and {len(kept) - most:,} more are left out: give fewer at once.")
    return tuple(kept[:most]), tuple(notes)


def read_all(given: Sequence[Given]) -> tuple[ReadFile, ...]:
    """Return what each file holds, or why it can't be used."""
    return tuple(_read(each) for each in given)


def _read(given: Given) -> ReadFile:
    if not given.data:
        return ReadFile(given.name, None, InputError(given.name, "0 bytes", "must not be empty", "Choose the file again"))
    try:
        return ReadFile(given.name, read_file(given.data, given.name), None)
    except InputError as fault:
        return ReadFile(given.name, None, fault)


def complaint(read: ReadFile) -> str:
    """Return what is wrong with a file, with its name; empty where nothing is."""
    fault = "" if read.fault is None else str(read.fault)
    return fault if not fault or fault.startswith(read.name) else f"{one_line(read.name)}: {fault}"


def usable(files: Sequence[ReadFile]) -> tuple[UserFile, ...]:
    """Return the files that could be read."""
    return tuple(each.file for each in files if each.file is not None)


def files_frame(files: Sequence[UserFile]) -> pd.DataFrame:
    """Return what each file is and what it states of its origin."""
    rows = [
        {
            "File": spreadsheet_safe(file.name),
            "Read as": file.format,
            "Holds": plural(file.rows, _ROWS[file.kind]),
            "GPU": spreadsheet_safe(file.gpu_name) or DASH,
            "Engine": spreadsheet_safe(f"{file.engine or ''} {file.engine_version or ''}".strip()) or DASH,
            "Model": spreadsheet_safe(file.model) or DASH,
        }
        for file in files
    ]
    return pd.DataFrame(rows)


def remarks_of(files: Sequence[UserFile]) -> tuple[str, ...]:
    """Return what was left out or corrected, with the file's name where there are several."""
    several = len(files) > 1
    return tuple(f"{file.name}: {remark}" if several else remark for file in files for remark in file.remarks)


def missing_in(files: Sequence[UserFile]) -> tuple[str, ...]:
    """Return what such files can't say, each once."""
    return tuple(dict.fromkeys(missing for file in files for missing in file.missing))


def runs_frame(files: Sequence[UserFile]) -> pd.DataFrame:
    """Return the runs of benchmark results; empty where there are none."""
    return pd.DataFrame([_run_row(run) for file in files for run in file.runs])


def _run_row(run: BenchmarkRun) -> dict[str, object]:
    return {
        "Load": run.load_text,
        "Requests": run.requests,
        "Prompt (tokens)": figure(run.prompt_tokens),
        "Output (tokens)": figure(run.output_tokens),
        "TTFT": _typical(run.ttft),
        "TPOT": _typical(run.tpot),
        "E2E": _typical(run.e2e),
        "Served": rate(run.requests_per_s),
        "Run": spreadsheet_safe(run.label) or DASH,
    }


def _typical(spread: Spread) -> str:
    """Return a latency's mean, or its median where no mean is stated."""
    if spread.mean_s is not None:
        return seconds(spread.mean_s)
    return DASH if spread.p50_s is None else f"{seconds(spread.p50_s)} (median)"


class FormField(NamedTuple):
    """One input of the form.

    key : of the widget; name : the target's field
    choices : None for free text
    """

    key: str
    name: str
    label: str
    choices: tuple[str, ...] | None = None
    placeholder: str | None = None


def form_fields(files: Sequence[UserFile], slot: str) -> tuple[FormField, ...]:
    """Return what the user must say of these files: the less, the more they state. slot : begins the widgets' keys."""

    def field(name: str, label: str, placeholder: str | None = None, choices: Iterable[str] | None = None) -> FormField:
        return FormField(f"{slot}-{name}", name, label, None if choices is None else tuple(choices), placeholder)

    gpu = field("gpu_id", "GPU", choices=gpu_names())
    version = field("engine_version", "Engine version", "the newest that the planner knows")
    if files and all(file.format in _SAYS_ITSELF for file in files):
        return (gpu, version)
    default = "the engine's default"
    return (
        gpu,
        field("model_id", "Model", choices=model_names()),
        field("quantization", "Weights", choices=QUANTIZATIONS),
        field("tp", "Tensor parallel size", "1"),
        field("engine", "Engine", choices=_ENGINES),
        version,
        field("max_num_seqs", "max_num_seqs", default),
        field("max_num_batched_tokens", "max_num_batched_tokens", default),
        field("kv_cache_tokens", "Logged GPU KV cache size, tokens", "computed"),
        field("replicas", "Replicas behind the endpoint", "1"),
    )


def initial_values(files: Sequence[UserFile], place: Place) -> dict[str, str]:
    """Return what the form opens with, by the target's field: what the files state, else the plan's."""
    model = next((found for file in files if file.model and (found := _model_id(file.model))), None)
    run = next((run for file in files for run in file.runs), None)
    version = next((file.engine_version for file in files if file.engine_version), "")
    stated = {} if run is None else run.settings.model_dump(exclude_none=True)
    quantization = str(stated.get("quantization", place.quantization))
    return {
        "gpu_id": _gpu_id(files) or place.gpu_id,
        "model_id": model or place.model.id,
        "quantization": quantization if quantization in QUANTIZATIONS else "bf16",
        "tp": str(run.tp if run is not None and run.tp else place.tensor_parallel),
        "engine": next((file.engine for file in files if file.engine in _ENGINES), "vllm") or "vllm",
        "engine_version": version or "",
        **{name: str(stated[name]) for name in ("max_num_seqs", "max_num_batched_tokens") if name in stated},
    }


def _gpu_id(files: Sequence[UserFile]) -> str | None:
    """Return the catalogue's GPU that the files name, or its CPU where they were measured on one; None where they don't say."""
    named = next((file.gpu_name for file in files if file.gpu_name), None)
    profile = gpu_of_device(named) if named is not None else None
    if profile is not None:
        return profile.id
    on_cpu = any(file.collected is not None and file.collected.machine.device_kind == "cpu" for file in files)
    return CPU if on_cpu and CPU in gpu_names() else None


def values_of_target(target: Target) -> dict[str, str]:
    """Return what the form held when it was submitted."""
    return {name: str(value) for name, value in target.model_dump().items() if value is not None}


def _model_id(name: str) -> str | None:
    """Return the catalogue's model behind a name in a file; None when it is none."""
    found = model_named(name.rstrip("/").rpartition("/")[2]) or model_named(name)
    return None if found is None else found.id


def target_of(values: Mapping[str, str], place: Place) -> Target:
    """Return what the form states; InputError names the field that can't be read.

    values : text by the target's field; place : gives the model where the form doesn't ask for it
    """
    given: dict[str, object] = {"model_id": place.model.id}
    for name, text in values.items():
        if text.strip():
            given[name] = reading.whole(name, text) if name in _WHOLE else text.strip()
    try:
        return Target.model_validate(given)
    except ValidationError as error:
        raise as_input_error(error, "form") from error


_WHOLE = frozenset({"tp", "max_num_seqs", "max_num_batched_tokens", "kv_cache_tokens", "replicas"})


def unknown_names(files: Sequence[UserFile], slot: str) -> tuple[str, ...]:
    """Return notes on a device and a model that the files name and the catalogue doesn't know; the form asks for them."""
    asked = {field.name for field in form_fields(files, slot)}
    device = next((file.gpu_name for file in files if file.gpu_name), None)
    model = next((file.model for file in files if file.model), None)
    notes = []
    if device is not None and gpu_of_device(device) is None:
        notes.append(f"The measured device, {device}, is none of the catalogue by its name: choose the GPU that it is.")
    if model is not None and "model_id" in asked and _model_id(model) is None:
        notes.append(
            f"The measured model, {model}, is none of the catalogue by its name: choose it, or add its config.json on the "
            "Catalogue page first."
        )
    return tuple(notes)


def kept_record(path: Path) -> CalibrationRecord:
    """Return the record of a file that was just written."""
    return load_record(f"{path.parent.name}/{path.stem}")


def example() -> Given:
    """Return a real file of collect_vllm.py, measured on two CPU cores."""
    return Given(f"{EXAMPLE.name} (example, measured on two CPU cores)", EXAMPLE.read_bytes(), f"example {EXAMPLE.name}")
