"""The fit itself: robust least squares in logarithms, priors as observations, covariance, held-out errors."""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import least_squares

from planner.calibration.fit.groups import AllReduceRows, FloatArray, StepGroup, predicted_s, refuse_impossible
from planner.calibration.fit.parameters import FreeParameter, fitted_parameter, free_parameters
from planner.calibration.records import CalibrationRecord, Evidence, GroupError, LogCovariance
from planner.errors import InputError

HELD_OUT = "each model and tensor-parallel size left out in turn and predicted from the others"
ONE_GROUP = "nothing: all rows are of one model at one tensor-parallel size; measure a second to tell weights from constants"
ONE_GROUP_THIRDS = "each third of the bursts left out in turn; one model on one device can't tell weights from constants"
_MAX_EVALUATIONS = 200
_KV_READ, _WEIGHTS = "kv_read_efficiency", "memory_efficiency.bf16"
_FOLDS = 3


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a fit weighs its observations.

    row_error : error of one row, as a share of its time [1]; the operator tables' own leave-one-out error is 5 %
    effective_rows : independent observations that a group counts as, however many rows it has [1]; rows of one group share their
        model's misfit, and counting each would let that misfit outweigh every prior
    all_reduce_error : misfit of the two-parameter form on one message size [1]
    fixed : paths of parameters that stay at the prior
    source : the measurements, in words
    day : of the fit, for the record
    hold_out : whether to predict each group from the others
    """

    row_error: float = 0.05
    effective_rows: float = 100.0
    all_reduce_error: float = 0.2
    fixed: frozenset[str] = frozenset({"mix_factor"})
    source: str = "fit to measured step times"
    day: dt.date = field(default_factory=lambda: dt.datetime.now(dt.UTC).date())
    hold_out: bool = True


@dataclass(frozen=True, slots=True)
class FitResult:
    """A fitted record and how it came about.

    record : the prior with fitted parameters, evidence and covariance
    cost : robust cost of the solution, data and priors together [1]; comparable between fits of the same rows
    informed : paths that the data informed; the rest of the fitted ones rest on the prior
    """

    record: CalibrationRecord
    cost: float
    informed: tuple[str, ...]
    uninformed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Solution:
    parameters: tuple[FreeParameter, ...]
    log_values: FloatArray
    log_covariance: FloatArray
    cost: float
    record: CalibrationRecord = field(repr=False)


def fit_record(
    prior: CalibrationRecord,
    groups: Sequence[StepGroup],
    all_reduces: Sequence[AllReduceRows] = (),
    options: FitOptions | None = None,
) -> FitResult:
    """Fit a record to measured steps.

    prior : complete record of the same GPU; its intervals say how firmly each parameter is held
    groups : measured steps, one group for each model and layout; none when only all-reduces were measured
    all_reduces : measured all-reduces, if any

    Dense models in 16 bit are fitted first. Quantised ones and mixtures of experts, which the form describes less well, then inform
    the parameters that are theirs alone, so that their misfit can't bend the others.

    Raises InputError when there is nothing to fit, or rows beat a physical bound.
    """
    options = options or FitOptions()
    if not groups and not all_reduces:
        raise InputError("rows", 0, "must hold measured steps or all-reduces", "Give a table with rows of this GPU")
    for group in groups:
        refuse_impossible(group, prior)
    record, messages = prior, tuple(all_reduces)
    solutions: list[_Solution] = []
    held_out: dict[str, FloatArray] = {}
    for stage in _stages(groups):
        solution = _solve(record, stage, messages, options)
        held_out |= _held_out(record, stage, messages, options) if options.hold_out else {}
        solutions.append(solution)
        options = replace(options, fixed=options.fixed | {free.path for free in solution.parameters})
        record, messages = solution.record, ()
    return _result(prior, tuple(groups), solutions, held_out, options)


def _stages(groups: Sequence[StepGroup]) -> list[tuple[StepGroup, ...]]:
    plain = tuple(group for group in groups if is_plain(group))
    rest = tuple(group for group in groups if not is_plain(group))
    return [stage for stage in (plain, rest) if stage] or [()]


def is_plain(group: StepGroup) -> bool:
    """Say whether a group is of a dense model in 16 bit, whose steps tell the constants that others build on."""
    deployment = group.deployment
    return not deployment.model.is_moe and deployment.quantization.weight_bits >= 16


def _result(
    prior: CalibrationRecord,
    groups: tuple[StepGroup, ...],
    solutions: list[_Solution],
    held_out: dict[str, FloatArray],
    options: FitOptions,
) -> FitResult:
    fitted = {
        free.path: fitted_parameter(free, float(value), float(sd), options.source, options.day)
        for solution in solutions
        for free, value, sd in zip(solution.parameters, solution.log_values, np.sqrt(np.diag(solution.log_covariance)), strict=True)
    }
    update = {"created": options.day, "covariance": _covariance(solutions)}
    record = prior.with_parameters(fitted).model_copy(update=update).with_achieved()
    if groups:
        record = record.model_copy(update={"basis": "fitted", "evidence": _evidence(record, groups, held_out)})
    informed = tuple(path for path, parameter in fitted.items() if parameter.informed_by == "data")
    uninformed = tuple(path for path in fitted if path not in informed)
    return FitResult(record, sum(solution.cost for solution in solutions), informed, uninformed)


def _solve(
    prior: CalibrationRecord, groups: tuple[StepGroup, ...], all_reduces: tuple[AllReduceRows, ...], options: FitOptions
) -> _Solution:
    parameters = free_parameters(prior, groups, all_reduces, options.fixed)
    start = np.array([free.start for free in parameters])
    low = np.array([free.low for free in parameters])
    high = np.array([free.high for free in parameters])
    sds = np.array([free.prior_sd for free in parameters])
    names = [free.path for free in parameters]

    def at(log_values: FloatArray) -> CalibrationRecord:
        values = {free.path: math.exp(value) for free, value in zip(parameters, log_values, strict=True)}
        return prior.with_values(values)

    def residuals(log_values: FloatArray) -> FloatArray:
        record = at(log_values)
        rows = [_row_residuals(group, record, options) for group in groups]
        messages = [_message_residuals(row, record, options) for row in all_reduces if row.tensor_parallel in record.all_reduce]
        return np.concatenate([*rows, *messages, _from_prior(names, log_values - start) / sds])

    inside = np.clip(start, low + 1e-9, high - 1e-9)
    solution = least_squares(residuals, inside, bounds=(low, high), loss="soft_l1", max_nfev=_MAX_EVALUATIONS)
    slopes = np.asarray(solution.jac, dtype=np.float64)
    covariance = np.asarray(np.linalg.pinv(slopes.T @ slopes, hermitian=True), dtype=np.float64)
    return _Solution(parameters, solution.x, covariance, float(solution.cost), at(solution.x))


def _from_prior(names: list[str], moved: FloatArray) -> FloatArray:
    """Return how far each logarithm lies from where its prior puts it; moved : its distance from the prior's own value.

    Attention reads the cache about as fast as weights stream: its share is held to theirs, wherever it goes. Held to a fixed value,
    steps of one model at one size would let the two drift apart and pay with the constants.
    """
    if _KV_READ not in names or _WEIGHTS not in names:
        return moved
    distances = moved.copy()
    distances[names.index(_KV_READ)] -= moved[names.index(_WEIGHTS)]
    return distances


def _row_residuals(group: StepGroup, record: CalibrationRecord, options: FitOptions) -> FloatArray:
    weight = math.sqrt(min(1.0, options.effective_rows / len(group.seconds))) / options.row_error
    return weight * np.log(predicted_s(group, record) / group.seconds)


def _message_residuals(rows: AllReduceRows, record: CalibrationRecord, options: FitOptions) -> FloatArray:
    cost = record.all_reduce[rows.tensor_parallel]
    predicted = rows.predicted_s(cost.alpha_s.value, cost.beta_bytes_per_s.value)
    return np.log(predicted / rows.seconds) / options.all_reduce_error


def _covariance(solutions: list[_Solution]) -> LogCovariance:
    matrix = block_diag(*(0.5 * (solution.log_covariance + solution.log_covariance.T) for solution in solutions))
    names = tuple(free.path for solution in solutions for free in solution.parameters)
    return LogCovariance(names=names, matrix=tuple(tuple(float(f"{value:.4g}") for value in row) for row in matrix))


def _held_out(
    prior: CalibrationRecord, groups: tuple[StepGroup, ...], all_reduces: tuple[AllReduceRows, ...], options: FitOptions
) -> dict[str, FloatArray]:
    """Return, by label, predicted / measured - 1 of each group from a fit without it; a lone group goes by thirds of its bursts."""
    labels = dict.fromkeys(group.label for group in groups)
    if len(groups) == 1:
        errors_by_third = _held_out_thirds(prior, groups[0], all_reduces, options)
        return {} if errors_by_third is None else {groups[0].label: errors_by_third}
    if len(labels) < 2:
        return {}
    errors: dict[str, FloatArray] = {}
    for label in labels:
        seen = tuple(group for group in groups if group.label != label)
        record = _solve(prior, seen, all_reduces, options).record
        errors[label] = np.concatenate([relative_errors(group, record) for group in groups if group.label == label])
    return errors


def _held_out_thirds(
    prior: CalibrationRecord, group: StepGroup, all_reduces: tuple[AllReduceRows, ...], options: FitOptions
) -> FloatArray | None:
    """Return predicted / measured - 1 of each row from a fit without its third of the bursts; None with too few bursts."""
    if group.bursts is None or len(np.unique(group.bursts)) < 2 * _FOLDS:
        return None
    errors = np.empty(len(group.seconds))
    for fold in range(_FOLDS):
        tested = group.bursts % _FOLDS == fold
        record = _solve(prior, (group.only(~tested),), all_reduces, options).record
        errors[tested] = relative_errors(group.only(tested), record)
    return errors


def relative_errors(group: StepGroup, record: CalibrationRecord) -> FloatArray:
    """Return predicted / measured - 1 for each row of a group [1]."""
    return predicted_s(group, record) / group.seconds - 1.0


def _evidence(record: CalibrationRecord, groups: tuple[StepGroup, ...], held_out: dict[str, FloatArray]) -> Evidence:
    errors = [relative_errors(group, record) for group in groups]
    every = np.log1p(np.concatenate(errors))
    return Evidence(
        rows=sum(len(group.seconds) for group in groups),
        groups=tuple(_group_error(group, error, held_out.get(group.label)) for group, error in zip(groups, errors, strict=True)),
        residual_log_sd=float(f"{every.std():.3g}"),
        seen=_seen(groups),
        held_out=_held_out_text(groups, held_out),
    )


def _held_out_text(groups: tuple[StepGroup, ...], held_out: dict[str, FloatArray]) -> str:
    if not held_out:
        return ONE_GROUP
    return ONE_GROUP_THIRDS if len(groups) == 1 else HELD_OUT


def _group_error(group: StepGroup, errors: FloatArray, held_out: FloatArray | None) -> GroupError:
    def percent(value: float) -> float:
        return round(100.0 * float(value), 2)

    return GroupError(
        group=group.label,
        rows=len(errors),
        median_abs_pct=percent(np.median(np.abs(errors))),
        mean_abs_pct=percent(np.abs(errors).mean()),
        worst_abs_pct=percent(np.abs(errors).max()),
        bias_pct=percent(np.median(errors)),
        held_out_median_abs_pct=None if held_out is None else percent(np.median(np.abs(held_out))),
        held_out_mean_abs_pct=None if held_out is None else percent(np.abs(held_out).mean()),
    )


def _seen(groups: tuple[StepGroup, ...]) -> dict[str, tuple[float, float]]:
    """Return the range of each input that was measured, so that a plan can say when it goes beyond."""
    fields = ("scheduled_tokens", "decode_sequences", "decode_context_tokens", "prefill_pairs")
    seen: dict[str, tuple[float, float]] = {}
    for name in fields:
        values = np.concatenate([np.asarray(getattr(group.shape, name), dtype=np.float64).ravel() for group in groups])
        seen[name] = (float(values.min()), float(values.max()))
    sizes = [float(group.deployment.parallelism.tp) for group in groups]
    return seen | {"tensor_parallel": (min(sizes), max(sizes))}
