"""Evidence for the chosen candidate: its latencies over load, the engine's own settings, and intervals from the calibration."""

import math

import numpy as np

from planner.calibration.records import CalibrationRecord
from planner.fleet import replicas_for
from planner.plan.candidates import Layout, cheapest_placement
from planner.plan.capacity import capacity_near, latency_at
from planner.plan.results import Candidate, DefaultKnobs, Details, Interval, KnobCell, Latency
from planner.plan.screen import as_latency, mean_field_of
from planner.plan.search import Engine, Question, coarse, default_knobs, in_parallel, measure, replica_of
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients
from planner.units import HOURS_PER_DAY

CURVE_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)
DRAWS = 12
Z_80 = 1.2816
_INTERVAL_SIGMAS = 2 * Z_80


def details_of(
    question: Question, layout: Layout, engine: Engine, chosen: Candidate, cells: tuple[KnobCell, ...]
) -> Details | None:
    """Return the evidence for a feasible candidate; None for one without capacity."""
    if chosen.knobs is None or chosen.capacity_rps is None or chosen.replicas is None or chosen.latency is None:
        return None
    replica = replica_of(engine, question.demand)
    rates = [share * chosen.capacity_rps for share in CURVE_SHARES]
    knobs = chosen.knobs
    curve = tuple(in_parallel(lambda rate: latency_at(question.demand, replica, knobs, rate), rates))
    draws = _draws(question, engine, chosen)
    needed = [_replicas(question, rate) for rate in draws.capacity_rps]
    planned = chosen.latency
    return Details(
        curve=curve,
        knob_map=cells,
        default=_default(question, layout, engine, chosen),
        replicas=_count_interval(needed, chosen.replicas.total),
        capacity_rps=_interval(draws.capacity_rps, chosen.capacity_rps),
        ttft_p99_s=_interval(draws.ttft_p99_s, planned.ttft_p99_s),
        tpot_p99_s=_interval(draws.tpot_p99_s, planned.tpot_p99_s),
        usd_per_day=_usd_interval(layout, chosen, needed),
        interval_source=(
            f"80 % interval from {len(draws.capacity_rps)} draws of the calibration's parameters and residuals "
            f"({engine.record.id}, {engine.record.basis}), each simulated on the same requests"
        ),
        mean_field=mean_field_check(question, engine, chosen),
    )


class _Draws:
    """Capacity and latencies of the replica under draws of the calibration's parameters."""

    def __init__(self, points: list[tuple[float, float, float]]) -> None:
        self.capacity_rps = [rate for rate, _, _ in points]
        self.ttft_p99_s = [ttft_s for _, ttft_s, _ in points]
        self.tpot_p99_s = [tpot_s for _, _, tpot_s in points]


def _draws(question: Question, engine: Engine, chosen: Candidate) -> _Draws:
    """Simulate the replica with step times drawn from the calibration's intervals.

    Draws are compared with the calibration's own figures on the smaller sample; the ratios apply to the plan's.
    """
    small = coarse(question)
    knobs, planned, targets, demand = chosen.knobs, chosen.latency, question.scenario.targets, small.demand
    replica = replica_of(engine, demand)
    base = measure(small, engine, knobs) if knobs else None
    if knobs is None or planned is None or base is None or base.rate_rps is None or chosen.capacity_rps is None:
        return _Draws([])
    base_rps, base_latency, capacity_rps = base.rate_rps, latency_at(demand, replica, knobs, planned.rate_rps), chosen.capacity_rps
    seed = question.scenario.seed
    draws = zip(draw_records(engine.record, DRAWS, seed), draw_scales(engine.record, DRAWS, seed), strict=True)

    def one(draw: tuple[CalibrationRecord, float]) -> tuple[float, float, float]:
        record, factor = draw
        coefficients = scaled(coefficients_for(engine.deployment, record), factor)
        drawn = replica._replace(coefficients=coefficients, request_s=record.host.request_s.value)
        ratio = capacity_near(demand, drawn, knobs, targets, base_rps) / base_rps
        latency = latency_at(demand, drawn, knobs, planned.rate_rps)
        ttft_s = planned.ttft_p99_s * latency.ttft_p99_s / base_latency.ttft_p99_s
        tpot_s = planned.tpot_p99_s * (latency.tpot_p99_s / base_latency.tpot_p99_s if base_latency.tpot_p99_s else 1.0)
        return capacity_rps * ratio, ttft_s, tpot_s

    return _Draws(in_parallel(one, draws))


def draw_scales(record: CalibrationRecord, count: int, seed: int) -> list[float]:
    """Return factors on all step times that stand for what the step model itself can't express [1].

    Log-normal with the spread of the record's own residuals, where it was fitted; 1 where the parameters' intervals are all that is
    known.
    """
    spread = record.evidence.residual_log_sd if record.evidence is not None else None
    if spread is None:
        return [1.0] * count
    return [math.exp(float(value)) for value in np.random.default_rng([seed, 9]).standard_normal(count) * spread]


