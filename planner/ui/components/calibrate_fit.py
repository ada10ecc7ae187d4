"""The fit on the Calibrate page: run beside the page with its progress, drawn against the points, kept as a record."""

from collections.abc import Sequence

import streamlit as st

from planner.errors import InputError
from planner.paths import user_home
from planner.scenario import Scenario
from planner.tuning import CalibrationFit, Target, UserFile, fit_files, save_own_record
from planner.ui import actions
from planner.ui.charts.calibrate import error_dots, intervals, predicted_measured, residuals
from planner.ui.components import calibrate_upload as uploading
from planner.ui.components.calibrate import download
from planner.ui.components.common import READABLE_PX, heading, show, side_by_side
from planner.ui.components.simulate_jobs import Tell, result_of
from planner.ui.plans import catalogue_stamp
from planner.ui.views import calibrate as views
from planner.ui.views import calibrate_files as files_view
from planner.ui.views import calibrate_fit as words
from planner.ui.views.calibrate_collect import Place
from planner.ui.views.calibrate_record import interval_rows
from planner.ui.words import sentence

SLOT = "calibrate"


def fit(scenario: Scenario, place: Place) -> None:
    """Draw everything from the upload to the kept record."""
    heading("Fit a record to what you measured")
    label = "Collectors' files, benchmark results or step logs"
    given = uploading.upload(SLOT, label, files_view.FORMATS, files_view.example)
    if not given:
        return
    ids = tuple(each.id for each in given)
    files = result_of("read", ("read", ids), uploading.weight_of(given), lambda _tell: files_view.read_all(given), "Reading")
    if files is None:
        return
    usable = uploading.what_was_read(files, SLOT)
    target = uploading.form(usable, place, SLOT, "Fit") if usable else None
    if target is not None:
        _fitted(usable, target, scenario, ids)


def _fitted(files: Sequence[UserFile], target: Target, scenario: Scenario, ids: tuple[str, ...]) -> None:
    """Run the fit and draw what it gives, or why it can't be done."""

    def work(tell: Tell) -> CalibrationFit | InputError:
        try:
            return fit_files(files, target, tell=tell)
        except InputError as fault:
            return fault

    found = result_of("fit", ("fit", ids, target, catalogue_stamp()), sum(file.rows for file in files), work, "Fitting")
    if isinstance(found, InputError):
        st.error(sentence(str(found)), icon=":material/error:")
    elif found is not None:
        _result(found)
        _keep(found, scenario)


def _result(found: CalibrationFit) -> None:
    with st.container(width=READABLE_PX):
        st.markdown(f"#### {sentence(words.summary(found))}")
        for note in words.notes(found):
            st.caption(f":material/info: {sentence(note)}")
    left, right = side_by_side()
    with left:
        for throughput, unit in ((False, "ms"), (True, "tokens/s")):
            rows, title = words.point_rows(found, throughput=throughput)
            if len(rows) > 1:
                show(predicted_measured(rows, title, unit), key=f"chart-fit-points-{throughput}")
    with right:
        rows, title = words.error_rows(found)
        if rows:
            show(error_dots(rows, title), key="chart-fit-errors")
        rows, _ = interval_rows(found.record, words.fitted_paths(found))
        if rows:
            show(intervals(rows, words.parameter_title(found)), key="chart-fit-intervals")
    _residuals(found)
    with st.expander("Errors and figures as tables", key="fit-tables"):
        errors = words.error_frame(found)
        if not errors.empty:
            st.dataframe(errors, hide_index=True, alt="Errors before and after the fit", height="content")
        alt = "Fitted figures beside those before"
        st.dataframe(words.parameter_frame(found), hide_index=True, alt=alt, height="content")


def _residuals(found: CalibrationFit) -> None:
    inputs: tuple[tuple[words.Input, str], ...] = (("sequences", "Sequences"), ("context_tokens", "Tokens of context"))
    for column, (name, quantity) in zip(side_by_side(), inputs, strict=True):
        rows, title = words.residual_rows(found, name)
        with column:
            if rows:
                show(residuals(rows, title, name, quantity), key=f"chart-fit-residuals-{name}")


def _keep(found: CalibrationFit, scenario: Scenario) -> None:
    """Offer to keep the record and to plan with it, and to download it."""
    heading("Keep it")
    with st.container(width=READABLE_PX):
        if user_home() is None:
            st.caption(sentence(words.without_a_home(found)))
        else:
            name = st.text_input(
                "Name of the record",
                key="calibrate-name",
                max_chars=80,
                placeholder="such as my-cluster-2026-11",
                help="Lower-case letters, digits, dots and dashes. It is kept under the GPU's id in PLANNER_HOME.",
                persist_state="session",
            )
            st.button(
                "Save it and use it in this plan",
                key="calibrate-save",
                type="primary",
                icon=":material/save:",
                on_click=_save,
                args=(found, name, scenario),
            )
        download(found.record, key="calibrate-download")


def _save(found: CalibrationFit, name: str, scenario: Scenario) -> None:
    try:
        path = save_own_record(found.record, name)
    except InputError as fault:
        actions.complain(fault)
        return
    kept = files_view.kept_record(path)
    actions.apply_patch(scenario, views.patch_for(kept, scenario))
    st.toast(sentence(f"Kept as {kept.id}; the plan uses it now."), icon=":material/check:")
