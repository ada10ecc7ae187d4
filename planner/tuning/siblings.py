"""Predicts each group of a measured table with a record fitted on its sibling groups, never on the group itself.

Two splits, from the finer to the coarser: by layout a tested group is a GPU, engine, model, weight dtype, tensor- and
expert-parallel size; by model it is a GPU, engine and model. Siblings share the GPU and the engine, or the engine and the model.

A sibling that shares more says more. The logarithm of each parameter moves from the shipped record by a sum of parts: one for the
engine and model on any GPU (their kernels), one for the GPU under the engine, one for the three together, one for the dtype, one
for the release, and one for the engine and release on any GPU and for any model, each held to zero by a prior. A tested group gets
the parts that it shares with its siblings.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from planner.accuracy.compare import errors_of, foretold
from planner.accuracy.predict import Figures, predict
from planner.accuracy.report import AccuracyReport, RowResult, report_of
from planner.accuracy.setting import NotPredictedError, Setting, setting_of
from planner.calibration.measurement_tables import read_measurements
from planner.calibration.records import CalibrationRecord
from planner.calibration.schema import bounds_of
from planner.step_coefficients import coefficients_for
from planner.tuning.benchmark_fit import serving_paths
from planner.tuning.results import Tell, silent
from planner.tuning.served import Floats

Split = Literal["layout", "model"]
SPLITS: dict[Split, str] = {
    "layout": "GPU x engine x model x weight dtype x tensor- and expert-parallel size left out in turn; fitted on the other "
    "layouts and models of its GPU and engine, and on its model under its engine on other GPUs",
    "model": "GPU x engine x model left out in turn, all its layouts together; fitted on the other models of its GPU and engine, "
    "and on its model under its engine on other GPUs",
}

STEP = 0.05
ERRORS = {"tpot": 0.05, "ttft": 0.15, "throughput": 0.05}
"""Misfit of one figure as a share of itself [1]; first tokens vary more from run to run and depend on more than step times."""

GROUP_ROWS = 40.0
"""Rows of one group count as so many at most [1]: they share their group's misfit."""

PART_SDS = {"engine model": 0.2, "gpu engine": 0.03, "all three": 0.1, "dtype": 0.1, "release": 0.1, "engine release": 0.1}
"""Standard deviation of each part of a logarithm [1].

What a shipped record misses belongs more to an engine's kernels for a model than to a GPU: chosen on predictions of left-out groups
of aiconfigurator's silicon table, where 0.03 to 0.05, 0.1 to 0.3 and 0.1 to 0.2 differ by less than half a percent in TPOT. A
release has its own kernels and scheduler on every GPU and for every model; its part takes the width of the other release's.
"""

HOST_FACTOR = 3.0
_ITERATIONS = 5
_FOLDS = 5
_PASSES = 3
_ROWS_OF_LAYOUT = 14
_LEFT_OUT_PATHS = frozenset({"smoothness", "expert_spread"})

Group = tuple[object, ...]
Parts = tuple[tuple[str, Group], ...]
Coefficient = tuple[str, Group, str]
"""Name of a part, what shares it, and the parameter's path."""


