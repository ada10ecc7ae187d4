"""Preemption, head of line, sharing, fairness, long prompts, knobs, admission: closed forms, laws, claims in words, bad input."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.admission import admission_limit, admit, largest_chunk
from planner.analysis.class_sharing import batch_share
from planner.analysis.fairness import Request, jain_index, request_fair_shares, token_weights
from planner.analysis.head_of_line import burst_waits, head_of_line
from planner.analysis.knobs import MemorySplit, ceilings, kv_tokens_of
from planner.analysis.long_prompt import long_prompt
from planner.analysis.preemption import Copies, copy_bytes_per_s, recompute_s, swap_or_recompute
from planner.analysis.queue_model import PrefillService, planned_utilisation, prefill_service, tail_curve
from planner.analysis.steps import Chunk, Decoders, decode_step_s, mixed_step_s, prefill_s, window_pairs
from planner.errors import InputError
from tests.analysis.round_engine import C

DECODERS = Decoders(50.0, 1000.0)  # 6.3 ms a step


def test_prefill_by_hand_and_with_a_cached_part() -> None:
    # 1,000 tokens: 20 ms + 500,000 pairs (0.5 ms) + head 0.3 ms.
    assert prefill_s(1000.0, C) == pytest.approx(20.8e-3)
    # Cached half: 500 tokens, 500·(500 + 250) pairs.
    assert prefill_s(1000.0, C, cached_tokens=500.0) == pytest.approx(10e-3 + 0.375e-3 + 0.3e-3)


def test_window_pairs_join_the_causal_ones() -> None:
    assert window_pairs(0.0, 10.0, 1e9) == 50.0
    assert window_pairs(0.0, 10.0, 4.0) == 8.0 + 24.0
    assert window_pairs(100.0, 10.0, 4.0) == 40.0


def test_chunks_of_a_prompt_add_up() -> None:
    none = Decoders(0.0, 0.0)
    first, second = Chunk(600.0), Chunk(400.0, 600.0, ends_prompt=True)
    assert mixed_step_s(none, first, C) + mixed_step_s(none, second, C) == pytest.approx(prefill_s(1000.0, C))


def test_recompute_against_copying() -> None:
    found = swap_or_recompute(1000.0, 100e3, Copies(50e9), C)
    assert found.transfer_s_per_token == pytest.approx(2e-6)
    assert (found.one_way, found.round_trip) == (pytest.approx(10.0), pytest.approx(5.0))
    assert found.break_even_bytes_per_s == pytest.approx(5e9)
    assert found.recompute_s == pytest.approx(20.5e-3)
    assert found.swap_s == pytest.approx(4e-3)
    assert found.swap_wins
    assert not swap_or_recompute(1000.0, 100e3, Copies(50e9, 4096.0, 10e-6), C).swap_wins


@settings(max_examples=40, deadline=None)
@given(st.floats(1e3, 1e9), st.floats(0.0, 1e-3))
def test_copies_never_beat_the_link(size: float, latency: float) -> None:
    assert 0.0 < copy_bytes_per_s(Copies(55e9, size, latency)) <= 55e9 * (1 + 1e-12)
    assert copy_bytes_per_s(Copies(55e9, size * 2, latency)) >= copy_bytes_per_s(Copies(55e9, size, latency)) * (1 - 1e-12)


def test_a_prefix_cache_hit_shrinks_the_recompute() -> None:
    assert recompute_s(4000.0, C, cached_tokens=4000.0) == 0.0
    assert recompute_s(4000.0, C, cached_tokens=3000.0) < recompute_s(4000.0, C) / 3


def test_short_prompts_pay_for_the_long_one_in_front() -> None:
    found = head_of_line(10_000, 100, 10, C)
    assert found.long_prefill_s == pytest.approx(0.2 + 0.05 + 0.3e-3)
    assert all(wait >= found.long_prefill_s for wait in found.fcfs.ttft_s)
    assert found.shortest_first.ttft_s[0] == pytest.approx(found.fcfs.worst_s)
    assert found.mean_gain > 3.0
    assert found.long_delay_s == pytest.approx(10 * prefill_s(100.0, C))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=20))
def test_shortest_first_has_the_least_mean_and_the_same_end(prompts: list[int]) -> None:
    fcfs, shortest = burst_waits(prompts, "fcfs", C), burst_waits(prompts, "shortest first", C)
    assert shortest.mean_s <= fcfs.mean_s * (1 + 1e-12)
    assert shortest.worst_s == pytest.approx(fcfs.worst_s)


def test_batch_class_fills_what_the_target_leaves() -> None:
    found = batch_share(DECODERS, 10e-3, 2000.0, C)
    assert found.interactive_step_s == pytest.approx(6.3e-3)
    assert found.kv_tokens == pytest.approx(3.7e-3 / 40e-9)
    assert found.sequences == 46
    # 46 sequences of 2,000 tokens hold 92,000 tokens, within the cap of 92,500.
    assert found.sequences * 2000.0 <= found.kv_tokens
    assert batch_share(DECODERS, 6e-3, 2000.0, C).kv_tokens == 0.0


def test_priority_alone_leaves_the_damage() -> None:
    # The step is as long for the interactive class whatever class the other sequences are of.
    alone = float(decode_step_s(50.0, 1000.0, C))
    mixed = float(decode_step_s(100.0, 1000.0, C))
    assert mixed > alone * 1.25
    assert batch_share(DECODERS, alone, 1000.0, C).sequences == 0


def test_token_weights_and_request_fair_shares() -> None:
    weights = token_weights(DECODERS, C)
    assert weights.prefill_token_s == pytest.approx(20e-6)
    assert weights.decode_token_s == pytest.approx(6.3e-3 / 50)
    shares = request_fair_shares([Request(16_000, 200), Request(200, 100)], DECODERS, C)
    documents, chat = 16_000 * 20e-6 + 200 * 126e-6, 200 * 20e-6 + 100 * 126e-6
    assert shares.linear[0] == pytest.approx(documents / (documents + chat))
    assert shares.linear[0] > 0.9
    assert sum(shares.full) == pytest.approx(1.0)
    assert shares.full[0] > shares.linear[0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=20).filter(lambda x: sum(v * v for v in x) > 0))
def test_jain_index_lies_between_one_tenant_and_all(service: list[float]) -> None:
    assert 1.0 / len(service) - 1e-9 <= jain_index(service) <= 1.0 + 1e-9


def test_long_prompt_step_by_step() -> None:
    found = long_prompt(10_000, DECODERS, 2050, C)
    assert [row.chunk_tokens for row in found.steps] == [2000] * 5
    first = 2050 * 20e-6 + 0.3e-3 + 2e-3 + 2e-3
    assert found.steps[0].step_s == pytest.approx(first)
    assert found.itl_before_s == pytest.approx(6.3e-3)
    # Last chunk: 2,000 tokens on 8,000 cached; 51 rows sampled.
    assert found.itl_worst_s == pytest.approx(2050 * 20e-6 + 0.3e-3 + 2e-3 + 2000 * 9000e-9)
    assert found.itl_after_s == pytest.approx(4.3e-3 + 60_000 * 40e-9)
    assert found.lockout_s == pytest.approx(found.steps[-1].end_s) == found.ttft_s
    assert found.leftover_tokens == 0


def test_a_threshold_trades_the_long_prompt_for_the_others() -> None:
    whole, capped = (long_prompt(10_000, DECODERS, 2050, C, threshold) for threshold in (None, 500))
    assert capped.lockout_s == 0.0
    assert capped.itl_worst_s < whole.itl_worst_s
    assert capped.ttft_s > whole.ttft_s
    assert len(capped.steps) == 20


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50_000), st.integers(100, 16_384))
def test_every_token_of_the_prompt_is_computed_once(prompt: int, budget: int) -> None:
    found = long_prompt(prompt, DECODERS, budget, C)
    assert sum(row.chunk_tokens for row in found.steps) == prompt
    assert [row.past_tokens for row in found.steps] == [row.number * (budget - 50) - (budget - 50) for row in found.steps]
    assert all(row.step_s >= found.itl_before_s for row in found.steps)


def test_kv_tokens_and_the_ceiling_that_binds() -> None:
    memory = MemorySplit(80e9, 0.9, 16e9, 2e9)
    assert kv_tokens_of(memory, 100e3) == pytest.approx(540_000)
    assert kv_tokens_of(memory._replace(weights_bytes=90e9), 100e3) == 0.0
    by_kv = ceilings(100_000.0, 1000.0, 20e-3, C)
    assert (by_kv.binds, by_kv.max_num_seqs) == ("KV memory", 100)
    by_tpot = ceilings(1e6, 1000.0, 8e-3, C)
    assert (by_tpot.binds, by_tpot.max_num_seqs) == ("TPOT target", 92)
    # At 92 sequences a step takes 7.98 ms: 0.02 ms is left, which hides no chunk beyond the knee of 200 tokens.
    assert by_tpot.max_num_batched_tokens == 200
    by_compute = ceilings(1e6, 1000.0, None, C)
    assert (by_compute.binds, by_compute.tpot_seqs, by_compute.max_num_batched_tokens) == ("compute ridge", None, None)
    assert by_kv.margins["KV memory"] == 1.0
    assert by_kv.margins["compute ridge"] == pytest.approx(by_kv.ridge_seqs / 100)
    # Weights alone take longer than the target: no sequence meets it, and over none there is no ratio.
    never = ceilings(1e6, 1000.0, 1e-3, C)
    assert (never.binds, never.max_num_seqs) == ("TPOT target", 0)
    assert set(never.margins.values()) == {None}


def test_admission_by_hand() -> None:
    # 6.3 ms decode; budget 20 ms: 13.7 ms + 4 ms of weights hide; 885 tokens in all take 17.7 ms; chunk pairs count at past 0.
    chunk = largest_chunk(DECODERS, 20e-3, C)
    assert mixed_step_s(DECODERS, Chunk(float(chunk.chunk_tokens)), C) <= 20e-3
    assert mixed_step_s(DECODERS, Chunk(float(chunk.chunk_tokens + 1)), C) > 20e-3
    limit = admission_limit(DECODERS, 0.5, 20e-3, C)
    assert limit.backlog_tokens == pytest.approx(chunk.chunk_tokens / 20e-3 * 0.5)
    assert largest_chunk(DECODERS, 6e-3, C).chunk_tokens == 0


def test_admission_decides_by_both_targets() -> None:
    targets = (0.5, 20e-3)
    backlog = admission_limit(DECODERS, 0.5, 20e-3, C, past_tokens=500.0).backlog_tokens
    assert admit(1000.0, 0.0, DECODERS, targets, C).verdict == "admit"
    assert admit(1000.0, backlog - 1000.5, DECODERS, targets, C).verdict == "admit"
    assert admit(1000.0, backlog, DECODERS, targets, C).verdict == "TTFT would be missed"
    assert admit(1000.0, 0.0, Decoders(400.0, 1000.0), targets, C).verdict == "TPOT would be missed"


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 400), st.floats(1, 8000), st.floats(5e-3, 0.2), st.floats(0, 50_000))
def test_chunk_shrinks_with_what_else_the_step_holds(sequences: float, context: float, tpot: float, past: float) -> None:
    alone = largest_chunk(Decoders(sequences, context), tpot, C, past).chunk_tokens
    assert largest_chunk(Decoders(sequences + 10, context), tpot, C, past).chunk_tokens <= alone
    assert largest_chunk(Decoders(sequences, context), tpot, C, past + 1000).chunk_tokens <= alone


def test_prefill_as_a_queue() -> None:
    service = prefill_service([1000, 1000, 3000], C)
    times = [20.8e-3, 20.8e-3, 60e-3 + 4.5e-3 + 0.3e-3]
    mean = sum(times) / 3
    assert service.mean_s == pytest.approx(mean)
    assert service.cv2 == pytest.approx(sum((time - mean) ** 2 for time in times) / 3 / mean**2)
    plan = planned_utilisation(1.0, PrefillService(0.1, 2.0))
    assert plan.exponential == pytest.approx(1 - math.log(100) * 0.1)
    assert plan.general == pytest.approx(1 - math.log(100) * 0.15)
    assert planned_utilisation(0.1, PrefillService(0.1, 2.0)).general is None
    curve = tail_curve(PrefillService(0.1, 2.0), [0.2, 0.5, 0.9])
    assert (curve.general_s > curve.exponential_s).all()
    assert curve.exponential_s[1] == pytest.approx(math.log(100) * 0.1 / 0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: prefill_s(math.nan, C),
        lambda: prefill_s(100.0, C, cached_tokens=100.0),
        lambda: prefill_service([], C),
        lambda: tail_curve(PrefillService(0.1, 1.0), [1.0]),
        lambda: swap_or_recompute(1000.0, 0.0, Copies(1e9), C),
        lambda: copy_bytes_per_s(Copies(-1.0)),
        lambda: copy_bytes_per_s(Copies(1e9, 1e6, -1.0)),
        lambda: recompute_s(100.0, C, cached_tokens=101.0),
        lambda: burst_waits([], "fcfs", C),
        lambda: head_of_line(1000, 100, 0, C),
        lambda: batch_share(DECODERS, 0.0, 1000.0, C),
        lambda: token_weights(Decoders(0.0, 100.0), C),
        lambda: request_fair_shares([], DECODERS, C),
        lambda: jain_index([]),
        lambda: jain_index([0.0]),
        lambda: jain_index([-1.0, 2.0]),
        lambda: long_prompt(0, DECODERS, 8192, C),
        lambda: long_prompt(1000, DECODERS, 50, C),
        lambda: long_prompt(1000, DECODERS, 8192, C, 0),
        lambda: long_prompt(10**12, DECODERS, 51, C),
        lambda: kv_tokens_of(MemorySplit(80e9, math.nan, 1.0, 1.0), 1.0),
        lambda: ceilings(math.nan, 1000.0, 0.01, C),
        lambda: largest_chunk(DECODERS, 0.01, C, past_tokens=-1.0),
        lambda: admission_limit(DECODERS, math.inf, 0.02, C),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def test_one_is_written_in_the_singular() -> None:
    assert head_of_line(1.0, 1.0, 1, C).explanation.answer.startswith("A short prompt behind a prompt of 1 token waits")
    assert head_of_line(9000.0, 1.0, 2, C).explanation.answer.startswith("Each of 2 short prompts behind a prompt of 9,000 tokens")
    assert "1 sequence at 1 token." in ceilings(1.0, 1.0, None, C).explanation.answer
    assert batch_share(DECODERS, 10e-3, 90_000.0, C).explanation.answer.endswith("1 sequence at 90000 tokens.")
