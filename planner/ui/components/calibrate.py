"""The Calibrate page's parts: the record in use, how to measure, and every record there is."""

import streamlit as st

from planner.calibration.records import CalibrationRecord, list_records, own_record_ids
from planner.errors import InputError
from planner.plans.results import Plan
from planner.scenario import Scenario
from planner.ui import actions
from planner.ui.charts.calibrate import error_dots, intervals
from planner.ui.components import answer
from planner.ui.components.common import READABLE_PX, ColumnConfigs, heading, localized, show, side_by_side
from planner.ui.inputs import ScenarioState
from planner.ui.plans import cached_plan, catalogue_stamp
from planner.ui.views import calibrate as views
from planner.ui.views import calibrate_collect as collect
from planner.ui.views import calibrate_record as words
from planner.ui.words import literal, sentence, stop

SOURCE_COLUMNS = {"Source": st.column_config.TextColumn(width="large")}
_RECORD_COLUMNS: ColumnConfigs = {
    "What it is": st.column_config.TextColumn(width="large"),
}


def planned(state: ScenarioState) -> Plan | None:
    """Return the plan whose record the page is about; None after saying why there is none."""
    if state.scenario is None:
        answer.faults(state)
        return None
    try:
        with st.spinner("Planning, to know which record is in use …", show_time=True):
            return cached_plan(state.scenario, catalogue_stamp())
    except InputError as fault:
        answer.refused(state, fault)
        return None


def in_use(used: views.InUse) -> None:
    """Draw what the plan's step times rest on, and the parameters that it uses."""
    with st.container(width=READABLE_PX):
        st.markdown(f"#### {sentence(words.in_use(used.record))}")
    record(used.record, used.paths, "in-use")


def record(shown: CalibrationRecord, paths: frozenset[str] | None, key: str) -> None:
    """Draw a record: intervals and errors side by side, then every figure with its source.

    paths : only these parameters; None for all
    key : tells several records on a page apart
    """
    left, right = side_by_side()
    with left:
        rows, title = words.interval_rows(shown, paths)
        if rows:
            show(intervals(rows, title), key=f"chart-intervals-{key}")
    with right:
        _errors(shown, key)
    with st.expander("Every figure with its interval and source", key=f"figures-{key}"):
        frame = words.parameter_frame(shown)
        alt = f"Parameters of {shown.id} with intervals and sources"
        st.dataframe(frame, hide_index=True, alt=alt, height="content", column_config=SOURCE_COLUMNS)


def _errors(shown: CalibrationRecord, key: str) -> None:
    rows, title = words.error_rows(shown.evidence) if shown.evidence is not None else ([], "")
    if rows:
        show(error_dots(rows, title), key=f"chart-errors-{key}")
        note = words.held_out_note(shown)
        st.caption(sentence(note or ""))
        return
    st.markdown("**How far off it is isn't known**")
    st.markdown("No measured step of this GPU stands behind the record. Measure a few, and fit one of your own below.")


def measure(used: views.InUse) -> None:
    """Draw the collectors: what each is for, its command for this plan, and the file itself."""
    heading("Measure your own GPU")
    names = {collector.title: collector for collector in collect.COLLECTORS}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.segmented_control(
            "What to measure",
            list(names),
            default=next(iter(names)),
            key="calibrate-collector",
            required=True,
            persist_state="session",
        )
        full = st.segmented_control(
            "Effort", ["Quick", "Full"], default="Quick", key="calibrate-effort", required=True, persist_state="session"
        )
    collector = names[chosen]
    effort: collect.Effort = "full" if full == "Full" else "quick"
    with st.container(width=READABLE_PX):
        st.markdown(f"{sentence(collector.measures)} {sentence(collector.informs)}")
        st.markdown(f":material/timer: {sentence(collector.duration(effort))}  \n:material/memory: {sentence(collector.needs)}")
        st.code(collect.command(collector, effort, used.place), language="bash", wrap_lines=True)
        for note in collect.notes(collector, used.place):
            st.caption(sentence(note))
        st.download_button(
            f"Download {collector.file_name}",
            collect.source_of(collector),
            collector.file_name,
            "text/x-python",
            key="calibrate-collector-file",
            icon=":material/download:",
            on_click="ignore",
        )


def records(scenario: Scenario, used: CalibrationRecord) -> None:
    """Draw every record, shipped and own, and the details of one with what can be done with it."""
    heading("Every record")
    st.caption(
        "A plan uses the shipped record of its GPU and engine. One of yours is used when the plan names it, when it has a shipped "
        "one's id, or where nothing is shipped; the plan then says so."
    )
    known = list_records()
    own = own_record_ids()
    frame = words.records_frame(known, own)
    config = {**localized(frame), **_RECORD_COLUMNS}
    alt = "Calibration records with what each rests on"
    st.dataframe(frame, hide_index=True, alt=alt, height="content", column_config=config)
    by_id = {each.id: each for each in known}
    names = list(by_id)
    index = names.index(used.id) if used.id in by_id else None
    name = st.selectbox(
        "Details of", names, index=index, key="calibrate-record", width=READABLE_PX, placeholder="Choose a record to look into"
    )
    if name is None:
        return
    chosen = by_id[name]
    st.caption(sentence(chosen.description))
    with st.container(horizontal=True):
        use_button(chosen, scenario, key="use-record")
        download(chosen, key="download-record")
    if chosen.id != used.id:
        st.markdown(sentence(stop(words.rests_on(chosen))))
        record(chosen, None, "chosen")


def use_button(chosen: CalibrationRecord, scenario: Scenario, key: str) -> None:
    """Offer to plan with a record."""
    st.button(
        "Use it in this plan",
        key=key,
        type="primary",
        icon=":material/check:",
        disabled=scenario.engine.calibration_id == chosen.id,
        help="The plan names this record and is made for its GPU; both are in the sidebar and in the link.",
        on_click=use,
        args=(scenario, views.patch_for(chosen, scenario), chosen.id),
    )


def use(scenario: Scenario, patch: dict[str, object], record_id: str) -> None:
    """Set the scenario to plan with a record."""
    actions.apply_patch(scenario, patch)
    st.toast(f"The plan uses {literal(record_id)} now.", icon=":material/check:")


def download(chosen: CalibrationRecord, key: str) -> None:
    """Offer a record as a file."""
    st.download_button(
        "Download it as JSON",
        chosen.model_dump_json(indent=1, exclude_none=True),
        words.file_name(chosen.id),
        "application/json",
        key=key,
        icon=":material/download:",
        on_click="ignore",
    )
