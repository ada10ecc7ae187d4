"""The user's own measurements on the Accuracy page: the error on them, without leaving the page."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from planner.accuracy import AccuracyReport
from planner.errors import InputError
from planner.tuning import Tell
from planner.ui.charts.accuracy import predicted_rows
from planner.ui.charts.base import Row
from planner.ui.components import calibrate_upload as uploading
from planner.ui.components.common import READABLE_PX, heading, show
from planner.ui.components.simulate_jobs import result_of
from planner.ui.plans import catalogue_stamp
from planner.ui.views import accuracy_own as words
from planner.ui.views.accuracy import not_predicted_frame
from planner.ui.views.calibrate_collect import Place
from planner.ui.views.calibrate_files import Given
from planner.ui.words import literal, sentence

SLOT = "own"
_WEIGHT_OF_ROW = 10
T = TypeVar("T")


def own(place: Place, calibration_id: str | None) -> None:
    """Draw the upload and the errors on what it holds.

    place : of the scenario, for what a benchmark doesn't state; calibration_id : of the record that the scenario names, if any
    """
    heading("Add your own benchmark")
    given = uploading.upload(SLOT, "A table of measured results, or benchmark results", words.FORMATS)
    with st.container(width=READABLE_PX), st.expander("What a table must hold", key="own-schema"):
        st.markdown(sentence(words.SCHEMA_NOTE))
        st.download_button(
            "Table to fill in", words.TEMPLATE, "measurements.csv", "text/csv", key="own-template", icon=":material/download:"
        )
    tables = [each for each in given if words.is_table(each)]
    for index, table in enumerate(tables):
        _table(table, index, named=len(given) > 1)
    others = tuple(each for each in given if not words.is_table(each))
    if others:
        _benchmarks(others, place, calibration_id)


def _table(given: Given, index: int, *, named: bool) -> None:
    """Draw the errors on one table; named : say of which file they are."""
    key = ("own", given.id, catalogue_stamp())
    found = _outcome(f"own-table-{index}", key, len(given.data) // 1_000, lambda tell: words.own_report(given, tell))
    if found is not None:
        if named:
            st.markdown(f"**{literal(given.name)}**")
        _report(found, index)


def _report(report: AccuracyReport, index: int) -> None:
    st.markdown(f"#### {sentence(words.report_sentence(report))}")
    if report.predicted:
        rows, title = words.report_rows(report)
        _chart(rows, title, f"chart-own-table-{index}")
        frame = words.report_frame(report)
        st.dataframe(
            frame, hide_index=True, alt="Your rows with their predictions, largest error first", height="auto", placeholder=""
        )
    left_out = {**report.not_predicted, **report.not_compared}
    if left_out:
        st.markdown("**What isn't predicted or compared, and why**")
        st.dataframe(not_predicted_frame(left_out), hide_index=True, alt="Your rows that aren't predicted", height="content")
    if report.unreadable:
        st.markdown("**Lines that can't be read** (the header is line 1)")
        st.dataframe(words.unreadable_frame(report), hide_index=True, alt="Your lines that can't be read", height="content")
        more = words.more_unreadable(report)
        if more is not None:
            st.caption(more)


def _benchmarks(given: tuple[Given, ...], place: Place, calibration_id: str | None) -> None:
    ids = tuple(each.id for each in given)
    files = result_of(
        "own-read", ("own-read", ids), uploading.weight_of(given), lambda _tell: words.read_benchmarks(given), "Reading"
    )
    if files is None:
        return
    usable = uploading.what_was_read(files, SLOT)
    target = uploading.form(usable, place, SLOT, "Compare") if usable else None
    if target is None:
        return
    weight = _WEIGHT_OF_ROW * sum(file.rows for file in usable)
    key = ("own-runs", ids, target, calibration_id, catalogue_stamp())
    found = _outcome("own-runs", key, weight, lambda tell: words.compared(usable, target, calibration_id, tell))
    if found is not None:
        _points(found)


def _points(found: words.Compared) -> None:
    st.markdown(f"#### {sentence(words.points_sentence(found))}")
    rows, title = words.points_rows(found.points)
    _chart(rows, title, "chart-own-runs")
    frame = words.points_frame(found.points)
    st.dataframe(frame, hide_index=True, alt="Figures of your benchmark with their predictions, largest error first", height="auto")
    st.caption("To bring the predictions to your server, fit a record to the same files on the Calibrate page.")


def _chart(rows: Sequence[Row], title: str, key: str) -> None:
    if rows:
        with st.container(width=READABLE_PX):
            show(predicted_rows(rows, title, "ms"), key=key)


def _outcome(slot: str, key: tuple[object, ...], weight: int, work: Callable[[Tell], T]) -> T | None:
    """Return what some work gives; None while it runs, or after saying why it can't be done. A refusal is kept as a result is."""

    def guarded(tell: Tell) -> T | InputError:
        try:
            return work(tell)
        except InputError as fault:
            return fault

    found = result_of(slot, key, max(1, weight), guarded, "Predicting")
    if isinstance(found, InputError):
        st.error(sentence(str(found)), icon=":material/error:")
        return None
    return found
