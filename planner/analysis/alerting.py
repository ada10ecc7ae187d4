"""When alerts would fire: the rules on latency and queue, judged on a simulated hour as Prometheus would judge them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.simulator import TARGET_PERCENTILE, SimulationResult, percentile_s, values_s
from planner.simulator.metrics import Metric
from planner.units import MINUTE_S

Floats = npt.NDArray[np.float64]
HOUR_MINUTES = 60
LATENCY_WINDOW_MINUTES = 5
QUEUE_WINDOW_MINUTES = 2
_MOST_REQUESTS = 60_000
_FEWEST_MINUTES = 2 * LATENCY_WINDOW_MINUTES
_STEPS = (0.0, 0.06, 0.12, 0.18, 0.25, 0.32, 0.4, 0.5, 0.65, 0.8, 1.0)


def queue_threshold(capacity_rps: float, ttft_p99_s: float) -> int:
    """Return how many requests may wait before one replica until the last of them misses its TTFT [request], at least 1.

    capacity_rps : rate at which the replica serves [request/s]; ttft_p99_s : the target [s]

    Little's law on the queue: whoever finds n requests ahead waits n ÷ capacity.
    """
    require_positive("capacity_rps", capacity_rps, "requests a second")
    require_positive("ttft_p99_s", ttft_p99_s, "seconds")
    return max(1, round(capacity_rps * ttft_p99_s))


class Firing(NamedTuple):
    """Share of a run in which each rule's expression is true on one replica [1]; None for a rule without a target.

    rate_rps : arrivals [request/s]; minutes : of the run
    """

    rate_rps: float
    minutes: int
    ttft: float | None
    tpot: float | None
    queue: float | None


@dataclass(frozen=True, slots=True)
class _Window:
    """Whole minutes of a run, each judged over the minutes before it."""

    minutes: int
    length: int

    def share(self, true_at: list[bool]) -> float:
        """Return the share of the minutes in which a rule holds [1]."""
        return sum(true_at) / max(len(true_at), 1)

    def spans(self) -> list[tuple[float, float]]:
        """Return start and end of each window [s]."""
        return [((end - self.length) * MINUTE_S, end * MINUTE_S) for end in range(self.length, self.minutes + 1)]


def firing(case: Case, rate_rps: float, queue_limit: int | None) -> Firing:
    """Return how often the rules would be true in an hour of the workload's own arrivals on one replica.

    rate_rps : arrivals [request/s], above 0; queue_limit : waiting requests that the queue rule allows, None for no rule

    At high rates fewer minutes are simulated: 60,000 requests or ten minutes, whichever is more.
    """
    require_positive("rate_rps", rate_rps, "requests a second")
    minutes = min(max(int(_MOST_REQUESTS / rate_rps / MINUTE_S), _FEWEST_MINUTES), HOUR_MINUTES)
    requests = case.requests(max(int(rate_rps * minutes * MINUTE_S), 1), rate_rps)
    result = case.serve(requests)
    latency = _Window(minutes, LATENCY_WINDOW_MINUTES)
    return Firing(
        rate_rps=rate_rps,
        minutes=minutes,
        ttft=_latency_share(result, "ttft", case.ttft_p99_s, latency),
        tpot=_latency_share(result, "tpot", case.tpot_p99_s, latency),
        queue=None if queue_limit is None else _queue_share(result, queue_limit, _Window(minutes, QUEUE_WINDOW_MINUTES)),
    )


def firing_over(case: Case, reach: float, queue_limit: int | None, tell: Callable[[str, float], None]) -> list[Firing]:
    """Return how often the rules are true from the planned rate up to `reach` times it; tell : gets progress."""
    if not reach > 1.0:
        raise InputError("reach", reach, "must be above 1", "Give a multiple of the planned rate, such as 4")
    found = []
    for index, share in enumerate(_STEPS):
        factor = 1.0 + (reach - 1.0) * share
        tell(f"An hour at {factor:.2f} × the planned rate", index / len(_STEPS))
        found.append(firing(case, case.rate_rps * factor, queue_limit))
    return found


def _latency_share(result: SimulationResult, metric: Metric, target_s: float | None, window: _Window) -> float | None:
    if target_s is None:
        return None
    seen_s = result.first_token_s if metric == "ttft" else result.finish_s
    values = values_s(result, metric)
    order = np.argsort(seen_s, kind="stable")
    seen_s, values = seen_s[order], values[order]
    true_at: list[bool] = []
    for start_s, end_s in window.spans():
        first, last = np.searchsorted(seen_s, (start_s, end_s))
        within = values[first:last]
        within = within[np.isfinite(within)]
        true_at.append(len(within) > 0 and percentile_s(within, TARGET_PERCENTILE) > target_s)
    return window.share(true_at)


def _queue_share(result: SimulationResult, limit: int, window: _Window) -> float:
    """Return the share of windows whose mean of waiting requests is above the limit [1]."""
    scheduled_s = np.where(np.isfinite(result.first_scheduled_s), result.first_scheduled_s, result.arrival_s)
    true_at = []
    for start_s, end_s in window.spans():
        waited_s = np.clip(np.minimum(scheduled_s, end_s) - np.maximum(result.arrival_s, start_s), 0.0, None).sum()
        true_at.append(float(waited_s) / (end_s - start_s) > limit)
    return window.share(true_at)
