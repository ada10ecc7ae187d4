"""What a click changes: a patch of the scenario, a reset, a scenario file.

All are callbacks: they run before the widgets of the next run exist, when these can still be set.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from planner.errors import InputError
from planner.scenario import Scenario, patched, scenario_from_json
from planner.ui.fields import BY_KEY, Values, defaults, values_of

_MESSAGE = "_action_message"


def apply_patch(scenario: Scenario, patch: Mapping[str, Any]) -> None:
    """Set the widgets to the scenario that a patch makes."""
    try:
        _show(patched(scenario, patch))
    except InputError as fault:
        complain(fault)


def apply_file(key: str) -> None:
    """Set the widgets to the scenario of an uploaded file; key : of the upload widget."""
    upload = st.session_state.get(key)
    if upload is None:
        return
    try:
        _show(scenario_from_json(upload.getvalue()))
    except InputError as fault:
        complain(fault)


def reset(keys: Sequence[str]) -> None:
    """Set widgets back to their defaults."""
    normal = defaults()
    _put({key: normal[key] for key in keys})


def complain(fault: InputError) -> None:
    """Keep a complaint for the next page to show."""
    st.session_state[_MESSAGE] = str(fault)


def message() -> str | None:
    """Return what went wrong with the last click, once."""
    found: str | None = st.session_state.pop(_MESSAGE, None)
    return found


def _show(scenario: Scenario) -> None:
    _put(values_of(scenario))


def _put(values: Values) -> None:
    """Set widgets; a choice among words holds None where nothing is chosen."""
    for key, value in values.items():
        chosen = BY_KEY[key].choice if key in BY_KEY else False
        st.session_state[key] = (value or None) if chosen else value
