"""The Catalogue page's tables and details: every entry with its figures, their source, date and confidence."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pandas as pd
from pydantic import BaseModel

from planner.exporters.listings import gpu_rows, model_rows
from planner.exporters.table import spreadsheet_safe
from planner.exporters.workload_listing import workload_rows
from planner.hardware import GpuProfile, Price, figure_names, list_prices, load_gpu
from planner.models import ModelSpec, kv_bytes, load_model
from planner.provenance import Source
from planner.ui.views.why import SourceRow, source_row
from planner.ui.words import DASH, day, figure, gib, gigabytes_per_second, rate, teraflops
from planner.units import BILLION
from planner.workloads import Workload, load_workload

WEAK, STALE = "low confidence", "stale price"
_FIGURES = 3


def gpus_frame() -> pd.DataFrame:
    """Return the GPUs with what the plan uses of them."""
    titles = {
        "name": "GPU",
        "usd_per_gpu_hour": "From $/GPU-hour",
        "memory_gib": "Memory (GiB)",
        "memory_tb_per_s": "Bandwidth (TB/s)",
        "bf16_tflops": "BF16 (TFLOP/s)",
        "fp8_tflops": "FP8 (TFLOP/s)",
        "link_gb_per_s": "Link, one way (GB/s)",
        "tdp_w": "Power (W)",
        "price_from": "Price of",
        "id": "Id",
    }
    rows = gpu_rows()
    frame = _frame(rows, titles)
    frame.insert(1, "Note", [[WEAK] if row["confidence"] == "low" else [] for row in rows])
    return frame


def models_frame() -> pd.DataFrame:
    """Return the models with parameters and the KV cache of a token."""
    titles = {
        "name": "Model",
        "family": "Family",
        "parameters_b": "Parameters (B)",
        "active_b": "Active (B)",
        "layers": "Layers",
        "kv_kb_per_token": "KV, BF16 (kB/token)",
        "max_positions": "Longest context (tokens)",
        "licence": "Licence",
        "id": "Id",
    }
    return _frame(model_rows(), titles)


def workloads_frame() -> pd.DataFrame:
    """Return the workloads with their lengths."""
    titles = {
        "name": "Workload",
        "prompt_mean": "Prompt, mean (tokens)",
        "prompt_p99": "Prompt, p99",
        "output_mean": "Output, mean (tokens)",
        "output_p99": "Output, p99",
        "peak_factor": "Busiest hour ÷ mean",
        "id": "Id",
    }
    return _frame(workload_rows(), titles)


def prices_frame(today: dt.date) -> pd.DataFrame:
    """Return the prices; today : the day against which an old one is marked."""
    rows = [
        {
            "GPU": spreadsheet_safe(price.gpu_id),
            "Note": [STALE] if is_stale(price, today) else [],
            "$/GPU-hour": _rounded(price.usd_per_gpu_hour()),
            "Spot": _rounded(price.spot_usd_per_gpu_hour()),
            "GPUs": price.gpu_count,
            "Provider": spreadsheet_safe(price.provider),
            "Machine": spreadsheet_safe(price.instance),
            "Region": spreadsheet_safe(price.region),
            "As of": price.as_of,
            "Source": spreadsheet_safe(price.source),
            "Licence": spreadsheet_safe(price.licence),
            "Remark": spreadsheet_safe(price.note),
        }
        for price in list_prices()
    ]
    return pd.DataFrame(rows)


def is_stale(price: Price, today: dt.date) -> bool:
    """Whether a price is too old to rely on; one dated after `today` (a clock that is behind) is not."""
    return price.as_of <= today and price.is_stale(today)


def gpu_details(gpu_id: str) -> tuple[SourceRow, ...]:
    """Return every figure of a GPU with its source."""
    return gpu_facts(load_gpu(gpu_id))


def gpu_facts(gpu: GpuProfile) -> tuple[SourceRow, ...]:
    """Return every figure of a profile that it states."""
    rows = []
    for name in sorted(figure_names()):
        value = _figure_of(gpu, name)
        if value is not None:
            rows.append(source_row(name, _with_unit(name, value), gpu.source_for(name)))
    return tuple(rows)


def _figure_of(gpu: GpuProfile, name: str) -> object:
    table, _, key = name.partition(".")
    value = getattr(gpu, table)
    if key:
        return value.get(key) if isinstance(value, dict) else getattr(value, key, None)
    return None if isinstance(value, dict | BaseModel) else value


def _with_unit(name: str, value: object) -> str:
    if not isinstance(value, float | int) or isinstance(value, bool):
        return str(value)
    if "flops" in name:
        return teraflops(value)
    if name.endswith("bytes_per_s"):
        return gigabytes_per_second(value)
    if name.endswith("bytes"):
        return gib(value)
    return str(value) if name.endswith("year") else figure(value)


def model_facts(model: ModelSpec) -> dict[str, str]:
    """Return what a plan takes from a model, in words; keys and values are plain text."""
    kv = kv_bytes(model, "bf16")
    facts = {
        "Family": model.family,
        "Parameters": f"{figure(model.total_params / BILLION)} B"
        + (
            f", {figure(model.active_params / BILLION)} B active for a token"
            if model.active_params < 0.95 * model.total_params
            else ""
        ),
        "Layers": f"{model.layers}: " + ", ".join(f"{group.count} × {group.kind}" for group in model.groups),
        "KV cache of a token at BF16": gib(kv.full_bytes_per_token + kv.window_bytes_per_token)
        + (
            f", of it {gib(kv.window_bytes_per_token)} only within a window of {kv.window_tokens} tokens"
            if kv.window_bytes_per_token
            else ""
        ),
        "Longest context": f"{model.max_positions:,} tokens" if model.max_positions else DASH,
        "Checkpoint": model.native_quantization.id if model.native_quantization else model.weight_dtype,
        "Licence": model.licence or DASH,
    }
    if kv.state_bytes_per_sequence:
        facts["State of a sequence"] = gib(kv.state_bytes_per_sequence)
    return facts


def model_details(model_id: str) -> tuple[dict[str, str], tuple[SourceRow, ...]]:
    """Return a model's facts and sources."""
    model = load_model(model_id)
    return model_facts(model), _sources(model.sources)


