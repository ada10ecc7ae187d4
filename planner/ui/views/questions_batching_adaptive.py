"""What "Adaptive" shows: rows of its charts and table, and its sentences."""

from planner.analysis.adaptive_budget import DAYS, HOURS, PROFILE, AdaptiveDay, Day, Rule
from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.simulator import Estimate
from planner.ui.charts.curves import Curve, Mark
from planner.ui.charts.curves import Rule as Drawn
from planner.ui.colours import ACCENT, GREY, WARNING
from planner.ui.views.questions import Beside
from planner.ui.views.questions_batching import beside_plan
from planner.ui.words import NBSP, figure, percent, seconds, stop
from planner.units import signed_figure
from planner.workloads import load_profile

_PERCENT = 100.0
_PUBLISHED = (
    "Published gains of an adaptive budget are over fixed budgets that were not chosen for the load: 8.5 % less mean E2E than with "
    "2,048 and 11.3 % less than with 16,384 (vLLM issue 52906, arXiv 2608.15171). Against the best fixed one, chosen knowing the "
    "day, little is left."
)
_BREACH = (
    "The breach is TPOT's: a larger budget brings first tokens sooner, so lowering it when TTFT is missed would make that worse."
)
_LITTLE = (
    "Why so little is gained: TPOT is late, as a request shows it when it ends; a lowered budget lets the queue grow, and that "
    "queue costs TTFT for longer than the breach lasted. Hours in which every budget holds both targets, or none does, leave "
    "nothing to win."
)


def share_curves(found: AdaptiveDay) -> list[Curve]:
    """Return the good share of each fixed budget, and of each of its days."""
    means = [(float(run.budget or 0), run.mean_good_share * _PERCENT) for run in found.fixed]
    days = [(float(run.budget or 0), share * _PERCENT) for run in found.fixed for share in run.good_share]
    return [
        Curve("", sorted(days), GREY, dots=True),
        Curve("fixed budgets", means, ACCENT, name_at=0.8, name_place="below left"),
    ]


def share_rules(found: AdaptiveDay) -> list[Drawn]:
    """Return the adaptive budget's share."""
    share = found.adaptive.mean_good_share
    return [Drawn("y", share * _PERCENT, f"adaptive {percent(share)}")]


def share_marks(found: AdaptiveDay) -> list[Mark]:
    """Return the best fixed budget; little fits between the dots of two budgets."""
    best = found.best
    return [Mark(float(best.budget or 0), best.mean_good_share * _PERCENT, f"best {best.budget:,}", WARNING, "above right")]


def share_title(found: AdaptiveDay) -> str:
    """Return the finding of the chart of shares."""
    worst = min(found.fixed, key=lambda run: run.mean_good_share)
    best = found.best.mean_good_share
    if worst.mean_good_share == best:
        return "Every fixed budget serves the day alike"
    return (
        f"The adaptive budget is measurably better than {found.beaten} of {len(found.fixed)} fixed ones; between the best and the "
        f"worst of those lie {figure((best - worst.mean_good_share) * _PERCENT)} points"
    )


def budget_curve(found: AdaptiveDay) -> list[Curve]:
    """Return the adaptive budget over the first day, in steps."""
    hour_s = found.length_s / HOURS
    steps = [(min(at_s, found.length_s) / hour_s, float(budget)) for at_s, budget in found.budget_steps]
    corners: list[tuple[float, float]] = []
    for index, (hour, budget) in enumerate(steps):
        if index:
            corners.append((hour, steps[index - 1][1]))
        corners.append((hour, budget))
    corners.append((float(HOURS), steps[-1][1]))
    return [Curve("adaptive", corners, ACCENT, name_at=0.99)]


def budget_rules(found: AdaptiveDay) -> list[Drawn]:
    """Return the best fixed budget."""
    return [Drawn("y", float(found.best.budget or 0), f"best fixed {found.best.budget:,}")]


def budget_title(found: AdaptiveDay) -> str:
    """Return the finding of the chart of budgets."""
    changes = len(found.budget_steps) - 1
    if changes == 0:
        first = found.budget_steps[0][1]
        return f"The controller leaves the budget at {first:,} all day: the queue is never deep, no target is missed"
    low, high = min(b for _, b in found.budget_steps), max(b for _, b in found.budget_steps)
    return f"The controller moves the budget {changes:,} times on the first day, between {low:,} and {high:,} tokens"


