"""Speculation simulated: the case's engine with and without drafts on the same requests, at several batches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.served import all_at_once, stretch_prompts
from planner.analysis.speculation_case import load_of
from planner.analysis.speculation_map import Load, shared_speedup, tokens_a_step
from planner.errors import InputError
from planner.simulator import EngineLimits, SimulationOptions, simulate
from planner.simulator.speculative import DraftRule, SpeculativeRun, Verified, simulate_speculation
from planner.workloads import Requests

Floats = npt.NDArray[np.float64]

BATCHES = (8, 32, 128)
_OPTIONS = SimulationOptions(over_time=False)
_WAVES = 4
_LEAST_REQUESTS = 40
_MOST_ROWS = 60_000.0
_LEAST_WAVES = 2
_STREAM = 14


class BothRuns(NamedTuple):
    """The same requests with and without drafts, while more wait than run.

    batch : max_num_seqs of both; running : sequences in the batch with drafts, on average [seq]
    plain_tokens_per_s, tokens_per_s : output tokens without and with drafts [token/s]
    formula : speed-up by formula for these requests [1]
    requests : served in each run; left_out : of the workload, as they are longer than the KV cache or max_model_len [request]
    """

    batch: int
    running: float
    plain_tokens_per_s: float
    tokens_per_s: float
    formula: float
    requests: int
    left_out: int

    @property
    def speedup(self) -> float:
        """Throughput with drafts over without [1]."""
        return self.tokens_per_s / self.plain_tokens_per_s


@dataclass(frozen=True, slots=True)
class SimulatedSpeculation:
    """Runs by batch; asked : at the batch that was asked.

    tokens_a_row : tokens that a verification yields on average, over all runs [token]; rows : verifications
    budget_tokens, most_scheduled_tokens : a step's budget, and the most that one scheduled, at the batch asked [token]
    cut_drafts, made_drafts : drafts that the budget had no room for, and those verified, at the batch asked [token]
    stale_blocks : most KV blocks that a sequence kept after a rejection without a computed token in them [block]
    watched : verifications of one request at the batch asked
    dynamic : the same requests with the K of each batch chosen by `ranges`; None where no ranges were given
    """

    by_batch: tuple[BothRuns, ...]
    asked: BothRuns
    dynamic: BothRuns | None
    tokens_a_row: float
    rows: int
    budget_tokens: int
    most_scheduled_tokens: int
    cut_drafts: int
    made_drafts: int
    stale_blocks: int
    preemptions: int
    watched: tuple[Verified, ...]


def simulated_speculation(
    case: Case, asked: tuple[float, int], rule: DraftRule, told: Callable[[int, float], None] | None = None
) -> SimulatedSpeculation:
    """Serve the case's requests with and without drafts at the batch asked and at a few others; same case, same runs.

    asked : mean tokens cached for a running sequence, to which the workload's prompts are stretched [token], and the batch [seq]
    rule : with ranges, the batch asked is also run with them; the others keep K
    told : told of each batch before it runs, with the share of the work that is done [1]

    Raises InputError when not one request of so long a context fits the engine.
    """
    context_tokens, batch = asked
    fixed = replace(rule, ranges=())
    outputs = float(case.lengths.output_mean_tokens) / tokens_a_step(rule.acceptance)
    batches = sorted({batch, *(size for size in BATCHES if _count(size, outputs) * outputs <= _MOST_ROWS)})
    weights = np.cumsum([0.0, *(_count(size, outputs) * outputs for size in (*batches, batch))])
    pairs = []
    for position, size in enumerate(batches):
        if told is not None:
            told(size, float(weights[position] / weights[-1]))
        pairs.append(_both(case, context_tokens, size, fixed))
    if told is not None:
        told(batch, float(weights[-2] / weights[-1]))
    asked_run = pairs[batches.index(batch)][1]
    runs = [run for _, run in pairs]
    rows = sum(run.totals.rows for run in runs)
    accepted = sum(run.totals.accepted for run in runs)
    return SimulatedSpeculation(
        by_batch=tuple(found for found, _ in pairs),
        asked=pairs[batches.index(batch)][0],
        dynamic=_both(case, context_tokens, batch, rule)[0] if rule.ranges else None,
        tokens_a_row=1.0 + accepted / rows if rows else 1.0,
        rows=rows,
        budget_tokens=_limits(case, batch).max_num_batched_tokens,
        most_scheduled_tokens=asked_run.totals.most_scheduled,
        cut_drafts=asked_run.totals.cut,
        made_drafts=asked_run.totals.drafted,
        stale_blocks=max(run.totals.stale_blocks for run in runs),
        preemptions=sum(each.preemptions for each in asked_run.sequences),
        watched=tuple(asked_run.watched),
    )


def _limits(case: Case, batch: int) -> EngineLimits:
    budget = max(case.limits.max_num_batched_tokens, batch)
    return case.limits._replace(max_num_seqs=batch, max_num_batched_tokens=budget, enable_prefix_caching=False)


def _count(batch: int, rows_each: float) -> int:
    """Return how many requests to serve: some waves of the batch, fewer where each takes many verifications."""
    affordable = max(int(_MOST_ROWS / rows_each), 1)
    return max(min(max(_WAVES * batch, _LEAST_REQUESTS), affordable), _LEAST_WAVES * batch)


def _both(case: Case, context_tokens: float, batch: int, rule: DraftRule) -> tuple[BothRuns, SpeculativeRun]:
    limits = _limits(case, batch)
    load = load_of(case, context_tokens)
    count = _count(batch, load.output_tokens / tokens_a_step(rule.acceptance))
    requests = _requests(case, load, rule, count)
    run = simulate_speculation(requests, limits, case.coefficients, rule, np.random.default_rng([case.seed, _STREAM, batch]))
    plain = simulate(requests, limits, case.coefficients, _OPTIONS)
    times = [
        (each.first_scheduled_s or 0.0, each.first_token_s or 0.0, each.finish_s or 0.0, each.output_tokens)
        for each in run.sequences
    ]
    columns = np.array(times, np.float64).T
    drafted = refilled(columns[0], columns[1], columns[2], columns[3])
    without = refilled(plain.first_scheduled_s, plain.first_token_s, plain.finish_s, plain.output_tokens.astype(np.float64))
    served = load._replace(prompt_tokens=float(requests.prompt_tokens.mean()), output_tokens=float(requests.output_tokens.mean()))
    formula = shared_speedup(float(batch), served, rule, case.coefficients)
    return BothRuns(batch, drafted[1], without[0], drafted[0], formula, len(requests), count - len(requests)), run


def refilled(first_scheduled_s: Floats, first_token_s: Floats, finish_s: Floats, output_tokens: Floats) -> tuple[float, float]:
    """Return output tokens a second and sequences in the engine while it is refilled: from its first request's end until its last
    request enters [token/s], [seq].

    A request's tokens come evenly between its first and its last.
    """
    start_s, end_s = float(finish_s.min()), float(first_scheduled_s.max())
    if end_s <= start_s:
        start_s, end_s = float(first_scheduled_s.min()), float(finish_s.max())

    def brought(at_s: float) -> float:
        spans = np.maximum(finish_s - first_token_s, 1e-12)
        share = np.clip((at_s - first_token_s) / spans, 0.0, 1.0)
        return float(np.where(first_token_s <= at_s, 1.0 + share * (output_tokens - 1.0), 0.0).sum())

    lasted_s = end_s - start_s
    inside = np.clip(np.minimum(finish_s, end_s) - np.maximum(first_scheduled_s, start_s), 0.0, None)
    return (brought(end_s) - brought(start_s)) / lasted_s, float(inside.sum()) / lasted_s


def most_context_tokens(case: Case, drafts: int) -> float:
    """Return the largest mean context whose mean request fits the case's KV cache and max_model_len beside its drafts [token].

    drafts : of a step, at most [token]; a drafter may hold as many slots again
    """
    output = float(case.lengths.output_mean_tokens)
    whole = case.kv_tokens - (2.0 * (drafts + 1) + drafts)
    prompt = whole - output
    if case.limits.max_model_len is not None:
        prompt = min(prompt, case.limits.max_model_len - 1.0)
    return prompt + output / 2.0


def _requests(case: Case, load: Load, rule: DraftRule, count: int) -> Requests:
    """Return the workload's requests, stretched to the context, all waiting, without those that the engine could never hold."""
    drawn = all_at_once(stretch_prompts(case.requests(count), load.prompt_tokens / float(case.lengths.prompt_mean_tokens)))
    outputs = drawn.output_tokens
    if case.limits.max_model_len is not None:
        outputs = np.minimum(outputs, case.limits.max_model_len - drawn.prompt_tokens)
    spare = 2 * (rule.draft_tokens + 1) + rule.lookahead_tokens
    kept = (outputs >= 1) & (drawn.prompt_tokens + outputs + spare <= case.kv_tokens)
    if not kept.any():
        bound = f"leaves no request that the engine can hold: its KV cache has {case.kv_tokens:,} tokens"
        if case.limits.max_model_len is not None:
            bound += f", max_model_len is {case.limits.max_model_len:,}"
        raise InputError("context_tokens", load.context_tokens, bound, "Ask for a shorter context")
    return Requests(drawn.arrival_s[kept], drawn.prompt_tokens[kept], outputs[kept], drawn.class_index[kept], None, None)