def workload_facts(workload: Workload, recorded_rps: float | None = None) -> dict[str, str]:
    """Return what a plan takes from a workload, in words; recorded_rps : mean rate of its trace's own times [request/s]."""
    stats = workload.length_stats()
    recorded = {} if recorded_rps is None else {"Recorded rate": f"{rate(recorded_rps)} on average"}
    return {
        "What it is": workload.description,
        "Prompt tokens": f"mean {figure(stats.prompt_mean_tokens)}, p50 {figure(stats.prompt_p50_tokens)}, "
        f"p95 {figure(stats.prompt_p95_tokens)}, p99 {figure(stats.prompt_p99_tokens)}",
        "Output tokens": f"mean {figure(stats.output_mean_tokens)}, p50 {figure(stats.output_p50_tokens)}, "
        f"p95 {figure(stats.output_p95_tokens)}, p99 {figure(stats.output_p99_tokens)}",
        "Context while it runs": f"{figure(stats.running_context_mean_tokens)} tokens on average",
        "Busiest hour ÷ mean": figure(workload.peak_factor),
        **recorded,
        "Licence": workload.licence,
    }


def at_recorded_rate(workload_id: str, rate_rps: float) -> dict[str, object]:
    """Return the patch of a scenario that serves a workload at the rate at which it was recorded [request/s]."""
    load = {"kind": "rate", "requests_per_s": float(f"{rate_rps:.{_FIGURES}g}")}
    return {"workload.id": workload_id, "workload.load": load}


def workload_details(workload_id: str) -> tuple[dict[str, str], tuple[SourceRow, ...]]:
    """Return a workload's facts and sources."""
    workload = load_workload(workload_id)
    return workload_facts(workload), _sources(workload.sources)


def price_ages(today: dt.date) -> str:
    """Return how old the prices are, in one sentence."""
    prices = list_prices()
    stale = sum(is_stale(price, today) for price in prices)
    newest, oldest = max(price.as_of for price in prices), min(price.as_of for price in prices)
    old = "all are" if stale == len(prices) else f"{stale} are"
    marked = f"{old} over 90 days old and marked" if stale else "none is over 90 days old"
    return f"{len(prices)} prices, read between {day(oldest)} and {day(newest)}; {marked}."


def _sources(sources: dict[str, Source]) -> tuple[SourceRow, ...]:
    return tuple(source_row("all others" if name == "*" else name, "", source) for name, source in sources.items())


def _frame(rows: Sequence[dict[str, object]], titles: dict[str, str]) -> pd.DataFrame:
    data = [{title: _rounded(row[key]) for key, title in titles.items()} for row in rows]
    return pd.DataFrame(data, columns=list(titles.values()))


def _rounded(value: Any) -> Any:  # noqa: ANN401 - a table holds text, numbers and dates
    """Return a figure with three digits, and text that no spreadsheet runs once the table is saved."""
    return float(f"{value:.{_FIGURES}g}") if isinstance(value, float) else spreadsheet_safe(value)
