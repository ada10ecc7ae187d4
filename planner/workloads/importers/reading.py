"""Bytes of an upload → a table of the columns that are asked for, within bounds of size."""

import csv
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from planner.errors import InputError
from planner.units import MIB
from planner.workloads.trace import MAX_ROWS, MAX_VALUES, most_values

MAX_UPLOAD_BYTES = int(200 * MIB)
_MAX_COLUMNS = 1000
_LONGEST_TEXT = 100
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_REFUSED = {
    b"PK\x03\x04": "a ZIP archive or spreadsheet",
    b"PK\x05\x06": "a ZIP archive",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "a 7-Zip archive",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"Rar!": "a RAR archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of the old binary form",
    b"%PDF": "a PDF document",
}
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_SURPLUS = "surplus"
_LINE_BREAK = re.compile(rb"[\r\n]")
_LONGEST_HEADER = 65536


class RawTable(NamedTuple):
    """A table as read: `frame` holds only wanted columns; `header` names every column of the file."""

    frame: pd.DataFrame
    header: tuple[str, ...]


Wanted = Callable[[Sequence[str]], Sequence[str]]


def read_table(data: bytes, wanted: Wanted) -> RawTable:
    """Read CSV (comma, semicolon, tab), JSON lines, a JSON array or parquet, plain or gzip-compressed.

    data : the file, at most 200 MiB before and after decompression
    wanted : given all column names, returns those to read

    Archives are refused unopened. Raises InputError for what can't be read, with the row where it is known.
    """
    payload = _bounded(data)
    if payload.startswith(_PARQUET):
        return _read_parquet(payload, wanted)
    text = _utf8(payload)
    if text.lstrip()[:1] in {b"{", b"["}:
        return _read_json(text, wanted)
    return _read_csv(text, wanted)


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_UPLOAD_BYTES:
        raise InputError(
            "file", len(data), f"must be at most {MAX_UPLOAD_BYTES} bytes", "Keep only the needed columns, or a part of the rows"
        )
    if not data.strip():
        raise InputError("file", len(data), "must hold rows", "Choose a file that isn't empty")
    for magic, what in _REFUSED.items():
        if data.startswith(magic):
            raise InputError("file", what, "must be CSV, JSON lines or parquet, plain or gzip", "Unpack it or save it as CSV")
    return _gunzip(data) if data.startswith(_GZIP) else data


def _gunzip(data: bytes) -> bytes:
    """Decompress every member of a gzip file, stopping at the size bound."""
    parts: list[bytes] = []
    size = 0
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(data, MAX_UPLOAD_BYTES + 1 - size)
        except zlib.error as error:
            raise InputError("file", str(error), "must be a whole gzip file", "Compress it again or upload it plain") from error
        size += len(part)
        if size > MAX_UPLOAD_BYTES:
            raise InputError(
                "file", "gzip", f"must be at most {MAX_UPLOAD_BYTES} bytes when decompressed", "Keep only the needed columns"
            )
        if not member.eof:
            raise InputError("file", "gzip", "must be a whole gzip file, but it is cut", "Upload it again")
        parts.append(part)
        data = member.unused_data
    return b"".join(parts)


def _utf8(payload: bytes) -> bytes:
    """Return the text as UTF-8 without mark; other single-byte text passes, as only columns with ASCII names are read."""
    for mark, encoding in _UTF16_MARKS.items():
        if payload.startswith(mark):
            return payload[len(mark) :].decode(encoding, errors="replace").encode()
    if b"\x00" in payload[:65536]:
        raise InputError("file", "binary", "must be text in UTF-8, or UTF-16 with a byte order mark", "Save it as UTF-8")
    return payload.removeprefix(_UTF8_MARK)


def _read_csv(text: bytes, wanted: Wanted) -> RawTable:
    """Read the wanted columns; one more is read to catch rows with a field too many, whose numbers may have been split."""
    first_line, rest = _first_line(text.lstrip(b"\r\n"))
    separator = max(",;\t", key=first_line.count)
    header = tuple(next(csv.reader([first_line], delimiter=separator)))
    columns = _chosen(header, wanted)
    positions = [str(header.index(column)) for column in columns]
    names = separator.join([*map(str, range(len(header))), _SURPLUS]).encode()
    try:
        frame = pd.read_csv(
            io.BytesIO(names + rest),
            sep=separator,
            usecols=[*positions, _SURPLUS],
            index_col=False,
            low_memory=False,
            nrows=MAX_ROWS + 1,
            encoding_errors="replace",
        )
    except pd.errors.ParserError as error:
        raise InputError(
            "file", str(error).strip(), "must be a CSV table with one header line", "Correct the named line"
        ) from error
    surplus = frame.pop(_SURPLUS).notna().to_numpy()
    if surplus.any():
        row = int(surplus.argmax()) + 1
        bound = f"must have the {len(header)} fields of the header"
        raise InputError(f"rows[{row}]", "more fields", bound, "Quote fields that hold the separator")
    return _bounded_rows(RawTable(frame[positions].set_axis(columns, axis=1), header))


