"""Files that a user brings to be fitted or compared: the upload, what was read, and the form that says what was measured.

Two pages use it; `slot` keeps their widgets and files apart. Files stay for the session when another page is opened.
"""

from collections.abc import Callable, Sequence

import streamlit as st

from planner.errors import InputError
from planner.tuning import Target, UserFile
from planner.ui.components.common import READABLE_PX
from planner.ui.views import calibrate_files as views
from planner.ui.views.calibrate_collect import Place
from planner.ui.words import sentence

MAX_MIB = 64
MOST_FILES = 20
_BYTES_PER_WEIGHT = 1_000
_SHOWN_REMARKS = 6


def upload(slot: str, label: str, formats: str, example: Callable[[], views.Given] | None = None) -> tuple[views.Given, ...]:
    """Draw the upload and return the files.

    formats : what may be given, in words
    example : a file to try it with
    """
    key = _widget_key(slot)
    with st.container(width=READABLE_PX):
        st.file_uploader(label, key=key, accept_multiple_files=True, max_upload_size=MAX_MIB, on_change=_take, args=(slot, key))
        st.caption(sentence(f"{formats} At most {MAX_MIB} MiB a file; a larger one turns red and isn't sent."))
        for note in st.session_state.get(_left_out(slot), ()):
            st.caption(f":material/rule: {sentence(note)}")
        given = files_of(slot)
        with st.container(horizontal=True, vertical_alignment="center"):
            if example is not None:
                st.button(
                    "Try it on an example", key=f"{slot}-example", icon=":material/science:", on_click=_put, args=(slot, example)
                )
            if given and not st.session_state.get(key):
                st.caption(sentence(", ".join(each.name for each in given)))
            if given:
                st.button("Clear", key=f"{slot}-clear", icon=":material/close:", type="tertiary", on_click=_clear, args=(slot,))
    return given


def files_of(slot: str) -> tuple[views.Given, ...]:
    """Return the files that a slot holds."""
    found: tuple[views.Given, ...] = st.session_state.get(_given(slot), ())
    return found


def weight_of(given: Sequence[views.Given]) -> int:
    """Return how much room files take among the kept results."""
    return sum(len(each.data) for each in given) // _BYTES_PER_WEIGHT


def what_was_read(files: Sequence[views.ReadFile], slot: str) -> tuple[UserFile, ...]:
    """Say what each file holds, what of it was left out, and which can't be used; return those that can."""
    usable = views.usable(files)
    for each in files:
        if each.fault is not None:
            st.error(sentence(views.complaint(each)), icon=":material/error:")
    if not usable:
        return ()
    st.dataframe(views.files_frame(usable), hide_index=True, alt="What each file holds", height="content")
    runs = views.runs_frame(usable)
    if not runs.empty:
        st.dataframe(runs, hide_index=True, alt="Runs of the benchmark results", height="content")
    for missing in views.missing_in(usable):
        st.caption(f":material/info: {sentence(f'Not in the file: {missing}')}")
    remarks = views.remarks_of(usable)
    for remark in remarks[:_SHOWN_REMARKS]:
        st.caption(f":material/rule: {sentence(remark)}")
    if len(remarks) > _SHOWN_REMARKS:
        with st.expander(f"{len(remarks) - _SHOWN_REMARKS} more remarks", key=f"{slot}-remarks"):
            st.markdown("\n".join(f"- {sentence(remark)}" for remark in remarks[_SHOWN_REMARKS:]))
    return usable


def form(files: Sequence[UserFile], place: Place, slot: str, submit: str) -> Target | None:
    """Draw what the user must say of the files; return it once it was submitted, until other files come.

    place : of the plan, for what the files don't state
    submit : what the button says
    """
    fields = views.form_fields(files, slot)
    _fill(files, place, slot)
    for note in views.unknown_names(files, slot):
        st.caption(f":material/info: {sentence(note)}")
    with st.form(f"{slot}-form", width=READABLE_PX):
        columns = st.columns(2, gap="medium")
        for index, field in enumerate(fields):
            with columns[index % 2]:
                _widget(field)
        asked = st.form_submit_button(submit, type="primary", icon=":material/function:", key=f"{slot}-submit")
    if asked:
        values = {field.name: str(st.session_state.get(field.key) or "") for field in fields}
        try:
            st.session_state[_target(slot)] = views.target_of(values, place)
        except InputError as fault:
            st.session_state.pop(_target(slot), None)
            st.error(sentence(str(fault)), icon=":material/error:")
    found: Target | None = st.session_state.get(_target(slot))
    return found


def _widget(field: views.FormField) -> None:
    if field.choices is not None:
        st.selectbox(field.label, list(field.choices), key=field.key)
    else:
        st.text_input(field.label, key=field.key, placeholder=field.placeholder, max_chars=60)


def _fill(files: Sequence[UserFile], place: Place, slot: str) -> None:
    """Give the form what new files state; what the user chose for the same files stays."""
    ids = tuple(each.id for each in files_of(slot))
    fields = views.form_fields(files, slot)
    if st.session_state.get(_form_of(slot)) == ids and all(field.key in st.session_state for field in fields):
        return
    st.session_state[_form_of(slot)] = ids
    target: Target | None = st.session_state.get(_target(slot))
    initial = views.initial_values(files, place) if target is None else views.values_of_target(target)
    for field in fields:
        st.session_state[field.key] = initial.get(field.name, "")


def _take(slot: str, key: str) -> None:
    uploads = st.session_state.get(key) or []
    given, notes = views.each_once([views.Given(file.name, file.getvalue(), file.file_id) for file in uploads], MOST_FILES)
    _hold(slot, given, notes)


def _put(slot: str, example: Callable[[], views.Given]) -> None:
    _empty_widget(slot)
    _hold(slot, (example(),))


def _clear(slot: str) -> None:
    _empty_widget(slot)
    _hold(slot, ())


def _hold(slot: str, given: tuple[views.Given, ...], notes: tuple[str, ...] = ()) -> None:
    st.session_state[_given(slot)] = given
    st.session_state[_left_out(slot)] = notes
    for key in (_target(slot), _form_of(slot)):
        st.session_state.pop(key, None)


def _widget_key(slot: str) -> str:
    """Return the key of the upload, which changes with each clearing: only a new widget is an empty one."""
    cleared = st.session_state.get(_cleared(slot), 0)
    return f"{slot}-files-{cleared}" if cleared else f"{slot}-files"


def _empty_widget(slot: str) -> None:
    if st.session_state.get(_widget_key(slot)):
        st.session_state[_cleared(slot)] = st.session_state.get(_cleared(slot), 0) + 1


def _cleared(slot: str) -> str:
    return f"_{slot}_cleared"


def _left_out(slot: str) -> str:
    return f"_{slot}_left_out"


def _given(slot: str) -> str:
    return f"_{slot}_given"


def _form_of(slot: str) -> str:
    return f"_{slot}_form_of"


def _target(slot: str) -> str:
    return f"_{slot}_target"
