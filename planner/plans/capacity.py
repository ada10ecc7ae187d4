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

from planner.plans.results import Knobs, Latency
from planner.scenario import Targets
from planner.simulator import EngineLimits, SimulationResult, simulate, values_s
from planner.simulator.metrics import Metric
from planner.step_model import StepCoefficients
from planner.workloads import ProfileArrivals, Requests, Workload

SEARCH_REQUESTS = 2500
COARSE_REQUESTS = 1200
ANSWER_REQUESTS = 20_000
WARM_UP_SHARE = 0.1
_HALVINGS = 4
_ROUNDS = 10
_PRECISION = 0.012
_COARSE_PRECISION = 0.03
_EDGE = 0.08
_STRIDES = 4
_USELESS_SHARE = 0.1
_FIRST_STRIDE = 1.15
_DRAIN_SHARE = 0.2
_LIFE_SHARES = (1 / 6, 1 / 2, 5 / 6)
_RUNNING_VALUES = 300
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

    def running_tokens(self) -> list[int]:
        """Return what sequences hold while they run, in proportion to how long they do [token]; a few hundred values."""
        return list(_running(self))

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


@lru_cache(maxsize=32)
def _running(demand: Demand) -> tuple[int, ...]:
    base = demand.requests()
    held = np.concatenate([base.prompt_tokens + base.output_tokens * share for share in _LIFE_SHARES])
    order = np.argsort(held, kind="stable")
    time_s = np.cumsum(np.tile(base.output_tokens, len(_LIFE_SHARES))[order])
    places = np.searchsorted(time_s, (np.arange(_RUNNING_VALUES) + 0.5) / _RUNNING_VALUES * time_s[-1])
    return tuple(int(tokens) for tokens in np.ceil(held[order][places]))


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
    if demand.count < enough and result.verdict != "overloaded":
        return latency_at(replace(demand, count=enough), replica, knobs, rate_rps)
    ttft_s, tpot_s = _measured_s(result, "ttft"), _measured_s(result, "tpot")
    return Latency(
        rate_rps=rate_rps,
        ttft_mean_s=_mean(ttft_s) + replica.request_s,
        ttft_p99_s=_p99(ttft_s) + replica.request_s,
        tpot_mean_s=_mean(tpot_s),
        tpot_p99_s=_p99(tpot_s),
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
    """Return how many requests a run needs for so many sequences at once: a step of doublings, at most the larger sample."""
    count = COARSE_REQUESTS
    while count < min(ANSWER_REQUESTS, running * _REQUESTS_PER_SEQUENCE):
        count *= 2
    return min(ANSWER_REQUESTS, count)


@lru_cache(maxsize=50_000)
def capacity_of(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets) -> Capacity:
    """Return the largest rate at which one replica meets the targets, to about 1 %.

    Without targets it is the saturated rate. With them, a rate meets them when the run isn't overloaded and both percentiles hold;
    a replica that misses them even at a sixteenth of its saturated rate has no useful capacity.
    The search halves the rate until one meets them, then closes in by false position (with Illinois' rule) on the logarithms of
    the rate and of the worse ratio of percentile to target.
    """
    saturated = saturated_rps(demand, replica, knobs)
    if saturated <= 0.0:
        return Capacity(None, "nothing fits", latency_at(demand, replica, knobs, 1e-3))
    if targets.offline:
        at = latency_at(demand, replica, knobs, saturated)
        return Capacity(saturated, at.binds, at)
    missed = latency_at(demand, replica, knobs, saturated * _MARGIN)
    if miss(missed, targets) <= 0.0:
        return Capacity(saturated, missed.binds, missed, missed.running_peak)
    met = missed
    for halvings in range(1, _HALVINGS + 1):
        met = latency_at(demand, replica, knobs, saturated / 2**halvings)
        if miss(met, targets) <= 0.0:
            break
        missed = met
    else:
        return Capacity(None, missed_target(met, targets), met)
    met, missed = _close_in(demand, replica, knobs, targets, (met, missed))
    peak = max(met.running_peak or 0, missed.running_peak or 0)
    return Capacity(met.rate_rps, missed_target(missed, targets), met, peak)


@lru_cache(maxsize=50_000)
def capacity_from(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, guess_rps: float) -> Capacity:
    """Return what `capacity_of` finds, in half the simulations where a guess is near.

    guess_rps : a rate near the capacity, such as that of other settings or of a like replica [request/s]

    Strides away from the guess, each the square of the one before, bracket the capacity; a guess that is far off is dropped.
    """
    if targets.offline or guess_rps <= 0.0:
        return capacity_of(demand, replica, knobs, targets)
    edge = latency_at(demand, replica, knobs, guess_rps)
    upwards = meets(edge, targets)
    for stride in range(_STRIDES):
        factor = _FIRST_STRIDE ** (2**stride)
        tried = latency_at(demand, replica, knobs, edge.rate_rps * factor if upwards else edge.rate_rps / factor)
        if meets(tried, targets) != upwards:
            met, missed = _close_in(demand, replica, knobs, targets, (edge, tried) if upwards else (tried, edge))
            peak = max(met.running_peak or 0, missed.running_peak or 0)
            return Capacity(met.rate_rps, missed_target(missed, targets), met, peak)
        edge = tried
    if not upwards and edge.rate_rps < _USELESS_SHARE * saturated_rps(demand, replica, knobs):
        return Capacity(None, missed_target(edge, targets), edge)
    return capacity_of(demand, replica, knobs, targets)


def _close_in(
    demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, bracket: tuple[Latency, Latency]
) -> tuple[Latency, Latency]:
    """Return a rate that meets the targets and one that misses, 1 % apart; 3 % on the smaller sample, whose noise is larger."""
    met, missed = bracket
    below, above, side = miss(met, targets), miss(missed, targets), 0
    for _ in range(_ROUNDS):
        low, high = math.log(met.rate_rps), math.log(missed.rate_rps)
        if high - low < (_PRECISION if demand.count > COARSE_REQUESTS else _COARSE_PRECISION):
            break
        share = min(max(below / (below - above), _EDGE), 1.0 - _EDGE)
        tried = latency_at(demand, replica, knobs, math.exp(low + share * (high - low)))
        found = miss(tried, targets)
        if found > 0.0:
            missed, above = tried, found
            below, side = (below / 2.0 if side > 0 else below), 1
        else:
            met, below = tried, found
            above, side = (above / 2.0 if side < 0 else above), -1
    return met, missed


def miss(latency: Latency, targets: Targets) -> float:
    """Return the logarithm of the worse ratio of percentile to target [1], between -1 and 1; 1 when the engine doesn't keep up."""
    if not latency.stable:
        return 1.0
    pairs = ((latency.ttft_p99_s, targets.ttft_p99_s), (latency.tpot_p99_s, targets.tpot_p99_s))
    ratios = [math.log(max(reached_s, 1e-9) / target_s) for reached_s, target_s in pairs if target_s is not None]
    return max(-1.0, min(1.0, max(ratios, default=-1.0)))


def meets(latency: Latency, targets: Targets) -> bool:
    """Whether the latencies of a run hold both targets and the engine kept up."""
    return miss(latency, targets) <= 0.0


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


def _measured_s(result: SimulationResult, metric: Metric) -> npt.NDArray[np.float64]:
    """Return a metric of the requests that have one, without those that met an emptier engine than later ones [s]."""
    values = values_s(result, metric)[int(WARM_UP_SHARE * len(result.arrival_s)) :]
    return values[np.isfinite(values)]


def _mean(values_in_s: npt.NDArray[np.float64]) -> float:
    return float(values_in_s.mean()) if len(values_in_s) else 0.0


def _p99(values_in_s: npt.NDArray[np.float64]) -> float:
    return float(np.percentile(values_in_s, 99)) if len(values_in_s) else 0.0
