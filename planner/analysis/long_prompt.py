"""A long prompt arrives while others decode: what each step does, by formula."""

from dataclasses import dataclass
from typing import NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import Chunk, Decoders, decode_step_s, mixed_step_s, require_tokens
from planner.errors import InputError
from planner.step_model import StepCoefficients, StepShape, step_s
from planner.units import MS, duration

_MOST_CHUNKS = 100_000


class StepRow(NamedTuple):
    """One step: its number from 1, the chunk's tokens and the prompt's tokens cached before it [token], its length and end [s]."""

    number: int
    chunk_tokens: int
    past_tokens: int
    step_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """What decoders and new arrivals feel while a long prompt prefills.

    steps : every step of its prefill
    itl_before_s, itl_worst_s, itl_after_s : inter-token latency before, at worst, and while the long context decodes too [s]
    ttft_s : of the long prompt, from the start of its first step [s]
    lockout_s : until a new arrival can start with a whole budget: the long prefill [s]; 0 when each step leaves budget
    leftover_tokens : budget that the last chunk leaves to a new arrival in its step [token]
    """

    steps: tuple[StepRow, ...]
    itl_before_s: float
    itl_worst_s: float
    itl_after_s: float
    ttft_s: float
    lockout_s: float
    leftover_tokens: int
    explanation: Explanation


def long_prompt(
    prompt_tokens: int, decoders: Decoders, budget_tokens: int, c: StepCoefficients, threshold_tokens: int | None = None
) -> LongPrompt:
    """Return the steps of a long prompt's prefill.

    prompt_tokens : the long prompt [token]; decoders : whole sequences that decode meanwhile, their context held still
    budget_tokens : max_num_batched_tokens, decode rows come first [token]
    threshold_tokens : long_prefill_token_threshold [token]; None leaves the chunk all of the budget
    """
    require_tokens("prompt_tokens", prompt_tokens)
    chunk = budget_tokens - int(decoders.sequences)
    if chunk < 1:
        bound = f"must be above the {decoders.sequences:g} decode rows"
        raise InputError("budget_tokens", budget_tokens, bound, "Raise max_num_batched_tokens or lower max_num_seqs")
    if threshold_tokens is not None and threshold_tokens < 1:
        raise InputError("threshold_tokens", threshold_tokens, "must be at least 1", "Leave it unset for no threshold")
    size = chunk if threshold_tokens is None else min(chunk, threshold_tokens)
    if prompt_tokens > size * _MOST_CHUNKS:
        raise InputError("budget_tokens", budget_tokens, f"cuts the prompt into over {_MOST_CHUNKS} chunks", "Raise the budget")
    steps = _prefill_steps(prompt_tokens, decoders, size, c)
    before_s = float(decode_step_s(decoders.sequences, decoders.context_tokens, c))
    worst_s = max(row.step_s for row in steps)
    total_s = steps[-1].end_s
    after_s = _with_long_context_s(prompt_tokens, decoders, c)
    lockout_s = total_s if size == chunk else 0.0
    count = "1 step" if len(steps) == 1 else f"{len(steps):,} steps"
    held = f"new arrivals wait {duration(total_s)}" if lockout_s else "new arrivals share each step"
    return LongPrompt(
        steps,
        before_s,
        worst_s,
        after_s,
        total_s,
        lockout_s,
        chunk - steps[-1].chunk_tokens,
        Explanation(
            f"Inter-token latency goes from {_ms(before_s)} to {_ms(worst_s)} at worst, for {count}; {held}; afterwards it stays "
            f"at {_ms(after_s)} while the long context decodes.",
            f"{prompt_tokens:,} tokens in chunks of {size} = {budget_tokens:,} - {decoders.sequences:g} decode rows",
            "A smaller --max-num-batched-tokens bounds the worst step; --long-prefill-token-threshold lets others start in "
            "between.",
        ),
    )


def _ms(time_s: float) -> str:
    """Return times to compare, all in milliseconds.

    >>> _ms(0.009906), _ms(1.0963)
    ('9.91 ms', '1,096 ms')
    """
    return f"{time_s / MS:.3g} ms" if time_s < 1.0 else f"{time_s / MS:,.0f} ms"


def _prefill_steps(prompt_tokens: int, decoders: Decoders, size: int, c: StepCoefficients) -> tuple[StepRow, ...]:
    rows: list[StepRow] = []
    past, end_s = 0, 0.0
    while past < prompt_tokens:
        tokens = min(size, prompt_tokens - past)
        length_s = mixed_step_s(decoders, Chunk(float(tokens), float(past), past + tokens == prompt_tokens), c)
        end_s += length_s
        rows.append(StepRow(len(rows) + 1, tokens, past, length_s, end_s))
        past += tokens
    return tuple(rows)


def _with_long_context_s(prompt_tokens: int, decoders: Decoders, c: StepCoefficients) -> float:
    """Return the decode step once the long context is one of the sequences [s]."""
    sequences = decoders.sequences + 1.0
    window = c.window_tokens
    shape = StepShape(
        scheduled_tokens=sequences,
        sampled_tokens=sequences,
        sequences=sequences,
        decode_sequences=sequences,
        decode_context_tokens=decoders.sequences * decoders.context_tokens + prompt_tokens,
        decode_window_tokens=decoders.sequences * min(decoders.context_tokens, window) + min(float(prompt_tokens), window),
    )
    return float(step_s(shape, c))
