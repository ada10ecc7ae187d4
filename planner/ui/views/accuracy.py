"""The Accuracy page in words and tables: how far predictions were off, the misses first, and what isn't predicted."""

import datetime as dt
from collections.abc import Mapping, Sequence

import pandas as pd

from planner.accuracy.shipped import Coverage, Errors, GpuSteps, GroupPart, Metric, Part, ShippedAccuracy, ShippedSteps
from planner.engines import ENGINE_TITLES
from planner.exporters.table import spreadsheet_safe
from planner.ui.views.calibrate_fit import signed
from planner.ui.words import DASH, day, percent, plural, span, stop

METRICS: dict[Metric, str] = {
    "tpot": "TPOT",
    "ttft": "TTFT",
    "throughput": "throughput",
    "tpot_p99": "p99 TPOT",
    "ttft_p99": "p99 TTFT",
    "tpot_tail": "p99 ÷ median TPOT",
    "ttft_tail": "p99 ÷ median TTFT",
    "kv_tokens": "KV cache size",
}
ENGINES = ENGINE_TITLES
_SHOWN: tuple[Metric, ...] = ("tpot", "ttft", "throughput")
_WANTED_COVERAGE = 80.0


def headline_source(sources: Sequence[ShippedAccuracy]) -> ShippedAccuracy:
    """Return the source with the most points of TPOT: the one whose figures stand for serving."""
    return max(sources, key=lambda each: each.shipped.overall.errors["tpot"].points if "tpot" in each.shipped.overall.errors else 0)


def headline(sources: Sequence[ShippedAccuracy]) -> str:
    """Return in one sentence how far off predictions were on the largest source, beside another planner's."""
    best = headline_source(sources)
    errors = best.shipped.overall.errors
    parts = [f"{METRICS[metric]} is off by {_median_bias(errors[metric])}" for metric in _SHOWN if metric in errors]
    points = max((errors[metric].points for metric in _SHOWN if metric in errors), default=0)
    sentence = f"On {points:,} measured points of {_inside(best.title)}, {' and '.join(parts)}."
    peer = best.shipped.peer
    if best.peer_name is None or not peer:
        return sentence
    others = " and ".join(f"{METRICS[metric]} by {_pct(peer[metric].median_abs_pct)}" for metric in _SHOWN if metric in peer)
    return f"{sentence} {best.peer_name} misses {others}." if others else sentence


def _median_bias(errors: Errors) -> str:
    return f"{_pct(errors.median_abs_pct)} (median; bias {signed(errors.bias_pct)})"


def _inside(title: str) -> str:
    """Return a title inside a sentence."""
    return title if title[1:2].isupper() else f"{title[:1].lower()}{title[1:]}"


def _pct(value: float) -> str:
    return percent(value / 100.0)


def worst(source: ShippedAccuracy, metric: Metric, names: Mapping[str, str]) -> str | None:
    """Return the largest miss of a source in one sentence; None where none is stated. names : of GPUs and models, by id."""
    groups = sorted_groups(source, metric)
    if not groups:
        return None
    group = groups[0]
    errors = group.errors[metric]
    way = _way(metric, errors.bias_pct)
    model, engine = names.get(group.model, group.model), ENGINES.get(group.engine, group.engine)
    return (
        f"Largest miss: {model} under {engine} on {names.get(group.gpu, group.gpu)}, {METRICS[metric]} "
        f"{_pct(errors.median_abs_pct)} off (median of {plural(errors.points, 'point')}), predicted {way}."
    )


def _way(metric: Metric, bias_pct: float) -> str:
    if metric in {"throughput", "kv_tokens"}:
        return "too high" if bias_pct > 0.0 else "too low"
    return "too slow" if bias_pct > 0.0 else "too fast"


def overall_title(source: ShippedAccuracy, metric: Metric) -> str:
    """Return how the errors over all rows are spread, beside another planner's."""
    errors, peer = source.shipped.overall.errors[metric], source.shipped.peer.get(metric)
    own = f"Half of the rows lie within {_pct(errors.median_abs_pct)}, nine in ten within {_pct(errors.p90_abs_pct)}"
    return (
        own
        if peer is None
        else f"{own}; {source.peer_name or 'the other planner'}: {_pct(peer.median_abs_pct)}, {_pct(peer.p90_abs_pct)}"
    )


