"""A replay drawn: latency distributions, the run over time, and which limit binds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from planner.ui.charts.base import (
    LABEL_SIZE,
    Figure,
    Row,
    Spec,
    axis,
    figure,
    layer,
    log_ticks,
    name,
    number,
    scale_for,
    text,
    tooltip,
)
from planner.ui.colours import ACCENT, FAINT, GREY, HUES
from planner.units import MS

CDF_HEIGHT = 260
PANEL_HEIGHT = 92
LIMIT_HEIGHT = 4 * PANEL_HEIGHT + 24
RUN_COLOURS = {"planned": GREY, "changed": ACCENT}
LIMIT_COLOURS = {
    "bandwidth": HUES[0],
    "compute": HUES[4],
    "communication": HUES[5],
    "launch overhead": HUES[3],
    "host": "#8C6BB1",
    "max_num_seqs": HUES[1],
    "max_num_batched_tokens": HUES[2],
    "KV blocks": "#A33B2B",
    "idle": FAINT,
}
_PANELS = (
    ("waiting", "Waiting", "requests"),
    ("running", "Running", "sequences"),
    ("kv_percent", "KV in use", "%"),
    ("step_ms", "Step", "ms"),
)
_AXIS_PX = 46
_ROOM = 1.15
_LOG_ROOM = 2.0
_LOG_REACH = 1e4
_RIGHT_EDGE = 0.6
_SECONDS_FROM_MS = 10_000.0
_MOST_TICKS = 8
_TARGET_HEIGHT = 0.34
_CORNER_HEIGHT = 0.08
_LINE_HEIGHT = 0.11
_TOP_HEIGHT = 0.92
_WRITTEN_WIDTH = 0.3
_HIGH_PERCENT = 85.0
_TIME_AXIS_PX = 52


def latency_cdf(rows: Sequence[Row], title: str, quantity: str, target: tuple[float, str] | None) -> Figure:
    """Return the share of requests below each latency, a line for each run.

    rows : run ("planned" or "changed"), ms, share_percent, and as text latency, below; one at 99 %, which is labelled
    quantity : "TTFT" or "TPOT"; target : in ms and how it is written
    """
    in_seconds = max(row["ms"] for row in rows) >= _SECONDS_FROM_MS
    unit, per_ms = ("s", MS) if in_seconds else ("ms", 1.0)
    rows = [{**row, "value": row["ms"] * per_ms} for row in rows]
    target = None if target is None else (target[0] * per_ms, target[1])
    scale, note = _latency_scale([row["value"] for row in rows] + ([target[0]] if target else []))
    ticks = {"values": _decades(scale["domain"])} if note else {}
    x = number("value", scale=scale, axis=axis(f"{quantity} ({unit}{note})", labelBound=True, **ticks))
    y = number("share_percent", scale={"domain": [0, 100]}, axis=axis("Requests at or below (%)"))
    tip: Spec = {"x": x, "y": y, "tooltip": tooltip({"run": "Run", "latency": quantity, "below": "Requests at or below"})}
    names = _names(rows)
    corner = _corner(rows, scale, target)
    layers = [] if target is None else _target(target, scale, corner)
    layers += [_line(rows, run, tip, last=run == names[-1], mark={"type": "line"}) for run in names]
    for run in names:
        layers += _p99([{**row, "corner": target[0] if target else None} for row in rows], run, tip, corner)
    return figure(layers, CDF_HEIGHT, title)


class _Corner(NamedTuple):
    """Where what is written stands clear of the lines.

    left : at the left edge and high, over a distribution that rises late; else low, left of x and under one that rises early
    x : where the 99th percentiles are written; target_height, p99_height : of the target and of the first of them,
        as shares of the plot [1]
    """

    left: bool
    x: Spec
    target_height: float
    p99_height: float


def _corner(rows: Sequence[Row], scale: Spec, target: tuple[float, str] | None) -> _Corner:
    at_target = target is not None and _place(target[0], scale) >= _RIGHT_EDGE
    end = _place(target[0], scale) if at_target and target is not None else 1.0
    rising = [_place(row["value"], scale) for row in rows if row["share_percent"] <= _HIGH_PERCENT]
    if any(end - _WRITTEN_WIDTH < place < end for place in rising):
        return _Corner(left=True, x={"value": 0}, target_height=_TOP_HEIGHT, p99_height=_TOP_HEIGHT - _LINE_HEIGHT)
    x = number("corner") if at_target else {"value": "width"}
    return _Corner(left=False, x=x, target_height=_TARGET_HEIGHT, p99_height=_CORNER_HEIGHT)


def _target(target: tuple[float, str], scale: Spec, corner: _Corner) -> list[Spec]:
    """Return a target's rule with its value beside it, or in the corner where a distribution passes there."""
    value, label = target
    rows = [{"value": value, "label": label}]
    x = number("value")
    rule = {"type": "rule", "strokeDash": [5, 4], "color": GREY, "strokeWidth": 1.5}
    to_right = _place(value, scale) < _RIGHT_EDGE
    beside = {"align": "left", "dx": 5} if to_right else {"align": "right", "dx": -5}
    place: Spec = {"x": x, "y": _height(_TARGET_HEIGHT)}
    if corner.left and not to_right:
        beside, place = {"align": "left", "dx": 8}, {"x": corner.x, "y": _height(corner.target_height)}
    return [layer(rows, rule, x=x), layer(rows, text(**beside), **place, text=name("label"))]


def _height(share: float) -> Spec:
    """Return a place at a share of the plot's height, from its bottom."""
    return {"value": {"expr": f"height * {1.0 - share:g}"}}


