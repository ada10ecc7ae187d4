"""Importers meet hostile and broken files: each refusal names the field, the row where there is one, and a remedy."""

import gzip
import io
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import InputError
from planner.workloads import import_rows, workload_from_rows
from planner.workloads.importers import MAX_UPLOAD_BYTES

HEAD = b"arrival_s,prompt_tokens,output_tokens\n"
GOOD = HEAD + b"0,5,6\n1,7,8\n"


def parquet(**columns: object) -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame(columns).to_parquet(buffer, compression="zstd", use_dictionary=False)
    return buffer.getvalue()


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb.csv", GOOD * 1000)
    return buffer.getvalue()


BAD_CELLS = {
    b"abc": "must be a number",
    b"-3": "must not be negative",
    b"1.5": "must be a whole number",
    b"1000000000000": "must be at most",
    b"1e400": "must be at most",
    b"inf": "must be at most",
    b"9" * 400: "must be at most",
    b"0x10": "must be a number",
    b"1_000": "must be a number",
    b"<b>7</b>": "must be a number",
    b'"1,000"': "must be a number",
    b"True": "must be a number",
}


@pytest.mark.parametrize("cell", BAD_CELLS)
@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
def test_bad_cell_names_row_column_and_bound(cell: bytes, column: str) -> None:
    row = b"1,%s,8\n" % cell if column == "prompt_tokens" else b"1,8,%s\n" % cell
    data = HEAD + b"0,5,6\n" + row + b"2,9,9\n"
    with pytest.raises(InputError) as caught:
        import_rows(data, "bad")
    assert caught.value.field == f"rows[2].{column}"
    assert caught.value.bound.startswith(BAD_CELLS[cell])
    assert len(str(caught.value)) < 400
    dropped = import_rows(data, "bad", bad_rows="drop").report
    assert dropped.rows_kept == 2
    assert sum(dropped.dropped.values()) == 1


@pytest.mark.parametrize(
    ("cell", "bound"),
    [(b"abc", "must be a finite number"), (b"inf", "must be a finite number"), (b"2024-01-01", "must be a finite number")],
)
def test_bad_time_among_numbers(cell: bytes, bound: str) -> None:
    with pytest.raises(InputError, match=bound) as caught:
        import_rows(HEAD + b"0,5,6\n%s,7,8\n" % cell, "bad")
    assert caught.value.field == "rows[2].arrival"


def test_bad_time_among_clocks() -> None:
    rows = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,5,6\n2024-13-45 99:00:00,5,6\n"
    with pytest.raises(InputError, match="must be a date and time") as caught:
        import_rows(rows, "bad")
    assert caught.value.field == "rows[2].arrival"


