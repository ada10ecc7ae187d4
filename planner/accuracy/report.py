"""Predicts every row of a table of measured results and says how far the predictions lie from it."""

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.accuracy.bounds import UNIT_FACTOR, beats_data_sheet
from planner.accuracy.compare import METRICS, PEER, TAILS, errors_of, not_compared, peer_errors_of, stated
from planner.accuracy.intervals import Point, Response, moved_figures, ranges, responses
from planner.accuracy.kv_capacity import is_kv_capacity, kv_results
from planner.accuracy.names import engine_named, gpu_named, model_named
from planner.accuracy.predict import Figures, predict, predict_recorded
from planner.accuracy.request_table import RecordedRun, is_request_table, recorded_runs
from planner.accuracy.setting import NotPredictedError, Records, setting_of
from planner.accuracy.shipped import Errors
from planner.calibration.measurement_tables import read_measurements
from planner.calibration.measurements import Measurement, Row, Unreadable
from planner.calibration.spread import Class, class_of, spread_of
from planner.errors import InputError, one_line
from planner.simulator import RequestTable

HELD_OUT_PARTS = 2
RECORDED = "recorded"
"""Kind of lengths of a row that is a phase of a recorded engine."""
MOST_FAULTS = 20
"""Lines that can't be read that a report lists; the others are counted."""

