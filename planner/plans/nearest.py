"""What an impossible scenario could ask for instead."""

from collections.abc import Sequence
from dataclasses import replace

from planner.fleet import replicas_for
from planner.plans.candidates import cheapest_placement, layouts
from planner.plans.capacity import latency_at, saturated_rps
from planner.plans.knobs import first_knobs
from planner.plans.ranking import records_of
from planner.plans.rates import capacity_of
from planner.plans.results import Candidate, Latency, NearestFeasible
from planner.plans.starting import Engine, Question, replica_of, start, with_knobs
from planner.pricing import fleet_usd_per_day
from planner.scenario import Targets
from planner.units import duration, per_second

_TRIED = 3
_LOAD_SHARE = 0.5
_LEAST_SHARE = 0.125
_MARGIN = 1.1


def nearest_feasible(question: Question, candidates: Sequence[Candidate]) -> NearestFeasible | None:
    """Return the smallest loosening of the targets that a candidate meets at a useful load; None where targets are not the fault.

    The candidates that miss by least with almost no load are simulated at half of their saturated rate, or at the whole load where
    that is less; what they reach there, plus a tenth, is proposed, so that the proposal holds when it is planned.
    """
    if any(c.rejection is not None and c.rejection.reason == "requests are too long" for c in candidates):
        return None
    missing = [c for c in candidates if c.rejection is not None and c.rejection.miss is not None and c.latency is not None]
    missing.sort(key=lambda c: (c.rejection.miss or 0.0 if c.rejection else 0.0, c.tensor_parallel, c.gpu_id))
    proposals = [proposal for c in missing[:_TRIED] if (proposal := _proposal(question, c)) is not None]
    return min(proposals, key=lambda entry: entry[0])[1] if proposals else None


def _proposal(question: Question, candidate: Candidate) -> tuple[float, NearestFeasible] | None:
    """Return how far the targets must be loosened [1], and the proposal; None when the candidate can't be simulated."""
    question.check()
    hardware = question.scenario.hardware.model_copy(
        update={"gpu_ids": (candidate.gpu_id,), "tensor_parallel": (candidate.tensor_parallel,)}
    )
    narrowed = replace(question, scenario=question.scenario.model_copy(update={"hardware": hardware}))
    ways = layouts(narrowed.scenario, question.model, question.quantization)
    layout = next(layout for layout in ways if layout.link == candidate.link)
    engine = start(narrowed, layout, records_of(narrowed, [layout])[layout.gpu.id])
    if not isinstance(engine, Engine):
        return None
    knobs = first_knobs(narrowed, engine)
    fitted = with_knobs(engine, knobs, narrowed.scenario.engine.logged_kv_tokens)
    replica = replica_of(fitted, question.demand)
    rate_rps = _useful_rps(question, saturated_rps(question.demand, replica, knobs))
    if not fitted.memory.fits or rate_rps <= 0.0:
        return None
    reached = latency_at(question.demand, replica, knobs, rate_rps)
    targets = _loosened(question.scenario.targets, reached)
    capacity = capacity_of(question.demand, replica, knobs, targets)
    if capacity.rate_rps is None:
        return None
    fleet = question.scenario.fleet
    replicas = replicas_for(question.load.peak_rps, capacity.rate_rps, fleet.headroom, fleet.spare_replicas)
    found = cheapest_placement(layout, replicas.total)
    usd = f" for ${fleet_usd_per_day(*found):,.0f}/day" if found else ""
    parts = [
        f"{name} {duration(value_s)}"
        for name, value_s in (("p99 TTFT", targets.ttft_p99_s), ("p99 TPOT", targets.tpot_p99_s))
        if value_s is not None
    ]
    at = f"at {per_second(rate_rps)} a replica"
    detail = f"{replicas.total * candidate.tensor_parallel:,} × {candidate.gpu_name} meet {' and '.join(parts)} {at}{usd}"
    return _stretch(question.scenario.targets, targets), NearestFeasible(candidate, targets.ttft_p99_s, targets.tpot_p99_s, detail)


def _useful_rps(question: Question, saturated: float) -> float:
    """Return the rate at which a replica must meet the proposed targets [request/s]: half of what it completes, or the whole load
    with its headroom where that is less; at least an eighth, as below a sixteenth a replica counts as useless.
    """
    whole = question.load.peak_rps / (1.0 - question.scenario.fleet.headroom)
    return min(saturated * _LOAD_SHARE, max(whole, saturated * _LEAST_SHARE))


def _loosened(targets: Targets, reached: Latency) -> Targets:
    def at_least(target_s: float | None, reached_s: float | None) -> float | None:
        if target_s is None or reached_s is None or reached_s <= target_s:
            return target_s
        return float(f"{reached_s * _MARGIN:.2g}")

    return Targets(
        ttft_p99_s=at_least(targets.ttft_p99_s, reached.ttft_p99_s), tpot_p99_s=at_least(targets.tpot_p99_s, reached.tpot_p99_s)
    )


def _stretch(asked: Targets, offered: Targets) -> float:
    pairs = ((asked.ttft_p99_s, offered.ttft_p99_s), (asked.tpot_p99_s, offered.tpot_p99_s))
    return max(new / old for old, new in pairs if old is not None and new is not None)
