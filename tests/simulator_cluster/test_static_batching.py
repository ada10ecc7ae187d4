"""Static batching against continuous batching and against its closed forms."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits
from planner.simulator.run import simulate
from planner.simulator.static_batching import StaticBatching, simulate_static
from planner.step_model import StepCoefficients
from planner.workloads import expected_max_ratio


@pytest.fixture(scope="module")
def constant(costs: Callable[..., StepCoefficients]) -> StepCoefficients:
    return costs(layers_s=1.0)


def continuous_gain(output: np.ndarray, batch: int, constant: StepCoefficients) -> float:
    """Return how many times the tokens per second of static batches one engine that refills serves, its last drain left out."""
    requests = RequestTable(np.zeros(len(output)), np.ones(len(output), np.int64), output.astype(np.int64))
    static = simulate_static(requests, StaticBatching(batch), constant)
    limits = EngineLimits(batch, batch, 16, 10**6, async_scheduling=False)
    run = simulate(requests, limits, constant)
    full_s = run.first_scheduled_s.max()
    served = output[run.finish_s <= full_s].sum() + (full_s - run.first_scheduled_s[run.finish_s > full_s]).sum()
    return float(served / full_s / static.output_tokens_per_s)


@pytest.mark.parametrize(("batch", "harmonic"), [(32, 4.058), (64, 4.744)])
def test_gain_on_exponential_outputs_is_the_harmonic_number(batch: int, harmonic: float, constant: StepCoefficients) -> None:
    output = np.ceil(np.random.default_rng(0).exponential(400.0, batch * 1500))
    assert continuous_gain(output, batch, constant) == pytest.approx(harmonic, rel=0.01)


def test_gain_on_constant_outputs_is_one(constant: StepCoefficients) -> None:
    assert continuous_gain(np.full(3200, 50), 32, constant) == pytest.approx(1.0, abs=1e-9)


def test_gain_on_rows_is_that_of_the_largest_order_statistic(constant: StepCoefficients) -> None:
    output = np.random.default_rng(1).lognormal(5.0, 1.0, 32_000).astype(np.int64) + 1
    assert continuous_gain(output, 16, constant) == pytest.approx(expected_max_ratio(16, output), rel=0.02)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=20),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([None, 75, 200]),
    st.sampled_from([0.0, 4.0]),
)
def test_batches_hold_the_laws(
    rows: list[tuple[float, int, int]], batch: int, padded: bool, kv_tokens: int | None, wait_s: float
) -> None:
    costs = StepCoefficients(
        **(dict.fromkeys(StepCoefficients._fields, 0.0) | {"layers_s": 0.5, "linear_s_per_token": 0.01, "mix_factor": 1.0})
    )
    requests = RequestTable(np.array([row[0] for row in rows]), *(np.array([row[i] for row in rows], np.int64) for i in (1, 2)))
    run = simulate_static(requests, StaticBatching(batch, kv_tokens, padded, wait_s), costs)
    assert (run.batch_index >= 0).all()
    assert (run.start_s >= run.arrival_s).all()
    ends = 0.0
    for index in range(run.batch_index.max() + 1):
        members = run.batch_index == index
        assert 1 <= members.sum() <= batch
        assert len(set(run.start_s[members])) == len(set(run.released_s[members])) == 1
        assert run.start_s[members][0] >= ends
        ends = run.released_s[members][0]
        assert ends == run.finish_s[members].max()
        prompt, output = requests.prompt_tokens[members], requests.output_tokens[members]
        held = members.sum() * (prompt.max() + output.max()) if padded else (prompt + output).sum()
        assert kv_tokens is None or held <= kv_tokens
    assert run.useful_rows == (requests.output_tokens - 1).sum() <= run.computed_rows
    assert run.wasted_share == 0.0 or padded


def test_one_batch_by_hand(costs: Callable[..., StepCoefficients]) -> None:
    """Prompts 4 and 10, outputs 1 and 3: rectangles of 20 tokens and of two rows, or 14 tokens and one row."""
    c = costs(linear_s_per_token=1.0, decode_s_per_context_token=0.1, prefill_s_per_pair=0.01)
    requests = RequestTable(np.zeros(2), np.array([4, 10], np.int64), np.array([1, 3], np.int64))
    padded = simulate_static(requests, StaticBatching(2, padded=True), c)
    exact = simulate_static(requests, StaticBatching(2, padded=False), c)
    assert padded.first_token_s == pytest.approx([21.0, 21.0])
    assert padded.finish_s == pytest.approx([21.0, 21.0 + (2 + 2.0) + (2 + 2.2)])
    assert exact.first_token_s == pytest.approx([14.58, 14.58])
    assert exact.finish_s == pytest.approx([14.58, 14.58 + (1 + 1.0) + (1 + 1.1)])
    assert exact.released_s == pytest.approx([exact.finish_s[1]] * 2)
    assert (padded.computed_rows, padded.useful_rows) == (4, 2)


def test_a_batch_waits_for_more_or_goes_when_full(constant: StepCoefficients, table: Callable[..., RequestTable]) -> None:
    run = simulate_static(table([0.0, 1.0, 2.5, 9.0], 8, 1), StaticBatching(3, wait_s=3.0), constant)
    assert run.start_s.tolist() == [2.5, 2.5, 2.5, 12.0]
    at_once = simulate_static(table([0.0, 1.0, 2.5, 9.0], 8, 1), StaticBatching(3), constant)
    assert at_once.start_s.tolist() == [0.0, 1.0, 2.5, 9.0]
