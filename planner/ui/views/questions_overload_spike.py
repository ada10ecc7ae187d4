"""What "Traffic spikes?" shows: sentences, curves and rows."""

from collections.abc import Sequence

import pandas as pd

from planner.analysis.case import Case
from planner.analysis.overload import Backlog, Rejection
from planner.analysis.predictor import DoorBounds
from planner.analysis.spike_simulated import DELAY_S, MOST_TRIES, RuleName, SpikeRun, SpikeSetting
from planner.exporters.alerts import queue_alert, rejections_alert, rules_file
from planner.simulator.clients import Retry
from planner.ui.charts.curves import Curve, Place, Rule
from planner.ui.colours import GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.words import DASH, NBSP, figure, percent, rate, seconds
from planner.units import MINUTE_S

RULES: dict[RuleName, str] = {
    "no bound": "no bound",
    "requests": "requests bounded",
    "tokens": "prompt tokens bounded",
    "deadline": "dropped at the deadline",
    "predicted": "rejected on prediction",
}
RETRIES: dict[str, Retry] = {
    "don't come back": "none",
    "after 1 s": "fixed",
    "exponential, with jitter": "exponential",
    "after Retry-After, with jitter": "as told",
}
_OF_A_GATEWAY: tuple[RuleName, ...] = ("deadline", "predicted")
_OF_THE_ENGINE: tuple[RuleName, ...] = ("requests", "tokens")
_ABOVE: Place = "above left"
_BELOW: Place = "below right"
_EARLY = 0.02
_AT_ONCE_S = 1.0
_NAMED: tuple[float, Place] = (0.42, "below right")
_NAMED_ABOVE: tuple[float, Place] = (0.36, "above left")


def retry_words(retry: Retry) -> str:
    """Return how a kind of client comes back."""
    return next(words for words, kind in RETRIES.items() if kind == retry)


def spike_answer(found: Backlog, setting: SpikeSetting) -> str:
    """Return the answer by formula: the backlog, its end, and what has to go elsewhere."""
    spike = setting.spike
    if found.backlog_s == 0.0:
        return (
            f"The spike reaches {percent(spike.base_load * spike.factor)} of the replica's "
            f"{rate(setting.capacity_rps)}: it is carried, "
            "and nothing has to be rejected"
        )
    drained = "which never drains" if found.drain_s is None else f"which takes {seconds(found.drain_s)} more to drain"
    excess = f"{percent(found.excess_share)} of its requests are beyond the capacity and better turned away at once"
    return f"Queued, the spike leaves {seconds(found.backlog_s)} of work, {drained}; {excess}"


def goodput_curves(runs: Sequence[SpikeRun], setting: SpikeSetting) -> list[Curve]:
    """Return good answers a second over time under each rule, and the first tries that come."""
    spike = setting.spike
    base = spike.base_load * setting.capacity_rps
    edges = ((-setting.lead_s, base), (0.0, base), (0.0, base * spike.factor), (spike.duration_s, base * spike.factor))
    later = ((spike.duration_s, base), (setting.ends_s - setting.lead_s, base))
    found = [Curve("arrivals", [*edges, *later], GREY, dashed=True, name_at=0.5, name_place="above left")]
    for index, run in enumerate(runs):
        at, place = _NAMED if run.rule == "no bound" else _NAMED_ABOVE
        points = list(zip(run.at_s.tolist(), run.good_rps.tolist(), strict=True))
        found.append(Curve(RULES[run.rule], points, HUES[index % len(HUES)], name_at=at, name_place=place))
    return found


def shown_runs(runs: Sequence[SpikeRun]) -> list[SpikeRun]:
    """Return the runs that the charts over time show: no bound, and the rule that keeps most of the spike."""
    first = next(run for run in runs if run.rule == "no bound")
    best = best_rule(runs)
    return [first] if best is first else [first, best]


def best_rule(runs: Sequence[SpikeRun]) -> SpikeRun:
    """Return the run that keeps most of the spike's requests good; of equal ones the simpler rule."""
    return max(runs, key=lambda run: round(run.good_in_spike or 0.0, 3))


