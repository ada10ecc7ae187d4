"""Tidy rows for the charts of the Simulate page, each with the sentence that says what it shows."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.replay import Outcome, Replay, StepWindow
from planner.simulator import WARM_UP_SHARE, TimeSeries, values_s
from planner.simulator.metrics import Metric
from planner.simulator.result import RESOURCES, WAIT_REASONS
from planner.ui.charts.base import Row
from planner.ui.views.simulate import percent_of_all
from planner.ui.words import figure, percent, plural, seconds
from planner.units import MS

CDF_POINTS = 160
MOST_BINS = 256
MOST_LIMIT_BINS = 80
_OVERLAP = 0.04
IDLE = "idle"
LIMITS = (*RESOURCES, *WAIT_REASONS[1:])
_TAIL_FROM = 95.0


class Rows(NamedTuple):
    """Rows of a chart, and its finding."""

    rows: list[Row]
    title: str


def runs_of(replay: Replay) -> tuple[Outcome, ...]:
    """Return the runs, the one that was asked for last."""
    return (replay.planned,) if replay.changed is None else (replay.planned, replay.changed)


def cdf_rows(replay: Replay, metric: Metric) -> Rows:
    """Return the cumulative distribution of a latency over the requests, for each run: share_percent, ms, and as text."""
    rows: list[Row] = []
    for run in runs_of(replay):
        values = _measured_s(run, metric)
        if len(values) == 0:
            continue
        shares = _shares()
        for share, value_s in zip(shares, np.percentile(values, shares), strict=True):
            latency, below = seconds(float(value_s)), f"{share:.4g} %"
            rows.append(
                {"run": run.name, "ms": float(value_s) / MS, "share_percent": float(share), "latency": latency, "below": below}
            )
    return Rows(rows, _cdf_title(replay.shown, metric))


def _measured_s(run: Outcome, metric: Metric) -> npt.NDArray[np.float64]:
    values = values_s(run.client, metric)
    found: npt.NDArray[np.float64] = values[int(WARM_UP_SHARE * len(values)) :]
    return found[np.isfinite(found)]


def _shares() -> npt.NDArray[np.float64]:
    """Return the shares at which a distribution is drawn: even ones, and closer together in the tail, 99 among them [%]."""
    body, tail = np.linspace(0.0, _TAIL_FROM, CDF_POINTS // 2, endpoint=False), np.linspace(_TAIL_FROM, 100.0, CDF_POINTS // 2 + 1)
    return np.concatenate([body, tail])


def _cdf_title(run: Outcome, metric: Metric) -> str:
    name = metric.upper()
    values = _measured_s(run, metric)
    if len(values) == 0:
        return f"No request has a {name}"
    target = next((check.target for check in run.checks if check.target.metric == metric), None)
    if target is None:
        return f"Half of the requests see a {name} below {seconds(float(np.median(values)))}"
    met = float((values <= target.limit_s).mean())
    return f"{percent_of_all(met)} of requests see a {name} of at most {seconds(target.limit_s)}"


def timeline_rows(replay: Replay) -> Rows:
    """Return the runs over time: t_s, waiting, running, kv_percent, step_ms, and as text."""
    rows: list[Row] = []
    for run in runs_of(replay):
        series = run.result.series
        rows.extend(_timeline_row(run, series, *group) for group in _groups(len(series.start_s), MOST_BINS))
    return Rows(rows, _timeline_title(replay.shown))


def _groups(bins: int, most: int) -> list[tuple[int, int]]:
    """Return ranges of neighbouring bins to draw as one, so that at most so many are drawn."""
    size = max(1, math.ceil(bins / most))
    return [(first, min(first + size, bins)) for first in range(0, bins, size)]


def _timeline_row(run: Outcome, series: TimeSeries, first: int, last: int) -> Row:
    waiting, running = int(series.waiting[first:last].max()), int(series.running[first:last].max())
    kv, step_s = _mean(series.kv_share[first:last]), _mean(series.step_s[first:last])
    return {
        "run": run.name,
        "t_s": float(series.start_s[first]),
        "waiting": waiting,
        "running": running,
        "kv_percent": None if kv is None else 100.0 * kv,
        "step_ms": None if step_s is None else step_s / MS,
        "time": seconds(float(series.start_s[first])),
        "waiting_text": f"{waiting:,}",
        "running_text": f"{running:,}",
        "kv": percent(kv),
        "step": seconds(step_s),
    }


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _timeline_title(run: Outcome) -> str:
    averages, most = run.result.averages, run.setup.limits.max_num_seqs
    places = f"all {most:,} places" if averages.peak_running >= most else f"{averages.peak_running:,} of {most:,} places"
    reached = f"the batch reaches {places} and {percent(averages.peak_kv_share)} of the KV cache"
    if run.result.verdict == "overloaded":
        return f"The queue grows to {plural(int(run.result.series.waiting.max(initial=0)), 'request')}; {reached}"
    return f"{reached[:1].upper()}{reached[1:]}; {figure(averages.waiting)} requests wait on average"


def limit_rows(run: Outcome) -> Rows:
    """Return which limit binds over time: t_s, to_s, limit, from_percent and to_percent of the bin, and as text.

    While a request waits for a place it is what keeps it waiting, else what most of the step's time is spent on; the rest is idle.
    """
    series = run.result.series
    by_limit = np.concatenate([series.bound_s[:, 0, :], series.bound_s[:, 1:, :].sum(axis=2)], axis=1)
    overall = by_limit.sum(axis=0)
    busy_s = float(overall.sum())
    rows: list[Row] = []
    for first, last in _groups(len(series.start_s), MOST_LIMIT_BINS):
        from_s, to_s = float(series.start_s[first]), float(series.start_s[last - 1]) + series.width_s
        times_s = by_limit[first:last].sum(axis=0)
        span_s = max(to_s - from_s, float(times_s.sum()))
        shares = [*(times_s / span_s).tolist(), max(0.0, 1.0 - float(times_s.sum()) / span_s)]
        rows.extend(_stacked(from_s, to_s, dict(zip((*LIMITS, IDLE), shares, strict=True))))
    return Rows(rows, _limit_title(dict(zip(LIMITS, overall.tolist(), strict=True)), busy_s))


def _stacked(from_s: float, to_s: float, shares: dict[str, float]) -> list[Row]:
    """Return a bin's limits one on the other; a bin runs a little into the next, so that no seam shows between them."""
    rows: list[Row] = []
    height = 0.0
    for limit, share in shares.items():
        if share <= 0.0:
            continue
        top = min(100.0, height + 100.0 * share)
        place = {"t_s": from_s, "to_s": to_s + _OVERLAP * (to_s - from_s), "from_percent": height, "to_percent": top}
        rows.append({**place, "limit": limit, "time": seconds(from_s), "share": percent(share)})
        height = top
    return rows


