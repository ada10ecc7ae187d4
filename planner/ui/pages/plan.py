"""The Plan page: the answer first, then the evidence, then what to do."""

import datetime as dt

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from planner.errors import InputError
from planner.plans import Answer
from planner.plans.results import Plan
from planner.ui.components import answer, evidence, hand_over
from planner.ui.components.common import CARD_PX, READABLE_PX
from planner.ui.inputs import scenario_state
from planner.ui.plans import answer_in_stages, catalogue_stamp, evidence_in_stages


def main() -> None:
    """Draw the page."""
    answer.notices()
    state = scenario_state()
    if state.scenario is None:
        answer.faults(state)
        return
    place = st.empty()
    try:
        catalogue = catalogue_stamp()
        first = answer_in_stages(state.scenario, catalogue)
        plan = None if first is None else _evidence(first, catalogue, place)
    except InputError as fault:
        place.empty()
        answer.refused(state, fault)
        return
    if plan is not None:
        draw(plan, place)


def _evidence(first: Answer, catalogue: str, place: DeltaGenerator) -> Plan | None:
    """Draw the choice with its figures at once, and return the plan when it is there."""
    with place.container():
        answer.first(first, dt.datetime.now(dt.UTC).date())
    return evidence_in_stages(first, catalogue)


def draw(plan: Plan, place: DeltaGenerator) -> None:
    """Draw an answer with its evidence; place : where the answer without it stands."""
    with place.container():
        answer.answer(plan, dt.datetime.now(dt.UTC).date())
    answer.moved(plan)
    answer.nearest(plan)
    if evidence.comparable(plan):
        grid = st.grid(3, min_column_width=CARD_PX, gap="medium")
        with grid.cell(column_span=2):
            evidence.gpu_comparison(plan)
        with grid.cell():
            answer.changes(plan)
    else:
        with st.container(width=READABLE_PX):
            answer.changes(plan)
    evidence.replica(plan)
    evidence.command(plan)
    hand_over.check(plan)
    hand_over.downloads(plan)
    evidence.candidates(plan)
    evidence.why(plan)


if __name__ == "__main__":
    main()
