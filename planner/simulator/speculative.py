"""Speculative decoding in vLLM's scheduler: drafts take token budget and KV slots, and rejected ones are taken back.

Everything else is the plain loop's, step for step where nothing is drafted. A sequence that decodes is given 1 + K tokens, as many
as the budget leaves; a rejection lowers what is computed, and the blocks stay with the sequence for its next tokens. Drafts are cut
by the budget and by max_model_len, not by what the request may still bring: the tokens past its end are thrown away.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from planner.attention_pairs import causal_pairs, window_pairs
from planner.errors import InputError
from planner.simulator.inputs import RequestArrays
from planner.simulator.limits import EngineLimits, Stop, check_coefficients, check_limits
from planner.simulator.plain_loop import Batch, PlainScheduler, Row, Sequence
from planner.simulator.plain_run import StepTime, in_order, plain_steps
from planner.step_model import Number, StepCoefficients, StepShape, step_s

MOST_DRAFTS = 64
_DRAWS = 4096
_WATCHED_TOKENS = 64


@dataclass(frozen=True, slots=True)
class DraftRule:
    """How many drafts a step verifies, how many of them hold, and what they cost.

    acceptance : chance that the draft at each position is accepted, given those before it [1]; as many as there are drafts, K
    ranges : first and last batch with the drafts made there, in order; a batch outside them makes K. Empty: always K
    lookahead_tokens : KV slots reserved beyond the scheduled tokens [token]: K for a draft model, EAGLE and MTP, 0 for n-gram
    draft : step costs of the draft model, which makes the drafts one after the other; None: drafts are free
    """

    acceptance: tuple[float, ...]
    ranges: tuple[tuple[int, int, int], ...] = ()
    lookahead_tokens: int = 0
    draft: StepCoefficients | None = None

    def __post_init__(self) -> None:
        if len(self.acceptance) > MOST_DRAFTS:
            raise InputError("draft_tokens", len(self.acceptance), f"must be at most {MOST_DRAFTS}", "Give fewer drafts")
        for chance in self.acceptance:
            if not 0.0 <= chance <= 1.0:
                raise InputError("acceptance", chance, "must be between 0 and 1", "Give the share of drafts that are accepted")
        for low, high, drafts in self.ranges:
            if not (1 <= low <= high and 0 <= drafts <= self.draft_tokens):
                bound = f"must be a rising range of batches with 0 to {self.draft_tokens} drafts"
                raise InputError("ranges", (low, high, drafts), bound, "Give first batch, last batch and drafts")
        if self.lookahead_tokens < 0:
            raise InputError("lookahead_tokens", self.lookahead_tokens, "must be at least 0", "Give KV slots, K or 0")

    @property
    def draft_tokens(self) -> int:
        """K, the most drafts of a step [token]."""
        return len(self.acceptance)

    def drafts_at(self, batch: int) -> int:
        """Return the drafts that a step of so many sequences makes for the next one [token]."""
        for low, high, drafts in self.ranges:
            if low <= batch <= high:
                return drafts
        return self.draft_tokens

    def survival(self) -> tuple[float, ...]:
        """Return the chance that the first 1, 2, … K drafts are all accepted [1]."""
        return tuple(np.cumprod(self.acceptance).tolist()) if self.acceptance else ()


def drafting_s(shape: StepShape, drafts: int, draft: StepCoefficients | None) -> Number:
    """Return the time in which a draft model makes `drafts` tokens for each sequence of a step [s].

    shape : the step that it follows; draft : its step costs, None for free drafts

    Its first pass computes all tokens of the step, whose keys and values it needs; each further draft is a pass over one token of
    each sequence.
    """
    if draft is None or drafts == 0:
        return 0.0
    first = shape._replace(sampled_tokens=shape.sequences)
    further = StepShape(
        scheduled_tokens=shape.sequences,
        sampled_tokens=shape.sequences,
        sequences=shape.sequences,
        decode_sequences=shape.sequences,
        decode_context_tokens=shape.decode_context_tokens,
        decode_window_tokens=shape.decode_window_tokens,
    )
    return step_s(first, draft) + (drafts - 1) * step_s(further, draft)


def most_kept_blocks(rule: DraftRule, limits: EngineLimits) -> int:
    """Return the most blocks that a sequence keeps after a rejection without a computed token in them [block].

    A step that is decided while another runs takes blocks as if all drafts in flight were accepted, which doubles what can be lost.
    """
    steps = 2 if limits.async_scheduling else 1
    return -(-(steps * rule.draft_tokens + rule.lookahead_tokens) // limits.block_size)


@dataclass(slots=True, eq=False)
class DraftedSequence(Sequence):
    """A sequence with drafts.

    drafts : made for its next step [token]; last : its latest row, whose result may still be out
    """

    drafts: int = 0
    last: Row | None = None


@dataclass(slots=True)
class DraftTotals:
    """Sums over a run.

    rows : verification rows whose result counted; tokens : that they brought [token]
    drafted, accepted : drafts verified and accepted in them [token]
    cut : drafts that were made and that the budget had no room for [token]
    stale_blocks : most blocks that one sequence held beyond what is computed, after a rejection [block]
    most_scheduled : most tokens of a step, drafts among them [token]
    """

    rows: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    cut: int = 0
    stale_blocks: int = 0
    most_scheduled: int = 0


@dataclass(frozen=True, slots=True)
class Verified:
    """One verification row of one request.

    context : tokens cached before it [token]; drafts, accepted : in it [token]; computed : tokens that stay [token]
    blocks, needed : that the sequence holds after it, and those that its computed tokens fill [block]
    """

    context: int
    drafts: int
    accepted: int
    computed: int
    blocks: int
    needed: int


class SpeculativeScheduler(PlainScheduler):
    """The plain scheduler with drafts; watched : position of a request whose rows are kept."""

    def __init__(self, limits: EngineLimits, rule: DraftRule, rng: np.random.Generator, stop: Stop = "length") -> None:
        super().__init__(limits, stop)
        self.rule = rule
        self.totals = DraftTotals()
        self.watched: int | None = None
        self.seen: list[Verified] = []
        self._survival = [-chance for chance in rule.survival()]
        self._rng = rng
        self._draws: list[float] = []

    def schedule(self) -> Batch:
        """Decide the next step; its sequences then draft for the one after it."""
        batch = super().schedule()
        drafts = self.rule.drafts_at(len(batch.rows))
        scheduled = 0
        for row in batch.rows:
            sequence = _drafted(row.sequence)
            sequence.drafts = drafts if row.samples else 0
            scheduled += row.tokens
        self.totals.most_scheduled = max(self.totals.most_scheduled, scheduled)
        return batch

    def update(self, batch: Batch) -> None:
        """Take in the tokens that a step brought; rejected drafts are no longer computed."""
        for row in batch.rows:
            if not row.samples:
                continue
            sequence = _drafted(row.sequence)
            if sequence.finished:
                row.wasted = True
                continue
            drafts = row.tokens - 1 if row.decodes else 0
            accepted = self._accept(drafts)
            brought = min(1 + accepted, sequence.output_tokens - sequence.outputs)
            sequence.outputs += brought
            if sequence.first_token_s is None:
                sequence.first_token_s = batch.end_s
            if sequence.running:
                self._take_back(sequence, row, drafts, accepted)
            if row.decodes:
                self._count(sequence, row, drafts, accepted)
                self.totals.tokens += brought
            if sequence.outputs == sequence.output_tokens:
                self._finish(sequence, batch.end_s)

    def _take_back(self, sequence: DraftedSequence, row: Row, drafts: int, accepted: int) -> None:
        """Lower what is computed by what was rejected; a step that is decided already reads that much less."""
        sequence.computed -= drafts - accepted
        if sequence.last is not None and sequence.last is not row:
            sequence.last.context -= drafts - accepted
        if self.limits.async_scheduling:
            sequence.placeholders -= 1 + drafts
            self._hash_blocks(sequence, sequence.computed - sequence.placeholders)

    def _count(self, sequence: DraftedSequence, row: Row, drafts: int, accepted: int) -> None:
        totals = self.totals
        totals.rows += 1
        totals.drafted += drafts
        totals.accepted += accepted
        needed = super()._blocks_for(sequence.computed)
        totals.stale_blocks = max(totals.stale_blocks, len(sequence.blocks) - needed)
        if sequence.index == self.watched:
            kept = row.context + 1 + accepted
            self.seen.append(Verified(row.context, drafts, accepted, kept, len(sequence.blocks), super()._blocks_for(kept)))

    def _accept(self, drafts: int) -> int:
        """Draw how many drafts hold before the first rejection."""
        if not drafts:
            return 0
        if not self._draws:
            self._draws = self._rng.random(_DRAWS).tolist()
        return min(bisect_left(self._survival, -self._draws.pop()), drafts)

    def _wanted_tokens(self, sequence: Sequence) -> int:
        """Tokens that a running sequence could compute now, its drafts among them, the budget aside [token]."""
        unseen = sequence.placeholders
        ends = sequence.prompt_tokens + sequence.output_tokens
        if self.stop == "length" and unseen > 0 and sequence.computed + 2 - unseen >= ends:
            return 0  # in flight is at least the last token, even if every draft there is rejected
        drafts = _drafted(sequence).drafts if sequence.decoding else 0
        tokens = self._cut_long_prefill(sequence.known_tokens + unseen + drafts - sequence.computed)
        if self.limits.max_model_len is not None:
            tokens = min(tokens, self.limits.max_model_len - 1 - sequence.computed)
        return tokens

    def _blocks_for(self, tokens: int) -> int:
        """Return the blocks of so many tokens and of the slots reserved for drafts [block]."""
        reach = tokens + self.rule.lookahead_tokens
        return super()._blocks_for(reach if self.limits.max_model_len is None else min(reach, self.limits.max_model_len))

    def _advance(self, row: Row) -> None:
        sequence = _drafted(row.sequence)
        row.samples = row.context + row.tokens >= sequence.known_tokens + sequence.placeholders
        row.decodes = sequence.decoding and row.context >= sequence.prompt_tokens
        sequence.computed += row.tokens
        sequence.decoding = row.samples
        sequence.last = row
        if row.decodes:
            self.totals.cut += max(sequence.drafts + 1 - row.tokens, 0)
        if row.samples and self.limits.async_scheduling:
            sequence.placeholders += row.tokens if row.decodes else 1


@dataclass(frozen=True, slots=True)
class SpeculativeEngine:
    """An engine with drafts that has served nothing yet.

    sequences : those to serve, in order of arrival; refused : requests that could never fit
    """

    sequences: list[Sequence]
    scheduler: SpeculativeScheduler
    step_time: StepTime
    refused: int

    def steps(self) -> Iterator[Batch]:
        """Serve all sequences and give each step once it has run; to be gone through once."""
        return plain_steps(self.sequences, self.scheduler, self.step_time)

    def run(self) -> "SpeculativeRun":
        """Return what the engine has done."""
        return SpeculativeRun(self.sequences, self.scheduler.totals, tuple(self.scheduler.seen), self.refused)


def speculative_engine(
    requests: RequestArrays, limits: EngineLimits, coefficients: StepCoefficients, rule: DraftRule, rng: np.random.Generator
) -> SpeculativeEngine:
    """Return an engine with drafts and the requests that it is to serve.

    Outputs are cut at max_model_len. Requests that the cache can't hold with their drafts are refused.
    """
    check_limits(limits)
    c = check_coefficients(coefficients)
    pure = c._replace(mix_factor=1.0)  # drafts beside decode rows are no prefill
    scheduler = SpeculativeScheduler(limits, rule, rng)
    sequences = [
        DraftedSequence(index, arrival_s, prompt, output)
        for index, (arrival_s, prompt, output) in enumerate(
            zip(requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
        )
    ]
    spare = 2 * (rule.draft_tokens + 1) + rule.lookahead_tokens
    served = in_order(
        each for each in sequences if each.prompt_tokens + each.output_tokens + spare <= limits.num_blocks * limits.block_size
    )
    if served:
        scheduler.watched = min(served, key=lambda each: (abs(each.output_tokens - _WATCHED_TOKENS), each.index)).index

    def step_time(batch: Batch) -> float:
        shape = verification_shape(batch, int(c.window_tokens))
        mixed = shape.sequences > shape.decode_sequences
        step = float(step_s(shape, c if mixed else pure))
        return step + float(drafting_s(shape, rule.drafts_at(len(batch.rows)), rule.draft))

    return SpeculativeEngine(served, scheduler, step_time, len(sequences) - len(served))


def simulate_speculation(
    requests: RequestArrays, limits: EngineLimits, coefficients: StepCoefficients, rule: DraftRule, rng: np.random.Generator
) -> "SpeculativeRun":
    """Serve requests with drafts and return the run; same generator state, same run. See `speculative_engine`."""
    engine = speculative_engine(requests, limits, coefficients, rule, rng)
    deque(engine.steps(), maxlen=0)
    return engine.run()


def verification_shape(batch: Batch, window_tokens: int) -> StepShape:
    """Return the sums over a batch's rows: each draft goes through the layers and the head, its sequence's KV is read once."""
    tokens = sampled = decoding = context = window = 0
    pairs = pairs_in_window = prefill_context = 0.0
    for row in batch.rows:
        tokens += row.tokens
        if row.decodes:
            sampled += row.tokens
            decoding += 1
            context += row.context
            window += min(row.context, window_tokens)
        else:
            sampled += row.samples
            pairs += causal_pairs(row.context, row.tokens)
            pairs_in_window += window_pairs(row.context, row.tokens, window_tokens)
            prefill_context += row.context
    return StepShape(
        float(tokens),
        float(sampled),
        float(len(batch.rows)),
        float(decoding),
        float(context),
        float(window),
        pairs,
        pairs_in_window,
        prefill_context,
    )


@dataclass(frozen=True, slots=True)
class SpeculativeRun:
    """What the engine did: each sequence with its times.

    watched : verification rows of one request; refused : requests that could never fit
    """

    sequences: Many[Sequence]
    totals: DraftTotals
    watched: Many[Verified]
    refused: int

    @property
    def tokens_a_row(self) -> float:
        """Tokens that a verification row yields on average, those past a request's end among them [token]."""
        return 1.0 + self.totals.accepted / self.totals.rows if self.totals.rows else 1.0


def _drafted(sequence: Sequence) -> DraftedSequence:
    assert isinstance(sequence, DraftedSequence)
    return sequence
