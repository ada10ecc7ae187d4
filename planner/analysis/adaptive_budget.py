"""A token budget that follows the load against the best fixed one, over a day whose rate and prompts drift."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.served import Served, saturated_rps, serve, served, targets_of, with_knobs
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.simulator import Estimate, over_replications, percentile_s
from planner.simulator.adaptive import AdaptiveResult, Observation, Range, simulate_adaptive
from planner.units import percentage, signed_figure
from planner.workloads import RateProfile, Requests, load_profile

Floats = npt.NDArray[np.float64]
OnBreach = Literal["lower", "lower when nobody waits"]
Outcome = Literal["beats", "loses to", "equals"]

BUDGETS = (256, 512, 768, 1024, 2048, 4096, 8192)
DAYS = 4
PROFILE = "azure-conversation-2024"
HOURS = 24
_MIX_STREAM = 12
_PERCENTILE = 95.0
_BUSY_SHARE = 0.6


class Day(NamedTuple):
    """A day in small: the hours of a recorded weekday, each as long as its share of the requests needs.

    requests : of the whole day; mean_rps : mean rate [request/s]
    long_share : share of requests with longer prompts at the height [1]; long_factor : how much longer [1]
    """

    requests: int
    mean_rps: float
    long_share: float
    long_factor: float


class Rule(NamedTuple):
    """The controller: at the end of each interval it raises the budget while the queue is deep and lowers it on a breach.

    interval_s : between decisions [s]; deep_requests : waiting requests from which the queue counts as deep
    tpot_s : the p95 TPOT of requests that ended in the interval must stay within [s]; step : factor up, and its inverse down [1]
    on_breach : lower in any case, or only when the queue isn't deep, else raise
    """

    interval_s: float
    deep_requests: int
    tpot_s: float
    step: float
    on_breach: OnBreach


def controller(rule: Rule, least: int, largest: int) -> Callable[[Observation], int]:
    """Return the rule as a controller between two budgets [token]."""
    if not 1.0 < rule.step <= 8.0:
        raise InputError("step", rule.step, "must be above 1 and at most 8", "Give a factor such as 1.5")
    if rule.deep_requests < 1:
        raise InputError("deep_requests", rule.deep_requests, "must be at least 1", "Give a number of waiting requests")

    def decide(seen: Observation) -> int:
        deep = seen.waiting >= rule.deep_requests
        breached = len(seen.tpot_s) > 0 and percentile_s(seen.tpot_s, _PERCENTILE) > rule.tpot_s
        if breached and not (deep and rule.on_breach == "lower when nobody waits"):
            return max(least, int(seen.budget_tokens / rule.step))
        if deep:
            return min(largest, max(int(seen.budget_tokens * rule.step), seen.budget_tokens + 1))
        return seen.budget_tokens

    return decide


def weekday(profile: RateProfile) -> Floats:
    """Return the first day's hourly factors with mean 1 [1]."""
    hours = profile.hourly[:HOURS]
    return np.asarray(hours / hours.mean())


def long_prompt_share(day: Day, share_of_day: Floats) -> Floats:
    """Return the share of longer prompts at times of the day, 0 at both ends and in the middle, highest at 6 and 18 o'clock [1].

    share_of_day : 0 at midnight, 1 at the next [1]
    """
    return day.long_share * (0.5 - 0.5 * np.cos(4.0 * np.pi * share_of_day))


def day_of_requests(case: Case, day: Day, seed: int) -> Requests:
    """Return a day's requests: arrivals of the workload's own kind, warped to the profile's hours, some with longer prompts.

    Prompts stay within max_model_len, output included.
    """
    base = replace(case, seed=seed).requests(day.requests, day.mean_rps)
    length_s = day.requests / day.mean_rps
    edges_s = np.linspace(0.0, length_s, HOURS + 1)
    passed = np.concatenate([[0.0], np.cumsum(weekday(load_profile(PROFILE)))]) / HOURS
    arrival_s = np.interp(base.arrival_s / max(float(base.arrival_s[-1]), length_s), passed, edges_s)
    rng = np.random.default_rng([seed, _MIX_STREAM])
    longer = rng.random(len(base)) < long_prompt_share(day, arrival_s / length_s)
    prompts = np.where(longer, np.rint(base.prompt_tokens * day.long_factor), base.prompt_tokens).astype(np.int64)
    most = case.kv_tokens if case.limits.max_model_len is None else min(case.limits.max_model_len, case.kv_tokens)
    prompts = np.maximum(np.minimum(prompts, most - base.output_tokens), 1)
    return replace(base, arrival_s=arrival_s, prompt_tokens=prompts, cached_prompt_tokens=None)


