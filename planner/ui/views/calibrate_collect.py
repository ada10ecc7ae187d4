"""The collectors in words: what each measures, what it needs, and the command that runs it for a scenario."""

import shlex
from importlib.resources import files
from typing import Literal, NamedTuple

from planner.calibration import collect_torch, collect_vllm
from planner.models import ModelSpec, load_model
from planner.scenario import Scenario

Effort = Literal["quick", "full"]
_BUILT_IN = {"vllm": collect_vllm.MODELS, "torch": collect_torch.MODELS}
_SECOND_SHAPE = "llama-3.2-3b"


class Collector(NamedTuple):
    """One collector.

    id : of its file, collect_<id>.py
    measures, needs, informs : in sentences
    quick, full : how long each effort takes
    """

    id: str
    title: str
    measures: str
    needs: str
    informs: str
    quick: str
    full: str

    @property
    def file_name(self) -> str:
        """Name of the collector's file."""
        return f"collect_{self.id}.py"

    def duration(self, effort: Effort) -> str:
        """Return how long it takes, in words."""
        return self.quick if effort == "quick" else self.full


COLLECTORS = (
    Collector(
        "vllm",
        "Engine steps",
        "Starts vLLM itself with dummy weights and notes how long each step takes and what was in its batch.",
        "The idle GPU and vLLM 0.19 to 0.33. No weights are downloaded; a config.json is enough.",
        "Informs every figure of a record, host time included: the best file to fit from.",
        "About 2 minutes, beside the starts of the engines (one for each model, TP size and scheduling mode).",
        "Up to an hour, beside the starts of the engines.",
    ),
    Collector(
        "http",
        "Running server",
        "Probes a server that speaks the OpenAI API from outside: token times by concurrency, prompts that join, TTFT.",
        "A running server that you may load, and Python 3.10. It talks to this machine alone unless --allow-host names another.",
        "Informs what a client can see: token times, prefill time and the time outside the engine.",
        "About 2 minutes.",
        "Up to an hour.",
    ),
    Collector(
        "torch",
        "Operators",
        "Times matrix products, attention, copies and kernel launches under PyTorch.",
        "The idle GPU and torch (CUDA, ROCm or CPU). No engine is needed.",
        "Informs the shares of memory bandwidth and compute; the constants of a layer and of the host keep their priors.",
        "About 2 minutes.",
        "Up to an hour.",
    ),
    Collector(
        "links",
        "Links",
        "Times all-reduces among GPUs under torchrun, and pinned copies between host and GPU without it.",
        "The idle GPUs of one replica and torch.",
        "Informs the latency and bandwidth of an all-reduce at this number of GPUs.",
        "Under 2 minutes.",
        "A few minutes.",
    ),
)
BY_ID = {collector.id: collector for collector in COLLECTORS}


class Place(NamedTuple):
    """What is to be measured: the GPU's id, the model, its quantization, and the GPUs of a replica."""

    gpu_id: str
    model: ModelSpec
    quantization: str
    tensor_parallel: int


def place_of(scenario: Scenario, gpu_id: str, tensor_parallel: int) -> Place:
    """Return what a scenario wants measured; gpu_id, tensor_parallel : of its answer, or of what it names."""
    return Place(gpu_id, load_model(scenario.model.id), scenario.model.quantization, tensor_parallel)


def source_of(collector: Collector) -> bytes:
    """Return the collector's file, which runs alone."""
    return files("planner.calibration").joinpath(collector.file_name).read_bytes()


def command(collector: Collector, effort: Effort, place: Place) -> str:
    """Return the lines to run on the target machine; every name is quoted for the shell."""
    start = ["python"]
    if collector.id == "links" and place.tensor_parallel > 1:
        start = ["torchrun", "--nproc-per-node", str(place.tensor_parallel)]
    options = _OPTIONS[collector.id](place)
    line = shlex.join([*start, collector.file_name, f"--{effort}", *options, "--out", f"{place.gpu_id}-{collector.id}.jsonl"])
    return "\n".join([*_before(collector, place), line])


def _built_in(collector_id: str, model: ModelSpec) -> str | None:
    """Return the collector's own name of a model's shape; None when it has none and needs the config.json."""
    name = model.id.removesuffix("-instruct")
    return name if name in _BUILT_IN.get(collector_id, {}) else None


def _before(collector: Collector, place: Place) -> list[str]:
    """Return the line that fetches the model's config.json, where the collector needs it."""
    needed = collector.id in _BUILT_IN and _built_in(collector.id, place.model) is None
    if not needed or place.model.hf_repo is None:
        return []
    return [shlex.join(["hf", "download", place.model.hf_repo, "config.json", "--local-dir", place.model.id])]


def _vllm(place: Place) -> list[str]:
    built_in = _built_in("vllm", place.model)
    shape = ["--model-config", f"{place.model.id}/config.json"]
    if built_in is not None:
        shape = ["--model", built_in, _SECOND_SHAPE] if built_in != _SECOND_SHAPE else ["--model", built_in]
    on_load = place.quantization == "fp8" and place.model.native_quantization is None
    return [*shape, "--tp", str(place.tensor_parallel), *(["--quantization", "fp8"] if on_load else [])]


def _http(_place: Place) -> list[str]:
    return ["--url", "http://127.0.0.1:8000"]


def _torch(place: Place) -> list[str]:
    built_in = _built_in("torch", place.model)
    shape = ["--model", built_in] if built_in is not None else ["--model-config", f"{place.model.id}/config.json"]
    return [*shape, "--tp", str(place.tensor_parallel)]


def _links(_place: Place) -> list[str]:
    return []


_OPTIONS = {"vllm": _vllm, "http": _http, "torch": _torch, "links": _links}


def notes(collector: Collector, place: Place) -> tuple[str, ...]:
    """Return what a reader must know beside the command."""
    found = ["Interrupt it at any time: what was measured is kept, and the same command goes on. Nothing leaves the machine."]
    if collector.id == "vllm" and _built_in("vllm", place.model) is None:
        found.append(
            "One model size leaves weights and constants entangled: name a second config.json behind the first to tell them apart."
        )
    if collector.id == "torch" and place.model.is_moe:
        found.append("This collector takes dense models alone: give the config.json of one, or measure engine steps.")
    if collector.id == "links" and place.tensor_parallel == 1:
        found.append("The plan's replica is one GPU, so that no all-reduce happens in it: this measures the copies to the host.")
    return tuple(found)
