"""Measured serving results: one schema, SI units, for whatever benchmark produced them.

A table in this schema is a CSV file whose header names fields of `Measurement`; hardware_profiles/evidence/accuracy/README.md
lists them. Tables in three published layouts are read as well (planner.calibration.measurement_tables).
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import InputError, shorten

Scenario = Literal["closed-loop", "open-loop", "static-batch", "offline"]
FrontEnd = Literal["server", "tuned", "offline"]

MAX_BYTES = 64 * 2**20
MAX_ROWS = 200_000
MAX_CELL = 20_000
REQUIRED = ("gpu", "engine", "model", "scenario", "prompt_tokens", "output_tokens")

Text = Annotated[str, Field(max_length=500)]
Tokens = Annotated[float, Field(ge=1, le=1e7)]
Count = Annotated[int, Field(ge=1, le=10**7)]
Rate = Annotated[float, Field(gt=0, le=1e9)]
Ttft = Annotated[float, Field(gt=0, le=7200)]
Tpot = Annotated[float, Field(gt=0, le=30)]
Duration = Annotated[float, Field(gt=0, le=1e6)]


class Measurement(BaseModel):
    """One measured point of one deployment; throughput counts all its GPUs. None means that the source doesn't say."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    source: Text = Field(default="", description="where the figures were published")
    date: Text = Field(default="", description="when they were measured, YYYY-MM-DD or the beginning of it")
    engine: Text = Field(description="vLLM, SGLang, TensorRT-LLM …")
    engine_version: Text = ""
    front_end: FrontEnd | None = Field(
        default=None,
        description="server: one that streams every token; tuned: streams chunks or over several processes; offline: none",
    )
    model: Text = Field(description="id of the catalogue, Hugging Face repository or usual name")
    weight_dtype: Text = ""
    kv_dtype: Text = ""
    gpu: Text = Field(description="id of the catalogue or usual name")
    gpu_count: Count | None = Field(default=None, description="all GPUs of the deployment [GPU]")
    tp: Count | None = None
    pp: Count | None = None
    ep: Count | None = None
    dp: Count | None = Field(default=None, description="copies of the attention layers in one engine")
    scenario: Scenario
    prompt_tokens: Tokens = Field(description="mean, or nominal where shortest_share is below 1 [token]")
    output_tokens: Tokens = Field(description="the same of the output [token]")
    shortest_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="lengths are drawn evenly from this share of the nominal ones up to it [1]"
    )
    length_kind: Text = Field(default="fixed", description="fixed, uniform, or the name of the data set")
    rate_rps: Rate | None = Field(default=None, description="requests offered a second [request/s]")
    evenly_paced: bool = Field(default=False, description="arrivals at even distances instead of Poisson's")
    arrivals_rescaled: bool = Field(
        default=False, description="all arrivals stretched so that the last comes at requests ÷ rate, as vllm bench serve does"
    )
    concurrency: Count | None = Field(default=None, description="requests in flight [request]")
    requests: Count | None = Field(default=None, description="requests of the run [request]")
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_cache_tokens: Count | None = Field(default=None, description="as the engine logged it [token]")
    cuda_graphs: bool = True
    async_scheduling: bool | None = None
    disaggregated: bool = Field(default=False, description="prefill and decode run on different GPUs")
    speculative: bool = Field(default=False, description="draft tokens or multi-token prediction")
    prefix_caching: bool = Field(default=False, description="prompts share prefixes that the cache finds")
    ttft_mean_s: Ttft | None = None
    ttft_p50_s: Ttft | None = None
    ttft_p90_s: Ttft | None = None
    ttft_p99_s: Ttft | None = None
    ttft_s: Ttft | None = Field(default=None, description="statistic not stated; compared as a mean")
    tpot_mean_s: Tpot | None = None
    tpot_p50_s: Tpot | None = None
    tpot_p90_s: Tpot | None = None
    tpot_p99_s: Tpot | None = None
    tpot_s: Tpot | None = Field(default=None, description="statistic not stated; compared as a mean")
    e2e_mean_s: Duration | None = None
    requests_per_s: Rate | None = None
    output_tokens_per_s: Rate | None = None
    peer_ttft_s: Ttft | None = Field(default=None, description="what another planner predicts for this row")
    peer_tpot_s: Tpot | None = None
    notes: Annotated[str, Field(max_length=MAX_CELL)] = ""