Group = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row: what was measured, its group, what is predicted, or the reason why not; by metric.

    errors, peer_errors : predicted ÷ measured - 1 [1]
    stated : what was measured, in SI units, for each metric with an error
    ranges : ends of the 80 % interval ÷ the prediction [1], where intervals were asked for
    responses : how the predictions move with the step times, likewise; see `intervals.responses`
    kind : whether the record was measured on the row's GPU and engine
    fault : what can't be read in the row, and in which line; None for a row that reads well
    """

    measured: Measurement | None
    group: Group | None
    reason: str | None
    errors: dict[str, float]
    peer_errors: dict[str, float]
    stated: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    responses: dict[str, Response] = field(default_factory=dict)
    kind: Class = "prior"
    fault: Unreadable | None = None

    def points(self) -> list[Point]:
        """Return the figures that intervals can be sized on or tested with."""
        group = self.group or ("", "", "")
        departures = {metric: -math.log1p(self.errors[metric]) for metric in self.responses if metric in self.errors}
        return [Point(group, self.kind, metric, value, self.responses[metric]) for metric, value in departures.items()]

    def intervals(self) -> list["Foretold"]:
        """Return each figure with its prediction and interval, where intervals were computed."""
        found = []
        for metric, (low, high) in self.ranges.items():
            predicted = self.stated[metric] * (1.0 + self.errors[metric])
            found.append(Foretold(metric, self.stated[metric], predicted, low * predicted, high * predicted))
        return found


class Foretold(NamedTuple):
    """A measured figure, its prediction and the ends of its 80 % interval, in SI units."""

    metric: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def held(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low <= self.measured <= self.high


class Covered(NamedTuple):
    """How often the 80 % interval of a metric held what was measured, and half its width [%]."""

    points: int
    covered_pct: float
    half_width_pct: float


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """A distribution of relative errors [%]; bias is the median of predicted ÷ measured - 1, above 0 too slow or too much."""

    rows: int
    median_abs_pct: float
    mean_abs_pct: float
    p90_abs_pct: float
    bias_pct: float
    quantiles_pct: tuple[float, ...] = ()

    @classmethod
    def of(cls, errors: Sequence[float]) -> "ErrorSummary | None":
        """Return the summary of errors [1]; None without any."""
        if not errors:
            return None
        pct = 100.0 * np.asarray(errors)
        return cls(
            len(errors),
            float(np.median(np.abs(pct))),
            float(np.abs(pct).mean()),
            float(np.percentile(np.abs(pct), 90)),
            float(np.median(pct)),
            tuple(round(float(value), 3) for value in np.percentile(pct, (10, 25, 50, 75, 90))),
        )

    def document(self) -> dict[str, float]:
        """Return the four figures."""
        names = ("median_abs_pct", "mean_abs_pct", "p90_abs_pct", "bias_pct")
        return {name: round(getattr(self, name), 3) for name in names}


_NOTHING = dict.fromkeys(("median_abs_pct", "mean_abs_pct", "p90_abs_pct", "bias_pct"))


@dataclass(frozen=True)
class AccuracyReport:
    """Every row of a table with its errors."""

    name: str
    records: Records
    results: tuple[RowResult, ...]

    @cached_property
    def predicted(self) -> tuple[RowResult, ...]:
        """Rows with a prediction."""
        return tuple(result for result in self.results if result.reason is None)

    @cached_property
    def not_predicted(self) -> dict[str, int]:
        """Rows without a prediction, by reason, the commonest first."""
        return dict(Counter(result.reason for result in self.results if result.reason is not None).most_common())

    @cached_property
    def not_compared(self) -> dict[str, int]:
        """Rows with a prediction of which some figure isn't compared, by reason."""
        rows = ((result.measured, result.errors) for result in self.predicted if result.measured is not None)
        return dict(Counter(reason for row, errors in rows for reason in not_compared(row, errors)).most_common())

    @cached_property
    def phases(self) -> tuple[tuple[Measurement, list[Foretold]], ...]:
        """Phases of a recorded engine with their intervals."""
        rows = ((result.measured, result.intervals()) for result in self.results if result.ranges)
        return tuple((row, found) for row, found in rows if row is not None and row.length_kind == RECORDED)

    @cached_property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """What can't be read, in the order of the lines."""
        return tuple(result.fault for result in self.results if result.fault is not None)

    @cached_property
    def groups(self) -> dict[Group, tuple[RowResult, ...]]:
        """Rows by GPU, engine and model, those with the largest errors first."""
        gathered: dict[Group, list[RowResult]] = {}
        for result in self.results:
            if result.group is not None:
                gathered.setdefault(result.group, []).append(result)
        return {group: tuple(rows) for group, rows in sorted(gathered.items(), key=lambda item: (-_worst(item[1]), item[0]))}

    def summary(self, metric: str, results: Iterable[RowResult] | None = None) -> ErrorSummary | None:
        """Return the errors of one metric ("tpot", "ttft", "throughput", or a tail such as "ttft_p99")."""
        chosen = self.results if results is None else results
        return ErrorSummary.of([result.errors[metric] for result in chosen if metric in result.errors])

    def peer_errors(self, metric: str) -> list[float]:
        """Return the errors of the other planner whose predictions the table holds [1]."""
        return [result.peer_errors[metric] for result in self.results if metric in result.peer_errors]

    def peer_summary(self, metric: str) -> ErrorSummary | None:
        """Return the distribution of the other planner's errors."""
        return ErrorSummary.of(self.peer_errors(metric))

    def metrics(self, results: Iterable[RowResult] | None = None) -> tuple[str, ...]:
        """Return the metrics that some of the rows state and have a prediction of."""
        chosen = self.results if results is None else results
        known = {metric for result in chosen for metric in result.errors}
        return tuple(metric for metric in (*METRICS, "e2e", *TAILS, "kv_tokens") if metric in known)

    def coverage(self, metric: str, results: Iterable[RowResult] | None = None) -> Covered | None:
        """Return how often the 80 % intervals of a metric held what was measured; None without intervals."""
        chosen = self.results if results is None else results
        pairs = [(result.errors[metric], result.ranges[metric]) for result in chosen if metric in result.ranges]
        if not pairs:
            return None
        held = [low <= 1.0 / (1.0 + error) <= high for error, (low, high) in pairs]
        width = float(np.median([high - low for _, (low, high) in pairs]))
        return Covered(len(pairs), 100.0 * float(np.mean(held)), 50.0 * width)

    def held_out(self) -> tuple[RowResult, ...]:
        """Return the rows of the groups set aside for testing a fit; see `is_held_out`."""
        return tuple(result for result in self.results if result.group is not None and is_held_out(result.group))

    def document(self) -> dict[str, Any]:
        """Return the report as plain values."""
        document: dict[str, Any] = {
            "overall": self._part(self.results),
            "groups": [
                {"gpu": group[0], "engine": group[1], "model": group[2], **self._part(rows)} for group, rows in self.groups.items()
            ],
            "not_predicted": self.not_predicted,
            "not_compared": self.not_compared,
            "unreadable": [fault._asdict() for fault in self.unreadable[:MOST_FAULTS]],
            "held_out": self._part(self.held_out()),
        }
        peer = {metric: self.peer_summary(metric) for metric in PEER}
        if any(peer.values()):
            document["peer"] = {metric: _figures(summary) for metric, summary in peer.items()}
        if self.phases:
            document["phases"] = [
                {"phase": row.source, **{found.metric: {**found._asdict(), "held": found.held} for found in intervals}}
                for row, intervals in self.phases
            ]
        return document

    def _part(self, results: Sequence[RowResult]) -> dict[str, Any]:
        done = sum(result.reason is None for result in results)
        metrics = dict.fromkeys((*METRICS, *self.metrics(results)))
        return {
            "rows": len(results),
            "predicted_share": round(done / len(results), 4) if results else 0.0,
            **{metric: _figures(self.summary(metric, results)) for metric in metrics},
        }

    def text(self) -> str:
        """Return the errors by group, the largest first, and the rows that aren't predicted."""
        lines = [f"{self.name}: {len(self.predicted)} of {len(self.results)} rows predicted, records: {self.records}"]
        lines.append("median |error| (bias) in percent")
        lines.append(f"{'GPU':<24} {'engine':<13} {'model':<28} {'rows':>5} {'TPOT':>15} {'TTFT':>15} {'throughput':>15}")
        parts = [(("all", "", ""), self.results), *self.groups.items()]
        for group, rows in parts:
            cells = " ".join(f"{_cell(self.summary(metric, rows)):>15}" for metric in METRICS)
            lines.append(f"{group[0]:<24} {group[1]:<13} {group[2]:<28} {len(rows):>5} {cells}")
        if self.summary("kv_tokens"):
            lines.append(f"KV tokens: {_cell(self.summary('kv_tokens'))}")
        if self.summary("e2e"):
            lines.append(f"end to end: {_cell(self.summary('e2e'))}")
        peers = [f"{metric.upper()} {_cell(self.peer_summary(metric))}" for metric in PEER if self.peer_summary(metric)]
        if peers:
            lines.append(f"the other planner in the table: {', '.join(peers)}")
        lines += [_phase_line(row, intervals) for row, intervals in self.phases]
        lines += [f"not predicted: {reason}: {rows}" for reason, rows in self.not_predicted.items()]
        lines += [f"not compared: {reason}: {rows}" for reason, rows in self.not_compared.items()]
        lines += [f"line {line}: {field} {one_line(reason)}" for line, field, reason in self.unreadable[:MOST_FAULTS]]
        if len(self.unreadable) > MOST_FAULTS:
            lines.append(f"and {len(self.unreadable) - MOST_FAULTS:,} more lines that can't be read")
        return "\n".join(lines)