class Key(NamedTuple):
    """What tells groups apart; model by its shape, since the same one goes by several names.

    release : as the table states it; a group is tested in all of its releases together
    """

    gpu: str
    engine: str
    model: tuple[int, int, int, float]
    dtype: str
    tensor_parallel: int
    expert_parallel: int
    release: str

    def group(self, split: Split) -> Group:
        """Return the group that is left out as a whole."""
        return self[:3] if split == "model" else self[:6]

    def parts(self) -> Parts:
        """Return the parts of a parameter that the key has a share in."""
        return (
            ("engine model", (self.engine, self.model)),
            ("gpu engine", (self.gpu, self.engine)),
            ("all three", (self.gpu, self.engine, self.model)),
            ("dtype", (self.gpu, self.engine, self.model, self.dtype)),
            ("release", (self.gpu, self.engine, self.model, self.release)),
            ("engine release", (self.engine, self.release)),
        )

    def is_sibling_of(self, other: "Key") -> bool:
        """Say whether two keys share the GPU and engine, or the engine and model."""
        return self.engine == other.engine and (self.gpu == other.gpu or self.model == other.model)


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """A predicted row: its place in the table, what tells its group apart, and its setting."""

    place: int
    key: Key
    setting: Setting

    @property
    def figures(self) -> tuple[object, ...]:
        """What was measured at which load: equal for copies of a row under another name."""
        row = self.setting.measured
        return (
            row.tpot_s,
            row.tpot_mean_s,
            row.ttft_s,
            row.ttft_mean_s,
            row.output_tokens_per_s,
            row.prompt_tokens,
            row.concurrency,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Row(Tested):
    """A row that fits see.

    log_errors : ln(predicted / measured) by metric; slopes : derivative of each by the logarithm of each parameter
    """

    log_errors: dict[str, float]
    slopes: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, eq=False)
class SiblingReport:
    """Errors of one table before and after fits on siblings.

    alone : rows whose group has no sibling: they keep the shipped record's prediction
    """

    split: Split
    before: AccuracyReport
    after: AccuracyReport
    groups: int
    alone: int

    def document(self) -> dict[str, object]:
        """Return the report as plain values: the errors after, the split, and the errors before."""
        before = self.before.document()
        return {
            **self.after.document(),
            "split": SPLITS[self.split],
            "groups_left_out": self.groups,
            "rows_without_sibling": self.alone,
            "shipped": {"overall": before["overall"], "groups": before["groups"]},
        }

    def text(self) -> str:
        """Return the errors by group, the largest first, after a line on the split and one on the shipped record."""
        lines = [f"{self.groups} groups, {SPLITS[self.split]}"]
        for metric in ("tpot", "ttft"):
            then, now = self.before.summary(metric), self.after.summary(metric)
            if then is not None and now is not None:
                lines.append(
                    f"{metric.upper()}: median {now.median_abs_pct:.1f} % (bias {now.bias_pct:+.1f}), "
                    f"with the shipped records {then.median_abs_pct:.1f} % (bias {then.bias_pct:+.1f})"
                )
        lines.append(f"{self.alone} rows have no sibling and keep the shipped record")
        return "\n".join([*lines, self.after.text()])


def sibling_report(path: Path, split: Split = "layout", tell: Tell = silent) -> SiblingReport:
    """Predict a table of measured results group by group, each with a record fitted on its sibling groups.

    path : a CSV table that `read_measurements` takes; split : what is left out together

    Slopes hold near the shipped record only. So the groups are dealt into folds; for each fold all rows are simulated again with
    what a fit to the other folds gives them, and its groups are fitted from there. Nothing of a tested group enters what it is
    tested with.

    Deterministic. Raises InputError when the file is no such table.
    """
    before = report_of(read_measurements(path), "shipped", path.name[:100])
    settings = _settings(before.results)
    rows = _rows(settings, tell)
    results = list(before.results)
    tested: dict[Group, list[Tested]] = {}
    for own in settings:
        tested.setdefault(own.key.group(split), []).append(own)
    alone = 0
    for fold in range(_FOLDS):
        tell(f"Fold {fold + 1} of {_FOLDS}", 0.7 + 0.3 * fold / _FOLDS)
        groups = [group for group in tested if _fold(group) == fold]
        near = _nearer(rows, fold, split) if groups else rows
        for group in groups:
            seen = _siblings(near, group, tested[group], split)
            alone += 0 if seen else len(tested[group])
            fitted = coefficients_of(seen)
            for own in tested[group] if seen else ():
                results[own.place] = _moved_result(before.results[own.place], own.setting, moves(fitted, own.key))
    after = AccuracyReport(before.name, before.records, tuple(results))
    return SiblingReport(split, before, after, len(tested), alone)


