"""Load statements: arithmetic, inverse laws, refused figures."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.workloads import (
    LoadRate,
    TokensPerDay,
    load_workload,
    rate_from_requests_per_day,
    rate_from_split_tokens_per_day,
    rate_from_tokens_per_day,
    rate_from_users,
)

positive = st.floats(1e-3, 1e9)


@given(positive, st.floats(1, 5000), st.floats(1, 5000), st.floats(1, 20))
@settings(max_examples=60, deadline=None)
def test_tokens_and_requests_a_day_agree(rate: float, prompt: float, output: float, peak: float) -> None:
    by_tokens = rate_from_tokens_per_day(rate * 86400 * (prompt + output), prompt, output, peak)
    by_requests = rate_from_requests_per_day(rate * 86400, peak)
    by_sides = rate_from_split_tokens_per_day(TokensPerDay(rate * 86400 * prompt, rate * 86400 * output), prompt, output, peak)
    for load in (by_tokens, by_requests, by_sides):
        assert load == pytest.approx((rate, rate * peak))


def test_users() -> None:
    assert rate_from_users(6000, 0.1, 2, 3.01) == pytest.approx((20, 60.2))
    assert isinstance(rate_from_users(1, 1, 1, 1), LoadRate)


def test_the_days_mean_is_the_trap_that_the_peak_shows() -> None:
    """A code assistant with 10^9 tokens a day: the mean hides a busiest hour of 3.0 × and a minute of 3.5 ×."""
    workload = load_workload("code-assistant")
    stats = workload.length_stats()
    assert workload.peak_factor is not None
    load = rate_from_tokens_per_day(1e9, stats.prompt_mean_tokens, stats.output_mean_tokens, workload.peak_factor)
    assert load.mean_rps == pytest.approx(5.58, abs=0.01)
    assert load.peak_rps / load.mean_rps == pytest.approx(3.01)


def test_sides_that_disagree_name_the_length_that_would_fit() -> None:
    with pytest.raises(InputError, match="mean output of 50 tokens"):
        rate_from_split_tokens_per_day(TokensPerDay(1_000_000, 50_000), 1000, 100, 2)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e30])
def test_figures_out_of_bounds_are_named(value: float) -> None:
    with pytest.raises(InputError, match="users is"):
        rate_from_users(value, 0.1, 1, 2)
    with pytest.raises(InputError, match="active_share is"):
        rate_from_users(10, value, 1, 2)
    with pytest.raises(InputError, match="requests_per_active_user_per_minute is"):
        rate_from_users(10, 0.1, value, 2)
    with pytest.raises(InputError, match="peak_factor is"):
        rate_from_users(10, 0.1, 1, value)
    with pytest.raises(InputError, match="requests_per_day is"):
        rate_from_requests_per_day(value, 2)
    with pytest.raises(InputError, match="tokens_per_day is"):
        rate_from_tokens_per_day(value, 10, 10, 2)
    with pytest.raises(InputError, match="output_mean_tokens is"):
        rate_from_tokens_per_day(10, 10, value, 2)
    with pytest.raises(InputError, match=r"tokens_per_day\.prompt is"):
        rate_from_split_tokens_per_day(TokensPerDay(value, 1), 1, 1, 2)


def test_share_above_one_and_peak_below_one_are_refused() -> None:
    with pytest.raises(InputError, match=r"active_share is 1.5: must be above 0 and at most 1"):
        rate_from_users(10, 1.5, 1, 2)
    with pytest.raises(InputError, match=r"peak_factor is 0.5: must be from 1"):
        rate_from_users(10, 0.5, 1, 0.5)
