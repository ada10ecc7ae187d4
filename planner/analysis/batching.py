"""What continuous batching buys over static batching, and which token budget fits a step."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import Decoders, require_positive
from planner.errors import InputError
from planner.step_model import StepCoefficients, weights_s
from planner.units import MS, US, percentage
from planner.workloads import TokenLaw, expected_max_ratio
from planner.workloads.laws import Tokens

Side = Literal["below the knee", "at the knee", "past the knee"]

PUBLISHED_BUDGETS = (256, 512, 2048, 8192)
_MOST_KNEE_TOKENS = 2**31
_NEAR_KNEE = 1.5


@dataclass(frozen=True, slots=True)
class BatchingGain:
    """Continuous against static batching of B requests.

    batch : requests that start together and wait for the longest [request]
    gain : steps of the static batch ÷ mean output, E[max of B] / E[output]; the throughput that refilling at once multiplies [1]
    wasted_share : share of the static batch's rows that have already ended [1]
    """

    batch: int
    gain: float
    wasted_share: float
    explanation: Explanation


def harmonic_number(n: int) -> float:
    """Return 1 + 1/2 + … + 1/n, the mean of the longest of n exponential outputs over their mean [1].

    n : at least 1

    >>> round(harmonic_number(32), 6)
    4.058495
    """
    if n < 1:
        raise InputError("batch", n, "must be at least 1", "Give the number of requests in the static batch")
    return math.fsum(1.0 / k for k in range(1, n + 1))


def exponential_gain(batch: int) -> BatchingGain:
    """Return the gain when outputs are exponential: the harmonic number of the batch.

    The longest of B outputs waits for B, then B-1, … of them to end, which takes 1/B, 1/(B-1), … of a mean output.
    """
    return _gain(batch, harmonic_number(batch), f"1 + 1/2 + … + 1/{batch}")


def batching_gain(outputs: TokenLaw | Tokens, batch: int) -> BatchingGain:
    """Return the gain for a law or observed rows of output tokens; 1 when all outputs are alike.

    outputs : law of output tokens, or rows of them [token]; batch : at least 1 [request]
    """
    law = outputs if isinstance(outputs, TokenLaw) else TokenLaw.from_rows(outputs)
    ratio = expected_max_ratio(batch, law)
    return _gain(batch, ratio, f"E[longest of {batch}] / E[output] = {ratio * law.mean:.4g} / {law.mean:.4g} tokens")


def _gain(batch: int, ratio: float, formula: str) -> BatchingGain:
    wasted = 1.0 - 1.0 / ratio
    return BatchingGain(
        batch,
        ratio,
        wasted,
        Explanation(
            f"A static batch of {batch:,} decodes {ratio:.2f} times the steps of one that refills; {percentage(wasted)} of its "
            "rows idle.",
            f"{formula} = {ratio:.4g}",
            "Serve with continuous batching (every current engine does); without it, sort requests by length.",
        ),
    )


def ridge_tokens(flops_per_s: float, bytes_per_s: float, bytes_per_weight: float = 2.0) -> float:
    """Return the tokens of a step at which a layer's FLOPs take as long as its weights [token].

    flops_per_s, bytes_per_s : peak or achieved rates of one GPU; bytes_per_weight : 2 in 16 bit [B]

    Each weight is read once a step and multiplied and added once a token: peak · bytes / (2 · bandwidth).

    >>> round(ridge_tokens(989e12, 3.35e12), 1)
    295.2
    """
    require_positive("flops_per_s", flops_per_s, "FLOP/s")
    require_positive("bytes_per_s", bytes_per_s, "bytes/s")
    require_positive("bytes_per_weight", bytes_per_weight, "bytes")
    return flops_per_s * bytes_per_weight / (2.0 * bytes_per_s)


def knee_tokens(c: StepCoefficients) -> float:
    """Return the tokens of a step from which the linear layers are bound by compute [token].

    Solves weights time = FLOPs time. For a dense model that is a division; with routed experts the weights read grow with the
    tokens, and a bisection finds the crossing.
    """
    require_positive("linear_s_per_token", c.linear_s_per_token, "seconds per token")
    if c.expert_weights_s == 0.0:
        return c.dense_weights_s / c.linear_s_per_token
    low, high = 0.0, (c.dense_weights_s + c.expert_weights_s) / c.linear_s_per_token
    for _ in range(100):
        middle = (low + high) / 2.0
        if float(weights_s(max(middle, 1.0), c)) > c.linear_s_per_token * middle:
            low = middle
        else:
            high = middle
    return high


def knee_tokens_with_decoders(decoders: Decoders, c: StepCoefficients) -> int:
    """Return the least whole tokens of a step whose FLOPs take as long as all that decode reads [token].

    decoders : the sequences whose keys and values the step reads

    While FLOPs hide behind weights and KV reads, prefill chunks are nearly free; beyond, each further token lengthens every
    decoder's inter-token latency.
    """
    kv_s = c.decode_s_per_context_token * decoders.sequences * decoders.context_tokens
    kv_s += c.decode_s_per_sequence * decoders.sequences
    if c.window_tokens:
        kv_s += c.decode_s_per_window_token * decoders.sequences * min(decoders.context_tokens, c.window_tokens)
    tokens = knee_tokens(c) if c.expert_weights_s == 0.0 else (c.dense_weights_s + c.expert_weights_s) / c.linear_s_per_token
    whole = math.ceil(tokens + kv_s / c.linear_s_per_token)
    if whole > _MOST_KNEE_TOKENS:
        raise InputError(
            "decoders", decoders, "reads more than any step could compute meanwhile", "Give fewer or shorter sequences"
        )
    return whole


class BudgetPlace(NamedTuple):
    """Where a published token budget sits: knee multiples and side."""

    budget_tokens: int
    times_knee: float
    side: Side


@dataclass(frozen=True, slots=True)
class BudgetKnee:
    """Knees of the token budget, all in tokens.

    paper_tokens : from data-sheet peak and bandwidth; linear_tokens : from achieved rates
    with_decoders_tokens : where FLOPs equal weights and the decoders' KV together
    published : the budgets of published settings against the linear knee
    """

    paper_tokens: float
    linear_tokens: float
    with_decoders_tokens: int
    published: tuple[BudgetPlace, ...]
    explanation: Explanation


def budget_knee(paper_tokens: float, decoders: Decoders, c: StepCoefficients) -> BudgetKnee:
    """Return where the token budget's knees lie.

    paper_tokens : ridge_tokens of the data sheet [token]; decoders : sequences that decode beside the prefill
    """
    linear, joint = knee_tokens(c), knee_tokens_with_decoders(decoders, c)
    places = tuple(BudgetPlace(budget, budget / linear, _side(budget / linear)) for budget in PUBLISHED_BUDGETS)
    weights = c.dense_weights_s + c.expert_weights_s
    explanation = Explanation(
        f"The linear layers turn compute-bound at {linear:.1f} tokens a step; with {decoders.sequences:g} sequences that decode at "
        f"{decoders.context_tokens:g} tokens, FLOPs equal all reads at {joint} tokens.",
        f"{weights / MS:.4g} ms of weights / {c.linear_s_per_token / US:.4g} µs per token; the data sheet alone says "
        f"{paper_tokens:.1f}, as kernels reach less of peak compute than of bandwidth",
        "Take --max-num-batched-tokens from the TPOT target: below the knee prefill wastes weight reads, past it every token adds "
        "to inter-token latency.",
    )
    return BudgetKnee(paper_tokens, linear, joint, places, explanation)


def _side(times_knee: float) -> Side:
    if times_knee < 1.0 / _NEAR_KNEE:
        return "below the knee"
    return "past the knee" if times_knee > _NEAR_KNEE else "at the knee"
