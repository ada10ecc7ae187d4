"""What a fit gives: the record, its parameters beside the prior's, every measured figure with its predictions, and the errors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from planner.calibration.records import CalibrationRecord

Tell = Callable[[str, float], None]
"""Called with what is being done and the share that is done [1]; whatever it raises ends the fit and passes through."""

Metric = Literal["step", "ttft", "tpot", "itl", "e2e", "throughput"]
Phase = Literal["decode", "prefill", "mixed", ""]
Origin = Literal["data", "prior", "assumed"]


def silent(_text: str, _share: float) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class FittedValue:
    """One fitted parameter with its 80 % interval, and the prior's."""

    path: str
    value: float
    low: float
    high: float
    informed_by: Origin
    prior_value: float
    prior_low: float
    prior_high: float


@dataclass(frozen=True, slots=True)
class FitPoint:
    """One measured figure and what the records predict for it.

    label : the run, or the model and layout of a step
    metric : step, ttft, tpot, itl, e2e [s] or throughput [token/s]; statistic : "mean", "p50", "p99" or ""
    phase : of a step; "" for a benchmark's figure
    measured, before, after : and what prior and fitted record predict [s] or [token/s]
    held_out : what a fit without this point predicts; None where nothing was left out
    sequences, context_tokens : of the step; requests in flight and mean prompt of a run
    """

    label: str
    metric: Metric
    statistic: str
    phase: Phase
    measured: float
    before: float
    after: float
    held_out: float | None
    sequences: float
    context_tokens: float


@dataclass(frozen=True, slots=True)
class ErrorPair:
    """Errors of one metric and phase before and after a fit [%]; phase "" takes all together.

    bias : median of predicted / measured - 1; above 0 predicts too slow, or too much
    """

    metric: Metric
    phase: Phase
    rows: int
    before_median_pct: float
    before_bias_pct: float
    after_median_pct: float
    after_bias_pct: float
    held_out_median_pct: float | None


@dataclass(frozen=True, slots=True)
class CalibrationFit:
    """A fitted record and everything that says how far to trust it.

    record : the prior with fitted parameters, evidence and covariance; prior : what the fit started from
    held_out : what was held out, or why nothing could be
    warnings : sentences for the user
    evaluations : how often the data were predicted
    """

    record: CalibrationRecord = field(repr=False)
    prior: CalibrationRecord = field(repr=False)
    parameters: tuple[FittedValue, ...]
    points: tuple[FitPoint, ...] = field(repr=False)
    errors: tuple[ErrorPair, ...]
    held_out: str
    warnings: tuple[str, ...]
    evaluations: int


def errors_of(points: Sequence[FitPoint]) -> tuple[ErrorPair, ...]:
    """Return the errors of points by metric and phase, in the order of their first point."""
    parts: dict[tuple[Metric, Phase], list[FitPoint]] = {}
    for point in points:
        parts.setdefault((point.metric, ""), []).append(point)
    for point in points:
        if point.phase:
            parts.setdefault((point.metric, point.phase), []).append(point)
    return tuple(_error(metric, phase, found) for (metric, phase), found in parts.items())


def _error(metric: Metric, phase: Phase, points: list[FitPoint]) -> ErrorPair:
    before = 100.0 * np.array([point.before / point.measured - 1.0 for point in points])
    after = 100.0 * np.array([point.after / point.measured - 1.0 for point in points])
    held = [100.0 * abs(point.held_out / point.measured - 1.0) for point in points if point.held_out is not None]
    return ErrorPair(
        metric,
        phase,
        len(points),
        before_median_pct=float(np.median(np.abs(before))),
        before_bias_pct=float(np.median(before)),
        after_median_pct=float(np.median(np.abs(after))),
        after_bias_pct=float(np.median(after)),
        held_out_median_pct=float(np.median(held)) if held else None,
    )


def fitted_values(record: CalibrationRecord, prior: CalibrationRecord, paths: Sequence[str]) -> tuple[FittedValue, ...]:
    """Return the fitted parameters beside the prior's; paths : those that the fit moved."""
    now, then = dict(record.parameters()), dict(prior.parameters())
    return tuple(
        FittedValue(
            path, now[path].value, now[path].low, now[path].high, now[path].informed_by,
            then[path].value, then[path].low, then[path].high,
        )
        for path in paths
    )  # fmt: skip
