"""Plan: from a scenario to GPUs, settings, latencies and dollars.

>>> from planner.plans import plan
>>> from planner.scenario import Scenario
>>> answer = plan(Scenario())
>>> answer.chosen is not None and answer.chosen.feasible
True
"""

from planner.plans.planning import Answer, complete, first_answer, plan
from planner.plans.results import (
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

__all__ = [
    "Answer",
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
    "complete",
    "first_answer",
    "plan",
]