def accuracy_report(path: Path, records: Records = "shipped", *, intervals: bool = False) -> AccuracyReport:
    """Predict a table of measured results.

    path : a CSV table that `read_measurements` takes, or one of logged KV capacities or of single requests
    records : "shipped" takes the calibration records, "none" only the priors
    intervals : whether to give predictions their 80 % intervals, which takes three times as long

    Raises InputError when the file is no such table; rows that can't be predicted are counted by reason.
    """
    if is_kv_capacity(path):
        results = tuple(
            RowResult(None, group, reason, errors, {}, fault=fault) for group, reason, errors, fault in kv_results(path)
        )
        return AccuracyReport(path.name[:100], records, results)
    if is_request_table(path):
        return AccuracyReport(path.name[:100], records, tuple(_replayed(run, records) for run in recorded_runs(path)))
    return report_of(read_measurements(path), records, path.name[:100], intervals=intervals)


def _replayed(run: RecordedRun, records: Records) -> RowResult:
    row = run.row
    if isinstance(row, Unreadable):
        return RowResult(None, None, f"unreadable: {row.field}", {}, {}, fault=row)
    group = _group(row)
    try:
        requests = RequestTable(run.arrival_s, run.prompt_tokens, run.output_tokens)
        figures = predict_recorded(setting_of(row, records), requests)
    except NotPredictedError as fault:
        return RowResult(row, group, str(fault), {}, {})
    return RowResult(row, group, None, errors_of(row, figures), {}, stated(row))


def report_of(
    rows: Sequence[Row], records: Records = "shipped", name: str = "measurements", *, intervals: bool = False
) -> AccuracyReport:
    """Predict measured rows; equal deployments under equal loads are simulated once; intervals : as in accuracy_report."""
    known: dict[Measurement, Figures] = {}
    results = [_result(row, records, known) for row in rows]
    return AccuracyReport(name, records, tuple(_with_intervals(results, records, known) if intervals else results))


