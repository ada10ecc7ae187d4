"""What a token costs in GPU time, by hand: shares of a decode step, a prompt's attention with and without a window."""

import pytest

from planner.step_model import StepCoefficients
from planner.token_costs import token_costs_s

NOTHING = StepCoefficients(*(0.0 for _ in StepCoefficients._fields))._replace(mix_factor=1.0, host_overlap=1.0)


def test_a_prompt_token_costs_what_it_adds_to_a_full_step() -> None:
    c = NOTHING._replace(
        dense_weights_s=8e-3,
        linear_s_per_token=1e-5,
        prefill_s_per_pair=1e-9,
        activation_s_per_token=2e-6,
        all_reduce_s_per_token=3e-6,
    )
    prompt_s, _ = token_costs_s(c, 1.0, 1000.0, prompt_tokens=4000.0)
    assert prompt_s == pytest.approx(1e-5 + 1e-9 * 2000.0 + 2e-6 + 3e-6), "weights are read for others anyway"


def test_an_output_token_costs_its_share_of_a_decode_step() -> None:
    c = NOTHING._replace(dense_weights_s=8e-3, decode_s_per_context_token=1e-8)
    _, output_s = token_costs_s(c, 16.0, 1000.0, prompt_tokens=4000.0)
    assert output_s == pytest.approx((8e-3 + 1e-8 * 16 * 1000.0) / 16)


@pytest.mark.parametrize(("prompt_tokens", "seen"), [(50.0, 25.0), (100.0, 50.0), (400.0, 100.0 - 100.0**2 / 800.0)])
def test_tokens_see_at_most_a_window(prompt_tokens: float, seen: float) -> None:
    c = NOTHING._replace(
        linear_s_per_token=1e-5, prefill_s_per_window_pair=1e-7, decode_s_per_window_token=1e-7, window_tokens=100.0
    )
    prompt_s, output_s = token_costs_s(c, 4.0, 1000.0, prompt_tokens)
    assert prompt_s == pytest.approx(1e-5 + 1e-7 * seen)
    assert output_s == pytest.approx((4 * 1e-5 + 1e-7 * 4 * 100.0) / 4)
