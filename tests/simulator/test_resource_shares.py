"""What a run's time is spent on: the compiled loop names the same part of a step as the step model does."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.simulator import EngineLimits, RequestTable, simulate
from planner.step_model import StepShape, step_s, step_time
from tests.simulator.engines import coefficients

SEQUENCES, PROMPT, OUTPUT = 16, 64, 200
LIMITS = EngineLimits(max_num_seqs=SEQUENCES, max_num_batched_tokens=4096, block_size=16, num_blocks=1000, async_scheduling=True)


@pytest.mark.parametrize(
    ("costs", "spent_on"),
    [
        ({"dense_weights_s": 8e-3, "linear_s_per_token": 1e-5, "layers_s": 1e-3}, "bandwidth"),
        ({"linear_s_per_token": 1e-3, "dense_weights_s": 1e-3, "layers_s": 1e-3}, "compute"),
        ({"all_reduce_s": 6e-3, "dense_weights_s": 3e-3, "layers_s": 1e-3}, "communication"),
        ({"layers_s": 6e-3, "dense_weights_s": 3e-3}, "launch overhead"),
        ({"layers_s": 2e-3, "dense_weights_s": 3e-3, "host_s": 9e-3, "host_overlap": 1.0}, "host"),
        ({"layers_s": 2e-3, "dense_weights_s": 3e-3, "host_s": 4e-3, "host_overlap": 1.0}, "bandwidth"),
        ({"layers_s": 2e-3, "dense_weights_s": 3e-3, "host_s": 4e-3, "host_overlap": 0.0}, "host"),
        ({"layers_s": 2e-3, "dense_weights_s": 3e-3, "exposed_host_s_per_sequence": 3e-4, "host_overlap": 1.0}, "host"),
        ({"dense_weights_s": 3e-3, "host_s": 2e-3, "exposed_host_s_per_sequence": 1e-4, "host_overlap": 0.0}, "host"),
    ],
)
def test_most_of_a_decoding_runs_time_goes_to_what_the_step_model_says(costs: dict[str, float], spent_on: str) -> None:
    c = coefficients(**costs)
    rows = float(SEQUENCES)
    assert step_time(StepShape(rows, rows, rows, rows, rows * (PROMPT + OUTPUT / 2)), c).binds == spent_on
    limits = LIMITS._replace(async_scheduling=c.host_overlap == 1.0)
    batch = RequestTable(np.zeros(SEQUENCES), np.full(SEQUENCES, PROMPT), np.full(SEQUENCES, OUTPUT))
    shares = simulate(batch, limits, c).resource_shares()
    assert max(shares, key=lambda name: shares[name]) == spent_on
    assert shares[spent_on] > 0.9


COSTS = {
    "layers_s": 1e-2,
    "dense_weights_s": 1e-2,
    "linear_s_per_token": 1e-3,
    "head_weights_s": 1e-3,
    "decode_s_per_context_token": 1e-6,
    "all_reduce_s": 1e-2,
    "all_reduce_s_per_token": 1e-3,
    "activation_s_per_token": 1e-4,
    "host_s": 1e-2,
    "exposed_host_s_per_sequence": 1e-3,
}


@settings(max_examples=60, deadline=None)
@given(
    shares=st.fixed_dictionaries({name: st.floats(0.001, 1.0) for name in COSTS}),
    overlap=st.sampled_from([0.0, 1.0]),
    sequences=st.integers(1, SEQUENCES),
)
def test_the_loop_and_the_step_model_agree_on_what_binds(shares: dict[str, float], overlap: float, sequences: int) -> None:
    c = coefficients(**{name: COSTS[name] * share for name, share in shares.items()}, host_overlap=overlap)
    rows = float(sequences)
    first, last = (step_time(StepShape(rows, rows, rows, rows, rows * (PROMPT + held)), c) for held in (0, OUTPUT + 1))
    assume(first.binds == last.binds)
    limits = LIMITS._replace(async_scheduling=overlap == 1.0)
    batch = RequestTable(np.zeros(sequences), np.full(sequences, PROMPT), np.full(sequences, OUTPUT))
    result = simulate(batch, limits, c)
    prefill_s = float(step_s(StepShape(rows * PROMPT, rows, rows, prefill_pairs=rows * PROMPT**2 / 2), c))
    decoding = 1.0 - prefill_s / float(result.finish_s.max())
    assert result.resource_shares()[first.binds] >= decoding * (1 - 1e-6)
