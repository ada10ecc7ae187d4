"""What a calibration's error does to a replica: draws of its parameters and residuals, each simulated."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.calibration.records import CalibrationRecord, Parameter
from planner.calibration.schema import bounds_of
from planner.calibration.spread import Z80, figure_factors, step_factors
from planner.deployment import group_label
from planner.parallel import in_parallel
from planner.plans.capacity import latency_at
from planner.plans.knobs import measure
from planner.plans.rates import capacity_from
from planner.plans.results import Candidate
from planner.plans.starting import Engine, Question, coarse, replica_of
from planner.scenario import LONGEST_TTFT_S, Targets
from planner.step_coefficients import coefficients_for
from planner.step_model import scaled

DRAWS = 12


@dataclass(frozen=True, slots=True)
class Draws:
    """The chosen replica under draws of the calibration.

    capacity_rps : of the draws in which some rate meets the targets [request/s]
    impossible : draws in which none does
    ttft_p99_s, tpot_p99_s : at the planned rate, of every draw [s]; no TPOT where no request has one
    """

    capacity_rps: tuple[float, ...]
    impossible: int
    ttft_p99_s: tuple[float, ...]
    tpot_p99_s: tuple[float, ...]


def draws_of(question: Question, engine: Engine, chosen: Candidate) -> Draws:
    """Simulate the replica with step times drawn from the calibration's intervals.

    Draws are compared with the calibration's own figures on the smaller sample; the ratios apply to the plan's. All are served the
    same requests, so that the sampling of requests adds nothing to the interval. What front ends add to TTFT and servers to
    throughput beside their step times is drawn too: a draw's TTFT target is that much tighter, an offline draw's throughput that
    much larger.

    The spread between deployments was sized on whole departures, which hold the parameters' error too. Beside a fitted record that
    counts for nothing (a step's logarithm has a standard deviation of 0.01 to 0.02 by parameters, 0.17 by deployments); beside a
    prior (0.14 to 0.18 against 0.24) the interval comes out 15 to 25 % wider than the 80 % it stands for.
    """
    small = coarse(question)
    knobs, planned, targets, demand = chosen.knobs, chosen.latency, question.scenario.targets, small.demand
    base = measure(small, engine, knobs) if knobs else None
    if knobs is None or planned is None or base is None or base.rate_rps is None or chosen.capacity_rps is None:
        return Draws((), 0, (), ())
    replica = replica_of(engine, demand)
    base_at = latency_at(demand, replica, knobs, planned.rate_rps)
    base_rps = base.rate_rps
    per_base = chosen.capacity_rps / base_rps
    seed, label = question.scenario.seed, group_label(engine.deployment)
    inputs = zip(
        draw_records(engine.record, DRAWS, seed),
        draw_scales(engine.record, DRAWS, seed, label),
        figure_factors(engine.record, DRAWS, seed, label),
        strict=True,
    )

    def one(draw: tuple[CalibrationRecord, float, tuple[float, float]]) -> tuple[float | None, float | None, float | None]:
        question.check()
        record, factor, (slower_ttft, more_throughput) = draw
        coefficients = scaled(coefficients_for(engine.deployment, record), factor)
        drawn = replica._replace(coefficients=coefficients, request_s=record.host.request_s.value)
        capacity = capacity_from(demand, drawn, knobs, _tighter(targets, slower_ttft), base_rps)
        at = latency_at(demand, drawn, knobs, planned.rate_rps)
        beside = more_throughput if targets.offline else 1.0
        rate = None if capacity.rate_rps is None else capacity.rate_rps * per_base * beside
        drawn_ttft_s = None if at.ttft_p99_s is None else at.ttft_p99_s * slower_ttft
        ttft_s = _rescaled(drawn_ttft_s, planned.ttft_p99_s, base_at.ttft_p99_s)
        return rate, ttft_s, _rescaled(at.tpot_p99_s, planned.tpot_p99_s, base_at.tpot_p99_s)

    points = in_parallel(one, inputs)
    possible = tuple(rate for rate, _, _ in points if rate is not None)
    ttft_s = tuple(p[1] for p in points if p[1] is not None)
    tpot_s = tuple(p[2] for p in points if p[2] is not None)
    return Draws(possible, len(points) - len(possible), ttft_s, tpot_s)


def _tighter(targets: Targets, slower_ttft: float) -> Targets:
    """Return the targets that steps alone must meet where TTFT comes out that many times as long [1]."""
    if targets.ttft_p99_s is None:
        return targets
    return Targets(ttft_p99_s=min(targets.ttft_p99_s / slower_ttft, LONGEST_TTFT_S), tpot_p99_s=targets.tpot_p99_s)


def _rescaled(drawn_s: float | None, planned_s: float | None, base_s: float | None) -> float | None:
    """Return a draw's latency on the smaller sample in the plan's figures [s]; None where one of the runs has none."""
    return drawn_s * planned_s / base_s if drawn_s is not None and planned_s is not None and base_s else None


def draw_scales(record: CalibrationRecord, count: int, seed: int, label: str | None = None) -> list[float]:
    """Return factors on all step times that stand for what the step model itself can't express [1].

    label : model, weights and layout as records name the groups they were fitted on; one that the record has seen in a whole engine
        departs from it by the record's own residuals, another one as published serving figures depart from predictions
    """
    return step_factors(record, count, seed, label)


def draw_records(record: CalibrationRecord, count: int, seed: int) -> list[CalibrationRecord]:
    """Return records whose parameters are drawn from their 80 % intervals and stay within what physics allows.

    Each side of a parameter's interval has its own log-normal spread, so that a figure at the end of its interval is drawn to the
    other side only; parameters that were fitted together are drawn together by the record's covariance.
    """
    rng = np.random.default_rng([seed, 7])
    parameters = dict(record.parameters())
    root = _root(record)
    names = record.covariance.names if record.covariance is not None else ()
    drawn: list[CalibrationRecord] = []
    for _ in range(count):
        values: dict[str, float] = {}
        if root is not None:
            shifts = root @ rng.standard_normal(len(names))
            values = {
                name: parameters[name].value * math.exp(float(shift))
                for name, shift in zip(names, shifts, strict=True)
                if name in parameters
            }
        for name, parameter in parameters.items():
            noise = float(rng.standard_normal())
            if name not in values:
                values[name] = _drawn(parameter, noise)
        drawn.append(record.with_values({name: _within(name, value) for name, value in values.items()}))
    return drawn


def _root(record: CalibrationRecord) -> npt.NDArray[np.float64] | None:
    if record.covariance is None:
        return None
    values, vectors = np.linalg.eigh(np.array(record.covariance.matrix))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _drawn(parameter: Parameter, noise: float) -> float:
    """Return a value that many standard deviations from the figure [the parameter's unit]; a figure of 0 is drawn linearly."""
    end = parameter.high if noise > 0.0 else parameter.low
    if parameter.value <= 0.0 or end <= 0.0:
        return max(0.0, parameter.value + (end - parameter.value) * abs(noise) / Z80)
    return float(parameter.value * (end / parameter.value) ** (abs(noise) / Z80))


def _within(name: str, value: float) -> float:
    low, high = bounds_of(name)
    return min(max(value, low), high)
