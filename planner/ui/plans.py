"""The plan of a scenario, made once and kept: its answer first, then the whole with its evidence."""

import itertools
import time

import streamlit as st

from planner.paths import user_home
from planner.plans import Answer, complete, first_answer
from planner.plans.results import Plan
from planner.scenario import Scenario
from planner.ui.components.simulate_jobs import kept, result_of

_WEIGHT = 20_000
"""What a plan weighs among the kept results, in requests: it holds figures of runs, not the runs."""
_BREATH_S = 0.2
"""How long a new answer is left alone, so that the browser shows it before charts and simulations keep every core busy: without,
it shows up to a second later."""
_SHOWN = "_answer_shown"
_MAX_FILES = 2_000
_FOLDERS = ("hardware_profiles", "models", "workloads")
"""What a user's folder mirrors. The rest of it, a home folder perhaps, is none of the app's business."""


def cached_plan(scenario: Scenario, catalogue: str) -> Plan:
    """Return the plan of a scenario.

    catalogue : state of the user's own files, so that a changed file makes a new plan

    A plan is frozen all through, so sessions share it as it is; copying it for each run would take longer than the page.
    """
    answer: Answer = kept(("answer", scenario.digest(), catalogue), _WEIGHT, lambda: first_answer(scenario))
    plan: Plan = kept(("plan", scenario.digest(), catalogue), _WEIGHT, lambda: complete(answer))
    return plan


def answer_in_stages(scenario: Scenario, catalogue: str) -> Answer | None:
    """Return the plan's choice with its figures; None while it is being searched, after drawing how far that is."""
    return result_of("answer", ("answer", scenario.digest(), catalogue), _WEIGHT, lambda tell: first_answer(scenario, tell))


def evidence_in_stages(answer: Answer, catalogue: str) -> Plan | None:
    """Return the whole plan of an answer; None while its evidence is being simulated, after drawing how far that is."""
    key = ("plan", answer.scenario.digest(), catalogue)
    if st.session_state.get(_SHOWN) != key:
        st.session_state[_SHOWN] = key
        time.sleep(_BREATH_S)
    return result_of("plan", key, _WEIGHT, lambda tell: complete(answer, tell))


def catalogue_stamp() -> str:
    """Return the state of the user's own files: their paths, times and sizes."""
    home = user_home()
    if home is None:
        return ""
    found = (path for folder in _FOLDERS for path in (home / folder).rglob("*") if path.is_file())
    files = sorted(itertools.islice(found, _MAX_FILES))
    return ";".join(f"{path}:{path.stat().st_mtime_ns}:{path.stat().st_size}" for path in files)
