"""Fits a record to measured steps and shows it as the fits to benchmarks are shown: points, errors before and after, held out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.calibration.fit import AllReduceRows, FitOptions, FitResult, StepGroup, fit_record, predicted_s
from planner.calibration.fit.request_time import RequestTime, request_parameter
from planner.calibration.records import CalibrationRecord, Evidence
from planner.step_model import StepShape
from planner.tuning.options import TuneOptions
from planner.tuning.results import CalibrationFit, FitPoint, Phase, Tell, errors_of, fitted_values, silent
from planner.tuning.served import Floats
from planner.tuning.warnings import of_parameters

Flags = npt.NDArray[np.bool_]

MOST_POINTS = 4_000
_LEFT_OUT_OF = 4
_SEED = 20_261_130
_LEAST_ROWS = 40
BY_GROUP = "each model and tensor-parallel size left out in turn and predicted from the others"
BY_BURST = "a quarter of the bursts, drawn at random; a second model or tensor-parallel size would tell weights from constants"
BY_ROW = "a quarter of the steps, drawn at random; a second model or tensor-parallel size would tell weights from constants"
TOO_FEW = f"nothing: fewer than {_LEAST_ROWS} steps"
NO_STEPS = "nothing: no whole steps were measured"


@dataclass(frozen=True, slots=True, eq=False)
class StepData:
    """Measured steps and all-reduces.

    fixed : paths that they say nothing about; remarks : what isn't among them
    request_time : what lone requests spent outside the engine, where it was measured
    """

    groups: tuple[StepGroup, ...]
    all_reduces: tuple[AllReduceRows, ...] = ()
    fixed: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    request_time: RequestTime | None = None


def fit_steps(data: StepData, prior: CalibrationRecord, options: TuneOptions | None = None, tell: Tell = silent) -> CalibrationFit:
    """Fit a record to measured steps.

    data : of one kind of GPU; prior : complete record of it; tell : called with progress, whatever it raises ends the fit

    Deterministic. Raises InputError for rows that no machine can have produced, naming them.
    """
    given = options or TuneOptions()
    fixed = data.fixed | FitOptions().fixed
    fit_options = FitOptions(source=given.source, fixed=fixed, day=given.day, hold_out=False)
    tell("Fitting all steps", 0.0)
    if data.request_time is not None:
        prior = prior.with_parameters({"host.request_s": request_parameter(data.request_time, given.source, given.day)})
    result = fit_record(prior, data.groups, data.all_reduces, fit_options)
    before = [predicted_s(group, prior) for group in data.groups]
    after = [predicted_s(group, result.record) for group in data.groups]
    text, unseen = _held_out(data, prior, fit_options, tell) if given.hold_out else ("nothing: not asked for", {})
    record = _with_held_out(result, data.groups, unseen, text)
    points = _points(data.groups, before, after, unseen)
    paths = [*result.informed, *result.uninformed]
    values = fitted_values(record, prior, paths)
    warnings = (*data.remarks, *of_parameters(values), *_of_steps(data.groups, after))
    tell("Done", 1.0)
    return CalibrationFit(record, prior, values, points, errors_of(points), text, warnings, 0)


def _held_out(data: StepData, prior: CalibrationRecord, options: FitOptions, tell: Tell) -> tuple[str, dict[int, Floats]]:
    """Return what was held out, and by place of the group what fits without its rows predict; NaN for rows that all have seen."""
    labels = list(dict.fromkeys(group.label for group in data.groups))
    if not labels:
        return NO_STEPS, {}
    if len(labels) == 1:
        return _some_rows(data, prior, options)
    unseen: dict[int, Floats] = {}
    for done, label in enumerate(labels):
        tell(f"Leaving out {label}", 0.3 + 0.7 * done / len(labels))
        seen = tuple(group for group in data.groups if group.label != label)
        record = fit_record(prior, seen, data.all_reduces, options).record
        unseen |= {place: predicted_s(group, record) for place, group in enumerate(data.groups) if group.label == label}
    return BY_GROUP, unseen


def _some_rows(data: StepData, prior: CalibrationRecord, options: FitOptions) -> tuple[str, dict[int, Floats]]:
    """Steps of one burst share the machine's state: whole bursts are left out where they are known, else single steps."""
    if sum(len(group.seconds) for group in data.groups) < _LEAST_ROWS:
        return TOO_FEW, {}
    rng = np.random.default_rng(_SEED)
    kept = [_drawn(group, rng) for group in data.groups]
    seen = tuple(group.only(chosen) for group, chosen in zip(data.groups, kept, strict=True) if chosen.any())
    record = fit_record(prior, seen, data.all_reduces, options).record
    guesses = [np.where(chosen, np.nan, predicted_s(group, record)) for group, chosen in zip(data.groups, kept, strict=True)]
    bursts = all(group.bursts is not None for group in data.groups)
    return BY_BURST if bursts else BY_ROW, dict(enumerate(guesses))


