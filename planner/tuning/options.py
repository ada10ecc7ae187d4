"""How a fit weighs its observations and what it is allowed to take."""

import datetime as dt
import math
from dataclasses import dataclass, field

from planner.calibration.fit.parameters import FreeParameter
from planner.calibration.records import CalibrationRecord, Parameter
from planner.calibration.schema import bounds_of
from planner.calibration.spread import Z80

LOOSEST_SD = 2.0
_SMALLEST = 1e-9
_FLOORS = (
    ("host.request_s", 0.7),
    ("host.", 0.5),
    ("all_reduce.", 0.3),
    ("layer_s", 0.2),
    ("expert_", 0.3),
    ("mix_factor", 0.2),
    ("", 0.12),
)
"""Least standard deviation of a parameter's logarithm in a fit to served requests, by the beginning of its path [1].

Shipped records rest on operator tables and know the kernels within a few percent; another server with other clocks, kernels and
releases differs by more: published runs of one GPU, engine and model lie about 12 % apart, host terms by half.
"""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How a fit goes about it.

    source : the measurements, in words, for the record
    day : of the fit, for the record
    hold_out : whether to predict runs from fits without them
    most_iterations : of the solver; each predicts all data once for every parameter
    fixed : paths of parameters that stay at the prior
    """

    source: str = "fit to a benchmark of the user's own"
    day: dt.date = field(default_factory=lambda: dt.datetime.now(dt.UTC).date())
    hold_out: bool = True
    most_iterations: int = 10
    fixed: frozenset[str] = frozenset({"mix_factor", "expert_spread", "smoothness"})


def loosened(path: str, prior: Parameter, doubt: float = 1.0) -> FreeParameter:
    """Return a parameter as a fit to served requests holds it: to the prior's interval, or its floor where that is wider.

    doubt : by what the prior is held more loosely still [1]
    """
    lowest, highest = bounds_of(path)
    value = max(prior.value, _SMALLEST)
    widest = max(math.log(value / max(prior.low, _SMALLEST)), math.log(max(prior.high, _SMALLEST) / value))
    floor = next(sd for beginning, sd in _FLOORS if path.startswith(beginning))
    sd = min(doubt * max(widest / Z80, floor), LOOSEST_SD)
    return FreeParameter(path, math.log(value), sd, math.log(max(lowest, _SMALLEST)), math.log(highest))


def loosened_all(record: CalibrationRecord, paths: tuple[str, ...], doubt: float = 1.0) -> tuple[FreeParameter, ...]:
    """Return the parameters at some paths as a fit to served requests holds them; those that the record lacks are passed over."""
    known = dict(record.parameters())
    return tuple(loosened(path, known[path], doubt) for path in paths if path in known)


def doubt_of(misfit: float) -> float:
    """Return by what a prior is to be held more loosely that misses the data by a median of `misfit` in logarithms [1].

    A prior that is off by a quarter is within its own intervals; one that is off by far more speaks of another kind of machine.

    >>> doubt_of(0.1), doubt_of(1.0)
    (1.0, 4.0)
    """
    return max(1.0, misfit / _USUAL_MISFIT)


_USUAL_MISFIT = 0.25