def coverage_sentence(source: ShippedAccuracy) -> str:
    """Return how often the 80 % intervals held the measured figure."""
    found = source.shipped.overall.coverage
    parts = [
        f"{METRICS[metric]} {_pct(cover.covered_pct)} of {plural(cover.points, 'point')}, ±{_pct(cover.half_width_pct)} wide"
        for metric, cover in found.items()
    ]
    if not parts:
        return "The 80 % intervals were not checked on this source."
    return f"The 80 % intervals held: {'; '.join(parts)}. They should hold {percent(_WANTED_COVERAGE / 100.0)}."


def metrics_of(source: ShippedAccuracy) -> tuple[Metric, ...]:
    """Return the metrics that a source states, in the page's order."""
    return tuple(metric for metric in METRICS if metric in source.shipped.overall.errors)


def sorted_groups(source: ShippedAccuracy, metric: Metric) -> list[GroupPart]:
    """Return the groups that state a metric, the largest median error first."""
    stated = [group for group in source.shipped.groups if metric in group.errors]
    return sorted(stated, key=lambda group: -group.errors[metric].median_abs_pct)


def groups_frame(source: ShippedAccuracy, metric: Metric, names: Mapping[str, str]) -> pd.DataFrame:
    """Return the groups of a source by the error of a metric, the largest first, and those that don't state it last."""
    stated = sorted_groups(source, metric)
    rest = [group for group in source.shipped.groups if metric not in group.errors]
    shown = [metric, *(each for each in metrics_of(source) if each != metric)]
    return pd.DataFrame([_group_row(group, shown, names) for group in (*stated, *rest)])


def _group_row(group: GroupPart, metrics: Sequence[Metric], names: Mapping[str, str]) -> dict[str, object]:
    row: dict[str, object] = {
        "GPU": spreadsheet_safe(names.get(group.gpu, group.gpu)),
        "Engine": ENGINES.get(group.engine, group.engine),
        "Model": spreadsheet_safe(names.get(group.model, group.model)),
        "Rows": group.rows,
        "Predicted": group.predicted,
    }
    for metric in metrics:
        errors = group.errors.get(metric)
        row[f"{METRICS[metric]}, median"] = _rounded(None if errors is None else errors.median_abs_pct)
        row[f"{METRICS[metric]}, bias"] = _rounded(None if errors is None else errors.bias_pct)
        row[f"{METRICS[metric]}, p90"] = _rounded(None if errors is None else errors.p90_abs_pct)
    row["For testing"] = "left out" if group.held_out else ""
    return row


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def not_predicted_frame(reasons: Mapping[str, int]) -> pd.DataFrame:
    """Return why rows aren't predicted, the commonest reason first."""
    return pd.DataFrame([{"Why not": spreadsheet_safe(reason), "Rows": rows} for reason, rows in reasons.items()])


def sources_frame(sources: Sequence[ShippedAccuracy]) -> pd.DataFrame:
    """Return every source with its errors and terms, the largest misses first."""
    return pd.DataFrame([_source_row(source) for source in sorted(sources, key=lambda each: -_size(each.shipped.overall))])


def _size(part: Part) -> float:
    """Return the error that a source is sorted by: TPOT's, else throughput's, else the first stated."""
    for metric in ("tpot", "throughput", *METRICS):
        if metric in part.errors:
            return part.errors[metric].median_abs_pct
    return float("inf")


def _source_row(source: ShippedAccuracy) -> dict[str, object]:
    overall = source.shipped.overall
    row: dict[str, object] = {"Source": source.title, "Rows": overall.rows, "Predicted": overall.predicted}
    for metric in _SHOWN:
        errors = overall.errors.get(metric)
        row[f"{_title(METRICS[metric])}, median (bias)"] = _cell(errors)
    row["By priors alone"] = _cell(source.none.overall.errors.get("tpot") or source.none.overall.errors.get("throughput"))
    row["80 % intervals held"] = _covered(overall.coverage)
    row["Terms"] = source.terms
    row["Caveat"] = source.caveat
    return row


