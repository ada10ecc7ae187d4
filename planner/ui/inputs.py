"""The sidebar: the whole scenario, in the order in which people think of it, one line for each section when folded."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from planner.errors import InputError
from planner.scenario import Scenario, scenario_from_dict
from planner.ui import actions, links
from planner.ui.choices import options
from planner.ui.fields import (
    BY_KEY,
    FIELDS,
    LOAD_KEY,
    LOAD_KINDS,
    OFFLINE_KEY,
    Field,
    Section,
    Values,
    changed,
    defaults,
    document,
    field_of,
)
from planner.ui.summaries import summary_of
from planner.ui.words import sentence

_STATE = "_scenario_state"
_SECTIONS: tuple[tuple[Section, str, str], ...] = (
    ("workload", "Workload", ":material/forum:"),
    ("model", "Model", ":material/network_node:"),
    ("where", "Where", ":material/dns:"),
    ("targets", "Targets", ":material/flag:"),
    ("fleet", "Fleet", ":material/stacks:"),
    ("advanced", "Advanced", ":material/tune:"),
)


@dataclass(frozen=True, slots=True)
class ScenarioState:
    """What the sidebar holds.

    widgets : what each widget holds, by key
    scenario : None while a field can't be read
    faults : what is wrong with which field
    """

    widgets: Values
    scenario: Scenario | None
    faults: tuple[InputError, ...]


def scenario_state() -> ScenarioState:
    """Return the state that the sidebar left in this run; pages read it."""
    state: ScenarioState = st.session_state[_STATE]
    return state


def scenario_sidebar() -> None:
    """Draw the sidebar and keep its state for the page."""
    links.adopt_link()
    state = read_state(links.current())
    for section, title, icon in _SECTIONS:
        _section(section, title, icon, state)
    st.session_state[_STATE] = read_state(links.current())


def read_state(values: Values) -> ScenarioState:
    """Return the scenario that the widgets state, or what is wrong with them."""
    tree, faults = document(values)
    if faults:
        return ScenarioState(values, None, tuple(faults))
    try:
        return ScenarioState(values, scenario_from_dict(tree), ())
    except InputError as fault:
        return ScenarioState(values, None, (fault,))


def _section(section: Section, title: str, icon: str, state: ScenarioState) -> None:
    fields = [field for field in FIELDS if field.section == section]
    wrong = {field.key for fault in state.faults if (field := _field_of(fault, state.widgets)) in fields and field is not None}
    label = f"**{title}** {summary_of(section, state.widgets)}"
    with st.expander(label, key=f"section-{section}", icon=":material/error:" if wrong else icon):
        if section == "workload":
            _workload(fields, state)
        elif section == "targets":
            _targets(fields, state)
        else:
            _widgets(fields, state)
        if section == "advanced":
            keys = [field.key for field in fields]
            st.button(
                "Reset to defaults",
                key="reset-advanced",
                icon=":material/restart_alt:",
                on_click=actions.reset,
                args=(keys,),
                disabled=not changed(keys, state.widgets),
                width="stretch",
            )


def _workload(fields: list[Field], state: ScenarioState) -> None:
    _widgets([BY_KEY["workload"]], state)
    tabs = st.tabs(list(LOAD_KINDS), key=LOAD_KEY, bind="query-params")
    for tab, kind in zip(tabs, LOAD_KINDS, strict=True):
        with tab:
            _widgets([field for field in fields if field.load == kind], state)
    _widgets([BY_KEY["peak"]], state)


def _targets(fields: list[Field], state: ScenarioState) -> None:
    offline = st.toggle("Offline: throughput and cost only", key=OFFLINE_KEY, bind="query-params")
    _widgets(fields, state, disabled=bool(offline))


def _widgets(fields: list[Field], state: ScenarioState, *, disabled: bool = False) -> None:
    for field in fields:
        _widget(field, state.widgets, disabled=disabled)
        for fault in state.faults:
            if _field_of(fault, state.widgets) is field:
                st.markdown(f":red[:material/error: {sentence(_short(fault))}]")


def _widget(field: Field, values: Values, *, disabled: bool) -> None:
    default, value = defaults()[field.key], values[field.key]
    offered = options(field.key, str(values.get("provider") or "")) if field.choice or field.multiple else []
    common: dict[str, Any] = {
        "key": field.key,
        "bind": "query-params",
        "help": field.help,
        "placeholder": field.placeholder,
        "disabled": disabled,
    }
    if field.multiple:
        chosen = value if isinstance(value, list) else []
        offered += [item for item in chosen if item not in offered]
        st.multiselect(field.label, offered, default=default, accept_new_options=field.key == "tp", **common)
    elif field.choice:
        offered += [str(item) for item in (default, value) if item and item not in offered]
        st.selectbox(field.label, offered, index=offered.index(str(default)) if default else None, **common)
    else:
        st.text_input(field.label, str(default or ""), **common)


def _field_of(fault: InputError, values: Values) -> Field | None:
    return field_of(fault.field, values[LOAD_KEY])


def _short(fault: InputError) -> str:
    """Return a complaint without its field, which stands above it."""
    return f"{fault.bound[:1].upper()}{fault.bound[1:]}. {fault.remedy}."
