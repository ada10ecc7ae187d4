"""What a door can foretell of a request from what is inside: its first token, its time per output token, when to come back.

Plain formulas, called by Python and by the compiled loop alike.
"""

import math
from typing import NamedTuple

from planner.simulator.layout import Floats


class Forecast(NamedTuple):
    """What an engine is known to do, and what is asked of it.

    slots : sequences that run at once [seq]; leaving_rps : requests that leave a full batch [request/s]
    outside_s : what a request spends outside the engine [s]
    ttft_s : target of the first token as clients see it [s]; most_tpot_s : largest step that may be foretold [s], inf for any
    margin : by which the first token must be foretold earlier than its target [1]
    rates : prompt tokens computed a second beside 0, 1, ... sequences that decode [token/s]; 0 where none fits
    steps_s : steps with 0, 1, ... sequences in the batch [s]; both have slots + 1 elements
    """

    slots: int
    leaving_rps: float
    outside_s: float
    ttft_s: float
    most_tpot_s: float
    margin: float
    rates: Floats
    steps_s: Floats


class Inside(NamedTuple):
    """What is inside the engine when a request comes.

    unfinished : requests, without lower priorities that wait [request]; decoding : of them, past their first token [seq]
    waiting_prompt_tokens : prompts of those whose first token hasn't come, whole prompts as vLLM's own bound counts them [token]
    """

    unfinished: int
    decoding: int
    waiting_prompt_tokens: int


def foretold_ttft_s(forecast: Forecast, inside: Inside, prompt_tokens: int) -> float:
    """Return when a request's first token would come, as its client sees it [s]; NaN where no prompt token fits.

    The prompts before it and its own at the prefill rate; or, if longer, the wait for a place and its own prompt.
    """
    rate = forecast.rates[min(inside.decoding, forecast.slots - 1)]
    if rate <= 0.0:
        return math.nan
    places_s = max(inside.unfinished + 1 - forecast.slots, 0) / forecast.leaving_rps
    prompts_s = (inside.waiting_prompt_tokens + prompt_tokens) / rate
    return float(max(prompts_s, places_s + prompt_tokens / rate) + forecast.outside_s)


def foretold_tpot_s(forecast: Forecast, inside: Inside) -> float:
    """Return the step with one more in the batch, prompts flowing in as outputs end [s]."""
    return float(forecast.steps_s[min(inside.unfinished + 1, forecast.slots)])


def keeps_tpot(forecast: Forecast, tpot_s: float) -> bool:
    """Return whether a time per output token that was foretold is within what may be [s]."""
    return tpot_s <= forecast.most_tpot_s


def keeps_ttft(forecast: Forecast, ttft_s: float) -> bool:
    """Return whether a first token that was foretold [s] comes by its target with the margin; False for NaN."""
    return ttft_s * (1.0 + forecast.margin) <= forecast.ttft_s


def retry_after_s(forecast: Forecast, ttft_s: float) -> float:
    """Return when a client should come back: once the queue is short enough, in whole seconds, at least one [s].

    ttft_s : foretold [s]; NaN where none is, which gives the least
    """
    late_s = 0.0 if math.isnan(ttft_s) else ttft_s - forecast.ttft_s
    return float(math.ceil(max(late_s, 1.0)))


FORMULAS = (foretold_ttft_s, foretold_tpot_s, keeps_tpot, keeps_ttft, retry_after_s)
"""The formulas that the compiled loop calls."""
