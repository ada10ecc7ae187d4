"""Plan: from a scenario to GPUs, settings, latencies and dollars.

>>> from planner.plan import plan
>>> from planner.scenario import Scenario
>>> answer = plan(Scenario())
>>> answer.chosen is not None and answer.chosen.feasible
True

The package can be called like its function: `from planner import plan` names the package, as Python sets it on `planner`.
"""

import sys
from types import ModuleType

from planner.plan.planning import plan
from planner.plan.results import (
    Candidate,
    Change,
    DefaultKnobs,
    Details,
    Interval,
    KnobCell,
    Knobs,
    Latency,
    NearestFeasible,
    Plan,
    PlannedLoad,
    Rejection,
)
from planner.scenario import Scenario

__all__ = [
    "Candidate",
    "Change",
    "DefaultKnobs",
    "Details",
    "Interval",
    "KnobCell",
    "Knobs",
    "Latency",
    "NearestFeasible",
    "Plan",
    "PlannedLoad",
    "Rejection",
    "plan",
]


class _CallablePackage(ModuleType):
    def __call__(self, scenario: Scenario) -> Plan:
        return plan(scenario)


sys.modules[__name__].__class__ = _CallablePackage