def _fold(group: Group) -> int:
    return zlib.crc32(repr(group).encode()) % _FOLDS


def _settings(results: Sequence[RowResult]) -> list[Tested]:
    found = []
    for place, result in enumerate(results):
        if result.measured is not None and result.reason is None:
            setting = setting_of(result.measured)
            found.append(Tested(place, _key(setting), setting))
    return found


def _nearer(rows: Sequence[Row], fold: int, split: Split) -> list[Row]:
    """Return the rows with errors corrected for what slopes miss, by a fit without the groups of a fold."""
    for _ in range(_PASSES):
        fitted = coefficients_of([row for row in rows if _fold(row.key.group(split)) != fold])
        rows = [_corrected(row, moves(fitted, row.key)) for row in rows]
    return list(rows)


def _corrected(row: Row, moved: dict[str, float]) -> Row:
    """Return a row whose errors, less slopes times moves, are those of a simulation with the moves."""
    try:
        figures = predict(_with(row.setting, moved))
    except NotPredictedError:
        return row
    there = {metric: float(np.log1p(error)) for metric, error in errors_of(row.setting.measured, figures).items()}
    errors = {
        metric: there[metric] - sum(slope * moved.get(path, 0.0) for path, slope in row.slopes[metric].items())
        for metric in row.log_errors
        if metric in there
    }
    return replace(row, log_errors=errors)


def _rows(settings: Sequence[Tested], tell: Tell) -> list[Row]:
    """Return the rows that fits see, with their slopes; of a layout with many, some spread evenly over its loads."""
    layouts: dict[Key, list[Tested]] = {}
    for own in settings:
        layouts.setdefault(own.key, []).append(own)
    rows = []
    for done, found in enumerate(layouts.values()):
        tell("Simulating the rows with each parameter moved", 0.7 * done / len(layouts))
        ordered = sorted(found, key=_load)
        chosen = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _ROWS_OF_LAYOUT)).round().astype(int))
        rows += [_row(ordered[place], _responses(ordered[place].setting)) for place in chosen]
    return rows


def _load(own: Tested) -> tuple[float, float, int]:
    return (own.setting.measured.concurrency or 0, own.setting.measured.prompt_tokens, own.place)


def _key(setting: Setting) -> Key:
    deployment = setting.deployment
    spec, layout, release = deployment.model, deployment.parallelism, setting.measured.engine_version
    shape = (spec.layers, spec.hidden, spec.vocab, float(f"{spec.total_params:.3g}"))
    return Key(deployment.gpu.id, deployment.engine.engine, shape, deployment.quantization.id, layout.tp, layout.ep, release)


def _responses(setting: Setting) -> tuple[Figures, dict[str, Figures]]:
    """Return what is predicted, and what with each parameter a step higher."""
    now = predict(setting)
    moved = {}
    known = dict(setting.record.parameters())
    paths = (*serving_paths(setting.deployment, setting.record), "mix_factor")
    for path in paths:
        if path not in known or path in _LEFT_OUT_PATHS or known[path].value <= 0.0:
            continue
        try:
            moved[path] = predict(_with(setting, {path: STEP}, clip=False))
        except NotPredictedError:
            continue
    return now, moved


def _with(setting: Setting, moved: dict[str, float], *, clip: bool = True) -> Setting:
    """Return a setting whose record's logarithms are moved; clip : to what physics allows."""
    known = dict(setting.record.parameters())
    values = {path: known[path].value * float(np.exp(by)) for path, by in moved.items() if path in known}
    if clip:
        values = {path: float(np.clip(value, *bounds_of(path))) for path, value in values.items()}
    record: CalibrationRecord = setting.record.with_values(values)
    return replace(setting, record=record, coefficients=coefficients_for(setting.deployment, record))


