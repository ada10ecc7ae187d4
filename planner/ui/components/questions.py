"""The frame of the questions' pages: which view of a group, whose case, its inputs, and the parts that every view has.

A view is drawn in this order: the answer in one sentence, the chart, formula beside simulation, why, the setting to change.
"""

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.cases import planned_case, textbook_case
from planner.errors import InputError
from planner.ui.components import answer
from planner.ui.components.common import READABLE_PX, text_table
from planner.ui.components.simulate_jobs import Tell, result_of
from planner.ui.inputs import scenario_state
from planner.ui.plans import cached_plan, catalogue_stamp
from planner.ui.views.question_inputs import CASE, VIEW, Asked, Input, complaints_of, read_asked, widget_key
from planner.ui.views.questions import FORMER_TITLES, Beside, asked_of, beside_frame
from planner.ui.words import literal, sentence, stop

T = TypeVar("T")
_KEPT = "_question_values"
_LINKED = "_question_link"
_OWN, _TEXTBOOK = "Your scenario", "Textbook"
_INPUT_PX = 192
_MOST_SHOWN = 40


@dataclass(frozen=True, slots=True)
class View:
    """One question.

    key : its name in links, lower case and short
    title : the question as a planner asks it, in a few words
    inputs : its own inputs on a case; their initial texts may depend on it
    draw : draws it for what was asked
    asked_of : whose question it is, where that isn't the case's replica; None where it is
    """

    key: str
    title: str
    inputs: Callable[[Case], Sequence[Input]]
    draw: Callable[[Case, Asked], None]
    asked_of: Callable[[Case], str | None] | None = None


def group_page(group: str, views: Sequence[View]) -> None:
    """Draw a group of questions: one view at a time, on the scenario's replica or on the textbook's.

    group : the group's name in links
    """
    answer.notices()
    linked = _linked()
    brought = _bring_back(group)
    titles = {view.title: view for view in views}
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        chosen = _segments("Question", list(titles), widget_key(group, VIEW), brought)
        whose = _segments("Asked of", [_OWN, _TEXTBOOK], widget_key(group, CASE), brought)
    view = titles[chosen]
    notices = st.container()
    case, answered = _case(textbook=whose == _TEXTBOOK)
    if case is None:
        _keep()
        return
    own = None if view.asked_of is None else view.asked_of(case)
    st.caption(sentence(own or asked_of(case, answered=answered)))
    inputs = view.inputs(case)
    with notices:
        of_group = {VIEW: list(titles), CASE: [_OWN, _TEXTBOOK]}
        for notice in complaints_of(linked, (group, of_group), (view.key, {each.name: None for each in inputs})):
            st.warning(sentence(notice), icon=":material/link_off:")
    asked = _inputs(view, inputs, _bring_back(view.key))
    _keep()
    if asked.faults:
        return
    try:
        view.draw(case, asked)
    except InputError as fault:
        with st.container(border=True, width=READABLE_PX):
            st.markdown(f":material/error: {sentence(str(fault))}")


def say(explanation: Explanation) -> None:
    """Draw the answer: one sentence with its figure."""
    with st.container(width=READABLE_PX):
        st.markdown(f"#### {sentence(stop(explanation.answer))}")


def simulated(view: str, case: Case, asked: Asked, work: Callable[[Tell], T], name: str = "run") -> T | None:
    """Return simulated results; None while they are being made, after drawing progress with a cancel.

    view : the view's key; name : tells several simulations of one view apart; work : gets a function to tell progress with
    """
    key: Hashable = ("question", view, name, case.key, catalogue_stamp(), asked.key)
    return result_of(f"q-{view}-{name}", key, 1, work)


def measured(found: T | None) -> T:
    """Return what simulated work found.

    Raises InputError where no request got through the engine: the page then says so, and the work isn't begun again and again.
    """
    if found is None:
        remedy = "Ask for fewer or shorter requests, or choose a layout with a larger KV cache"
        raise InputError("These requests", "simulated", "must get through the engine, and none does", remedy)
    return found


def beside(rows: Sequence[Beside], alt: str) -> None:
    """Draw figures by formula and simulated, side by side, and below them where they part; alt : for screen readers."""
    frame = beside_frame(rows)
    st.markdown("**Formula beside simulation**" if "By formula" in frame else "**What was simulated**")
    text_table(frame, alt)
    with st.container(width=READABLE_PX, gap="xxsmall"):
        for row in rows:
            if row.note:
                st.caption(f"**{sentence(row.figure)}** {sentence(stop(row.note))}")


