"""Observed requests (traces) and length histograms: parquet files beside a description with their licence and source."""

import functools
import hashlib
import json
import tomllib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import InputError, as_input_error, unique_fields
from planner.paths import WORKLOADS_DIR, user_home
from planner.provenance import Source
from planner.units import US
from planner.workloads.laws import MAX_TOKENS, Floats, TokenLaw, Tokens
from planner.workloads.requests import BlockHashes

Slug = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Text = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^<>\x00-\x1f\x7f]*$")]
MAX_DOCUMENT_BYTES = 256 * 1024
MAX_ROWS = 10_000_000
MAX_VALUES = 2 * MAX_ROWS
"""Values of one column, those in lists included: in a parquet file, runs of equal ones take next to nothing."""
_KEPT_IN_MEMORY = 16


class TraceMeta(BaseModel):
    """What a trace is, where it comes from and what one may do with it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: Slug
    name: Text
    kind: Literal["requests", "lengths", "histogram"] = Field(
        description="requests carry arrivals, lengths are pairs, histogram are sides"
    )
    description: Text
    rows: int = Field(ge=1, le=MAX_ROWS, description="requests (or histogram entries) in the parquet file")
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$", description="of the parquet file, checked when stated")
    licence: Text = Field(description="SPDX id or a plain statement")
    attribution: Text | None = None
    tokenizer: Text | None = None
    transformation: Text = Field(description="what was done between the source and this file, row losses included")
    started: Text | None = Field(default=None, description="time stamp of second 0, as the source states it")
    time_resolution_s: float | None = Field(default=None, gt=0, le=86400, description="tick of the time stamps, when coarse [s]")
    block_tokens: int | None = Field(default=None, ge=1, le=65536, description="tokens behind one block hash [token]")
    caveats: tuple[Text, ...] = ()
    source: Source


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Rows of a trace in their order; arrival_s and block_hashes only where the source has them."""

    meta: TraceMeta
    prompt_tokens: Tokens
    output_tokens: Tokens
    arrival_s: Floats | None = None
    block_hashes: BlockHashes | None = None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def recorded_rps(self) -> float | None:
        """Mean rate between the first and the last recorded arrival [request/s]; None without times, or where they are all one."""
        if self.arrival_s is None or len(self) < 2 or self.arrival_s[-1] <= self.arrival_s[0]:
            return None
        return (len(self) - 1) / float(self.arrival_s[-1] - self.arrival_s[0])


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Laws of prompt and output lengths without their joint law."""

    meta: TraceMeta
    laws: dict[str, TokenLaw]


class _Memory:
    """Uploaded traces of this process, by id; an id holds a digest of the rows, so an entry never changes."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._lock = Lock()

    def put(self, trace: Trace) -> None:
        with self._lock:
            self._traces[trace.meta.id] = trace
            self._traces.move_to_end(trace.meta.id)
            while len(self._traces) > _KEPT_IN_MEMORY:
                self._traces.popitem(last=False)

    def get(self, trace_id: str) -> Trace | None:
        with self._lock:
            return self._traces.get(trace_id)


_memory = _Memory()


def register_trace(trace: Trace) -> None:
    """Keep an uploaded trace in this process, so that a workload can name it by id; `save_trace` keeps it on disk."""
    _memory.put(trace)


def load_trace(trace_id: str) -> Trace:
    """Return a trace by id: uploaded in this process, from the user's folder, or shipped.

    Raises InputError when the id is unknown or names a histogram.
    """
    uploaded = _memory.get(trace_id)
    if uploaded is not None:
        return uploaded
    path = _find(trace_id)
    loaded = _read(path, path.stat().st_mtime_ns)
    if isinstance(loaded, Histogram):
        raise InputError("trace", trace_id, "is a histogram, not rows", "Use it as a length of kind 'histogram'")
    return loaded


