"""An H100's step costs and three request streams, shared by the tests of the mean-field model."""

import numpy as np

from planner.step_model import StepCoefficients

# Llama-3.1-8B in BF16 on one H100 SXM, with the efficiencies that the step model's evidence gives for it.
H100 = StepCoefficients(
    layers_s=32 * 54e-6,
    dense_weights_s=2 * 6_979_588_096 / (3.35e12 * 0.92),
    expert_weights_s=0.0,
    expert_miss_ratio=1.0,
    linear_s_per_token=2 * 6_979_588_096 / (989e12 * 0.78),
    head_weights_s=2 * 525_336_576 / (3.35e12 * 0.92),
    head_s_per_token=2 * 525_336_576 / (989e12 * 0.78),
    decode_s_per_context_token=131_072 / (3.35e12 * 0.92),
    decode_s_per_window_token=0.0,
    decode_s_per_sequence=0.0,
    prefill_s_per_pair=4 * 4096 * 32 / (989e12 * 0.78),
    prefill_s_per_window_pair=0.0,
    activation_s_per_token=0.0,
    all_reduce_s=0.0,
    all_reduce_s_per_token=0.0,
    host_s=1e-3,
    host_s_per_sequence=1e-5,
    mix_factor=1.0,
    inverse_p=0.5,
    window_tokens=0.0,
    host_overlap=1.0,
)


def rows(prompt_mean: float, prompt_cv: float, output_mean: float, output_cv: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw 30,000 pairs of gamma lengths from generator seed 3."""
    rng = np.random.default_rng(3)

    def side(mean: float, cv: float) -> np.ndarray:
        return np.maximum(np.rint(rng.gamma(1 / cv**2, mean * cv**2, 30_000)), 1)

    return side(prompt_mean, prompt_cv), side(output_mean, output_cv)


CHAT_ROWS = rows(1155, 0.96, 211, 0.77)
CODE_ROWS = rows(2048, 0.96, 28, 2.1)
ANSWER_ROWS = rows(400, 1.2, 2000, 1.0)
