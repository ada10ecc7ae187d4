"""A long prompt, step by step: the run equals the formula, new arrivals wait for it, a threshold lets them in."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.long_prompt_runs import Experiment, SimulatedLongPrompt
from planner.analysis.long_prompt_simulated import (
    by_budget,
    formula,
    simulated_long_prompt,
    threshold_beside,
    usual,
    why_not_simulated,
)
from planner.analysis.steps import Decoders
from planner.cases import textbook_case
from planner.errors import InputError

CASE = textbook_case()
TEXTBOOK = Experiment(100_000, Decoders(64.0, 2048.0), 8192, None, 10.0)


@pytest.fixture(scope="module")
def run() -> SimulatedLongPrompt:
    return simulated_long_prompt(CASE, TEXTBOOK)


def test_the_textbook_experiment_is_where_the_view_starts() -> None:
    assert usual(CASE) == TEXTBOOK


def test_the_run_has_the_published_figures(run: SimulatedLongPrompt) -> None:
    # Textbook question 9: ITL 9.906 ms, 1,097 ms at worst, 13 chunks, 8.65 s until a new arrival can start, 13.94 ms after.
    alone = run.alone
    assert alone.itl_before_s == pytest.approx(9.906e-3, rel=0.01)
    assert alone.itl_worst_s == pytest.approx(1.097, rel=0.01)
    assert len(alone.chunks) == 13
    assert alone.ttft_s == pytest.approx(8.65, rel=0.01)
    assert alone.itl_after_s == pytest.approx(13.94e-3, rel=0.01)


def test_every_step_is_the_formulas(run: SimulatedLongPrompt) -> None:
    for row, step in zip(formula(CASE, TEXTBOOK).steps, run.alone.chunks, strict=True):
        assert (step.chunk_tokens, step.past_tokens) == (row.chunk_tokens, row.past_tokens)
        assert step.duration_s == pytest.approx(row.step_s, rel=1e-3)
        assert step.decode_rows == 64


@settings(max_examples=8, deadline=None)
@given(
    st.integers(2000, 30_000),
    st.integers(1, 48),
    st.sampled_from([512, 2048, 8192]),
    st.sampled_from([None, 256, 1024]),
    st.booleans(),
)
def test_formula_and_run_agree_on_any_prompt(
    prompt: int, decoders: int, budget: int, threshold: int | None, asynchronous: bool
) -> None:
    case = CASE.with_limits(async_scheduling=asynchronous)
    asked = Experiment(prompt, Decoders(float(decoders), 1024.0), budget, threshold, 5.0)
    found, alone = formula(case, asked), simulated_long_prompt(case, asked).alone
    chunks = [step for step in alone.steps if step.chunk_tokens]
    assert [step.chunk_tokens for step in chunks] == [row.chunk_tokens for row in found.steps]
    assert sum(step.chunk_tokens for step in chunks) == prompt
    assert alone.ttft_s == pytest.approx(found.ttft_s, rel=0.02)


def test_nobody_starts_until_the_long_prompt_ends(run: SimulatedLongPrompt) -> None:
    last_chunk_s = run.whole.chunks[-1].start_s
    for step in run.whole.steps:
        if 0.0 <= step.start_s < last_chunk_s:
            assert step.other_prefill_tokens == 0
    for arrival in run.whole.arrivals:  # arrivals of another draw meet a last chunk of another length
        assert arrival.at_s + arrival.ttft_s > 0.99 * last_chunk_s
    assert run.whole.worst_ttft_s == pytest.approx(8.65, rel=0.05)


def test_a_threshold_lets_others_start_for_a_longer_prefill(run: SimulatedLongPrompt) -> None:
    assert run.threshold_tokens == 2032
    whole_s, capped_s = (run.median_ttft_s(each.arrivals) for each in (run.whole, run.capped))
    assert whole_s is not None
    assert capped_s is not None
    assert capped_s < 0.1 * whole_s
    assert run.capped.itl_worst_s < 0.4 * run.whole.itl_worst_s
    assert 1.05 * run.whole.ttft_s < run.capped.ttft_s < 1.3 * run.whole.ttft_s
    assert len(run.capped.arrivals) == len(run.whole.arrivals) == len(run.without)
    assert max(arrival.ttft_s for arrival in run.without) < 0.1


def test_the_asked_threshold_is_the_one_compared() -> None:
    asked = TEXTBOOK._replace(prompt_tokens=20_000, threshold_tokens=1024)
    found = simulated_long_prompt(CASE, asked)
    assert (threshold_beside(asked), found.threshold_tokens) == (1024, 1024)
    assert found.asked is found.capped
    assert max(step.chunk_tokens for step in found.capped.chunks) == 1024


def test_no_lane_does_two_things_at_once(run: SimulatedLongPrompt) -> None:
    for lane in {bar.lane for bar in run.capped.bars}:
        bars = sorted((bar for bar in run.capped.bars if bar.lane == lane), key=lambda bar: bar.from_s)
        assert all(after.from_s >= before.to_s - 1e-9 for before, after in itertools.pairwise(bars))


def test_a_smaller_budget_bounds_the_worst_step() -> None:
    points = by_budget(CASE, TEXTBOOK, (64, 256, 1024, 8192))
    assert [budget for budget, _ in points] == [256, 1024, 8192]
    worst = [found.itl_worst_s for _, found in points]
    ttft = [found.ttft_s for _, found in points]
    assert worst == sorted(worst)
    assert ttft == sorted(ttft, reverse=True)


def test_what_cannot_run_is_said() -> None:
    chunks = TEXTBOOK._replace(budget_tokens=66)
    assert "too many to simulate" in (why_not_simulated(CASE, chunks, formula(CASE, chunks)) or "")
    full = TEXTBOOK._replace(decoders=Decoders(64.0, 6000.0))
    assert "KV cache holds" in (why_not_simulated(CASE, full, formula(CASE, full)) or "")
    assert why_not_simulated(CASE, TEXTBOOK, formula(CASE, TEXTBOOK)) is None
    with pytest.raises(InputError):
        simulated_long_prompt(CASE.with_limits(max_num_seqs=64), TEXTBOOK)
    with pytest.raises(InputError):
        formula(CASE, TEXTBOOK._replace(budget_tokens=64))


@pytest.mark.parametrize("prompt_tokens", [1, 2, 8192 - 32 + 1])
def test_a_chunk_of_one_token_is_a_chunk(prompt_tokens: int) -> None:
    run = simulated_long_prompt(CASE, Experiment(prompt_tokens, Decoders(32.0, 1024.0), 8192, None, 1.0))
    assert sum(step.chunk_tokens for step in run.alone.chunks) == prompt_tokens
    assert run.alone.itl_worst_s > 0.0
    assert run.alone.itl_after_s is not None
