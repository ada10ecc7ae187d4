"""The closed loop: equal to the simulator where both can serve a load, and its own laws where they differ."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy.closed_loop import ClosedLoopLoad, Policy, serve_closed_loop
from planner.errors import InputError
from planner.simulator import EngineLimits, RequestTable, simulate
from planner.step_model import StepCoefficients

LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, block_size=16, num_blocks=100_000, async_scheduling=False)
VALUES = {
    "layers_s": 2e-3,
    "dense_weights_s": 4e-3,
    "linear_s_per_token": 2e-5,
    "decode_s_per_context_token": 1e-8,
    "prefill_s_per_pair": 1e-10,
    "expert_miss_ratio": 1.0,
    "mix_factor": 1.0,
    "inverse_p": 0.4,
    "host_s": 1e-3,
    "host_overlap": 1.0,
    "exposed_host_s_per_sequence": 2e-5,
}
C = StepCoefficients(**(dict.fromkeys(StepCoefficients._fields, 0.0) | VALUES))


def load(
    count: int, clients: int, prompt: int = 300, output: int = 40, *, delay_s: float = 0.0, spread: float = 0.0
) -> ClosedLoopLoad:
    rng = np.random.default_rng(3)
    lengths = [np.rint(mean * rng.uniform(1.0 - spread, 1.0, count)).astype(np.int64) for mean in (prompt, output)]
    return ClosedLoopLoad(lengths[0], np.maximum(lengths[1], 1), np.full(count, delay_s), clients)


@given(st.integers(1, 6), st.integers(20, 900), st.integers(1, 80), st.booleans())
@settings(max_examples=25, deadline=None)
def test_without_delay_it_is_the_simulator_with_as_many_sequences_as_clients(
    clients: int, prompt: int, output: int, asynchronous: bool
) -> None:
    limits = LIMITS._replace(max_num_seqs=clients, async_scheduling=False)
    one = load(5 * clients, clients, prompt, output, spread=0.5)
    run = serve_closed_loop(one, limits, Policy(), C)
    other = simulate(RequestTable(np.zeros(5 * clients), one.prompt_tokens, one.output_tokens), limits, C)
    assert run.finish_s == pytest.approx(other.finish_s, rel=1e-9)
    assert run.first_token_s == pytest.approx(other.first_token_s, rel=1e-9)


def test_one_client_waits_for_prefill_and_then_for_each_token() -> None:
    """Closed form: TTFT is one prefill step, TPOT one decode step, and the next request starts after the last token."""
    run = serve_closed_loop(load(3, 1), LIMITS, Policy(), C)
    assert run.sent_s[1:] == pytest.approx(run.finish_s[:-1])
    ttft_s = run.first_token_s - run.sent_s
    assert ttft_s == pytest.approx(np.full(3, ttft_s[0]))
    weights_s, flops_s = 4e-3, 300 * 2e-5
    joined_s = (weights_s**2.5 + flops_s**2.5) ** 0.4
    assert ttft_s[0] == pytest.approx(2e-3 + joined_s + 1e-10 * 300 * 150 + 2e-5, rel=1e-6)


def test_delay_adds_to_ttft_alone() -> None:
    plain = serve_closed_loop(load(3, 1), LIMITS, Policy(), C)
    late = serve_closed_loop(load(3, 1, delay_s=0.05), LIMITS, Policy(), C)
    assert late.first_token_s - late.sent_s == pytest.approx(plain.first_token_s - plain.sent_s + 0.05)
    assert late.finish_s - late.first_token_s == pytest.approx(plain.finish_s - plain.first_token_s)


def test_prefilling_first_keeps_equal_requests_in_lockstep() -> None:
    """All clients' prompts are prefilled before anyone decodes, so all end together, wave after wave."""
    run = serve_closed_loop(load(16, 4), LIMITS, Policy(mixed=False), C)
    assert len(np.unique(np.round(run.finish_s, 9))) == 4
    mixed = serve_closed_loop(load(16, 4), LIMITS, Policy(), C)
    assert len(np.unique(np.round(mixed.finish_s, 9))) > 4


def test_held_back_prompts_wait_some_steps() -> None:
    spread = load(40, 4, spread=0.3)
    plain = serve_closed_loop(spread, LIMITS, Policy(), C)
    held = serve_closed_loop(spread, LIMITS, Policy(wait_steps=10), C)
    extra_s = (held.first_token_s - held.sent_s).mean() - (plain.first_token_s - plain.sent_s).mean()
    assert 3 * 6e-3 < extra_s < 10 * 9e-3


def test_a_full_cache_preempts_and_all_requests_end() -> None:
    limits = LIMITS._replace(num_blocks=45)
    run = serve_closed_loop(load(12, 4, prompt=150, output=100), limits, Policy(), C)
    assert run.finished
    assert run.preemptions > 0
    assert np.isfinite(run.finish_s).all()
    reserved = serve_closed_loop(load(12, 4, prompt=150, output=100), limits, Policy(reserves_output=True), C)
    assert reserved.finished
    assert reserved.preemptions == 0


@given(st.integers(1, 12), st.floats(0.0, 0.2), st.booleans(), st.booleans())
@settings(max_examples=25, deadline=None)
def test_times_are_in_order_and_clients_never_exceed_their_number(
    clients: int, delay_s: float, mixed: bool, reserves: bool
) -> None:
    run = serve_closed_loop(load(40, clients, delay_s=delay_s, spread=0.6), LIMITS, Policy(mixed, reserves), C)
    assert (run.sent_s <= run.first_token_s).all()
    assert (run.first_token_s <= run.finish_s).all()
    starts, ends = np.sort(run.sent_s), np.sort(run.finish_s)
    in_flight = np.searchsorted(starts, starts, side="right") - np.searchsorted(ends, starts, side="right")
    assert in_flight.max() <= clients


def test_a_request_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(InputError, match="num_blocks"):
        serve_closed_loop(load(2, 1), LIMITS._replace(num_blocks=4), Policy(), C)
