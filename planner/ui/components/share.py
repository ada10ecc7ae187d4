"""The scenario as something to pass on: a link, a file, and the way back from a file."""

import streamlit as st

from planner.scenario import Scenario
from planner.ui import actions, links
from planner.ui.fields import changed, defaults
from planner.ui.inputs import scenario_state

_UPLOAD_KEY = "scenario-file"


def share() -> None:
    """Draw the foot of the sidebar: copy the link, save or open the scenario, start afresh."""
    state = scenario_state()
    with st.container(horizontal=True, gap="small"):
        with st.popover("Share", icon=":material/link:"):
            if state.scenario is None:
                st.caption("Correct the marked field first; then the scenario can be passed on.")
            else:
                st.markdown("**Link to this scenario**")
                st.code(_address(state.scenario), language=None, wrap_lines=True)
                st.download_button(
                    "Scenario as JSON",
                    state.scenario.to_json(),
                    f"scenario-{state.scenario.digest()}.json",
                    "application/json",
                    key="scenario-json",
                    icon=":material/download:",
                    width="stretch",
                    help="The same document that the command line and Python read.",
                )
            st.file_uploader(
                "Open a scenario",
                type="json",
                key=_UPLOAD_KEY,
                on_change=actions.apply_file,
                args=(_UPLOAD_KEY,),
                max_upload_size=1,
            )
        everything = list(defaults())
        st.button(
            "Start afresh",
            key="reset-all",
            icon=":material/restart_alt:",
            type="tertiary",
            on_click=actions.reset,
            args=(everything,),
            disabled=not changed(everything, state.widgets),
        )


def _address(scenario: Scenario) -> str:
    return links.link_to(st.context.url or "http://127.0.0.1:8501/", scenario, links.own_parameters())
