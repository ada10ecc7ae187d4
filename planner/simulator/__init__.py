"""Simulates an engine's scheduler step by step: what vLLM would decide for each request, and when."""

from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits, Policy, Stop, check_limits
from planner.simulator.metrics import (
    Distribution,
    Estimate,
    Goodput,
    MeasureOptions,
    Summary,
    Target,
    TargetCheck,
    check_targets,
    goodput,
    over_replications,
    summarise,
    values_s,
)
from planner.simulator.result import (
    Averages,
    GapHistogram,
    LogRow,
    LogStep,
    SimulationResult,
    TimeSeries,
    Totals,
    Verdict,
)
from planner.simulator.run import SimulationOptions, simulate, warm_up

__all__ = [
    "Averages",
    "Distribution",
    "EngineLimits",
    "Estimate",
    "GapHistogram",
    "Goodput",
    "LogRow",
    "LogStep",
    "MeasureOptions",
    "Policy",
    "RequestTable",
    "SimulationOptions",
    "SimulationResult",
    "Stop",
    "Summary",
    "Target",
    "TargetCheck",
    "TimeSeries",
    "Totals",
    "Verdict",
    "check_limits",
    "check_targets",
    "goodput",
    "over_replications",
    "simulate",
    "summarise",
    "values_s",
    "warm_up",
]
