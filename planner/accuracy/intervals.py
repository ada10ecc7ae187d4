"""80 % intervals of predicted serving figures, and the spread between deployments that they are sized by."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.accuracy.compare import foretold
from planner.accuracy.predict import Figures, predict
from planner.accuracy.setting import NotPredictedError, Setting
from planner.calibration.measurements import Measurement
from planner.calibration.spread import Z80, Class, ServingSpread
from planner.errors import InputError

STEP = 0.2
"""Logarithm of the factor on step times at which a figure's response is taken [1]."""

INTERVAL_METRICS = ("tpot", "ttft", "throughput")
_UNSATURATED = 0.25
"""Response below which an open loop's throughput is its rate: step times don't tell how far it may depart."""
_COVERED = 0.8
_LEAST_SD = 0.02
_LARGEST_SD = 3.0

Response = tuple[float, float]
Floats = npt.NDArray[np.float64]


class Point(NamedTuple):
    """One measured figure: its group, what its record rests on, ln(measured ÷ predicted), and how it moves with the step times."""

    group: tuple[str, str, str]
    kind: Class
    metric: str
    departure: float
    response: Response


def moved_figures(setting: Setting) -> tuple[Figures, Figures] | None:
    """Return what a row would show with faster and with slower step times; None where the engine can't take the load then."""
    try:
        return predict(setting.with_step_times(math.exp(-STEP))), predict(setting.with_step_times(math.exp(STEP)))
    except NotPredictedError:
        return None


def responses(row: Measurement, figures: Figures, moved: tuple[Figures, Figures]) -> dict[str, Response]:
    """Return how a row's figures move with the step times: ln of the figure for faster and for slower steps, ÷ STEP, signed [1].

    figures : the prediction itself; moved : see moved_figures

    In a closed loop TPOT follows the step times; near saturation an open loop magnifies them. A figure without a value at one of
    the three, as TTFT is where a queue never ends, has no response.
    """
    base = foretold(row, figures)
    faster, slower = (foretold(row, other) for other in moved)
    found: dict[str, Response] = {}
    for metric in INTERVAL_METRICS:
        if all(each.get(metric, 0.0) > 0.0 for each in (base, faster, slower)):
            found[metric] = (math.log(faster[metric] / base[metric]) / STEP, math.log(slower[metric] / base[metric]) / STEP)
    return found


def log_interval(spread: ServingSpread, metric: str, response: Response) -> tuple[float, float]:
    """Return the ends of a metric's 80 % interval as logarithms of measured ÷ predicted [1]."""
    low, high = min(*response, 0.0), max(*response, 0.0)
    extra = {"ttft": spread.ttft_log_sd, "throughput": spread.throughput_log_sd}.get(metric, _LEAST_SD)
    return -Z80 * math.hypot(spread.step_log_sd * low, extra), Z80 * math.hypot(spread.step_log_sd * high, extra)


def ranges(spread: ServingSpread, found: Mapping[str, Response]) -> dict[str, tuple[float, float]]:
    """Return the ends of each metric's 80 % interval ÷ the prediction [1]."""
    intervals = {metric: log_interval(spread, metric, response) for metric, response in found.items()}
    return {metric: (math.exp(low), math.exp(high)) for metric, (low, high) in intervals.items()}


def held_out_spread(points: Sequence[Point], group: tuple[str, str, str], kind: Class) -> ServingSpread | None:
    """Return the spread from all groups but one; None where no other group of the kind states a TPOT."""
    others = [point for point in points if point.kind == kind and point.group != group]
    return spread_from(others, "other groups") if any(point.metric == "tpot" for point in others) else None


def spread_from(points: Sequence[Point], source: str) -> ServingSpread:
    """Return the spread whose 80 % intervals hold 80 % of some figures.

    The factor on step times comes from TPOT; what TTFT and throughput need beside it is theirs. Throughput needs it twice: over all
    points, and where it is the rate of arrivals, which no step time moves. Groups count by the square root of their points, so that
    neither the largest group nor single rows rule. Without points of a metric nothing is added for it.

    Raises InputError when no point is a TPOT.
    """
    by_metric = {metric: [point for point in points if point.metric == metric] for metric in INTERVAL_METRICS}
    if not by_metric["tpot"]:
        raise InputError("points", 0, "must hold a TPOT", "Give rows that state one")
    step = _solved(by_metric["tpot"], lambda sd: _spread(step=sd))
    ttft = _solved(by_metric["ttft"], lambda sd: _spread(step=step, ttft=sd))
    at_rate = [point for point in by_metric["throughput"] if max(map(abs, point.response)) < _UNSATURATED]
    throughput = max(_solved(some, lambda sd: _spread(step=step, throughput=sd)) for some in (by_metric["throughput"], at_rate))
    groups = len({point.group for point in points})
    return _spread(step, ttft, throughput).model_copy(update={"groups": groups, "points": len(points), "source": source})


def _spread(step: float, ttft: float = 0.0, throughput: float = 0.0) -> ServingSpread:
    return ServingSpread(step_log_sd=step, ttft_log_sd=ttft, throughput_log_sd=throughput, groups=1, points=1, source="trial")


def _solved(points: Sequence[Point], spread_at: Callable[[float], ServingSpread]) -> float:
    """Return the least standard deviation at which the intervals hold their share of the points [1]."""
    if not points:
        return 0.0
    weights = _weights(points)
    low, high = 0.0, _LARGEST_SD
    for _ in range(30):
        middle = 0.5 * (low + high)
        held = _held(points, spread_at(middle))
        low, high = (low, middle) if float(weights @ held) >= _COVERED else (middle, high)
    return float(f"{high:.3g}")


def _weights(points: Sequence[Point]) -> Floats:
    counts: dict[tuple[str, str, str], int] = {}
    for point in points:
        counts[point.group] = counts.get(point.group, 0) + 1
    weights = np.array([counts[point.group] ** -0.5 for point in points])
    return np.asarray(weights / weights.sum())


def _held(points: Iterable[Point], spread: ServingSpread) -> Floats:
    held = []
    for point in points:
        low, high = log_interval(spread, point.metric, point.response)
        held.append(low <= point.departure <= high)
    return np.array(held, dtype=np.float64)