def drift_curves(found: AdaptiveDay) -> list[Curve]:
    """Return the prompt tokens that come each second, by hour of the first day."""
    points = [(each.hour + 0.5, each.rate_rps * each.prompt_tokens) for each in found.hours]
    return [Curve("prompt tokens/s", points, GREY, name_at=0.3, name_place="above right")]


def drift_title(found: AdaptiveDay) -> str:
    """Return the finding of the chart of the day."""
    work = [each.rate_rps * each.prompt_tokens for each in found.hours]
    return f"Prompt tokens a second drift by a factor of {figure(max(work) / max(min(work), 1e-9))} over the day"


def adaptive_rows(found: AdaptiveDay) -> tuple[Beside, ...]:
    """Return the comparison; no closed form has a budget that moves."""
    own = found.own
    rows = [
        Beside("Good requests, adaptive", None, percent(found.adaptive.mean_good_share)),
        Beside(f"Good requests, best fixed ({found.best.budget:,})", None, percent(found.best.mean_good_share)),
        Beside("Difference", None, _points(found.difference)),
        Beside("Mean E2E, adaptive", None, seconds(found.adaptive.mean_e2e_s)),
        Beside(
            f"Mean E2E, quickest fixed ({found.e2e_best.budget:,})",
            None,
            f"{seconds(found.e2e_best.mean_e2e_s)}; adaptive {_seconds(found.e2e_difference)}",
            _PUBLISHED,
        ),
    ]
    if own is not None and own is not found.best:
        rows.insert(2, Beside(f"Good requests, this replica's budget ({own.budget:,})", None, percent(own.mean_good_share)))
    return tuple(rows)


def adaptive_caption(case: Case, found: AdaptiveDay, day: Day) -> str:
    """Return what was simulated, and what is small about it."""
    seqs = min(case.limits.max_num_seqs, found.least)
    return (
        f"Simulated: {DAYS} days of {day.requests:,} requests, seeds {case.seed} to {case.seed + DAYS - 1}, the same under each "
        f"budget. A day is a small one: {HOURS} hours in {seconds(found.length_s)}, with the hourly rates of a weekday of "
        f"{load_profile(PROFILE).name}; the share of prompts {figure(day.long_factor)} times as long rises from 0 to "
        f"{percent(day.long_share)} twice a day. All settings have max_num_seqs {seqs:,} and the KV cache that budget "
        f"{found.largest:,} leaves. A changed budget holds from the next decision; the schedule is exact. Grey dots: single days."
    )


def adaptive_why(rule: Rule, found: AdaptiveDay) -> list[str]:
    """Return the controller as it ran."""
    breach = "lower" if rule.on_breach == "lower" else "lower, unless the queue is deep"
    lines = (
        f"every {rule.interval_s:g} s:",
        f"  p95 TPOT of requests that ended > {rule.tpot_s * 1e3:g} ms  →  budget ÷ {rule.step:g} ({breach})",
        f"  else {rule.deep_requests} or more waiting  →  budget × {rule.step:g}",
        f"  else  →  keep; always between {found.least:,} and {found.largest:,}",
    )
    return ["\n".join(lines)]


def adaptive_advice(case: Case, found: AdaptiveDay, said: Explanation) -> str:
    """Return what to set, and why the plan may say otherwise."""
    asks = "which one budget serves a whole day whose rate and prompts drift"
    return f"{stop(said.setting)} {beside_plan(case, found.best.budget, asks)}"


def adaptive_notes(found: AdaptiveDay) -> tuple[str, ...]:
    """Return what to know of the rule, and why little is gained where little is."""
    return (_BREACH,) if found.outcome == "beats" else (_BREACH, _LITTLE)


def _points(difference: Estimate) -> str:
    interval = ""
    if difference.low is not None and difference.high is not None:
        low, high = signed_figure(difference.low * _PERCENT), signed_figure(difference.high * _PERCENT)
        interval = f" (95{NBSP}%: {low} to {high})"
    return f"{signed_figure(difference.value * _PERCENT)} points{interval}"


def _seconds(difference: Estimate) -> str:
    sign = "+" if difference.value >= 0.0 else "−"
    return f"{sign}{seconds(abs(difference.value))}"