@pytest.mark.parametrize(
    ("data", "bound"),
    [
        (b"", "must hold rows"),
        (b"  \n \n", "must hold rows"),
        (HEAD, "at least one row"),
        (b"prompt_tokens,output_tokens", "must have a header line and rows"),
        (b"prompt_tokens,output_tokens\n,\n,\n", "must hold a row"),
        (b"prompt_tokens,output_tokens\n5,0\n", "must hold a row"),
        (b"a,b,c\n1,2,3\n", "must name prompt and output tokens"),
        (b"5,6\n7,8\n", "must name prompt and output tokens"),
        (HEAD + b"0,5,6,7\n", "3 fields of the header"),
        (HEAD + b"0,5,6,7,8\n", "3 fields of the header"),
        (HEAD + b'0,5,"6\n', "CSV table"),
        ((b"c," * 2000) + b"prompt_tokens,output_tokens\n", "at most 1000 columns"),
        (b"x" * 100_000, "header line"),
        (GOOD.decode().encode("utf-16-le"), "UTF-8"),
        (b"\x00\x01\x02" * 100, "UTF-8"),
        (archive(), "CSV, JSON lines or parquet"),
        (b"BZh91AY", "CSV, JSON lines or parquet"),
        (b"\xfd7zXZ\x00", "CSV, JSON lines or parquet"),
        (b"%PDF-1.7", "CSV, JSON lines or parquet"),
        (gzip.compress(GOOD, mtime=0)[:-9], "cut"),
        (gzip.compress(GOOD, mtime=0)[:8] + b"\xff" * 40, "gzip"),
        (gzip.compress(GOOD, mtime=0) + b"junk", "gzip"),
        (gzip.compress(gzip.compress(GOOD, mtime=0), mtime=0), "UTF-8"),
        (b"PAR1", "parquet"),
        (parquet(prompt_tokens=[1], output_tokens=[2])[:-20], "parquet"),
        (parquet(a=[1]), "must name prompt and output tokens"),
        (parquet(prompt_tokens=[True], output_tokens=[2]), "must be whole numbers"),
        (b'{"prompt_tokens": 5, "output_tokens": 6}\n{"prompt_tokens": 5, "out', "must be JSON"),
        (b'{"prompt_tokens": 5, "output_tokens": 6}\n[1, 2]\n', "must be an object"),
        (b"[" * 100_000, "must be JSON"),
        (b"[1, 2]", "must be an object"),
        (b"[]", "at least one row"),
        (b'{"prompt_tokens": [5], "output_tokens": 6}', "must be a number"),
        (b'{"prompt_tokens": true, "output_tokens": 6}', "must be whole numbers"),
        (b'{"prompt_tokens": Infinity, "output_tokens": 6}', "must be at most"),
        (b'{"prompt_tokens": ' + b"9" * 5000 + b', "output_tokens": 6}', "must be JSON"),
        (b'{"prompt_tokens": {"a": 1}, "output_tokens": 6}', "must be a number"),
    ],
)
def test_broken_files_are_refused_in_words(data: bytes, bound: str) -> None:
    with pytest.raises(InputError, match=bound) as caught:
        import_rows(data, "broken")
    assert caught.value.remedy
    assert len(str(caught.value)) < 1500


def test_a_column_that_is_there_twice_is_refused() -> None:
    table = b"arrived_at,num_prefill_tokens,num_decode_tokens,num_decode_tokens\n0,10,5,6\n1,10,5,6\n"
    with pytest.raises(InputError, match="one column only"):
        import_rows(table, "twice")


def test_json_line_number_is_named() -> None:
    lines = b'{"prompt_tokens": 5, "output_tokens": 6}\n' * 3 + b'{"prompt_tokens": 5,\n'
    with pytest.raises(InputError) as caught:
        import_rows(lines, "cut")
    assert caught.value.field == "rows[4]"


