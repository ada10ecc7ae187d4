"""Where a token budget lies: the cap and floors against the engine itself, the simulated frontier, and why knees move."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.served import with_knobs
from planner.analysis.steps import Chunk, Decoders, filled_step_s, mixed_step_s
from planner.analysis.token_budget import (
    Beside,
    bounds_explanation,
    budget_bounds,
    frontier,
    frontier_budgets,
    frontier_explanation,
    knee_parts,
    load_floor_tokens,
    paper_knee_tokens,
    prompt_ttft_s,
    ttft_floor_tokens,
    usual_decoders,
    why_elsewhere,
)
from planner.cases import textbook_case
from planner.errors import InputError
from planner.simulator import RequestTable, simulate

CASE = textbook_case()
LOAD = Beside(Decoders(64.0, 2048.0), 4096.0, 2.0, 1.0, 0.030)
ALONE = Decoders(0.0, 0.0)


def test_textbook_knees_and_cap() -> None:
    bounds = budget_bounds(CASE, LOAD)
    assert bounds.knee.linear_tokens == pytest.approx(144.6, rel=0.01)
    assert bounds.knee.with_decoders_tokens == 323
    assert bounds.knee.paper_tokens == pytest.approx(295.2, rel=0.01)
    assert bounds.cap == 64 + 694  # the chunk of the admission question, mid-prompt at 2,048 tokens
    assert usual_decoders(CASE) == Decoders(64.0, 2048.0)


@pytest.mark.parametrize("budget", [64, 145, 1000, 4096, 9000])
def test_a_prompt_alone_takes_the_engines_own_time(budget: int) -> None:
    table = RequestTable(np.zeros(1), np.array([4096]), np.array([1]))
    limits = CASE.limits._replace(max_num_seqs=1, max_num_batched_tokens=budget)
    result = simulate(table, limits, CASE.coefficients)
    assert prompt_ttft_s(budget, LOAD._replace(decoders=ALONE), CASE.coefficients) == pytest.approx(
        result.first_token_s[0], rel=1e-9
    )


@settings(max_examples=25, deadline=None)
@given(st.floats(1.0, 200.0), st.floats(16.0, 8000.0), st.floats(32.0, 8000.0), st.floats(0.05, 5.0), st.floats(0.012, 0.2))
def test_bounds_are_the_last_and_first_budgets_that_hold(
    decoders: float, context: float, prompt: float, ttft_s: float, tpot_s: float
) -> None:
    load = Beside(Decoders(float(int(decoders)), context), prompt, 1.0, ttft_s, tpot_s)
    bounds = budget_bounds(CASE, load)
    rows = int(load.decoders.sequences)
    if bounds.cap:
        past = prompt / 2.0
        assert mixed_step_s(load.decoders, Chunk(float(bounds.cap - rows), past), CASE.coefficients) <= tpot_s
        assert mixed_step_s(load.decoders, Chunk(float(bounds.cap - rows + 1), past), CASE.coefficients) > tpot_s
    floor = ttft_floor_tokens(load, CASE.coefficients)
    if floor is not None:
        found = prompt_ttft_s(floor, load, CASE.coefficients)
        assert found is not None
        assert found <= ttft_s
        below = prompt_ttft_s(floor - 1, load, CASE.coefficients)
        assert below is None or below > ttft_s


def test_the_load_floor_parts_a_queue_that_drains_from_one_that_grows() -> None:
    prompts = Beside(ALONE, 1000.0, 15.0, 1.0, 0.030)
    floor = load_floor_tokens(prompts, CASE.coefficients)
    assert floor is not None
    requests = RequestTable(np.arange(1500) / 15.0, np.full(1500, 1000), np.ones(1500, np.int64))

    def waits(budget: int) -> float:
        result = simulate(requests, CASE.limits._replace(max_num_batched_tokens=budget, max_num_seqs=8), CASE.coefficients)
        return float((result.first_token_s - result.arrival_s)[-100:].mean())

    assert waits(int(1.2 * floor)) < 0.5
    assert waits(int(0.8 * floor)) > 5.0
    assert load_floor_tokens(prompts._replace(rate_rps=1e3), CASE.coefficients) is None


def test_frontier_trades_ttft_for_tpot_and_names_the_most_room() -> None:
    load = Beside(Decoders(40.0, 625.0), 500.0, 24.0, 1.0, 0.030)
    bounds = budget_bounds(CASE, load)
    found = frontier(CASE, load, (128, 256, 512, 2048, 8192), 2500)
    first, last = found.points[0], found.points[-1]
    assert first.run.ttft_p99_s > last.run.ttft_p99_s
    assert first.run.tpot_p99_s < last.run.tpot_p99_s
    assert found.best is not None
    smallest = min(point.miss for point in found.points)
    near = [point for point in found.points if point.miss <= smallest + 0.05]
    assert found.best in near
    assert found.best.run.ttft_p99_s == min(point.run.ttft_p99_s for point in near)
    said = frontier_explanation(found, load)
    assert said is not None
    assert found.best is not None
    assert f"{found.best.budget:,} leaves the most room" in said.answer
    assert {256, 512, 2048, 8192} <= set(frontier_budgets(CASE, bounds))
    assert bounds.cap in frontier_budgets(CASE, bounds)
    hard = load._replace(tpot_s=1e-3)
    said = frontier_explanation(frontier(CASE, hard, (256, 512), 300), hard)
    assert said is not None
    assert said.answer.startswith("No simulated budget holds both targets")


def test_targets_that_exclude_each_other_are_said() -> None:
    assert "allows" in bounds_explanation(budget_bounds(CASE, LOAD), LOAD).answer
    slow = LOAD._replace(tpot_s=0.009)
    assert "decoders alone take 9.91 ms" in bounds_explanation(budget_bounds(CASE, slow), slow).answer
    endless = LOAD._replace(prompt_tokens=1e6)
    assert "no chunk of such a prompt fits within 30 ms" in bounds_explanation(budget_bounds(CASE, endless), endless).answer
    one = slow._replace(decoders=slow.decoders._replace(sequences=1.0), tpot_s=1e-4)
    assert "1 decoder alone takes" in bounds_explanation(budget_bounds(CASE, one), one).answer
    late = LOAD._replace(ttft_s=0.02)
    assert bounds_explanation(budget_bounds(CASE, late), late).answer.startswith("No budget holds the TTFT target")
    both = LOAD._replace(ttft_s=0.2, tpot_s=0.012)
    assert bounds_explanation(budget_bounds(CASE, both), both).answer.startswith("No budget holds both targets")


def test_why_the_measured_knee_is_elsewhere_carries_the_engines_own_parts() -> None:
    bounds = budget_bounds(CASE, LOAD)
    parts = knee_parts(CASE, LOAD.decoders, bounds.knee.linear_tokens)
    assert parts.ramp_s == 0.0  # the textbook's maximum is hard
    assert parts.bound_s + parts.ramp_s + parts.attention_s + parts.fixed_s == pytest.approx(parts.total_s)
    soft = replace(CASE, coefficients=CASE.coefficients._replace(inverse_p=0.5, host_s=2e-3))
    smooth = knee_parts(soft, LOAD.decoders, bounds.knee.linear_tokens)
    assert smooth.ramp_s / smooth.bound_s == pytest.approx(2**0.5 - 1.0, abs=0.01)
    text = why_elsewhere(bounds, smooth, 512)
    assert "41\xa0% more because efficiency ramps up" in text
    assert "host 2 ms" in text
    hard = why_elsewhere(bounds, parts, 512)
    assert "ramps up" not in hard
    assert "host" not in hard
    assert "512" in text


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"prompt_tokens": 0.0}, "prompt_tokens"), ({"rate_rps": float("nan")}, "rate_rps"), ({"ttft_s": -1.0}, "ttft_s")],
)
def test_bad_loads_are_refused(changed: dict[str, float], field: str) -> None:
    with pytest.raises(InputError) as fault:
        budget_bounds(CASE, LOAD._replace(**changed))
    assert fault.value.field == field


def test_a_larger_budget_leaves_less_kv_cache_where_memory_is_counted() -> None:
    case: Case = replace(CASE, textbook=False, limits=CASE.limits._replace(max_model_len=16_384))
    small, large = with_knobs(case, 128, 512), with_knobs(case, 128, 16_384)
    assert small is not None
    assert large is not None
    assert small.limits.num_blocks > large.limits.num_blocks
    same = with_knobs(case, case.limits.max_num_seqs, case.limits.max_num_batched_tokens)
    assert same is not None
    assert same.limits.num_blocks == case.limits.num_blocks
    lowered = with_knobs(CASE, 1024, 256)
    assert lowered is not None
    assert lowered.limits.max_num_seqs == 256
    assert lowered.limits.num_blocks == CASE.limits.num_blocks
    assert paper_knee_tokens(CASE) is not None


def test_a_filled_step_is_the_mean_over_a_prompts_chunks_and_grows_with_whole_prompts() -> None:
    c, decoders = CASE.coefficients, Decoders(64.0, 2048.0)
    chunks = [mixed_step_s(decoders, Chunk(512.0, 512.0 * index), c) for index in range(8)]
    assert filled_step_s(decoders, 512.0, 4096.0, c) == pytest.approx(np.mean(chunks), rel=0.01)
    whole = filled_step_s(decoders, 8192.0, 512.0, c)
    assert whole < mixed_step_s(decoders, Chunk(8192.0), c)
    table = RequestTable(np.zeros(16), np.full(16, 512), np.ones(16, np.int64))
    result = simulate(table, CASE.limits._replace(max_num_batched_tokens=8192), c)
    assert filled_step_s(ALONE, 8192.0, 512.0, c) == pytest.approx(result.totals.makespan_s, rel=1e-6)
