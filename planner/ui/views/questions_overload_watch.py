"""What the views on alerts and drift show: sentences, curves and rows."""

from collections.abc import Mapping, Sequence

import pandas as pd

from planner.analysis.alerting import Firing
from planner.analysis.case import Case
from planner.analysis.drift import Shift, Work
from planner.drift_check import FleetEffect
from planner.exporters.alerts import Alert
from planner.plans.results import Plan
from planner.ui.charts.curves import Curve, Place, Rule
from planner.ui.views.calibrate_fit import signed
from planner.ui.views.questions import Beside
from planner.ui.words import DASH, NBSP, figure, percent, plural, rate, seconds, usd

_LATER = "azure-conversation-2024"
_VERDICTS = {"same": "no difference", "small": "within 5 %", "drifted": "drifted"}


def watch_answer(alerts: Sequence[Alert], plan: Plan) -> str:
    """Return the answer: the signs that wake somebody, and how many rules there are."""
    signs = [alert.sign for alert in alerts if alert.severity == "page"]
    listed = f"{', '.join(signs[:-1])} or {signs[-1]}" if len(signs) > 1 else "".join(signs)
    rest = len(alerts) - len(signs)
    quiet = f"none should fire at the planned {rate(plan.load.peak_rps)}"
    return f"Wake somebody at {listed}; {plural(rest, 'more rule')} can wait for the day, and {quiet}"


def alert_frame(alerts: Sequence[Alert]) -> pd.DataFrame:
    """Return the rules as a table: what is seen, for how long, who is told, what to do."""
    return pd.DataFrame(
        {
            "Rule": [alert.name.removeprefix("Headroom") for alert in alerts],
            "What is seen": [alert.sign for alert in alerts],
            "For": [f"{alert.hold_minutes}{NBSP}min" for alert in alerts],
            "Who is told": ["woken" if alert.severity == "page" else "by ticket" for alert in alerts],
            "What to do": [alert.action for alert in alerts],
        }
    )


def firing_curves(runs: Sequence[Firing]) -> list[Curve]:
    """Return the share of time in which each rule holds over the arrival rate."""
    found = []
    for name, label in (("ttft", "TTFT rule"), ("tpot", "TPOT rule"), ("queue", "Queue rule")):
        points = [(run.rate_rps, 100.0 * share) for run in runs if (share := getattr(run, name)) is not None]
        if points:
            found.append(Curve(label, points, name_at=_rise([y for _, y in points]), name_place="below right"))
    return found


def _rise(percents: Sequence[float]) -> float:
    """Return where a rising curve passes one half, as a share of its points: there its name stands clear of the others [1]."""
    place = next((index for index, value in enumerate(percents) if value >= 50.0), len(percents) - 1)
    return place / max(len(percents) - 1, 1)


def firing_rules(case: Case, capacity_rps: float | None) -> list[Rule]:
    """Return the planned rate and the capacity as marks on the axis."""
    planned = Rule("x", case.rate_rps, f"planned {rate(case.rate_rps)}")
    return [planned] if capacity_rps is None else [planned, Rule("x", capacity_rps, f"capacity {rate(capacity_rps)}")]


def firing_title(runs: Sequence[Firing]) -> str:
    """Return the finding: false alarms at the planned rate, and where each rule is true for most of the time."""
    planned = runs[0]
    false = max(share for share in (planned.ttft, planned.tpot, planned.queue, 0.0) if share is not None)
    late = [run.rate_rps for run in runs if max(run.ttft or 0.0, run.tpot or 0.0, run.queue or 0.0) > 0.5]
    start = f"At the planned rate a rule is true {percent(false)} of the time" if false else "At the planned rate no rule is true"
    if not late:
        return f"{start}, and at no rate up to {rate(runs[-1].rate_rps)} is one true most of the time"
    return f"{start}; from {rate(late[0])} on one is true most of the time"


def watch_rows(threshold: int | None, runs: Sequence[Firing] | None) -> list[Beside]:
    """Return the queue threshold by formula, and what the simulated run says of it."""
    queue = None if runs is None else next((run for run in runs if (run.queue or 0.0) > 0.5), None)
    simulated = None if runs is None else "never true" if queue is None else f"true from {rate(queue.rate_rps)}"
    note = (
        "The formula lets the queue alone use up the TTFT target. The engine admits several requests in a step, so a queue rarely "
        "stands while the load is carried: latency rules come first, the queue rule says that it is overload."
    )
    return [Beside("Waiting requests on one replica", None if threshold is None else f"over {threshold}", simulated, note)]


def watch_notes(runs: Sequence[Firing] | None, case: Case) -> list[str]:
    """Return what the rules rest on."""
    notes = ["Names, labels and buckets as vLLM 0.32.0 shows them at /metrics; older releases call some of them otherwise."]
    if runs is not None:
        notes.append(
            f"Simulated: up to an hour of arrivals on one replica at {len(runs)} rates, seed {case.seed}; each minute is judged "
            "over the 5 minutes before it (2 for the queue), with exact percentiles where Prometheus interpolates between buckets."
        )
    return notes


def drift_work(name: str, work: Work) -> str:
    """Return what is known before any planning: the work of a request."""
    return f"A request of {name} takes {figure(work.ratio)} × the GPU time of a planned one"


def drift_answer(name: str, effect: FleetEffect, work: Work) -> str:
    """Return the answer: what the seen traffic needs, and what binds."""
    cost = f"a request takes {figure(work.ratio)} × the GPU time"
    if effect.needed is None:
        reason = "" if effect.binds is None else f": {effect.binds}"
        return f"{name} can't be served on this fleet's machines{reason}; {cost}"
    more = effect.needed - effect.before
    were = "was" if effect.before == 1 else "were"
    change = (
        "as many replicas as planned" if more == 0 else f"{plural(effect.needed, 'replica')} where {effect.before} {were} planned"
    )
    binding = "" if effect.binds is None else f". {effect.binds} binds"
    return f"{name} needs {change}; {cost}{binding}"


