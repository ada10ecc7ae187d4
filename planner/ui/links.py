"""The scenario in the address: what a link holds goes into the widgets, and every widget is bound to its query parameter.

A link that asks for something that doesn't exist is shown with what it asks for; nothing is replaced in silence.
"""

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from planner.scenario import Scenario
from planner.ui.fields import BY_KEY, LOAD_KEY, LOAD_KINDS, OFFLINE_KEY, Value, Values, defaults, query_of, values_of

_ADOPTED = "_link_adopted"
_NOTICES = "_link_notices"
_FOREIGN = frozenset({"embed", "embed_options"})
_PAGES_OWN = ("sim-", "q-")
_MAX_SHOWN = 60


def adopt_link() -> None:
    """Put the query parameters into the session, once, before any widget exists."""
    if _ADOPTED in st.session_state:
        return
    st.session_state[_ADOPTED] = True
    found, notices = read_query({key: st.query_params.get_all(key) for key in st.query_params})
    for key, value in found.items():
        st.session_state[key] = value
    st.session_state[_NOTICES] = notices


def notices() -> tuple[str, ...]:
    """Return what the opened link asked for and didn't get."""
    return tuple(st.session_state.get(_NOTICES, ()))


def read_query(query: Mapping[str, list[str]]) -> tuple[Values, tuple[str, ...]]:
    """Return the widget values that a query states, and a sentence for each parameter that states none.

    >>> read_query({"rps": ["12"], "gpus": ["l4", "l40s"], "load": ["Cows"], "rsp": ["1"]})[0]
    {'rps': '12', 'gpus': ['l4', 'l40s']}
    """
    values: Values = {}
    complaints: list[str] = []
    for key, texts in query.items():
        last = texts[-1] if texts else ""
        if key in _FOREIGN or key.startswith(_PAGES_OWN):
            continue
        if key == LOAD_KEY and last in LOAD_KINDS:
            values[key] = last
        elif key == OFFLINE_KEY and last.lower() in {"true", "false"}:
            values[key] = last.lower() == "true"
        elif key in BY_KEY:
            values[key] = [text for text in texts if text] if BY_KEY[key].multiple else last
        elif key in {LOAD_KEY, OFFLINE_KEY}:
            allowed = ", ".join(LOAD_KINDS) if key == LOAD_KEY else "true, false"
            complaints.append(f"The link says {key}={last[:_MAX_SHOWN]}, which is none of {allowed}; the default is used.")
        else:
            complaints.append(f"The link says {key[:_MAX_SHOWN]}={last[:_MAX_SHOWN]}, which no field is called; it is left out.")
    return values, tuple(complaints)


def current() -> Values:
    """Return what every widget holds in this run."""
    return {key: _normal(st.session_state.get(key, value), value) for key, value in defaults().items()}


def own_parameters() -> dict[str, str]:
    """Return what the open page's own widgets put into the address."""
    return {key: st.query_params[key] for key in st.query_params if key.startswith(_PAGES_OWN)}


def link_to(base: str, scenario: Scenario, own: Mapping[str, str] | None = None) -> str:
    """Return the address that opens a scenario; base : address of the app, with or without a page.

    own : parameters of the page's own widgets

    >>> link_to("http://127.0.0.1:8501/", Scenario(seed=7))
    'http://127.0.0.1:8501/?seed=7'
    """
    scheme, host, path, _, _ = urlsplit(base)
    return urlunsplit((scheme, host, path or "/", urlencode([*query_of(values_of(scenario)), *(own or {}).items()]), ""))


def _normal(value: Value, default: Value) -> Value:
    if value is None:
        return default if isinstance(default, bool) else ([] if isinstance(default, list) else "")
    return value
