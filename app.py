"""The frame of the app: navigation, the scenario in the sidebar, and the page."""

import streamlit as st
from streamlit.navigation.page import Page

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
        {
            "": [
                _page("plan", "Plan", "query_stats", default=True),
                _page("simulate", "Simulate", "timeline"),
            ],
            "Questions": [
                _page("batching", "Batching", "stacks"),
                _page("latency", "Latency", "speed"),
                _page("sharing", "Sharing", "call_split"),
                _page("overload", "Overload", "emergency_heat"),
                _page("offline", "Offline", "nightlight"),
                _page("speculation", "Speculation", "fast_forward"),
            ],
            "Trust": [
                _page("calibrate", "Calibrate", "straighten"),
                _page("accuracy", "Accuracy", "target"),
                _page("catalogue", "Catalogue", "database"),
            ],
        },
        position="top",
    )
    try:
        with st.sidebar:
            inputs.scenario_sidebar()
            share.share()
        page.run()
    except InputError as fault:
        stopped(fault)


def _page(name: str, title: str, icon: str, *, default: bool = False) -> Page:
    """Return a page of the navigation; icon : a built-in Material icon."""
    return st.Page(f"planner/ui/pages/{name}.py", title=title, icon=f":material/{icon}:", default=default)


if __name__ == "__main__":
    main()