def goodput_title(runs: Sequence[SpikeRun]) -> str:
    """Return the finding: how much of the spike is good with the best rule and without any."""
    none, best = next(run for run in runs if run.rule == "no bound"), best_rule(runs)
    if none.good_in_spike is None:
        return "No request is sent in the spike: make it longer or larger"
    if best.rule == "no bound":
        return f"With no bound {percent(none.good_in_spike)} of the spike's requests are good: no rule keeps more"
    return (
        f"{RULES[best.rule].capitalize()}, {percent(best.good_in_spike)} of the spike's requests are good; with no bound "
        f"{percent(none.good_in_spike)}"
    )


def dead_curves(runs: Sequence[SpikeRun]) -> list[Curve]:
    """Return the share of GPU time that goes to clients who have given up, over time, where there is any."""
    found = []
    for index, run in enumerate(runs):
        points = [(at, 100.0 * share) for at, share in zip(run.at_s.tolist(), run.dead_share.tolist(), strict=True)]
        if run.dead == 0.0 and run.rule != "no bound":
            continue
        highest = max(range(len(points)), key=lambda place: points[place][1]) / max(len(points) - 1, 1)
        found.append(Curve(RULES[run.rule], points, HUES[index % len(HUES)], name_at=highest, name_place="above left"))
    return found


def dead_title(runs: Sequence[SpikeRun], setting: SpikeSetting) -> str:
    """Return the finding on wasted work."""
    none = next(run for run in runs if run.rule == "no bound")
    if none.dead == 0.0:
        return f"Nobody waits longer than {seconds(setting.patience_s)}: no work is wasted"
    return f"With no bound {percent(none.dead)} of all GPU time serves clients who have gone after {seconds(setting.patience_s)}"


def spike_rules(setting: SpikeSetting) -> list[Rule]:
    """Return the spike's end, and the rate that a full engine carries."""
    return [
        Rule("x", setting.spike.duration_s, "spike ends"),
        Rule("y", setting.capacity_rps, f"capacity {rate(setting.capacity_rps)}"),
    ]


def rule_frame(runs: Sequence[SpikeRun], bounds: DoorBounds, setting: SpikeSetting) -> pd.DataFrame:
    """Return the rules side by side."""
    named: dict[RuleName, str] = {
        "no bound": "none: vLLM's default",
        "requests": f"--max-num-queued-reqs {bounds.unfinished}",
        "tokens": f"--max-num-queued-tokens {bounds.waiting_prompt_tokens}",
        "deadline": f"no token within {seconds(setting.aims.ttft_s)}",
        "predicted": "TTFT or TPOT above target",
    }
    return pd.DataFrame(
        {
            "Rule": [RULES[run.rule] for run in runs],
            "Bound": [named[run.rule] for run in runs],
            "Good in the spike": [percent(run.good_in_spike) for run in runs],
            "Good after it": [percent(run.good_after) for run in runs],
            "GPU time wasted": [percent(run.dead) for run in runs],
            "Never let in": [percent(run.turned_away) for run in runs],
            "Recovered after": [recovered(run) for run in runs],
        }
    )


def storm_curves(runs: Sequence[SpikeRun]) -> list[Curve]:
    """Return the tries a second over time of clients who don't come back, and of those who try most."""
    most = max(runs, key=lambda run: run.tries)
    found = []
    for index, run in enumerate([run for run in runs if run.retry == "none" or run is most]):
        points = list(zip(run.at_s.tolist(), run.tries_rps.tolist(), strict=True))
        highest = max(range(len(points)), key=lambda place: points[place][1]) / max(len(points) - 1, 1)
        at, place = (highest, _ABOVE) if run is most and run.retry != "none" else (_EARLY, _BELOW)
        found.append(Curve(retry_words(run.retry), points, HUES[index % len(HUES)], name_at=at, name_place=place))
    return found


