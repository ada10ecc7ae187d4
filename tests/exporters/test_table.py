"""Tables leave the planner as data: no cell can become a formula, nothing that isn't finite can break a reader."""

import csv
import io
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.exporters.table import Cell, spreadsheet_safe, to_csv, to_json

CELLS = st.one_of(st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(), st.text(max_size=20))


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "  @x", '=HYPERLINK("http://example.org")']
)
def test_text_that_a_spreadsheet_would_run_is_disarmed(text: str) -> None:
    safe = spreadsheet_safe(text)
    assert safe == "'" + text


@pytest.mark.parametrize("cell", ["H100", "a=b", "", "<b>x</b>", -1.5, -3, True, None])
def test_other_cells_stay_as_they_are(cell: Cell) -> None:
    assert spreadsheet_safe(cell) is cell


def test_negative_numbers_stay_numbers() -> None:
    assert to_csv([{"usd": -34.5}]).splitlines() == ["usd", "-34.5"]


@settings(max_examples=60, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=6))
def test_no_cell_of_a_csv_starts_a_formula(cells: list[Cell]) -> None:
    text = to_csv([{f"column_{i}": cell for i, cell in enumerate(cells)}])
    _, row = csv.reader(io.StringIO(text, newline=""))
    for cell, written in zip(cells, row, strict=True):
        if isinstance(cell, str):
            assert not written.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        elif isinstance(cell, float) and not math.isfinite(cell):
            assert written == ""


@settings(max_examples=60, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=6))
def test_json_is_json_for_every_reader(cells: list[Cell]) -> None:
    (row,) = json.loads(to_json([{f"column_{i}": cell for i, cell in enumerate(cells)}]), parse_constant=pytest.fail)
    for cell, read in zip(cells, row.values(), strict=True):
        assert read is None if isinstance(cell, float) and not math.isfinite(cell) else read == cell


def test_a_hostile_column_name_is_disarmed_too() -> None:
    assert to_csv([{"=cmd": 1}]).splitlines()[0] == "'=cmd"


def test_no_rows_make_an_empty_table() -> None:
    assert to_csv([]) == ""
    assert to_json([]) == "[]"
