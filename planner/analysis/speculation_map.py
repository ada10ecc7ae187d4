"""Speculation over batch, acceptance and K: speed-up, break-even, the K of each batch, and what prefill in the same steps takes.

Drafts may be accepted more rarely the later they stand, and may cost a draft model's passes; with one acceptance and free drafts
the figures are those of planner.analysis.speculation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import poisson

from planner.analysis.speculation import verify_step_s
from planner.analysis.steps import decode_step_s
from planner.attention_pairs import causal_pairs, window_pairs
from planner.errors import InputError
from planner.simulator.speculative import DraftRule, drafting_s
from planner.step_model import StepCoefficients, StepShape, step_s

Floats = npt.NDArray[np.float64]

LARGEST_BATCH = 1024
MAP_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MAP_ACCEPTANCES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
_FULL = 1.0 - 1e-6


class Load(NamedTuple):
    """What the sequences are.

    context_tokens : mean cached for each [token]; prompt_tokens, output_tokens : of a request, on average [token]
    budget_tokens : max_num_batched_tokens [token]
    """

    context_tokens: float
    prompt_tokens: float
    output_tokens: float
    budget_tokens: int


def tokens_a_step(acceptance: Sequence[float]) -> float:
    """Return the tokens that a verification step yields on average [token]: 1 + a₁ + a₁a₂ + … + a₁a₂…a_K.

    acceptance : chance that the draft at each position is accepted, given those before it [1]

    >>> round(tokens_a_step((0.7,) * 4), 4), tokens_a_step(()), round(tokens_a_step((0.8, 0.5)), 2)
    (2.7731, 1.0, 2.2)
    """
    return 1.0 + math.fsum(np.cumprod(acceptance).tolist()) if acceptance else 1.0


def draft_costs(c: StepCoefficients, share: float, head_share: float) -> StepCoefficients:
    """Return the step costs of a draft model that is a share of its target; it runs inside the target's step, without host work.

    share : of the layers' weights, FLOPs, KV cache and launches, above 0 [1]; head_share : of the language-model head [1]

    EAGLE's and MTP's heads are about one layer of the target and its whole language-model head.
    """
    for field, value in (("share", share), ("head_share", head_share)):
        if not 0.0 < value <= 1.0:
            raise InputError(field, value, "must be above 0 and at most 1", "Give the draft's size over the target's")
    layer = {
        name: value * share
        for name, value in c._asdict().items()
        if (name.endswith("_s") or "_s_per_" in name) and not name.startswith("head_")
    }
    head = {"head_weights_s": c.head_weights_s * head_share, "head_s_per_token": c.head_s_per_token * head_share}
    without_host = {"mix_factor": 1.0, "host_s": 0.0, "host_s_per_sequence": 0.0, "exposed_host_s_per_sequence": 0.0}
    return c._replace(**(layer | head | without_host))


def with_drafts(rule: DraftRule, drafts: int) -> DraftRule:
    """Return the rule with its first drafts alone, at every batch."""
    lookahead = min(rule.lookahead_tokens, drafts)
    return replace(rule, acceptance=rule.acceptance[:drafts], ranges=(), lookahead_tokens=lookahead)


def verified_step_s(sequences: float, context_tokens: float, rule: DraftRule, c: StepCoefficients) -> float:
    """Return the time of a step that verifies K drafts of each sequence and makes the next ones [s]."""
    drafts = rule.draft_tokens
    verify_s = float(verify_step_s(sequences, context_tokens, drafts, c))
    rows = sequences * (1.0 + drafts)
    shape = StepShape(rows, rows, sequences, sequences, sequences * context_tokens, sequences * _window(context_tokens, c))
    return verify_s + float(drafting_s(shape, drafts, rule.draft))


def decode_speedup(sequences: float, context_tokens: float, rule: DraftRule, c: StepCoefficients) -> float:
    """Return decode throughput with drafts over without [1], in steps that hold no prefill; below 1 it loses."""
    plain_s = float(decode_step_s(sequences, context_tokens, c))
    return tokens_a_step(rule.acceptance) * plain_s / verified_step_s(sequences, context_tokens, rule, c)


class Shared(NamedTuple):
    """Decode that shares its steps with the prefill of the requests that follow.

    tokens_per_s : of output [token/s]
    decoding : sequences that decode in a step, fewer than asked where prompts set the pace [seq]
    prefill_tokens, room_tokens : prompt tokens of a mean step, and those that the budget leaves to them [token]
    """

    tokens_per_s: float
    decoding: float
    prefill_tokens: float
    room_tokens: float


def shared_decode(sequences: float, load: Load, rule: DraftRule, c: StepCoefficients) -> Shared:
    """Return output when every request that ends is followed by another one's prefill; sequences : max_num_seqs [seq].

    A step of n decoders ends n · E / output requests, whose successors need as many prompts: prefill = n · E · prompt / output
    tokens a step, and the decoders leave budget − n · (1 + K) to it. Where that is less, prompts set the pace: decoders become
    fewer until both are equal. Prompts start at random, so that some steps hold none and others as many as fit.
    """
    per_sequence = tokens_a_step(rule.acceptance)
    prompts_each = per_sequence * load.prompt_tokens / load.output_tokens
    rows_each = 1.0 + rule.draft_tokens
    decoding = min(sequences, load.budget_tokens / (rows_each + prompts_each))
    rows, prefill = decoding * rows_each, decoding * prompts_each
    room = load.budget_tokens - rows
    tokens, weights = _prompt_tokens(prefill, load.prompt_tokens, room)
    prompts = tokens / load.prompt_tokens
    window = window_pairs(0.0, load.prompt_tokens, c.window_tokens) if c.window_tokens else 0.0
    shape = StepShape(
        scheduled_tokens=rows + tokens,
        sampled_tokens=rows + prompts,
        sequences=decoding + np.ceil(prompts),
        decode_sequences=rows,  # so that drafts are no prefill to the KV reads' mix factor
        decode_context_tokens=np.full_like(tokens, decoding * load.context_tokens),
        decode_window_tokens=np.full_like(tokens, decoding * _window(load.context_tokens, c)),
        prefill_pairs=prompts * causal_pairs(0.0, load.prompt_tokens),
        prefill_window_pairs=prompts * window,
    )
    by_row = c._replace(decode_s_per_sequence=c.decode_s_per_sequence / rows_each)
    times = np.asarray(step_s(shape, by_row)) + np.asarray(drafting_s(shape, rule.draft_tokens, rule.draft))
    return Shared(decoding * per_sequence / float((weights * times).sum()), decoding, prefill, room)


def _prompt_tokens(mean_tokens: float, prompt_tokens: float, room_tokens: float) -> tuple[Floats, Floats]:
    """Return how many prompt tokens a step holds, with the chance of each: a Poisson number of prompts, cut at the room.

    What is cut comes in later steps, so that the number's mean is the one at which the tokens have the mean asked.
    """
    if mean_tokens >= _FULL * room_tokens:
        return np.array([mean_tokens]), np.array([1.0])
    most = math.ceil(room_tokens / prompt_tokens)
    counts = np.arange(most + 1, dtype=np.float64)
    tokens = np.minimum(counts * prompt_tokens, room_tokens)

    def chances(mean_prompts: float) -> Floats:
        exact = poisson.pmf(counts[:-1], mean_prompts)
        return np.append(exact, max(1.0 - float(exact.sum()), 0.0))

    def lacking(mean_prompts: float) -> float:
        return float((chances(mean_prompts) * tokens).sum()) - mean_tokens

    high = max(mean_tokens / prompt_tokens, 1e-9)
    while lacking(high) < 0.0:
        high *= 2.0
    return tokens, chances(float(brentq(lacking, 0.0, high)))


def shared_speedup(sequences: float, load: Load, rule: DraftRule, c: StepCoefficients) -> float:
    """Return output tokens a second with drafts over without, prefills in the same steps [1]; sequences : max_num_seqs [seq]."""
    plain = shared_decode(sequences, load, with_drafts(rule, 0), c)
    return shared_decode(sequences, load, rule, c).tokens_per_s / plain.tokens_per_s


def losing_batch(context_tokens: float, rule: DraftRule, c: StepCoefficients, largest: int = LARGEST_BATCH) -> int | None:
    """Return the least batch from which drafts lose to plain decode [seq]; None where they never do up to the largest."""
    return next((n for n in range(1, largest + 1) if decode_speedup(float(n), context_tokens, rule, c) < 1.0), None)


def best_drafts(sequences: float, context_tokens: float, rule: DraftRule, c: StepCoefficients) -> int:
    """Return the K from 0 to the rule's own that decodes fastest at a batch; of equals the smallest [token]."""
    return max(range(rule.draft_tokens + 1), key=lambda k: (decode_speedup(sequences, context_tokens, with_drafts(rule, k), c), -k))


