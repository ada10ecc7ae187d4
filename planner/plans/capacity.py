"""What one replica does at a rate, by simulating the engine over the workload's own requests.

All rates of one search serve the same requests with their arrival times stretched (common random numbers), so that two rates or two
settings differ by what they do and not by luck.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.plans.results import Knobs, Latency
from planner.simulator import (
    TARGET_PERCENTILE,
    EngineLimits,
    SimulationOptions,
    SimulationResult,
    leaving_rps,
    measured_s,
    percentile_s,
    simulate,
)
from planner.step_model import StepCoefficients
from planner.workloads import LengthStats, ProfileArrivals, Requests, RowsLengths, Workload, prefix_hits

SEARCH_REQUESTS = 2500
COARSE_REQUESTS = 1200
ANSWER_REQUESTS = 20_000
_DRAIN_SHARE = 0.2
_LIFE_SHARES = (1 / 6, 1 / 2, 5 / 6)
_RUNNING_VALUES = 300
_REQUESTS_PER_SEQUENCE = 10
_LATENCIES_ONLY = SimulationOptions(over_time=False)


class Replica(NamedTuple):
    """One engine without its two knobs: step times, KV pool and scheduler settings. Hashable, so that results can be kept.

    request_s : time that a request spends outside the engine before its first token [s]
    prefix_caching : prompt tokens that the cache is known to hold are skipped
    """

    coefficients: StepCoefficients
    num_blocks: int
    block_size: int
    max_model_len: int | None
    async_scheduling: bool
    scheduler_reserve_full_isl: bool
    request_s: float
    prefix_caching: bool = False

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
            enable_prefix_caching=self.prefix_caching,
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """The workload's requests at one request a second, sampled once. Equal when workload, number and seed are.

    cache_tokens : size of the prefix cache that serves their shared prompts [token]; None counts no reuse
    """

    key: str
    count: int
    seed: int
    cache_tokens: int | None = None

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
        return _longest(replace(self, count=max(self.count, ANSWER_REQUESTS)))


def demand_for(workload: Workload, count: int, seed: int) -> Demand:
    """Return a sample of a workload for the hour that is planned: arrivals within it, not its course over the day."""
    within = workload
    if isinstance(workload.arrivals, ProfileArrivals):
        within = workload.model_copy(update={"arrivals": workload.arrivals.base})
    return Demand(within.model_dump_json(), count, seed)


@lru_cache(maxsize=64)
def length_stats_of(key: str) -> LengthStats:
    """Return means and percentiles of the lengths behind a demand's key: they need whole histograms, and each change asks again."""
    return Workload.model_validate_json(key).length_stats()


@lru_cache(maxsize=32)
def _sampled(demand: Demand) -> Requests:
    """Return the requests: a smaller sample of a recorded order is spread over the largest, as its first rows are like none."""
    workload = Workload.model_validate_json(demand.key)
    requests = workload.sample_requests(demand.count, 1.0, demand.seed)
    if not in_recorded_order(workload) or (demand.count >= ANSWER_REQUESTS and demand.cache_tokens is None):
        return replace(requests, block_hashes=None)
    whole = workload.sample_requests(max(demand.count, ANSWER_REQUESTS), 1.0, demand.seed)
    spread = np.arange(demand.count) * len(whole) // demand.count
    cached = None if demand.cache_tokens is None else _cached(whole, demand.cache_tokens)
    return replace(
        requests,
        prompt_tokens=whole.prompt_tokens[spread],
        output_tokens=whole.output_tokens[spread],
        class_index=whole.class_index[spread],
        cached_prompt_tokens=None if cached is None else cached[spread],
        block_hashes=None,
    )


def in_recorded_order(workload: Workload) -> bool:
    """Whether requests come as rows of a trace in its own order."""
    return isinstance(workload.lengths, RowsLengths) and workload.lengths.draw == "in_order"


