"""Speculation on a case: what drafts gain on its engine, from which batch they lose, and which K to set for each batch."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.speculation_map import (
    LARGEST_BATCH,
    MAP_ACCEPTANCES,
    MAP_BATCHES,
    Launch,
    Load,
    MapCell,
    Shared,
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
from planner.deployment import shard
from planner.engines.defaults import graph_ceiling_tokens
from planner.errors import InputError
from planner.provenance import Source
from planner.simulator.speculative import DraftRule, most_kept_blocks

Method = Literal["ngram", "eagle3", "draft_model"]
Points = tuple[tuple[float, float], ...]
DRAFT_MODEL_SHARE = 1.0 / 8.0
LAUNCH_SOURCE = Source(
    kind="assumed", ref="About ten kernels a layer, each some 10 µs from the host when no CUDA graph replays them; measure your own"
)
LAYER_LAUNCH_S = 100e-6
CURVE_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)


class Drafter(NamedTuple):
    """How drafts are made.

    method : by the engine's name; share : of the target's layers, None for one layer [1]; head_share : of its head [1]
    """

    method: Method
    share: float | None
    head_share: float


DRAFTERS: dict[Method, Drafter] = {
    "ngram": Drafter("ngram", 0.0, 0.0),
    "eagle3": Drafter("eagle3", None, 1.0),
    "draft_model": Drafter("draft_model", DRAFT_MODEL_SHARE, DRAFT_MODEL_SHARE),
}


class Speculating(NamedTuple):
    """What is asked.

    acceptance : by position, K of them [1]; batch : max_num_seqs, all busy [seq]; context_tokens : mean cached of each [token]
    layer_launch_s : time to launch one layer's kernels without a CUDA graph [s]
    """

    method: Method
    acceptance: tuple[float, ...]
    batch: int
    context_tokens: float
    layer_launch_s: float = LAYER_LAUNCH_S


@dataclass(frozen=True, slots=True)
class CaseSpeculation:
    """Speculation on one case.

    rule : with the best K of each batch as ranges; batch, load : as asked
    tokens : that a verification yields [token]; at_one, at_batch : speed-up of decode alone [1]
    shared : speed-up with prefill in the same steps [1]; with_drafts, plain : the figures behind it
    best_k, best_shared : the K of the batch asked, and its speed-up with prefill in the same steps
    losing : batch from which K drafts lose [seq]; None: none up to `LARGEST_BATCH`
    alone, together, best : speed-up by batch: decode alone, with prefill, and with the best K of each batch
    cells : the map over batch and acceptance
    budget_sequences : largest batch whose 1 + K tokens each fit the token budget [seq]; past it drafts are cut
    kept_blocks : most KV blocks that a sequence keeps after a rejection without a computed token in them [block]
    """

    asked: Speculating
    rule: DraftRule
    load: Load
    tokens: float
    at_one: float
    at_batch: float
    shared: float
    with_drafts: Shared
    plain: Shared
    best_k: int
    best_shared: float
    losing: int | None
    launch: Launch
    alone: Points
    together: Points
    best: Points
    cells: tuple[MapCell, ...]
    budget_sequences: int
    kept_blocks: int
    explanation: Explanation


def busy_batch(case: Case) -> int:
    """Return the sequences in flight at the case's rate by Little's law, at most max_num_seqs and what the KV cache holds [seq]."""
    return case.in_flight(int(case.full_batch))


def rule_of(case: Case, asked: Speculating) -> DraftRule:
    """Return the drafts' rule on a case: what the drafter costs there, and the KV slots that the engine reserves for it."""
    drafter = DRAFTERS[asked.method]
    if asked.method == "ngram":
        return DraftRule(asked.acceptance)
    share = 1.0 / shard(case.deployment).layers if drafter.share is None else drafter.share
    draft = draft_costs(case.coefficients, share, drafter.head_share)
    return DraftRule(asked.acceptance, lookahead_tokens=len(asked.acceptance), draft=draft)


def load_of(case: Case, context_tokens: float) -> Load:
    """Return the case's requests with prompts stretched until a running sequence has so many tokens cached on average [token]."""
    output = float(case.lengths.output_mean_tokens)
    return Load(context_tokens, max(context_tokens - output / 2.0, 1.0), output, case.limits.max_num_batched_tokens)