def _drawn(group: StepGroup, rng: np.random.Generator) -> Flags:
    """Return which rows a fit sees: three quarters of them."""
    if group.bursts is None:
        return np.asarray(rng.permutation(len(group.seconds)) % _LEFT_OUT_OF > 0)
    known = np.unique(group.bursts)
    left_out = rng.permutation(known)[: max(1, len(known) // _LEFT_OUT_OF)]
    return np.asarray(~np.isin(group.bursts, left_out))


def _with_held_out(result: FitResult, groups: Sequence[StepGroup], unseen: dict[int, Floats], text: str) -> CalibrationRecord:
    evidence = result.record.evidence
    if evidence is None:
        return result.record
    parts = []
    for place, (error, group) in enumerate(zip(evidence.groups, groups, strict=True)):
        off = np.abs(unseen[place] / group.seconds - 1.0) * 100.0 if place in unseen else np.array([np.nan])
        known = off[np.isfinite(off)]
        update = {
            "held_out_median_abs_pct": round(float(np.median(known)), 2) if len(known) else None,
            "held_out_mean_abs_pct": round(float(known.mean()), 2) if len(known) else None,
        }
        parts.append(error.model_copy(update=update))
    checked = Evidence.model_validate(evidence.model_copy(update={"groups": tuple(parts), "held_out": text}).model_dump())
    return result.record.model_copy(update={"evidence": checked})


def _points(
    groups: Sequence[StepGroup], before: Sequence[Floats], after: Sequence[Floats], unseen: dict[int, Floats]
) -> tuple[FitPoint, ...]:
    """Return the steps with their predictions, evenly thinned where there are very many."""
    total = sum(len(group.seconds) for group in groups)
    stride = max(1, -(-total // MOST_POINTS))
    points = []
    for place, group in enumerate(groups):
        count = len(group.seconds)
        shape = StepShape(*(np.broadcast_to(np.asarray(column, dtype=np.float64), (count,)) for column in group.shape))
        held = unseen.get(place)
        for i in range(0, count, stride):
            guess = None if held is None or not math.isfinite(held[i]) else float(held[i])
            context = np.asarray(shape.decode_context_tokens)[i] + np.asarray(shape.prefill_context_tokens)[i]
            points.append(
                FitPoint(
                    label=group.label,
                    metric="step",
                    statistic="",
                    phase=_phase(str(group.phase[i])),
                    measured=float(group.seconds[i]),
                    before=float(before[place][i]),
                    after=float(after[place][i]),
                    held_out=guess,
                    sequences=float(np.asarray(shape.sequences)[i]),
                    context_tokens=float(context),
                )
            )
    return tuple(points)


def _phase(name: str) -> Phase:
    return "decode" if name == "decode" else "prefill" if name == "prefill" else "mixed"


def _of_steps(groups: Sequence[StepGroup], after: Sequence[Floats]) -> list[str]:
    labels = {group.label for group in groups}
    found = []
    if len(labels) == 1:
        found.append(
            "All steps are of one model at one tensor-parallel size: weights and constants can't be told apart for others."
        )
    errors = np.concatenate(
        [np.abs(guess / group.seconds - 1.0) for group, guess in zip(groups, after, strict=True)] or [np.zeros(1)]
    )
    if float(np.median(errors)) > _POOR:
        found.append(f"The fit misses its own steps by {100.0 * np.median(errors):.0f} % (median): check GPU, model and layout.")
    return found


_POOR = 0.10
