"""The top of the Plan page: four figures with their intervals."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner.plans import Answer
from planner.plans.difference import Difference, Moved
from planner.plans.results import Candidate, Change, Details, Interval, Plan
from planner.pricing import Tariff
from planner.scenario import Targets
from planner.ui.fields import field_of
from planner.ui.words import DASH, day, figure, percent, plural, seconds, span, stop, usd

PENDING = "the interval is being simulated. "


class _Latency(NamedTuple):
    label: str
    target_s: float | None
    meaning: str


@dataclass(frozen=True, slots=True)
class MetricView:
    """One of the four figures.

    note : interval and target, in one line
    help : what the figure is and how the interval was made
    """

    label: str
    value: str
    note: str
    help: str


def metrics(plan: Plan, today: dt.date) -> tuple[MetricView, ...]:
    """Return the four figures of a plan; empty when there is no answer. today : the day against which an old price is marked."""
    if plan.chosen is None or plan.details is None:
        return ()
    return _four(plan.chosen, plan.scenario.targets, plan.details, today)


def first_metrics(answer: Answer, today: dt.date) -> tuple[MetricView, ...]:
    """Return the four figures before their intervals are simulated; empty when there is no choice."""
    return () if answer.chosen is None else _four(answer.chosen, answer.scenario.targets, None, today)


def _four(chosen: Candidate, targets: Targets, details: Details | None, today: dt.date) -> tuple[MetricView, ...]:
    ttft = "time from a request's arrival to its first token"
    return (
        _gpus(chosen, details),
        _latency(chosen, details, _Latency("p99 TTFT", targets.ttft_p99_s, ttft)),
        _latency(chosen, details, _Latency("p99 TPOT", targets.tpot_p99_s, "time per output token after the first")),
        _cost(chosen, details, today),
    )


def moved_inputs(change: Difference) -> str:
    """Return the inputs that changed, as one line."""
    return "Since your change: " + ("; ".join(_arrow(_field_label(each.name), each) for each in change.inputs) or "nothing")


def moved_figures(change: Difference) -> str:
    """Return the figures that moved, as one line."""
    return " · ".join(_arrow(each.name, each) for each in change.figures) or "No figure moved by half a percent."


def _arrow(name: str, moved: Moved) -> str:
    return f"{name} {moved.before or DASH} → {moved.after or DASH}"


def _field_label(path: str) -> str:
    field = field_of(path)
    return field.label if field is not None else path


def further_changes(plan: Plan) -> tuple[Change, ...]:
    """Return what would change the answer, without the nearest targets, which stand at the top already."""
    near = None if plan.nearest is None else plan.nearest.detail
    return tuple(change for change in plan.changes if change.detail != near)


def over(candidate: Candidate) -> str:
    """Return what a replica's all-reduces are timed over, as the end of a clause; nothing for one GPU."""
    return "" if candidate.link is None else f" over {candidate.link.kind}"


def interval(value: Interval, write: Callable[[float], str]) -> str:
    """Return an interval as text."""
    return span(write(value.low), write(value.high))


def _gpus(chosen: Candidate, details: Details | None) -> MetricView:
    if chosen.replicas is None:
        return MetricView("GPUs", DASH, "", "")
    replicas = chosen.replicas
    split = plural(replicas.needed, "replica") + (f" + {plural(replicas.spares, 'spare')}" if replicas.spares else "")
    gpus = replicas.total * chosen.tensor_parallel
    likely = (
        f"over the calibration's error {interval(details.replicas, '{:.0f}'.format)} replicas. " if details is not None else PENDING
    )
    return MetricView(
        "GPUs",
        f"{gpus:,}",
        f"{chosen.gpu_name} · {split}",
        f"{plural(chosen.tensor_parallel, 'GPU')} a replica{over(chosen)}; {likely}"
        f"Each needed replica runs at {percent(replicas.utilisation)} of its capacity with the spares down. {_made(details)}",
    )


def _latency(chosen: Candidate, details: Details | None, asked: _Latency) -> MetricView:
    if chosen.latency is None:
        return MetricView(asked.label, DASH, "", "")
    is_ttft = asked.label.endswith("TTFT")
    value_s = chosen.latency.ttft_p99_s if is_ttft else chosen.latency.tpot_p99_s
    if value_s is None:
        return MetricView(asked.label, "none", "one-token outputs", "Outputs of one token have no time per output token.")
    target = f"target {seconds(asked.target_s)}" if asked.target_s is not None else "no target"
    bounds = None if details is None else details.ttft_p99_s if is_ttft else details.tpot_p99_s
    likely = "" if bounds is None else f"{interval(bounds, seconds)} · "
    return MetricView(
        asked.label,
        seconds(value_s),
        f"{likely}{target}",
        f"99 of 100 requests see less: {asked.meaning}, at the planned load with the spares down ({chosen.latency.method}). "
        f"{_made(details)}",
    )


def _made(details: Details | None) -> str:
    return stop(details.interval_source) if details is not None else stop(PENDING)


def _cost(chosen: Candidate, details: Details | None, today: dt.date) -> MetricView:
    if chosen.cost is None:
        return MetricView(
            "Cost a day", DASH, "no matching price", "Choose another provider or give your own price for this GPU under Where."
        )
    cost, tariff = chosen.cost, chosen.cost.tariff
    bill = details.usd_per_day if details is not None else None
    likely = f"{interval(bill, usd)} · " if bill is not None and bill.low < bill.high else ""
    return MetricView(
        "Cost a day",
        usd(cost.usd_per_day),
        f"{likely}{usd(cost.usd_per_million_tokens)} per M tokens · {_price_date(tariff, today)}",
        f"{plural(cost.placement.instances, 'machine')} {tariff.instance} at {usd(tariff.usd_per_instance_hour)}/h {tariff.basis}, "
        f"{tariff.provider} {tariff.region}. {usd(cost.usd_per_million_prompt_tokens)} per million prompt tokens, "
        f"{usd(cost.usd_per_million_output_tokens)} per million output tokens; "
        f"{figure(cost.placement.idle_gpus)} GPUs paid for stay idle.",
    )


def _price_date(tariff: Tariff, today: dt.date) -> str:
    if tariff.as_of is None:
        return "your price"
    age = f", {(today - tariff.as_of).days} days old" if tariff.is_stale(today) else ""
    return f"price of {day(tariff.as_of)}{age}"
