"""The Simulate page: requests served one by one on a replica of the plan, with its settings or with others."""

import streamlit as st

from planner.errors import InputError
from planner.replay import replayed_candidate
from planner.ui.components import answer, simulate, simulate_inputs
from planner.ui.components.common import READABLE_PX
from planner.ui.inputs import scenario_state
from planner.ui.plans import cached_plan, catalogue_stamp
from planner.ui.words import sentence


def main() -> None:
    """Draw the page."""
    answer.notices()
    simulate_inputs.notices()
    state = scenario_state()
    if state.scenario is None:
        answer.faults(state)
        return
    try:
        with st.spinner("Planning the deployment to replay …", show_time=True):
            plan = cached_plan(state.scenario, catalogue_stamp())
    except InputError as fault:
        answer.refused(state, fault)
        return
    if replayed_candidate(plan) is None:
        with st.container(width=READABLE_PX):
            st.markdown(f"#### {sentence(plan.summary)}")
            st.markdown("There is no engine to replay: change the scenario until a candidate fits.")
        return
    top = st.container()
    inputs = simulate_inputs.settings_inputs(plan)
    if inputs.settings is None:
        with top:
            simulate_inputs.faults(inputs)
        return
    with top:
        try:
            found = simulate.replayed(plan, inputs.settings)
        except InputError as fault:
            simulate_inputs.refused(fault)
            return
        if found is None:
            return
        simulate.answer(found)
    for part in (
        simulate.latencies,
        simulate.comparison,
        simulate.over_time,
        simulate.steps,
        simulate.downloads,
        simulate.why,
    ):
        part(found)


if __name__ == "__main__":
    main()
