"""Who goes first in a rush: the fluid by hand, its laws, its agreement with the simulator, ageing, errors of the predictor."""

import math
import time
from dataclasses import replace
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.head_of_line_simulated import FEEDBACK, FIRST_COME, SHORTEST_PROMPT
from planner.analysis.job_order import known_part, rank_agreement, rush_waits
from planner.analysis.job_order_simulated import (
    AGED,
    SMALLEST_KNOWN,
    SMALLEST_PREDICTED,
    Rush,
    SimulatedRush,
    jobs_of_rush,
    simulated_rush,
)
from planner.cases import textbook_case
from planner.errors import InputError
from planner.simulator import SimulationOptions, simulate
from planner.simulator.cluster import EngineSpec, run_engine
from planner.simulator.policies import Discipline
from planner.ui.views.questions_sharing_order import default_count, default_seqs, order_code, order_notes
from planner.workloads import load_workload

RUSH = Rush(count=400, load=1.5, cv2=1.0, sigma=0.5, patience=1.0)
WORKS = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=60)


def few_places() -> Case:
    return textbook_case().with_limits(max_num_seqs=32)


@pytest.fixture(scope="module")
def rush() -> SimulatedRush:
    case = few_places()
    return simulated_rush(case, RUSH, jobs_of_rush(case, RUSH), lambda _text, _share: None)


def test_the_fluid_by_hand() -> None:
    # Two jobs of 1 and one of 2 at twice capacity: half the work is in the small ones, which just fit (load·F = 0.5 and 1).
    found = rush_waits([1.0, 1.0, 2.0], 2.0)
    assert found.fcfs_mean == pytest.approx(0.5)
    assert found.smallest_mean == pytest.approx((0.0 + 0.0 + 1.5) / 3.0)
    assert found.untouched == pytest.approx(2.0 / 3.0)
    assert (found.fcfs_worst, found.smallest_worst) == (pytest.approx(1.0), pytest.approx(2.0))
    assert found.gain == pytest.approx(1.0)


def test_equal_jobs_gain_nothing_and_exponential_ones_a_lot() -> None:
    assert rush_waits(np.ones(20_000), 1.5).gain == pytest.approx(1.0, rel=1e-3)
    quantiles = -np.log1p(-(np.arange(20_000) + 0.5) / 20_000)
    # All at once: first come waits half the work, smallest first the mean of F over jobs, 1/4 for exponential ones.
    assert rush_waits(quantiles, 1e6).gain == pytest.approx(2.0, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(WORKS, st.floats(0.1, 50.0))
def test_smallest_first_never_waits_longer_on_average(works: list[float], load: float) -> None:
    found = rush_waits(works, load)
    granularity = load / len(works)  # the fluid's jobs are points, a finite list's are not
    assert found.smallest_mean <= found.fcfs_mean + granularity
    assert 0.0 <= found.untouched <= 1.0
    assert found.smallest_worst >= found.fcfs_worst
    if load <= 1.0:
        assert (found.fcfs_mean, found.smallest_mean, found.gain) == (0.0, 0.0, None)


def test_one_at_a_time_agrees_with_the_fluid() -> None:
    """With one place, work flows out at a steady rate from the first moment on: the fluid's assumption."""
    case = textbook_case().with_limits(max_num_seqs=1)
    asked = Rush(600, 2.0, 1.0, 0.0, 1.0)
    jobs = jobs_of_rush(case, asked)
    requests = jobs.at(asked.load)
    span_s = float(requests.arrival_s[-1])
    fluid = rush_waits(jobs.work, asked.load)
    ranks = np.rint(jobs.work * 1000.0).astype(np.int64)
    for order, expected in ((None, fluid.fcfs_mean), (ranks, fluid.smallest_mean)):
        limits = case.limits if order is None else case.limits._replace(policy="priority")
        run = simulate(requests, limits, case.coefficients, SimulationOptions(priorities=order))
        wait_s = float((run.first_scheduled_s - run.arrival_s).mean())
        assert wait_s == pytest.approx(expected * span_s, rel=0.12)


def test_a_priority_of_its_work_serves_as_the_policy_of_smallest_predicted_does() -> None:
    """What the compiled loop does with priorities is what the policy does; so vLLM can do it, too."""
    case = few_places()
    jobs = jobs_of_rush(case, RUSH)
    requests = jobs.at(1.5)
    ranks = np.rint(jobs.work * 1000.0).astype(np.int64)
    compiled = simulate(requests, case.limits._replace(policy="priority"), case.coefficients, SimulationOptions(priorities=ranks))
    plain = run_engine(
        EngineSpec(case.limits, case.coefficients, Discipline("shortest-predicted", 1.0, jobs.output_weight)), requests
    )
    assert compiled.first_token_s == pytest.approx(plain.first_token_s, rel=1e-9)


def test_small_jobs_first_gains_in_the_mean_and_starves_the_large(rush: SimulatedRush) -> None:
    first, known = rush.order(FIRST_COME), rush.order(SMALLEST_KNOWN)
    assert known.ttft_mean_s < 0.6 * first.ttft_mean_s
    assert known.ttft_worst_s > 1.5 * first.ttft_worst_s
    gain = rush_waits(rush.jobs.work, 1.5).gain
    assert gain is not None
    assert first.ttft_mean_s / known.ttft_mean_s == pytest.approx(gain, rel=0.3)


def test_a_bound_on_the_wait_ends_starvation(rush: SimulatedRush) -> None:
    unbounded, aged, first = (rush.order(name) for name in (SMALLEST_PREDICTED, AGED, FIRST_COME))
    assert aged.ttft_worst_s < 0.6 * unbounded.ttft_worst_s
    assert aged.ttft_worst_s < 1.3 * first.ttft_worst_s
    assert unbounded.ttft_mean_s <= aged.ttft_mean_s < first.ttft_mean_s
    bounds = [point.ageing_s for point in rush.by_ageing]
    assert bounds == sorted(bounds)
    assert rush.by_ageing[0].ttft_worst_s == first.ttft_worst_s


def test_a_worse_predictor_serves_worse_until_the_prompt_alone_does_better(rush: SimulatedRush) -> None:
    means = [point.ttft_mean_s for point in rush.by_error]
    agreements = [point.agreement for point in rush.by_error]
    assert means[0] == pytest.approx(rush.order(SMALLEST_KNOWN).ttft_mean_s)
    assert agreements[0] == pytest.approx(1.0)
    assert all(now > after for now, after in pairwise(agreements) if now and after)
    assert means[0] < rush.order(SHORTEST_PROMPT).ttft_mean_s < means[-1]


def test_order_matters_only_past_capacity(rush: SimulatedRush) -> None:
    calm = next(point for point in rush.by_load if point.load == 0.7)
    assert calm.fcfs_s - calm.smallest_job_s < 0.05 * (rush.order(FIRST_COME).ttft_mean_s)
    past = next(point for point in rush.by_load if point.load == 2.0)
    assert past.smallest_job_s < 0.75 * past.fcfs_s


def test_feedback_needs_no_lengths_and_pays_by_recomputing(rush: SimulatedRush) -> None:
    feedback, first = rush.order(FEEDBACK), rush.order(FIRST_COME)
    assert feedback.ttft_mean_s < first.ttft_mean_s
    assert feedback.recomputed_tokens > 0
    assert feedback.e2e_mean_s > first.e2e_mean_s


def test_lengths_beyond_the_context_are_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="is 500: must fit max_model_len of 400 tokens with its output"):
        jobs_of_rush(textbook_case().with_limits(max_model_len=400), replace(RUSH, cv2=None))