def storm_frame(runs: Sequence[SpikeRun]) -> pd.DataFrame:
    """Return each kind of client under each rule."""
    return pd.DataFrame(
        {
            "Rule": [RULES[run.rule] for run in runs],
            "Clients come back": [retry_words(run.retry) if run.retry != "none" else "never" for run in runs],
            "Tries per request": [figure(run.tries) for run in runs],
            "Good in the spike": [percent(run.good_in_spike) for run in runs],
            "Good after it": [percent(run.good_after) for run in runs],
            "Recovered after": [recovered(run) for run in runs],
        }
    )


def recovered(run: SpikeRun) -> str:
    """Return when good answers were back."""
    if run.recovery_s is None:
        return "not in the run"
    return "at once" if run.recovery_s < _AT_ONCE_S else seconds(run.recovery_s)


def storm_title(runs: Sequence[SpikeRun], rule: RuleName, setting: SpikeSetting) -> str:
    """Return the finding on retries under one rule."""
    worst = max(runs, key=lambda run: (run.recovery_s is None, run.recovery_s or 0.0, run.tries))
    named = RULES[rule].capitalize()
    if worst.recovery_s is None:
        tail = f"{seconds(setting.tail_s)} after the spike good answers have not come back"
        return f"{named}: clients who come back {retry_words(worst.retry)} send {figure(worst.tries)} tries a request; {tail}"
    most = max(run.tries for run in runs)
    soon = worst.recovery_s < _AT_ONCE_S
    when = "at once" if soon else f"{seconds(worst.recovery_s)} after the spike at the latest"
    return f"{named}: up to {figure(most)} tries a request, and good again {when}"


def spike_rows(found: Backlog, runs: Sequence[SpikeRun] | None) -> list[Beside]:
    """Return the queue's arithmetic beside the simulated runs."""
    none = None if runs is None else next(run for run in runs if run.rule == "no bound")
    kept = None if runs is None else best_rule(runs).good_in_spike
    again = None if none is None else _as_drained(none, found.drain_s)
    parts = (
        "The formula has one server of fixed speed. The engine is one only once its batch is full; before that the batch takes in "
        "part of the spike, and every token slows down instead."
    )
    retries = "It knows no retries: clients who come back are more load, and where they leave dead work behind, nothing drains."
    lost = "Of the spike's requests; by formula what exceeds the capacity, simulated all that were not good under the best rule."
    return [
        Beside(
            "Longest wait for a first token",
            seconds(found.backlog_s),
            None if none is None else seconds(none.longest_wait_s),
            parts,
        ),
        Beside("Good again after the spike", DASH if found.drain_s is None else seconds(found.drain_s), again, retries),
        Beside("Lost", percent(found.excess_share), None if kept is None else percent(1.0 - kept), lost),
    ]


def _as_drained(run: SpikeRun, drain_s: float | None) -> str:
    """Return when good answers were back, in the unit of the formula's figure beside it."""
    back_s = run.recovery_s
    in_seconds = drain_s is not None and drain_s <= 2.0 * MINUTE_S
    if back_s is None or back_s <= 2.0 * MINUTE_S or not in_seconds:
        return recovered(run)
    return f"{figure(back_s)}{NBSP}s"


def spike_formulas(found: Backlog, setting: SpikeSetting, bounds: DoorBounds) -> list[str]:
    """Return the derivations with the numbers put in."""
    spike, batch = setting.spike, bounds.batch
    return [
        f"backlog = (load × factor - 1) × duration = ({figure(spike.base_load)} × {figure(spike.factor)} - 1) × "
        f"{seconds(spike.duration_s)} = {seconds(found.backlog_s)}; drain = backlog ÷ (1 - load)"
        + ("" if found.drain_s is None else f" = {seconds(found.drain_s)}"),
        (
            f"requests inside = batch within TPOT + waiting = {batch.sequences} + {bounds.waiting} = {bounds.unfinished}; "
            f"at {batch.sequences} a step with its prompts takes {seconds(batch.step_s)} and {rate(batch.rate_rps)} pass"
        ),
    ]


