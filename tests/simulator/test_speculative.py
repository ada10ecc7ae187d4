"""The scheduler with drafts: the plain loop where none are made, budget and blocks kept, tokens as the closed form counts them."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.analysis.speculation import verify_step_s
from planner.analysis.speculation_map import tokens_a_step
from planner.errors import InputError
from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits
from planner.simulator.plain_loop import Batch, Sequence
from planner.simulator.plain_run import run_plain, step_time_of
from planner.simulator.speculative import (
    DraftedSequence,
    DraftRule,
    SpeculativeRun,
    SpeculativeScheduler,
    drafting_s,
    most_kept_blocks,
    simulate_speculation,
    speculative_engine,
    verification_shape,
)
from planner.step_model import StepShape, step_s
from tests.simulator.engines import LIGHT, Case, cases, coefficients

COSTS = coefficients(
    layers_s=1e-3, linear_s_per_token=2e-5, dense_weights_s=4e-3, decode_s_per_context_token=4e-8, head_s_per_token=1e-6
)


def table(prompts: list[int], outputs: list[int]) -> RequestTable:
    return RequestTable(np.zeros(len(prompts)), np.array(prompts, np.int64), np.array(outputs, np.int64), None, None)


def limits(**given: object) -> EngineLimits:
    base = EngineLimits(max_num_seqs=8, max_num_batched_tokens=256, block_size=16, num_blocks=4000, async_scheduling=False)
    return base._replace(**given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Kept(SpeculativeRun):
    steps: list[Batch]


def run(requests: RequestTable, limits: EngineLimits, rule: DraftRule, seed: int = 1) -> Kept:
    engine = speculative_engine(requests, limits, COSTS, rule, np.random.default_rng(seed))
    steps = list(engine.steps())
    found = engine.run()
    return Kept(found.sequences, found.totals, found.watched, found.refused, steps)


def test_a_run_whose_steps_are_let_go_is_the_same() -> None:
    requests, rule = table([40, 300, 20], [30, 9, 50]), DraftRule((0.7,) * 3)
    kept = run(requests, limits(), rule)
    found = simulate_speculation(requests, limits(), COSTS, rule, np.random.default_rng(1))
    assert [each.finish_s for each in found.sequences] == [each.finish_s for each in kept.sequences]
    assert (found.totals, found.watched, found.refused) == (kept.totals, kept.watched, kept.refused)
    assert found.totals.most_scheduled == max(sum(row.tokens for row in step.rows) for step in kept.steps)


@LIGHT
@given(cases())
def test_without_drafts_every_step_is_the_plain_loops(case: Case) -> None:
    def sequences(kind: type[Sequence]) -> list[Sequence]:
        rows = zip(case.arrival_s, case.prompt, case.output, case.priority, case.shared, strict=True)
        return [kind(index, *row) for index, row in enumerate(rows)]

    time = step_time_of(case.coefficients)
    plain = run_plain(sequences(Sequence), case.limits, time, case.stop)
    scheduler = SpeculativeScheduler(case.limits, DraftRule(()), np.random.default_rng(1), case.stop)
    drafted = run_plain(sequences(DraftedSequence), case.limits, time, case.stop, scheduler)
    assert len(plain.steps) == len(drafted.steps)
    for mine, theirs in zip(drafted.steps, plain.steps, strict=True):
        assert [(row.sequence.index, row.tokens, row.context, row.decodes, row.samples) for row in mine.rows] == [
            (row.sequence.index, row.tokens, row.context, row.decodes, row.samples) for row in theirs.rows
        ]
        assert (mine.preempted, mine.used_blocks, mine.waiting) == (theirs.preempted, theirs.used_blocks, theirs.waiting)
        assert mine.start_s == theirs.start_s
    for mine, theirs in zip(drafted.sequences, plain.sequences, strict=True):
        assert (mine.first_token_s, mine.finish_s, mine.preemptions) == (theirs.first_token_s, theirs.finish_s, theirs.preemptions)


class Watched(SpeculativeScheduler):
    """Checks what must hold after every decision and every result."""

    def schedule(self) -> Batch:
        batch = super().schedule()
        assert sum(row.tokens for row in batch.rows) <= self.limits.max_num_batched_tokens
        assert len(self.running) <= self.limits.max_num_seqs
        self.balanced()
        return batch

    def update(self, batch: Batch) -> None:
        super().update(batch)
        self.balanced()

    def balanced(self) -> None:
        held = [block for sequence in self.running for block in sequence.blocks]
        assert len(held) == len(set(held)) == self.pool.used
        for sequence in self.running:
            assert sequence.computed <= len(sequence.blocks) * self.limits.block_size
            assert sequence.outputs <= sequence.output_tokens


@LIGHT
@given(cases(), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6), st.integers(0, 6), st.integers(0, 2**16))
def test_budget_and_blocks_are_kept(case: Case, acceptance: list[float], lookahead: int, seed: int) -> None:
    """No step exceeds the budget, every block has one holder, each request gets exactly its outputs, and all blocks come back."""
    engine = case.limits._replace(enable_prefix_caching=False, num_blocks=case.limits.num_blocks * 4, max_model_len=None)
    scheduler = Watched(engine, DraftRule(tuple(acceptance), lookahead_tokens=lookahead), np.random.default_rng(seed), case.stop)
    rows = zip(case.arrival_s, case.prompt, case.output, case.priority, strict=True)
    sequences = [DraftedSequence(index, *row) for index, row in enumerate(rows)]
    found = run_plain(sequences, engine, step_time_of(case.coefficients), case.stop, scheduler)
    assert all(sequence.outputs == sequence.output_tokens for sequence in found.sequences)
    assert scheduler.pool.used == 0
    totals = scheduler.totals
    assert totals.accepted <= totals.drafted
    assert totals.tokens <= totals.rows + totals.accepted
    assert totals.stale_blocks <= most_kept_blocks(scheduler.rule, engine)


@pytest.mark.parametrize("acceptance", [(0.7,) * 4, (0.9, 0.5, 0.2), (0.0, 1.0), (1.0, 1.0, 1.0)])
def test_a_verification_yields_the_closed_forms_tokens(acceptance: tuple[float, ...]) -> None:
    found = run(table([20] * 40, [400] * 40), limits(), DraftRule(acceptance))
    expected = tokens_a_step(acceptance)
    assert found.totals.rows >= 4000
    assert found.tokens_a_row == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_with_every_draft_accepted_a_request_takes_outputs_over_k_plus_one_steps(asynchronous: bool) -> None:
    """One prefill step, then 100 tokens at 4 a step; each takes a verification's time at its context.

    With asynchronous scheduling the step after the last is decided before it is known that drafts have ended the request.
    """
    found = run(table([64], [101]), limits(async_scheduling=asynchronous), DraftRule((1.0,) * 3))
    steps = found.steps[: 1 + 25]
    assert [row.wasted for step in found.steps[26:] for row in step.rows] == [True] * asynchronous
    contexts = [row.context for step in steps[1:] for row in step.rows]
    assert contexts == [64 + 4 * step for step in range(25)]
    for step, context in zip(steps[1:], contexts, strict=True):
        assert step.duration_s == pytest.approx(float(verify_step_s(1.0, context, 3, COSTS)), rel=1e-12)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_with_every_draft_rejected_decode_takes_plain_steps(asynchronous: bool) -> None:
    found = run(table([64], [50]), limits(async_scheduling=asynchronous), DraftRule((0.0,) * 3))
    decodes = [row for step in found.steps for row in step.rows if row.decodes]
    assert len(decodes) == 49
    assert [row.context for row in decodes] == list(range(64, 64 + 49))
    assert found.totals.drafted == 3 * 49
    assert found.totals.accepted == 0


def test_a_rejection_keeps_its_blocks_for_the_next_tokens() -> None:
    """Context 63 and 4 drafts reach into a fifth block; all are rejected, and the block stays."""
    found = run(table([63], [4]), limits(), DraftRule((0.0,) * 4))
    assert [(row.context, row.blocks, row.needed) for row in found.watched[:2]] == [(63, 5, 4), (64, 5, 5)]
    assert found.totals.stale_blocks == 1
    held = [step.used_blocks for step in found.steps]
    assert held == sorted(held)


def test_drafts_are_cut_by_the_budget_and_prefill_gets_what_is_left() -> None:
    """Two decoders of 1 + 4 tokens leave 6 of 16 to a prompt; four leave nothing to drafts of the last."""
    engine = limits(max_num_batched_tokens=16, max_num_seqs=16)
    found = run(table([5, 5, 100], [50, 50, 2]), engine, DraftRule((0.0,) * 4))
    mixed = [step for step in found.steps if {row.sequence.index for row in step.rows} == {0, 1, 2}]
    assert {row.tokens for step in mixed[1:] for row in step.rows if row.decodes} == {5}
    assert {row.tokens for step in mixed[1:] for row in step.rows if not row.decodes and not row.samples} == {6}
    crowded = run(table([2] * 5, [30] * 5), engine, DraftRule((0.0,) * 4))
    full = [step for step in crowded.steps if sum(row.decodes for row in step.rows) >= 4]
    assert all(sum(row.tokens for row in step.rows) <= 16 for step in full)
    assert crowded.totals.cut > 0


def test_k_follows_the_batch() -> None:
    rule = DraftRule((0.0,) * 4, ranges=((1, 2, 4), (3, 8, 0)))
    found = run(table([20] * 6, [10, 10, 10, 40, 80, 80]), limits(), rule)
    for before, step in zip(found.steps, found.steps[1:], strict=False):
        drafts = {row.tokens - 1 for row in step.rows if row.decodes}
        assert drafts <= {rule.drafts_at(len(before.rows))}
    assert [rule.drafts_at(batch) for batch in (1, 2, 3, 8, 9)] == [4, 4, 0, 0, 4]


def test_lookahead_slots_take_blocks() -> None:
    free, reserved = (run(table([60], [2]), limits(), DraftRule((0.5,) * 4, lookahead_tokens=slots)) for slots in (0, 8))
    assert free.steps[0].used_blocks == 4
    assert reserved.steps[0].used_blocks == 5


def test_a_draft_model_takes_a_pass_over_the_step_and_one_for_each_further_draft() -> None:
    shape = StepShape(10.0, 10.0, 2.0, 2.0, 1000.0)
    single = shape._replace(scheduled_tokens=2.0, sampled_tokens=2.0)
    first = float(step_s(shape._replace(sampled_tokens=2.0), COSTS))
    assert drafting_s(shape, 4, COSTS) == pytest.approx(first + 3.0 * float(step_s(single, COSTS)))
    assert drafting_s(shape, 0, COSTS) == 0.0
    assert drafting_s(shape, 4, None) == 0.0


def test_drafts_are_sampled_and_their_sequences_kv_is_read_once() -> None:
    found = run(table([50, 30], [20, 20]), limits(), DraftRule((1.0,) * 3))
    shape = verification_shape(found.steps[2], 0)
    assert (shape.scheduled_tokens, shape.sampled_tokens, shape.decode_sequences) == (8.0, 8.0, 2.0)
    assert shape.decode_context_tokens == sum(row.context for row in found.steps[2].rows)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second, other = (run(table([30] * 12, [60] * 12), limits(), DraftRule((0.6,) * 3), seed) for seed in (4, 4, 5))
    assert [step.start_s for step in first.steps] == [step.start_s for step in second.steps]
    assert first.totals != other.totals


def test_requests_that_never_fit_are_refused() -> None:
    found = run(table([20, 900], [4, 4]), limits(num_blocks=10), DraftRule((0.5,) * 2))
    assert found.refused == 1
    assert len(found.sequences) == 1


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("acceptance", {"acceptance": (1.2,)}),
        ("acceptance", {"acceptance": (float("nan"),)}),
        ("draft_tokens", {"acceptance": (0.5,) * 65}),
        ("ranges", {"acceptance": (0.5,), "ranges": ((1, 4, 2),)}),
        ("ranges", {"acceptance": (0.5,), "ranges": ((4, 1, 1),)}),
        ("lookahead_tokens", {"acceptance": (0.5,), "lookahead_tokens": -1}),
    ],
)
def test_bad_rules_are_refused(field: str, rule: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        DraftRule(**rule)  # type: ignore[arg-type]
    assert caught.value.field == field
