"""How far step times lie from recorded ones: each group by the shipped record, and by a fit that hasn't seen it."""

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.accuracy.report import error_summary
from planner.accuracy.shipped import Coverage, GpuSteps, ShippedSteps, StepGroupErrors
from planner.calibration.fit import AllReduceRows, StepGroup, all_reduce_rows_from_csv, fit_record, groups_from_csv, predicted_s
from planner.calibration.fit.__main__ import start_record
from planner.calibration.fit.groups import bound_s
from planner.calibration.fit.solve import FitOptions, is_plain, relative_errors
from planner.calibration.records import CalibrationRecord, record_for
from planner.calibration.spread import Z80
from planner.hardware import load_gpu

Floats = npt.NDArray[np.float64]
_NUDGE = 0.01
_COVERED = 0.8
_LARGEST_RATIO = 100.0
_PARTS = 3


class StepSource(NamedTuple):
    """Recorded steps of one GPU under one release, and how its shipped record was fitted.

    like : id of the record that the fit starts from; None: the GPU's prior
    left_out : part of the labels that the shipped record leaves out, if any
    limits : median and mean that are aimed at for groups held out [%]
    eager : measured without CUDA graphs, on mixed batches that also tell what decode rows cost beside chunks
    """

    gpu: str
    engine: str
    version: str
    like: str | None = None
    left_out: str | None = None
    limits: tuple[float, float] | None = None
    eager: bool = False

    def uses(self, label: str) -> bool:
        """Say whether the shipped record was fitted on a group."""
        return self.left_out is None or self.left_out not in label


SOURCES = (
    StepSource("h100-80g-sxm", "vllm", "0.24.0", limits=(3.0, 5.0)),
    StepSource("h200-141g-sxm", "vllm", "0.24.0", "h100-80g-sxm/vllm-0.24.0", "235b", (3.0, 5.0)),
    StepSource("a100-80g-sxm", "vllm", "0.14.0", limits=(5.0, 7.0)),
    StepSource("l40s", "vllm", "0.24.0", limits=(5.0, 7.0)),
    StepSource("h100-80g-sxm", "tensorrt-llm", "1.3.0rc20", "h100-80g-sxm/vllm-0.24.0"),
    StepSource("rtx-pro-6000-bw-server", "vllm", "0.19.0", eager=True),
    StepSource("rtx-4090", "vllm", "0.19.0", eager=True),
)


class HeldOut(NamedTuple):
    """A group predicted by a fit that hasn't seen it.

    errors : predicted ÷ measured - 1 of each row [1]
    parameter_sd : what the fit's covariance makes of the logarithm of each prediction [1]
    fit_sd : scatter of the rows that the fit has seen around it [1]
    kind : dense and in 16 bit or not, and whether the shipped record was fitted on it
    """

    gpu: str
    label: str
    errors: Floats
    parameter_sd: Floats
    fit_sd: float
    kind: tuple[bool, bool]


def steps_document(steps: Path, all_reduces: Path, day: str) -> ShippedSteps:
    """Return the errors of all recorded steps.

    steps, all_reduces : tables as `planner.calibration.fit` reads them, the first one gzipped; day : of the run, YYYY-MM-DD
    """
    tables = gzip.decompress(steps.read_bytes()), all_reduces.read_bytes()
    recorded = [(source, _groups(source, *tables)) for source in SOURCES]
    held = [out for source, (groups, messages) in recorded for out in _held_out_groups(source, groups, messages)]
    alone = {source: range_errors(source, groups[0], messages) for source, (groups, messages) in recorded if len(groups) == 1}
    found = [_of_source(source, groups, held, alone.get(source)) for source, (groups, _) in recorded]
    return ShippedSteps(
        title="Whole engine steps composed of operator times measured on GPUs",
        source="operator tables of aiconfigurator-core 0.12.0 and kernel times of LLMServingSim at 5daddb2",
        terms="Apache-2.0 and MIT",
        caveat="Without host time. The tables' own error is about 5 %; Qwen3-235B-A22B in FP8 ran outside CUDA graphs.",
        date=day,
        command="python -m planner.accuracy.publish FOLDER --steps tests/recorded",
        gpus=tuple(gpu for gpu, _ in found),
        groups=tuple(group for _, groups in found for group in groups),
    )


