"""Queue and engine: M/M/1 and M/D/1 where they hold, each departure for itself, the utilisation to plan for, bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.queue_departures import (
    STEPS,
    Departure,
    Departures,
    Prompts,
    Step,
    Stream,
    Surroundings,
    TailPoint,
    _Asked,
    _departure,
    departures,
    planned_explanation,
    same_tail,
    shown_points,
    stream_of,
)
from planner.analysis.queue_model import PrefillService, planned_utilisation, prefill_service
from planner.cases import textbook_case
from planner.errors import InputError
from planner.queueing import mg1_sojourn_quantile_s, mg1_wait_s
from planner.workloads import GammaArrivals, PoissonArrivals

CASE = textbook_case()
ALONE = Surroundings(CASE.kv_tokens, PoissonArrivals())


def departure_of(stream: Stream, around: Surroundings, step: Step) -> Departure:
    return _departure(_Asked(CASE, stream, around, 0.5), step, None)[0]


def found_for(cv2: float, around: Surroundings = ALONE, count: int = 12_000, reference: float = 0.5) -> Departures:
    return departures(CASE, stream_of(CASE, Prompts(2048.0, cv2), around, count), around, reference)


@pytest.fixture(scope="module")
def mixed() -> Departures:
    return found_for(2.2)


def queue_alone(cv2: float, count: int) -> tuple[Departure, float]:
    stream = stream_of(CASE, Prompts(2048.0, cv2), ALONE, count)
    return departure_of(stream, ALONE, "queue"), stream.service.mean_s


def test_one_prompt_at_a_time_with_exponential_times_is_mm1() -> None:
    queue, service = queue_alone(1.0, 50_000)
    for point in queue.points:
        if 0.25 <= point.utilisation <= 0.7:
            exact = mg1_sojourn_quantile_s(point.utilisation / service, service, 1.0, 0.99)
            assert point.ttft_p99_s == pytest.approx(exact, rel=0.08)
            assert point.mean_wait_s == pytest.approx(mg1_wait_s(point.utilisation / service, service, 1.0), rel=0.08)
    assert queue.planned == pytest.approx(0.707, abs=0.025)


@pytest.mark.parametrize("kv_tokens", [20_000, 60_000, CASE.kv_tokens])
def test_runs_that_departures_share_are_what_each_would_simulate(kv_tokens: int) -> None:
    around = replace(ALONE, kv_tokens=kv_tokens)
    stream = stream_of(CASE, Prompts(2048.0, 0.5), around, 600)
    for found in departures(CASE, stream, around, 0.5).departures:
        alone = departure_of(stream, around, found.step)
        assert found == replace(alone, peak_kv_share=found.peak_kv_share)
        assert found.peak_kv_share == pytest.approx(alone.peak_kv_share, rel=1e-9)


def test_equal_prompts_wait_half_as_long_as_exponential_ones() -> None:
    queue, service = queue_alone(0.0, 40_000)
    for point in queue.points:
        if 0.25 <= point.utilisation <= 0.8:
            assert point.mean_wait_s == pytest.approx(mg1_wait_s(point.utilisation / service, service, 0.0), rel=0.05)


def test_the_mean_wait_is_right_and_the_tail_too_short_for_mixed_prompts(mixed: Departures) -> None:
    assert mixed.mean_wait_s == pytest.approx(mixed.formula_wait_s, rel=0.15)
    formula = planned_utilisation(1.0, PrefillService(mixed.service.mean_s, 2.2))
    assert formula.general == pytest.approx(0.532, rel=0.01)
    queue = mixed.departures[0].planned
    assert queue is not None
    assert queue < 0.47


def test_departures_come_one_at_a_time_and_cost_utilisation(mixed: Departures) -> None:
    assert tuple(each.step for each in mixed.departures) == STEPS
    planned = [each.planned for each in mixed.departures]
    assert all(value is not None for value in planned)
    queue, batched, decode, admission, last = (float(value or 0.0) for value in planned)
    assert queue > batched > decode >= admission == last
    assert same_tail(mixed.departures[3], mixed.departures[4])
    assert not same_tail(mixed.departures[0], mixed.departures[1])


def test_decode_fills_the_engine_below_the_whole_of_prefill(mixed: Departures) -> None:
    queue, _, decode = mixed.departures[:3]
    assert {point.utilisation: point.keeps_up for point in queue.points}[0.9]
    assert not decode.points[-1].keeps_up


def test_a_small_cache_lowers_the_utilisation_and_preempts() -> None:
    small = found_for(2.2, replace_kv(60_000), count=4000)
    plenty = found_for(2.2, count=4000)
    assert small.departures[3].planned is not None
    assert small.departures[3].planned < 0.9 * float(plenty.departures[3].planned or 0.0)
    assert small.departures[2].planned == plenty.departures[2].planned


def replace_kv(tokens: int) -> Surroundings:
    return Surroundings(tokens, PoissonArrivals())


def test_bursts_cost_utilisation_and_a_cached_prefix_gives_it_back() -> None:
    plain = found_for(0.0, count=4000).whole.planned
    bursty = found_for(0.0, Surroundings(CASE.kv_tokens, GammaArrivals(cv=3.0)), count=4000).whole.planned
    cached = found_for(0.0, Surroundings(CASE.kv_tokens, PoissonArrivals(), 0.6), count=4000).whole.planned
    assert plain is not None
    assert bursty is not None
    assert cached is not None
    assert bursty < 0.9 * plain
    assert cached > 1.2 * plain


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([0.0, 0.5, 1.0, 2.2, 5.0]), st.floats(200.0, 4000.0))
def test_drawn_prompts_take_the_time_that_the_formula_is_told(cv2: float, mean: float) -> None:
    stream = stream_of(CASE, Prompts(mean, cv2), ALONE, 4000)
    drawn = prefill_service(stream.requests.prompt_tokens, CASE.coefficients)
    assert drawn.mean_s == pytest.approx(stream.service.mean_s, rel=0.011)
    assert drawn.cv2 == pytest.approx(stream.service.cv2, rel=0.2, abs=0.02)


def test_own_rows_keep_their_spread() -> None:
    stream = stream_of(CASE, Prompts(500.0), ALONE, 500)
    assert (stream.requests.prompt_tokens == 500).all()
    assert stream.service.cv2 == pytest.approx(0.0, abs=1e-12)
    assert (stream_of(CASE, Prompts(1000.0), ALONE, 500).requests.prompt_tokens == 1000).all()


@settings(max_examples=4, deadline=None)
@given(st.sampled_from([0.0, 1.0, 2.2]), st.integers(0, 100))
def test_the_tail_rises_with_utilisation(cv2: float, seed: int) -> None:
    case = replace(CASE, seed=seed)
    found = departures(case, stream_of(case, Prompts(1024.0, cv2), ALONE, 2000), ALONE, 0.5)
    for departure in found.departures[:2]:
        tails = np.array([point.ttft_p99_s for point in departure.points if point.keeps_up])
        assert (np.diff(tails) >= -0.02 * tails[:-1]).all()


def test_the_rule_to_scale_out_by_is_in_tokens_of_the_prompts_served(mixed: Departures) -> None:
    assert mixed.whole.planned is not None
    stream = stream_of(CASE, Prompts(2048.0, 2.2), ALONE, 12_000)
    assert mixed.prompt_tokens == pytest.approx(stream.requests.prompt_tokens.mean())
    assert mixed.prompt_tokens != pytest.approx(2048.0, rel=0.01), "prefill times have the mean of such a prompt, the prompts don't"
    assert mixed.planned_prompt_tokens_per_s == pytest.approx(mixed.rate_rps(mixed.whole.planned) * mixed.prompt_tokens)


def test_no_load_meets_a_target_below_one_prefill() -> None:
    case = replace(CASE, ttft_p99_s=0.02)
    stream = stream_of(case, Prompts(2048.0, 2.2), ALONE, 1000)
    formula = planned_utilisation(0.02, stream.service)
    found = departures(case, stream, ALONE, 0.5)
    assert found.whole.planned is None
    assert formula.general is None
    assert planned_explanation(found, formula).answer.startswith("No load meets p99 TTFT of 0.02 s")
    assert "none does by the queue's formula" in planned_explanation(found, formula).answer
    assert planned_explanation(found, formula).setting.startswith("Shorten the prompts")


def test_time_outside_the_engine_is_part_of_ttft() -> None:
    service = PrefillService(0.1, 1.0)
    assert planned_utilisation(1.0, service, outside_s=0.2).general == planned_utilisation(0.8, service).general
    assert planned_utilisation(1.0, service, outside_s=1.0).general is None


def test_progress_names_what_is_done() -> None:
    told: list[float] = []
    stream = stream_of(CASE, Prompts(500.0), ALONE, 200)
    departures(CASE, stream, ALONE, 0.5, lambda _text, share: told.append(share))
    assert (told[0], told[-1], len(told)) == (0.0, 1.0, 6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: stream_of(CASE, Prompts(math.nan), ALONE, 10),
        lambda: stream_of(CASE, Prompts(0.0), ALONE, 10),
        lambda: stream_of(CASE, Prompts(500.0), Surroundings(1000, PoissonArrivals(), 1.0), 10),
        lambda: departures(CASE, stream_of(CASE, Prompts(500.0), ALONE, 10), ALONE, 0.0),
        lambda: departures(replace(CASE, ttft_p99_s=None), stream_of(CASE, Prompts(500.0), ALONE, 10), ALONE, 0.5),
        lambda: planned_utilisation(math.inf, PrefillService(0.1, 1.0)),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def test_where_the_engine_takes_no_request_there_is_no_tail_and_no_load_to_plan_for() -> None:
    stream = stream_of(CASE, Prompts(2048.0), ALONE, 200)
    found = departure_of(stream, Surroundings(512, PoissonArrivals()), "KV admission")
    assert found.rejected == 200
    assert (found.planned, found.at_reference_s) == (None, None)
    assert all((point.ttft_p99_s, point.mean_wait_s, point.keeps_up) == (None, None, False) for point in found.points)
    assert shown_points([TailPoint(0.5, None, None, keeps_up=True), TailPoint(0.6, 1.0, 0.1, keeps_up=True)], 2.0) == [(0.6, 1.0)]
