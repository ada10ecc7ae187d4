"""A window shows the run's own steps: at a time, around the longest one, with chunks, preemptions and wasted rows told apart."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plans import plan
from planner.replay import LONGEST_STEP, MAX_STEPS, ReplaySettings, StepWindow, replay, step_log_document, step_window
from planner.replay.step_log import MAX_ROWS
from planner.replay.window import MAX_SHOWN
from planner.scenario import scenario_from_dict
from planner.simulator import SimulationOptions, simulate
from tests.replay.replays import replayed

LIGHT = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def checked(window: StepWindow) -> StepWindow:
    assert len(window.steps) <= MAX_STEPS
    assert len(window.requests) <= MAX_SHOWN
    for before, after in itertools.pairwise(window.steps):
        assert after.start_s >= before.start_s + before.duration_s - 1e-9
    drawn = {(cell.step, cell.request): cell.tokens for cell in window.cells}
    shown = set(window.requests)
    assert drawn == {
        (index, row.request): row.tokens for index, step in enumerate(window.steps) for row in step.rows if row.request in shown
    }
    everyone = {row.request for step in window.steps for row in step.rows} | {r for step in window.steps for r in step.preempted}
    assert len(everyone) == len(window.requests) + window.left_out
    return window


@LIGHT
@given(st.floats(0.0, 0.99), st.sampled_from([4.0, 10.0, 40.0]))
def test_a_window_holds_the_runs_own_steps(place: float, rate: float) -> None:
    found = replayed(requests=120, rate_rps=rate)
    run = found.planned
    at = place * run.result.totals.makespan_s
    window = checked(step_window(found, run, at))
    whole = simulate(found.requests, run.setup.limits, run.setup.coefficients, SimulationOptions(log_steps=True)).steps or []
    expected = [step for step in whole if step.scheduled_at_s >= at][:MAX_STEPS]
    assert list(window.steps) == expected[: len(window.steps)]
    assert len(window.steps) >= min(len(expected), 1)


def test_the_longest_step_is_in_its_window() -> None:
    found = replayed(rate_rps=12.0)
    window = checked(step_window(found, found.planned, LONGEST_STEP))
    assert window.steps[window.longest].duration_s == pytest.approx(found.planned.result.averages.longest_step_s, rel=1e-9)


def test_preemptions_and_recomputation_are_told_apart() -> None:
    tight = plan(
        scenario_from_dict(
            {
                "hardware": {"gpu_ids": ["l4"], "tensor_parallel": [1]},
                "engine": {"logged_kv_tokens": 16000},
                "targets": {"ttft_p99_s": None, "tpot_p99_s": None},
            }
        )
    )
    found = replay(tight, ReplaySettings(requests=400, rate_rps=5.0))
    run = found.planned
    assert run.result.totals.preemptions > 0
    first = next(
        step.start_s
        for step in simulate(found.requests, run.setup.limits, run.setup.coefficients, SimulationOptions(log_steps=True)).steps
        or []
        if step.preempted
    )
    window = checked(step_window(found, run, first - 0.2))
    assert window.preempted
    preempted = {request for request, _ in window.preempted}
    assert preempted & {request for request, _, _ in window.waits}
    works = {cell.work for start in np.linspace(first, first + 60.0, 12) for cell in step_window(found, run, float(start)).cells}
    assert works >= {"prefill chunk", "recomputed chunk", "decode"}
    for cell in window.cells:
        if cell.work == "recomputed chunk":
            assert run.result.preemptions[cell.request] > 0


def test_wasted_rows_are_drawn_where_a_stop_token_came() -> None:
    found = replayed(stop="eos", requests=300)
    works = [cell.work for at in np.linspace(0.0, 20.0, 12) for cell in step_window(found, found.planned, float(at)).cells]
    assert "wasted row" in works
    assert "wasted row" not in {
        cell.work for cell in step_window(replayed(requests=300), replayed(requests=300).planned, 1.0).cells
    }


def test_a_waiting_request_is_drawn_from_its_arrival_to_its_first_tokens() -> None:
    found = replayed(rate_rps=60.0)
    window = step_window(found, found.planned, 5.0)
    assert window.waits
    for request, from_s, to_s in window.waits:
        assert window.steps[0].start_s <= from_s < to_s
        assert to_s <= found.planned.result.first_scheduled_s[request]
        assert from_s >= found.requests.arrival_s[request]


@pytest.mark.parametrize("at", [-1.0, 1e9, float("nan")])
def test_a_time_outside_the_run_is_refused(at: float) -> None:
    found = replayed(requests=50)
    with pytest.raises(InputError, match="must lie in the run"):
        step_window(found, found.planned, at)


def test_the_log_is_a_recorded_case_with_its_bounds_said() -> None:
    found = replayed(requests=50)
    (case,) = json.loads(json.dumps(step_log_document(found), allow_nan=False))
    assert case["engine"]["num_blocks"] == found.planned.setup.limits.num_blocks + 1
    assert case["logged"] == {
        "steps": len(case["result"]["steps"]),
        "of_steps": found.planned.result.totals.steps,
        "requests": 50,
        "of_requests": 50,
    }
    steps = case["result"]["steps"]
    assert len(steps) == found.planned.result.totals.steps
    assert sum(sum(step["tokens"].values()) for step in steps) == found.planned.result.totals.computed_tokens
    assert case["result"]["finish_s"]["7"] == found.planned.result.finish_s[7]
    assert set(steps[0]) == {
        "scheduled_at_s",
        "start_s",
        "duration_s",
        "tokens",
        "context",
        "preempted",
        "used_blocks",
        "running",
        "waiting",
    }


def test_a_long_runs_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.replay.step_log.MAX_STEPS", 100)
    (case,) = step_log_document(replayed(requests=300))
    assert case["logged"]["steps"] == 100 == len(case["result"]["steps"])
    assert case["logged"]["requests"] < 300
    assert len(case["requests"]) == case["logged"]["requests"]
    assert MAX_ROWS >= 100
