"""Head-of-line blocking: what short prompts pay behind a long one, and what serving the shortest first does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.analysis.explanation import Explanation
from planner.analysis.steps import prefill_s
from planner.errors import InputError
from planner.step_model import StepCoefficients
from planner.units import duration, plural

Order = Literal["fcfs", "shortest first"]


@dataclass(frozen=True, slots=True)
class BurstWaits:
    """TTFT of prompts that wait together and prefill one after the other.

    ttft_s : of each prompt in the order given [s]; mean_s : over all [s]; worst_s : of the last served [s]
    """

    order: Order
    ttft_s: tuple[float, ...]
    mean_s: float
    worst_s: float


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """A long prompt in front of short ones under two orders.

    long_prefill_s : what each short prompt behind it pays under first come, first served [s]
    fcfs, shortest_first : both orders; mean_gain : mean TTFT of the first over the second [1]
    long_delay_s : what the long prompt pays for being served last [s]
    """

    long_prefill_s: float
    fcfs: BurstWaits
    shortest_first: BurstWaits
    mean_gain: float
    long_delay_s: float
    explanation: Explanation


def burst_waits(prompt_tokens: Sequence[float], order: Order, c: StepCoefficients) -> BurstWaits:
    """Return TTFT of prompts that are all there at time 0, each prefilled in a step of its own.

    prompt_tokens : in the order of their arrival [token]; order : how they are served
    """
    if not prompt_tokens:
        raise InputError("prompt_tokens", prompt_tokens, "must hold at least one prompt", "Give the waiting prompts")
    service = np.array([prefill_s(tokens, c) for tokens in prompt_tokens])
    served = np.argsort(service, kind="stable") if order == "shortest first" else np.arange(len(service))
    ttft = np.empty_like(service)
    ttft[served] = np.cumsum(service[served])
    return BurstWaits(order, tuple(float(value) for value in ttft), float(ttft.mean()), float(ttft.max()))


def head_of_line(long_tokens: float, short_tokens: float, shorts: int, c: StepCoefficients) -> HeadOfLine:
    """Return what `shorts` short prompts pay behind one long prompt, and the gain of serving the shortest first.

    long_tokens, short_tokens : prompts [token]; shorts : how many short ones wait behind the long one [request]
    """
    if shorts < 1:
        raise InputError("shorts", shorts, "must be at least 1", "Give the short prompts that wait")
    waiting = [long_tokens, *([short_tokens] * shorts)]
    fcfs, shortest = burst_waits(waiting, "fcfs", c), burst_waits(waiting, "shortest first", c)
    blocked_s = prefill_s(long_tokens, c)
    delay_s = shortest.ttft_s[0] - fcfs.ttft_s[0]
    gain = fcfs.mean_s / shortest.mean_s
    waits = f"{blocked_s:.3f} s" if blocked_s >= 1.0 else duration(blocked_s)
    behind = "A short prompt" if shorts == 1 else f"Each of {shorts} short prompts"
    return HeadOfLine(
        blocked_s,
        fcfs,
        shortest,
        gain,
        delay_s,
        Explanation(
            f"{behind} behind a prompt of {plural(long_tokens, 'token')} waits {waits} for its prefill; shortest first "
            f"cuts mean TTFT by a factor of {gain:.1f} and delays the long one by {duration(delay_s)}.",
            f"{long_tokens:,.0f} tokens × {c.linear_s_per_token * 1e6:.2f} µs + {long_tokens:,.0f}²/2 pairs × "
            f"{c.prefill_s_per_pair * 1e9:.3f} ns + head = {waits}",
            "--long-prefill-token-threshold lets short prompts in between the chunks of a long one; vLLM itself has fcfs and "
            "priority.",
        ),
    )