def _groups(source: StepSource, steps: bytes, all_reduces: bytes) -> tuple[tuple[StepGroup, ...], tuple[AllReduceRows, ...]]:
    start = start_record(source.gpu, source.engine, source.version, source.like)
    return groups_from_csv(steps, load_gpu(source.gpu), start), all_reduce_rows_from_csv(all_reduces, source.gpu)


def _held_out_groups(source: StepSource, groups: Sequence[StepGroup], all_reduces: Sequence[AllReduceRows]) -> list[HeldOut]:
    """Predict each group from a fit of the others, where there are others, begun as the shipped one was."""
    start = start_record(source.gpu, source.engine, source.version, source.like)
    used = [group for group in groups if source.uses(group.label)]
    fixed = frozenset[str]() if source.eager else FitOptions().fixed
    found = []
    for group in groups:
        seen = [other for other in used if other.label != group.label]
        if seen:
            record = fit_record(start, seen, all_reduces, FitOptions(hold_out=False, fixed=fixed)).record
            errors = relative_errors(group, record)
            kind = (is_plain(group), source.uses(group.label))
            found.append(HeldOut(source.gpu, group.label, errors, parameter_sd(group, record), fit_sd(group, seen, record), kind))
    return found


def range_parts(group: StepGroup) -> npt.NDArray[np.int64]:
    """Return the third of its phase's range in which each row lies, 0 to 2, by the tokens that the step reads or computes."""
    shape = group.shape
    tokens = np.asarray(shape.scheduled_tokens + shape.decode_context_tokens + shape.prefill_context_tokens, dtype=np.float64)
    parts = np.empty(len(tokens), dtype=np.int64)
    for phase in np.unique(group.phase):
        (rows,) = np.nonzero(group.phase == phase)
        parts[rows[np.argsort(tokens[rows], kind="stable")]] = np.arange(len(rows)) * _PARTS // len(rows)
    return parts


def range_errors(source: StepSource, group: StepGroup, all_reduces: Sequence[AllReduceRows]) -> Floats:
    """Return predicted ÷ measured - 1 of each row of a GPU's only group, from a fit without its third of the range [1]."""
    start = start_record(source.gpu, source.engine, source.version, source.like)
    options = FitOptions(hold_out=False, fixed=frozenset() if source.eager else FitOptions().fixed)
    parts, errors = range_parts(group), np.empty(len(group.seconds))
    for part in range(_PARTS):
        tested = parts == part
        record = fit_record(start, (group.only(~tested),), all_reduces, options).record
        errors[tested] = relative_errors(group.only(tested), record)
    return errors


def fit_sd(group: StepGroup, seen: Sequence[StepGroup], record: CalibrationRecord) -> float:
    """Return the scatter of the rows that a fit has seen, as the standard deviation whose 80 % intervals hold 80 % of them [1].

    Groups as plain as the one predicted count, or all where there are none.
    """
    alike = [other for other in seen if is_plain(other) == is_plain(group)] or seen
    errors = np.abs(np.log1p(np.concatenate([relative_errors(other, record) for other in alike])))
    return float(np.quantile(errors, _COVERED)) / Z80


def parameter_sd(group: StepGroup, record: CalibrationRecord) -> Floats:
    """Return the standard deviation that a record's covariance gives the logarithm of each predicted step [1]."""
    covariance = record.covariance
    if covariance is None:
        return np.zeros(len(group.seconds))
    base, known = np.log(predicted_s(group, record)), dict(record.parameters())
    moved = [record.with_values({name: known[name].value * math.exp(_NUDGE)}) for name in covariance.names]
    slopes = np.stack([(np.log(predicted_s(group, other)) - base) / _NUDGE for other in moved], axis=1)
    return np.asarray(np.sqrt(np.einsum("ri,ij,rj->r", slopes, np.array(covariance.matrix), slopes)))


