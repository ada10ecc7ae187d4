"""Laws that every simulated run obeys, and the queues that an engine becomes when it is cut down to one."""

import itertools

import numpy as np
import pytest
from hypothesis import given

from planner.simulator import EngineLimits, RequestTable, SimulationOptions, simulate, summarise, values_s
from planner.simulator import layout as n
from planner.simulator import state as state_module
from planner.simulator.inputs import take_in
from planner.simulator.run import _run
from tests.simulator.engines import LIGHT, Case, cases, coefficients

WIDE = EngineLimits(max_num_seqs=64, max_num_batched_tokens=512, block_size=16, num_blocks=4000)
COSTS = coefficients(
    layers_s=2e-3, dense_weights_s=5e-3, linear_s_per_token=3e-5, decode_s_per_context_token=4e-8, host_s=1e-3, host_overlap=1.0
)


def table(arrival_s: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> RequestTable:
    return RequestTable(arrival_s, prompt.astype(np.int64), output.astype(np.int64))


def poisson(count: int, rate_rps: float, seed: int) -> RequestTable:
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1.0 / rate_rps, count))
    return table(arrival_s, rng.integers(1, 800, count), rng.integers(1, 200, count))


@LIGHT
@given(cases(known_hits=True))
def test_requests_and_tokens_are_conserved(case: Case) -> None:
    result = simulate(case.table(), case.limits, case.coefficients, case.options(log_steps=False))
    served = ~result.rejected
    prompt, output = result.prompt_tokens[served], result.output_tokens[served]
    assert result.finished
    assert np.isfinite(result.finish_s[served]).all()
    assert np.isnan(result.finish_s[result.rejected]).all()
    totals = result.totals
    assert totals.output_tokens == output.sum()
    needed = (prompt + output - 1).sum() - totals.prefix_hit_tokens
    assert totals.computed_tokens == needed + totals.recomputed_tokens + totals.wasted_rows
    assert totals.preemptions == result.preemptions.sum()


@LIGHT
@given(cases(known_hits=True))
def test_blocks_are_conserved_and_bounded(case: Case) -> None:
    run = _run(
        take_in(case.table(), case.limits, case.options(log_steps=True).priorities),
        case.limits,
        case.coefficients,
        case.options(log_steps=True),
    )
    state = run.state
    assert state.g[n.FREE] == case.limits.num_blocks
    assert state.g[n.RUNNING] == state.g[n.DECODING] == state.g[n.SUM_BASE] == state.g[n.PREFILLS] == 0
    assert state.g[n.WINDOW_SUM] == state.g[n.WINDOW_BELOW] == 0
    assert not state.residues[n.CROSSING].any()
    steps = state.record.log_steps[: state.g[n.LOG_STEPS]]
    assert ((steps[:, 1] >= 0) & (steps[:, 1] <= case.limits.num_blocks)).all()
    assert (steps[:, 2] <= case.limits.max_num_seqs).all()


@LIGHT
@given(cases(known_hits=True))
def test_the_clock_never_goes_back(case: Case) -> None:
    result = simulate(case.table(), case.limits, case.coefficients, case.options(log_steps=True))
    steps = result.steps
    assert steps is not None
    for before, after in itertools.pairwise(steps):
        assert after.start_s >= before.start_s + before.duration_s
        assert after.scheduled_at_s >= before.scheduled_at_s
    for step in steps:
        assert step.scheduled_at_s <= step.start_s
        assert step.duration_s > 0.0
        assert sum(row.tokens for row in step.rows) <= case.limits.max_num_batched_tokens
    ended = np.isfinite(result.finish_s)
    assert not result.finished or (ended == ~result.rejected).all()  # an engine that was stopped leaves some without an end
    times = np.stack([result.arrival_s, result.first_scheduled_s, result.first_token_s, result.finish_s])[:, ended]
    assert (np.diff(times, axis=0) >= 0.0).all()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("blocks", [4000, 400])
def test_littles_law(asynchronous: bool, blocks: int) -> None:
    """Mean number in the system is arrival rate times mean time in it, within 1 %; in step-by-step mode exactly."""
    limits = WIDE._replace(async_scheduling=asynchronous, num_blocks=blocks)
    result = simulate(poisson(4000, 12.0, seed=3), limits, COSTS)
    time_in_system_s = values_s(result, "e2e").sum()
    number = (result.averages.running + result.averages.waiting) * result.totals.makespan_s
    assert number == pytest.approx(time_in_system_s, rel=1e-9 if not asynchronous else 0.01)


def test_one_slot_and_a_fixed_step_is_an_md1_queue() -> None:
    """Pollaczek and Khinchine: the mean wait for constant service is rho / (2 mu (1 - rho))."""
    count, rho, service_s = 200_000, 0.7, 0.25
    rng = np.random.default_rng(11)
    arrival_s = np.cumsum(rng.exponential(service_s / rho, count))
    limits = EngineLimits(max_num_seqs=1, max_num_batched_tokens=16, block_size=16, num_blocks=4, async_scheduling=False)
    result = simulate(table(arrival_s, np.full(count, 8), np.ones(count)), limits, coefficients(layers_s=service_s))
    assert values_s(result, "queue").mean() == pytest.approx(rho * service_s / (2.0 * (1.0 - rho)), rel=0.02)
    assert result.totals.steps == count


