"""Reads the results of benchmark tools, each recognised by its content."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from planner.calibration.importers import aiperf, aiperf_records, guidellm, inference_perf, sglang_bench, vllm_bench
from planner.calibration.importers.documents import Cleaned, Document, documents_of, text_of
from planner.calibration.importers.run import BenchmarkRun
from planner.errors import InputError, as_input_error, one_line

MAX_RUNS = 200
MOST_NAMED = 5


class Format(NamedTuple):
    """A tool's result: its name, what recognises it, and what reads it."""

    name: str
    claims: Callable[[Document], bool]
    read: Callable[[Document, str], BenchmarkRun | list[BenchmarkRun]]


FORMATS = (
    Format(vllm_bench.NAME, vllm_bench.claims, vllm_bench.read),
    Format(sglang_bench.NAME, sglang_bench.claims, sglang_bench.read),
    Format(guidellm.NAME, guidellm.claims, guidellm.read),
    Format(f"{aiperf.NAME} and {aiperf.GENAI_PERF}", aiperf.claims, aiperf.read),
    Format(inference_perf.NAME, inference_perf.claims, inference_perf.read),
)
KNOWN = ", ".join(known.name for known in FORMATS)


def read_benchmark(data: bytes, name: str = "benchmark") -> tuple[BenchmarkRun, ...]:
    """Return the runs of a benchmark's result file, in the order of the file.

    data : JSON of vllm bench serve, SGLang bench_serving, GuideLLM, AIPerf, genai-perf or inference-perf; several results one after
        the other, as tools append them, or in an array; at most 64 MiB, plain or compressed with gzip
    name : label for messages, such as the file's name; never opened

    Raises InputError when the file is none of these (the message lists them), is cut, or holds a figure that can't be: the message
    names the field.
    """
    return runs_of(text_of(data, name), name)


def runs_of(text: str, name: str) -> tuple[BenchmarkRun, ...]:
    """Return the runs in the text of a result file; see read_benchmark."""
    try:
        return _runs_of(text, name)
    except ValidationError as error:
        fault = as_input_error(error, f"benchmark {name}")
        raise InputError(f"{name}: {fault.field}", fault.value, fault.bound, fault.remedy) from error


def _runs_of(text: str, name: str) -> tuple[BenchmarkRun, ...]:
    documents = documents_of(text, name) if text.lstrip()[:1] in {"{", "["} else []
    if not documents:
        raise InputError(name, text.lstrip()[:40], f"must be a result of {KNOWN}", "Give the tool's JSON file")
    if all(aiperf_records.claims(document) for document in documents):
        return tuple(_labelled([aiperf_records.read(documents, name)]))
    runs: list[BenchmarkRun] = []
    for place, document in enumerate(documents):
        label = name if len(documents) == 1 else f"{name}: result {place}"
        found = format_of(document, label).read(document, label)
        names = document.not_numbers if isinstance(document, Cleaned) else ()
        if isinstance(found, list):
            parts = [f"benchmarks[{part}]." for part in range(len(found))]
            runs += [
                _remarked(run, [name for name in names if name.startswith(part)]) for run, part in zip(found, parts, strict=True)
            ]
        else:
            runs.append(_remarked(found, names))
        if len(runs) > MAX_RUNS:
            raise InputError(name, len(runs), f"must hold at most {MAX_RUNS} runs", "Give the runs that matter")
    return tuple(_labelled(runs))


def _remarked(run: BenchmarkRun, names: Sequence[str]) -> BenchmarkRun:
    """Return the run with a remark on the figures of its document that are no numbers, and so not used."""
    if not names:
        return run
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    shown = ", ".join(one_line(name[:60]) for name in names[:MOST_NAMED])
    return run.model_copy(update={"remarks": (*run.remarks, f"NaN or infinite, and left out: {shown}{more}")})


def format_of(document: Document, name: str) -> Format:
    """Return the format of a document, or raise InputError that lists what is known."""
    for known in FORMATS:
        if known.claims(document):
            return known
    if vllm_bench.is_other_vllm(document):
        remedy = "Measure with vllm bench serve, which writes lengths and loads"
        raise InputError(name, "vllm bench latency or throughput", "doesn't state batch and lengths", remedy)
    if inference_perf.is_server_side(document):
        remedy = "Give stage_N_lifecycle_metrics.json, the client's part"
        raise InputError(name, "stage_N_prometheus_metrics.json", "doesn't state lengths and loads", remedy)
    keys = ", ".join(sorted(map(str, document))[:6])
    raise InputError(name, keys, f"must be a result of {KNOWN}", "Give the JSON file that the tool wrote")


def _labelled(runs: list[BenchmarkRun]) -> list[BenchmarkRun]:
    """Give every run a label of its own: its load, numbered where two share it."""
    seen: dict[str, int] = {}
    named = []
    for run in runs:
        label = run.label or run.load_text
        seen[label] = seen.get(label, 0) + 1
        named.append(run.model_copy(update={"label": label if seen[label] == 1 else f"{label} ({seen[label]})"}))
    return named
