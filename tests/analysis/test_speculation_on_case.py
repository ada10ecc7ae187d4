"""Speculation on a case: closed forms, laws, the simulated engine beside them, and where drafts lose."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.speculation import Draft, expected_tokens, speculation, speedup
from planner.analysis.speculation_case import DRAFTERS, Speculating, busy_batch, load_of, rule_of, speculation_on
from planner.analysis.speculation_map import (
    Load,
    best_drafts,
    captured_sequences,
    decode_speedup,
    draft_costs,
    dynamic_ranges,
    launch_cliff,
    losing_batch,
    shared_decode,
    shared_speedup,
    speedup_map,
    tokens_a_step,
    with_drafts,
)
from planner.analysis.speculation_simulated import _requests, most_context_tokens, refilled, simulated_speculation
from planner.cases import textbook_case
from planner.errors import InputError
from planner.simulator.speculative import DraftRule
from planner.workloads import Lognormal, LognormalLengths

FEW = settings(max_examples=40, deadline=None)
CONTEXT = 512.0
FREE = DraftRule((0.7,) * 4)


@pytest.fixture(scope="module")
def case() -> Case:
    return textbook_case()


@FEW
@given(st.integers(0, 8), st.floats(0.0, 1.0))
def test_one_acceptance_gives_leviathans_tokens(drafts: int, acceptance: float) -> None:
    assert tokens_a_step((acceptance,) * drafts) == pytest.approx(expected_tokens(drafts, acceptance))


@FEW
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_a_step_yields_one_to_k_plus_one_tokens_and_more_drafts_never_fewer(acceptance: list[float]) -> None:
    yields = [tokens_a_step(acceptance[:k]) for k in range(len(acceptance) + 1)]
    assert yields == sorted(yields)
    assert 1.0 <= yields[-1] <= 1.0 + len(acceptance) + 1e-12


@FEW
@given(st.integers(1, 512), st.integers(1, 6), st.floats(0.0, 1.0))
def test_free_drafts_speed_up_as_the_textbook_formula_says(n: int, drafts: int, acceptance: float) -> None:
    c = textbook_case().coefficients
    mine = decode_speedup(float(n), CONTEXT, DraftRule((acceptance,) * drafts), c)
    assert mine == pytest.approx(float(speedup(float(n), CONTEXT, Draft(drafts, acceptance), c)))


def test_the_textbooks_break_even(case: Case) -> None:
    found = speculation_on(case, Speculating("ngram", (0.7,) * 4, 64, CONTEXT))
    assert found.losing == 105 == speculation(CONTEXT, Draft(4, 0.7), case.coefficients).losing_batch
    assert found.tokens == pytest.approx(2.7731, abs=1e-4)
    assert found.at_one == pytest.approx(2.7731, abs=1e-3)
    assert "105" in found.explanation.answer


def test_drafts_lose_past_their_break_even_by_formula_and_simulated(case: Case) -> None:
    """Steps of their own for prefill: at half the break-even batch drafts gain, at twice they lose."""
    losing = losing_batch(CONTEXT, FREE, case.coefficients)
    assert losing is not None
    gains, loses = (simulated_speculation(case, (CONTEXT, batch), FREE).asked for batch in (losing // 2, 2 * losing))
    assert gains.speedup > 1.1
    assert loses.speedup < 1.0
    assert decode_speedup(losing - 1.0, CONTEXT, FREE, case.coefficients) >= 1.0
    assert decode_speedup(2.0 * losing, CONTEXT, FREE, case.coefficients) < 1.0


def mixed(case: Case) -> Case:
    """Return the textbook's engine under requests of many lengths, which don't end together."""
    prompt = Lognormal(p50_tokens=270.0, p95_tokens=520.0, cap_tokens=2048)
    lengths = LognormalLengths(prompt=prompt, output=Lognormal(p50_tokens=100.0, p95_tokens=315.0, cap_tokens=2048))
    workload = case.workload.model_copy(update={"lengths": lengths})
    return replace(case, workload=workload, lengths=workload.length_stats())


@pytest.mark.parametrize("method", list(DRAFTERS))
def test_formula_and_simulation_agree_where_prompts_start_at_random(case: Case, method: str) -> None:
    varied = mixed(case)
    rule = rule_of(varied, Speculating(method, (0.7,) * 4, 32, 500.0))  # type: ignore[arg-type]
    found = simulated_speculation(varied, (varied.context_tokens, 32), rule)
    assert found.tokens_a_row == pytest.approx(tokens_a_step(rule.acceptance), rel=0.01)
    for each in found.by_batch:
        assert each.speedup == pytest.approx(each.formula, rel=0.09), each


def test_where_prompts_set_the_pace_fewer_decode_and_the_simulation_says_so_too(case: Case) -> None:
    """A small budget: decoders = budget / (1 + K + E · prompt / output)."""
    small = mixed(case).with_limits(max_num_batched_tokens=128)
    context = small.context_tokens
    load = Load(context, float(small.lengths.prompt_mean_tokens), float(small.lengths.output_mean_tokens), 128)
    shared = shared_decode(64.0, load, FREE, small.coefficients)
    expected = 128.0 / (5.0 + tokens_a_step(FREE.acceptance) * load.prompt_tokens / load.output_tokens)
    assert shared.decoding == pytest.approx(expected)
    assert shared.prefill_tokens == pytest.approx(shared.room_tokens)
    found = simulated_speculation(small, (context, 64), FREE)
    assert found.asked.running == pytest.approx(expected + 1.0, rel=0.12)
    assert found.most_scheduled_tokens <= found.budget_tokens == 128


def test_dynamic_k_is_no_slower_than_a_fixed_one_past_the_break_even(case: Case) -> None:
    rule = replace(FREE, ranges=dynamic_ranges(CONTEXT, FREE, case.coefficients, 1024))
    found = simulated_speculation(case, (CONTEXT, 160), rule)
    assert found.dynamic is not None
    assert found.dynamic.speedup > found.asked.speedup


def test_without_prefill_shared_decode_is_decode_alone(case: Case) -> None:
    """Endless outputs: prompts are so rare that the steps are decode's own."""
    load = Load(CONTEXT, 500.0, 1e9, 8192)
    for batch in (1.0, 64.0, 256.0):
        alone = decode_speedup(batch, CONTEXT, FREE, case.coefficients)
        assert shared_speedup(batch, load, FREE, case.coefficients) == pytest.approx(alone, rel=1e-3)


