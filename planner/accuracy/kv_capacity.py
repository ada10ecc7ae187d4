"""Checks tables of vLLM's own start-up logs: KV tokens as logged against the memory budget."""

from collections.abc import Iterator
from pathlib import Path

from planner.accuracy.names import gpu_named, model_named
from planner.calibration.measurements import Unreadable, cut_off, number, read_table
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError, shorten
from planner.memory import memory_budget
from planner.models import QUANTIZATIONS

_COLUMNS = {"kv_cache_tokens", "gpu_memory_utilization", "max_model_len", "version", "model", "gpu", "tp"}
_QUANTIZATIONS = {"": "bf16", "fp8": "fp8", "mxfp4": "mxfp4", "awq": "int4-awq", "gptq": "int4-gptq", "compressed-tensors": ""}

_NO_TOKENS = "unreadable: kv_cache_tokens"

KvResult = tuple[tuple[str, str, str] | None, str | None, dict[str, float], Unreadable | None]


def is_kv_capacity(path: Path) -> bool:
    """Say whether a table holds start-up logs; InputError when it can't be read, or is one but for a single column."""
    header, _ = read_table(path)
    missing = _COLUMNS - set(header)
    if len(missing) == 1 and not {"engine", "scenario"} & set(header):
        raise InputError(path.name[:100], len(header), f"the table lacks {missing.pop()}", "Keep the columns of the start-up logs")
    return not missing


def kv_results(path: Path) -> Iterator[KvResult]:
    """Yield each start-up's group, the reason why it can't be computed, the error of its KV tokens [1], and what can't be read."""
    _, rows = read_table(path)
    for line, cells in rows:
        if cells is None:
            yield None, "unreadable: row", {}, cut_off(line)
            continue
        group, reason, errors = _checked(cells)
        fault = None
        if reason == _NO_TOKENS:
            fault = Unreadable(line, "kv_cache_tokens", f"is {shorten(cells['kv_cache_tokens'])}: must be a number above 0")
        yield group, reason, errors, fault


def _checked(cells: dict[str, str]) -> tuple[tuple[str, str, str] | None, str | None, dict[str, float]]:
    gpu, model = gpu_named(cells["gpu"]), model_named(cells["model"])
    if gpu is None or model is None:
        return None, "unknown GPU" if gpu is None else "unknown model", {}
    group = (gpu.id, "vllm", model.id)
    logged = number(cells["kv_cache_tokens"])
    wanted = _QUANTIZATIONS.get(cells.get("quantization", "").strip())
    if not logged or not logged > 0.0 or wanted is None:
        return group, _NO_TOKENS if wanted is not None else "unknown weight dtype", {}
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