def spike_notes(case: Case, setting: SpikeSetting, runs: Sequence[SpikeRun] | None, bounds: DoorBounds) -> list[str]:
    """Return what the figures rest on."""
    notes = [
        (
            f"The bounds keep {percent(setting.aims.margin)} below the TPOT target and let half the TTFT target wait, as prompts "
            "and places come in bunches; both are assumed. A deadline alone serves those who have waited longest, "
            "just in time or just late."
        ),
        (
            "The engine's own bounds count every unfinished request and whole prompts until their first token, and "
            "answer 503. vLLM has no "
            "deadline and no prediction: a gateway does these. It aborts a request when its client hangs up; "
            "gateways that don't pass "
            "the hang-up on make it serve the dead, as simulated here."
        ),
        (
            "Exponential backoff with full jitter as in M. Brooker, “Exponential Backoff And Jitter”, AWS Architecture Blog, 2015; "
            f"delays start at {seconds(DELAY_S)}, {MOST_TRIES} tries at most."
        ),
    ]
    if case.limits.max_num_seqs > bounds.batch.sequences:
        notes.append(
            f"Your max_num_seqs is {case.limits.max_num_seqs:,}, above the {bounds.batch.sequences} sequences that hold "
            "TPOT in a spike: "
            "bounds on prompt tokens and deadlines then guard TTFT alone."
        )
    if runs is not None:
        notes.append(
            f"Simulated: {runs[0].requests:,} requests, {seconds(setting.lead_s)} before the spike to "
            f"{seconds(setting.tail_s)} after it, "
            f"seed {case.seed}; good means TTFT and TPOT within target on one try; recovered once nine of ten in a "
            "row of 25 are good."
        )
    return notes


def spike_setting(runs: Sequence[SpikeRun] | None) -> str:
    """Return what to set."""
    best = "" if runs is None else f" {_best_here(runs)}"
    return (
        f"Bound what is inside, not only what waits.{best} Answer the rest at once with Retry-After, and let clients "
        "add jitter and stop "
        "after a few tries"
    )


def _best_here(runs: Sequence[SpikeRun]) -> str:
    """Return the rule that keeps most, and beside one that only a gateway has the better of the engine's own."""
    best = best_rule(runs)
    if best.rule not in _OF_A_GATEWAY:
        return f"Best here: {RULES[best.rule]}."
    own = best_rule([run for run in runs if run.rule in _OF_THE_ENGINE])
    return (
        f"Best here: {RULES[best.rule]} by a gateway ({percent(best.good_in_spike)} good); of vLLM's own bounds "
        f"{RULES[own.rule]} ({percent(own.good_in_spike)})."
    )


def spike_flags(bounds: DoorBounds) -> str:
    """Return vLLM's flags."""
    return f"--max-num-queued-reqs {bounds.unfinished} --max-num-queued-tokens {bounds.waiting_prompt_tokens}"


def spike_response(response: Rejection, limited: Rejection) -> str:
    """Return the responses to copy: the service is full, and one client is over its own limit."""
    return f"{response.response}\n{limited.response}"


def spike_alerts(setting: SpikeSetting) -> str:
    """Return the alert rules to copy."""
    return rules_file([queue_alert(setting.capacity_rps, setting.aims.ttft_s), rejections_alert()])


def alert_note(setting: SpikeSetting) -> str:
    """Return why the alert doesn't replace the rule."""
    hold_s = 60.0 * queue_alert(setting.capacity_rps, setting.aims.ttft_s).hold_minutes
    if setting.spike.duration_s < hold_s:
        return (
            f"The queue's alert holds {seconds(hold_s)}, so a spike of {seconds(setting.spike.duration_s)} is over "
            "before it fires: only a "
            "rule at the door helps in time. All rules of the fleet: What to watch?"
        )
    return (
        "The queue's alert fires while the spike lasts; the rule at the door acts at once. All rules of the fleet: What to watch?"
    )
