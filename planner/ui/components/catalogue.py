"""The Catalogue page's parts: tables with marks, details with sources, uploads."""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from planner.errors import InputError
from planner.paths import home_fault, user_home
from planner.scenario import Scenario
from planner.ui import actions, uploads
from planner.ui.choices import gpu_names, model_names, workload_names
from planner.ui.components.common import READABLE_PX, ColumnConfigs, localized, source_table
from planner.ui.components.simulate_jobs import kept
from planner.ui.fields import Value
from planner.ui.inputs import scenario_state
from planner.ui.views import catalogue as views
from planner.ui.words import literal, rate, sentence
from planner.workloads import ImportReport, Workload, import_rows, save_workload
from planner.workloads.importers import workload_from_trace
from planner.workloads.importers.cleaning import BadRows

TABLE_HEIGHT = 420
_BYTES_PER_REQUEST = 20
_NOTE = st.column_config.MultiselectColumn("Note", options=[views.WEAK, views.STALE], color=["orange", "orange"], width=130)


def home() -> None:
    """Say where the user's own entries are looked for, when nothing can be read there."""
    fault = home_fault()
    if fault is not None:
        st.warning(sentence(fault), icon=":material/folder_off:")


def gpus() -> None:
    """Draw the GPUs, the details of one, and the upload of a profile."""
    _table(views.gpus_frame(), "GPUs with memory, bandwidth, compute and the lowest price")
    names = gpu_names()
    chosen = _picked("Every figure of", names, "gpus")
    if chosen is not None:
        source_table(views.gpu_details(chosen), f"Figures of {names[chosen]} with their sources")
    _gpu_upload()


def prices(today: dt.date) -> None:
    """Draw the prices; today : the day against which old ones are marked."""
    st.caption(views.price_ages(today))
    _table(views.prices_frame(today), "Prices of instances with date, source and licence")


def models() -> None:
    """Draw the models, the details of one, and the upload of a config.json."""
    _table(views.models_frame(), "Models with parameters, KV cache and context")
    names = model_names()
    chosen = _picked("Details of", names, "model")
    if chosen is not None:
        facts, sources = views.model_details(chosen)
        _facts(facts)
        source_table(sources, f"Sources of {names[chosen]}")
    _model_upload()


def workloads() -> None:
    """Draw the workloads, the details of one, and the upload of a trace."""
    _table(views.workloads_frame(), "Workloads with their prompt and output lengths")
    names = workload_names()
    chosen = _picked("Details of", names, "workload")
    if chosen is not None:
        facts, sources = views.workload_details(chosen)
        _facts(facts)
        source_table(sources, f"Sources of {names[chosen]}")
    _trace_upload()


def _picked(label: str, names: dict[str, str], key: str) -> str | None:
    """Ask for one entry; the scenario's own comes first. key : of the field that names it."""
    ids = list(names)
    own = scenario_state().widgets[key]
    wanted = own[0] if isinstance(own, list) and own else own
    index = ids.index(wanted) if isinstance(wanted, str) and wanted in ids else 0
    return st.selectbox(label, ids, index=index, format_func=names.__getitem__, key=f"catalogue-{key}", width=READABLE_PX)


def _table(frame: pd.DataFrame, alt: str) -> None:
    config: ColumnConfigs = {"Note": _NOTE} if "Note" in frame else {}
    st.dataframe(frame, hide_index=True, height=TABLE_HEIGHT, alt=alt, column_config={**localized(frame), **config}, placeholder="")


def _facts(facts: dict[str, str]) -> None:
    with st.container(width=READABLE_PX):  # lets the cells wrap where the page is narrow
        st.table({literal(name): literal(value) for name, value in facts.items()}, border="horizontal")


def _model_upload() -> None:
    with st.container(border=True, width=READABLE_PX):
        st.markdown("**Your own model**")
        file = st.file_uploader(
            "config.json of a Hugging Face model", type="json", key="upload-model", max_upload_size=uploads.MAX_CONFIG_MIB
        )
        name = st.text_input("Name", "my-model", key="upload-model-name", max_chars=100)
        st.caption(_at_most(uploads.MAX_CONFIG_MIB))
        if file is None:
            return
        data = file.getvalue()
        with _complaint():
            model = uploads.read_model(data, name)
            st.markdown(f"Reads as **{literal(model.name)}**, id `{model.id}`.")
            _facts(views.model_facts(model))
            kept_before = uploads.is_kept(data, "models", f"{model.id}.json")
            _keep("model", model.id, lambda: uploads.save_model(data, model), kept_before=kept_before)


