"""What each vLLM release does differently, where it changes memory, admission or a default.

Read from the Python sources of the releases on PyPI (under `vllm/`: `config/scheduler.py`, `config/cache.py`, `config/vllm.py`,
`engine/arg_utils.py`, `envs.py`, `v1/core/kv_cache_utils.py`, `v1/worker/gpu_worker.py`): one patch of each minor
release from 0.11 to 0.33. A change inside a minor release's patches is not told apart.
"""

import datetime as dt
import re
from dataclasses import dataclass
from typing import Literal

from planner.errors import InputError
from planner.provenance import Source

EngineName = Literal["vllm", "sglang", "tensorrt-llm"]
SamplerProfile = Literal["sorted logits", "three float32 copies", "logits only"]
ModelRunner = Literal["v1", "v2 by architecture", "v2 when dense", "v2"]

FIRST_VLLM_MINOR = 11
LAST_VLLM_MINOR = 33
_RETRIEVED = dt.date(2026, 11, 30)

ENGINE_TITLES: dict[str, str] = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}
"""How each engine's makers write its name."""
ENGINE_VERSIONS: dict[EngineName, tuple[str, ...]] = {
    "vllm": tuple(f"0.{minor}.0" for minor in range(FIRST_VLLM_MINOR, LAST_VLLM_MINOR + 1)),
    "sglang": ("0.5.23",),
    "tensorrt-llm": ("1.2.0",),
}
BLOCK_MULTIPLE = 16
_BLOCK_CHOICES = (16, 32, 64, 128, 256)
_LAST_MINOR_WITH_BLOCK_CHOICES = 16
_FAMILIES: dict[EngineName, tuple[int, ...]] = {"sglang": (0, 5, 23), "tensorrt-llm": (1, 2)}
_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?(?:post|rc)\d{1,3})?")


def engine_source(engine: str, version: str, where: str) -> Source:
    """Return the Source of a figure read in an engine's code; where : file of the release."""
    return Source(kind="published", ref=f"{engine} {version}, {where}", retrieved=_RETRIEVED, confidence="high")


@dataclass(frozen=True, slots=True)
class VllmFacts:
    """Behaviour of one vLLM minor release.

    gpu_memory_utilization : default share of the device's memory [1]
    graphs_in_budget : CUDA-graph memory is estimated and taken from the KV cache
    async_scheduling : step k+1 is scheduled while step k runs, by default
    admits_whole_sequence : a waiting request needs free blocks for its whole known sequence (scheduler_reserve_full_isl)
    large_gpu_tier : GPUs of 160 GiB and more have a default token budget of their own
    gb10_is_small : GB10 (compute capability 12.1) takes the small GPU's defaults whatever its memory
    blackwell_graph_ceiling : largest CUDA graph on compute capability 10 [token]
    capacity_from_concurrency : "GPU KV cache size" is int(concurrency × max_model_len), else blocks // groups × block_size
    group_padding : attention types whose layer counts differ by less than this factor are padded to the larger [1]
    window_holds_all_in_flight : a sliding window reserves every step in flight, not just one, beside its window
    sampler_profile : tensors that the profiling run of the sampler holds at its peak (version 1 of the model runner)
    v2_profiles_processing : the second model runner's profile covers penalties and sampling, not the bare logits
    moe_workspace_persists : fused experts' scratch memory stays allocated and adds to the sampler's peak
    model_runner : which models run on the second version of the model runner
    """

    minor: int
    gpu_memory_utilization: float
    graphs_in_budget: bool
    async_scheduling: bool
    admits_whole_sequence: bool
    large_gpu_tier: bool
    gb10_is_small: bool
    blackwell_graph_ceiling: int
    capacity_from_concurrency: bool
    group_padding: float
    window_holds_all_in_flight: bool
    sampler_profile: SamplerProfile
    v2_profiles_processing: bool
    moe_workspace_persists: bool
    model_runner: ModelRunner


# Release from which each setting exists, by EngineConfig field; a field that isn't here exists in every supported release.
VLLM_KNOB_SINCE: dict[str, int] = {
    "stream_interval": 12,
    "scheduler_reserve_full_isl": 19,
    "watermark": 24,
    "prefill_schedule_interval": 24,
    "max_num_scheduled_tokens": 26,
    "max_num_queued_reqs": 29,
    "max_num_queued_tokens": 29,
    "max_num_active_seqs": 31,
    "long_prefill_token_threshold_adaptive": 31,
}