def load_histogram(table_id: str) -> Histogram:
    """Return a length histogram by id; raises InputError when the id is unknown or names rows."""
    path = _find(table_id)
    loaded = _read(path, path.stat().st_mtime_ns)
    if isinstance(loaded, Trace):
        raise InputError("table", table_id, "holds rows, not a histogram", "Use it as lengths of kind 'rows'")
    return loaded


def list_traces() -> tuple[TraceMeta, ...]:
    """Return the descriptions of the shipped traces and of those in the user's folder, by id."""
    found: dict[str, Path] = {}
    for directory in _directories():
        for path in sorted(directory.glob("*.parquet")):
            if path.is_file():
                found.setdefault(path.stem, path)
    return tuple(_read_meta(found[trace_id]) for trace_id in sorted(found))


def rows_digest(prompt_tokens: Tokens, output_tokens: Tokens, arrival_s: Floats | None) -> str:
    """Return 16 hexadecimal digits that name these rows: same rows, same digest."""
    digest = hashlib.sha256()
    for array in (prompt_tokens, output_tokens, arrival_s):
        digest.update(b"|" if array is None else array.tobytes())
    return digest.hexdigest()[:16]


def save_trace(trace: Trace, directory: Path) -> Path:
    """Write the trace as <id>.parquet and <id>.json into `directory`; only counts are written, never text."""
    directory.mkdir(parents=True, exist_ok=True)
    columns: dict[str, pa.Array] = {
        "prompt_tokens": pa.array(trace.prompt_tokens.astype(np.int32)),
        "output_tokens": pa.array(trace.output_tokens.astype(np.int32)),
    }
    if trace.arrival_s is not None:
        columns["arrival_us"] = pa.array(np.rint(trace.arrival_s / US).astype(np.int64))
    if trace.block_hashes is not None:
        offsets = pa.array(trace.block_hashes.offsets.astype(np.int32))
        columns["block_hashes"] = pa.ListArray.from_arrays(offsets, pa.array(trace.block_hashes.flat))
    path = directory / f"{trace.meta.id}.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    meta = trace.meta.model_copy(update={"sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    path.with_suffix(".json").write_text(meta.model_dump_json(indent=1), encoding="utf-8")
    return path


def _directories() -> Iterator[Path]:
    home = user_home()
    if home is not None:
        yield home / "workloads" / "traces"
    yield WORKLOADS_DIR / "traces"


def _find(trace_id: str) -> Path:
    for directory in _directories():
        for path in directory.glob("*.parquet"):
            if path.stem == trace_id and path.is_file():
                return path
    known = ", ".join(meta.id for meta in list_traces())
    raise InputError(
        "trace", trace_id, f"must be one of {known}", "Upload the rows again, or put them into PLANNER_HOME/workloads/traces"
    )


@functools.lru_cache(maxsize=_KEPT_IN_MEMORY * 2)
def _read(path: Path, _mtime_ns: int) -> Trace | Histogram:
    meta = _read_meta(path)
    if meta.sha256 not in {None, hashlib.sha256(path.read_bytes()).hexdigest()}:
        raise InputError(
            path.name, "other bytes", "must have the sha256 of its description", "Restore the file or correct its description"
        )
    try:
        held = pq.read_metadata(path)
        table = pq.read_table(path) if held.num_rows == meta.rows and most_values(held) <= MAX_VALUES else None
    except (pa.ArrowException, OSError) as error:
        raise InputError(path.name, str(error), "must be a parquet file", "Restore the file") from error
    if held.num_rows != meta.rows:
        raise InputError(f"{path.name}.rows", held.num_rows, f"must be the {meta.rows} of its description", "Restore the file")
    if table is None:
        bound = f"must hold at most {MAX_VALUES} values a column"
        raise InputError(path.name, most_values(held), bound, "Keep a part of the rows")
    try:
        return _histogram(meta, table) if meta.kind == "histogram" else _trace(meta, table)
    except (KeyError, pa.ArrowException) as error:
        raise InputError(path.name, str(error), "must have the columns of its kind", "Restore the file") from error


