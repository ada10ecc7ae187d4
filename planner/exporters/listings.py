"""GPUs and models as plain rows, one dict an entry: for the shell, for tables, for files.

Workloads have a module of their own: reading them takes pandas and scipy, for which a list of GPUs need not wait.
"""

from typing import Any

from planner.hardware import prices_for, survey_gpus
from planner.models import kv_bytes, list_models
from planner.units import BILLION, GB, GIB, KB, TB, TFLOPS


def gpu_rows() -> list[dict[str, Any]]:
    """Return one row for each GPU: memory, bandwidth, dense peak, and the lowest on-demand price of a GPU-hour."""
    rows = []
    for gpu in survey_gpus().profiles:
        cheapest = next((price for price in prices_for(gpu.id) if price.on_demand_usd_per_hour is not None), None)
        rows.append(
            {
                "id": gpu.id,
                "name": gpu.name,
                "memory_gib": gpu.memory_reported_bytes / GIB,
                "memory_tb_per_s": gpu.memory_bytes_per_s / TB,
                "bf16_tflops": _tflops(gpu.dense_flops_per_s.get("bf16")),
                "fp8_tflops": _tflops(gpu.dense_flops_per_s.get("fp8")),
                "link_gb_per_s": gpu.link.unidirectional_bytes_per_s / GB if gpu.link else None,
                "tdp_w": gpu.tdp_w,
                "usd_per_gpu_hour": cheapest.usd_per_gpu_hour() if cheapest else None,
                "price_from": f"{cheapest.provider} {cheapest.as_of}" if cheapest else None,
                "confidence": gpu.confidence,
            }
        )
    return rows


def model_rows() -> list[dict[str, Any]]:
    """Return one row for each model: parameters, KV cache of a token at 16 bit, context."""
    rows = []
    for model in list_models():
        kv = kv_bytes(model, "bf16")
        rows.append(
            {
                "id": model.id,
                "name": model.name,
                "family": model.family,
                "parameters_b": model.total_params / BILLION,
                "active_b": model.active_params / BILLION,
                "layers": model.layers,
                "kv_kb_per_token": kv.full_bytes_per_token / KB,
                "window_kv_kb_per_token": kv.window_bytes_per_token / KB,
                "max_positions": model.max_positions,
                "licence": model.licence,
            }
        )
    return rows


def _tflops(flops_per_s: float | None) -> float | None:
    return None if flops_per_s is None else flops_per_s / TFLOPS
