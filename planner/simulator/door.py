"""Who comes into an engine: rules as data, which the compiled loop follows, and doors as functions, asked one request at a time."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.errors import InputError
from planner.simulator.forecast import Forecast, Inside, foretold_tpot_s, foretold_ttft_s, keeps_tpot, keeps_ttft, retry_after_s
from planner.simulator.layout import Floats

RuleKind = Literal["requests", "tokens", "predicted"]
Failing = Literal["reject", "queue", "batch class"]
RULE_KINDS: tuple[RuleKind, ...] = ("requests", "tokens", "predicted")
FAILING: tuple[Failing, ...] = ("reject", "queue", "batch class")


class Seen(NamedTuple):
    """What the door knows when a request comes.

    now_s : time [s]; request : position in the caller's requests; prompt_tokens : its prompt [token]
    unfinished, decoding, waiting_prompt_tokens : see `planner.simulator.forecast.Inside`
    """

    now_s: float
    request: int
    prompt_tokens: int
    unfinished: int
    decoding: int
    waiting_prompt_tokens: int

    @property
    def inside(self) -> Inside:
        """What the engine holds."""
        return Inside(self.unfinished, self.decoding, self.waiting_prompt_tokens)


class Answer(NamedTuple):
    """What the door says.

    admit : let it in; priority : with this rank, lower first, where the engine's policy is "priority"
    retry_after_s : what a rejected client is told [s]; failed : the rule was against it, even if it comes in all the same
    """

    admit: bool
    priority: int = 0
    retry_after_s: float = 0.0
    failed: bool = False


COME_IN = Answer(admit=True)
Door = Callable[[Seen], Answer]


@dataclass(frozen=True, slots=True, eq=False)
class DoorRule:
    """A rule at the door.

    kind : fewer than `bound` requests inside; fewer than `bound` prompt tokens that wait for their first token; or both targets
        foretold to hold
    forecast : what "predicted" goes by; with another kind what rejected clients are told to wait for, nothing where unset
    off_by : factor by which each request's prediction is off, by its position [1]; None: by none
    failing : who fails is rejected, or waits like the rest, or waits behind them with a lower priority
    """

    kind: RuleKind
    bound: int | None = None
    forecast: Forecast | None = None
    off_by: Floats | None = None
    failing: Failing = "reject"

    def __post_init__(self) -> None:
        for name, value, known in (("kind", self.kind, RULE_KINDS), ("failing", self.failing, FAILING)):
            if value not in known:
                raise InputError(name, value, f"must be one of {', '.join(known)}", "Choose one of these")
        if self.kind == "predicted":
            if self.forecast is None:
                raise InputError("forecast", None, "is needed to predict by", "Give one")
        elif self.bound is None or self.bound < 1:
            raise InputError("bound", self.bound, "must be at least 1", "Give the most that may be inside")
        forecast = self.forecast
        if forecast is not None and not len(forecast.rates) == len(forecast.steps_s) == forecast.slots + 1:
            raise InputError("forecast", len(forecast.rates), f"must have {forecast.slots + 1} rates and steps", "Give slots + 1")


def as_function(rule: DoorRule) -> Door:
    """Return a rule as a function that is asked one request at a time: what the compiled loop decides, in Python."""

    def door(seen: Seen) -> Answer:
        ttft_s = tpot_s = math.nan
        if rule.forecast is not None:
            factor = 1.0 if rule.off_by is None else float(rule.off_by[seen.request])
            ttft_s = foretold_ttft_s(rule.forecast, seen.inside, seen.prompt_tokens) * factor
            tpot_s = foretold_tpot_s(rule.forecast, seen.inside) * factor
        if _passes(rule, seen, (ttft_s, tpot_s)):
            return COME_IN
        if rule.failing != "reject":
            return Answer(admit=True, priority=int(rule.failing == "batch class"), failed=True)
        told_s = 0.0 if rule.forecast is None else retry_after_s(rule.forecast, ttft_s)
        return Answer(admit=False, retry_after_s=told_s, failed=True)

    return door


def _passes(rule: DoorRule, seen: Seen, foretold: tuple[float, float]) -> bool:
    ttft_s, tpot_s = foretold
    if rule.kind == "requests":
        return rule.bound is not None and seen.unfinished < rule.bound
    if rule.kind == "tokens":
        return rule.bound is not None and seen.waiting_prompt_tokens < rule.bound
    return rule.forecast is not None and keeps_tpot(rule.forecast, tpot_s) and keeps_ttft(rule.forecast, ttft_s)
