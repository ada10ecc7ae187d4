"""Computed KV capacity against 39 recorded start-ups of vLLM 0.19 on H100, on models the graphs were and weren't fitted to."""

import json
import statistics
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.memory import memory_report, recorded_capacities
from planner.memory.report import RECORDED_FILE
from planner.units import GIB

REPORT = memory_report()


def test_capacity_equals_the_engines() -> None:
    assert (len(REPORT.rows), len(REPORT.covered)) == (39, 35)
    assert REPORT.median_error <= 0.001
    assert REPORT.worst_error <= 0.02


def test_rows_outside_the_claim_say_why_and_are_not_far_off() -> None:
    outside = [row for row in REPORT.rows if not row.covered]
    assert all(row.reason for row in outside)
    assert max(abs(row.error) for row in outside) <= 0.03


@pytest.mark.parametrize("row", REPORT.rows, ids=lambda row: f"{row.recorded.model_id}-tp{row.recorded.tp}-pp{row.recorded.pp}")
def test_concurrency_is_the_engines(row: object) -> None:
    assert row.budget.max_concurrency == pytest.approx(row.recorded.max_concurrency, rel=0.035)  # type: ignore[attr-defined]


def test_text_models_match_part_by_part() -> None:
    text = [row for row in REPORT.covered if row.recorded.pp == 1 and not row.recorded.model_id.startswith(("gemma-3", "llama-4"))]
    assert max(abs(row.budget.weights_bytes / GIB - row.recorded.weight_memory_gib) for row in text) <= 0.04
    assert max(abs(row.budget.activation_bytes / GIB - row.recorded.activation_memory_gib) for row in text) <= 0.02


def test_graphs_on_configurations_they_were_not_fitted_to() -> None:
    rows = {(row.recorded.model, row.recorded.tp): row for row in REPORT.rows if row.recorded.pp == 1}
    held_out = [rows[key] for key in sorted(rows)[1::2]]
    errors = [abs(row.graphs_estimated_bytes / GIB - row.recorded.cuda_graph_estimated_gib) for row in held_out]
    assert statistics.median(errors) <= 0.2
    assert max(errors) <= 0.85


def test_the_table_lists_the_largest_miss_first_and_the_summary_last() -> None:
    lines = REPORT.text().splitlines()
    assert len(lines) == 1 + 39 + 2
    assert "Kimi-VL" in lines[1]
    assert "median error" in lines[-1]
    assert json.loads(json.dumps(REPORT.document()))["covered"] == 35


def test_the_recorded_file_names_its_source_and_licence() -> None:
    head = RECORDED_FILE.read_text(encoding="utf-8").split("model_id,")[0]
    assert "llm-d-planner" in head
    assert "Apache-2.0" in head


def test_a_broken_record_names_its_field(tmp_path: Path) -> None:
    lines = RECORDED_FILE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("model_id,"))
    file = tmp_path / "rows.csv"
    file.write_text("\n".join([lines[start], lines[start + 1].replace("0.95", "nan")]), encoding="utf-8")
    with pytest.raises(InputError, match="gpu_memory_utilization"):
        recorded_capacities(file)
