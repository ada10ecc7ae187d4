"""The tables of candidates on the Plan page: numbers stay numbers, so that a click on a column sorts it."""

import pandas as pd

from planner.exporters.candidates import candidate_rows
from planner.exporters.table import Cell, spreadsheet_safe
from planner.plans.results import Plan

_MET = {
    "gpu": "GPU",
    "tensor_parallel": "TP",
    "link": "Link",
    "gpus": "GPUs",
    "usd_per_day": "$/day",
    "usd_per_million_tokens": "$/M tokens",
    "ttft_p99_ms": "p99 TTFT (ms)",
    "tpot_p99_ms": "p99 TPOT (ms)",
    "capacity_rps": "Capacity (req/s)",
    "provider": "Provider",
    "instance": "Machine",
    "region": "Region",
    "binds": "Binds",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
}
_REJECTED = {
    "gpu": "GPU",
    "tensor_parallel": "TP",
    "link": "Link",
    "reason": "Reason",
    "detail": "Detail",
    "remedy": "What would help",
}
_FIGURES = 3


def met_frame(plan: Plan) -> pd.DataFrame:
    """Return the candidates that meet the targets, cheapest first."""
    return _frame(plan, _MET, met=True)


def rejected_frame(plan: Plan) -> pd.DataFrame:
    """Return the other candidates with their reasons."""
    return _frame(plan, _REJECTED, met=False)


def _frame(plan: Plan, columns: dict[str, str], *, met: bool) -> pd.DataFrame:
    rows = [
        {title: _shown(row[column]) for column, title in columns.items()}
        for row in candidate_rows(plan)
        if row["meets_targets"] is met
    ]
    return pd.DataFrame(rows, columns=list(columns.values()))


def _shown(cell: Cell) -> Cell:
    return float(f"{cell:.{_FIGURES}g}") if isinstance(cell, float) else spreadsheet_safe(cell)
