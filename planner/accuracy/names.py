"""Finds the catalogue's GPU, model, engine and quantization behind the names that benchmarks use."""

import re
from functools import lru_cache
from typing import NamedTuple

from planner.calibration.measurements import Measurement
from planner.engines import ENGINE_VERSIONS, EngineName
from planner.hardware import GpuProfile, list_gpus, load_gpu
from planner.models import QUANTIZATIONS, ModelSpec, Quantization, list_models, load_model

_NOISE = re.compile(r"[^a-z0-9]+")
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_UNDERLYING = re.compile(r"\b(?:tensorrt|cuda|cudnn|driver|rocm|pytorch|rhel)\s+[\d.]+\S*", re.IGNORECASE)
"""What an engine runs on, named beside it: TensorRT 10.11 is no release of TensorRT-LLM."""

GPU_ALIASES: dict[str, str] = {
    "a100": "a100-80g-sxm",
    "a100sxm": "a100-80g-sxm",
    "a100sxm80gb": "a100-80g-sxm",
    "a100sxm40gb": "a100-40g-sxm",
    "a10080gbpcie": "a100-80g-pcie",
    "a100pcie80gb": "a100-80g-pcie",
    "a100pcie40gb": "a100-40g-pcie",
    "b200": "b200-sxm",
    "b200sxm": "b200-sxm",
    "b200sxm180gb": "b200-sxm",
    "b300": "b300-sxm",
    "b300sxm": "b300-sxm",
    "b300sxm270gb": "b300-sxm",
    "gb200192gb": "gb200",
    "gb300288gb": "gb300",
    "gh20096gb": "gh200-96g",
    "gh200144gb": "gh200-144g",
    "h100": "h100-80g-sxm",
    "h100sxm": "h100-80g-sxm",
    "h10080gb": "h100-80g-sxm",
    "h100sxm80gb": "h100-80g-sxm",
    "h100nvl94gb": "h100-94g-nvl",
    "h100pcie80gb": "h100-80g-pcie",
    "h200": "h200-141g-sxm",
    "h200sxm": "h200-141g-sxm",
    "h200sxm141gb": "h200-141g-sxm",
    "h200nvl141gb": "h200-141g-nvl",
    "h2096gb": "h20-96g",
    "h800": "h800-80g-sxm",
    "mi250": "mi250x",
    "rtxpro6000": "rtx-pro-6000-bw-server",
}
"""GPU by its name without punctuation. A100, H100, H200, B200 without more stand for the SXM part, as benchmarks mean it."""

MODEL_ALIASES: dict[str, str] = {
    "deepseekr10528": "deepseek-r1",
    "deepseekr1": "deepseek-r1",
    "deepseekv31": "deepseek-v3",
    "falcon180b": "falcon-180b",
    "glm47": "glm-4.6",
    "llama270b": "llama-2-70b-hf",
    "llama270bchat": "llama-2-70b-hf",
    "llama213b": "llama-2-13b-hf",
    "llama27b": "llama-2-7b-hf",
    "llama3170b": "llama-3.1-70b-instruct",
    "llama318b": "llama-3.1-8b-instruct",
    "llama31405b": "llama-3.1-405b-instruct",
    "llama3370b": "llama-3.3-70b-instruct",
    "llama4maverick": "llama-4-maverick-17b-128e-instruct",
    "llama4scout": "llama-4-scout-17b-16e-instruct",
    "metallama370b": "llama-3.1-70b-instruct",
    "metallama370binstruct": "llama-3.1-70b-instruct",
    "metallama38b": "llama-3.1-8b-instruct",
    "metallama38binstruct": "llama-3.1-8b-instruct",
    "metallama3170b": "llama-3.1-70b-instruct",
    "metallama318binstruct": "llama-3.1-8b-instruct",
    "minimaxm25": "minimax-m2.7",
    "mistral7b": "mistral-7b-instruct-v0.3",
    "mistral7bv01": "mistral-7b-instruct-v0.3",
    "mixtral8x7b": "mixtral-8x7b-instruct-v0.1",
    "mixtral8x7bv01": "mixtral-8x7b-instruct-v0.1",
    "mixtral8x22b": "mixtral-8x22b-instruct-v0.1",
    "qwen272b": "qwen2.5-72b-instruct",
    "qwen27b": "qwen2.5-7b-instruct",
    "qwen3235ba22binstruct2507": "qwen3-235b-a22b",
    "qwen330ba3binstruct2507": "qwen3-30b-a3b",
}
"""Model by its name without owner and punctuation, where the catalogue holds one of the same shape under another name."""

_SUFFIXES = ("instructfp8kv", "nvfp4", "fp8", "fp4", "mxfp4", "bf16", "w4a16", "awq", "int4")
_ENGINES: tuple[tuple[str, EngineName], ...] = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("trtllm", "tensorrt-llm"),
    ("tensorrt", "tensorrt-llm"),
)
_OTHER_ENGINES = ("nim", "dynamo", "lmdeploy", "deepspeed", "llama.cpp", "transformers", "tgi", "lmcache", "llm-d")
_DTYPES: dict[str, str] = {
    "": "",
    "auto": "",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "fp8-block": "fp8-block",
    "fp4": "nvfp4",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int8": "int8",
    "int4": "int4-awq",
    "int4_wo": "int4-awq",
    "int4-awq": "int4-awq",
    "int4-gptq": "int4-gptq",
}
_KV_DTYPES = {
    "bf16": "bf16",
    "fp16": "bf16",
    "bfloat16": "bf16",
    "float16": "bf16",
    "auto": "bf16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
}