def speculation_on(case: Case, asked: Speculating) -> CaseSpeculation:
    """Return what drafts gain on a case; a K of 0 is refused: that is plain decode."""
    if not asked.acceptance:
        raise InputError("draft_tokens", 0, "must be at least 1", "Give K, the drafts of a step")
    if asked.batch < 1:
        raise InputError("batch", asked.batch, "must be at least 1", "Give the sequences that decode together")
    c, context = case.coefficients, asked.context_tokens
    fixed = rule_of(case, asked)
    k = fixed.draft_tokens
    largest = max(case.limits.max_num_seqs, asked.batch)
    rule = replace(fixed, ranges=dynamic_ranges(context, fixed, c, largest))
    load = load_of(case, context)._replace(budget_tokens=max(case.limits.max_num_batched_tokens, asked.batch))
    best_k = best_drafts(float(asked.batch), context, fixed, c)
    ceiling = graph_ceiling_tokens(case.deployment.engine.version, case.deployment.gpu)
    captured = captured_sequences(ceiling, case.limits.max_num_seqs, k, case.limits.max_num_batched_tokens)
    launch_s = asked.layer_launch_s * shard(case.deployment).layers
    batches = sorted({*CURVE_BATCHES, asked.batch})
    found = CaseSpeculation(
        asked=asked,
        rule=rule,
        load=load,
        tokens=tokens_a_step(fixed.acceptance),
        at_one=decode_speedup(1.0, context, fixed, c),
        at_batch=decode_speedup(float(asked.batch), context, fixed, c),
        shared=shared_speedup(float(asked.batch), load, fixed, c),
        with_drafts=shared_decode(float(asked.batch), load, fixed, c),
        plain=shared_decode(float(asked.batch), load, with_drafts(fixed, 0), c),
        best_k=best_k,
        best_shared=shared_speedup(float(asked.batch), load, with_drafts(fixed, best_k), c),
        losing=losing_batch(context, fixed, c),
        launch=launch_cliff(captured, context, fixed, c, launch_s),
        alone=tuple((float(n), decode_speedup(float(n), context, fixed, c)) for n in batches),
        together=tuple((float(n), shared_speedup(float(n), load, fixed, c)) for n in batches),
        best=tuple(
            (float(n), decode_speedup(float(n), context, with_drafts(fixed, best_drafts(float(n), context, fixed, c)), c))
            for n in batches
        ),
        cells=speedup_map(context, fixed, c, _columns(asked.batch), MAP_ACCEPTANCES),
        budget_sequences=load.budget_tokens // (1 + k),
        kept_blocks=most_kept_blocks(fixed, case.limits),
        explanation=Explanation("", "", ""),
    )
    return replace(found, explanation=_explanation(found))


def _columns(batch: int) -> tuple[int, ...]:
    return tuple(sorted({*MAP_BATCHES, batch}))


def _explanation(found: CaseSpeculation) -> Explanation:
    asked, k = found.asked, found.rule.draft_tokens
    verb = "draft yields" if k == 1 else "drafts yield"
    loses = f"no batch up to {LARGEST_BATCH:,} loses" if found.losing is None else f"they lose from batch {found.losing:,}"
    if found.losing == 1:
        loses = "they lose at every batch"
    answer = (
        f"{k} {verb} {found.tokens:.3f} tokens a step: decode is {found.at_one:.2f} times as fast at batch 1 and "
        f"{found.at_batch:.2f} times at {asked.batch:,}; {loses}. With prefill in the same steps {asked.batch:,} sequences make "
        f"{found.shared:.2f} times the tokens."
    )
    terms = " + ".join(["1", *(f"{each:.4g}" for each in found.rule.survival())])
    if found.best_k == 0:
        setting = f"Leave drafts off at {asked.batch:,} sequences: plain decode is faster."
    elif found.best_k < k:
        setting = f"At {asked.batch:,} sequences K = {found.best_k} decodes fastest: let K fall as the batch grows."
    else:
        setting = f"K = {k} decodes fastest at {asked.batch:,} sequences; let it fall as the batch grows."
    return Explanation(answer, f"tokens a step = {terms} = {found.tokens:.3f}", setting)