def test_one_slot_and_exponential_prompts_is_an_mm1_queue() -> None:
    """The mean wait for exponential service is rho / (mu (1 - rho)); its tail is rho exp(-mu (1 - rho) t)."""
    count, rho, per_token_s, mean_tokens = 400_000, 0.6, 1e-4, 2000
    rng = np.random.default_rng(12)
    service_s = per_token_s * mean_tokens
    arrival_s = np.cumsum(rng.exponential(service_s / rho, count))
    prompt = np.maximum(rng.exponential(mean_tokens, count).round(), 1)
    limits = EngineLimits(max_num_seqs=1, max_num_batched_tokens=1 << 16, block_size=16, num_blocks=1 << 13, async_scheduling=False)
    result = simulate(table(arrival_s, prompt, np.ones(count)), limits, coefficients(linear_s_per_token=per_token_s))
    waits_s = values_s(result, "queue")
    assert waits_s.mean() == pytest.approx(rho * service_s / (1.0 - rho), rel=0.03)
    assert (waits_s > service_s).mean() == pytest.approx(rho * np.exp(-(1.0 - rho)), rel=0.03)


def test_a_lone_request_takes_its_chunks_and_its_tokens() -> None:
    """Closed form: three chunks of 40, 40 and 20 tokens, then four decode steps of growing context."""
    costs = coefficients(layers_s=1.0, linear_s_per_token=0.01, decode_s_per_context_token=0.001)
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=40, block_size=16, num_blocks=20, async_scheduling=False)
    result = simulate(table(np.array([2.0]), np.array([100]), np.array([5])), limits, costs)
    # each chunk also reads what is cached: 0, 40 and 80 tokens
    first_token_s = 2.0 + (1.0 + 0.4) + (1.0 + 0.4 + 0.04) + (1.0 + 0.2 + 0.08)
    decode_s = sum(1.0 + 0.01 + 0.001 * context for context in (100, 101, 102, 103))
    assert result.first_token_s[0] == pytest.approx(first_token_s, rel=1e-12)
    assert result.finish_s[0] == pytest.approx(first_token_s + decode_s, rel=1e-12)
    assert values_s(result, "tpot")[0] == pytest.approx(decode_s / 4.0, rel=1e-12)


def test_the_same_input_gives_the_same_bytes() -> None:
    first, second = (simulate(poisson(500, 20.0, seed=5), WIDE._replace(num_blocks=200), COSTS) for _ in range(2))
    for name in ("first_token_s", "finish_s", "preemptions", "bound_s"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert summarise(first) == summarise(second)


def test_the_order_of_the_callers_rows_changes_nothing() -> None:
    rows = poisson(300, 20.0, seed=6)
    shuffled = np.random.default_rng(1).permutation(len(rows))
    mixed = table(rows.arrival_s[shuffled], rows.prompt_tokens[shuffled], rows.output_tokens[shuffled])
    straight, back = simulate(rows, WIDE, COSTS), simulate(mixed, WIDE, COSTS)
    assert np.array_equal(straight.finish_s[shuffled], back.finish_s)
    assert summarise(straight) == summarise(back)


def test_more_blocks_or_tokens_never_refuse_more() -> None:
    rng = np.random.default_rng(8)
    rows = table(np.zeros(200), rng.integers(1, 4000, 200), rng.integers(1, 500, 200))
    refused = [
        int(simulate(rows, WIDE._replace(num_blocks=blocks, max_num_batched_tokens=tokens), COSTS).rejected.sum())
        for blocks, tokens in ((50, 128), (100, 128), (200, 512), (400, 2048))
    ]
    assert refused == sorted(refused, reverse=True)
    assert refused[0] > refused[-1] == 0


def test_an_engine_that_thrashes_for_good_is_stopped_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_STEPS_PER_TOKEN", 0)
    monkeypatch.setattr(state_module, "_SPARE_STEPS", 20)
    result = simulate(poisson(50, 20.0, seed=5), WIDE, COSTS)
    assert not result.finished
    assert result.verdict == "overloaded"
    assert "stopped" in result.verdict_reason


def test_stop_tokens_waste_a_row_only_under_asynchronous_scheduling() -> None:
    rows = poisson(200, 10.0, seed=9)
    eos = SimulationOptions(stop="eos")
    assert simulate(rows, WIDE._replace(async_scheduling=False), COSTS, eos).totals.wasted_rows == 0
    assert simulate(rows, WIDE, COSTS).totals.wasted_rows == 0
    assert simulate(rows, WIDE, COSTS, eos).totals.wasted_rows == len(rows)