def limits_in(rows: Rows) -> tuple[str, ...]:
    """Return the limits that a chart draws, in their order."""
    present = {row["limit"] for row in rows.rows}
    return tuple(limit for limit in (*LIMITS, IDLE) if limit in present)


def _limit_title(overall: dict[str, float], busy_s: float) -> str:
    if busy_s <= 0.0:
        return "Nothing ran"
    order = sorted(overall, key=lambda limit: -overall[limit])
    first, second = order[0], order[1]
    tail = f", {second} {percent(overall[second] / busy_s)}" if overall[second] > 0.0 else ""
    subject = first if "_" in first else f"{first[:1].upper()}{first[1:]}"
    verb = "bind" if first == "KV blocks" else "binds"
    return f"{subject} {verb} in {percent(overall[first] / busy_s)} of the busy time{tail}"


class StepRows(NamedTuple):
    """Rows of the chart of steps: bars, stretches of waiting, preemptions, the requests from top to bottom, and the finding.

    longest : start, end [s] and label of the longest step
    """

    bars: list[Row]
    waits: list[Row]
    preempted: list[Row]
    order: list[str]
    longest: Row
    title: str


def step_rows(window: StepWindow, replay: Replay) -> StepRows:
    """Return a window of steps as bars over time, one line for each request."""
    names = {request: f"{request:,}" for request in window.requests}
    bars: list[Row] = [
        {
            "request": names[cell.request],
            "from_s": cell.start_s,
            "to_s": cell.end_s,
            "work": cell.work,
            "tokens": f"{cell.tokens:,}",
            "context": f"{cell.context:,}",
            "prompt": f"{int(replay.requests.prompt_tokens[cell.request]):,}",
            "time": f"{cell.start_s:,.3f} s",
            "took": seconds(cell.end_s - cell.start_s),
        }
        for cell in window.cells
    ]
    waits: list[Row] = [
        {"request": names[request], "from_s": from_s, "to_s": to_s, "waited": seconds(to_s - from_s)}
        for request, from_s, to_s in window.waits
    ]
    preempted: list[Row] = [
        {"request": names[request], "from_s": at_s, "time": f"{at_s:,.3f} s"} for request, at_s in window.preempted
    ]
    slowest = window.steps[window.longest]
    longest: Row = {
        "from_s": slowest.start_s,
        "to_s": slowest.start_s + slowest.duration_s,
        "label": f"longest: {seconds(slowest.duration_s)}",
    }
    order = [names[request] for request in window.requests]
    return StepRows(bars, waits, preempted, order, longest, _step_title(window))


def _step_title(window: StepWindow) -> str:
    slowest = window.steps[window.longest]
    chunks = sum(row.tokens for row in slowest.rows if row.tokens > 1)
    what = f"{figure(chunks)} prefill tokens and " if chunks else ""
    decoding = sum(1 for row in slowest.rows if row.tokens == 1)
    return (
        f"The longest of these {plural(len(window.steps), 'step')} takes {seconds(slowest.duration_s)}: "
        f"{what}{plural(decoding, 'decoding sequence')} share it"
    )


def step_notes(window: StepWindow) -> str:
    """Return what the chart of steps leaves out, and what its axis counts."""
    said = "Requests are numbered by arrival." + (" A cross marks a preemption." if window.preempted else "")
    if not window.left_out:
        return said
    drawn = f"{len(window.requests)} of {len(window.requests) + window.left_out} requests are drawn"
    return f"{said} {drawn}: those with a prefill chunk or a preemption first, then the oldest."
