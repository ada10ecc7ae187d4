"""Every part of a plan that can be taken out of it as a text of its own, by name."""

from collections.abc import Callable

from planner.errors import InputError
from planner.exporters.alerts import prometheus_rules
from planner.exporters.candidates import candidate_rows
from planner.exporters.check import check_of
from planner.exporters.flags import serve_command
from planner.exporters.kubernetes import deployment_manifest, scaling_manifest
from planner.exporters.table import to_csv
from planner.plans import Plan


def command_line(plan: Plan) -> str:
    """Return the command that starts a replica; InputError for a plan without an answer."""
    if plan.chosen is None or plan.chosen.deployment is None:
        raise InputError("plan", plan.summary, "has nothing to start", "Change the scenario until the plan has an answer")
    return f"{serve_command(plan.chosen.deployment).line}\n"


PARTS: dict[str, Callable[[Plan], str]] = {
    "command": command_line,
    "check": lambda plan: f"{check_of(plan).line}\n",
    "requests": lambda plan: check_of(plan).requests_jsonl,
    "kubernetes": deployment_manifest,
    "autoscaling": scaling_manifest,
    "alerts": prometheus_rules,
    "candidates": lambda plan: to_csv(candidate_rows(plan)),
}
"""What `plan --part` prints: the engine's command, the benchmark that checks a replica and the requests that it sends (JSON lines),
the manifests of Kubernetes and of KEDA, Prometheus rules, every candidate as CSV. Each raises InputError for a plan without it."""


def check_part(name: str) -> None:
    """Raise InputError for a name that is none of PARTS."""
    if name not in PARTS:
        raise InputError("part", name, f"must be one of {', '.join(PARTS)}", "Choose one of them")


def part(plan: Plan, name: str) -> str:
    """Return one part of a plan as text; name : of PARTS.

    Raises InputError for another name, and for a plan that has no such part.
    """
    check_part(name)
    return PARTS[name](plan)