class Release(NamedTuple):
    """An engine and the release whose settings and record stand for the one measured."""

    engine: EngineName
    version: str
    settings_version: str


def bare(name: str) -> str:
    """Return a name in lower case without owner and punctuation.

    >>> bare("meta-llama/Llama-3.1-8B"), bare("H100-SXM-80GB")
    ('llama318b', 'h100sxm80gb')
    """
    return _NOISE.sub("", name.rsplit("/", 1)[-1].casefold())


@lru_cache(maxsize=256)
def gpu_named(name: str) -> GpuProfile | None:
    """Return the GPU that a benchmark's name stands for, or None."""
    plain = bare(name)
    wanted = GPU_ALIASES.get(plain) or {bare(gpu.id): gpu.id for gpu in list_gpus()}.get(plain)
    return None if wanted is None else load_gpu(wanted)


@lru_cache(maxsize=512)
def model_named(name: str) -> ModelSpec | None:
    """Return the model that a benchmark's name stands for, or None; names of quantised copies lead to the original."""
    known = _models_by_name()
    plain = bare(name)
    for _ in range(3):
        wanted = MODEL_ALIASES.get(plain) or known.get(plain) or known.get(f"{plain}instruct")
        if wanted is not None:
            return load_model(wanted)
        shorter = next((plain.removesuffix(suffix) for suffix in _SUFFIXES if plain.endswith(suffix)), plain)
        if shorter == plain:
            break
        plain = shorter
    return None


@lru_cache(maxsize=1)
def _models_by_name() -> dict[str, str]:
    named = {bare(model.hf_repo): model.id for model in list_models() if model.hf_repo}
    return named | {bare(model.id): model.id for model in list_models()}


def engine_named(measured: Measurement) -> Release | None:
    """Return the engine and the release nearest to the measured one that the planner knows, or None for another engine."""
    name = measured.engine.casefold()
    if any(other in name for other in _OTHER_ENGINES):
        return None
    engine = next((engine for part, engine in _ENGINES if part in name), None)
    if engine is None:
        return None
    found = _VERSION.search(_UNDERLYING.sub("", measured.engine_version))
    numbers = tuple(int(part or 0) for part in found.groups()) if found else None
    known = ENGINE_VERSIONS[engine]
    if engine != "vllm":
        return Release(engine, ".".join(map(str, numbers)) if numbers else known[-1], known[-1])
    minor = numbers[1] if numbers and numbers[0] == 0 else _minor_of(measured.date)
    first, last = (int(version.split(".")[1]) for version in (known[0], known[-1]))
    nearest = f"0.{min(max(minor, first), last)}.0"
    return Release(engine, f"0.{minor}.0", nearest)


_MINOR_BY_MONTH = (
    ("2026-05", 20),
    ("2026-04", 19),
    ("2026-03", 17),
    ("2026-02", 15),
    ("2026-01", 14),
    ("2025-12", 12),
    ("2025-10", 11),
    ("2025-07", 10),
    ("2025-05", 9),
    ("2025-03", 8),
    ("2025-01", 7),
    ("2024-09", 6),
    ("2024-06", 5),
    ("2024-03", 4),
    ("2023", 3),
)


def _minor_of(date: str) -> int:
    """Return the vLLM minor release that was current in a month; releases without a number are nightly builds."""
    return next((minor for month, minor in _MINOR_BY_MONTH if date >= month), 11)


def quantization_named(measured: Measurement, model: ModelSpec) -> Quantization | None:
    """Return how the measured weights are stored, or None when the name isn't known; blank means as the checkpoint is.

    gpt-oss is stored in MXFP4 whatever a table calls it. NVIDIA's NVFP4 checkpoints of models with experts leave attention in
    16 bit. Other models' MXFP4 checkpoints are AMD Quark's, whose activations are MXFP4 too, so that they multiply in four bits
    (mlcommons/inference_results_v5.1, open/AMD/documentation/calibration.md).
    """
    text = measured.weight_dtype.casefold().strip()
    if text not in _DTYPES:
        return None
    native = model.native_quantization
    if model.id.startswith("gpt-oss") and native is not None:
        return native
    wanted = _DTYPES[text] or _DTYPES.get(_suffix_of(measured.model), "")
    if not wanted:
        return native or QUANTIZATIONS["bf16"]
    if native is not None and native.compute_dtype == QUANTIZATIONS[wanted].compute_dtype and native.weight_bits < 16:
        return native
    return _as_published(QUANTIZATIONS[wanted], model)


def _as_published(chosen: Quantization, model: ModelSpec) -> Quantization:
    if chosen.id == "mxfp4":
        return chosen.model_copy(update={"compute_dtype": "fp4"})
    if chosen.id == "nvfp4" and any(group.kind == "moe" for group in model.groups):
        return chosen.model_copy(update={"excluded": (*chosen.excluded, "attention")})
    return chosen


def _suffix_of(name: str) -> str:
    plain = bare(name)
    return next((suffix for suffix in ("nvfp4", "mxfp4", "fp8", "fp4") if plain.endswith((suffix, f"{suffix}kv"))), "")


def kv_dtype_named(measured: Measurement) -> str | None:
    """Return the KV cache dtype that a row states, or None where it doesn't."""
    return _KV_DTYPES.get(measured.kv_dtype.casefold().strip())