def test_size_bound_before_and_after_decompression(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_UPLOAD_BYTES == 200 * 2**20
    monkeypatch.setattr("planner.workloads.importers.reading.MAX_UPLOAD_BYTES", 100_000)
    with pytest.raises(InputError, match="must be at most 100000 bytes"):
        import_rows(HEAD + b"0,5,6\n" * 20_000, "large")
    with pytest.raises(InputError, match="when decompressed"):
        import_rows(gzip.compress(HEAD + b"0,5,6\n" * 20_000, mtime=0), "bomb")
    with pytest.raises(InputError, match="when decompressed"):
        import_rows(parquet(prompt_tokens=np.arange(50_000) // 1000 + 1, output_tokens=np.arange(50_000) // 1000 + 1), "bomb")


def test_row_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.workloads.importers.reading.MAX_ROWS", 10)
    for data in (HEAD + b"0,5,6\n" * 11, b'{"prompt_tokens": 5, "output_tokens": 6}\n' * 11):
        with pytest.raises(InputError, match="at most 10 rows"):
            import_rows(data, "many")


@pytest.mark.parametrize("name", ["", " ", "<img src=x>", "../../etc/passwd", "a\\b", "a\x00b", "x" * 121, None, 5])
def test_names_that_could_do_harm_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="name is"):
        workload_from_rows(GOOD, name)


def test_frames_that_are_no_table() -> None:
    with pytest.raises(InputError, match="must have from 1"):
        import_rows(pd.DataFrame({"prompt_tokens": [], "output_tokens": []}), "empty")
    twice = pd.DataFrame([[1, 2, 3]], columns=["prompt_tokens", "prompt_tokens", "output_tokens"])
    with pytest.raises(InputError, match="must name each column once"):
        import_rows(twice, "twice")
    with pytest.raises(InputError, match="must name prompt"):
        import_rows(pd.DataFrame({0: [1], 1: [2]}), "numbers")
    missing = pd.DataFrame({"prompt_tokens": pd.array([5, None], dtype="Int64"), "output_tokens": [1, 2]})
    assert import_rows(missing, "missing").report.rows_kept == 1


def test_text_columns_are_never_kept() -> None:
    row = {"prompt_tokens": 5, "output_tokens": 6, "messages": "secret words"}
    imported = import_rows(json.dumps(row).encode(), "private")
    assert "secret" not in imported.trace.meta.model_dump_json()
    assert "secret" not in imported.report.sentence()


def test_a_hundred_thousand_rows_take_no_time() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    frame = pd.DataFrame(
        {"arrival_s": np.cumsum(rng.random(n)), "prompt_tokens": rng.integers(1, 9000, n), "output_tokens": rng.integers(1, 900, n)}
    )
    data = frame.to_csv(index=False).encode()
    start = time.process_time()
    assert import_rows(data, "long").report.rows_kept == n
    assert time.process_time() - start < 3


def test_runs_of_equal_values_do_not_outgrow_the_memory() -> None:
    rows, each = 3, 8_000_000
    lists = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * each), pa.array(np.zeros(rows * each, np.int8)))
    table = pa.table({"timestamp": [0, 1, 2], "input_length": [9] * rows, "output_length": [1] * rows, "hash_ids": lists})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    assert len(buffer.getvalue()) < 100_000
    with pytest.raises(InputError, match="24000000 values"):
        import_rows(buffer.getvalue(), "bomb")


def test_one_long_text_for_every_row_is_not_repeated() -> None:
    rows = 100_000
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["1" * 100_000]))
    buffer = io.BytesIO()
    pq.write_table(pa.table({"prompt_tokens": [1] * rows, "output_tokens": [1] * rows, "timestamp": long}), buffer)
    with pytest.raises(InputError, match="at most 100") as caught:
        import_rows(buffer.getvalue(), "bomb")
    assert caught.value.field == "timestamp"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_short_texts_of_a_parquet_file_are_read(kind: pa.DataType) -> None:
    times = pa.array(["2024-05-01T00:00:00Z", "2024-05-01T00:00:03Z"]).cast(kind)
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"prompt_tokens": pa.array(["5", "7"]).cast(kind), "output_tokens": [6, 8], "timestamp": times}), buffer
    )
    trace = import_rows(buffer.getvalue(), "texts").trace
    assert trace.prompt_tokens.tolist() == [5, 7]
    assert trace.arrival_s is not None
    assert trace.arrival_s.tolist() == [0.0, 3.0]


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([*range(150), *(1_700_000_000 + i for i in range(150))], "5 years"),
        ([0, 1e308], "at most 1e"),
        ([-1e308, 1e308], "at most 1e"),
        ([*(i / 100 for i in range(300)), 1e8], "busiest hour"),
    ],
    ids=["seconds and dates", "huge", "overflow", "one hour in years"],
)
def test_times_of_mixed_units_are_refused(times: list[float], says: str) -> None:
    data = HEAD + "\n".join(f"{time_s!r},5,6" for time_s in times).encode()
    with pytest.raises(InputError, match=says):
        workload_from_rows(data, "mixed")


def test_a_sparse_trace_of_a_month_is_a_workload() -> None:
    times = [*(i * 30 * 86400 / 120 for i in range(120)), *(i * 0.5 for i in range(8))]
    data = HEAD + "\n".join(f"{time_s!r},5,6" for time_s in times).encode()
    workload = workload_from_rows(data, "sparse")
    assert workload.peak_minute_factor is not None
    assert workload.peak_minute_factor > 1000


@pytest.mark.parametrize("data", ["rows.csv", Path("rows.csv"), None, 3])
def test_a_name_is_no_data(data: Any) -> None:
    with pytest.raises(InputError, match="read_bytes") as caught:
        import_rows(data, "rows")
    assert caught.value.field == "data"