def test_requests_that_the_engine_never_takes_are_left_out_and_counted() -> None:
    workload = load_workload("mooncake-conversation")
    asked, most = Rush(300, 1.5, None, 0.5, 1.0), 40_960
    case = replace(few_places(), workload=workload, lengths=workload.length_stats()).with_limits(max_model_len=most)
    drawn = case.requests(asked.count, 1.0)
    lengths = drawn.prompt_tokens + drawn.output_tokens
    jobs = jobs_of_rush(case, asked)
    assert jobs.too_long == int((lengths > most).sum()) > 0
    assert len(jobs.requests) + jobs.too_long == asked.count
    assert int((jobs.requests.prompt_tokens + jobs.requests.output_tokens).max()) <= most
    assert jobs.requests.arrival_s.tolist() == drawn.arrival_s[: len(jobs.requests)].tolist()
    found = simulated_rush(case, asked, jobs, lambda _text, _share: None)
    assert all(math.isfinite(run.ttft_worst_s) for run in found.orders)
    note = order_notes(case, asked, jobs, found)[0]
    assert note.startswith(f"{len(jobs.requests)} requests at 1.5 ×")
    assert f" {jobs.too_long} request" in note
    assert note.endswith("left out: too long for max_model_len of 40,960 tokens.")
    assert (default_seqs(case), default_seqs(replace(case, textbook=False))) == (32, 32)
    assert default_seqs(replace(case, textbook=False).with_limits(max_num_seqs=256)) == 256
    assert default_count(replace(case, textbook=False).with_limits(max_num_seqs=256)) == 1024


def test_a_rush_of_equal_jobs_gains_nothing() -> None:
    case = few_places()
    asked = Rush(200, 1.5, None, 0.0, 1.0)
    jobs = jobs_of_rush(case, asked)
    assert rush_waits(jobs.work, 1.5).gain == pytest.approx(1.0, abs=0.02)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_agreement_counts_pairs_in_the_same_and_in_opposite_order(pairs: list[tuple[int, int]]) -> None:
    one, other = ([float(pair[side]) for pair in pairs] for side in (0, 1))
    found = rank_agreement(one, other)
    ways = [(np.sign(a[0] - b[0]), np.sign(a[1] - b[1])) for a, b in combinations(pairs, 2)]
    untied = [sum(way[side] != 0 for way in ways) for side in (0, 1)]
    if found is None:
        assert min(untied) == 0
    else:
        assert found == pytest.approx(sum(a * b for a, b in ways) / math.sqrt(untied[0] * untied[1]))


def test_known_part_by_hand() -> None:
    found = known_part([100.0, 300.0], [500.0, 100.0])
    assert found.prompt_share == pytest.approx(0.4)
    assert found.rank_agreement == pytest.approx(-1.0)
    assert known_part([5.0, 5.0], [1.0, 2.0]).rank_agreement is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: rush_waits([], 1.5),
        lambda: rush_waits([1.0, math.nan], 1.5),
        lambda: rush_waits([0.0], 1.5),
        lambda: rush_waits([1.0], math.inf),
        lambda: rush_waits([1.0], 0.0),
        lambda: known_part([1.0], [1.0, 2.0]),
        lambda: known_part([0.0], [0.0]),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def test_the_queue_to_copy_serves_everyone_once_the_overdue_first_and_forgets_them(
    rush: SimulatedRush, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    code: dict[str, Any] = {}
    exec(order_code(replace(rush, bound_s=10.0)), code)
    for number, prompt in enumerate((900, 10, 500, 20)):
        code["arrive"](SimpleNamespace(id=number, prompt_tokens=prompt, predicted_output_tokens=1))
    first = [code["next_request"]().id for _ in range(2)]
    now[0] = 11.0
    rest = [code["next_request"]().id for _ in range(2)]
    assert (first, rest) == ([1, 3], [0, 2])
    assert code["next_request"]() is None
    assert code["gone"] == set()