def _with_intervals(results: Sequence[RowResult], records: Records, known: Mapping[Measurement, Figures]) -> list[RowResult]:
    moved: dict[Measurement, tuple[Figures, Figures] | None] = {}
    widened: list[RowResult] = []
    for result in results:
        row = result.measured
        if result.reason is not None or row is None:
            widened.append(result)
            continue
        setting, load = setting_of(row, records), _load_alone(row)
        if load not in moved:
            moved[load] = moved_figures(setting)
        pair = moved[load]
        found = {} if pair is None else responses(row, known[load], pair)
        spread, kind = spread_of(setting.record), class_of(setting.record)
        widened.append(replace(result, responses=found, ranges=ranges(spread, found), kind=kind))
    return widened


def is_held_out(group: Group) -> bool:
    """Say whether a group's rows are for testing: half of all groups by the checksum of their name."""
    return zlib.crc32("/".join(group).encode()) % HELD_OUT_PARTS == 1


def _result(row: Row, records: Records, known: dict[Measurement, Figures]) -> RowResult:
    if isinstance(row, Unreadable):
        return RowResult(None, None, f"unreadable: {row.field}", {}, {}, fault=row)
    group = _group(row)
    try:
        setting = setting_of(row, records)
        if beats_data_sheet(setting):
            return RowResult(row, group, "beats the data sheet", {}, {})
        load = _load_alone(row)
        if load not in known:
            known[load] = predict(setting)
    except NotPredictedError as fault:
        return RowResult(row, group, str(fault), {}, {})
    figures = known[load]
    errors = errors_of(row, figures)
    if not errors:
        return RowResult(row, group, "no figure to compare with", {}, {})
    if any(error < 1.0 / UNIT_FACTOR - 1.0 or error > UNIT_FACTOR for metric, error in errors.items() if metric in METRICS):
        return RowResult(row, group, "a hundred times off: wrong unit or a stalled run", {}, {})
    return RowResult(row, group, None, errors, peer_errors_of(row), {metric: stated(row)[metric] for metric in errors})


def _group(row: Measurement) -> Group | None:
    gpu, model, release = gpu_named(row.gpu), model_named(row.model), engine_named(row)
    return None if gpu is None or model is None or release is None else (gpu.id, release.engine, model.id)


_MEASURED_FIELDS = (*(name for name in Measurement.model_fields if name.endswith("_s")), "notes")


def _load_alone(row: Measurement) -> Measurement:
    """Return the row without what it measured."""
    blank = {name: "" if name == "notes" else None for name in _MEASURED_FIELDS}
    return row.model_copy(update=blank)


def error_summary(errors: Sequence[float] | npt.NDArray[np.float64]) -> Errors:
    """Return the distribution of at least one error [1] as it is shipped."""
    summary = ErrorSummary.of(list(errors))
    if summary is None:
        raise InputError("errors", 0, "must be at least one", "Leave out metrics that no row states")
    return Errors.model_validate({"points": summary.rows, **summary.document(), "quantiles_pct": summary.quantiles_pct})


def _worst(rows: Iterable[RowResult]) -> float:
    """Return the median absolute TPOT error of a group, for sorting; throughput's where it has no TPOT."""
    for metric in ("tpot", "throughput", "ttft", "kv_tokens"):
        summary = ErrorSummary.of([row.errors[metric] for row in rows if metric in row.errors])
        if summary is not None:
            return summary.median_abs_pct
    return -1.0


def _figures(summary: ErrorSummary | None) -> dict[str, Any]:
    return dict(_NOTHING) if summary is None else dict(summary.document())


def _phase_line(row: Measurement, intervals: Sequence[Foretold]) -> str:
    cells = [
        f"{one.metric.upper()} {one.predicted:.4g} s, 80 % {one.low:.4g} to {one.high:.4g}, measured {one.measured:.4g}"
        for one in intervals
    ]
    return f"{row.source}: {'; '.join(cells)}"


def _cell(summary: ErrorSummary | None) -> str:
    return "–" if summary is None else f"{summary.median_abs_pct:.1f} ({summary.bias_pct:+.1f})"
