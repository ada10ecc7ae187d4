"""The top of the Plan page: four figures with their intervals."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from planner.plans.difference import Difference, Moved
from planner.plans.results import Interval, Plan
from planner.pricing import Tariff
from planner.ui.fields import field_of
from planner.ui.words import DASH, day, figure, percent, plural, seconds, span, stop, usd


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
    return (_gpus(plan), _ttft(plan), _tpot(plan), _cost(plan, today))


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


def interval(value: Interval, write: Callable[[float], str]) -> str:
    """Return an interval as text."""
    return span(write(value.low), write(value.high))


def _gpus(plan: Plan) -> MetricView:
    chosen, details = plan.chosen, plan.details
    if chosen is None or details is None or chosen.replicas is None:
        return MetricView("GPUs", DASH, "", "")
    replicas = chosen.replicas
    split = plural(replicas.needed, "replica") + (f" + {plural(replicas.spares, 'spare')}" if replicas.spares else "")
    gpus = replicas.total * chosen.tensor_parallel
    return MetricView(
        "GPUs",
        f"{gpus}",
        f"{chosen.gpu_name} · {split}",
        f"{plural(chosen.tensor_parallel, 'GPU')} a replica; over the calibration's error "
        f"{interval(details.replicas, '{:.0f}'.format)} replicas. "
        f"Each needed replica runs at {percent(replicas.utilisation)} of its capacity with "
        f"the spares down. {stop(details.interval_source)}",
    )


def _ttft(plan: Plan) -> MetricView:
    return _latency(plan, "p99 TTFT", plan.scenario.targets.ttft_p99_s, "time from a request's arrival to its first token")


def _tpot(plan: Plan) -> MetricView:
    return _latency(plan, "p99 TPOT", plan.scenario.targets.tpot_p99_s, "time per output token after the first")


def _latency(plan: Plan, label: str, target_s: float | None, meaning: str) -> MetricView:
    chosen, details = plan.chosen, plan.details
    if chosen is None or details is None or chosen.latency is None:
        return MetricView(label, DASH, "", "")
    is_ttft = label.endswith("TTFT")
    value_s = chosen.latency.ttft_p99_s if is_ttft else chosen.latency.tpot_p99_s
    bounds = details.ttft_p99_s if is_ttft else details.tpot_p99_s
    target = f" · target {seconds(target_s)}" if target_s is not None else " · no target"
    return MetricView(
        label,
        seconds(value_s),
        f"{interval(bounds, seconds)}{target}",
        f"99 of 100 requests see less: {meaning}, at the planned load with the spares down ({chosen.latency.method}). "
        f"{stop(details.interval_source)}",
    )


def _cost(plan: Plan, today: dt.date) -> MetricView:
    chosen, details = plan.chosen, plan.details
    if chosen is None or details is None or chosen.cost is None:
        return MetricView("Cost", DASH, "no price is known", "Give your own price for this GPU under Where.")
    cost, tariff = chosen.cost, chosen.cost.tariff
    bill = details.usd_per_day
    likely = f"{interval(bill, usd)} · " if bill is not None and bill.low < bill.high else ""
    return MetricView(
        "Cost",
        f"{usd(cost.usd_per_day)}/day",
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
