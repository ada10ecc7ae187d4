"""Admit only what will meet both targets: TPOT caps the chunk, the chunk caps prefill, prefill and TTFT cap the backlog."""

from dataclasses import dataclass
from typing import Literal

from planner.analysis.explanation import Explanation
from planner.analysis.goodput import largest_within
from planner.analysis.steps import Chunk, Decoders, decode_step_s, mixed_step_s, require_positive
from planner.errors import InputError
from planner.step_model import StepCoefficients

Verdict = Literal["admit", "TTFT would be missed", "TPOT would be missed"]

_MOST_TOKENS = 2**24


@dataclass(frozen=True, slots=True)
class ChunkLimit:
    """The largest prefill chunk beside decoders.

    chunk_tokens : largest whole chunk within the target [token]; 0 when decode alone misses it or no token fits
    step_s : step with that chunk [s]; prefill_tokens_per_s : prompt tokens a second at one such chunk per target time [token/s]
    """

    chunk_tokens: int
    step_s: float
    prefill_tokens_per_s: float
    explanation: Explanation


def largest_chunk(decoders: Decoders, tpot_s: float, c: StepCoefficients, past_tokens: float = 0.0) -> ChunkLimit:
    """Return the largest chunk of a prompt that keeps a step within a TPOT target.

    decoders : sequences that decode in the step; tpot_s : target [s]
    past_tokens : tokens of the prompt that are cached before the chunk, which its attention reads [token]
    """
    require_positive("tpot_s", tpot_s, "seconds")
    if past_tokens < 0.0:
        raise InputError("past_tokens", past_tokens, "must be at least 0", "Give tokens of the same prompt in the cache")
    chunk = largest_within(lambda n: mixed_step_s(decoders, Chunk(float(n), past_tokens), c), tpot_s, _MOST_TOKENS)
    step_s = mixed_step_s(decoders, Chunk(float(chunk), past_tokens), c) if chunk else _decode_s(decoders, c)
    rate = chunk / tpot_s
    return ChunkLimit(
        chunk,
        step_s,
        rate,
        Explanation(
            f"Beside {decoders.sequences:g} decoders a chunk may have {chunk} tokens, which gives {rate:,.0f} prompt tokens a "
            "second.",
            f"step({decoders.sequences:g} decoders at {decoders.context_tokens:g} + {chunk} tokens) = {step_s * 1e3:.3f} ms ≤ "
            f"{tpot_s * 1e3:g} ms; {chunk} / {tpot_s * 1e3:g} ms = {rate:,.0f} tokens/s",
            f"--max-num-batched-tokens {chunk + int(decoders.sequences)}"
            if chunk
            else "No chunk fits: admit nothing until sequences end, or loosen the TPOT target.",
        ),
    )


@dataclass(frozen=True, slots=True)
class AdmissionLimit:
    """What may wait for prefill when both targets are to hold.

    chunk : the chunk that TPOT allows; backlog_tokens : prompt tokens that may wait, the new prompt included [token]
    """

    chunk: ChunkLimit
    backlog_tokens: float
    explanation: Explanation


def admission_limit(
    decoders: Decoders, ttft_s: float, tpot_s: float, c: StepCoefficients, past_tokens: float = 0.0
) -> AdmissionLimit:
    """Return the backlog of prompt tokens that still meets a TTFT target; see largest_chunk for the other arguments.

    ttft_s : target [s]. Backlog = prefill tokens per second × TTFT.
    """
    require_positive("ttft_s", ttft_s, "seconds")
    chunk = largest_chunk(decoders, tpot_s, c, past_tokens)
    backlog = chunk.prefill_tokens_per_s * ttft_s
    return AdmissionLimit(
        chunk,
        backlog,
        Explanation(
            f"Up to {backlog:,.0f} prompt tokens may wait; a request beyond that would miss its first token.",
            f"{chunk.prefill_tokens_per_s:,.0f} tokens/s × {ttft_s:g} s",
            f"Reject or divert once waiting prompt tokens pass {backlog:,.0f} (--max-num-queued-tokens), with HTTP 429 and "
            "Retry-After.",
        ),
    )


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision on one request.

    verdict : admit, or the target that would be missed
    predicted_ttft_s : waiting prompt tokens and its own at the prefill rate [s]; None when nothing can be prefilled
    predicted_step_s : decode step with it among the decoders [s]
    """

    verdict: Verdict
    predicted_ttft_s: float | None
    predicted_step_s: float


def admit(
    prompt_tokens: float, backlog_tokens: float, decoders: Decoders, targets: tuple[float, float], c: StepCoefficients
) -> Admission:
    """Decide on a request by prediction.

    prompt_tokens : its prompt [token]; backlog_tokens : prompt tokens that wait before it [token]
    decoders : sequences that decode now; targets : TTFT and TPOT [s]
    """
    ttft_s, tpot_s = targets
    chunk = largest_chunk(decoders, tpot_s, c, past_tokens=prompt_tokens / 2.0)
    joined = decoders.sequences + 1.0
    context = (decoders.sequences * decoders.context_tokens + prompt_tokens) / joined
    step_s = float(decode_step_s(joined, context, c))
    if chunk.chunk_tokens == 0:
        return Admission("TPOT would be missed", None, step_s)
    predicted = (backlog_tokens + prompt_tokens) / chunk.prefill_tokens_per_s
    if step_s > tpot_s:
        return Admission("TPOT would be missed", predicted, step_s)
    return Admission("admit" if predicted <= ttft_s else "TTFT would be missed", predicted, step_s)


def _decode_s(decoders: Decoders, c: StepCoefficients) -> float:
    return float(decode_step_s(decoders.sequences, decoders.context_tokens, c))
