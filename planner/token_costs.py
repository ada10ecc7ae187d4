"""What a token costs in GPU time: the one weight that splits bills and shares service."""

from planner.attention_pairs import causal_pairs, window_pairs
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
    one = 1.0 / prompt_tokens if prompt_tokens else 0.0
    seen = one * causal_pairs(0.0, prompt_tokens)
    seen_in_window = one * window_pairs(0.0, prompt_tokens, c.window_tokens) if c.window_tokens else 0.0
    prompt_token_s = (
        c.linear_s_per_token
        + c.prefill_s_per_pair * seen
        + c.prefill_s_per_window_pair * seen_in_window
        + c.activation_s_per_token
        + c.all_reduce_s_per_token
    )
    return float(prompt_token_s), float(step) / running
