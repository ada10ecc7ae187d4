"""The plan of a scenario, made once and kept."""

import itertools

import streamlit as st

from planner.paths import user_home
from planner.plans import first_answer, plan
from planner.plans.results import Plan
from planner.scenario import Scenario

_KEPT = 64
_MOST_ESTIMATED = 1000
_ESTIMATED: set[tuple[str, str]] = set()
_MAX_FILES = 2_000
_FOLDERS = ("hardware_profiles", "models", "workloads")
"""What a user's folder mirrors. The rest of it, a home folder perhaps, is none of the app's business."""


@st.cache_resource(max_entries=_KEPT, show_spinner=False)
def cached_plan(scenario: Scenario, catalogue: str) -> Plan:  # noqa: ARG001 - part of the cache's key
    """Return the plan of a scenario.

    catalogue : state of the user's own files, so that a changed file makes a new plan

    A plan is frozen all through, so sessions share it as it is; copying it for each run would take longer than the page.
    """
    return plan(scenario)


def first_estimate(scenario: Scenario, catalogue: str) -> str | None:
    """Return the answer before its settings are searched, once for each scenario that has no plan yet; None when there is one."""
    key = (scenario.digest(), catalogue)
    if key in _ESTIMATED:
        return None
    if len(_ESTIMATED) >= _MOST_ESTIMATED:
        _ESTIMATED.clear()
    _ESTIMATED.add(key)
    return first_answer(scenario)


def catalogue_stamp() -> str:
    """Return the state of the user's own files: their paths, times and sizes."""
    home = user_home()
    if home is None:
        return ""
    found = (path for folder in _FOLDERS for path in (home / folder).rglob("*") if path.is_file())
    files = sorted(itertools.islice(found, _MAX_FILES))
    return ";".join(f"{path}:{path.stat().st_mtime_ns}:{path.stat().st_size}" for path in files)
