"""A fit in words and rows: what it reached, its points, its errors, its parameters."""

import re
from collections.abc import Sequence
from statistics import median
from typing import Literal

import pandas as pd

from planner.tuning import CalibrationFit, ErrorPair, FitPoint, FittedValue
from planner.ui.charts.base import Row
from planner.ui.views.calibrate_record import RESTS_ON, lower, name_of, write_value
from planner.ui.words import DASH, figure, percent, plural, seconds, span, stop
from planner.units import MS

MOST_POINTS = 600
MOST_NAMED = 2
Input = Literal["sequences", "context_tokens"]
_METRICS = {"step": "step time", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "throughput": "throughput"}
_NEAR = 0.5


def summary(fit: CalibrationFit) -> str:
    """Return in one sentence what the fit reached, with the error on what it hadn't seen."""
    whole = [pair for pair in fit.errors if not pair.phase]
    if not whole:
        return "Fitted to all-reduces alone: no step or latency was measured to compare with."
    parts = [f"{_METRICS[pair.metric]} {_change(pair)}" for pair in whole]
    count = plural(sum(pair.rows for pair in whole), "measured figure")
    return f"Fitted to {count}. Median error: {'; '.join(parts)}."


def without_a_home(fit: CalibrationFit) -> str:
    """Return how to keep a record while no folder is named to keep it in; starting the app again ends the session that holds it."""
    return (
        f"Download it: it ends with this session. To plan with it, put the file into hardware_profiles/calibrations/"
        f"{fit.record.gpu_id} of a folder of yours, start the app with PLANNER_HOME naming that folder, and choose it under Every "
        "record."
    )


def _change(pair: ErrorPair) -> str:
    text = f"{_pct(pair.before_median_pct)} before, {_pct(pair.after_median_pct)} now"
    held = pair.held_out_median_pct
    return text if held is None else f"{text}, {_pct(held)} when left out of the fit"


def _pct(value: float) -> str:
    return percent(value / 100.0)


def notes(fit: CalibrationFit) -> tuple[str, ...]:
    """Return what was held out, and every warning, in sentences."""
    warnings = tuple(stop(_in_words(warning, fit)) for warning in fit.warnings)
    return (stop(f"Left out of the fit to test it: {fit.held_out}"), *warnings)


def _in_words(text: str, fit: CalibrationFit) -> str:
    """Return text with the paths of parameters replaced by what they are."""
    paths = sorted((path for path, _ in fit.record.parameters()), key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(path) for path in paths))
    return pattern.sub(lambda match: lower(name_of(match[0])), text)


def series_of(point: FitPoint) -> str:
    """Return what a point's colour says: its phase, or a latency's name."""
    return point.phase or _METRICS[point.metric]


def statistic_of(point: FitPoint) -> str:
    """Return which figure a point is, such as "p99 TTFT"."""
    return f"{point.statistic} {_METRICS[point.metric]}".strip()


def point_rows(fit: CalibrationFit, *, throughput: bool = False) -> tuple[list[Row], str]:
    """Return measured figures with their predictions, thinned evenly, with the finding.

    throughput : those alone, in token/s; else every time, in ms
    """
    chosen = [point for point in fit.points if (point.metric == "throughput") == throughput and point.measured > 0.0]
    if not chosen:
        return [], ""
    within = sum(abs(point.after / point.measured - 1.0) <= 0.1 for point in chosen) / len(chosen)
    unit = 1.0 if throughput else MS
    title = f"{percent(within)} of {plural(len(chosen), 'point')} are predicted within 10 %"
    return [_point_row(point, unit) for point in thinned(chosen)], title


