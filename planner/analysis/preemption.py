"""Preempt by recompute or by swap: what a preempted sequence's keys and values cost to get back."""

from dataclasses import dataclass
from typing import NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import require_positive, require_tokens
from planner.attention_pairs import causal_pairs, window_pairs
from planner.errors import InputError
from planner.step_model import StepCoefficients


class Copies(NamedTuple):
    """How keys and values travel to host memory and back.

    bytes_per_s : achieved in one direction by large copies [B/s]
    copy_bytes : size of one copy [B]; None for copies so large that their latency vanishes
    latency_s : fixed time of one copy [s]
    """

    bytes_per_s: float
    copy_bytes: float | None = None
    latency_s: float = 0.0


def copy_bytes_per_s(copies: Copies) -> float:
    """Return the rate that copies of one size reach: size / (size / rate + latency) [B/s].

    >>> round(copy_bytes_per_s(Copies(55e9, 32768.0, 10e-6)) / 1e9, 3)
    3.093
    """
    require_positive("bytes_per_s", copies.bytes_per_s, "bytes/s")
    if copies.latency_s < 0.0:
        raise InputError("latency_s", copies.latency_s, "must be at least 0", "Give seconds")
    if copies.copy_bytes is None:
        return copies.bytes_per_s
    require_positive("copy_bytes", copies.copy_bytes, "bytes")
    return copies.copy_bytes / (copies.copy_bytes / copies.bytes_per_s + copies.latency_s)


def recompute_s(context_tokens: float, c: StepCoefficients, cached_tokens: float = 0.0) -> float:
    """Return the time to compute a context again beside other work [s].

    context_tokens : prompt and generated tokens [token]; cached_tokens : of them still in the prefix cache [token]

    Linear FLOPs and causal attention of what is not cached; weights are read for the other sequences of the step anyway.
    """
    require_tokens("context_tokens", context_tokens)
    if not 0.0 <= cached_tokens <= context_tokens:
        raise InputError(
            "cached_tokens", cached_tokens, "must be between 0 and the context", "Give tokens found in the prefix cache"
        )
    new = context_tokens - cached_tokens
    attention_s = c.prefill_s_per_pair * causal_pairs(cached_tokens, new)
    if c.window_tokens:
        attention_s += c.prefill_s_per_window_pair * window_pairs(cached_tokens, new, c.window_tokens)
    return new * (c.linear_s_per_token + c.activation_s_per_token + c.all_reduce_s_per_token) + attention_s


@dataclass(frozen=True, slots=True)
class SwapOrRecompute:
    """Both ways to restore a preempted sequence.

    recompute_s_per_token : linear work of one token [s/token]; transfer_s_per_token : one token's KV in one direction [s/token]
    one_way, round_trip : recompute ÷ copy in, and ÷ copy out and in [1]
    break_even_bytes_per_s : rate at which one copy takes as long as the recompute [B/s]
    recompute_s, swap_s : of the whole context, attention and both directions included [s]
    swap_wins : whether copying out and in is faster than computing again
    """

    recompute_s_per_token: float
    transfer_s_per_token: float
    one_way: float
    round_trip: float
    break_even_bytes_per_s: float
    recompute_s: float
    swap_s: float
    swap_wins: bool
    explanation: Explanation


def swap_or_recompute(
    context_tokens: float, kv_bytes_per_token: float, copies: Copies, c: StepCoefficients, cached_tokens: float = 0.0
) -> SwapOrRecompute:
    """Compare recomputing a context with copying its keys and values to the host and back.

    context_tokens : of the preempted sequence [token]; kv_bytes_per_token : on one GPU [B/token]
    cached_tokens : found again in the prefix cache, neither computed nor copied [token]
    """
    require_positive("kv_bytes_per_token", kv_bytes_per_token, "bytes")
    compute_s = c.linear_s_per_token + c.activation_s_per_token + c.all_reduce_s_per_token
    rate = copy_bytes_per_s(copies)
    copy_s = kv_bytes_per_token / rate
    whole_s = recompute_s(context_tokens, c, cached_tokens)
    swap_s = 2.0 * copy_s * (context_tokens - cached_tokens)
    break_even = kv_bytes_per_token / compute_s
    wins = swap_s < whole_s
    return SwapOrRecompute(
        compute_s,
        copy_s,
        compute_s / copy_s,
        compute_s / (2.0 * copy_s),
        break_even,
        whole_s,
        swap_s,
        wins,
        Explanation(
            f"{'Swapping' if wins else 'Recomputing'} is faster: {whole_s * 1e3:.1f} ms to compute {context_tokens:g} tokens "
            "again, "
            f"{swap_s * 1e3:.1f} ms to copy them out and in at {rate / 1e9:.2f} GB/s.",
            f"recompute {compute_s * 1e6:.2f} µs a token / copy {copy_s * 1e6:.3f} µs = {compute_s / copy_s:.2f} one way; "
            "break-even at "
            f"{break_even / 1e9:.3f} GB/s",
            "vLLM V1 recomputes. To swap, offload with copies of megabytes (--kv-offloading-size): copies of one block stay "
            "below the "
            "break-even rate.",
        ),
    )
