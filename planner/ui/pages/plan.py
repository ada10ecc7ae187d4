"""The Plan page: the answer first, then the evidence, then what to do."""

import datetime as dt

import streamlit as st

from planner.errors import InputError
from planner.plans.results import Plan
from planner.ui.components import answer, evidence
from planner.ui.inputs import scenario_state
from planner.ui.plans import cached_plan, catalogue_stamp, first_estimate


def main() -> None:
    """Draw the page."""
    answer.notices()
    state = scenario_state()
    if state.scenario is None:
        answer.faults(state)
        return
    try:
        with st.spinner("Simulating the candidates under your targets …", show_time=True):
            catalogue, place = catalogue_stamp(), st.empty()
            with place:
                answer.estimate(first_estimate(state.scenario, catalogue))
            plan = cached_plan(state.scenario, catalogue)
            place.empty()
    except InputError as fault:
        answer.refused(state, fault)
        return
    draw(plan)


def draw(plan: Plan) -> None:
    """Draw an answer with its evidence."""
    answer.answer(plan, dt.datetime.now(dt.UTC).date())
    answer.moved(plan)
    answer.nearest(plan)
    chart, change = st.columns([5, 3], gap="large")
    with chart:
        evidence.gpu_comparison(plan)
    with change:
        answer.changes(plan)
    evidence.replica(plan)
    evidence.command(plan)
    evidence.candidates(plan)
    evidence.why(plan)


if __name__ == "__main__":
    main()
