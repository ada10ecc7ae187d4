"""A user's rows → a trace and a report of what was read, kept and dropped."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from pydantic import ValidationError

from planner.errors import InputError, as_input_error
from planner.provenance import Source
from planner.workloads.importers.cleaning import BadRows, CleanRows, clean_rows
from planner.workloads.importers.formats import RawRows, RowFormat, TimeUnit, detect, format_of, normalised
from planner.workloads.importers.reading import read_table
from planner.workloads.importers.report import ImportReport
from planner.workloads.trace import MAX_ROWS, Trace, TraceMeta, rows_digest

_NAME = re.compile(r"[^<>/\\\x00-\x1f\x7f]{1,120}")


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """Names of the columns, when the header isn't recognised; arrival_unit None: judged by size."""

    prompt: str
    output: str
    arrival: str | None = None
    arrival_unit: TimeUnit = "guess"

    def read(self, frame: pd.DataFrame) -> RawRows:
        """Return the mapped columns."""
        arrival = None if self.arrival is None else frame[normalised(self.arrival)]
        return RawRows(frame[normalised(self.prompt)], frame[normalised(self.output)], arrival, self.arrival_unit)

    def row_format(self) -> RowFormat:
        """Return the map as a format."""
        names = [self.prompt, self.output, *([] if self.arrival is None else [self.arrival])]
        return RowFormat(tuple(normalised(name) for name in names), self.read)


@dataclass(frozen=True, slots=True)
class ImportedRows:
    """A user's rows as a trace, and what the import did to them."""

    trace: Trace
    report: ImportReport


def import_rows(
    data: bytes | pd.DataFrame, name: str, *, columns: ColumnMap | None = None, bad_rows: BadRows = "refuse"
) -> ImportedRows:
    """Read a user's requests; the format is recognised by its column names (see ROW_FORMATS).

    data : the file's bytes (CSV, JSON lines, a JSON array or parquet, plain or gzip; at most 200 MiB), or a DataFrame
    name : what to call it, at most 120 characters
    columns : names of the columns when the header isn't recognised
    bad_rows : "refuse" raises an InputError that names row and column; "drop" counts such rows by reason

    Only counts, times and block identities are kept, never text.
    """
    if not isinstance(data, bytes | pd.DataFrame):
        raise InputError("data", data, "must be a file's bytes or a DataFrame", "Read the file first: Path(name).read_bytes()")
    title = _checked_name(name)
    table, format_name, row_format = _table(data, columns)
    clean = clean_rows(row_format.read(table), bad_rows)
    report = ImportReport(format_name, len(table), len(clean.prompt_tokens), clean.dropped, clean.notes)
    return ImportedRows(_trace(clean, title, report), report)


def _table(data: bytes | pd.DataFrame, columns: ColumnMap | None) -> tuple[pd.DataFrame, str, RowFormat]:
    """Return the columns of a recognised format under their normalised names."""
    found: list[tuple[str, RowFormat]] = []

    def wanted(header: Sequence[str]) -> list[str]:
        found.append(_recognised(header, columns))
        row_format = found[0][1]
        names = {normalised(name): name for name in reversed(list(header))}
        return [names[key] for key in (*row_format.needs, *row_format.uses) if key in names]

    if isinstance(data, pd.DataFrame):
        if len(data) == 0 or len(data) > MAX_ROWS:
            raise InputError("frame", len(data), f"must have from 1 to {MAX_ROWS} rows", "Give rows, or a part of them")
        named = data.set_axis([str(name) for name in data.columns], axis=1)
        frame = named[wanted(list(named.columns))]
    else:
        frame = read_table(data, wanted).frame
    frame = frame.set_axis([normalised(name) for name in frame.columns], axis=1)
    if frame.columns.has_duplicates:
        raise InputError("header", list(frame.columns), "must name each column once", "Rename or remove one of them")
    return frame, *found[0]


def _recognised(header: Sequence[str], columns: ColumnMap | None) -> tuple[str, RowFormat]:
    present = [normalised(name) for name in header]
    if columns is not None:
        row_format = columns.row_format()
        for need in row_format.needs:
            if need not in present:
                raise InputError("columns", need, f"must be one of {', '.join(present[:30])}", "Name a column of the file")
        return "columns", row_format
    name = detect(present)
    if name is None:
        shown = ", ".join(present[:30])
        raise InputError(
            "header", shown, "must name prompt and output tokens", "Rename them prompt_tokens and output_tokens, or map the columns"
        )
    return name, format_of(name)


def _trace(clean: CleanRows, title: str, report: ImportReport) -> Trace:
    digest = rows_digest(clean.prompt_tokens, clean.output_tokens, clean.arrival_s)
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "rows"
    source = Source(
        kind="measured",
        ref=f"rows given by the user: {title}",
        confidence="high",
        note=report.sentence()[:2000],
    )
    try:
        meta = TraceMeta(
            id=f"{slug}-{digest}",
            name=title,
            kind="lengths" if clean.arrival_s is None else "requests",
            description=f"{report.rows_kept:,} requests given by the user.",
            rows=len(clean.prompt_tokens),
            licence="the user's own rows",
            transformation=report.sentence()[:2000],
            started=clean.started,
            time_resolution_s=clean.time_resolution_s,
            block_tokens=None if clean.block_hashes is None else clean.block_hashes.block_tokens,
            source=source,
        )
    except ValidationError as error:
        raise as_input_error(error, "upload") from error
    return Trace(meta, clean.prompt_tokens, clean.output_tokens, clean.arrival_s, clean.block_hashes)


def _checked_name(name: str) -> str:
    title = name.strip() if isinstance(name, str) else ""
    if not _NAME.fullmatch(title):
        raise InputError("name", name, "must be 1 to 120 characters without < > / \\ and control characters", "Give a plain name")
    return title
