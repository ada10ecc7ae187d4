"""Throughput, TPOT and goodput against the batch: why more tokens a second can serve nobody in time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.analysis.explanation import Explanation
from planner.analysis.steps import decode_step_s, require_positive, require_tokens
from planner.errors import InputError
from planner.step_model import StepCoefficients
from planner.units import percentage, plural

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class GoodputCurve:
    """Decode at growing batches of equal sequences; arrays of one length.

    batch : sequences [seq]; step_s : step, which is each sequence's TPOT [s]
    tokens_per_s : throughput; goodput_tokens_per_s : the same where TPOT meets the target, else 0 [token/s]
    """

    batch: Floats
    step_s: Floats
    tokens_per_s: Floats
    goodput_tokens_per_s: Floats


def goodput_curve(batch: npt.ArrayLike, context_tokens: float, tpot_s: float, c: StepCoefficients) -> GoodputCurve:
    """Return throughput and goodput by batch.

    batch : sequences, each at least 1 [seq]; context_tokens : tokens that each has cached [token]; tpot_s : target [s]
    """
    sequences = np.asarray(batch, dtype=np.float64)
    if len(sequences) == 0 or not bool(np.isfinite(sequences).all()) or bool((sequences < 1.0).any()):
        raise InputError("batch", batch, "must be finite and at least 1", "Give batch sizes")
    require_tokens("context_tokens", context_tokens, least=0.0)
    require_positive("tpot_s", tpot_s, "seconds")
    step_s = np.asarray(decode_step_s(sequences, context_tokens, c))
    tokens_per_s = sequences / step_s
    return GoodputCurve(sequences, step_s, tokens_per_s, np.where(step_s <= tpot_s, tokens_per_s, 0.0))


@dataclass(frozen=True, slots=True)
class BestBatch:
    """The batch with the largest goodput.

    batch : largest whole batch within the target [seq]; 0 when one sequence alone misses it
    step_s : its step, or that of one sequence when none will do [s]
    binds : True when the target stops it, False when the largest batch asked for still meets it
    """

    batch: int
    step_s: float
    binds: bool
    explanation: Explanation


def best_batch(context_tokens: float, tpot_s: float, c: StepCoefficients, largest: int = 2**20) -> BestBatch:
    """Return the largest batch whose step meets a TPOT target; throughput rises with the batch, so that it is the best.

    context_tokens : tokens that each sequence has cached [token]; tpot_s : target [s]; largest : batch to stop at [seq]
    """
    require_tokens("context_tokens", context_tokens, least=0.0)
    require_positive("tpot_s", tpot_s, "seconds")
    if largest < 1:
        raise InputError("largest", largest, "must be at least 1", "Give max_num_seqs or what the KV cache holds")

    def step(sequences: int) -> float:
        return float(decode_step_s(float(sequences), context_tokens, c))

    batch = largest_within(step, tpot_s, largest)
    step_s = step(max(batch, 1))
    context = plural(context_tokens, "token", f"{context_tokens:,.0f}")
    takes = "takes" if batch == 1 else "take"
    found = f"{plural(batch, 'sequence')} at {context} {takes} {step_s * 1e3:.2f} ms a step, within {tpot_s * 1e3:g} ms"
    none = f"one sequence at {context} already takes {step_s * 1e3:.2f} ms a step, over {tpot_s * 1e3:g} ms"
    return BestBatch(
        batch,
        step_s,
        batch < largest,
        Explanation(
            f"The best batch is {batch}: beyond it throughput still grows and goodput is 0."
            if batch
            else f"No batch will do: {none}.",
            found if batch else none,
            f"--max-num-seqs {batch}" if batch else "Use a faster GPU, more tensor parallelism or fewer weight bits.",
        ),
    )


def largest_within(value: Callable[[int], float], bound: float, largest: int) -> int:
    """Return the largest whole n from 1 to `largest` with value(n) ≤ bound, 0 when there is none; value rises with n."""
    if value(1) > bound:
        return 0
    low, high = 1, 2
    while high <= largest and value(high) <= bound:
        low, high = high, high * 2
    high = min(high, largest + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) <= bound else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Trade:
    """Two batches compared.

    throughput_gain : tokens/s of the larger over the smaller, minus 1 [1]; goodput : of the larger at the target [token/s]
    """

    smaller_step_s: float
    larger_step_s: float
    throughput_gain: float
    larger_goodput_tokens_per_s: float
    explanation: Explanation


def compare_batches(smaller: int, larger: int, context_tokens: float, tpot_s: float, c: StepCoefficients) -> Trade:
    """Return what a larger batch gains in throughput and does to goodput; tpot_s : target [s]."""
    curve = goodput_curve([smaller, larger], context_tokens, tpot_s, c)
    small_s, large_s = (float(value) for value in curve.step_s)
    gain = float(curve.tokens_per_s[1] / curve.tokens_per_s[0]) - 1.0
    goodput = float(curve.goodput_tokens_per_s[1])
    met = "meets" if goodput else "misses"
    return Trade(
        small_s,
        large_s,
        gain,
        goodput,
        Explanation(
            f"From {smaller} to {larger} sequences throughput changes by {percentage(gain, 1, signed=True)}; the larger {met} "
            f"{tpot_s * 1e3:g} ms, so its goodput is {goodput:.0f} tokens/s.",
            f"{larger}/{large_s * 1e3:.3f} ms against {smaller}/{small_s * 1e3:.3f} ms",
            "Compare configurations by goodput at the percentile that was promised, never by tokens per second alone.",
        ),
    )