def dynamic_ranges(context_tokens: float, rule: DraftRule, c: StepCoefficients, largest: int) -> tuple[tuple[int, int, int], ...]:
    """Return the best K of every batch as ranges: first batch, last batch, K; the best K falls as the batch grows.

    largest : batch to go up to [seq], such as max_num_seqs
    """
    ranges: list[tuple[int, int, int]] = []
    first = 1
    while first <= largest:
        drafts = best_drafts(float(first), context_tokens, rule, c)
        low, high = first, largest
        while low < high:
            middle = (low + high + 1) // 2
            if best_drafts(float(middle), context_tokens, rule, c) >= drafts:
                low = middle
            else:
                high = middle - 1
        ranges.append((first, low, drafts))
        first = low + 1
    return tuple(ranges)


@dataclass(frozen=True, slots=True)
class MapCell:
    """Speed-up at one batch and acceptance [1]; drafts : the K at which it is fastest there."""

    batch: int
    acceptance: float
    speedup: float
    best_drafts: int


def speedup_map(
    context_tokens: float, rule: DraftRule, c: StepCoefficients, batches: Sequence[int], acceptances: Sequence[float]
) -> tuple[MapCell, ...]:
    """Return the speed-up of the rule's K over batch and one acceptance for all positions."""
    cells = []
    for acceptance in acceptances:
        same = replace(rule, acceptance=(acceptance,) * rule.draft_tokens)
        cells += [
            MapCell(
                n,
                acceptance,
                decode_speedup(float(n), context_tokens, same, c),
                best_drafts(float(n), context_tokens, same, c),
            )
            for n in batches
        ]
    return tuple(cells)


