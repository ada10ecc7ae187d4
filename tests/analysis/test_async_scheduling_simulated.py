"""Asynchronous scheduling: steps, first tokens and wasted rows simulated against their formulas; the timeline."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.async_scheduling import mean_ttft_s, overlap, timeline, wasted_rows
from planner.analysis.async_scheduling_simulated import Sides, own_sides, own_steps, simulated_overlap
from planner.cases import textbook_case
from planner.errors import InputError

CASE = textbook_case()
PUBLISHED = Sides(gpu_s=10e-3, host_s=5e-3)


@settings(max_examples=4, deadline=None)
@given(st.floats(1e-3, 50e-3), st.floats(0.0, 50e-3))
def test_formula_and_simulation_agree_on_any_step(gpu_s: float, host_s: float) -> None:
    found, run = overlap(gpu_s, host_s), simulated_overlap(CASE, Sides(gpu_s, host_s), 24.0, 1500)
    assert run.serial.step_s == pytest.approx(found.serial_s)
    assert run.overlapped.step_s == pytest.approx(found.overlapped_s)
    assert run.serial.ttft_s == pytest.approx(mean_ttft_s(gpu_s, host_s, overlapped=False), rel=0.03)
    assert run.overlapped.ttft_s == pytest.approx(mean_ttft_s(gpu_s, host_s, overlapped=True), rel=0.03)


def test_the_published_step_and_its_first_token() -> None:
    # Textbook question 12: host 5 ms, GPU 10 ms: 15 to 10 ms; a stop token wastes one row, a length stop none.
    run = simulated_overlap(CASE, PUBLISHED, 64.0, 3000)
    assert (run.serial.step_s, run.overlapped.step_s) == (pytest.approx(15e-3), pytest.approx(10e-3))
    assert run.overlapped.wasted_rows == 0.0
    assert run.stopping.wasted_rows == pytest.approx(1.0, abs=0.01)
    assert run.stopping.wasted_rows == pytest.approx(wasted_rows(1.0), abs=0.01)
    assert run.overlapped.ttft_s - run.serial.ttft_s == pytest.approx(2.5 * 10e-3 - 1.5 * 15e-3, rel=0.1)


def test_without_host_time_overlap_gains_nothing_and_costs_a_step() -> None:
    run = simulated_overlap(CASE, Sides(10e-3, 0.0), 24.0, 1500)
    assert run.serial.step_s == pytest.approx(run.overlapped.step_s)
    assert run.overlapped.ttft_s - run.serial.ttft_s == pytest.approx(10e-3, rel=0.05)
    assert run.own_overlapped.tpot_p99_s == pytest.approx(run.own_serial.tpot_p99_s, rel=0.01)
    assert run.own_overlapped.ttft_p99_s > run.own_serial.ttft_p99_s


def test_the_engines_own_host_time_is_hidden() -> None:
    slow = CASE.coefficients._replace(host_s=3e-3, host_s_per_sequence=1e-5, exposed_host_s_per_sequence=1e-5)
    case = CASE.__class__(**{name: getattr(CASE, name) for name in CASE.__slots__} | {"coefficients": slow})
    assert own_sides(case, 10.0).host_s == pytest.approx(3.1e-3)
    assert own_sides(case, 10.0).gpu_s == pytest.approx(own_sides(CASE, 10.0).gpu_s)
    run = simulated_overlap(case, own_sides(case, 10.0), 10.0, 2000)
    assert run.own_overlapped.tpot_p99_s < 0.75 * run.own_serial.tpot_p99_s


def test_own_steps_are_named_and_rise() -> None:
    (decode, decode_s), (budget, budget_s) = own_steps(CASE, 64.0)
    assert (decode, budget) == ("own step, 64 decoders", "own full step, 8,192 tokens")
    assert decode_s < budget_s


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-4, 1.0), st.floats(0.0, 1.0), st.integers(2, 12), st.booleans())
def test_neither_side_does_two_steps_at_once(gpu_s: float, host_s: float, steps: int, overlapped: bool) -> None:
    spans = timeline(gpu_s, host_s, steps, overlapped=overlapped)
    for side in ("host", "GPU"):
        own = [span for span in spans if span.side == side]
        assert [span.step for span in own] == list(range(1, steps + 1))
        assert all(after.from_s >= before.to_s - 1e-12 for before, after in itertools.pairwise(own))
    gpu = [span for span in spans if span.side == "GPU"]
    host = [span for span in spans if span.side == "host"]
    assert all(work.from_s >= ready.to_s - 1e-12 for work, ready in zip(gpu, host, strict=True))
    found = overlap(gpu_s, host_s)
    period_s = (gpu[-1].to_s - gpu[0].to_s) / (steps - 1)
    assert period_s == pytest.approx(found.overlapped_s if overlapped else found.serial_s)


@pytest.mark.parametrize(
    "call", [lambda: timeline(0.0, 1.0, 3, overlapped=True), lambda: mean_ttft_s(1.0, math.nan, overlapped=False)]
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
