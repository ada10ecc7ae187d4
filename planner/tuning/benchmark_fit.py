"""Fits a record to benchmark results alone: every step of the fit serves the benchmark's requests in the simulator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.fit.parameters import FreeParameter
from planner.calibration.importers import BenchmarkRun
from planner.calibration.records import CalibrationRecord
from planner.deployment import Deployment
from planner.errors import InputError
from planner.step_coefficients import compute_dtype_on, sixteen_bit_of, weight_class
from planner.tuning.benchmark_report import fitted_record, held_out_places, held_out_text, points_of, values_at, with_evidence
from planner.tuning.least_squares import Model, Solution, solve
from planner.tuning.observations import Observed, observed, refuse_foreign, with_model_error
from planner.tuning.options import TuneOptions, doubt_of, loosened_all
from planner.tuning.results import CalibrationFit, FitPoint, Tell, errors_of, fitted_values, silent
from planner.tuning.served import Bench, Floats, predicted
from planner.tuning.starts import starts_of
from planner.tuning.warnings import warnings_of

MOST_RUNS = 40
_HELD_OUT_ITERATIONS = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What a fit needs at every step; parameters : those that it moves."""

    bench: Bench
    prior: CalibrationRecord
    parameters: tuple[FreeParameter, ...]
    items: tuple[Observed, ...]

    def record_at(self, log_values: Floats) -> CalibrationRecord:
        """Return the prior with other values of the moved parameters."""
        return self.prior.with_values(values_at(self.parameters, log_values))

    def guesses(self, record: CalibrationRecord) -> list[Floats]:
        """Return what a record predicts for every figure of every run."""
        return [predicted(item.loads, item.wanted, self.bench, record) for item in self.items]

    def residuals(self, log_values: Floats) -> Floats:
        """Return ln(predicted / measured) over its error, of every figure."""
        guesses = self.guesses(self.record_at(log_values))
        parts = [np.log(guess / item.measured) / item.errors for guess, item in zip(guesses, self.items, strict=True)]
        return np.concatenate(parts)

    def with_model_error(self, log_values: Floats) -> "_Task":
        """Return the task with the errors that follow from the step model's own at some parameters."""
        record = self.record_at(log_values)
        items = tuple(with_model_error(item, self.bench, record) for item in self.items)
        return _Task(self.bench, self.prior, self.parameters, items)

    def without(self, place: int) -> "_Task":
        """Return the task with one run left out."""
        items = tuple(item for i, item in enumerate(self.items) if i != place)
        return _Task(self.bench, self.prior, self.parameters, items)


def fit_benchmarks(
    bench: Bench,
    runs: Sequence[BenchmarkRun],
    prior: CalibrationRecord,
    options: TuneOptions | None = None,
    tell: Tell = silent,
) -> CalibrationFit:
    """Fit a record to benchmark results.

    bench : what served the runs
    runs : operating points of one server; two loads that differ much tell weights from constants
    prior : complete record of the same GPU; what the runs can't tell stays there
    tell : called with progress; whatever it raises ends the fit

    Deterministic. Raises InputError for runs that no such server can have produced, or too many of them.
    """
    given = options or TuneOptions()
    if not 1 <= len(runs) <= MOST_RUNS:
        raise InputError("benchmark", f"{len(runs)} runs", f"must be 1 to {MOST_RUNS}", "Give the runs of one server")
    tell("Serving the benchmark's requests with what was known before", 0.0)
    items = tuple(observed(run, bench) for run in runs)
    before = [predicted(item.loads, item.wanted, bench, prior) for item in items]
    misfit = refuse_foreign(items, before, bench)
    paths = tuple(path for path in serving_paths(bench.deployment, prior) if path not in given.fixed)
    parameters = loosened_all(prior, paths, doubt_of(misfit))
    task = _Task(bench, prior, parameters, items)
    places = held_out_places(len(items)) if given.hold_out else ()
    progress = _Progress(tell, given.most_iterations * (len(parameters) + 2), 1.0 / (1.0 + 0.3 * len(places)))
    first = _best(task, before, progress, given)
    task = task.with_model_error(first.log_values)
    solution = solve(parameters, progress.telling(task.residuals), first.log_values, given.most_iterations)
    unseen = _unseen(task, solution, places, progress)
    fitted = fitted_record(prior, parameters, solution, given)
    points = points_of(items, before, task.guesses(fitted), unseen)
    text = held_out_text(len(items), places, given)
    record = with_evidence(fitted, items, points, text)
    values = fitted_values(record, prior, [free.path for free in parameters])
    tell("Done", 1.0)
    warnings = warnings_of(items, points, values)
    return CalibrationFit(record, prior, values, points, errors_of(points), text, warnings, progress.done)


