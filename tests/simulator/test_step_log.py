"""The step log of a part of a run, the limits over time, and the longest step, each against the log of the whole run."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.simulator import EngineLimits, RequestTable, SimulationOptions, simulate
from tests.simulator.engines import LIGHT, Case, cases, coefficients


@LIGHT
@given(cases(), st.integers(0, 80), st.integers(1, 12))
def test_a_window_is_a_slice_of_the_whole_log(case: Case, tick: int, most: int) -> None:
    from_s = tick * 2.0**-6
    everything = simulate(case.table(), case.limits, case.coefficients, case.options(log_steps=True))
    options = replace(case.options(log_steps=True), log_from_s=from_s, log_most_steps=most)
    part = simulate(case.table(), case.limits, case.coefficients, options)
    assert part.steps == [step for step in everything.steps or [] if step.scheduled_at_s >= from_s][:most]
    for name in ("first_scheduled_s", "first_token_s", "finish_s", "bound_s"):
        assert np.array_equal(getattr(part, name), getattr(everything, name), equal_nan=True), name
    assert part.averages == everything.averages


@LIGHT
@given(cases())
def test_limits_over_time_sum_to_the_whole_and_to_the_busy_time(case: Case) -> None:
    result = simulate(case.table(), case.limits, case.coefficients, case.options(log_steps=False))
    assert np.allclose(result.series.bound_s.sum(axis=0), result.bound_s, rtol=1e-12)
    assert result.bound_s.sum() == pytest.approx(result.totals.busy_s)


@LIGHT
@given(cases())
def test_the_longest_step_is_in_the_log_where_it_is_said_to_be(case: Case) -> None:
    result = simulate(case.table(), case.limits, case.coefficients, case.options(log_steps=True))
    steps = result.steps or []
    longest_s = max((step.duration_s for step in steps), default=0.0)
    assert result.averages.longest_step_s == pytest.approx(longest_s, rel=1e-9)
    if steps:
        at = min(steps, key=lambda step: abs(step.start_s - result.averages.longest_step_at_s))
        assert at.duration_s == pytest.approx(longest_s, rel=1e-9)


@pytest.mark.parametrize("options", [{"log_most_steps": 0}, {"log_from_s": -1.0}, {"log_from_s": float("nan")}])
def test_an_impossible_window_is_refused(options: dict[str, float]) -> None:
    limits = EngineLimits(max_num_seqs=1, max_num_batched_tokens=8, block_size=16, num_blocks=4)
    one = RequestTable(np.array([0.0]), np.array([1], np.int64), np.array([1], np.int64))
    with pytest.raises(InputError):
        simulate(one, limits, coefficients(layers_s=1.0), SimulationOptions(log_steps=True, **options))  # type: ignore[arg-type]
