"""Little's law on an engine: how many requests are in flight when their number slows the steps that end them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from scipy.optimize import brentq

from planner.analysis.explanation import Explanation
from planner.analysis.steps import decode_step_s, prefill_s, require_positive, require_tokens
from planner.step_model import StepCoefficients

_MOST_SEQUENCES = 2.0**24


class Stream(NamedTuple):
    """Requests at a steady rate.

    rate_rps : arrivals [request/s]; prompt_tokens, output_tokens : mean of each [token]
    prompt_weight, output_weight : E[O·P] / (E[O]·E[P]) and E[O²] / E[O]² of their lengths [1]; 1 for equal requests. Requests with
        long outputs stay longer, so that a running sequence isn't the mean one.
    """

    rate_rps: float
    prompt_tokens: float
    output_tokens: float
    prompt_weight: float = 1.0
    output_weight: float = 1.0

    @property
    def running_context_tokens(self) -> float:
        """Mean tokens that a running sequence has cached, E[O·(P + O/2)] / E[O] [token]."""
        return self.prompt_weight * self.prompt_tokens + self.output_weight * self.output_tokens / 2.0


@dataclass(frozen=True, slots=True)
class InFlight:
    """The fixed point N = rate × duration(N).

    exists : False when duration grows too fast for any N: no steady state, the other figures are None
    in_flight : requests in the engine [request]; duration_s : of each [s]; step_s : decode step then [s]
    kv_bytes : keys and values that they hold [B]; kv_share : of the cache given [1], and fits : whether it holds them, None when
        none was given
    """

    exists: bool
    in_flight: float | None
    duration_s: float | None
    step_s: float | None
    kv_bytes: float | None
    kv_share: float | None
    fits: bool | None
    explanation: Explanation


def duration_s(in_flight: float, stream: Stream, c: StepCoefficients) -> float:
    """Return how long a request takes when `in_flight` are in the engine: its prefill and a step for each output token [s].

    Prefill is counted for the request itself and taken not to slow the others' steps; planner.queueing has that interplay.
    """
    step = float(decode_step_s(in_flight, stream.running_context_tokens, c))
    return prefill_s(stream.prompt_tokens, c) + stream.output_tokens * step


def in_flight(stream: Stream, kv_bytes_per_token: float, c: StepCoefficients, kv_capacity_bytes: float | None = None) -> InFlight:
    """Return how many requests are in flight, and whether the KV cache holds them.

    kv_bytes_per_token : of one GPU [B/token]; kv_capacity_bytes : of the same GPU [B], None to leave it out
    """
    require_positive("rate_rps", stream.rate_rps, "requests a second")
    require_tokens("prompt_tokens", stream.prompt_tokens)
    require_tokens("output_tokens", stream.output_tokens)
    require_positive("kv_bytes_per_token", kv_bytes_per_token, "bytes")
    number = fixed_point(lambda n: stream.rate_rps * duration_s(n, stream, c))
    if number is None:
        return InFlight(
            exists=False,
            in_flight=None,
            duration_s=None,
            step_s=None,
            kv_bytes=None,
            kv_share=None,
            fits=None,
            explanation=_no_point(stream),
        )
    step = float(decode_step_s(number, stream.running_context_tokens, c))
    kv_bytes = number * stream.running_context_tokens * kv_bytes_per_token
    share = None if kv_capacity_bytes is None else kv_bytes / kv_capacity_bytes
    fits = None if share is None else share <= 1.0
    held = "" if fits is None else " and the cache holds them" if fits else " and the cache does not hold them"
    return InFlight(
        exists=True,
        in_flight=number,
        duration_s=number / stream.rate_rps,
        step_s=step,
        kv_bytes=kv_bytes,
        kv_share=share,
        fits=fits,
        explanation=Explanation(
            f"{number:.2f} requests are in flight with {kv_bytes / 1e9:.2f} GB of keys and values{held}.",
            f"{stream.rate_rps:g}/s × ({prefill_s(stream.prompt_tokens, c) * 1e3:.2f} ms prefill + {stream.output_tokens:g} × "
            f"{step * 1e3:.3f} ms) = {number:.2f}",
            f"--max-num-seqs at least {int(number) + 1}, with room for the swings around the mean.",
        ),
    )


def fixed_point(rising: Callable[[float], float]) -> float | None:
    """Return the smallest n above 0 with rising(n) = n, None when rising(n) stays above n up to 2²⁴."""
    high = 1.0
    while rising(high) > high:
        high *= 2.0
        if high > _MOST_SEQUENCES:
            return None
    low = high / 2.0 if high > 1.0 else 0.0
    return float(brentq(lambda n: rising(n) - n, low, high, xtol=1e-12, rtol=1e-14))


def _no_point(stream: Stream) -> Explanation:
    return Explanation(
        f"At {stream.rate_rps:,g} requests a second there is no steady state: each request slows the others too much.",
        "rate × duration(N) stays above N for every N",
        "Lower the rate per replica: add replicas, or use a faster GPU.",
    )
