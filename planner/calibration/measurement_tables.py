"""Reads measured results in the layouts in which they are published, and in this project's own schema."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.calibration.measurements import REQUIRED, Measurement, Row, checked, cut_off, number, own_rows, read_table
from planner.errors import InputError

Cells = Mapping[str, str]
_MS = 1e-3
_MOST = 0.6
"""Share of a layout's columns above which a table is taken for it."""
_COMMON = {"software", "scenario", "prompt_len", "output_len", "gpu", "model"}
_BY_CONCURRENCY = {"backend", "model_path", "system", "isl", "osl"}
_COST_METER = {"config", "engine", "hardware", "rps", "tps_output", "tpot_p50_ms"}
_SCENARIOS = {"concurrency": "closed-loop", "rate": "open-loop", "static-batch": "static-batch", "offline": "offline"}
_LIMIT = re.compile(r"num_kv_tokens=(\d{1,9})")
_DRAFTS = re.compile(r"\b(?:mtp|eagle\d?|speculative|spec[-_ ]decod\w*)\b", re.IGNORECASE)
_SPLIT = re.compile(r"\b(?:disagg\w*|P/D|prefill[-/ ]decode split)\b", re.IGNORECASE)
_SHARED_PREFIX = re.compile(r"multi-?turn|lmbench|shared prefix", re.IGNORECASE)
_COST_METER_TOKENS = (512, 256)
_COST_METER_REQUESTS = 500
_COST_METER_GPUS = {"H100": "H100-NVL-94GB"}
"""The table says H100: $6.98 an hour is Azure's NC40ads H100 v5, whose card is the NVL; power never passes its 400 W, and
Qwen3-30B-A3B in 16 bit has over 300 requests in flight, whose cache an 80 GB card can't hold. Rate and duration give 500 requests.
"""
_INFERENCEX = re.compile(r"source_file=|db-dump|kimi-k2\.5-gap|InferenceX", re.IGNORECASE)
_INFERENCEX_SHORTEST = 0.8


def read_measurements(path: Path) -> list[Row]:
    """Return every row of a table of measured results, those that are no measurement with the reason.

    path : CSV in the project's schema, in the common layout of the measured collection (a `software` column, `_ms` columns), in
        aiconfigurator's silicon layout (`silicon_tpot_ms`), or in vllm-cost-meter's (`tps_output`)

    Raises InputError for a file that is none of these or has no row.
    """
    found = _read(path)
    if not found:
        raise InputError(path.name[:100], "0 rows", "must hold a measured result below its header", "Add a row for each run")
    return found


def _read(path: Path) -> list[Row]:
    header, rows = read_table(path)
    columns = set(header)
    readers: tuple[tuple[set[str], Callable[[Cells], dict[str, Any]]], ...] = (
        (_COMMON, _common),
        (_BY_CONCURRENCY, _by_concurrency),
        (_COST_METER, _cost_meter),
    )
    for layout, reader in readers:
        if layout <= columns:
            return [cut_off(line) if cells is None else checked(reader(cells), line) for line, cells in rows]
    _refuse_incomplete([layout for layout, _ in readers], columns, path.name[:100])
    if not columns & set(Measurement.model_fields):
        known = "the measurement schema, or a layout with `software`, `silicon_tpot_ms` or `tps_output`"
        raise InputError(path.name[:100], ", ".join(header)[:100], f"must have the columns of {known}", "Rename the columns")
    return own_rows(header, rows, path.name[:100])


def _refuse_incomplete(layouts: Sequence[set[str]], columns: set[str], name: str) -> None:
    """Refuse a table that has most columns of a published layout, and more of them than of the schema's own."""
    nearest = max(layouts, key=lambda layout: len(layout & columns) / len(layout))
    own = len(columns & set(REQUIRED)) / len(REQUIRED)
    if max(_MOST, own) < len(nearest & columns) / len(nearest):
        missing = ", ".join(sorted(nearest - columns))
        raise InputError(name, len(columns), f"the table lacks {missing}", "Keep the columns of the published layout")


def _whole(text: str | None) -> float | None:
    value = number(text)
    return None if value is None or value < 1 else value


def _latencies(cells: Cells, names: Sequence[str] = ("mean", "p50", "p90", "p99")) -> dict[str, Any]:
    return {f"{kind}_{name}_s": number(cells.get(f"{kind}_{name}_ms"), _MS) for kind in ("ttft", "tpot") for name in names}