@FEW
@given(st.integers(1, 400), st.floats(1.0, 5000.0), st.floats(1.0, 2000.0), st.integers(512, 16384), st.integers(0, 6))
def test_shared_steps_fit_the_budget(n: int, prompt: float, output: float, budget: int, drafts: int) -> None:
    c = textbook_case().coefficients
    rule = with_drafts(DraftRule((0.7,) * 6), drafts)
    found = shared_decode(float(n), Load(prompt + output / 2.0, prompt, output, budget), rule, c)
    assert 0.0 < found.decoding <= n
    assert found.decoding * (1 + drafts) + found.prefill_tokens <= budget * (1.0 + 1e-9)
    assert found.tokens_per_s > 0.0
    assert found.prefill_tokens / prompt == pytest.approx(found.decoding * tokens_a_step(rule.acceptance) / output)


@FEW
@given(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=5), st.integers(1, 600), st.sampled_from([None, 1 / 32, 1 / 4]))
def test_ranges_hold_the_best_k_of_every_batch(acceptance: list[float], n: int, share: float | None) -> None:
    c = textbook_case().coefficients
    draft = None if share is None else draft_costs(c, share, 1.0)
    rule = DraftRule(tuple(acceptance), draft=draft)
    ranges = dynamic_ranges(CONTEXT, rule, c, 600)
    assert ranges[0][0] == 1
    assert ranges[-1][1] == 600
    assert all(first[1] + 1 == second[0] for first, second in pairwise(ranges))
    inside = next(drafts for low, high, drafts in ranges if low <= n <= high)
    fastest = max(decode_speedup(float(n), CONTEXT, with_drafts(rule, k), c) for k in range(len(acceptance) + 1))
    assert decode_speedup(float(n), CONTEXT, with_drafts(rule, inside), c) == pytest.approx(fastest, rel=0.01)
    assert fastest >= 1.0 - 1e-12


def test_a_dear_drafter_gains_less_and_loses_earlier(case: Case) -> None:
    c = case.coefficients
    head, model = (DraftRule((0.7,) * 4, draft=draft_costs(c, share, share)) for share in (1 / 32, 1 / 4))
    gains = [decode_speedup(8.0, CONTEXT, rule, c) for rule in (FREE, head, model)]
    assert gains == sorted(gains, reverse=True)
    losing = [losing_batch(CONTEXT, rule, c) or 10_000 for rule in (FREE, head, model)]
    assert losing == sorted(losing, reverse=True)
    assert best_drafts(512.0, CONTEXT, model, c) == 0


def test_a_draft_of_the_targets_own_size_costs_its_steps(case: Case) -> None:
    """K + 1 full passes for at most K + 1 tokens: nothing is gained even when all are accepted."""
    twin = DraftRule((1.0,) * 3, draft=draft_costs(case.coefficients, 1.0, 1.0))
    assert decode_speedup(1.0, CONTEXT, twin, case.coefficients) <= 1.0 + 1e-9