def drift_setting(effect: FleetEffect) -> str:
    """Return what to do about a drift."""
    if effect.needed is None:
        return f"Plan again for this traffic with other machines or targets. {effect.why_not or ''}".strip()
    if effect.as_set is None:
        kept = "Keep the machines, but choose the settings anew: with the planned ones the targets fail"
        return f"{kept}. {effect.why_not or ''}".strip()
    if effect.needed > effect.before:
        kept = "with the settings as they are" if effect.as_set == effect.needed else "with settings chosen anew"
        return f"Add {plural(effect.needed - effect.before, 'replica')} {kept}, and plan again with the new trace"
    if effect.needed < effect.before:
        return f"{plural(effect.before - effect.needed, 'replica')} can go; wait until a second trace says the same"
    return "Leave the fleet as it is, and compare again with the next trace"


def shift_frame(shifts: Sequence[Shift]) -> pd.DataFrame:
    """Return the shifts as a table, values with their units as text."""
    return pd.DataFrame(
        {
            "Figure": [shift.figure for shift in shifts],
            "Planned": [_value(shift.planned, shift.unit) for shift in shifts],
            "Seen": [_value(shift.seen, shift.unit) for shift in shifts],
            "Change": [DASH if shift.change is None else signed(100.0 * shift.change) for shift in shifts],
            "Distance D": [DASH if shift.distance is None else f"{shift.distance:.3f}" for shift in shifts],
            "Chance of it": [_chance(shift.p_value) for shift in shifts],
            "Verdict": [_VERDICTS[shift.verdict] for shift in shifts],
        }
    )


def drift_rows(effect: FleetEffect, work: Work, factor: float) -> list[Beside]:
    """Return the effect by GPU time, and by planning the fleet again; factor : seen rate over the planned one [1]."""
    rate_part = "" if factor == 1.0 else f" × {figure(factor)}"
    scaled = figure(effect.before * work.ratio * factor)
    note = (
        "GPU time alone knows no targets: longer prompts delay others' tokens, shorter outputs end sooner, and replicas come "
        "whole. The plan simulates all of that."
    )
    as_set = "targets missed" if effect.as_set is None else str(effect.as_set)
    tuned = "targets missed" if effect.tuned is None else str(effect.tuned)
    bill = None if effect.usd_per_day is None else f"{usd(effect.usd_per_day)}/day"
    return [
        Beside("Replicas, settings as planned", f"{effect.before} × {figure(work.ratio)}{rate_part} = {scaled}", as_set, note),
        Beside("Replicas, settings chosen anew", None, tuned),
        Beside("Bill", f"{usd(effect.usd_per_day_before)}/day planned", bill),
    ]


def length_curves(planned: tuple[str, Sequence[float]], seen: tuple[str, Sequence[float]]) -> list[Curve]:
    """Return the share of requests at or below each length, planned and seen; values : sorted [token]."""
    longer = seen if sum(seen[1]) >= sum(planned[1]) else planned
    sides: dict[bool, Place] = {True: "below right", False: "above left"}
    return [Curve(name, _cdf(values), name_at=0.5, name_place=sides[name == longer[0]]) for name, values in (planned, seen)]


def length_title(side: str, shift: Shift) -> str:
    """Return the finding of one side's chart."""
    if shift.verdict == "same":
        return f"{side}s are as long as planned"
    change = shift.change or 0.0
    if change >= 1.0:
        return f"{side}s are {figure(1.0 + change)} × as long on average"
    return f"{side}s are {percent(abs(change))} {'longer' if change > 0 else 'shorter'} on average"


def drift_notes(count: int, seed: int) -> list[str]:
    """Return what the comparison rests on."""
    test = (
        f"Up to {count:,} requests of each traffic, no more than were recorded, seed {seed}; D is the largest difference of both "
        "distributions, and the chance is that of such a D between samples of the same traffic (Kolmogorov and Smirnov). With so "
        "many requests small differences are found too, so that the replicas decide."
    )
    return [test, "Rows are drawn as the workload says, so that arrivals are compared only as far as it describes them."]


def _cdf(values: Sequence[float]) -> list[tuple[float, float]]:
    last = len(values) - 1
    picks = sorted({round(last * share / 150) for share in range(151)})
    return [(max(values[pick], 1.0), 100.0 * (pick + 1) / len(values)) for pick in picks]


def _value(value: float, unit: str) -> str:
    text = f"{value:.2f}" if not unit else figure(value)
    return f"{text} {unit}".strip()


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return DASH
    return "< 0.1 %" if p_value < 0.001 else percent(p_value)


def threshold_formula(capacity_rps: float | None, case: Case, limit: int | None) -> tuple[str, ...]:
    """Return the queue threshold with its numbers put in; empty without a TTFT target."""
    if limit is None:
        return ()
    return (f"{figure(capacity_rps)} requests/s × {figure(case.ttft_p99_s)} s ≈ {limit} requests",)


def work_formula(work: Work) -> str:
    """Return the GPU time of a request, then and now."""
    return f"{seconds(work.seen_s)} ÷ {seconds(work.planned_s)} of GPU time a request = {figure(work.ratio)}"


def other_traffic(ids: Mapping[str, str], planned_id: str) -> str:
    """Return the name of the traffic to compare with first: a service measured twice where there is one, else any other."""
    wanted = [name for name, workload_id in ids.items() if workload_id == _LATER and planned_id != _LATER]
    others = [name for name, workload_id in ids.items() if workload_id != planned_id]
    return next(iter((*wanted, *others, *ids)))