def _row(own: Tested, seen: tuple[Figures, dict[str, Figures]]) -> Row:
    now, moved = seen
    row = own.setting.measured
    errors = {metric: float(np.log1p(error)) for metric, error in errors_of(row, now).items() if metric in ERRORS}
    if {"tpot", "ttft"} & set(errors):
        errors.pop("throughput", None)
    base = foretold(row, now)
    slopes: dict[str, dict[str, float]] = {metric: {} for metric in errors}
    for path, figures in moved.items():
        there = foretold(row, figures)
        for metric in errors.keys() & there.keys():
            slopes[metric][path] = float(np.log(there[metric] / base[metric])) / STEP
    return Row(own.place, own.key, own.setting, errors, slopes)


def _siblings(rows: Iterable[Row], group: Group, own: Sequence[Tested], split: Split) -> list[Row]:
    """Return the rows of sibling groups; copies of tested rows under another name are left out too."""
    copies = {row.figures for row in own}
    key = own[0].key
    return [
        row
        for row in rows
        if row.key.group(split) != group and row.key.is_sibling_of(key) and row.figures not in copies and row.log_errors
    ]


def coefficients_of(seen: Sequence[Row]) -> dict[Coefficient, float]:
    """Return every part of every parameter's logarithm that the rows speak of: robust ridge regression on their slopes."""
    fitted: dict[Coefficient, float] = {}
    for engine in dict.fromkeys(row.key.engine for row in seen):
        fitted |= _of_engine([row for row in seen if row.key.engine == engine])
    return fitted


def _of_engine(seen: Sequence[Row]) -> dict[Coefficient, float]:
    """Engines share no part."""
    places: dict[Coefficient, int] = {}
    sizes = Counter(row.key[:3] for row in seen)
    entries: list[tuple[int, int, float]] = []
    errors: list[float] = []
    weights: list[float] = []
    for row in seen:
        for metric, error in row.log_errors.items():
            for part in row.key.parts():
                for path, slope in row.slopes[metric].items():
                    column = places.setdefault((*part, path), len(places))
                    entries.append((len(errors), column, slope * _sd(part[0], path)))
            errors.append(error)
            weights.append(1.0 / (ERRORS[metric] * max(1.0, sizes[row.key[:3]] / GROUP_ROWS) ** 0.5))
    table = np.zeros((len(errors), len(places)))
    for number, column, value in entries:
        table[number, column] = value
    solved = _ridge(table, np.array(errors), np.array(weights))
    return {place: float(solved[column]) * _sd(place[0], place[2]) for place, column in places.items()}


def moves(fitted: dict[Coefficient, float], key: Key) -> dict[str, float]:
    """Return by how much each logarithm moves for a key: the sum of the parts that it has a share in."""
    parts = set(key.parts())
    moved: dict[str, float] = {}
    for (name, where, path), value in fitted.items():
        if (name, where) in parts:
            moved[path] = moved.get(path, 0.0) + value
    return moved


def _sd(part: str, path: str) -> float:
    return PART_SDS[part] * (HOST_FACTOR if path.startswith("host.") else 1.0)


def _ridge(table: Floats, errors: Floats, weights: Floats) -> Floats:
    """Return unit-variance coefficients that bring errors + table @ coefficients to zero, with the soft L1 loss."""
    trust = np.ones(len(errors))
    solved = np.zeros(table.shape[1])
    for _ in range(_ITERATIONS):
        scaled = table * (trust * weights)[:, None]
        normal = scaled.T @ scaled + np.eye(table.shape[1])
        solved = np.asarray(np.linalg.solve(normal, -scaled.T @ (errors * weights * trust)), dtype=np.float64)
        trust = (1.0 + ((errors + table @ solved) * weights) ** 2) ** -0.25
    return solved


def _moved_result(result: RowResult, own: Setting, moved: dict[str, float]) -> RowResult:
    """Return a row's result with the fitted record; one that it can't serve keeps the reason."""
    setting = _with(own, moved)
    try:
        figures = predict(setting)
    except NotPredictedError as fault:
        return replace(result, reason=str(fault), errors={})
    return replace(result, errors=errors_of(setting.measured, figures))
