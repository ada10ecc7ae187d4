"""The frame of the app: navigation, the scenario in the sidebar, and the page."""

import streamlit as st

from planner.errors import InputError
from planner.ui import inputs
from planner.ui.assets import ICON, WORDMARK
from planner.ui.components import share
from planner.ui.components.common import stopped

SIDEBAR_PX = 340


def main() -> None:
    """Draw one run of the app."""
    st.set_page_config(page_title="Headroom", page_icon=ICON, layout="wide", initial_sidebar_state=SIDEBAR_PX)
    st.logo(WORDMARK, size="large", icon_image=ICON)
    page = st.navigation(
        [
            st.Page("planner/ui/pages/plan.py", title="Plan", icon=":material/query_stats:", default=True),
            st.Page("planner/ui/pages/simulate.py", title="Simulate", icon=":material/timeline:"),
            st.Page("planner/ui/pages/catalogue.py", title="Catalogue", icon=":material/database:"),
        ],
        position="top",
    )
    try:
        with st.sidebar:
            inputs.scenario_sidebar()
            share.share()
        page.run()
    except InputError as fault:
        stopped(fault)


if __name__ == "__main__":
    main()