def _latency_scale(values: Sequence[float]) -> tuple[Spec, str]:
    """Return a scale with room for a label on its right; logarithmic over two decades, and only as far down as the labels read."""
    note, high = scale_for(values)[1], max(values)
    if note:
        return {
            "type": "log",
            "domain": [max(min(values), high / _LOG_REACH), high * _LOG_ROOM],
            "nice": False,
            "clamp": True,
        }, note
    return {"domain": [0.0, high * _ROOM], "nice": False}, ""


def _decades(domain: Sequence[float]) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2, 5 … in each decade, or the decades alone where there are many."""
    ticks = log_ticks(domain)
    return ticks if len(ticks) <= _MOST_TICKS else [tick for tick in ticks if math.log10(tick).is_integer()]


def _names(rows: Sequence[Row]) -> list[str]:
    """Return the runs in the rows, in their order."""
    return list(dict.fromkeys(row["run"] for row in rows))


def _colour(run: str, *, last: bool) -> str:
    return ACCENT if last else RUN_COLOURS[run]


def _line(rows: Sequence[Row], run: str, encoding: Spec, *, last: bool, mark: Spec) -> Spec:
    own = {"strokeWidth": 2.5 if last else 1.8, "color": _colour(run, last=last), "clip": True}
    return layer([row for row in rows if row["run"] == run], {**mark, **own}, **encoding)


def _p99(rows: Sequence[Row], run: str, encoding: Spec, corner: _Corner) -> list[Spec]:
    """Mark a run's 99th percentile, and write it clear of the lines."""
    names = _names(rows)
    last = run == names[-1]
    at = min((row for row in rows if row["run"] == run), key=lambda row: abs(row["share_percent"] - 99.0))
    line = {**at, "label": f"{run} p99 {at['latency']}" if len(names) > 1 else f"p99 {at['latency']}"}
    dot = {"type": "point", "filled": True, "size": 60, "opacity": 1, "color": _colour(run, last=last)}
    further = -_LINE_HEIGHT * names.index(run) if corner.left else _LINE_HEIGHT * (not last)
    place = {"x": corner.x, "y": _height(corner.p99_height + further)}
    side = 1 if corner.left else -1
    written = text(align="left" if corner.left else "right", dx=18 * side, fontWeight=600 if last else 400)
    return [
        layer([at], dot, **encoding),
        layer([line], written, **place, text=name("label")),
        layer([line], {**dot, "xOffset": 10 * side}, **place),
    ]


def _place(value: float, scale: Spec) -> float:
    """Return where a value lies on an axis, from 0 at its left end to 1."""
    low, high = scale["domain"]
    if scale.get("type") == "log":
        return math.log(max(value, low) / low) / math.log(high / low)
    return float((value - low) / (high - low))


def timeline(rows: Sequence[Row], end_s: float) -> list[Figure]:
    """Return the run over time as charts to stand one above the other on one time axis, which the last one carries.

    rows : run, t_s, waiting, running, kv_percent, step_ms, and as text time, waiting_text, running_text, kv, step
    end_s : end of the time axis [s]
    """
    return [_panel(rows, end_s, panel) for panel in _PANELS]


def _panel(rows: Sequence[Row], end_s: float, panel: tuple[str, str, str]) -> Figure:
    field, label, unit = panel
    bottom = panel == _PANELS[-1]
    names = _names(rows)
    x_axis = axis("Time from the start (s)" if bottom else None, labels=bottom, ticks=bottom, labelBound=True)
    y_axis = {
        **axis(None, minExtent=_AXIS_PX, maxExtent=_AXIS_PX),
        "title": [label, f"({unit})"],
        "titleFontSize": 11,
        "tickCount": 3,
    }
    titles = {"run": "Run", "time": "Time", "waiting_text": "Waiting", "running_text": "Running", "kv": "KV cache in use"}
    encoding: Spec = {
        "x": number("t_s", scale={"domain": [0.0, end_s], "nice": False}, axis=x_axis),
        "y": number(field, scale={"zero": True, "nice": True}, axis=y_axis),
        "tooltip": tooltip({**titles, "step": "Mean step"}),
    }
    mark = {"type": "line", "interpolate": "step-after"}
    layers = [_line(rows, run, encoding, last=run == names[-1], mark=mark) for run in names]
    most = max((row[field] for row in rows if row[field] is not None), default=0.0)
    return figure(layers, PANEL_HEIGHT + (_TIME_AXIS_PX if bottom else 0), f"{label} over time: at most {most:,.3g} {unit}")


def limits_over_time(rows: Sequence[Row], title: str, limits: Sequence[str], end_s: float) -> Figure:
    """Return the share of time in which each limit binds, stacked over time.

    rows : t_s, to_s, limit, from_percent, to_percent, and as text time, share
    limits : those drawn, in the order of the stack
    """
    legend = {
        "title": None,
        "orient": "bottom",
        "columns": 2,
        "labelFontSize": LABEL_SIZE - 1,
        "symbolType": "square",
        "columnPadding": 6,
        "labelLimit": 200,
        "offset": 4,
    }
    colours = {"domain": list(limits), "range": [LIMIT_COLOURS[each] for each in limits]}
    area = layer(
        rows,
        {"type": "rect", "strokeWidth": 0, "clip": True},
        x=number("t_s", scale={"domain": [0.0, end_s], "nice": False}, axis=axis("Time from the start (s)")),
        x2={"field": "to_s"},
        y=number("from_percent", scale={"domain": [0, 100]}, axis=axis("Share of the time (%)")),
        y2={"field": "to_percent"},
        color=name("limit", sort=list(limits), scale=colours, legend=legend),
        tooltip=tooltip({"time": "From", "limit": "Binds", "share": "Share of the time"}),  # type: ignore[arg-type]
    )
    return figure([area], LIMIT_HEIGHT, title)