class DayRun(NamedTuple):
    """One setting over all days; budget : None for the adaptive one [token].

    good_share : requests within both targets, of each day [1]; e2e_mean_s : of each day [s]; run : figures of the first day
    """

    budget: int | None
    good_share: tuple[float, ...]
    e2e_mean_s: tuple[float, ...]
    run: Served

    @property
    def mean_good_share(self) -> float:
        """Mean over the days [1]."""
        return float(np.mean(self.good_share))

    @property
    def mean_e2e_s(self) -> float:
        """Mean over the days [s]."""
        return float(np.mean(self.e2e_mean_s))


class HourFigures(NamedTuple):
    """One hour of the first day: requests a second [request/s] and mean prompt [token]."""

    hour: int
    rate_rps: float
    prompt_tokens: float


@dataclass(frozen=True, slots=True)
class AdaptiveDay:
    """The adaptive budget and fixed ones over the same days.

    fixed : by budget; best : of them by goodput, chosen knowing all days; own : the case's own budget
    difference, e2e_difference : adaptive less the best, in good share [1] and in mean E2E [s], over the days, with interval
    budget_steps : when the first day's budget changed [s], and to what [token]
    hours : of the first day; length_s : of a day [s]; least, largest : budgets that the controller moves between [token]
    """

    fixed: tuple[DayRun, ...]
    adaptive: DayRun
    best: DayRun
    own: DayRun | None
    difference: Estimate
    e2e_best: DayRun
    e2e_difference: Estimate
    budget_steps: tuple[tuple[float, int], ...]
    hours: tuple[HourFigures, ...]
    length_s: float
    least: int
    largest: int

    @property
    def outcome(self) -> Outcome:
        """Whether the adaptive budget's goodput is above or below the best fixed one's by more than the interval."""
        low, high = self.difference.low, self.difference.high
        if low is not None and low > 0.0:
            return "beats"
        return "loses to" if high is not None and high < 0.0 else "equals"

    @property
    def beaten(self) -> int:
        """How many of the fixed budgets the adaptive one's goodput is above by more than the interval."""
        gains = [_difference(self.adaptive.good_share, run.good_share) for run in self.fixed]
        return sum(gain.low is not None and gain.low > 0.0 for gain in gains)


def adaptive_day(
    case: Case, day: Day, rule: Rule, ttft_s: float, tell: Callable[[str, float], None] = lambda _text, _share: None
) -> AdaptiveDay | None:
    """Return the comparison over `DAYS` independent days; None when some setting serves nothing.

    ttft_s : a request is good when its TTFT is within this and its TPOT within the rule's [s]

    All settings share max_num_seqs (at most the smallest budget, as the engine demands) and the KV cache that the largest budget
    leaves, so that they differ by the budget alone.
    """
    engine = _engine(case)
    if engine is None:
        return None
    budgets = _budgets(case, engine.limits.max_num_batched_tokens)
    targets = targets_of(ttft_s, rule.tpot_s)
    days = [day_of_requests(engine, day, case.seed + index) for index in range(DAYS)]
    tell(f"Serving {DAYS} days with {len(budgets)} fixed budgets", 0.1)
    cells = [(budget, requests) for budget in budgets for requests in days]
    runs = in_parallel(lambda cell: serve(engine.with_limits(max_num_batched_tokens=cell[0]), cell[1], targets), cells)
    tell(f"Serving {DAYS} days with the adaptive budget", 0.6)
    allowed = Range(budgets[0], _first(case, budgets), rule.interval_s)
    moved = _moved(engine, days, allowed, rule)
    adaptive = _day_run(None, [served(engine.seen_by_clients(each.result), targets) for each in moved])
    fixed = [_day_run(budget, runs[index * DAYS : (index + 1) * DAYS]) for index, budget in enumerate(budgets)]
    known = tuple(run for run in fixed if run is not None)
    if adaptive is None or len(known) < len(fixed):
        return None
    return _compared(known, adaptive, _Setting(case, day, budgets, days[0], moved[0]))


class _Setting(NamedTuple):
    case: Case
    day: Day
    budgets: tuple[int, ...]
    requests: Requests
    moved: AdaptiveResult


def _engine(case: Case) -> Case | None:
    """Return the case with the largest budget that starts, and no more sequences than the smallest budget takes."""
    seqs = min(case.limits.max_num_seqs, BUDGETS[0])
    for budget in sorted({*BUDGETS, case.limits.max_num_batched_tokens}, reverse=True):
        engine = with_knobs(case, seqs, budget)
        if engine is not None:
            return engine
    return None


def _budgets(case: Case, largest: int) -> tuple[int, ...]:
    found = sorted({*BUDGETS, case.limits.max_num_batched_tokens})
    return tuple(budget for budget in found if BUDGETS[0] <= budget <= largest)


