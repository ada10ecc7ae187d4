"""Traces in the user's folder that somebody wrote by hand: each fault is an InputError that names the column."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import InputError
from planner.workloads.trace import load_trace

META = {
    "id": "mine",
    "name": "mine",
    "kind": "requests",
    "description": "three requests",
    "rows": 3,
    "licence": "own",
    "transformation": "none",
    "block_tokens": 16,
    "source": {"kind": "measured", "ref": "own", "confidence": "high"},
}
GOOD: dict[str, Any] = {"prompt_tokens": [1, 2, 3], "output_tokens": [3, 2, 1]}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"prompt_tokens": ["a", "b", "c"]}, "mine.prompt_tokens"),
    "fractions": ({"prompt_tokens": [1.5, 2.0, 3.0]}, "mine.prompt_tokens"),
    "lists": ({"prompt_tokens": [[1], [2], [3]]}, "mine.prompt_tokens"),
    "a gap": ({"output_tokens": [1, None, 3]}, "mine.output_tokens"),
    "negative": ({"output_tokens": [1, -2, 3]}, "mine.output_tokens"),
    "times as text": ({"arrival_us": ["a", "b", "c"]}, "mine.arrival_us"),
    "times not in order": ({"arrival_us": [5, 1, 7]}, "mine.arrival_us[1]"),
    "times below 0": ({"arrival_us": [-5, 1, 7]}, "mine.arrival_us[0]"),
    "times that are no numbers": ({"arrival_us": [0.0, float("nan"), float("inf")]}, "mine.arrival_us"),
    "hashes as text": ({"block_hashes": ["a", "b", "c"]}, "mine.block_hashes"),
    "a row without hashes": ({"block_hashes": [[1], None, [2]]}, "mine.block_hashes"),
    "a gap in the hashes": ({"block_hashes": [[1], [None], [2]]}, "mine.block_hashes"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    path = tmp_path / "workloads" / "traces"
    path.mkdir(parents=True)
    (path / "mine.json").write_text(json.dumps(META))
    return path


def test_a_good_one_is_read(folder: Path) -> None:
    pq.write_table(pa.table(GOOD | {"arrival_us": [0, 0, 9], "block_hashes": [[1], [2], [3]]}), folder / "mine.parquet")
    trace = load_trace("mine")
    assert trace.prompt_tokens.tolist() == [1, 2, 3]
    assert trace.arrival_s is not None


@pytest.mark.parametrize(("columns", "field"), BAD.values(), ids=BAD)
def test_a_wrong_column_is_named(columns: dict[str, Any], field: str, folder: Path) -> None:
    pq.write_table(pa.table(GOOD | columns), folder / "mine.parquet")
    with pytest.raises(InputError) as caught:
        load_trace("mine")
    assert caught.value.field == field


def test_a_file_that_unfolds_beyond_the_memory_is_not_unfolded(folder: Path) -> None:
    each = 7_000_000
    lists = pa.ListArray.from_arrays(pa.array(np.arange(4, dtype=np.int32) * each), pa.array(np.zeros(3 * each, np.int8)))
    pq.write_table(pa.table(GOOD | {"block_hashes": lists}), folder / "mine.parquet", compression="zstd")
    with pytest.raises(InputError, match="values a column"):
        load_trace("mine")
    (folder / "mine.json").write_text(json.dumps(META | {"rows": 10**9}))
    with pytest.raises(InputError, match="rows"):
        load_trace("mine")


def test_a_field_stated_twice_is_named(folder: Path) -> None:
    pq.write_table(pa.table(GOOD), folder / "mine.parquet")
    (folder / "mine.json").write_text(json.dumps(META)[:-1] + ', "rows": 4}')
    with pytest.raises(InputError, match=r"mine\.json.*rows is 4: is stated twice"):
        load_trace("mine")