def test_the_map_holds_the_speedups_of_its_cells(case: Case) -> None:
    cells = speedup_map(CONTEXT, FREE, case.coefficients, (1, 64), (0.9, 0.5))
    assert [(cell.batch, cell.acceptance) for cell in cells] == [(1, 0.9), (64, 0.9), (1, 0.5), (64, 0.5)]
    half = DraftRule((0.5,) * 4)
    assert cells[3].speedup == pytest.approx(decode_speedup(64.0, CONTEXT, half, case.coefficients))
    assert cells[3].best_drafts == best_drafts(64.0, CONTEXT, half, case.coefficients)


def test_graphs_end_at_fewer_sequences_with_drafts(case: Case) -> None:
    """512 tokens are captured: 512 sequences that decode, 128 that verify three drafts (vLLM, config/vllm.py)."""
    assert captured_sequences(512, 256, 0, 8192) == 512
    assert captured_sequences(512, 256, 3, 8192) == 128
    assert captured_sequences(512, 1, 3, 8192) == 2
    hidden, paces = (launch_cliff(102, CONTEXT, FREE, case.coefficients, launch_s) for launch_s in (1e-3, 1.0))
    assert hidden.eager_s == hidden.graph_s > 1e-3
    assert paces.eager_s == 1.0


def test_the_engine_full_of_equal_requests_brings_tokens_at_a_known_rate() -> None:
    """Two at a time, each ten tokens in ten seconds: two tokens a second, two running."""
    first = np.array([0.0, 0.0, 10.0, 10.0, 20.0, 20.0])
    tokens_per_s, running = refilled(first, first + 1.0, first + 10.0, np.full(6, 10.0))
    assert tokens_per_s == pytest.approx(2.0)
    assert running == pytest.approx(2.0)


def test_the_case_says_how_many_are_busy(case: Case) -> None:
    assert busy_batch(case) == 12
    assert busy_batch(case.with_limits(max_num_seqs=4)) == 4


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("draft_tokens", Speculating("ngram", (), 8, 512.0)),
        ("batch", Speculating("ngram", (0.5,), 0, 512.0)),
        ("acceptance", Speculating("ngram", (1.5,), 8, 512.0)),
    ],
)
def test_bad_questions_are_refused(case: Case, field: str, asked: Speculating) -> None:
    with pytest.raises(InputError) as caught:
        speculation_on(case, asked)
    assert caught.value.field == field


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_draft_model_is_a_share_of_its_target(case: Case, share: float) -> None:
    with pytest.raises(InputError):
        draft_costs(case.coefficients, share, 1.0)


def test_the_budget_bounds_the_sequences_that_can_be_verified(case: Case) -> None:
    found = speculation_on(case.with_limits(max_num_batched_tokens=1024), Speculating("ngram", (0.7,) * 3, 64, CONTEXT))
    assert found.budget_sequences == 256
    assert found.launch.sequences == 128


@pytest.mark.parametrize("drafts", [1, 8])
def test_the_longest_context_is_served_and_no_longer_one(case: Case, drafts: int) -> None:
    rule = DraftRule((0.7,) * drafts, lookahead_tokens=drafts)
    longest = float(int(most_context_tokens(case, drafts)))
    assert len(_requests(case, load_of(case, longest), rule, 3)) == 3
    with pytest.raises(InputError, match=r"context_tokens is .* KV cache has 411,520 tokens"):
        simulated_speculation(case, (longest + 64.0, 2), rule)


def test_requests_that_the_cache_never_holds_are_counted(case: Case) -> None:
    varied = mixed(case)
    tight = replace(varied, limits=varied.limits._replace(num_blocks=700 // varied.limits.block_size))
    load = load_of(tight, varied.context_tokens)
    asked = simulated_speculation(tight, (varied.context_tokens, 8), FREE).asked
    assert 0 < asked.left_out < asked.requests
    assert asked.requests == len(_requests(tight, load, FREE, asked.requests + asked.left_out))
    assert simulated_speculation(varied, (varied.context_tokens, 8), FREE).asked.left_out == 0


def test_a_context_past_max_model_len_is_refused(case: Case) -> None:
    short = replace(case, limits=case.limits._replace(max_model_len=2048))
    assert most_context_tokens(short, 4) == pytest.approx(2047.0 + case.lengths.output_mean_tokens / 2.0)
    with pytest.raises(InputError, match="max_model_len is 2,048"):
        simulated_speculation(short, (3000.0, 2), FREE)