def _best(task: _Task, before: Sequence[Floats], progress: "_Progress", options: TuneOptions) -> Solution:
    """Return the solution of least cost from one start, or from several where the prior is far off."""
    model = progress.telling(task.residuals)
    starts = starts_of(task.parameters, task.items, before)
    found = [solve(task.parameters, model, start, options.most_iterations, with_covariance=False) for start in starts]
    return min(found, key=lambda solution: solution.cost)


def _unseen(task: _Task, solution: Solution, places: Sequence[int], progress: "_Progress") -> dict[int, Floats]:
    """Return, by place, what a fit to the other runs predicts for a run."""
    unseen: dict[int, Floats] = {}
    for place in places:
        item, others = task.items[place], task.without(place)
        model = progress.telling(others.residuals, f"Leaving out {item.run.label}")
        part = solve(task.parameters, model, solution.log_values, _HELD_OUT_ITERATIONS, with_covariance=False)
        unseen[place] = predicted(item.loads, item.wanted, task.bench, task.record_at(part.log_values))
    return unseen


@dataclass(slots=True)
class _Progress:
    """Counts predictions of all data and tells how far a fit is; expected : of the main fit, which takes `main` of the whole."""

    tell: Tell
    expected: int
    main: float
    done: int = 0

    def telling(self, model: Model, text: str = "Serving the requests again") -> Model:
        """Return a model that counts and tells each time that it is asked."""

        def told(log_values: Floats) -> Floats:
            self.done += 1
            self.tell(f"{text}: {self.done} times so far", self._share())
            return model(log_values)

        return told

    def _share(self) -> float:
        """The number of steps isn't known beforehand, so that the share nears its end ever more slowly."""
        return min(0.99, 1.0 - math.exp(-3.0 * self.main * self.done / self.expected))


def compare_runs(bench: Bench, record: CalibrationRecord, runs: Sequence[BenchmarkRun]) -> tuple[FitPoint, ...]:
    """Return what a record predicts for the figures of some runs, without fitting anything; `before` equals `after`.

    Errors as fit_benchmarks.
    """
    items = tuple(observed(run, bench) for run in runs)
    guesses = [predicted(item.loads, item.wanted, bench, record) for item in items]
    return points_of(items, guesses, guesses, {})


def serving_paths(deployment: Deployment, record: CalibrationRecord) -> tuple[str, ...]:
    """Return the parameters that a deployment's served requests depend on, in a fixed order."""
    quantization = deployment.quantization
    dtype = compute_dtype_on(deployment.gpu, quantization, deployment.engine.engine)
    paths = [
        "layer_s",
        f"memory_efficiency.{weight_class(quantization.weight_bits)}",
        "memory_efficiency.bf16",
        f"compute_efficiency.{dtype}",
        f"compute_efficiency.{sixteen_bit_of(deployment.gpu)}",
        "attention_efficiency",
        "kv_read_efficiency",
    ]
    if deployment.model.is_moe:
        paths += [f"expert_compute_efficiency.{dtype}", "expert_layer_s", "expert_spread"]
    size = deployment.parallelism.tp
    if size in record.all_reduce:
        paths += [f"all_reduce.{size}.alpha_s", f"all_reduce.{size}.beta_bytes_per_s"]
    paths += ["smoothness", "host.host_s", "host.host_s_per_sequence", "host.exposed_host_s_per_sequence", "host.request_s"]
    return tuple(dict.fromkeys(paths))
