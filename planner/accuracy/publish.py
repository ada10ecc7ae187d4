"""Write the error figures that ship: `python -m planner.accuracy.publish FOLDER` with the tables of measured results."""

import argparse
import datetime as dt
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from planner.accuracy.intervals import Point, held_out_spread, ranges, spread_from
from planner.accuracy.names import quantization_named
from planner.accuracy.report import AccuracyReport, Group, RowResult, accuracy_report, error_summary, is_held_out
from planner.accuracy.shipped import (
    FOLDER,
    SOURCES_FOLDER,
    STEPS_FILE,
    Coverage,
    GroupPart,
    Part,
    ShippedAccuracy,
    ShownRow,
    SourceReport,
)
from planner.accuracy.steps import steps_document
from planner.calibration.measurements import Measurement
from planner.calibration.spread import SPREAD_FILE, Class, ServingSpread
from planner.models import load_model

SOURCES_FILE = FOLDER / "sources.json"
SPREAD_SOURCES = ("serving_by_concurrency", "vllm_cost_meter", "tensorrt_llm_perf_overview")
"""Sources whose rows size the intervals of plans: several GPUs, engines and models each, and releases that are still in use."""

_SIZED = "80 % intervals hold 80 % of published figures"
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


def spreads_from(reports: Mapping[str, AccuracyReport]) -> dict[Class, ServingSpread]:
    """Return the spread between deployments that plans use, from the sources of present engines.

    reports : by id, with intervals
    """
    points = _points(reports)
    named = ", ".join(terms.source for terms in sources() if terms.id in SPREAD_SOURCES)
    kinds: tuple[Class, ...] = ("measured", "prior")
    return {kind: spread_from([point for point in points if point.kind == kind], f"{_SIZED}: {named}"[:1000]) for kind in kinds}


def _points(reports: Mapping[str, AccuracyReport]) -> list[Point]:
    return [point for name in SPREAD_SOURCES if name in reports for row in reports[name].predicted for point in row.points()]


def with_held_out_ranges(report: AccuracyReport, points: Sequence[Point]) -> AccuracyReport:
    """Return a report whose intervals are sized on groups other than each row's own."""
    known: dict[tuple[Group, Class], ServingSpread | None] = {}
    results: list[RowResult] = []
    for result in report.results:
        group = result.group or ("", "", "")
        if result.responses and (group, result.kind) not in known:
            known[group, result.kind] = held_out_spread(points, group, result.kind)
        spread = known.get((group, result.kind))
        results.append(replace(result, ranges={} if spread is None else ranges(spread, result.responses)))
    return AccuracyReport(report.name, report.records, tuple(results))


def document_of(terms: SourceTerms, shipped: AccuracyReport, none: AccuracyReport, day: str) -> ShippedAccuracy:
    """Return a source's document.

    shipped, none : its table predicted with the shipped records and with priors alone; day : of the run, YYYY-MM-DD
    """
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
        none=_report(none),
        rows=_shown(shipped) if terms.rows_shown else (),
    )


def _report(report: AccuracyReport) -> SourceReport:
    return SourceReport(
        overall=_part(report, report.results),
        held_out=_part(report, report.held_out()),
        groups=tuple(_group(report, group, rows) for group, rows in report.groups.items()),
        not_predicted=report.not_predicted,
        not_compared=report.not_compared,
        peer={metric: error_summary(report.peer_errors(metric)) for metric in ("tpot", "ttft") if report.peer_errors(metric)},
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
        "errors": {metric: error_summary([row.errors[metric] for row in rows if metric in row.errors]) for metric in metrics},
        "coverage": {metric: Coverage(**cover._asdict()) for metric, cover in covers.items() if cover is not None},
    }


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
    options = _parser().parse_args(arguments)
    paths = {terms.id: next(iter(sorted(options.folder.rglob(terms.file))), None) for terms in sources()}
    found = {name: path for name, path in paths.items() if path is not None}
    reports = {name: accuracy_report(path, intervals=True) for name, path in found.items()}
    points = _points(reports)
    if set(SPREAD_SOURCES) <= set(found):
        spreads = {kind: spread.model_dump() for kind, spread in spreads_from(reports).items()}
        _write(SPREAD_FILE, json.dumps(spreads, indent=1, ensure_ascii=False))
    for terms in sources():
        if terms.id not in found:
            sys.stderr.write(f"{terms.id}: no {terms.file} in {options.folder}\n")
            continue
        tested = with_held_out_ranges(reports[terms.id], points)
        document = document_of(terms, tested, accuracy_report(found[terms.id], "none"), options.day)
        _write(SOURCES_FOLDER / f"{terms.id}.json", document.model_dump_json(indent=1, exclude_none=True, exclude_defaults=True))
        sys.stdout.write(f"{terms.id}: {document.shipped.overall.predicted} of {document.shipped.overall.rows} rows\n")
    if options.steps is not None:
        steps = steps_document(options.steps / "step_times.csv.gz", options.steps / "all_reduce_times.csv", options.day)
        _write(STEPS_FILE, steps.model_dump_json(indent=1, exclude_none=True))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m planner.accuracy.publish", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder that holds the tables named in sources.json, at any depth")
    parser.add_argument("--steps", type=Path, help="folder of recorded step times, tests/recorded")
    parser.add_argument("--day", default=dt.datetime.now(dt.UTC).date().isoformat(), help="day of the run; today")
    return parser


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