def _cached(requests: Requests, cache_tokens: int) -> npt.NDArray[np.int64] | None:
    """Return the prompt tokens that a prefix cache holds of each request [token]; None where none says what it shares."""
    hashes = requests.block_hashes
    if hashes is None:
        return None
    hits = prefix_hits(hashes, requests.prompt_tokens, max(cache_tokens // hashes.block_tokens, 1))
    return np.minimum(hits, requests.prompt_tokens - 1)


@lru_cache(maxsize=64)
def _longest(demand: Demand) -> int:
    base = demand.requests()
    return int((base.prompt_tokens + base.output_tokens).max())


@lru_cache(maxsize=32)
def _running(demand: Demand) -> tuple[int, ...]:
    base = demand.requests()
    held = np.concatenate([base.prompt_tokens + base.output_tokens * share for share in _LIFE_SHARES])
    order = np.argsort(held, kind="stable")
    time_s = np.cumsum(np.tile(base.output_tokens, len(_LIFE_SHARES))[order])
    places = np.searchsorted(time_s, (np.arange(_RUNNING_VALUES) + 0.5) / _RUNNING_VALUES * time_s[-1])
    return tuple(int(tokens) for tokens in np.ceil(held[order][places]))


@lru_cache(maxsize=200_000)
def latency_at(demand: Demand, replica: Replica, knobs: Knobs, rate_rps: float) -> Latency:
    """Return the latencies of one replica at one rate; same arguments, same answer.

    A run shorter than ten generations of the sequences in flight would be mostly ramp and drain: it is repeated on a larger sample.
    """
    result = simulate(demand.at(rate_rps), replica.limits(knobs), replica.coefficients, _LATENCIES_ONLY)
    enough = _enough(result.averages.running)
    if demand.count < enough and result.verdict != "overloaded":
        return latency_at(replace(demand, count=enough), replica, knobs, rate_rps)
    ttft_s, tpot_s = measured_s(result, "ttft"), measured_s(result, "tpot")
    return Latency(
        rate_rps=rate_rps,
        ttft_mean_s=_mean(ttft_s + replica.request_s),
        ttft_p99_s=_p99(ttft_s + replica.request_s),
        tpot_mean_s=_mean(tpot_s),
        tpot_p99_s=_p99(tpot_s),
        running_mean=result.averages.running,
        running_peak=result.averages.peak_running,
        kv_utilisation=result.averages.kv_share,
        refused_share=float(result.rejected.mean()),
        stable=result.verdict != "overloaded",
        binds=resource_that_binds(result),
        method="simulated",
        kv_free=result.totals.preemptions == 0 and result.bound_shares()["KV blocks"] == 0.0,
    )


@lru_cache(maxsize=50_000)
def saturated_rps(demand: Demand, replica: Replica, knobs: Knobs) -> float:
    """Return the rate at which requests leave an engine whose queue never empties [request/s].

    All requests wait from the start; the rate is taken over the middle of the run, without its ramp and its drain, and over a
    larger sample when the batch is large.
    """
    result = simulate(demand.all_at_once(), replica.limits(knobs), replica.coefficients, _LATENCIES_ONLY)
    enough = _enough(result.averages.peak_running)
    if demand.count < enough:
        return saturated_rps(replace(demand, count=enough), replica, knobs)
    leaving = leaving_rps(result.finish_s, _DRAIN_SHARE)
    if leaving is not None:
        return leaving
    ended_s = result.finish_s[np.isfinite(result.finish_s)]
    return len(ended_s) / float(ended_s.max()) if len(ended_s) > 1 else 0.0


def _enough(running: float) -> int:
    """Return how many requests a run needs for so many sequences at once: a step of doublings, at most the larger sample."""
    count = COARSE_REQUESTS
    while count < min(ANSWER_REQUESTS, running * _REQUESTS_PER_SEQUENCE):
        count *= 2
    return min(ANSWER_REQUESTS, count)


def resource_that_binds(result: SimulationResult) -> str:
    """Return the limit behind most of a run's time: what keeps requests waiting if they wait, else what a step's time goes to."""
    waits = result.bound_shares()
    waiting = {reason: share for reason, share in waits.items() if reason != "none"}
    reason = max(waiting, key=lambda name: waiting[name])
    if waiting[reason] > 0.5 and reason != "max_num_batched_tokens":
        return str(reason)
    resources = result.resource_shares()
    return str(max(resources, key=lambda name: resources[name]))


def _mean(values_in_s: npt.NDArray[np.float64]) -> float | None:
    return float(values_in_s.mean()) if len(values_in_s) else None


def _p99(values_in_s: npt.NDArray[np.float64]) -> float | None:
    return percentile_s(values_in_s, TARGET_PERCENTILE) if len(values_in_s) else None
