"""Steps that the questions are made of: decode of equal sequences, a chunk of prefill beside them, a prompt on its own."""

from typing import NamedTuple

import numpy as np

from planner.attention_pairs import causal_pairs, window_pairs
from planner.errors import InputError
from planner.step_model import Number, StepCoefficients, StepShape, StepTime, step_s, step_time


class Decoders(NamedTuple):
    """Sequences that decode together.

    sequences : how many [seq]; context_tokens : mean tokens that each has in the KV cache [token]
    """

    sequences: float
    context_tokens: float


NO_DECODERS = Decoders(0.0, 0.0)


class Chunk(NamedTuple):
    """A chunk of one prompt.

    new_tokens : tokens that it computes [token]; past_tokens : of the same prompt in the KV cache already [token]
    ends_prompt : it is the last one, so that it samples the first output token
    """

    new_tokens: float
    past_tokens: float = 0.0
    ends_prompt: bool = False


def decode_step_s(sequences: Number, context_tokens: Number, c: StepCoefficients) -> Number:
    """Return the time of a step that decodes equal sequences [s].

    sequences : how many [seq]; context_tokens : tokens that each has in the KV cache [token]
    """
    return step_s(_decode_shape(sequences, context_tokens, c), c)


def decode_step(decoders: Decoders, c: StepCoefficients) -> StepTime:
    """Return the same step with its parts; at least one sequence decodes."""
    require_positive("sequences", decoders.sequences, "sequences")
    return step_time(_decode_shape(decoders.sequences, decoders.context_tokens, c), c)


def mixed_step_s(decoders: Decoders, chunk: Chunk, c: StepCoefficients) -> float:
    """Return the time of a step that decodes and computes one chunk of a prompt [s]."""
    return float(step_s(_mixed_shape(decoders, chunk, c), c))


def mixed_step(decoders: Decoders, chunk: Chunk, c: StepCoefficients) -> StepTime:
    """Return the same step with its parts."""
    return step_time(_mixed_shape(decoders, chunk, c), c)


def filled_step_s(decoders: Decoders, new_tokens: float, prompt_tokens: float, c: StepCoefficients) -> float:
    """Return the time of a step that decodes and computes so many tokens of equal prompts, whole ones and parts alike [s].

    new_tokens : of prompts, in this step [token]; prompt_tokens : of each prompt [token]

    A token attends half of its prompt on average, wherever chunks are cut; a part of a prompt finds half of the rest cached.
    """
    shape = _mixed_shape(decoders, Chunk(new_tokens, max(prompt_tokens - new_tokens, 0.0) / 2.0), c)
    seen_in_window = window_pairs(0.0, prompt_tokens, c.window_tokens) if c.window_tokens else 0.0
    ended = new_tokens / prompt_tokens
    shape = shape._replace(
        sampled_tokens=decoders.sequences + ended,
        sequences=decoders.sequences + max(ended, 1.0),
        prefill_pairs=ended * causal_pairs(0.0, prompt_tokens),
        prefill_window_pairs=ended * seen_in_window,
    )
    return float(step_s(shape, c))


def prefill_s(prompt_tokens: float, c: StepCoefficients, cached_tokens: float = 0.0) -> float:
    """Return the time of a prompt's prefill in a step of its own [s].

    prompt_tokens : the whole prompt [token]; cached_tokens : of them in the prefix cache, below the prompt [token]
    """
    require_tokens("prompt_tokens", prompt_tokens)
    if not 0.0 <= cached_tokens < prompt_tokens:
        raise InputError("cached_tokens", cached_tokens, "must be at least 0 and below the prompt", "The last token is computed")
    return mixed_step_s(NO_DECODERS, Chunk(prompt_tokens - cached_tokens, cached_tokens, ends_prompt=True), c)


def require_tokens(field: str, tokens: float, least: float = 1.0) -> None:
    """Raise InputError unless a token count is finite and at least `least`."""
    if not (np.isfinite(tokens) and tokens >= least):
        raise InputError(field, tokens, f"must be finite and at least {least:g}", "Give a number of tokens")


def require_positive(field: str, value: float, unit: str) -> None:
    """Raise InputError unless a figure is finite and above 0; unit : for the remedy."""
    if not (np.isfinite(value) and value > 0.0):
        raise InputError(field, value, "must be finite and above 0", f"Give it in {unit}")


def _mixed_shape(decoders: Decoders, chunk: Chunk, c: StepCoefficients) -> StepShape:
    base = _decode_shape(decoders.sequences, decoders.context_tokens, c)
    return base._replace(
        scheduled_tokens=base.scheduled_tokens + chunk.new_tokens,
        sampled_tokens=base.sampled_tokens + float(chunk.ends_prompt),
        sequences=base.sequences + 1.0,
        prefill_pairs=causal_pairs(chunk.past_tokens, chunk.new_tokens),
        prefill_window_pairs=window_pairs(chunk.past_tokens, chunk.new_tokens, c.window_tokens) if c.window_tokens else 0.0,
        prefill_context_tokens=chunk.past_tokens,
    )


def _decode_shape(sequences: Number, context_tokens: Number, c: StepCoefficients) -> StepShape:
    window = np.minimum(context_tokens, c.window_tokens) if c.window_tokens else 0.0
    return StepShape(
        scheduled_tokens=sequences,
        sampled_tokens=sequences,
        sequences=sequences,
        decode_sequences=sequences,
        decode_context_tokens=sequences * context_tokens,
        decode_window_tokens=sequences * window,
    )
