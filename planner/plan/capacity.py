"""The largest rate at which one replica meets its targets, by simulating the engine over the workload's own requests.

All rates of one search serve the same requests with their arrival times stretched (common random numbers), so that two rates or two
settings differ by what they do and not by luck.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.plan.results import Knobs, Latency
from planner.scenario import Targets
from planner.simulator.limits import EngineLimits
from planner.simulator.result import SimulationResult
from planner.simulator.simulate import simulate
from planner.step_model import StepCoefficients
from planner.workloads import ProfileArrivals, Requests, Workload

SEARCH_REQUESTS = 2500
COARSE_REQUESTS = 1200
ANSWER_REQUESTS = 20_000
_ROUNDS = 8
_FINE_ROUNDS = 5
_FINE_SPAN = 1.25
_DRAIN_SHARE = 0.2
_MARGIN = 1.1
_REQUESTS_PER_SEQUENCE = 10


class Replica(NamedTuple):
    """One engine without its two knobs: step times, KV pool and scheduler settings. Hashable, so that results can be kept.

    request_s : time that a request spends outside the engine before its first token [s]
    """

    coefficients: StepCoefficients
    num_blocks: int
    block_size: int
    max_model_len: int | None
    async_scheduling: bool
    scheduler_reserve_full_isl: bool
    request_s: float

    def limits(self, knobs: Knobs) -> EngineLimits:
        """Return the scheduler's limits with both knobs."""
        return EngineLimits(
            max_num_seqs=knobs.max_num_seqs,
            max_num_batched_tokens=knobs.max_num_batched_tokens,
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            max_model_len=self.max_model_len,
            async_scheduling=self.async_scheduling,
            scheduler_reserve_full_isl=self.scheduler_reserve_full_isl,
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """The workload's requests at one request a second, sampled once. Equal when workload, number and seed are."""

    key: str
    count: int
    seed: int

    def requests(self) -> Requests:
        """Return the requests at a mean of one a second."""
        return _sampled(self)

    def at(self, rate_rps: float) -> Requests:
        """Return the same requests at another mean rate [request/s]."""
        base = self.requests()
        return replace(base, arrival_s=base.arrival_s / rate_rps)

    def all_at_once(self) -> Requests:
        """Return the same requests, all waiting at time 0."""
        base = self.requests()
        return replace(base, arrival_s=np.zeros(len(base)))

    @property
    def longest_tokens(self) -> int:
        """Tokens of the longest prompt with its output, in the larger sample [token]."""
        base = replace(self, count=max(self.count, ANSWER_REQUESTS)).requests()
        return int((base.prompt_tokens + base.output_tokens).max())


def demand_for(workload: Workload, count: int, seed: int) -> Demand:
    """Return a sample of a workload for the hour that is planned: arrivals within it, not its course over the day."""
    within = workload
    if isinstance(workload.arrivals, ProfileArrivals):
        within = workload.model_copy(update={"arrivals": workload.arrivals.base})
    return Demand(within.model_dump_json(), count, seed)


@lru_cache(maxsize=32)
def _sampled(demand: Demand) -> Requests:
    workload = Workload.model_validate_json(demand.key)
    requests = workload.sample_requests(demand.count, 1.0, demand.seed)
    return replace(requests, block_hashes=None)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica carries.

    rate_rps : largest rate that meets the targets [request/s]; None when none does
    binds : what stops it there
    latency : at that rate, or at the lowest rate tried when no rate meets the targets
    running_peak : most sequences at once at that rate and just above it; a max_num_seqs above it changes nothing [seq]
    """

    rate_rps: float | None
    binds: str
    latency: Latency
    running_peak: int | None = None


@lru_cache(maxsize=200_000)
def latency_at(demand: Demand, replica: Replica, knobs: Knobs, rate_rps: float) -> Latency:
    """Return the latencies of one replica at one rate; same arguments, same answer.

    A run shorter than ten generations of the sequences in flight would be mostly ramp and drain: it is repeated on a larger sample.
    """
    result = simulate(demand.at(rate_rps), replica.limits(knobs), replica.coefficients)
    enough = _enough(result.averages.running)
    if demand.count < enough:
        return latency_at(replace(demand, count=enough), replica, knobs, rate_rps)
    ttft_s, tpot_s = _ttft_s(result), _tpot_s(result)
    return Latency(
        rate_rps=rate_rps,
        ttft_mean_s=float(ttft_s.mean()) + replica.request_s,
        ttft_p99_s=float(np.percentile(ttft_s, 99)) + replica.request_s,
        tpot_mean_s=float(tpot_s.mean()),
        tpot_p99_s=float(np.percentile(tpot_s, 99)),
        running_mean=result.averages.running,
        running_peak=result.averages.peak_running,
        kv_utilisation=result.averages.kv_share,
        refused_share=float(result.rejected.mean()),
        stable=result.verdict != "overloaded",
        binds=resource_that_binds(result),
        method="simulated",
    )


@lru_cache(maxsize=50_000)
def saturated_rps(demand: Demand, replica: Replica, knobs: Knobs) -> float:
    """Return the rate at which requests leave an engine whose queue never empties [request/s].

    All requests wait from the start; the rate is taken over the middle of the run, without its ramp and its drain, and over a
    larger sample when the batch is large.
    """
    result = simulate(demand.all_at_once(), replica.limits(knobs), replica.coefficients)
    enough = _enough(result.averages.peak_running)
    if demand.count < enough:
        return saturated_rps(replace(demand, count=enough), replica, knobs)
    ends = np.sort(result.finish_s[np.isfinite(result.finish_s)])
    if len(ends) < 2:
        return 0.0
    first, last = int(_DRAIN_SHARE * len(ends)), int((1 - _DRAIN_SHARE) * len(ends))
    span_s = float(ends[last] - ends[first])
    return (last - first) / span_s if span_s > 0.0 else len(ends) / float(ends[-1])


def _enough(running: float) -> int:
    """Return how many requests a run needs for so many sequences at once, at most the larger sample."""
    return min(ANSWER_REQUESTS, int(running * _REQUESTS_PER_SEQUENCE))


@lru_cache(maxsize=50_000)
def capacity_of(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets) -> Capacity:
    """Return the largest rate at which one replica meets the targets, to about 1 %.

    Without targets it is the saturated rate. With them, a rate meets them when the run isn't overloaded and both percentiles hold;
    the search halves the interval between 0 and the saturated rate, in the logarithm once both ends are known.
    """
    saturated = saturated_rps(demand, replica, knobs)
    if saturated <= 0.0:
        return Capacity(None, "nothing fits", latency_at(demand, replica, knobs, 1e-3))
    if targets.offline:
        at = latency_at(demand, replica, knobs, saturated)
        return Capacity(saturated, at.binds, at)
    low, high = 0.0, saturated * _MARGIN
    met: Latency | None = None
    missed: Latency | None = None
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high) if low > 0.0 else high / 2.0
        latency = latency_at(demand, replica, knobs, middle)
        if meets(latency, targets):
            low, met = middle, latency
        else:
            high, missed = middle, latency
        if low > 0.0 and high / low < 1.01:
            break
    if met is None:
        assert missed is not None  # the first round sets one of the two
        return Capacity(None, missed_target(missed, targets), missed)
    peak = max(point.running_peak or 0 for point in (met, missed) if point is not None)
    return Capacity(low, missed_target(missed, targets) if missed else met.binds, met, peak)


def capacity_near(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, guess_rps: float) -> float:
    """Return the capacity of a replica much like one whose capacity is known, to about 2 % [request/s]; 0 when it lies far below.

    guess_rps : the known one [request/s]
    """
    if targets.offline:
        return saturated_rps(demand, replica, knobs)
    low, high = guess_rps / _FINE_SPAN**2, guess_rps * _FINE_SPAN**2
    for _ in range(_FINE_ROUNDS):
        middle = math.sqrt(low * high)
        if meets(latency_at(demand, replica, knobs, middle), targets):
            low = middle
        else:
            high = middle
    return low


def meets(latency: Latency, targets: Targets) -> bool:
    """Whether the latencies of a run hold both targets and the engine kept up."""
    ttft_holds = targets.ttft_p99_s is None or latency.ttft_p99_s <= targets.ttft_p99_s
    tpot_holds = targets.tpot_p99_s is None or latency.tpot_p99_s <= targets.tpot_p99_s
    return latency.stable and ttft_holds and tpot_holds


def missed_target(latency: Latency, targets: Targets) -> str:
    """Return what stops a replica at a rate that doesn't hold: the target missed by most, with the resource behind it."""
    misses = {
        "TTFT target": latency.ttft_p99_s / targets.ttft_p99_s if targets.ttft_p99_s else 0.0,
        "TPOT target": latency.tpot_p99_s / targets.tpot_p99_s if targets.tpot_p99_s else 0.0,
    }
    worst = max(misses, key=lambda name: misses[name])
    return f"{worst} ({latency.binds})" if misses[worst] > 1.0 else f"throughput ({latency.binds})"


def resource_that_binds(result: SimulationResult) -> str:
    """Return the limit behind most of a run's time: what keeps requests waiting if they wait, else what a step's time goes to."""
    waits = result.bound_shares()
    waiting = {reason: share for reason, share in waits.items() if reason != "none"}
    reason = max(waiting, key=lambda name: waiting[name])
    if waiting[reason] > 0.5 and reason != "max_num_batched_tokens":
        return str(reason)
    resources = result.resource_shares()
    return str(max(resources, key=lambda name: resources[name]))


def _ttft_s(result: SimulationResult) -> npt.NDArray[np.float64]:
    first = len(result.arrival_s) // 10
    waits = (result.first_token_s - result.arrival_s)[first:]
    return waits[~result.rejected[first:]]


def _tpot_s(result: SimulationResult) -> npt.NDArray[np.float64]:
    first = len(result.arrival_s) // 10
    gaps = result.output_tokens[first:] - 1
    return ((result.finish_s - result.first_token_s)[first:] / np.maximum(gaps, 1))[(gaps > 0) & ~result.rejected[first:]]
