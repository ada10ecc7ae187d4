"""What a token costs in GPU time: the one weight that splits bills and shares service."""

from planner.step_model import StepCoefficients, StepShape, step_s


def token_costs_s(c: StepCoefficients, running: float, context_tokens: float, prompt_tokens: float) -> tuple[float, float]:
    """Return the GPU time of one prompt token and of one output token [s], [s].

    running : sequences that decode together, at least 1 [seq]
    context_tokens : tokens in the cache of each [token]
    prompt_tokens : length of a prompt [token]

    A prompt token costs what it adds to a step that is already compute-bound: its FLOPs in the linear layers, its share of the
    prompt's causal attention, activations and all-reduce. An output token costs its share of a decode step.
    """
    step = step_s(
        StepShape(
            scheduled_tokens=running,
            sampled_tokens=running,
            sequences=running,
            decode_sequences=running,
            decode_context_tokens=running * context_tokens,
            decode_window_tokens=running * min(context_tokens, c.window_tokens or context_tokens),
        ),
        c,
    )
    pairs = prompt_tokens / 2.0
    window_pairs = _pairs_in_window(prompt_tokens, c.window_tokens) if c.window_tokens else 0.0
    prompt_token_s = (
        c.linear_s_per_token
        + c.prefill_s_per_pair * pairs
        + c.prefill_s_per_window_pair * window_pairs
        + c.activation_s_per_token
        + c.all_reduce_s_per_token
    )
    return float(prompt_token_s), float(step) / running


def _pairs_in_window(prompt_tokens: float, window_tokens: float) -> float:
    """Return the keys that a token of a prompt sees within a sliding window, mean over the prompt [token]."""
    if prompt_tokens <= window_tokens:
        return prompt_tokens / 2.0
    return window_tokens - window_tokens**2 / (2.0 * prompt_tokens)