def scaled(coefficients: StepCoefficients, factor: float) -> StepCoefficients:
    """Return coefficients with every time multiplied; ratios, counts and switches stay."""
    times = {name: value * factor for name, value in coefficients._asdict().items() if name.endswith("_s") or "_s_per_" in name}
    return coefficients._replace(**times)


def draw_records(record: CalibrationRecord, count: int, seed: int) -> list[CalibrationRecord]:
    """Return records whose parameters are drawn from their 80 % intervals.

    Each parameter is log-normal with the spread of its interval and cut at the physical bound 1 for efficiencies; parameters that
    were fitted together are drawn together by the record's covariance.
    """
    rng = np.random.default_rng([seed, 7])
    parameters = dict(record.parameters())
    joint = record.covariance
    root = None
    if joint is not None:
        values, vectors = np.linalg.eigh(np.array(joint.matrix))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn: list[CalibrationRecord] = []
    for _ in range(count):
        values_at: dict[str, float] = {}
        if joint is not None and root is not None:
            shifts = root @ rng.standard_normal(len(joint.names))
            for name, shift in zip(joint.names, shifts, strict=True):
                if name in parameters:
                    values_at[name] = parameters[name].value * math.exp(float(shift))
        for name, parameter in parameters.items():
            noise = float(rng.standard_normal())
            if name not in values_at and parameter.low > 0.0:
                spread = math.log(parameter.high / parameter.low) / _INTERVAL_SIGMAS
                values_at[name] = parameter.value * math.exp(spread * noise)
        bounded = {
            name: min(value, 1.0) if "efficiency" in name or name in {"smoothness", "expert_spread"} else value
            for name, value in values_at.items()
        }
        drawn.append(record.with_values(bounded))
    return drawn


def mean_field_check(question: Question, engine: Engine, chosen: Candidate) -> Latency | None:
    """Return what the mean-field model says at the planned rate, as a check of the simulation by another road."""
    if chosen.knobs is None or chosen.latency is None:
        return None
    replica = replica_of(engine, question.demand)
    return as_latency(mean_field_of(question.demand, replica, chosen.knobs).at(chosen.latency.rate_rps), replica)


def _default(question: Question, layout: Layout, engine: Engine, chosen: Candidate) -> DefaultKnobs:
    """Return what the engine's own settings reach, and what they would cost a day more."""
    knobs = default_knobs(question.scenario, engine.deployment)
    capacity = measure(question, engine, knobs)
    if capacity is None or capacity.rate_rps is None:
        return DefaultKnobs(knobs, None, None, None, capacity.binds if capacity else "memory")
    replicas = _replicas(question, capacity.rate_rps)
    return DefaultKnobs(knobs, capacity.rate_rps, replicas, _extra_usd_per_day(layout, chosen, replicas), capacity.binds)


def _replicas(question: Question, capacity_rps: float) -> int:
    fleet = question.scenario.fleet
    if capacity_rps <= 0.0:
        return 0
    return replicas_for(question.load.peak_rps, capacity_rps, fleet.headroom, fleet.spare_replicas).total


def _extra_usd_per_day(layout: Layout, chosen: Candidate, replicas: int) -> float | None:
    if chosen.cost is None:
        return None
    found = cheapest_placement(layout, replicas)
    if found is None:
        return None
    tariff, placement = found
    return placement.instances * tariff.usd_per_instance_hour * HOURS_PER_DAY - chosen.cost.usd_per_day


def _usd_interval(layout: Layout, chosen: Candidate, replicas: list[int]) -> Interval | None:
    if chosen.cost is None:
        return None
    base = chosen.cost.usd_per_day
    possible = sorted(base + extra for count in replicas if (extra := _extra_usd_per_day(layout, chosen, count)) is not None)
    low, high = (float(np.quantile(possible, q, method="nearest")) for q in (0.1, 0.9)) if possible else (base, base)
    return Interval(min(low, base), base, max(high, base))


def _count_interval(counts: list[int], likely: int) -> Interval:
    if not counts:
        return Interval(float(likely), float(likely), float(likely))
    low, high = (float(np.quantile(counts, q, method="nearest")) for q in (0.1, 0.9))
    return Interval(min(low, likely), float(likely), max(high, likely))


def _interval(values: list[float], likely: float) -> Interval:
    """Return the 80 % interval of draws around a figure, in the logarithm where all are above 0."""
    usable = [value for value in values if math.isfinite(value) and value > 0.0]
    if len(usable) < 2 or likely <= 0.0:
        return Interval(likely, likely, likely)
    low, high = (float(np.quantile(usable, q)) for q in (0.1, 0.9))
    return Interval(min(low, likely), likely, max(high, likely))