def _gpu_upload() -> None:
    with st.container(border=True, width=READABLE_PX):
        st.markdown("**Your own GPU**")
        file = st.file_uploader("Profile as TOML", type="toml", key="upload-gpu", max_upload_size=uploads.MAX_TOML_MIB)
        st.caption(
            "Start from any file in hardware_profiles/; `extends` takes another profile's figures. "
            + _at_most(uploads.MAX_TOML_MIB)
        )
        if file is None:
            return
        data = file.getvalue()
        with _complaint():
            gpu = uploads.read_gpu(data, file.name)
            st.markdown(f"Reads as **{literal(gpu.name)}**, id `{gpu.id}`.")
            source_table(views.gpu_facts(gpu), f"Figures of {gpu.name} with their sources")
            kept_before = uploads.is_kept(data, "hardware_profiles", f"{gpu.id}.toml")
            _keep("gpus", [gpu.id], lambda: uploads.save_gpu(data, gpu), kept_before=kept_before)


def _trace_upload() -> None:
    with st.container(border=True, width=READABLE_PX):
        st.markdown("**Your own requests**")
        file = st.file_uploader(
            "CSV, JSON lines or parquet with prompt and output tokens, and times if you have them",
            type=["csv", "json", "jsonl", "parquet", "gz"],
            key="upload-trace",
            max_upload_size=uploads.MAX_TRACE_MIB,
        )
        st.caption(f"Only token counts, times and block identities are kept, never text. {_at_most(uploads.MAX_TRACE_MIB)}")
        if file is None:
            return
        drop = st.toggle(
            "Leave out rows that can't be read", key="upload-trace-drop", help="Each is counted, with what is wrong with it."
        )
        with _complaint():
            report, workload, recorded_rps = _imported(file, "drop" if drop else "refuse")
            st.markdown(sentence(f"Read as {report.sentence()}"))
            _facts(views.workload_facts(workload, recorded_rps))
            _use_trace(workload, recorded_rps)
            if user_home() is None:
                st.caption(
                    "It is kept until the app stops. To keep it, set PLANNER_HOME to a folder of yours and start the app again."
                )
            else:
                _keep("workload", workload.id, lambda: save_workload(workload))


def _use_trace(workload: Workload, recorded_rps: float | None) -> None:
    """Offer to plan with a trace, at the scenario's rate or at the one that was recorded."""
    scenario = scenario_state().scenario
    with st.container(horizontal=True):
        st.button("Use it in the plan", key="use-trace", type="primary", on_click=_use, args=("workload", workload.id))
        if recorded_rps is not None and scenario is not None:
            st.button(
                f"Use it at its own {rate(recorded_rps)}",
                key="use-trace-rate",
                on_click=_use_at,
                args=(scenario, workload.id, recorded_rps),
            )


def _use_at(scenario: Scenario, workload_id: str, rate_rps: float) -> None:
    actions.apply_patch(scenario, views.at_recorded_rate(workload_id, rate_rps))
    st.toast("The plan uses it now.", icon=":material/check:")


class _Imported(NamedTuple):
    report: ImportReport
    workload: Workload
    recorded_rps: float | None


def _imported(file: UploadedFile, bad_rows: BadRows) -> _Imported:
    """Return what an upload holds, read once for as long as it stays."""

    def read() -> _Imported:
        imported = import_rows(file.getvalue(), file.name, bad_rows=bad_rows)
        return _Imported(imported.report, workload_from_trace(imported.trace), imported.trace.recorded_rps)

    return kept(("trace", file.file_id, file.name, bad_rows), max(1, file.size // _BYTES_PER_REQUEST), read)


def _at_most(mebibytes: int) -> str:
    """Return what to know of large files: the widget marks one that is too large without a word."""
    return f"At most {mebibytes} MiB a file; a larger one turns red and isn't sent."


@contextmanager
def _complaint() -> Iterator[None]:
    """Show what is wrong with an upload in its place; the page goes on."""
    try:
        yield
    except InputError as fault:
        st.error(sentence(str(fault)), icon=":material/error:")


def _keep(key: str, value: Value, save: Callable[[], Path], *, kept_before: bool = False) -> None:
    """Offer to keep an upload in the user's folder and to plan with it.

    key, value : the field that names it; kept_before : the folder holds it
    """
    if kept_before:
        st.caption(":material/check: It is in your folder.")
        st.button("Use it in the plan", key=f"use-{key}", type="primary", on_click=_use, args=(key, value))
        return
    if user_home() is None:
        st.caption("To plan with it, set PLANNER_HOME to a folder of yours, start the app again and upload it once more.")
        return
    st.button("Keep it and use it in the plan", key=f"keep-{key}", type="primary", on_click=_keep_and_use, args=(key, value, save))


def _keep_and_use(key: str, value: Value, save: Callable[[], Path]) -> None:
    try:
        path = save()
    except InputError as fault:
        actions.complain(fault)
        return
    _use(key, value)
    st.toast(f"Kept as {literal(path.name)}", icon=":material/check:")


def _use(key: str, value: Value) -> None:
    st.session_state[key] = value
    st.toast("The plan uses it now.", icon=":material/check:")