def why(formulas: Sequence[str], notes: Sequence[str] = ()) -> None:
    """Draw the derivation: formulas with the numbers put in, and what they rest on."""
    st.markdown("**Why**")
    with st.container(width=READABLE_PX):
        for formula in formulas:
            st.code(formula, language=None, wrap_lines=True)
        for note in notes:
            st.caption(sentence(stop(note)))


def setting(text: str, code: str | None = None, language: str | None = "bash") -> None:
    """Draw what to change, with a flag, rule or file to copy where there is one."""
    st.markdown("**What to set**")
    with st.container(border=True, width=READABLE_PX):
        st.markdown(sentence(stop(text)))
        if code is not None:
            st.code(code, language=language, wrap_lines=True)


def _segments(label: str, options: list[str], key: str, brought: Set[str]) -> str:
    chosen = st.segmented_control(
        label,
        options,
        default=None if key in brought else options[0],
        key=key,
        bind="query-params",
        required=True,
        label_visibility="collapsed",
    )
    return chosen if chosen in options else options[0]


def _case(*, textbook: bool) -> tuple[Case | None, bool]:
    """Return the case, and whether its plan has an answer; no case when the scenario has none, after saying why."""
    if textbook:
        return textbook_case(), True
    state = scenario_state()
    if state.scenario is None:
        answer.faults(state)
        return None, False
    try:
        with st.spinner("Planning the replica to ask …", show_time=True):
            plan = cached_plan(state.scenario, catalogue_stamp())
            return planned_case(plan), plan.chosen is not None
    except InputError as fault:
        answer.refused(state, fault)
        return None, False


def _linked() -> dict[str, str]:
    """Return the parameters of the link that was opened, before any widget has taken them over."""
    linked: dict[str, str] = st.session_state.setdefault(_LINKED, {key: st.query_params[key] for key in st.query_params})
    return linked


def _inputs(view: View, inputs: Sequence[Input], brought: Set[str]) -> Asked:
    """Draw a view's inputs, as many in a row as fit, with what is wrong under each.

    brought : keys that were given a value just now
    """
    texts = {each.name: str(st.session_state.get(widget_key(view.key, each.name)) or "") for each in inputs}
    unknown = {each.name: texts[each.name] for each in inputs if each.choices and texts[each.name] not in {"", *each.choices}}
    asked = read_asked(inputs, texts | dict.fromkeys(unknown, ""))
    with st.container(horizontal=True, gap="small"):
        for each in inputs:
            with st.container(width=_INPUT_PX):
                _widget(view, each, brought)
                if each.name in unknown:
                    st.caption(f"The link asks for {literal(unknown[each.name][:_MOST_SHOWN])}, which isn't offered.")
                fault = asked.faults.get(each.name)
                if fault is not None:
                    st.markdown(f":red[:material/error: {sentence(stop(fault.bound))} {sentence(stop(fault.remedy))}]")
    return asked


def _widget(view: View, each: Input, brought: Set[str]) -> None:
    key = widget_key(view.key, each.name)
    common: dict[str, Any] = {"key": key, "bind": "query-params", "help": each.help}
    if each.choices is None:
        st.text_input(literal(each.label), placeholder=each.initial, **common)
        return
    options = list(each.choices)
    if st.session_state.get(key) not in options:
        st.session_state.pop(key, None)
    # The same first value in every run: a browser that is slow to draw the widget shows that of the last one.
    first: dict[str, Any] = {"value": each.initial} if each.slider else {"index": options.index(each.initial)}
    if key in brought and key in st.session_state:
        first = {}
    if each.slider:
        st.select_slider(literal(each.label), options, **first, **common)
    else:
        st.selectbox(literal(each.label), options, **first, **common)


def _bring_back(name: str) -> Set[str]:
    """Give widgets that don't exist yet the values of the link, or those that they had when another page dropped them.

    name : the group or the view about to be drawn; what is drawn later is brought back then, as only a widget that is drawn in the
        same run takes the value over. Returns the keys.
    """
    brought: set[str] = set()
    for key, value in _known().items():
        if key.startswith(widget_key(name, "")) and key not in st.session_state and value:
            if value in FORMER_TITLES and key in st.query_params:
                st.query_params[key] = FORMER_TITLES[value]
                st.rerun()
            st.session_state[key] = value
            brought.add(key)
    return brought


def _known() -> dict[str, Any]:
    """Return the questions' values that were kept, and those of the link that nobody has changed yet."""
    linked: dict[str, Any] = {key: st.query_params[key] for key in st.query_params if key.startswith("q-")}
    return {**linked, **st.session_state.get(_KEPT, {})}


def _keep() -> None:
    held = {str(key): value for key, value in st.session_state.items() if str(key).startswith("q-")}
    st.session_state[_KEPT] = {**_known(), **held}
