"""Static against continuous batching: the closed form where its assumptions hold, real traces, requests both engines can serve."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.batching import harmonic_number
from planner.analysis.batching_simulated import (
    BATCHES,
    both_engines,
    gain_curve,
    gain_of,
    real_traces,
    simulated_batching,
    with_outputs,
)
from planner.analysis.case import Case
from planner.cases import textbook_case
from planner.step_model import StepCoefficients
from planner.workloads import Requests, load_workload

CASE = textbook_case()
STEADY = StepCoefficients(
    **(
        dict.fromkeys(StepCoefficients._fields, 0.0)
        | {"layers_s": 0.01, "mix_factor": 1.0, "expert_miss_ratio": 1.0, "host_overlap": 1.0}
    )
)


def steady(case: Case = CASE) -> Case:
    """Return an engine whose steps all take as long, so that only their number counts."""
    return replace(case, coefficients=STEADY)


def of_outputs(outputs: np.ndarray) -> Requests:
    count = len(outputs)
    return Requests(np.zeros(count), np.ones(count, np.int64), outputs.astype(np.int64), np.zeros(count, np.int64))


def test_both_engines_meet_the_harmonic_number_where_steps_are_alike() -> None:
    rng = np.random.default_rng(3)
    found = both_engines(steady(), of_outputs(np.ceil(rng.exponential(400.0, 8000))), 32)
    assert found.row_gain == pytest.approx(harmonic_number(32), rel=0.02)
    assert found.step_gain == pytest.approx(harmonic_number(32), rel=0.05)
    assert found.throughput_gain == pytest.approx(harmonic_number(32), rel=0.05)


def test_constant_outputs_gain_nothing() -> None:
    found = both_engines(steady(), of_outputs(np.full(640, 250)), 32)
    assert found.row_gain == 1.0
    assert found.step_gain == pytest.approx(1.0, rel=0.01)
    assert found.throughput_gain == pytest.approx(1.0, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(2, 300), min_size=4, max_size=60), st.integers(1, 16))
def test_static_never_computes_fewer_rows_than_it_needs(outputs: list[int], batch: int) -> None:
    found = both_engines(steady(), of_outputs(np.array(outputs)), batch)
    assert found.row_gain >= 1.0 - 1e-12
    assert found.static_tokens_per_s <= found.continuous_tokens_per_s * (1.0 + 1e-9)


def test_textbook_gains() -> None:
    assert gain_of(CASE.workload, "exponential", 32).gain == pytest.approx(4.058, rel=1e-3)
    assert gain_of(CASE.workload, "exponential", 64).gain == pytest.approx(4.744, rel=1e-3)
    assert gain_of(CASE.workload, "constant", 64).gain == 1.0
    found = simulated_batching(CASE, "exponential", 32, 3000)
    assert found.asked.row_gain == pytest.approx(4.058, rel=0.05)
    assert found.asked.throughput_gain > 3.0
    assert found.requests == 3000


def test_real_traces_are_exact_and_rise_with_the_batch() -> None:
    traces = real_traces("")
    assert len(traces) == 4
    by_name = {trace.name: dict(trace.points) for trace in traces}
    rows = load_workload("azure-code-2023").lengths.sample(200_000, np.random.default_rng(0))[1]
    drawn = rows[: 32 * 6000].reshape(-1, 32).max(axis=1).mean() / rows.mean()
    assert by_name["Azure code 2023"][32] == pytest.approx(drawn, rel=0.03)
    for trace in traces:
        gains = [gain for _, gain in trace.points]
        assert gains[0] == pytest.approx(1.0)
        assert gains == sorted(gains)
    assert by_name["Azure code 2023"][256] > 3.0 * by_name["Translation"][256]
    assert load_workload("translation").name not in {trace.name for trace in real_traces("translation")}
    assert [batch for batch, _ in gain_curve("x", CASE.workload).points] == list(BATCHES)


def test_requests_too_long_for_the_engine_are_left_out_and_counted() -> None:
    short = CASE.with_limits(max_model_len=700)
    requests = replace(CASE.requests(50), prompt_tokens=np.r_[np.full(25, 699), np.full(25, 700)].astype(np.int64))
    kept = with_outputs(short, "as recorded", requests)
    assert len(kept) == 25
    assert (kept.output_tokens == 1).all()
    assert simulated_batching(short, "exponential", 8, 200).dropped == 0
    again = [with_outputs(CASE, "exponential", CASE.requests(100)).output_tokens for _ in range(2)]
    assert np.array_equal(*again)
