"""Robust least squares on parameters held by priors, for models that are simulated: few evaluations, coarse derivatives."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from planner.calibration.fit.parameters import FreeParameter
from planner.tuning.served import Floats

STEP = 0.03
"""Step of the derivatives that lead to the solution, in logarithms [1]."""

WIDE_STEP = 0.1
"""Step to either side of those that the covariance rests on [1].

A simulation's figures move in small jumps. Short differences take them for slopes, which would make every parameter look known;
long ones, on both sides so that curvature cancels, don't.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The logarithms found, their covariance, how often the model was evaluated, and the robust cost."""

    log_values: Floats
    log_covariance: Floats
    evaluations: int
    cost: float


Model = Callable[[Floats], Floats]


def solve(
    parameters: Sequence[FreeParameter],
    residuals: Model,
    start: Floats | None = None,
    most_iterations: int = 10,
    *,
    with_covariance: bool = True,
) -> Solution:
    """Return the parameters that fit best.

    parameters : with their priors, which count as observations
    residuals : ln(predicted / measured) over its error, of each figure, at some logarithms of the parameters
    start : where to begin; the priors without it
    most_iterations : each takes one evaluation for every parameter and one or two more
    with_covariance : else the priors' own stands in, and evaluations are saved

    The loss is soft L1: figures beyond their error pull with constant force. The covariance comes from the derivatives at the
    solution, widened where the data scatter more than their errors say.
    """
    centre = np.array([free.start for free in parameters])
    low, high = np.array([free.low for free in parameters]), np.array([free.high for free in parameters])
    sds = np.array([free.prior_sd for free in parameters])
    counted = [0]
    known: dict[bytes, Floats] = {}

    def data(values: Floats) -> Floats:
        key = values.tobytes()
        if key not in known:
            counted[0] += 1
            known[key] = residuals(values)
        return known[key]

    def every(values: Floats) -> Floats:
        return np.concatenate([data(values), (values - centre) / sds])

    def slopes(values: Floats) -> Floats:
        base, columns = data(values), []
        for place in range(len(values)):
            step = STEP if values[place] + STEP <= high[place] else -STEP
            columns.append((data(_moved(values, place, values[place] + step)) - base) / step)
        return np.vstack([np.array(columns).T, np.diag(1.0 / sds)])

    begin = np.clip(centre if start is None else start, low + 1e-9, high - 1e-9)
    found = least_squares(
        every, begin, jac=slopes, bounds=(low, high), loss="soft_l1", max_nfev=most_iterations, xtol=1e-3, ftol=1e-4
    )
    best = np.asarray(found.x, dtype=np.float64)
    if not with_covariance:
        return Solution(best, np.diag(sds**2), counted[0], float(found.cost))
    wide = []
    for place in range(len(best)):
        above, below = min(best[place] + WIDE_STEP, high[place]), max(best[place] - WIDE_STEP, low[place])
        wide.append((data(_moved(best, place, above)) - data(_moved(best, place, below))) / (above - below))
    return Solution(best, _covariance(np.array(wide).T, data(best), sds), counted[0], float(found.cost))


def _moved(values: Floats, place: int, to: float) -> Floats:
    moved = values.copy()
    moved[place] = to
    return moved


def _covariance(slopes: Floats, residuals: Floats, sds: Floats) -> Floats:
    """Return the covariance of the logarithms: data weighted as the loss weighs them, priors, and the data's own scatter."""
    weighted = slopes * ((1.0 + residuals**2) ** -0.25)[:, None] / math.sqrt(_scatter(residuals))
    information = weighted.T @ weighted + np.diag(sds**-2.0)
    return np.asarray(np.linalg.pinv(information, hermitian=True), dtype=np.float64)


def _scatter(residuals: Floats) -> float:
    """Return by what the data's variance exceeds what their errors say [1], at least 1; by the median, past outliers."""
    if not len(residuals):
        return 1.0
    return max(1.0, (float(np.median(np.abs(residuals))) / _MEDIAN_OF_NORMAL) ** 2)


_MEDIAN_OF_NORMAL = 0.6744897501960817


def log_sds(solution: Solution) -> list[float]:
    """Return the standard deviation of each logarithm [1]."""
    return [math.sqrt(max(value, 0.0)) for value in np.diag(solution.log_covariance)]
