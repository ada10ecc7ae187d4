"""What to watch once the fleet runs: the alert rules, and whether traffic has drifted from the plan."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.alerting import Firing, firing_over, queue_threshold
from planner.analysis.case import Case
from planner.analysis.drift import SAMPLE, sample_of, shifts, work_shift
from planner.analysis.explanation import Explanation
from planner.drift_check import FleetEffect, fleet_effect
from planner.exporters.alerts import alerts_for, prometheus_rules
from planner.plans.results import Plan
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.choices import workload_names
from planner.ui.components.common import READABLE_PX, show, side_by_side, text_table
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.inputs import scenario_state
from planner.ui.plans import cached_plan, catalogue_stamp
from planner.ui.views import questions_overload_watch as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence
from planner.workloads import load_workload


def _watch_inputs(_case: Case) -> Sequence[Input]:
    help_text = "The rules are simulated up to this multiple of the load."
    return (Input("reach", "Load up to (× planned)", "4", low=1.5, high=20, help=help_text),)


def _watch(case: Case, asked: Asked) -> None:
    plan = _plan_of(case)
    if plan is None:
        return
    alerts = alerts_for(plan)
    capacity = plan.chosen.capacity_rps if plan.chosen is not None else None
    limit = None if case.ttft_p99_s is None or capacity is None else queue_threshold(capacity, case.ttft_p99_s)
    say(Explanation(words.watch_answer(alerts, plan), "", ""))

    def work(tell: Tell) -> list[Firing]:
        return firing_over(case, asked.number("reach"), limit, tell)

    runs = simulated("watch", case, asked, work)
    if runs is not None:
        axes = Axis("Arrivals at one replica (requests/s)", log=False), Axis("Time in which the rule is true (%)", log=False)
        drawn = words.firing_curves(runs)
        if drawn:
            show(curves(words.firing_title(runs), axes, drawn, words.firing_rules(case, capacity)), "chart-q-watch")
    text_table(words.alert_frame(alerts), "Alert rules")
    beside(words.watch_rows(limit, runs), "The queue rule by formula and simulated")
    why(words.threshold_formula(capacity, case, limit), words.watch_notes(runs, case))
    setting("Load the rules with rule_files in prometheus.yml, and scrape each replica's /metrics", prometheus_rules(plan), "yaml")


def _drift_inputs(case: Case) -> Sequence[Input]:
    names = {name: workload_id for workload_id, name in workload_names().items()}
    first = words.other_traffic(names, case.workload.id)
    return (
        Input("seen", "Traffic that is seen", first, choices=names, help="Upload your own trace on the Catalogue page."),
        Input("factor", "Its rate (× planned)", "1", low=0.01, high=100),
        Input("n", "Requests to compare", f"{SAMPLE}", reading.whole, low=100, high=100_000),
    )


def _drift(case: Case, asked: Asked) -> None:
    plan = _plan_of(case)
    if plan is None or plan.chosen is None or plan.chosen.latency is None:
        return
    seen_workload = load_workload(asked.word("seen"))
    planned, seen = (
        sample_of(workload, case.seed + index, asked.whole("n")) for index, workload in enumerate((case.workload, seen_workload))
    )
    found = shifts(planned, seen)
    request = work_shift(case, planned, seen, max(plan.chosen.latency.running_mean, 1.0))
    answer = st.empty()
    with answer.container():
        say(Explanation(words.drift_work(seen_workload.name, request), "", ""))

    def work(tell: Tell) -> FleetEffect:
        tell(f"Planning the same fleet for {seen_workload.name}", 0.2)
        return fleet_effect(plan, asked.word("seen"), plan.load.peak_rps * asked.number("factor"))

    effect = simulated("drift", case, asked, work)
    if effect is not None:
        with answer.container():
            say(Explanation(words.drift_answer(seen_workload.name, effect, request), "", ""))
    axes = Axis("Tokens", log=True), Axis("Requests at or below (%)", log=False)
    left, right = side_by_side()
    sides = (
        (left, "Prompt", planned.prompt_tokens, seen.prompt_tokens, found[0]),
        (right, "Output", planned.output_tokens, seen.output_tokens, found[2]),
    )
    for column, side, then, now, shift in sides:
        with column:
            drawn = words.length_curves(("planned", sorted(then.tolist())), ("seen", sorted(now.tolist())))
            show(curves(words.length_title(side, shift), axes, drawn), f"chart-q-drift-{side.lower()}")
    st.dataframe(words.shift_frame(found), hide_index=True, alt="What has shifted", height="content")
    if effect is not None:
        beside(words.drift_rows(effect, request, asked.number("factor")), "Replicas by GPU time and by a new plan")
    why((words.work_formula(request),), words.drift_notes(asked.whole("n"), case.seed))
    if effect is not None:
        setting(words.drift_setting(effect))


def _plan_of(case: Case) -> Plan | None:
    """Return the plan whose fleet is watched; None after saying why there is none."""
    scenario = scenario_state().scenario
    plan = None if case.textbook or scenario is None else cached_plan(scenario, catalogue_stamp())
    if plan is None or plan.chosen is None:
        with st.container(width=READABLE_PX):
            text = "The textbook has one engine and no fleet" if case.textbook else "The plan has no fleet to watch yet"
            st.markdown(sentence(f"{text}. Choose your scenario, and change it until the plan has an answer."))
        return None
    return plan


WATCH = View("watch", "What to watch?", _watch_inputs, _watch)
DRIFT = View("drift", "Traffic drifted?", _drift_inputs, _drift)