_COMMAS = "Give a CSV table with commas between its columns"


class Unreadable(NamedTuple):
    """A row that is no measurement; line : in the file, the header being line 1; field, reason : what is wrong with it."""

    line: int
    field: str
    reason: str


Row = Measurement | Unreadable


def read_table(path: Path) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str] | None]]]:
    """Return a CSV file's header and its rows as text with their lines; None for a row that is cut off or too long.

    path : a .csv, or the same compressed as .csv.gz; at most 64 MiB of text and 200,000 rows

    Raises InputError when the file can't be read, is no text, or has no header.
    """
    name = path.name[:100]
    reader = csv.reader(io.StringIO(_text_of(path, name), newline=""))
    try:
        header = tuple(cell.strip().lstrip("\ufeff") for cell in next(reader, []))
        if len(header) < 2:
            raise InputError(name, len(header), "must begin with a header of two or more different columns", _COMMAS)
        repeated = next((column for place, column in enumerate(header) if column in header[:place]), None)
        if repeated is not None:
            raise InputError(f"{name} header", repeated[:60], "must name each column once", "Rename or leave out the second one")
        rows: list[tuple[int, dict[str, str] | None]] = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(rows) >= MAX_ROWS:
                raise InputError(name, len(rows), f"must hold at most {MAX_ROWS:,} rows", "Split the table")
            whole = len(cells) == len(header) and max(map(len, cells)) <= MAX_CELL
            rows.append((reader.line_num, dict(zip(header, cells, strict=True)) if whole else None))
    except csv.Error as error:
        raise InputError(name, str(error), "must be a CSV table", "Correct the quotes or export it again") from error
    return header, rows


def _text_of(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if content[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(content)) as packed:
                content = packed.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(name, "larger", f"must be at most {MAX_BYTES // 2**20} MiB", "Split the table")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None)
        shown = name if reason is None else str(path)
        raise InputError("file", shown, f"can't be read ({reason or 'damaged'})", "Give a readable CSV file") from error
    except UnicodeDecodeError as error:
        raise InputError("file", name, "must be UTF-8 text", "Export the table as UTF-8") from error


def checked(values: Mapping[str, Any], line: int) -> Row:
    """Return one row as a measurement, or what is wrong with it; a blank text stands for a figure that isn't stated."""
    given = {field: value for field, value in values.items() if value is not None and value != ""}
    try:
        return Measurement.model_validate(given)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = str(fault["loc"][0]) if fault["loc"] else "row"
        said = str(fault["msg"]).removeprefix("Value error, ")
        if field not in given:
            return Unreadable(line, field, "is blank, and must be given" if fault["type"] == "missing" else said)
        return Unreadable(line, field, f"is {shorten(given[field])}: {said[:1].lower()}{said[1:]}")


def number(text: str | None, factor: float = 1.0) -> float | None:
    """Return a cell's number times a factor; None for a blank one; NaN for text that is no number, so that the row is refused."""
    cell = (text or "").strip()
    if not cell:
        return None
    try:
        return float(cell) * factor
    except ValueError:
        return math.nan


def own_rows(header: Sequence[str], rows: Sequence[tuple[int, dict[str, str] | None]], name: str) -> list[Row]:
    """Return the rows of a table in this module's schema; InputError for missing or unknown columns."""
    missing = [column for column in REQUIRED if column not in header]
    unknown = [column for column in header if column not in Measurement.model_fields]
    if missing or unknown:
        fault = f"lacks {', '.join(missing)}" if missing else f"has unknown columns {', '.join(unknown)[:200]}"
        raise InputError(name, len(header), f"the table {fault}", "Name the columns as in the measurement schema")
    return [cut_off(line) if cells is None else checked(_stripped(cells), line) for line, cells in rows]


def _stripped(cells: Mapping[str, str]) -> dict[str, str]:
    return {column: cell.strip() for column, cell in cells.items()}


def cut_off(line: int) -> Unreadable:
    """Return the fault of a row with too few, too many or endless cells."""
    return Unreadable(line, "row", "has not as many cells as the header")
