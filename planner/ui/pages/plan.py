"""The Plan page: the answer first, then the evidence, then what to do."""

import streamlit as st

from planner.errors import InputError
from planner.ui.components import answer, evidence
from planner.ui.inputs import scenario_state
from planner.ui.plans import cached_plan, catalogue_stamp

answer.notices()
state = scenario_state()
if state.scenario is None:
    answer.faults(state)
    st.stop()
try:
    plan = cached_plan(state.scenario, catalogue_stamp())
except InputError as fault:
    answer.refused(state, fault)
    st.stop()

answer.answer(plan)
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
