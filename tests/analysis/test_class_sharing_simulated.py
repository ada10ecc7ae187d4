"""Batch work beside interactive work: prefills counted by hand, laws, agreement with the simulator, what priority leaves."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.class_sharing import (
    BatchWork,
    SharedEngine,
    batch_share,
    beside_tokens,
    counted_share,
    decoding,
    prefill_added_s,
    shared_tpot_s,
    steady_stream,
)
from planner.analysis.class_sharing_simulated import (
    CAPPED,
    ClassRun,
    Sharing,
    SimulatedSharing,
    _mix,
    _on_one_engine,
    simulated_sharing,
)
from planner.analysis.littles_law import Stream
from planner.analysis.steps import Decoders, decode_step_s
from planner.cases import textbook_case
from planner.errors import InputError
from planner.ui.views.questions_sharing_classes import cap_curves, trade_line, trade_spots, trade_title
from tests.analysis.round_engine import C

TPOT_S = 0.015
DECODERS = Decoders(32.0, 2048.0)
BATCH = BatchWork(1798.0, 500.0)
STREAM = steady_stream(DECODERS, 500.0, TPOT_S)


def sharing_at_cap(case: Case, sharing: Sharing, cap_tokens: int) -> ClassRun:
    return _on_one_engine(case, _mix(case, sharing), CAPPED, cap_tokens)


@pytest.fixture(scope="module")
def simulated() -> SimulatedSharing:
    case = textbook_case()
    sharing = Sharing(STREAM, BATCH, TPOT_S)
    pure = batch_share(DECODERS, TPOT_S, BATCH.running_context_tokens, case.coefficients)
    counted = counted_share(SharedEngine(STREAM, BATCH, 8192.0), TPOT_S, case.coefficients)
    return simulated_sharing(case, sharing, (pure.kv_tokens, counted.kv_tokens), lambda _text, _share: None)


def test_the_stream_keeps_the_sequences_asked() -> None:
    assert STREAM.rate_rps == pytest.approx(32.0 / (500.0 * TPOT_S))
    assert STREAM.running_context_tokens == pytest.approx(2048.0)
    assert decoding(STREAM, TPOT_S) == pytest.approx(32.0)


def test_prefill_adds_what_goes_beyond_the_weights_by_hand() -> None:
    # Beside 50 decoders, 1,050 tokens take 21 ms against the weights' 4 ms; 500,000 pairs take 0.5 ms; one more row of the head
    # stays below its weights.
    assert prefill_added_s(1000.0, Decoders(50.0, 1000.0), 8192.0, C) == pytest.approx(21e-3 - 4e-3 + 0.5e-3)
    # In two chunks the 50 decoders are paid for twice, and the weights saved twice; pairs are the same.
    halves = prefill_added_s(1000.0, Decoders(50.0, 1000.0), 550.0, C)
    assert halves == pytest.approx(2 * (550 * 20e-6 - 4e-3) + 0.5e-3)
    assert prefill_added_s(1000.0, Decoders(50.0, 1000.0), 50.5, C) is None


def test_tpot_solves_its_equation() -> None:
    shared = SharedEngine(Stream(2.0, 500.0, 200.0), BatchWork(500.0, 200.0), 8192.0)
    found = shared_tpot_s(20.0, shared, C)
    assert found is not None
    ours = 2.0 * 200.0 * found
    beside = Decoders(ours + 20.0, 600.0)
    added = prefill_added_s(500.0, beside, 8192.0, C)
    assert found == pytest.approx(float(decode_step_s(*beside, C)) + 2.0 * found * added + 20.0 / 200.0 * added)


def test_too_many_prompts_leave_no_steady_state() -> None:
    crowded = SharedEngine(Stream(200.0, 500.0, 200.0), BATCH, 8192.0)
    assert shared_tpot_s(0.0, crowded, C) is None
    found = counted_share(crowded, 0.05, C)
    assert (found.sequences, found.kv_tokens, found.alone_tpot_s) == (0.0, 0.0, None)
    assert "can't keep up" in found.explanation.answer


@settings(max_examples=25, deadline=None)
@given(st.floats(1.0, 60.0), st.floats(300.0, 4000.0), st.floats(100.0, 2000.0), st.floats(6e-3, 0.1))
def test_counting_prefills_never_allows_more(sequences: float, context: float, output: float, tpot_s: float) -> None:
    stream = steady_stream(Decoders(sequences, context), output, tpot_s)
    batch = BatchWork(stream.prompt_tokens, output)
    decoders = Decoders(sequences, stream.running_context_tokens)
    counted = counted_share(SharedEngine(stream, batch, 8192.0), tpot_s, C)
    pure = batch_share(decoders, tpot_s, batch.running_context_tokens, C)
    assert counted.kv_tokens <= pure.kv_tokens * (1 + 1e-6)
    if counted.sequences > 0.01:
        shared = SharedEngine(stream, batch, 8192.0)
        reached = shared_tpot_s(counted.sequences, shared, C)
        assert reached is not None
        assert reached <= tpot_s * (1 + 1e-6)


def test_reading_alone_agrees_where_nothing_is_prefilled() -> None:
    """The published cap's assumption: prompts are computed elsewhere, so that they cost these steps nothing."""
    case = textbook_case()
    free = case.coefficients._replace(linear_s_per_token=0.0, prefill_s_per_pair=0.0, head_s_per_token=0.0)
    case = replace(case, coefficients=free)
    cap = batch_share(DECODERS, TPOT_S, BATCH.running_context_tokens, free).kv_tokens
    run = sharing_at_cap(case, Sharing(STREAM, BATCH, TPOT_S), int(cap))
    assert run.tpot_mean_s == pytest.approx(TPOT_S, rel=0.05)


