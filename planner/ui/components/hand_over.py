"""What leaves the Plan page with its reader: a check to run first, the report, the manifests."""

import datetime as dt
from collections.abc import Callable
from functools import partial

import streamlit as st

from planner.errors import InputError
from planner.exporters.check import CLIENT_SINCE, check_of
from planner.exporters.kubernetes import deployment_manifest, scaling_manifest
from planner.plans.results import Plan
from planner.ui.views.report import check_text, report_html
from planner.ui.words import sentence

_YAML = "application/yaml"


def check(plan: Plan) -> None:
    """Draw the benchmark that checks the plan on one replica, with the requests that it sends; nothing for offline work."""
    if plan.chosen is None or plan.chosen.deployment is None or plan.scenario.targets.offline:
        return
    found = check_of(plan)
    with st.expander("Check it on one replica before you rent the fleet", key="check"):
        st.markdown(sentence(check_text(found)))
        st.code(found.line, language="bash", wrap_lines=True)
        files = f"The command reads {found.requests_file} and writes {found.result_file}."
        st.caption(sentence(f"{files} Its client must be vLLM {CLIENT_SINCE} or newer; the server may be older."))
        st.download_button(
            "Requests",
            found.requests_jsonl,
            found.requests_file,
            "application/jsonl",
            key="check-requests",
            icon=":material/download:",
            on_click="ignore",
        )


def downloads(plan: Plan) -> None:
    """Draw the downloads: the report, and for a service the manifests that start and scale it."""
    digest = plan.scenario.digest()
    with st.container(horizontal=True, vertical_alignment="center"):
        write = partial(report_html, plan, dt.datetime.now(dt.UTC).date())
        _download("Report", write, f"plan-{digest}.html", "text/html", "One page to keep, print or send: answer, curves, sources")
        if plan.chosen is None or plan.scenario.targets.offline:
            return
        try:
            deployment, scaling = deployment_manifest(plan), scaling_manifest(plan)
        except InputError as fault:
            st.caption(sentence(str(fault)))
            return
        name = f"kubernetes-{digest}.yaml"
        _download("Kubernetes", lambda: deployment, name, _YAML, "Deployment and Service with the plan's replicas and command")
        about = "KEDA ScaledObject: a replica for every rate that one carries within its headroom, and the spares"
        _download("Autoscaling", lambda: scaling, f"keda-{digest}.yaml", _YAML, about)


def _download(label: str, write: Callable[[], str], name: str, mime: str, about: str) -> None:
    """Draw a button whose file is written on the click."""
    st.download_button(
        label, write, name, mime, key=f"take-{label.lower()}", icon=":material/download:", help=about, on_click="ignore"
    )
