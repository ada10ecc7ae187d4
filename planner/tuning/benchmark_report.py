"""From a solved fit to its record: parameters with intervals, points, evidence and what was held out."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from planner.calibration.fit.parameters import FreeParameter, fitted_parameter
from planner.calibration.records import CalibrationRecord, Evidence, GroupError, LogCovariance
from planner.tuning.least_squares import Solution, log_sds
from planner.tuning.observations import Observed
from planner.tuning.options import TuneOptions
from planner.tuning.results import FitPoint, Metric
from planner.tuning.served import Floats

LEAST_TO_HOLD_OUT = 3
MOST_HELD_OUT = 8
HELD_OUT = "each run left out in turn and predicted from a fit to the others"
HELD_OUT_SOME = f"{MOST_HELD_OUT} of the runs, each left out in turn and predicted from a fit to the others"
TOO_FEW = f"nothing: fewer than {LEAST_TO_HOLD_OUT} runs; benchmark a third load to see the error on one that the fit hasn't seen"
NOT_ASKED = "nothing: not asked for"


def held_out_places(runs: int) -> tuple[int, ...]:
    """Return the places of the runs to leave out, evenly spread where there are many.

    >>> held_out_places(2), held_out_places(3)
    ((), (0, 1, 2))
    """
    if runs < LEAST_TO_HOLD_OUT:
        return ()
    chosen = np.unique(np.linspace(0, runs - 1, min(runs, MOST_HELD_OUT)).round().astype(int))
    return tuple(int(place) for place in chosen)


def held_out_text(runs: int, places: Sequence[int], options: TuneOptions) -> str:
    """Return in words what was held out, or why nothing."""
    if places:
        return HELD_OUT if len(places) == runs else HELD_OUT_SOME
    return TOO_FEW if options.hold_out else NOT_ASKED


def values_at(parameters: Sequence[FreeParameter], log_values: Floats) -> dict[str, float]:
    """Return parameters by path from their logarithms."""
    return {free.path: math.exp(value) for free, value in zip(parameters, log_values, strict=True)}


def fitted_record(
    prior: CalibrationRecord, parameters: Sequence[FreeParameter], solution: Solution, options: TuneOptions
) -> CalibrationRecord:
    """Return the prior with fitted parameters, their intervals and their covariance."""
    sds = log_sds(solution)
    fitted = {
        free.path: fitted_parameter(free, float(value), sd, options.source, options.day)
        for free, value, sd in zip(parameters, solution.log_values, sds, strict=True)
    }
    matrix = 0.5 * (solution.log_covariance + solution.log_covariance.T)
    covariance = LogCovariance(
        names=tuple(free.path for free in parameters),
        matrix=tuple(tuple(float(f"{value:.4g}") for value in row) for row in matrix),
    )
    update = {"basis": "fitted", "created": options.day, "covariance": covariance}
    return prior.with_parameters(fitted).model_copy(update=update).with_achieved()


def points_of(
    items: Sequence[Observed], before: Sequence[Floats], after: Sequence[Floats], unseen: Mapping[int, Floats]
) -> tuple[FitPoint, ...]:
    """Return every figure of every run with its predictions; unseen : by place of the run, those of a fit without it."""
    points = []
    for place, item in enumerate(items):
        for i, wanted in enumerate(item.wanted):
            points.append(
                FitPoint(
                    label=item.run.label,
                    metric=wanted.metric,
                    statistic=wanted.name,
                    phase="",
                    measured=float(item.measured[i]),
                    before=float(before[place][i]),
                    after=float(after[place][i]),
                    held_out=float(unseen[place][i]) if place in unseen else None,
                    sequences=item.sequences,
                    context_tokens=item.run.prompt_tokens,
                )
            )
    return tuple(points)


def with_evidence(
    record: CalibrationRecord, items: Sequence[Observed], points: Sequence[FitPoint], held_out: str
) -> CalibrationRecord:
    """Return a record that says which runs it was fitted to and how well it reproduces them."""
    metrics: dict[Metric, list[FitPoint]] = {}
    for point in points:
        metrics.setdefault(point.metric, []).append(point)
    logs = np.log([point.after / point.measured for point in points])
    runs = [item.run for item in items]
    evidence = Evidence(
        rows=len(points),
        groups=tuple(_group(metric, found, len(runs)) for metric, found in metrics.items()),
        residual_log_sd=float(f"{logs.std():.3g}"),
        seen={
            "requests_in_flight": _range([item.sequences for item in items]),
            "prompt_tokens": _range([run.prompt_tokens for run in runs]),
            "output_tokens": _range([run.output_tokens for run in runs]),
        },
        held_out=held_out,
    )
    return record.model_copy(update={"evidence": evidence})


def _group(metric: Metric, points: Sequence[FitPoint], runs: int) -> GroupError:
    errors = 100.0 * np.array([point.after / point.measured - 1.0 for point in points])
    held = [100.0 * abs(point.held_out / point.measured - 1.0) for point in points if point.held_out is not None]
    return GroupError(
        group=f"{metric.upper() if metric != 'throughput' else metric} of {runs} benchmark runs",
        rows=len(points),
        median_abs_pct=round(float(np.median(np.abs(errors))), 2),
        mean_abs_pct=round(float(np.abs(errors).mean()), 2),
        worst_abs_pct=round(float(np.abs(errors).max()), 2),
        bias_pct=round(float(np.median(errors)), 2),
        held_out_median_abs_pct=round(float(np.median(held)), 2) if held else None,
        held_out_mean_abs_pct=round(float(np.mean(held)), 2) if held else None,
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    return float(f"{min(values):.4g}"), float(f"{max(values):.4g}")