def test_the_mean_with_prefills_counted_agrees_with_the_simulator(simulated: SimulatedSharing) -> None:
    case = textbook_case()
    shared = SharedEngine(STREAM, BATCH, 8192.0)
    for run in simulated.capped:
        assert run.cap_tokens is not None
        formula = shared_tpot_s(run.cap_tokens / BATCH.running_context_tokens, shared, case.coefficients)
        assert run.tpot_mean_s == pytest.approx(formula, rel=0.12)


def test_priority_alone_leaves_interactive_tpot_damaged_and_a_cap_repairs_it(simulated: SimulatedSharing) -> None:
    priority, best = simulated.priority, simulated.best
    assert priority.ttft_p99_s < 0.2 * simulated.one_queue.ttft_p99_s
    assert priority.tpot_p99_s > 2.0 * TPOT_S
    assert best is not None
    assert best.tpot_p99_s <= TPOT_S
    assert 0.0 < best.batch_tokens_per_s < priority.batch_tokens_per_s


def test_the_cap_by_reading_alone_misses_once_prompts_count(simulated: SimulatedSharing) -> None:
    largest = simulated.capped[-1]
    assert largest.cap_tokens == pytest.approx(191_824, rel=1e-3)
    assert largest.tpot_mean_s > 1.5 * TPOT_S


def test_a_smaller_cap_trades_batch_output_for_tpot(simulated: SimulatedSharing) -> None:
    caps = [run.cap_tokens for run in simulated.capped]
    outputs = [run.batch_tokens_per_s for run in simulated.capped]
    assert caps == sorted(caps)
    assert outputs[0] < outputs[-1]
    assert simulated.capped[0].tpot_p99_s < simulated.capped[-1].tpot_p99_s


def test_separate_pools_keep_the_target_with_a_share_of_the_engines(simulated: SimulatedSharing) -> None:
    assert simulated.pools is not None
    assert simulated.pool_share is not None
    assert simulated.pools.tpot_p99_s <= TPOT_S
    assert 0.0 < simulated.pool_share <= 1.0


def test_without_a_cap_the_compiled_loop_serves_as_the_policies_engine_does_with_one_that_never_binds(
    simulated: SimulatedSharing,
) -> None:
    case = textbook_case()
    free = sharing_at_cap(case, Sharing(STREAM, BATCH, TPOT_S), case.kv_tokens)
    assert free[2:] == pytest.approx(simulated.priority[2:], rel=1e-9)