def _read_meta(path: Path) -> TraceMeta:
    for suffix, parse in ((".toml", tomllib.loads), (".json", read_json)):
        described = path.with_suffix(suffix)
        if described.is_file():
            return _parse_meta(described, read_document(described, parse))
    raise InputError(path.name, None, "must have a description beside it", f"Add {path.stem}.toml with its licence and source")


def _parse_meta(path: Path, document: object) -> TraceMeta:
    try:
        meta = TraceMeta.model_validate(document)
    except ValidationError as error:
        raise as_input_error(error, path.name) from error
    if meta.id != path.stem:
        raise InputError(f"{path.name}.id", meta.id, f"must be {path.stem}, as the file is named", "Rename one of them")
    return meta


def read_json(text: str) -> object:
    """Return a JSON document; InputError, a ValueError, when it states a field twice."""
    return json.loads(text, object_pairs_hook=unique_fields)


def read_document(path: Path, parse: Callable[[str], object]) -> object:
    """Return the document in a file of bounded size; every fault is an InputError that names the file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise InputError(path.name, error.strerror, "can't be read", "Check that the file may be read") from error
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InputError(path.name, len(data), f"must be at most {MAX_DOCUMENT_BYTES} bytes", "Shorten the description")
    try:
        return parse(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(
            path.name, type(error).__name__, f"must be a {path.suffix[1:].upper()} document ({error})", "Correct the file"
        ) from error


def most_values(metadata: pq.FileMetaData) -> int:
    """Return the values of the column that has most, those in lists included."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return max((sum(group.column(i).num_values for group in groups) for i in range(metadata.num_columns)), default=0)


def _whole_numbers(column: pa.ChunkedArray | pa.Array, name: str) -> Tokens:
    if not pa.types.is_integer(column.type) or column.null_count:
        bound = "must hold whole numbers without gaps"
        raise InputError(name, f"{column.type} with {column.null_count} gaps", bound, "Restore the file")
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _arrivals_s(column: pa.ChunkedArray, name: str) -> Floats:
    microseconds = _whole_numbers(column, name)
    late = np.flatnonzero(np.diff(microseconds, prepend=0) < 0)
    if len(late):
        bound = "must not be below 0 nor before the row above"
        raise InputError(f"{name}[{late[0]}]", int(microseconds[late[0]]), bound, "Sort the rows by time, from 0 on")
    return np.asarray(microseconds * US, dtype=np.float64)


def _trace(meta: TraceMeta, table: pa.Table) -> Trace:
    tokens = {name: _whole_numbers(table[name], f"{meta.id}.{name}") for name in ("prompt_tokens", "output_tokens")}
    for name, values in tokens.items():
        if values.min() < 1 or values.max() > MAX_TOKENS:
            raise InputError(f"{meta.id}.{name}", int(values.min()), f"must be between 1 and {MAX_TOKENS}", "Restore the file")
    arrival_s = _arrivals_s(table["arrival_us"], f"{meta.id}.arrival_us") if "arrival_us" in table.column_names else None
    hashes = None
    if "block_hashes" in table.column_names and meta.block_tokens is not None:
        lists = table["block_hashes"].combine_chunks()
        if not pa.types.is_list(lists.type) or lists.null_count:
            bound = "must hold a list for each row"
            raise InputError(f"{meta.id}.block_hashes", str(lists.type), bound, "Restore the file")
        flat = _whole_numbers(lists.values, f"{meta.id}.block_hashes")
        hashes = BlockHashes(flat, lists.offsets.to_numpy().astype(np.int64), meta.block_tokens)
    return Trace(meta, tokens["prompt_tokens"], tokens["output_tokens"], arrival_s, hashes)


def _histogram(meta: TraceMeta, table: pa.Table) -> Histogram:
    fields = np.asarray(table["field"].to_pylist())
    values, weights = table["tokens"].to_numpy(), table["weight"].to_numpy()
    laws = {str(name): TokenLaw.from_weights(values[fields == name], weights[fields == name]) for name in np.unique(fields)}
    return Histogram(meta, laws)