def vllm_facts(version: str) -> VllmFacts:
    """Return the facts of a vLLM release; InputError outside 0.11–0.33.

    >>> vllm_facts("0.19.1").gpu_memory_utilization, vllm_facts("0.20.0").gpu_memory_utilization
    (0.9, 0.92)
    """
    minor = _vllm_minor(version)
    return VllmFacts(
        minor=minor,
        gpu_memory_utilization=0.92 if minor >= 20 else 0.90,
        graphs_in_budget=minor >= 20,
        async_scheduling=minor >= 14,
        admits_whole_sequence=minor >= 19,
        large_gpu_tier=minor >= 28,
        gb10_is_small=minor >= 33,
        blackwell_graph_ceiling=1024 if minor >= 28 else 512,
        capacity_from_concurrency=minor >= 20,
        group_padding=1.5 if minor >= 18 else 1.25 if minor >= 12 else 1.0,
        window_holds_all_in_flight=minor >= 26,
        sampler_profile="three float32 copies" if minor >= 17 else "sorted logits",
        v2_profiles_processing=minor >= 33,
        moe_workspace_persists=minor >= 13,
        model_runner=_model_runner(minor),
    )


def check_block_size(version: str, block_size: int) -> int:
    """Return a block size [token] that the release starts with on a GPU; InputError otherwise.

    Attention kernels take multiples of 16; with another size the engine ends at start-up: "No valid attention backend found …
    block_size not supported" (vLLM pull request 41363, 2026-04-30). The exception, AMD's AITER kernel for latent attention, takes 1
    and the engine sets that by itself. Until 0.16 `--block-size` is a choice among powers of two up to 256 (docs.vllm.ai, v0.11.1
    and v0.16.0, api/vllm/config/cache; the page of v0.26.0 has no such list).

    >>> check_block_size("0.33.0", 48)
    48
    """
    if block_size % BLOCK_MULTIPLE:
        below = max(BLOCK_MULTIPLE, block_size // BLOCK_MULTIPLE * BLOCK_MULTIPLE)
        bound = f"must be a multiple of {BLOCK_MULTIPLE}: vLLM has no attention kernel for another one"
        raise InputError("engine.block_size", block_size, bound, f"Take {below}, or leave it to the engine")
    if _vllm_minor(version) <= _LAST_MINOR_WITH_BLOCK_CHOICES and block_size not in _BLOCK_CHOICES:
        known = ", ".join(map(str, _BLOCK_CHOICES))
        raise InputError("engine.block_size", block_size, f"vLLM {version} takes {known}", "Take one of these, or a later release")
    return block_size


def check_version(engine: EngineName, version: str) -> str:
    """Return the version without a leading "v"; InputError with the nearest supported one otherwise.

    >>> check_version("vllm", "v0.33.0")
    '0.33.0'
    """
    if engine == "vllm":
        _vllm_minor(version)
    else:
        match = _RELEASE.fullmatch(version)
        family = _FAMILIES[engine]
        if match is None or tuple(int(part) for part in match.groups() if part)[: len(family)] != family:
            raise _unsupported(engine, version, ENGINE_VERSIONS[engine][-1])
    return version.removeprefix("v")


def _vllm_minor(version: str) -> int:
    match = _RELEASE.fullmatch(version)
    if match is None:
        raise _unsupported("vllm", version, ENGINE_VERSIONS["vllm"][-1])
    major, minor = int(match[1]), int(match[2])
    if major != 0 or not FIRST_VLLM_MINOR <= minor <= LAST_VLLM_MINOR:
        nearest = FIRST_VLLM_MINOR if major == 0 and minor < FIRST_VLLM_MINOR else LAST_VLLM_MINOR
        raise _unsupported("vllm", version, f"0.{nearest}.0")
    return minor


def _unsupported(engine: EngineName, version: str, nearest: str) -> InputError:
    known = ENGINE_VERSIONS[engine]
    span = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"
    return InputError("engine.version", version, f"must be a {engine} release from {span}", f"The nearest one is {nearest}")


def _model_runner(minor: int) -> ModelRunner:
    if minor >= 29:
        return "v2"
    if minor >= 25:
        return "v2 when dense"
    return "v2 by architecture" if minor >= 22 else "v1"
