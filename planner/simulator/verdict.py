"""Says whether a simulated engine kept up with its load."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.simulator.result import Verdict
from planner.units import percentage

Floats = npt.NDArray[np.float64]

GROWING_SHARE = 0.03
NOISE_SIGMAS = 3.0
WAITING_SHARE = 0.5


class Judgement(NamedTuple):
    """A verdict and the sentence that gives its reason."""

    verdict: Verdict
    reason: str


def judge(arrival_s: Floats, finish_s: Floats, waiting_share: float) -> Judgement:
    """Return the saturation verdict of a run.

    arrival_s, finish_s : of the accepted requests, by arrival [s]
    waiting_share : share of the busy time in which a request waited for a place [1]

    The number in the system at the last arrival is set against that at half of the arrival time. Overloaded: it grew by more than
    3 % of the arrivals in between and by more than three standard deviations of a Poisson count of them, so that latencies depend
    on how long the run is. Backlogged: it did not grow so, but someone waited in at least half of the busy time. Stable: neither.
    """
    if len(arrival_s) < 2 or arrival_s[-1] <= arrival_s[0]:
        return _still(waiting_share)
    end_s = float(arrival_s[-1])
    middle_s = 0.5 * (float(arrival_s[0]) + end_s)
    before = int(np.searchsorted(arrival_s, middle_s, side="right"))
    arrived = len(arrival_s) - before
    in_system_middle = before - int((finish_s <= middle_s).sum())
    in_system_end = len(arrival_s) - int((finish_s <= end_s).sum())
    grown = in_system_end - in_system_middle
    if grown > max(GROWING_SHARE * arrived, NOISE_SIGMAS * arrived**0.5):
        return Judgement(
            "overloaded",
            f"{grown:,} of the {arrived:,} requests of the second half piled up: the engine doesn't keep up",
        )
    return _still(waiting_share)


def _still(waiting_share: float) -> Judgement:
    text = f"a request waited for a place in {percentage(waiting_share)} of the busy time"
    if waiting_share >= WAITING_SHARE:
        return Judgement("backlogged", f"{text}, yet the queue didn't grow")
    return Judgement("stable", text)
