"""Checks tables of vLLM's own start-up logs: KV tokens as logged against the memory budget."""

from collections.abc import Iterator
from pathlib import Path

from planner.accuracy.names import gpu_named, model_named
from planner.calibration.measurements import number, read_table
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.memory import memory_budget
from planner.models import QUANTIZATIONS

_COLUMNS = {"kv_cache_tokens", "gpu_memory_utilization", "max_model_len", "version", "model", "gpu", "tp"}
_QUANTIZATIONS = {"": "bf16", "fp8": "fp8", "mxfp4": "mxfp4", "awq": "int4-awq", "gptq": "int4-gptq", "compressed-tensors": ""}

KvResult = tuple[tuple[str, str, str] | None, str | None, dict[str, float]]


def is_kv_capacity(path: Path) -> bool:
    """Say whether a table holds start-up logs; InputError when it can't be read."""
    header, _ = read_table(path)
    return set(header) >= _COLUMNS


def kv_results(path: Path) -> Iterator[KvResult]:
    """Yield the group of each start-up, the reason why it can't be computed, and the error of its KV tokens [1]."""
    _, rows = read_table(path)
    for _, cells in rows:
        yield (None, "unreadable: row", {}) if cells is None else _checked(cells)


def _checked(cells: dict[str, str]) -> KvResult:
    gpu, model = gpu_named(cells["gpu"]), model_named(cells["model"])
    if gpu is None or model is None:
        return None, "unknown GPU" if gpu is None else "unknown model", {}
    group = (gpu.id, "vllm", model.id)
    logged = number(cells["kv_cache_tokens"])
    wanted = _QUANTIZATIONS.get(cells.get("quantization", "").strip())
    if not logged or not logged > 0.0 or wanted is None:
        return group, "unreadable: kv_cache_tokens" if wanted is not None else "unknown weight dtype", {}
    quantization = QUANTIZATIONS[wanted] if wanted and wanted != "bf16" else model.native_quantization or QUANTIZATIONS["bf16"]
    try:
        engine = engine_defaults("vllm", cells["version"], gpu, 1).replace(
            gpu_memory_utilization=number(cells["gpu_memory_utilization"]),
            max_model_len=int(number(cells["max_model_len"]) or 0),
            enable_prefix_caching=False,
        )
        layout = Parallelism(int(number(cells["tp"]) or 1), int(number(cells.get("pp")) or 1))
        kv_dtype = "fp8" if cells.get("kv_cache_dtype", "").startswith("fp8") else "bf16"
        computed = memory_budget(Deployment(gpu, model, quantization, kv_dtype, layout, engine)).kv_tokens
    except (InputError, ValueError, OverflowError):
        return group, "not a legal deployment", {}
    if computed is None:
        return group, "does not fit in the computed memory", {}
    return group, None, {"kv_tokens": computed / logged - 1.0}
