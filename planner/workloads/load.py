"""Ways to state load: people, requests a day, tokens a day. Each returns the mean and the peak rate.

The trap: a day's total ÷ 86,400 is the mean rate, and a service sized for its mean is too small. On public week-long traces the
busiest hour is 1.7 × (chat, Azure 2024 conversation) to 3.0 × the mean (code assistant, Azure 2024 code) and the busiest minute
1.9 × to 3.5 ×. So every function asks for a peak factor and has no default for it.
"""

import math
from typing import NamedTuple

from planner.errors import InputError
from planner.units import DAY_S, MINUTE_S

_SPLIT_TOLERANCE = 0.05


class LoadRate(NamedTuple):
    """Requests a second: mean over the day, and at the peak that the peak factor speaks of [request/s]."""

    mean_rps: float
    peak_rps: float


def rate_from_users(users: float, active_share: float, requests_per_active_user_per_minute: float, peak_factor: float) -> LoadRate:
    """Rate of a service from its people.

    users : people who have access [user]
    active_share : share of them active at once, averaged over the day [1], from above 0 to 1
    requests_per_active_user_per_minute : while active [request/min]
    peak_factor : busiest hour (or minute) ÷ mean [1], at least 1

    mean = users × active_share × requests_per_minute / 60. Valid when users act independently; sum the loads of groups
    that don't. Raises InputError for a figure out of bounds.

    >>> rate_from_users(10_000, 0.05, 0.6, 1.7)
    LoadRate(mean_rps=5.0, peak_rps=8.5)
    """
    _positive("users", users)
    _positive("active_share", active_share, at_most=1.0)
    _positive("requests_per_active_user_per_minute", requests_per_active_user_per_minute)
    return _with_peak(users * active_share * requests_per_active_user_per_minute / MINUTE_S, peak_factor)


def rate_from_requests_per_day(requests_per_day: float, peak_factor: float) -> LoadRate:
    """Rate from requests a day [request/day]; peak_factor : busiest hour (or minute) ÷ mean [1], at least 1.

    >>> rate_from_requests_per_day(864_000, 3.0)
    LoadRate(mean_rps=10.0, peak_rps=30.0)
    """
    _positive("requests_per_day", requests_per_day)
    return _with_peak(requests_per_day / DAY_S, peak_factor)


def rate_from_tokens_per_day(
    tokens_per_day: float, prompt_mean_tokens: float, output_mean_tokens: float, peak_factor: float
) -> LoadRate:
    """Rate from the day's prompt and output tokens together.

    tokens_per_day : prompt + output, cached prompt tokens included [token/day]
    prompt_mean_tokens, output_mean_tokens : of one request [token]
    peak_factor : busiest hour (or minute) ÷ mean [1], at least 1

    requests a day = tokens a day ÷ (prompt mean + output mean).

    >>> rate_from_tokens_per_day(864e6, 800, 200, 2.0)
    LoadRate(mean_rps=10.0, peak_rps=20.0)
    """
    _positive("tokens_per_day", tokens_per_day)
    _positive("prompt_mean_tokens", prompt_mean_tokens)
    _positive("output_mean_tokens", output_mean_tokens)
    return rate_from_requests_per_day(tokens_per_day / (prompt_mean_tokens + output_mean_tokens), peak_factor)


class TokensPerDay(NamedTuple):
    """Prompt and output tokens of a day, stated apart [token/day]."""

    prompt: float
    output: float


def rate_from_split_tokens_per_day(
    tokens_per_day: TokensPerDay, prompt_mean_tokens: float, output_mean_tokens: float, peak_factor: float
) -> LoadRate:
    """Rate from the day's prompt tokens and output tokens, stated apart.

    tokens_per_day : prompt and output tokens [token/day]
    prompt_mean_tokens, output_mean_tokens : of one request [token]
    peak_factor : busiest hour (or minute) ÷ mean [1], at least 1

    Each side implies a number of requests; they must agree within 5 %, else the lengths are not those of this load and an
    InputError says which output mean would fit. The mean of the two is returned.
    """
    _positive("tokens_per_day.prompt", tokens_per_day.prompt)
    _positive("tokens_per_day.output", tokens_per_day.output)
    _positive("prompt_mean_tokens", prompt_mean_tokens)
    _positive("output_mean_tokens", output_mean_tokens)
    by_prompt = tokens_per_day.prompt / prompt_mean_tokens
    by_output = tokens_per_day.output / output_mean_tokens
    if abs(by_prompt - by_output) > _SPLIT_TOLERANCE * max(by_prompt, by_output):
        fitting = tokens_per_day.output / by_prompt
        raise InputError(
            "output_mean_tokens",
            output_mean_tokens,
            f"must fit the prompts: {by_prompt:.6g} requests a day by prompts but {by_output:.6g} by outputs",
            f"Scale the lengths, for example to a mean output of {fitting:.4g} tokens",
        )
    return rate_from_requests_per_day((by_prompt + by_output) / 2, peak_factor)


def _with_peak(mean_rps: float, peak_factor: float) -> LoadRate:
    if not 1 <= peak_factor <= 1000:
        raise InputError("peak_factor", peak_factor, "must be from 1 to 1000", "Give busiest hour ÷ mean, for example 1.7 for chat")
    return LoadRate(mean_rps, mean_rps * peak_factor)


def _positive(field: str, value: float, at_most: float = 1e18) -> None:
    if not (math.isfinite(value) and 0 < value <= at_most):
        raise InputError(field, value, f"must be above 0 and at most {at_most:g}", "Give a finite figure")