def _title(name: str) -> str:
    return f"{name[:1].upper()}{name[1:]}"


def _cell(errors: Errors | None) -> str:
    return DASH if errors is None else f"{_pct(errors.median_abs_pct)} ({signed(errors.bias_pct)})"


def _covered(coverage: Mapping[Metric, Coverage]) -> str:
    shares = [cover.covered_pct for cover in coverage.values()]
    return span(_pct(min(shares)), _pct(max(shares))) if shares else DASH


def totals(sources: Sequence[ShippedAccuracy]) -> str:
    """Return how much was tried and how much of it is predicted."""
    rows = sum(source.shipped.overall.rows for source in sources)
    done = sum(source.shipped.overall.predicted for source in sources)
    return (
        f"{plural(len(sources), 'source')} hold {rows:,} measured rows: {done:,} are predicted, the rest counted with the reason."
    )


def notices(sources: Sequence[ShippedAccuracy]) -> tuple[str, ...]:
    """Return what must be said wherever these figures are shown."""
    return tuple(dict.fromkeys(stop(source.notice) for source in sources if source.notice))


def reproduce(source: ShippedAccuracy) -> str:
    """Return the command whose output the figures are."""
    return source.command


def day_of(iso: str) -> str:
    """Return an ISO date as the pages write days.

    >>> day_of("2026-11-30")
    '30 Nov 2026'
    """
    return day(dt.date.fromisoformat(iso))


def facts(source: ShippedAccuracy) -> dict[str, str]:
    """Return where a source's figures were published, and under which terms."""
    return {
        "Published": source.source,
        "Terms": source.terms,
        "Know before comparing": source.caveat,
        "Predicted on": day_of(source.date),
    }


def steps_frame(steps: ShippedSteps, names: Mapping[str, str]) -> pd.DataFrame:
    """Return the errors of step times by GPU, the largest first."""
    ordered = sorted(steps.gpus, key=lambda each: -(_left_out(each) or each.errors).median_abs_pct)
    return pd.DataFrame([_steps_row(each, names) for each in ordered])


def _left_out(each: GpuSteps) -> Errors | None:
    return each.held_out or each.by_range


def _steps_row(each: GpuSteps, names: Mapping[str, str]) -> dict[str, object]:
    left_out = _left_out(each)
    what = "model and layout" if each.held_out else "third of the range"
    return {
        "GPU": spreadsheet_safe(names.get(each.gpu, each.gpu)),
        "Engine": f"{ENGINES.get(each.engine, each.engine)} {each.version}",
        "Steps": each.rows,
        "Left out in turn": DASH if left_out is None else f"each {what}",
        "Left out: median (bias)": _cell(left_out),
        "Aim": DASH if each.median_limit_pct is None else f"≤ {_pct(each.median_limit_pct)}",
        "Left out: mean": DASH if left_out is None else _pct(left_out.mean_abs_pct),
        "Aim for the mean": DASH if each.mean_limit_pct is None else f"≤ {_pct(each.mean_limit_pct)}",
        "Fitted: median (bias)": _cell(each.errors),
        "80 % intervals held": DASH if each.coverage is None else _pct(each.coverage.covered_pct),
    }


def steps_sentence(steps: ShippedSteps) -> str:
    """Return how far step times lie off on groups that the fit hadn't seen, and on parts of the only group that a GPU has."""
    held = [each.held_out.median_abs_pct for each in steps.gpus if each.held_out is not None]
    ranged = [each.by_range.median_abs_pct for each in steps.gpus if each.by_range is not None]
    if not held and not ranged:
        return "No group of steps could be left out of a fit."
    parts = [f"Single steps of a model and layout left out of the fit are {_medians(held)} off (median by GPU)."] if held else []
    if ranged:
        parts.append(
            f"Where only one model and layout was measured, steps of a third of its range left out are {_medians(ranged)} off."
        )
    return " ".join(parts)


def _medians(medians: Sequence[float]) -> str:
    return span(_pct(min(medians)), _pct(max(medians)))