def captured_sequences(ceiling_tokens: int, max_num_seqs: int, draft_tokens: int, budget_tokens: int) -> int:
    """Return the largest batch that runs from a captured CUDA graph [seq].

    ceiling_tokens : most tokens of a captured batch, 512 on most GPUs [token]; budget_tokens : max_num_batched_tokens [token]

    vLLM captures up to min(max_num_seqs · (1 + K) · 2, ceiling, budget) tokens, and a verified sequence is 1 + K of them.

    >>> captured_sequences(512, 256, 0, 8192), captured_sequences(512, 256, 3, 8192)
    (512, 128)
    """
    rows = 1 + draft_tokens
    return min(max_num_seqs * rows * 2, ceiling_tokens, budget_tokens) // rows


class Launch(NamedTuple):
    """A verification just past the captured graphs.

    sequences : largest batch with a graph [seq]; launch_s : least time of a step whose layers are launched one by one [s]
    graph_s, eager_s : step time just past it if it had a graph, and without one: launches hide behind the GPU's work or set the
        pace [s]
    """

    sequences: int
    launch_s: float
    graph_s: float
    eager_s: float


def launch_cliff(captured: int, context_tokens: float, rule: DraftRule, c: StepCoefficients, launch_s: float) -> Launch:
    """Return what the end of the captured graphs costs; launch_s : time to launch all layers of a step from the host [s]."""
    graph_s = verified_step_s(captured + 1.0, context_tokens, rule, c)
    return Launch(captured, launch_s, graph_s, max(graph_s, launch_s))


def _window(context_tokens: float, c: StepCoefficients) -> float:
    return min(context_tokens, c.window_tokens) if c.window_tokens else 0.0