def test_the_same_seed_gives_the_same_run() -> None:
    case = textbook_case()
    sharing = Sharing(steady_stream(Decoders(8.0, 300.0), 40.0, TPOT_S), BatchWork(200.0, 40.0), TPOT_S)
    assert sharing_at_cap(case, sharing, 20_000) == sharing_at_cap(case, sharing, 20_000)


@pytest.mark.parametrize(
    "call",
    [
        lambda: steady_stream(Decoders(0.0, 100.0), 10.0, 0.01),
        lambda: steady_stream(Decoders(1.0, 100.0), math.nan, 0.01),
        lambda: shared_tpot_s(-1.0, SharedEngine(STREAM, BATCH, 8192.0), C),
        lambda: shared_tpot_s(1.0, SharedEngine(STREAM, BatchWork(0.0, 1.0), 8192.0), C),
        lambda: shared_tpot_s(1.0, SharedEngine(STREAM, BATCH, math.nan), C),
        lambda: counted_share(SharedEngine(STREAM, BATCH, 8192.0), math.inf, C),
        lambda: sharing_at_cap(textbook_case(), Sharing(STREAM, BatchWork(500_000.0, 10.0), TPOT_S), 10_000),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def test_a_way_in_which_no_interactive_request_ends_keeps_no_target_and_has_no_spot(simulated: SimulatedSharing) -> None:
    nothing = ClassRun("Priority alone", None, 30.0, None, None, 100.0, 150, 0)
    assert not nothing.keeps(math.inf)
    assert ClassRun("Priority alone", None, 1.0, TPOT_S, TPOT_S, 100.0, 150, 0).keeps(TPOT_S)
    sharing, shared = Sharing(STREAM, BATCH, TPOT_S), SharedEngine(STREAM, BATCH, 8192.0)
    found = replace(simulated, priority=nothing, capped=(nothing._replace(cap_tokens=10_000), *simulated.capped))
    assert len(trade_line(found)) == len(simulated.capped)
    assert len(trade_spots(found)) == len(trade_spots(simulated)) - 1
    assert "leaves p99 TPOT at —" in trade_title(sharing, found)
    curves = {curve.name: curve for curve in cap_curves(textbook_case(), sharing, shared, found)}
    assert len(curves["p99"].points) == len(simulated.capped)


@given(st.floats(0.001, 2.0))
@settings(max_examples=40, deadline=None)
def test_no_formula_gives_batch_work_more_than_the_cache_leaves(share: float) -> None:
    free = counted_share(SharedEngine(STREAM, BATCH, 8192.0), TPOT_S, C)
    ours = decoding(STREAM, TPOT_S) * STREAM.running_context_tokens
    cache_tokens = ours + share * free.kv_tokens
    found = counted_share(SharedEngine(STREAM, BATCH, 8192.0, cache_tokens), TPOT_S, C)
    pure = batch_share(DECODERS, TPOT_S, BATCH.running_context_tokens, C, cache_tokens)
    assert found.kv_tokens == pytest.approx(min(share, 1.0) * free.kv_tokens, rel=1e-6)
    room = beside_tokens(cache_tokens, DECODERS)
    assert room is not None
    assert pure.kv_tokens == pytest.approx(min(pure.read_tokens, room))
    assert pure.sequences * BATCH.running_context_tokens <= room
    assert beside_tokens(None, DECODERS) is None
    reached_s = found.sequences / found.batch_tokens_per_s
    assert reached_s <= TPOT_S * (1.0 + 1e-6)


def test_a_cache_that_the_interactive_class_fills_leaves_nothing() -> None:
    found = counted_share(SharedEngine(STREAM, BATCH, 8192.0, 1000.0), TPOT_S, C)
    assert (found.kv_tokens, found.sequences) == (0.0, 0.0)
    assert "fills the KV cache" in found.explanation.answer
    with pytest.raises(InputError, match="cache_tokens"):
        batch_share(DECODERS, TPOT_S, 1000.0, C, math.nan)
