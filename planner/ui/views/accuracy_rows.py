"""Tidy rows for the charts of the Accuracy page, each with the sentence that says what it shows."""

from collections.abc import Mapping

from planner.accuracy.shipped import Errors, GroupPart, Metric, ShippedAccuracy, ShownRow
from planner.ui.charts.base import Row
from planner.ui.colours import ACCENT, GREY, gpu_colour, gpu_shape
from planner.ui.views.accuracy import ENGINES, METRICS, sorted_groups
from planner.ui.views.calibrate_fit import signed
from planner.ui.words import figure, percent, plural, seconds
from planner.units import MS

CLIP_PCT = (-100.0, 200.0)


def overall_rows(source: ShippedAccuracy, metric: Metric) -> list[Row]:
    """Return the distribution over all rows of a source: with the records, by priors alone, and another planner's."""
    parts = [
        ("this planner", source.shipped.overall.errors.get(metric), ACCENT),
        (source.peer_name or "the other planner", source.shipped.peer.get(metric), GREY),
        ("this planner, priors alone", source.none.overall.errors.get(metric), GREY),
    ]
    return [_box(name, errors, colour) for name, errors, colour in parts if errors is not None]


def _box(name: str, errors: Errors, colour: str) -> Row:
    p10, p25, p50, p75, p90 = (_clipped(value) for value in errors.quantiles_pct)
    return {
        "name": name,
        "p10": p10,
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p90": p90,
        "colour": colour,
        **_texts(errors),
    }


def _texts(errors: Errors) -> Row:
    low, high = errors.quantiles_pct[0], errors.quantiles_pct[4]
    return {
        "median": percent(errors.median_abs_pct / 100.0),
        "bias": signed(errors.bias_pct),
        "middle": f"{signed(low)} to {signed(high)}",
        "points": f"{errors.points:,}",
    }


def _clipped(value: float) -> float:
    return min(max(value, CLIP_PCT[0]), CLIP_PCT[1])


def group_rows(
    source: ShippedAccuracy, metric: Metric, names: Mapping[str, str], ranks: Mapping[str, int]
) -> tuple[list[Row], list[str], str]:
    """Return a dot for each model, in a line for each GPU and engine, the line with the largest miss first; and the finding.

    names : of GPUs and models, by id; ranks : of GPUs
    """
    groups = sorted_groups(source, metric)
    if not groups:
        return [], [], ""
    lines = list(dict.fromkeys(_line(group, names) for group in groups))
    rows = [_group_row(group, metric, names, ranks) for group in groups]
    near = sum(group.errors[metric].median_abs_pct <= 10.0 for group in groups)
    title = (
        f"{METRICS[metric]}: {near} of {plural(len(groups), 'group')} are predicted within 10 % (median); "
        f"{names.get(groups[0].model, groups[0].model)} under {ENGINES.get(groups[0].engine, groups[0].engine)} is the largest miss"
    )
    return rows, lines, title


def _line(group: GroupPart, names: Mapping[str, str]) -> str:
    return f"{names.get(group.gpu, group.gpu)}, {ENGINES.get(group.engine, group.engine)}"


def _group_row(group: GroupPart, metric: Metric, names: Mapping[str, str], ranks: Mapping[str, int]) -> Row:
    errors = group.errors[metric]
    rank = ranks.get(group.gpu, 0)
    return {
        "line": _line(group, names),
        "model": names.get(group.model, group.model),
        "at": _clipped(errors.bias_pct),
        "low": _clipped(errors.quantiles_pct[0]),
        "high": _clipped(errors.quantiles_pct[4]),
        "size": errors.points,
        "colour": gpu_colour(rank),
        "shape": gpu_shape(rank),
        **_texts(errors),
    }


def shown_rows(source: ShippedAccuracy, metric: Metric, names: Mapping[str, str]) -> tuple[list[Row], str, str]:
    """Return measured rows with their predictions, where the terms allow them to be shown, the finding, and the unit."""
    rows = [row for row in source.rows if metric in row.measured and metric in row.predicted and row.measured[metric] > 0.0]
    if not rows:
        return [], "", ""
    timed = metric in {"tpot", "ttft", "tpot_p99", "ttft_p99"}
    unit = "ms" if timed else "tokens/s" if metric == "throughput" else "tokens" if metric == "kv_tokens" else "ratio"
    within = sum(abs(row.predicted[metric] / row.measured[metric] - 1.0) <= 0.25 for row in rows)
    title = f"{percent(within / len(rows))} of {plural(len(rows), 'row')} shown are predicted within 25 %"
    return [_shown_row(row, metric, names, timed=timed) for row in rows], title, unit


def _shown_row(row: ShownRow, metric: Metric, names: Mapping[str, str], *, timed: bool) -> Row:
    measured, predicted = row.measured[metric], row.predicted[metric]
    unit, write = (MS, seconds) if timed else (1.0, figure)
    tokens = f"{figure(row.prompt_tokens)} in / {figure(row.output_tokens)} out"
    return {
        "label": f"{names.get(row.model, row.model)} {row.quantization}".strip(),
        "series": ENGINES.get(row.engine, row.engine),
        "batch": f"{names.get(row.gpu, row.gpu)} × {row.tp}, {row.version}, {row.load}, {tokens}",
        "measured": measured / unit,
        "after": predicted / unit,
        "measured_text": write(measured),
        "after_text": write(predicted),
        "error": signed(100.0 * (predicted / measured - 1.0)),
    }
