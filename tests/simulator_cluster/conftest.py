"""Engines and requests for the cluster's tests."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits
from planner.step_model import StepCoefficients


@pytest.fixture(scope="session")
def costs() -> Callable[..., StepCoefficients]:
    """Coefficients that cost nothing but what is given."""

    def build(**given: float) -> StepCoefficients:
        neutral = {"mix_factor": 1.0, "expert_miss_ratio": 1.0, "expert_spread": 1.0}
        return StepCoefficients(**(dict.fromkeys(StepCoefficients._fields, 0.0) | neutral | given))

    return build


@pytest.fixture(scope="session")
def usual(costs: Callable[..., StepCoefficients]) -> StepCoefficients:
    """An 8B model on a large GPU, roughly."""
    return costs(
        layers_s=1e-3,
        dense_weights_s=5e-3,
        linear_s_per_token=3e-5,
        decode_s_per_context_token=4e-8,
        prefill_s_per_pair=2e-10,
        host_s=1e-3,
        host_overlap=1.0,
    )


@pytest.fixture(scope="session")
def table() -> Callable[..., RequestTable]:
    """A table from lists."""

    def build(arrival_s: Any, prompt: Any, output: Any) -> RequestTable:
        count = len(arrival_s)
        return RequestTable(
            np.array(arrival_s, np.float64),
            np.broadcast_to(np.asarray(prompt, np.int64), count).copy(),
            np.broadcast_to(np.asarray(output, np.int64), count).copy(),
        )

    return build


@pytest.fixture(scope="session")
def poisson() -> Callable[..., RequestTable]:
    """Poisson arrivals with exponential-like lengths."""

    def build(count: int, rate_rps: float, seed: int, prompt_mean: int = 200, output_mean: int = 40) -> RequestTable:
        rng = np.random.default_rng(seed)
        return RequestTable(
            np.cumsum(rng.exponential(1.0 / rate_rps, count)),
            rng.geometric(1.0 / prompt_mean, count).astype(np.int64),
            rng.geometric(1.0 / output_mean, count).astype(np.int64),
        )

    return build


@pytest.fixture(scope="session")
def limits() -> EngineLimits:
    """A small engine with ample KV."""
    return EngineLimits(max_num_seqs=16, max_num_batched_tokens=512, block_size=16, num_blocks=2000)
