"""The top of the Plan page: the sentence, the four figures, and what would change them."""

import datetime as dt
from collections.abc import Sequence

import streamlit as st

from planner.errors import InputError
from planner.models import load_model
from planner.plans import Answer
from planner.plans.caveats import caveats_of
from planner.plans.difference import difference
from planner.plans.results import Plan
from planner.ui import actions, links
from planner.ui.components.common import READABLE_PX, heading
from planner.ui.fields import LOAD_KEY, field_of
from planner.ui.inputs import ScenarioState
from planner.ui.views.answer import MetricView, first_metrics, further_changes, metrics, moved_figures, moved_inputs
from planner.ui.words import seconds, sentence, stop

METRIC_PX = 150
_SHOWN = "_shown_plan"
_BEFORE = "_plan_before"


def notices() -> None:
    """Say what a link or a click asked for and didn't get."""
    for notice in (*links.notices(), actions.message()):
        if notice:
            st.warning(sentence(notice), icon=":material/link_off:")


def faults(state: ScenarioState) -> None:
    """Say which fields can't be read, each with a button that sets it back."""
    heading("The scenario can't be planned yet")
    for index, fault in enumerate(state.faults):
        field = field_of(fault.field, state.widgets[LOAD_KEY])
        name = field.label if field is not None else fault.field
        with st.container(border=True, width=READABLE_PX):
            st.markdown(f":material/error: **{sentence(name)}**", help=None)
            st.markdown(sentence(str(fault)))
            if field is not None:
                st.button(
                    "Set back to the default",
                    key=f"fix-{index}",
                    icon=":material/restart_alt:",
                    on_click=actions.reset,
                    args=([field.key],),
                )


def refused(state: ScenarioState, fault: InputError) -> None:
    """Say why no plan could be made of a scenario that reads well."""
    faults(ScenarioState(state.widgets, None, (fault,)))


def first(found: Answer, today: dt.date) -> None:
    """Draw the sentence and the four figures before their evidence is there; nothing when there is no choice yet."""
    if found.chosen is not None and found.summary is not None:
        _headline(found.summary, first_metrics(found, today))
        _warnings(caveats_of(found.scenario, load_model(found.scenario.model.id), [found.chosen]))


def answer(plan: Plan, today: dt.date) -> None:
    """Draw the sentence with the figures in it, and the four figures with their intervals; today : marks an old price."""
    _headline(plan.summary, metrics(plan, today))
    _warnings(plan.warnings)


def _warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        st.caption(f":material/info: {sentence(warning)}")


def _headline(summary: str, views: Sequence[MetricView]) -> None:
    with st.container(width=READABLE_PX):
        st.markdown(f"#### {sentence(summary)}")
    if not views:
        return
    grid = st.grid(len(views), min_column_width=METRIC_PX)
    for view in views:
        with grid.container(border=True, height="stretch", gap="xxsmall"):
            st.metric(view.label, sentence(view.value), help=sentence(view.help))
            st.caption(sentence(view.note))


def moved(plan: Plan) -> None:
    """Say what moved since the plan before this one in the session, and why."""
    shown: Plan | None = st.session_state.get(_SHOWN)
    if shown is None or shown.scenario != plan.scenario:
        st.session_state[_BEFORE], st.session_state[_SHOWN] = shown, plan
    before: Plan | None = st.session_state.get(_BEFORE)
    if before is None:
        return
    change = difference(before, plan)
    with st.container(border=True, width=READABLE_PX):
        st.markdown(f":material/compare_arrows: {sentence(moved_inputs(change))}")
        st.caption(sentence(moved_figures(change)))
        st.caption(sentence(change.reason))


def nearest(plan: Plan) -> None:
    """Draw the nearest targets that can be met, with a button that applies them."""
    near = plan.nearest
    if near is None:
        return
    with st.container(border=True, width=READABLE_PX):
        st.markdown(sentence(stop(near.detail)))
        patch = {"targets.ttft_p99_s": near.ttft_p99_s, "targets.tpot_p99_s": near.tpot_p99_s}
        st.button(
            f"Plan for p99 TTFT {seconds(near.ttft_p99_s)}, p99 TPOT {seconds(near.tpot_p99_s)}",
            key="nearest",
            type="primary",
            on_click=actions.apply_patch,
            args=(plan.scenario, patch),
        )


def changes(plan: Plan) -> None:
    """Draw what would change the answer; each is a button that applies it."""
    shown = further_changes(plan)
    if not shown and plan.nearest is not None:
        return
    st.markdown("**What would change it**")
    if not shown:
        st.caption("Nothing near this scenario changes the answer.")
    for index, change in enumerate(shown):
        with st.container(border=True, horizontal=True, vertical_alignment="center", gap="small"):
            with st.container(gap="xxsmall"):
                st.markdown(f"**{sentence(change.title)}**")
                st.caption(sentence(stop(change.detail)))
            if change.patch is not None:
                st.button(
                    "Apply",
                    key=f"change-{index}",
                    help=sentence(change.title),
                    width="content",
                    on_click=actions.apply_patch,
                    args=(plan.scenario, change.patch),
                )