def _first_line(text: bytes) -> tuple[str, bytes]:
    """Return the header line, and the rest from its line break on."""
    end = _LINE_BREAK.search(text, 0, _LONGEST_HEADER)
    if end is None:
        raise InputError("file", text[:60], "must have a header line and rows below it", "Give one line of column names, then rows")
    return text[: end.start()].decode("utf-8", errors="replace"), text[end.start() :]


def _read_json(text: bytes, wanted: Wanted) -> RawTable:
    columns: list[str] = []
    kept: list[list[object]] = []
    header: tuple[str, ...] = ()
    for number, row in _json_rows(text):
        if not isinstance(row, dict):
            raise InputError(f"rows[{number}]", row, "must be an object", "Give one object per request")
        if not columns:
            header = tuple(row)
            columns = _chosen(header, wanted)
        kept.append([row.get(column) for column in columns])
        if len(kept) > MAX_ROWS:
            break
    return _bounded_rows(RawTable(pd.DataFrame(kept, columns=columns), header))


def _json_rows(text: bytes) -> Iterator[tuple[int, object]]:
    """Yield (number, value) of each line, or of each entry of one array."""
    if text.lstrip().startswith(b"["):
        document = _parsed(text, 1)
        if not isinstance(document, list):
            raise InputError("file", type(document).__name__, "must be a list of objects", "Give one object per request")
        yield from enumerate(document, start=1)
        return
    for number, line in enumerate(io.BytesIO(text), start=1):
        if line.strip():
            yield number, _parsed(line, number)


def _parsed(text: bytes, number: int) -> object:
    try:
        return json.loads(text.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"rows[{number}]",
            text[:60],
            f"must be JSON ({type(error).__name__}: {error})",
            "Correct or drop the line; the file may be cut",
        ) from error


def _read_parquet(payload: bytes, wanted: Wanted) -> RawTable:
    try:
        file = pq.ParquetFile(io.BytesIO(payload))
        _check_parquet(file.metadata)
        header = tuple(file.schema_arrow.names)
        columns = _chosen(header, wanted)
        text = [name for name in columns if _is_text(file.schema_arrow.field(name).type)]
        table = pq.ParquetFile(io.BytesIO(payload), read_dictionary=text).read(columns=columns)
        for name in text:
            table = table.set_column(table.column_names.index(name), name, _plain_text(table[name], name))
        frame = table.to_pandas()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("file", str(error)[:200], "must be a whole parquet file", "Upload it again") from error
    return _bounded_rows(RawTable(frame, header))


def _check_parquet(metadata: pq.FileMetaData) -> None:
    """Refuse what would outgrow the memory: runs of equal values take next to nothing in the file, however many they are."""
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    values = most_values(metadata)
    if size > MAX_UPLOAD_BYTES or metadata.num_rows > MAX_ROWS or values > MAX_VALUES:
        bound = f"must be at most {MAX_UPLOAD_BYTES} bytes, {MAX_ROWS} rows and {MAX_VALUES} values a column when decompressed"
        raise InputError("file", f"{size} bytes, {metadata.num_rows} rows, {values} values", bound, "Keep a part of the rows")


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_binary(plain))


def _plain_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a dictionary of texts as texts, once its longest is known to be a number or a time: each row would repeat it."""
    longest = max((pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0 for chunk in column.chunks), default=0)
    if longest > _LONGEST_TEXT:
        raise InputError(name, f"{longest} characters", f"must be at most {_LONGEST_TEXT}", "Choose a column of numbers or times")
    return column.cast(column.type.value_type)


def _chosen(header: Sequence[str], wanted: Wanted) -> list[str]:
    if len(header) > _MAX_COLUMNS:
        raise InputError("file", len(header), f"must have at most {_MAX_COLUMNS} columns", "Keep only the needed columns")
    chosen = list(wanted(header))
    twice = [column for column in chosen if header.count(column) > 1]
    if twice:
        raise InputError("file", twice[0], "must be the name of one column only", "Rename or remove the other column")
    return chosen


def _bounded_rows(table: RawTable) -> RawTable:
    if len(table.frame) > MAX_ROWS:
        raise InputError("file", len(table.frame), f"must have at most {MAX_ROWS} rows", "Keep a part of the rows")
    if len(table.frame) == 0:
        raise InputError("file", 0, "must hold at least one row below the header", "Choose a file with rows")
    return table
