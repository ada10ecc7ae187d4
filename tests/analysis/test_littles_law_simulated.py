"""How many are in flight: the law in every run, the fixed point where its assumptions hold, swings, longer outputs."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.littles_law import Stream
from planner.analysis.littles_law_simulated import (
    count_over_time,
    flight_explanation,
    flight_of,
    flight_run,
    longer_outputs,
    longest_means,
    most_in_flight,
    simulated_flight,
    stream_requests,
    with_prefills,
)
from planner.analysis.served import stretched
from planner.cases import textbook_case
from planner.errors import InputError
from planner.workloads import load_workload
from planner.workloads.laws import MAX_TOKENS

CASE = textbook_case()
TEXTBOOK = Stream(10.0, 500.0, 250.0)
BARE = Stream(10.0, 1.0, 250.0)  # prompts of one token: no prefill slows anyone


def fixed(case: Case, stream: Stream) -> Any:
    return flight_of(case, stream)


@settings(max_examples=12, deadline=None)
@given(st.floats(0.5, 20.0), st.floats(50.0, 2000.0), st.floats(2.0, 400.0), st.integers(0, 1000))
def test_the_law_holds_in_every_run_to_one_per_cent(rate: float, prompt: float, output: float, seed: int) -> None:
    run = flight_run(CASE, stream_requests(CASE, Stream(rate, prompt, output), 1500, seed))
    assert run.law == pytest.approx(run.in_flight, rel=0.01)


def test_formula_and_simulation_agree_where_prefill_slows_no_one() -> None:
    found, run = fixed(CASE, BARE), simulated_flight(CASE, BARE, 8000, 4, ())
    assert run.in_flight.value == pytest.approx(found.in_flight, rel=0.02)
    assert run.duration_s.value == pytest.approx(found.duration_s, rel=0.01)
    assert abs(run.most - most_in_flight(found.in_flight)) <= 2.0
    assert run.dispersion == pytest.approx(1.0, abs=0.15)


def test_prefills_of_others_add_to_the_number_and_to_its_swings() -> None:
    found, run = fixed(CASE, TEXTBOOK), simulated_flight(CASE, TEXTBOOK, 8000, 4, ())
    assert found.in_flight == pytest.approx(12.49, rel=0.01)
    assert run.in_flight.value > 1.08 * found.in_flight
    assert run.kv_bytes / run.in_flight.value == pytest.approx(found.kv_bytes / found.in_flight, rel=0.02)  # whole blocks take more
    assert run.in_flight.value == pytest.approx(with_prefills(CASE, TEXTBOOK), rel=0.04)
    assert run.dispersion > 1.15
    assert run.most > most_in_flight(found.in_flight)


def test_twice_the_output_more_than_doubles_the_number() -> None:
    found = fixed(CASE, TEXTBOOK)
    longer = longer_outputs(CASE, TEXTBOOK, found)
    assert longer.growth == pytest.approx(2.19, abs=0.02)
    run = simulated_flight(CASE, TEXTBOOK, 4000, 1, (2.0,))
    assert run.by_output[1][1].in_flight > 2.0 * run.by_output[0][1].in_flight
    said = flight_explanation(CASE, found, longer, run).answer
    assert said.startswith(f"{run.in_flight.value:.2f} requests are in flight and hold 1.1")
    assert "(12.49 and 1.02 GB if prefills slowed no one)" in said
    assert f"{run.by_output[1][1].in_flight / run.by_output[0][1].in_flight:.2g} times as many" in said


def test_past_the_end_of_the_steady_state_the_queue_grows() -> None:
    longer = longer_outputs(CASE, TEXTBOOK, fixed(CASE, TEXTBOOK))
    assert longer.ends_tokens is not None
    assert fixed(CASE, TEXTBOOK._replace(output_tokens=longer.ends_tokens * 0.99)).exists
    assert not fixed(CASE, TEXTBOOK._replace(output_tokens=longer.ends_tokens * 1.01)).exists
    beyond = simulated_flight(CASE, TEXTBOOK, 3000, 1, (1.3 * longer.ends_tokens / 250.0,))
    assert beyond.stable
    assert not beyond.by_output[-1][1].stable


def test_a_small_cache_holds_only_short_outputs() -> None:
    small = CASE.with_limits(num_blocks=1500)
    longer = longer_outputs(small, TEXTBOOK, fixed(small, TEXTBOOK))
    assert longer.holds_tokens is not None
    assert longer.ends_tokens is not None
    assert longer.holds_tokens < longer.ends_tokens
    held = fixed(small, TEXTBOOK._replace(output_tokens=longer.holds_tokens * 1.01))
    assert held.fits is False


def test_the_answer_says_what_the_limits_make_of_it() -> None:
    found = fixed(CASE, TEXTBOOK)
    longer = longer_outputs(CASE, TEXTBOOK, found)
    assert flight_explanation(CASE, found, longer).answer.startswith("12.49 requests are in flight and hold 1.02 GB")
    few = CASE.with_limits(max_num_seqs=8)
    assert "max_num_seqs lets 8 of them run" in flight_explanation(few, found, longer).answer
    assert "too few" in flight_explanation(few, found, longer).setting
    fast = Stream(1e4, 500.0, 250.0)
    none = fixed(CASE, fast)
    assert "no steady state" in flight_explanation(CASE, none, longer_outputs(CASE, fast, none)).answer
    assert with_prefills(CASE, fast) is None


def test_the_count_by_hand() -> None:
    # Two at a time from 0 to 2 s, one from 2 to 4 s; the first tenth of the arrivals is one request, at 0.
    result: Any = SimpleNamespace(arrival_s=np.array([0.0, 0.0, 2.0, 4.0]), finish_s=np.array([2.0, 2.0, 4.0, 5.0]))
    count = count_over_time(result)
    assert (count.mean, count.variance, count.most) == (pytest.approx(1.5), pytest.approx(0.25), 2)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_stretched_lengths_have_the_means_and_no_empty_request(prompt: float, output: float) -> None:
    drawn = CASE.requests(50)
    found = stretched(drawn, prompt, output)
    assert stretched(drawn, 1.0004, 0.9996) is drawn
    assert found.prompt_tokens.mean() == pytest.approx(drawn.prompt_tokens.mean() * prompt, abs=0.51)
    assert found.output_tokens.mean() == pytest.approx(drawn.output_tokens.mean() * output, abs=0.51)
    assert found.prompt_tokens.min() >= 1
    assert (found.arrival_s == drawn.arrival_s).all()


def test_a_request_that_never_fits_is_counted() -> None:
    tiny = CASE.with_limits(num_blocks=10)
    run = flight_run(tiny, stream_requests(tiny, TEXTBOOK, 100, 1))
    assert run.rejected == 100
    assert run.in_flight == 0.0
    assert not math.isnan(run.law)


def test_other_seeds_give_other_runs_and_the_same_seed_the_same() -> None:
    one, same, other = (stream_requests(replace(CASE, seed=7), TEXTBOOK, 50, seed) for seed in (1, 1, 2))
    assert (one.arrival_s == same.arrival_s).all()
    assert not (one.arrival_s == other.arrival_s).all()


def test_the_answer_follows_the_run_where_prefills_alone_exceed_the_gpu() -> None:
    # 10 prompts a second of 20,000 tokens: the formula, whose prefills slow no one else, still finds a number in flight.
    flood = Stream(10.0, 20_000.0, 10.0)
    found = fixed(CASE, flood)
    assert found.exists
    run = simulated_flight(CASE, flood, 400, 2, (0.5,))
    assert not run.stable
    said = flight_explanation(CASE, found, longer_outputs(CASE, flood, found), run)
    assert said.answer.startswith("The queue grows without end: this replica doesn't serve 10 requests a second")
    assert "Lower the rate" in said.setting


def test_uneven_lengths_hold_the_keys_and_values_that_are_simulated() -> None:
    recorded = load_workload("lmsys-chat")
    case = replace(CASE, workload=recorded, lengths=recorded.length_stats(), rate_rps=3.0)
    run, found = simulated_flight(case, case.stream, 6000, 2, ()), fixed(case, case.stream)
    each, equal = run.kv_bytes / run.in_flight.value, fixed(case, case.stream._replace(prompt_weight=1.0, output_weight=1.0))
    assert found.kv_bytes / found.in_flight == pytest.approx(each, rel=0.03)
    assert equal.kv_bytes / equal.in_flight < 0.8 * each
    assert found.kv_share == pytest.approx(found.kv_bytes / (case.kv_tokens * case.kv_bytes_per_token))


def test_the_longest_mean_is_the_longest_that_can_be_drawn() -> None:
    prompt, output = longest_means(CASE, 500)
    drawn = stream_requests(CASE, Stream(1.0, prompt, output), 500, CASE.seed)
    assert int(drawn.prompt_tokens.max()) == int(drawn.output_tokens.max()) == MAX_TOKENS
    with pytest.raises(InputError, match=r"Output tokens, mean is .* must be at most"):
        stream_requests(CASE, Stream(1.0, prompt, output * 1.01), 500, CASE.seed)
    with pytest.raises(InputError, match="Prompt tokens, mean"):
        stream_requests(CASE, Stream(1.0, prompt * 1.01, output), 500, CASE.seed)
