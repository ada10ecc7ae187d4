"""The screen before simulation: the mean-field model says in milliseconds what a candidate can't do, and bounds what it can."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.plans.capacity import Demand, Replica
from planner.plans.rates import meets
from planner.plans.results import Knobs, Latency
from planner.queueing import MeanField, OperatingPoint, ReplicaLimits, Traffic, arrival_cv2_of
from planner.scenario import Targets
from planner.step_model import StepShape, step_s
from planner.workloads import Workload

_IDLE_SHARE = 1e-3
_FAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Screen:
    """What the mean-field model says of a replica with some settings.

    saturated_rps : most that it completes without targets [request/s]; 0 when it can't hold one sequence
    idle : latencies with almost no load, where they decide; None when it can't hold one sequence, or when both lie far below
    hopeless : the targets fail even with almost no load, so that no simulation is needed
    """

    saturated_rps: float
    idle: Latency | None
    hopeless: bool


@lru_cache(maxsize=64)
def traffic_of(demand: Demand) -> Traffic:
    """Return the moments and quantiles of the sampled requests, with the burstiness of the workload's arrivals."""
    workload = Workload.model_validate_json(demand.key)
    cv2 = arrival_cv2_of(workload.arrivals, np.random.default_rng([demand.seed, 8]))
    return Traffic.from_requests(demand.requests(), cv2)


@lru_cache(maxsize=20_000)
def screen_of(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets) -> Screen:
    """Return the screen of a replica with some settings."""
    model = mean_field_of(demand, replica, knobs)
    saturated = model.saturated.rate_rps
    if saturated <= 0.0:
        return Screen(0.0, None, hopeless=True)
    if _clearly_fast(demand, replica, targets):
        return Screen(saturated, None, hopeless=False)
    idle = as_latency(model.at(saturated * _IDLE_SHARE), replica)
    return Screen(saturated, idle, hopeless=idle is None or not meets(idle, targets))


def _clearly_fast(demand: Demand, replica: Replica, targets: Targets) -> bool:
    """Whether a lone request takes less than half of each target, by the step model alone."""
    c, traffic = replica.coefficients, traffic_of(demand)
    context = traffic.decode.context_mean
    decode_s = step_s(
        StepShape(1.0, 1.0, 1.0, 1.0, decode_context_tokens=context, decode_window_tokens=min(context, c.window_tokens or context)),
        c,
    )
    longest, pairs = float(traffic.prompts.tokens[-1]), float(traffic.prompts.pairs[-1])
    prefill_s = step_s(StepShape(longest, 1.0, 1.0, prefill_pairs=pairs, prefill_window_pairs=pairs), c) + replica.request_s
    tpot_fast = targets.tpot_p99_s is None or decode_s < _FAST_SHARE * targets.tpot_p99_s
    ttft_fast = targets.ttft_p99_s is None or prefill_s < _FAST_SHARE * targets.ttft_p99_s
    return bool(tpot_fast and ttft_fast)


@lru_cache(maxsize=20_000)
def mean_field_of(demand: Demand, replica: Replica, knobs: Knobs) -> MeanField:
    """Return the mean-field model of a replica under the sampled requests."""
    limits = ReplicaLimits(
        max_num_seqs=knobs.max_num_seqs,
        max_num_batched_tokens=knobs.max_num_batched_tokens,
        kv_tokens=float(replica.num_blocks * replica.block_size),
        block_size=replica.block_size,
        async_scheduling=replica.async_scheduling,
    )
    return MeanField(traffic_of(demand), limits, replica.coefficients)


def as_latency(point: OperatingPoint, replica: Replica) -> Latency | None:
    """Return an operating point in the plan's terms; None for an overloaded one, which has no latencies."""
    if point.ttft_mean_s is None or point.ttft_p99_s is None:
        return None
    return Latency(
        rate_rps=point.rate_rps,
        ttft_mean_s=point.ttft_mean_s + replica.request_s,
        ttft_p99_s=point.ttft_p99_s + replica.request_s,
        tpot_mean_s=point.tpot_mean_s,
        tpot_p99_s=point.tpot_p99_s,
        running_mean=point.running,
        running_peak=None,
        kv_utilisation=point.kv_utilisation,
        refused_share=0.0,
        stable=point.stable,
        binds=point.binds,
        method="mean field",
    )
