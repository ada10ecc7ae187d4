"""Evidence for the chosen candidate: its latencies over load, the engine's own settings, and intervals from the calibration."""

import math
from collections.abc import Sequence

import numpy as np

from planner.calibration.records import CalibrationRecord
from planner.fleet import replicas_for
from planner.parallel import in_parallel
from planner.plans.candidates import Layout, cheapest_placement
from planner.plans.capacity import latency_at
from planner.plans.draws import DRAWS, Draws, draws_of
from planner.plans.knobs import measure
from planner.plans.results import Candidate, DefaultKnobs, Details, Interval, KnobCell, Latency
from planner.plans.screen import as_latency, mean_field_of
from planner.plans.starting import Engine, Question, final, replica_of
from planner.pricing import fleet_usd_per_day

CURVE_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)


def details_of(
    question: Question, layout: Layout, engine: Engine, chosen: Candidate, cells: tuple[KnobCell, ...]
) -> Details | None:
    """Return the evidence for a feasible candidate; None for one without capacity or without a request served.

    The curve is of the largest sample, as the candidate's own latencies and capacity are: it goes through them.
    """
    if chosen.knobs is None or chosen.capacity_rps is None or chosen.replicas is None or chosen.latency is None:
        return None
    planned, ttft_p99_s = chosen.latency, chosen.latency.ttft_p99_s
    if ttft_p99_s is None:
        return None
    demand = final(question).demand
    replica = replica_of(engine, demand)
    rates = [share * chosen.capacity_rps for share in CURVE_SHARES]
    knobs = chosen.knobs

    def at(rate_rps: float) -> Latency:
        question.check()
        return latency_at(demand, replica, knobs, rate_rps)

    curve = tuple(in_parallel(at, rates))
    draws = draws_of(question, engine, chosen)
    needed = [_replicas(question, rate) for rate in draws.capacity_rps]
    return Details(
        curve=curve,
        knob_map=cells,
        default=_default(question, layout, engine, chosen),
        replicas=_count_interval(needed, chosen.replicas.total),
        capacity_rps=_interval(draws.capacity_rps, chosen.capacity_rps),
        ttft_p99_s=_interval(draws.ttft_p99_s, ttft_p99_s),
        tpot_p99_s=None if planned.tpot_p99_s is None else _interval(draws.tpot_p99_s, planned.tpot_p99_s),
        usd_per_day=_usd_interval(layout, chosen, needed),
        interval_source=interval_source(draws, engine.record),
        impossible_draws=draws.impossible,
        mean_field=mean_field_check(question, engine, chosen),
    )


def interval_source(draws: Draws, record: CalibrationRecord) -> str:
    """Say how many draws stand behind a plan's intervals, and behind those of capacity where some draws have none."""
    latencies, capacities = len(draws.ttft_p99_s), len(draws.capacity_rps)
    if latencies < 2:
        return f"No interval: {latencies} of {DRAWS} draws of the calibration ({record.id}) could be simulated, and it takes two"
    said = (
        f"80 % interval from {latencies} draws of the calibration's parameters ({record.id}, {record.basis}) and of how far whole "
        "engines lie from predictions, each simulated on the same requests"
    )
    if capacities < 2:
        return f"{said}; none for capacity, replicas and cost, since {capacities} of the draws can meet the targets"
    if draws.impossible:
        return f"{said}; capacity, replicas and cost from the {capacities} that can meet the targets"
    return said


def mean_field_check(question: Question, engine: Engine, chosen: Candidate) -> Latency | None:
    """Return what the mean-field model says at the planned rate, as a check of the simulation by another road."""
    if chosen.knobs is None or chosen.latency is None:
        return None
    replica = replica_of(engine, question.demand)
    return as_latency(mean_field_of(question.demand, replica, chosen.knobs).at(chosen.latency.rate_rps), replica)


def _default(question: Question, layout: Layout, engine: Engine, chosen: Candidate) -> DefaultKnobs:
    """Return what the engine's own settings reach, in the units of the chosen ones' capacity, and what they cost a day more."""
    knobs = engine.own
    base = measure(question, engine, chosen.knobs, chosen.capacity_rps or 0.0) if chosen.knobs else None
    capacity = measure(question, engine, knobs, chosen.capacity_rps or 0.0)
    if capacity is None or capacity.rate_rps is None or base is None or not base.rate_rps or chosen.capacity_rps is None:
        return DefaultKnobs(knobs, None, None, None, capacity.binds if capacity else "memory")
    rate_rps = capacity.rate_rps * chosen.capacity_rps / base.rate_rps
    replicas = _replicas(question, rate_rps)
    return DefaultKnobs(knobs, rate_rps, replicas, _extra_usd_per_day(layout, chosen, replicas), capacity.binds)


def _replicas(question: Question, capacity_rps: float) -> int:
    fleet = question.scenario.fleet
    return replicas_for(question.load.peak_rps, capacity_rps, fleet.headroom, fleet.spare_replicas).total


def _extra_usd_per_day(layout: Layout, chosen: Candidate, replicas: int) -> float | None:
    if chosen.cost is None:
        return None
    found = cheapest_placement(layout, replicas)
    if found is None:
        return None
    return fleet_usd_per_day(*found) - chosen.cost.usd_per_day


def _usd_interval(layout: Layout, chosen: Candidate, replicas: Sequence[int]) -> Interval | None:
    if chosen.cost is None:
        return None
    base = chosen.cost.usd_per_day
    possible = sorted(base + extra for count in replicas if (extra := _extra_usd_per_day(layout, chosen, count)) is not None)
    if len(possible) < 2:
        return Interval(base, base, base)
    low, high = (float(np.quantile(possible, q, method="nearest")) for q in (0.1, 0.9))
    return Interval(min(low, base), base, max(high, base))


def _count_interval(counts: Sequence[int], likely: int) -> Interval:
    if len(counts) < 2:
        return Interval(float(likely), float(likely), float(likely))
    low, high = (float(np.quantile(counts, q, method="nearest")) for q in (0.1, 0.9))
    return Interval(min(low, likely), float(likely), max(high, likely))


def _interval(values: Sequence[float], likely: float) -> Interval:
    """Return the 80 % interval of draws, widened to hold the figure itself; of fewer than two draws above 0, the figure alone.

    Draws stand for the middles of equally likely slices, as step_factors takes them, and quantiles are read so.
    """
    usable = [value for value in values if math.isfinite(value) and value > 0.0]
    if len(usable) < 2 or likely <= 0.0:
        return Interval(likely, likely, likely)
    low, high = (float(np.quantile(usable, q, method="hazen")) for q in (0.1, 0.9))
    return Interval(min(low, likely), likely, max(high, likely))