def coverage_of(tested: Sequence[HeldOut], every: Sequence[HeldOut]) -> Coverage | None:
    """Return how often 80 % intervals hold the steps of groups that neither their fit nor their width has seen.

    tested : the groups; every : all held-out groups

    An interval joins the fit's covariance and a departure: the scatter of the rows that the fit has seen, times how far other
    held-out groups of the same kind lie beyond the scatter of theirs. A form that describes a GPU less well so gets wider ones.
    """
    held: list[npt.NDArray[np.bool_]] = []
    widths: list[Floats] = []
    for out in tested:
        others = [other for other in every if other.kind == out.kind and (other.gpu, other.label) != (out.gpu, out.label)]
        if others:
            half = Z80 * np.hypot(out.parameter_sd, departure_ratio(others) * out.fit_sd)
            held.append(np.abs(np.log1p(out.errors)) <= half)
            widths.append(np.sinh(half))
    if not held:
        return None
    covered = 100.0 * float(np.concatenate(held).mean())
    return Coverage(
        points=sum(map(len, held)), covered_pct=covered, half_width_pct=100.0 * float(np.median(np.concatenate(widths)))
    )


def departure_ratio(groups: Sequence[HeldOut]) -> float:
    """Return the multiple of the fits' scatter with which, beside their covariances, 80 % intervals hold 80 % of steps [1]."""
    errors = np.abs(np.log1p(np.concatenate([group.errors for group in groups])))
    fits = np.concatenate([group.parameter_sd for group in groups])
    scatter = np.concatenate([np.full(len(group.errors), group.fit_sd) for group in groups])
    low, high = 0.0, _LARGEST_RATIO
    for _ in range(30):
        middle = 0.5 * (low + high)
        enough = float(np.mean(errors <= Z80 * np.hypot(fits, middle * scatter))) >= _COVERED
        low, high = (low, middle) if enough else (middle, high)
    return high


def _of_source(
    source: StepSource, groups: Sequence[StepGroup], held: Sequence[HeldOut], alone: Floats | None
) -> tuple[GpuSteps, list[StepGroupErrors]]:
    shipped = record_for(load_gpu(source.gpu), source.engine, source.version)
    names = {"gpu": source.gpu, "engine": source.engine, "version": source.version}
    own = {group.label: relative_errors(group, shipped) for group in groups}
    outs = {out.label: out for out in held if out.gpu == source.gpu and out.label in own} if source.engine == "vllm" else {}
    parts = [
        StepGroupErrors.model_validate(
            {
                **names,
                "group": group.label,
                "rows": len(group.seconds),
                "errors": error_summary(own[group.label]),
                "held_out": error_summary(outs[group.label].errors) if group.label in outs else None,
                "coverage": coverage_of([outs[group.label]], held) if group.label in outs else None,
                "below_bound": int((predicted_s(group, shipped) < bound_s(group)).sum()),
            }
        )
        for group in groups
    ]
    used = [group.label for group in groups if source.uses(group.label)]
    seen = [outs[label] for label in used if label in outs]
    limits = source.limits or (None, None)
    whole = GpuSteps.model_validate(
        {
            **names,
            "rows": sum(len(own[label]) for label in used),
            "errors": error_summary(np.concatenate([own[label] for label in used])),
            "held_out": error_summary(np.concatenate([out.errors for out in seen])) if seen else None,
            "by_range": None if alone is None else error_summary(alone),
            "coverage": coverage_of(seen, held),
            "median_limit_pct": limits[0],
            "mean_limit_pct": limits[1],
        }
    )
    return whole, parts