def _first(case: Case, budgets: tuple[int, ...]) -> int:
    """Return the budget that the controller starts from: the case's own."""
    return min(max(case.limits.max_num_batched_tokens, budgets[0]), budgets[-1])


def _moved(engine: Case, days: list[Requests], allowed: Range, rule: Rule) -> list[AdaptiveResult]:
    """Return each day under the controller, one after the other: it runs in Python, which takes one core at a time."""
    decide = controller(rule, allowed.least, engine.limits.max_num_batched_tokens)
    return [simulate_adaptive(each, engine.limits, engine.coefficients, allowed, decide) for each in days]


def _day_run(budget: int | None, runs: Sequence[Served | None]) -> DayRun | None:
    found = [run for run in runs if run is not None]
    if len(found) < len(runs):
        return None
    return DayRun(budget, tuple(run.good_share for run in found), tuple(run.e2e_mean_s for run in found), found[0])


def _compared(fixed: tuple[DayRun, ...], adaptive: DayRun, setting: _Setting) -> AdaptiveDay:
    best = max(fixed, key=lambda run: run.mean_good_share)
    quickest = min(fixed, key=lambda run: run.mean_e2e_s)
    return AdaptiveDay(
        fixed=fixed,
        adaptive=adaptive,
        best=best,
        own=next((run for run in fixed if run.budget == setting.case.limits.max_num_batched_tokens), None),
        difference=_difference(adaptive.good_share, best.good_share),
        e2e_best=quickest,
        e2e_difference=_difference(adaptive.e2e_mean_s, quickest.e2e_mean_s),
        budget_steps=tuple(zip(setting.moved.at_s.tolist(), setting.moved.budget_tokens.tolist(), strict=True)),
        hours=_hours(setting.requests, setting.day),
        length_s=setting.day.requests / setting.day.mean_rps,
        least=setting.budgets[0],
        largest=setting.budgets[-1],
    )


def _difference(mine: Sequence[float], its: Sequence[float]) -> Estimate:
    return over_replications([one - other for one, other in zip(mine, its, strict=True)])


def _hours(requests: Requests, day: Day) -> tuple[HourFigures, ...]:
    """Return the rate and the mean prompt of each hour."""
    hour_s = day.requests / day.mean_rps / HOURS
    hours = np.minimum(requests.arrival_s // hour_s, HOURS - 1).astype(int)
    counts = np.bincount(hours, minlength=HOURS)
    prompts = np.bincount(hours, weights=requests.prompt_tokens, minlength=HOURS) / np.maximum(counts, 1)
    return tuple(HourFigures(hour, float(counts[hour]) / hour_s, float(prompts[hour])) for hour in range(HOURS))


def adaptive_explanation(found: AdaptiveDay, rule: Rule, ttft_s: float) -> Explanation:
    """Return whether the adaptive budget was worth it, with the measured difference."""
    best, points = found.best, abs(found.difference.value) * 100.0
    interval = ""
    if found.difference.low is not None and found.difference.high is not None:
        interval = f" (95\N{NO-BREAK SPACE}% interval {_points(found.difference.low)} to {_points(found.difference.high)} points)"
    mine, its = percentage(found.adaptive.mean_good_share, 1), percentage(best.mean_good_share, 1)
    shares = f"{mine} of requests within both targets against {its}"
    if found.outcome == "beats":
        answer = f"The adaptive budget beats the best fixed one, {best.budget:,}, by {points:.1f} points{interval}: {shares}"
    elif found.outcome == "loses to":
        answer = f"The adaptive budget loses to a fixed {best.budget:,} by {points:.1f} points{interval}: {shares}"
    else:
        answer = f"The adaptive budget gains nothing measurable over a fixed {best.budget:,}: {shares}{interval}"
    held = "keep" if found.outcome != "beats" else "without it, keep"
    return Explanation(
        answer,
        f"good = TTFT ≤ {ttft_s:g} s and TPOT ≤ {rule.tpot_s * 1e3:g} ms; difference by day: "
        + ", ".join(_points(a - b) for a, b in zip(found.adaptive.good_share, best.good_share, strict=True))
        + " points",
        f"The engine reads its token budget once, at start: no release of vLLM can move it while it runs; {held} the fixed budget",
    )


def _points(share: float) -> str:
    return signed_figure(share * 100.0)


def usual_rate_rps(case: Case) -> float:
    """Return the mean rate of a day worth looking at [request/s]: the case's own; for the textbook 0.6 of what saturates it.

    At the textbook's own rate every budget holds both targets all day.
    """
    saturated = saturated_rps(case) if case.textbook else None
    return case.rate_rps if saturated is None else _BUSY_SHARE * saturated
