"""The widgets of the Simulate page's own inputs; they are in the address and come back when the page does."""

from typing import Any

import streamlit as st

from planner.errors import InputError
from planner.plans.results import Plan
from planner.replay import ReplaySettings
from planner.ui.components.common import READABLE_PX, side_by_side
from planner.ui.views.simulate_inputs import (
    BY_KEY,
    INPUTS,
    KEYS,
    START_KEY,
    Input,
    InputState,
    Section,
    complaints_of,
    key_of,
    offered,
    placeholders,
    read_inputs,
    read_start,
    summary_of,
)
from planner.ui.words import literal, sentence, stop

_KEPT = "_simulate_values"
_LINK = "_simulate_link"
_SECTIONS: tuple[tuple[Section, str, str], ...] = (
    ("requests", "Requests", ":material/forum:"),
    ("engine", "Engine", ":material/tune:"),
)


def notices() -> None:
    """Say what the opened link asked of this page and didn't get."""
    if _LINK not in st.session_state:
        st.session_state[_LINK] = complaints_of({key: st.query_params.get_all(key) for key in st.query_params})
    for notice in st.session_state[_LINK]:
        st.warning(sentence(notice), icon=":material/link_off:")


def settings_inputs(plan: Plan) -> InputState:
    """Draw the inputs, folded to a line each, and return what they state."""
    _bring_back()
    state = read_inputs(_current())
    for column, (section, title, icon) in zip(side_by_side(), _SECTIONS, strict=True):
        with column:
            _section(section, f"**{title}**", icon, plan, state)
    _keep()
    return read_inputs(_current())


def start_input() -> float | InputError | None:
    """Draw the time from which steps are shown; return it, None for the longest step, or what is wrong with it."""
    text = st.text_input(
        "From (seconds from the start)",
        key=START_KEY,
        bind="query-params",
        placeholder="around the longest step",
        width=260,
        help="Empty: around the longest step. Or a time, such as 90 or 2 min.",
    )
    _keep()
    try:
        return read_start(text or "")
    except InputError as wrong:
        complain(wrong)
        return wrong


def complain(fault: InputError) -> None:
    """Say what is wrong with a field, under it."""
    st.markdown(f":red[:material/error: {sentence(stop(fault.bound))} {sentence(stop(fault.remedy))}]")


def faults(state: InputState) -> None:
    """Say which fields can't be read."""
    st.markdown("#### The replay waits for a field")
    for key, fault in state.faults.items():
        refused(fault, key)


def refused(fault: InputError, key: str | None = None) -> None:
    """Say which setting is wrong or refused by the engine, with a button that sets it back; key : of its field, if known."""
    keys = _to_reset(key or key_of(fault))
    with st.container(border=True, width=READABLE_PX):
        st.markdown(f":material/error: {sentence(str(fault))}")
        if keys:
            st.button(
                "Set back to the plan's", key=f"sim-fix-{keys[0]}", icon=":material/restart_alt:", on_click=_reset, args=(keys,)
            )


def _to_reset(key: str | None) -> tuple[str, ...]:
    """Return the field to set back: the one that is complained of, or where nobody changed that, all that were changed."""
    values = _current()
    changed = tuple(name for name in KEYS if values[name] and values[name] != _default(name))
    return (key,) if key in changed and key is not None else changed


def _section(section: Section, title: str, icon: str, plan: Plan, state: InputState) -> None:
    fields = [each for each in offered(plan) if each.section == section]
    wrong = any(each.key in state.faults for each in fields)
    summary = literal(summary_of(section, state.settings or ReplaySettings(), plan)) if not wrong else "correct the marked field"
    hints = placeholders(plan)
    with st.expander(f"{title} {summary}", key=f"sim-section-{section}", icon=":material/error:" if wrong else icon):
        columns = st.columns(2, gap="medium")
        for index, each in enumerate(fields):
            with columns[index % 2]:
                _widget(each, hints.get(each.key))
                if each.key in state.faults:
                    complain(state.faults[each.key])
        if section == "engine":
            st.caption("A changed engine serves the same requests as the planned one, and both are compared.")
        keys = tuple(each.key for each in INPUTS if each.section == section)
        st.button(
            "Back to the plan's",
            key=f"sim-reset-{section}",
            icon=":material/restart_alt:",
            on_click=_reset,
            args=(keys,),
            disabled=all((_current()[key] or _default(key)) == _default(key) for key in keys),
        )


def _widget(each: Input, hint: str | None) -> None:
    common: dict[str, Any] = {"key": each.key, "bind": "query-params", "help": each.help}
    if each.choices is not None:
        st.selectbox(each.label, list(each.choices), **common)
    else:
        st.text_input(each.label, placeholder=hint, **common)


def _current() -> dict[str, str]:
    return {key: str(st.session_state.get(key) or "") for key in KEYS}


def _default(key: str) -> str:
    return next((each.default for each in INPUTS if each.key == key), "")


def _reset(keys: tuple[str, ...]) -> None:
    for key in keys:
        st.session_state[key] = _default(key)


def _bring_back() -> None:
    """Give widgets that don't exist yet the values of the link, or those that they had when another page dropped them."""
    kept = st.session_state.get(_KEPT, {})
    for key in KEYS:
        value = kept.get(key, st.query_params.get(key))
        if key not in st.session_state and value and _possible(key, value):
            st.session_state[key] = value


def _possible(key: str, value: str) -> bool:
    choices = BY_KEY[key].choices if key in BY_KEY else None
    return choices is None or value in choices


def _keep() -> None:
    held = {key: st.session_state[key] for key in KEYS if key in st.session_state}
    st.session_state[_KEPT] = {**st.session_state.get(_KEPT, {}), **held}