def _common(cells: Cells) -> dict[str, Any]:
    notes = cells.get("notes", "")
    kind = cells.get("length_kind", "") or "unknown"
    source = cells.get("source", "")
    inferencex = "InferenceX run" in notes
    rate = number(cells.get("rate_rps"))
    logged = _LIMIT.search(notes)
    said = f"{notes} {cells.get('software', '')} {cells.get('scenario', '')}"
    scenario = _SCENARIOS.get(cells["scenario"].strip(), cells["scenario"])
    return {
        "source": source[:500],
        "date": cells.get("date", ""),
        "engine": cells["software"],
        "engine_version": cells.get("version", "")[:500],
        "front_end": "offline" if scenario in {"offline", "static-batch"} else "tuned" if inferencex else None,
        "model": cells["model"],
        "weight_dtype": cells.get("weight_dtype", ""),
        "kv_dtype": cells.get("kv_dtype", ""),
        "gpu": cells["gpu"],
        "gpu_count": number(cells.get("n_gpu")),
        "tp": _whole(cells.get("tp")),
        "pp": _whole(cells.get("pp")),
        "ep": _whole(cells.get("ep")),
        "scenario": scenario,
        "prompt_tokens": number(cells["prompt_len"]),
        "output_tokens": number(cells["output_len"]),
        "shortest_share": _INFERENCEX_SHORTEST if inferencex else 1.0,
        "length_kind": kind,
        "rate_rps": rate,
        "evenly_paced": "paced" in notes,
        "concurrency": _whole(cells.get("concurrency")),
        "requests": _whole(cells.get("n_requests")),
        "max_num_seqs": _whole(cells.get("max_num_seqs")),
        "max_num_batched_tokens": _whole(cells.get("max_num_batched_tokens")),
        "kv_cache_tokens": float(logged[1]) if logged else None,
        "cuda_graphs": "enforce-eager" not in notes or "some " in notes,
        "disaggregated": _SPLIT.search(said) is not None,
        "speculative": _DRAFTS.search(said) is not None,
        "prefix_caching": _SHARED_PREFIX.search(kind) is not None,
        **_latencies(cells),
        "e2e_mean_s": number(cells.get("e2e_mean_ms"), _MS),
        "requests_per_s": number(cells.get("req_s")),
        "output_tokens_per_s": number(cells.get("output_tok_s")),
        "notes": notes,
    }


def _by_concurrency(cells: Cells) -> dict[str, Any]:
    source = cells.get("source", "")
    inferencex = _INFERENCEX.search(source) is not None
    tp, pp = _whole(cells.get("tp_size")) or 1, _whole(cells.get("pp_size")) or 1
    experts = _whole(cells.get("moe_ep_size"))
    expert_gpus = (_whole(cells.get("moe_tp_size")) or 1) * (experts or 1)
    per_engine = _whole(cells.get("batch_size"))
    in_flight = _whole(cells.get("concurrency")) or per_engine
    engines = max(1.0, (in_flight or 1.0) // (per_engine or in_flight or 1.0))
    copies = max(_whole(cells.get("attention_dp_size")) or 1.0, expert_gpus // tp, engines if (experts or 1) > 1 else 1.0)
    precision = cells.get("gemm_quant_mode") or cells.get("precision", "")
    return {
        "source": f"{'InferenceX' if inferencex else 'NVIDIA'}, by aiconfigurator's silicon table: {source}"[:500],
        "date": cells.get("measured", ""),
        "engine": cells["backend"],
        "engine_version": cells.get("backend_version", ""),
        "front_end": "tuned" if inferencex else None,
        "model": cells["model_path"],
        "weight_dtype": precision,
        "gpu": cells["system"],
        "gpu_count": tp * pp * (1.0 if copies > 1 else engines),
        "tp": tp,
        "pp": pp,
        "ep": experts,
        "dp": copies,
        "scenario": "closed-loop",
        "prompt_tokens": number(cells["isl"]),
        "output_tokens": number(cells["osl"]),
        "shortest_share": _INFERENCEX_SHORTEST if inferencex else 1.0,
        "length_kind": "uniform" if inferencex else "fixed",
        "concurrency": in_flight,
        "ttft_s": number(cells.get("silicon_ttft_ms"), _MS),
        "tpot_s": number(cells.get("silicon_tpot_ms"), _MS),
        "peer_ttft_s": number(cells.get("aic_ttft_ms"), _MS),
        "peer_tpot_s": number(cells.get("aic_tpot_ms"), _MS),
    }


def _cost_meter(cells: Cells) -> dict[str, Any]:
    prompt_tokens, output_tokens = _COST_METER_TOKENS
    return {
        "source": "vllm-cost-meter",
        "engine": cells["engine"],
        "engine_version": "0.19.0" if cells["engine"] == "vllm" else "",
        "front_end": "server",
        "model": cells["model"],
        "weight_dtype": cells.get("precision", ""),
        "gpu": _COST_METER_GPUS.get(cells["hardware"], cells["hardware"]),
        "gpu_count": number(cells.get("gpus")),
        "tp": number(cells.get("gpus")),
        "scenario": "open-loop",
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "rate_rps": number(cells["rps"]),
        "arrivals_rescaled": True,
        "requests": _COST_METER_REQUESTS,
        **_latencies(cells),
        "requests_per_s": number(cells.get("request_throughput")),
        "output_tokens_per_s": number(cells["tps_output"]),
    }
