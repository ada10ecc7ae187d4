"""Which figures of a run a fit compares, and how far each may lie off by chance or by what no model holds."""

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.importers import BenchmarkRun
from planner.calibration.importers.run import Metric as Latency
from planner.calibration.records import CalibrationRecord
from planner.errors import InputError
from planner.step_coefficients import coefficients, peak_rates, work_of
from planner.step_model import StepShape, gpu_s
from planner.tuning.served import Bench, Floats, RunLoad, Statistic, in_flight, loads_of, predicted

BASE_ERROR: dict[Statistic, float] = {
    Statistic("tpot", "mean"): 0.03,
    Statistic("tpot", "p50"): 0.04,
    Statistic("tpot", "p99"): 0.12,
    Statistic("itl", "mean"): 0.04,
    Statistic("ttft", "mean"): 0.08,
    Statistic("ttft", "p50"): 0.08,
    Statistic("ttft", "p99"): 0.20,
    Statistic("e2e", "mean"): 0.04,
    Statistic("throughput", ""): 0.03,
}
"""Error of a figure as a share of itself, however long the run [1].

Means of decode steps repeat within about 3 % from one run of a server to the next, first tokens within 8 % and their tails within
20 %: judgement, from repeated points of published sweeps.
"""

_SPREAD = {"mean": 0.6, "p50": 0.8, "p99": 4.0, "": 0.3}
"""Standard error of a statistic is about this over the root of the number of requests [1], for latencies that vary by 60 %."""

MODEL_ERROR = 0.03
"""What a fitted step model is off by on steps that it hasn't seen [1]: the shipped records' own held-out error."""

_BOUND_SLACK = 0.9
_WRONG_FACTOR = 30.0
_NAMED = 5


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """One run with what a fit compares: statistics, measured values [s] or [token/s], and their errors in logarithms [1]."""

    run: BenchmarkRun
    loads: tuple[RunLoad, ...]
    wanted: tuple[Statistic, ...]
    measured: Floats
    errors: Floats

    @property
    def sequences(self) -> float:
        """Requests in flight on average, by Little's law where they aren't fixed [request]."""
        run = self.run
        if (clients := in_flight(run)) is not None:
            return float(clients)
        e2e_s = run.e2e.mean_s or (run.ttft.mean_s or 0.0) + (run.tpot.mean_s or 0.0) * (run.output_tokens - 1.0)
        return (run.requests_per_s or run.rate_rps or 0.0) * e2e_s


def observed(run: BenchmarkRun, bench: Bench) -> Observed:
    """Return the figures of a run that a fit compares.

    Raises InputError for a run with draft tokens, without any figure, or faster than the data sheet allows.
    """
    if run.speculative:
        remedy = "Measure without speculative decoding; the planner counts its effect from there"
        raise InputError(run.label, "speculative decoding", "makes several tokens a step, which can't be told apart", remedy)
    refuse_impossible(run, bench)
    values = _stated(run, "tpot") | _stated(run, "ttft")
    if not any(item.metric == "tpot" for item in values):
        values |= _stated(run, "itl") or {key: value for key, value in _stated(run, "e2e").items() if key.name == "mean"}
    if run.output_tokens_per_s and _rate_is_an_answer(run, values):
        values[Statistic("throughput", "")] = run.output_tokens_per_s
    if not values:
        raise InputError(run.label, run.tool, "states no figure that a fit could use", "Export it with latencies")
    chance = {name: spread / math.sqrt(run.requests) for name, spread in _SPREAD.items()}
    errors = [math.hypot(BASE_ERROR[item], chance[item.name]) for item in values]
    return Observed(run, loads_of(run, bench.replicas), tuple(values), np.array(list(values.values())), np.array(errors))


def with_model_error(item: Observed, bench: Bench, record: CalibrationRecord) -> Observed:
    """Return a run whose figures may also lie off by what a step model that errs by 3 % makes of them.

    Near saturation a wait is many times more sensitive than a step: there a first token says little of any parameter, and without
    this it would outweigh everything else.
    """
    now = predicted(item.loads, item.wanted, bench, record)
    slower = predicted(item.loads, item.wanted, bench, record, 1.0 + MODEL_ERROR)
    return replace(item, errors=np.hypot(item.errors, np.abs(np.log(slower / now))))


def _stated(run: BenchmarkRun, metric: Latency) -> dict[Statistic, float]:
    spread = run.spread(metric)
    names = {"mean": spread.mean_s, "p50": spread.p50_s, "p99": spread.p99_s if spread.weight == "request" else None}
    if metric == "itl" or spread.weight != "request":
        names = {"mean": spread.mean_s}
        metric = "itl"
    kept = {Statistic(metric, name): value for name, value in names.items() if value}
    return {item: value for item, value in kept.items() if item in BASE_ERROR}


def _rate_is_an_answer(run: BenchmarkRun, values: dict[Statistic, float]) -> bool:
    """An open loop below saturation serves what is offered, and a closed one what its latencies say already."""
    if run.arrivals == "burst" or run.saturated:
        return True
    return in_flight(run) is not None and not {"tpot", "itl", "e2e"} & {item.metric for item in values}


def refuse_impossible(run: BenchmarkRun, bench: Bench) -> None:
    """Raise InputError for a run whose time per token beats the data sheet: one sequence alone, its prompt in the cache."""
    tpot_s = run.tpot.p50_s or run.tpot.mean_s
    if not tpot_s:
        return
    c = coefficients(work_of(bench.deployment), peak_rates(bench.deployment))
    context = run.prompt_tokens
    least_s = float(gpu_s(StepShape(1.0, 1.0, 1.0, 1.0, context, min(context, c.window_tokens)), c))
    if tpot_s < _BOUND_SLACK * least_s:
        bound = f"beats the data sheet of {bench.deployment.gpu.name}, which allows {least_s:.4g} s"
        remedy = "Check GPU, model, quantization and tensor parallelism, and that no draft tokens were used"
        raise InputError(f"{run.label}: tpot", tpot_s, bound, remedy)


def refuse_foreign(items: tuple[Observed, ...], before: list[Floats], bench: Bench) -> float:
    """Return how far the runs lie from a prior's predictions: the median of |ln(measured / predicted)| [1].

    Raises InputError when they lie so far from any prediction that GPU, model or unit must be wrong.
    """
    logs = np.concatenate([np.log(item.measured / guess) for item, guess in zip(items, before, strict=True)])
    ratio = float(np.exp(np.median(logs)))
    if not 1.0 / _WRONG_FACTOR < ratio < _WRONG_FACTOR:
        named = ", ".join(item.run.label for item in items[:_NAMED])
        bound = f"lie {ratio:.3g} times from what {bench.deployment.gpu.name} should need"
        raise InputError("benchmark", named, bound, "Name the GPU, model and layout that were measured, and check the times' unit")
    return float(np.median(np.abs(logs)))
