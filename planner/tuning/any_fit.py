"""Fits a record to whatever files a user brings: steps first, then benchmarks from what the steps have shown."""

from collections.abc import Sequence
from dataclasses import replace

from planner.calibration.fit import AllReduceRows, StepGroup
from planner.calibration.fit.collected import rows_for_fit, steps_of_endpoint
from planner.calibration.fit.request_time import RequestTime
from planner.errors import InputError
from planner.tuning.benchmark_fit import fit_benchmarks
from planner.tuning.files import UserFile
from planner.tuning.logged_steps import steps_of_log
from planner.tuning.options import TuneOptions
from planner.tuning.results import CalibrationFit, Tell, silent
from planner.tuning.served import Bench
from planner.tuning.step_fit import StepData, fit_steps
from planner.tuning.target import Target

MOST_FILES = 20
_FIRST_SHARE = 0.4


def fit_files(
    files: UserFile | Sequence[UserFile], target: Target, options: TuneOptions | None = None, tell: Tell = silent
) -> CalibrationFit:
    """Fit a record to files of any kind.

    files : of one GPU, engine and release, as `read_file` returns them
    target : what was measured; a file of collect_vllm.py or collect_torch.py names its models itself
    options : how to weigh them; tell : called with progress, whatever it raises ends the fit

    Steps alone give the GPU's efficiencies; benchmarks also the host's terms. With both, the fit to the benchmarks starts from the
    fit to the steps. Raises InputError as the fits and Target do.
    """
    given = [files] if isinstance(files, UserFile) else list(files)
    if not 1 <= len(given) <= MOST_FILES:
        raise InputError("files", len(given), f"must be 1 to {MOST_FILES}", "Give the files of one server")
    options = options or TuneOptions(source=_source(given))
    steps = [file for file in given if file.kind != "benchmark"]
    runs = tuple(run for file in given for run in file.runs)
    first: CalibrationFit | None = None
    if steps:
        share = _FIRST_SHARE if runs else 1.0
        first = fit_steps(_steps(steps, target), target.step_prior(), options, lambda text, done: tell(text, share * done))
    if not runs:
        return _described(_required(first), target, options.source)
    deployment = target.deployment()
    bench = Bench(deployment, target.memory(deployment), target.replicas)
    if first is None:
        alone = fit_benchmarks(bench, runs, target.serving_prior(deployment), options, tell)
        return _described(alone, target, options.source)

    def later(text: str, done: float) -> None:
        tell(text, _FIRST_SHARE + (1.0 - _FIRST_SHARE) * done)

    second = fit_benchmarks(bench, runs, first.record, options, later)
    both = replace(
        second,
        points=(*first.points, *second.points),
        errors=(*first.errors, *second.errors),
        warnings=(*first.warnings, *second.warnings),
    )
    return _described(both, target, options.source)


def _required(fit: CalibrationFit | None) -> CalibrationFit:
    if fit is None:
        raise InputError(
            "files", 0, "hold neither steps nor runs", "Give a collector's file, a log of steps or a benchmark's result"
        )
    return fit


def _steps(files: Sequence[UserFile], target: Target) -> StepData:
    gpu = target.gpu()
    groups: list[StepGroup] = []
    messages: list[AllReduceRows] = []
    remarks: list[str] = []
    fixed: list[frozenset[str]] = []
    outside: RequestTime | None = None
    for file in files:
        if file.log is not None:
            deployment = target.deployment()
            logged = steps_of_log(file.log, deployment, f"{target.model_id} {target.quantization} tp{target.tp}")
            groups.append(logged.group)
            remarks += logged.remarks
            fixed.append(frozenset())
        elif file.collected is not None and file.collected.header.collector == "http":
            found = steps_of_endpoint(file.collected, target.deployment())
            groups += found.groups
            remarks += [f"{left.rows} steps {left.reason}" for left in found.left_out]
            fixed.append(frozenset())
        elif file.collected is not None:
            rows = rows_for_fit(file.collected, gpu, target.version)
            groups += rows.groups
            messages += rows.all_reduces
            outside = rows.request_time or outside
            remarks += [f"{left.rows} steps {left.reason}" for left in rows.left_out]
            fixed += [rows.fixed] if rows.groups else []
    shared = frozenset.intersection(*fixed) if fixed else frozenset()
    return StepData(tuple(groups), tuple(messages), shared, tuple(remarks), outside)


def _source(files: Sequence[UserFile]) -> str:
    kinds = ", ".join(dict.fromkeys(file.format for file in files))
    return f"fit to {len(files)} file{'s' if len(files) > 1 else ''} of the user's own: {kinds}"


def _described(fit: CalibrationFit, target: Target, source: str) -> CalibrationFit:
    """Name what was measured, and keep in the record's tables what measurements informed: priors are filled in when it is used."""
    description = f"{target.gpu().name} under {target.engine} {target.version}: {source}"[:2000]
    record = fit.record.model_copy(update={"description": description})
    if record.evidence is not None:
        measured = [path for path, parameter in fit.prior.parameters() if parameter.informed_by == "data"]
        record = record.only([*(value.path for value in fit.parameters), *measured])
    return replace(fit, record=record)