def thinned(points: Sequence[FitPoint], most: int = MOST_POINTS) -> list[FitPoint]:
    """Return at most so many points, evenly over their measured figures."""
    ordered = sorted(points, key=lambda point: (series_of(point), point.measured))
    if len(ordered) <= most:
        return ordered
    return [ordered[index * len(ordered) // most] for index in range(most)]


def _point_row(point: FitPoint, unit: float) -> Row:
    write = (lambda value: f"{figure(value)} tokens/s") if point.metric == "throughput" else seconds
    error = point.after / point.measured - 1.0
    return {
        "label": point.label,
        "series": series_of(point),
        "measured": point.measured / unit,
        "before": point.before / unit,
        "after": point.after / unit,
        "measured_text": f"{write(point.measured)} {point.statistic}".strip(),
        "before_text": write(point.before),
        "after_text": write(point.after),
        "error": signed(100.0 * error),
        "error_pct": 100.0 * error,
        "sequences": point.sequences,
        "context_tokens": point.context_tokens,
        "batch": f"{figure(point.sequences)} sequences, {figure(point.context_tokens)} tokens of context",
    }


def signed(pct: float) -> str:
    r"""Return per cent with its sign, to hundredths at most: less is nothing that an error says.

    >>> signed(-12.34), signed(0.0), signed(0.0168), signed(-0.004)
    ('−12.3\xa0%', '0\xa0%', '+0.02\xa0%', '0\xa0%')
    """
    rounded = round(pct, 2)
    sign = "−" if rounded < 0.0 else "+" if rounded > 0.0 else ""
    return f"{sign}{percent(abs(rounded) / 100.0)}"


def residual_rows(fit: CalibrationFit, column: Input) -> tuple[list[Row], str]:
    """Return the errors over one input of the points, with the finding: whether they lean as it grows."""
    chosen = [point for point in fit.points if getattr(point, column) > 0.0 and point.measured > 0.0]
    if len({getattr(point, column) for point in chosen}) < 2:
        return [], ""
    rows = [_point_row(point, MS) for point in thinned(chosen)]
    ordered = sorted(rows, key=lambda row: row[column])
    third = max(1, len(ordered) // 3)
    low, high = _median(ordered[:third]), _median(ordered[-third:])
    what = "batch" if column == "sequences" else "context"
    if abs(high - low) <= _NEAR + 2.0:
        return rows, f"Errors don't lean with the {what}: {signed(low)} at its small end, {signed(high)} at its large end"
    return rows, f"Errors lean with the {what}: {signed(low)} at its small end, {signed(high)} at its large end (median)"


def _median(rows: Sequence[Row]) -> float:
    return float(median(row["error_pct"] for row in rows))


def error_rows(fit: CalibrationFit) -> tuple[list[Row], str]:
    """Return the median errors by metric and phase before and after the fit and left out of it, with the finding."""
    pairs = [pair for pair in fit.errors if pair.phase] or list(fit.errors)
    rows: list[Row] = []
    for pair in pairs:
        base = {"group": _pair_name(pair), "rows": f"{pair.rows:,}"}
        rows.append({**base, **_error("before", pair.before_median_pct, pair.before_bias_pct)})
        rows.append({**base, **_error("fitted", pair.after_median_pct, pair.after_bias_pct)})
        if pair.held_out_median_pct is not None:
            rows.append({**base, **_error("left out of the fit", pair.held_out_median_pct, None)})
    if not rows:
        return [], ""
    better = sum(pair.after_median_pct < pair.before_median_pct for pair in pairs)
    return rows, f"The fit is nearer than the record before on {better} of {plural(len(pairs), 'kind')} of figures"


def _pair_name(pair: ErrorPair) -> str:
    return f"{_METRICS[pair.metric]}, {pair.phase}" if pair.phase else _METRICS[pair.metric]


def _error(kind: str, pct: float, bias_pct: float | None) -> Row:
    return {"kind": kind, "pct": pct, "error": _pct(pct), "bias": DASH if bias_pct is None else signed(bias_pct)}


def error_frame(fit: CalibrationFit) -> pd.DataFrame:
    """Return the errors before and after as a table."""
    rows = [
        {
            "What": _METRICS[pair.metric],
            "Phase": pair.phase or "all",
            "Points": pair.rows,
            "Before (median)": _pct(pair.before_median_pct),
            "Before (bias)": signed(pair.before_bias_pct),
            "Now (median)": _pct(pair.after_median_pct),
            "Now (bias)": signed(pair.after_bias_pct),
            "Left out of the fit": DASH if pair.held_out_median_pct is None else _pct(pair.held_out_median_pct),
        }
        for pair in fit.errors
    ]
    return pd.DataFrame(rows)


def parameter_frame(fit: CalibrationFit) -> pd.DataFrame:
    """Return the fitted parameters beside the record's before, and whether the data or the prior informs each."""
    return pd.DataFrame([_parameter_row(value) for value in fit.parameters])


def _parameter_row(value: FittedValue) -> dict[str, str]:
    def interval(low: float, high: float) -> str:
        return span(write_value(value.path, low), write_value(value.path, high))

    return {
        "Parameter": name_of(value.path),
        "Fitted": write_value(value.path, value.value),
        "80 % interval": interval(value.low, value.high),
        "Rests on": RESTS_ON[value.informed_by],
        "Before": write_value(value.path, value.prior_value),
        "Before, 80 % interval": interval(value.prior_low, value.prior_high),
    }


def parameter_title(fit: CalibrationFit) -> str:
    """Return how many parameters the data inform, and which the prior still holds where they are few."""
    held = [lower(name_of(value.path)) for value in fit.parameters if value.informed_by != "data"]
    counted = f"The data inform {len(fit.parameters) - len(held)} of {plural(len(fit.parameters), 'fitted figure')}"
    if not held:
        return counted
    return f"{counted}; the prior still holds {' and '.join(held) if len(held) <= MOST_NAMED else 'the others'}"


def fitted_paths(fit: CalibrationFit) -> frozenset[str]:
    """Return the paths of the fitted parameters."""
    return frozenset(value.path for value in fit.parameters)
