"""The compiled loop makes the plain loop's decisions, at the same times, on any engine and workload."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.simulator import EngineLimits, simulate
from tests.simulator.engines import LIGHT, Case, cases, coefficients, run_both


@LIGHT
@given(cases(known_hits=True))
def test_every_step_is_the_plain_loops(case: Case) -> None:
    plain, compiled = run_both(case)
    assert len(plain.steps) == len(compiled.steps)
    for mine, theirs in zip(compiled.steps, plain.steps, strict=True):
        assert sorted(mine.rows) == sorted((row.sequence.index, row.tokens, row.context) for row in theirs.rows)
        assert mine.preempted == theirs.preempted
        assert (mine.used_blocks, mine.running, mine.waiting) == (theirs.used_blocks, theirs.running, theirs.waiting)
        assert mine.scheduled_at_s == theirs.scheduled_at_s
        assert mine.start_s == theirs.start_s
        assert abs(mine.duration_s - theirs.duration_s) < 1e-12
    for index, sequence in enumerate(plain.sequences):
        assert sequence.index == index
        assert compiled.rejected[index] == sequence.rejected
        assert compiled.preemptions[index] == sequence.preemptions
        assert compiled.cached_tokens[index] == (sequence.cached_tokens or 0)
        for mine, theirs in (
            (compiled.first_scheduled_s[index], sequence.first_scheduled_s),
            (compiled.first_token_s[index], sequence.first_token_s),
            (compiled.finish_s[index], sequence.finish_s),
        ):
            assert (np.isnan(mine) and theirs is None) or mine == theirs


@LIGHT
@given(cases(known_hits=True))
def test_stretches_change_nothing(case: Case) -> None:
    """Steps taken in a stretch, without the log, equal steps decided one by one."""
    limits = case.limits
    by_step = simulate(case.table(), limits, case.coefficients, case.options(log_steps=True))
    at_once = simulate(case.table(), limits, case.coefficients, case.options(log_steps=False))
    for name in ("first_scheduled_s", "first_token_s", "finish_s", "preemptions", "cached_tokens", "rejected", "bound_s"):
        assert np.array_equal(getattr(by_step, name), getattr(at_once, name), equal_nan=True), name
    assert by_step.totals == at_once.totals
    assert by_step.averages == at_once.averages
    assert np.array_equal(by_step.gaps.tokens, at_once.gaps.tokens)
    assert by_step.gaps.sum_s == at_once.gaps.sum_s


@LIGHT
@given(cases(known_hits=True))
def test_gaps_are_those_between_a_requests_tokens(case: Case) -> None:
    """The histogram of gaps holds every token but each request's first, and their sum is the decode time of all requests."""
    _, result = run_both(case)
    served = ~result.rejected
    outputs = result.output_tokens[served]
    assert result.gaps.tokens.sum() == (outputs - 1).sum()
    assert np.isclose(result.gaps.sum_s, (result.finish_s - result.first_token_s)[served].sum(), rtol=1e-12, atol=1e-12)
    assert np.isclose((result.gaps.middle_s * result.gaps.tokens).sum(), result.gaps.sum_s, rtol=1e-3, atol=1e-12)


@LIGHT
@given(cases(known_hits=True), st.lists(st.floats(0.0, 1e-2), min_size=21, max_size=21), st.floats(0.0, 1.0))
def test_steps_take_the_step_models_time(case: Case, costs: list[float], inverse_p: float) -> None:
    """Every coefficient at once, with smooth maxima and experts: durations agree with the plain loop's to rounding."""
    c = case.coefficients
    drawn = dict(zip([name for name in c._fields if name not in ("inverse_p", "window_tokens")], costs, strict=True))
    exact = {"layers_s": 1e-3, "expert_miss_ratio": 0.9, "expert_spread": 0.7, "mix_factor": 1.3, "host_overlap": c.host_overlap}
    plain, compiled = run_both(case._replace(coefficients=c._replace(**(drawn | exact), inverse_p=inverse_p)))
    assert len(plain.steps) == len(compiled.steps)
    for mine, theirs in zip(compiled.steps, plain.steps, strict=True):
        assert mine.duration_s == pytest.approx(theirs.duration_s, rel=1e-12)
        assert mine.start_s == pytest.approx(theirs.start_s, rel=1e-12)


def test_of_equal_sequences_the_first_in_the_list_is_preempted() -> None:
    """Same priority, same arrival: vLLM's max() over the running list keeps the first of equals."""
    limits = EngineLimits(4, 64, block_size=4, num_blocks=8, policy="priority", async_scheduling=False)
    costs = coefficients(layers_s=1e-3)
    case = Case(limits, costs, "length", [0.0] * 3, [8] * 3, [12] * 3, [0] * 3, [[]] * 3, [0] * 3)
    plain, compiled = run_both(case)
    first = next(step.preempted for step in plain.steps if step.preempted)
    assert first == [0]
    assert [step.preempted for step in compiled.steps] == [step.preempted for step in plain.steps]
