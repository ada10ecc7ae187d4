"""The simulator stays fast enough to be the inner loop of a plan.

Floors lie far below what a quiet core reaches (over 1,000,000 requests a second, several 100,000 with prefix caching), so that a
busy machine passes and an accidental loop over all running sequences doesn't.
"""

import time
from typing import Any

import numpy as np
import pytest

from planner.simulator import EngineLimits, RequestTable, simulate, summarise
from planner.simulator.inputs import take_in
from planner.simulator.state import LogSize, build_state
from tests.simulator.engines import coefficients

LIMITS = EngineLimits(max_num_seqs=128, max_num_batched_tokens=512, block_size=16, num_blocks=29_000, max_model_len=8192)
COSTS = coefficients(
    layers_s=1e-3,
    dense_weights_s=9e-3,
    linear_s_per_token=8.6e-5,
    head_weights_s=6e-4,
    decode_s_per_context_token=8e-8,
    prefill_s_per_pair=4e-9,
    host_s=3e-3,
    host_overlap=1.0,
    inverse_p=0.2,
)


def workload(count: int) -> RequestTable:
    """Eight requests a second with lognormal lengths: means of about 730 and 200 tokens."""
    rng = np.random.default_rng(1)
    arrival_s = np.cumsum(rng.exponential(1.0 / 8.0, count))
    prompt = np.clip(rng.lognormal(6.2, 0.9, count), 1, 3000).astype(np.int64)
    output = np.clip(rng.lognormal(5.0, 0.8, count), 1, 1000).astype(np.int64)
    return RequestTable(arrival_s, prompt, output)


def best_s(requests: RequestTable, limits: EngineLimits, repeats: int = 4) -> float:
    simulate(workload(10), limits, COSTS)
    best = float("inf")
    for _ in range(repeats):
        started = time.thread_time()
        summarise(simulate(requests, limits, COSTS))
        best = min(best, time.thread_time() - started)
    return best


@pytest.mark.parametrize(
    ("change", "floor"),
    [
        ({}, 250_000),
        ({"async_scheduling": False}, 250_000),
        ({"num_blocks": 2500}, 100_000),
        ({"enable_prefix_caching": True}, 80_000),
        ({"enable_prefix_caching": True, "num_blocks": 2500}, 80_000),
    ],
)
def test_requests_per_second(change: dict[str, Any], floor: float) -> None:
    requests = workload(20_000)
    assert len(requests) / best_s(requests, LIMITS._replace(**change)) > floor


def test_time_grows_with_the_requests_and_not_faster() -> None:
    assert best_s(workload(100_000), LIMITS, repeats=2) < 12.0 * best_s(workload(20_000), LIMITS)


def test_a_step_costs_the_same_for_eight_and_for_a_thousand_sequences() -> None:
    """Decode steps are counted, not walked: 125 times the batch takes much less than 125 times the time."""
    few, many = (
        RequestTable(np.zeros(count), np.full(count, 16), np.full(count, 20_000) + np.arange(count)) for count in (8, 1000)
    )
    limits = LIMITS._replace(max_num_seqs=1000, max_num_batched_tokens=16_000, num_blocks=2_000_000, max_model_len=None)
    assert best_s(many, limits) < 20.0 * best_s(few, limits)


def test_memory_is_linear_in_requests() -> None:
    """Below 100 bytes a request, beside what the engine itself needs."""
    sizes = []
    for count in (10_000, 110_000):
        requests = workload(count)
        state = build_state(take_in(requests, LIMITS, None).queue, LIMITS, "length", 0, LogSize())
        arrays = [*state[:-2], *state.cache, *state.record]
        sizes.append(sum(array.nbytes for array in arrays))
    assert (sizes[1] - sizes[0]) / 100_000 < 100.0
