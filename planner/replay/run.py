"""Runs a replay and measures it: one replica with the plan's settings, and beside it one with the changed settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.plans import Candidate, Plan
from planner.replay.settings import ReplaySettings
from planner.replay.setup import Setup, requests_for, setup_of, starts
from planner.scenario import Targets
from planner.simulator import (
    WARM_UP_SHARE,
    Goodput,
    MeasureOptions,
    SimulationOptions,
    SimulationResult,
    Summary,
    Target,
    TargetCheck,
    check_targets,
    goodput,
    latency_targets,
    met,
    seen_by_clients,
    simulate,
    summarise,
)
from planner.workloads import Requests

PERCENTILES = (50.0, 90.0, 99.0)
_MEASURE = MeasureOptions(warm_up_share=WARM_UP_SHARE, percentiles=PERCENTILES)
Stage = Callable[[str, float], None]
Name = Literal["planned", "changed"]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One engine's run, measured as its clients see it.

    result : by the engine's clock
    client : the same with first and last tokens later by the time that a request spends outside the engine
    summary : latencies and rates, as clients see them, without the warm-up
    checks, goodput : against the scenario's targets; none and None where it has no targets
    """

    name: Name
    setup: Setup
    result: SimulationResult
    client: SimulationResult
    summary: Summary
    checks: tuple[TargetCheck, ...]
    goodput: Goodput | None

    @property
    def met(self) -> npt.NDArray[np.bool_]:
        """Whether each request was served and met every target."""
        return met(self.client, [check.target for check in self.checks])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replay:
    """Requests served by the planned engine, and by the changed one where a setting differs.

    rate_rps : mean arrival rate that was asked for [request/s]
    seed : of the requests
    """

    plan: Plan
    candidate: Candidate
    settings: ReplaySettings
    rate_rps: float
    seed: int
    requests: Requests
    planned: Outcome
    changed: Outcome | None

    @property
    def shown(self) -> Outcome:
        """The run that was asked for: the changed one if there is one."""
        return self.changed or self.planned

    def __repr__(self) -> str:
        return f"<Replay: {len(self.requests):,} requests at {self.rate_rps:.4g} req/s on {self.candidate.label}>"


def replayed_candidate(plan: Plan) -> Candidate | None:
    """Return the candidate that a replay runs: the plan's choice, else the one that comes nearest; None where none starts."""
    nearest = (plan.nearest.candidate,) if plan.nearest is not None else ()
    chosen = (plan.chosen,) if plan.chosen is not None else ()
    return next((candidate for candidate in (*chosen, *nearest, *plan.candidates) if starts(candidate)), None)


def planned_rate_rps(plan: Plan) -> float:
    """Return the rate that a replica is planned for; the whole load where the plan has no answer [request/s]."""
    if plan.chosen is not None and plan.chosen.latency is not None:
        return plan.chosen.latency.rate_rps
    return plan.load.peak_rps


def replay(plan: Plan, settings: ReplaySettings | None = None, stage: Stage | None = None) -> Replay:
    """Serve requests with one replica of the plan; same plan and settings, same bytes.

    stage : told what comes next and the share that is done [1]; an exception that it raises ends the replay

    Raises InputError when a setting is wrong, or when no candidate of the plan starts.
    """
    settings = settings or ReplaySettings()
    tell = stage or _silent
    candidate = replayed_candidate(plan)
    if candidate is None:
        raise InputError("plan", plan.summary, "has no engine that starts", "Change the scenario until a candidate fits")
    rate_rps = settings.rate_rps or planned_rate_rps(plan)
    seed = plan.scenario.seed if settings.seed is None else settings.seed
    planned = setup_of(plan, candidate, ReplaySettings())
    changed = setup_of(plan, candidate, settings)
    tell(f"Drawing {settings.requests:,} requests", 0.0)
    requests = requests_for(plan.workload, settings, rate_rps, seed)
    differs = changed != planned
    tell("Serving them with the planned settings", 0.1)
    targets = targets_of(plan.scenario.targets)
    first = _outcome("planned", planned, requests, settings, targets)
    second = None
    if differs:
        tell("Serving them with the changed settings", 0.55)
        second = _outcome("changed", changed, requests, settings, targets)
    tell("Done", 1.0)
    return Replay(plan, candidate, settings, rate_rps, seed, requests, first, second)


def targets_of(targets: Targets) -> tuple[Target, ...]:
    """Return a scenario's targets as the simulator checks them."""
    return latency_targets(targets.ttft_p99_s, targets.tpot_p99_s)


def _outcome(name: Name, setup: Setup, requests: Requests, settings: ReplaySettings, targets: tuple[Target, ...]) -> Outcome:
    result = simulate(requests, setup.limits, setup.coefficients, SimulationOptions(stop=settings.stop))
    client = seen_by_clients(result, setup.request_s)
    return Outcome(
        name=name,
        setup=setup,
        result=result,
        client=client,
        summary=summarise(client, _MEASURE),
        checks=check_targets(client, targets, _MEASURE),
        goodput=goodput(client, targets, WARM_UP_SHARE) if targets else None,
    )


def _silent(_text: str, _share: float) -> None:
    return None
