"""Write the error figures that ship: `python -m planner.accuracy.publish FOLDER` with the tables of measured results."""

import argparse
import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from planner.accuracy.names import quantization_named
from planner.accuracy.report import AccuracyReport, ErrorSummary, Group, RowResult, accuracy_report, is_held_out
from planner.accuracy.shipped import (
    FOLDER,
    SOURCES_FOLDER,
    Coverage,
    Errors,
    GroupPart,
    Part,
    ShippedAccuracy,
    ShownRow,
    SourceReport,
)
from planner.calibration.measurements import Measurement
from planner.errors import InputError
from planner.models import load_model

SOURCES_FILE = FOLDER / "sources.json"
MOST_ROWS = 600
"""Rows shown of one source, taken evenly from its groups."""


class SourceTerms(BaseModel):
    """One published table: where it comes from and what may be shown of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9_]+$")
    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    title: str
    source: str
    terms: str
    caveat: str
    rows_shown: bool = Field(description="whether the terms allow rows to be shown beside their predictions")
    notice: str | None = None
    peer_name: str | None = None


def sources() -> tuple[SourceTerms, ...]:
    """Return the published tables that are known."""
    return TypeAdapter(tuple[SourceTerms, ...]).validate_json(SOURCES_FILE.read_bytes())


def document_of(terms: SourceTerms, path: Path, day: str) -> ShippedAccuracy:
    """Predict a source's table with the shipped records and with priors alone.

    path : the table; day : of the run, YYYY-MM-DD
    """
    shipped = accuracy_report(path, "shipped")
    return ShippedAccuracy(
        id=terms.id,
        title=terms.title,
        source=terms.source,
        terms=terms.terms,
        notice=terms.notice,
        caveat=terms.caveat,
        peer_name=terms.peer_name,
        date=day,
        command=f"python -m planner accuracy {terms.file} --json",
        shipped=_report(shipped),
        none=_report(accuracy_report(path, "none")),
        rows=_shown(shipped) if terms.rows_shown else (),
    )


def _report(report: AccuracyReport) -> SourceReport:
    return SourceReport(
        overall=_part(report, report.results),
        held_out=_part(report, report.held_out()),
        groups=tuple(_group(report, group, rows) for group, rows in report.groups.items()),
        not_predicted=report.not_predicted,
        peer={metric: errors_of(report.peer_errors(metric)) for metric in ("tpot", "ttft") if report.peer_errors(metric)},
    )


def _part(report: AccuracyReport, rows: Sequence[RowResult]) -> Part:
    return Part.model_validate(_fields(report, rows))


def _group(report: AccuracyReport, group: Group, rows: Sequence[RowResult]) -> GroupPart:
    names = {"gpu": group[0], "engine": group[1], "model": group[2], "held_out": is_held_out(group)}
    return GroupPart.model_validate(_fields(report, rows) | names)


def _fields(report: AccuracyReport, rows: Sequence[RowResult]) -> dict[str, object]:
    metrics = report.metrics(rows)
    covers = {metric: report.coverage(metric, rows) for metric in metrics}
    return {
        "rows": len(rows),
        "predicted": sum(row.reason is None for row in rows),
        "errors": {metric: errors_of([row.errors[metric] for row in rows if metric in row.errors]) for metric in metrics},
        "coverage": {metric: Coverage(**cover._asdict()) for metric, cover in covers.items() if cover is not None},
    }


def errors_of(errors: Sequence[float]) -> Errors:
    """Return the distribution of at least one error [1]."""
    summary = ErrorSummary.of(errors)
    if summary is None:
        raise InputError("errors", 0, "must be at least one", "Leave out metrics that no row states")
    return Errors(points=summary.rows, **summary.document(), quantiles_pct=summary.quantiles_pct)


def _shown(report: AccuracyReport) -> tuple[ShownRow, ...]:
    done = [rows for rows in ([r for r in group if r.reason is None] for group in report.groups.values()) if rows]
    total = sum(map(len, done))
    share = min(1.0, MOST_ROWS / max(total, 1))
    shown: list[ShownRow] = []
    for rows in done:
        count = max(1, round(share * len(rows)))
        chosen = [rows[i * len(rows) // count] for i in range(count)]
        shown += [row for row in map(_shown_row, chosen) if row is not None]
    return tuple(shown)


def _shown_row(result: RowResult) -> ShownRow | None:
    row = result.measured
    if row is None or result.group is None:
        return None
    quantization = quantization_named(row, load_model(result.group[2]))
    measured = {metric: float(f"{value:.5g}") for metric, value in result.stated.items()}
    return ShownRow(
        gpu=result.group[0],
        engine=result.group[1],
        version=row.engine_version[:40],
        model=result.group[2],
        quantization=quantization.id if quantization else "",
        tp=row.tp or 1,
        load=load_in_words(row),
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        measured=measured,
        predicted={metric: float(f"{value * (1.0 + result.errors[metric]):.5g}") for metric, value in result.stated.items()},
    )


def load_in_words(row: Measurement) -> str:
    """Return how a row was loaded, such as "closed loop of 32" or "10 requests/s"."""
    if row.scenario == "open-loop":
        return f"{row.rate_rps:g} requests/s"
    if row.scenario == "offline":
        return "all queued at once"
    return f"{'closed loop' if row.scenario == 'closed-loop' else 'one batch'} of {row.concurrency}"


def main(arguments: list[str] | None = None) -> int:
    """Write the documents of all tables found in a folder; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m planner.accuracy.publish", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder that holds the tables named in sources.json, at any depth")
    parser.add_argument("--only", nargs="*", default=[], help="ids of sources; all unless given")
    parser.add_argument("--day", default=dt.datetime.now(dt.UTC).date().isoformat(), help="day of the run; today")
    options = parser.parse_args(arguments)
    for terms in sources():
        if options.only and terms.id not in options.only:
            continue
        path = next(iter(sorted(options.folder.rglob(terms.file))), None)
        if path is None:
            sys.stderr.write(f"{terms.id}: no {terms.file} in {options.folder}\n")
            continue
        document = document_of(terms, path, options.day)
        text = document.model_dump_json(indent=1, exclude_none=True, exclude_defaults=True)
        (SOURCES_FOLDER / f"{terms.id}.json").write_text(text + "\n", encoding="utf-8")
        sys.stdout.write(f"{terms.id}: {document.shipped.overall.predicted} of {document.shipped.overall.rows} rows\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
