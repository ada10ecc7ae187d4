"""One replica: latency over arrival rate, memory, and the time of one step."""

import math
from collections.abc import Sequence

from planner.ui.charts.base import (
    Figure,
    Row,
    Spec,
    axis,
    figure,
    layer,
    name,
    number,
    scale_for,
    target_rule,
    text,
    tooltip,
)
from planner.ui.colours import ACCENT, GREY, HUES

CURVE_HEIGHT = 280
BAR_HEIGHT = 96
LEGEND_LINE_HEIGHT = 26
_LEGEND_COLUMNS = 2
ROW_HEIGHT = 34
_LABEL_ROOM = 1.75
_LABEL_SIDE = 1.16
_ABOVE_TARGET = 2.1
_HEAD_ROOM = 1.06
_FAR_ABOVE = 2.5


def latency_curve(rows: Sequence[Row], title: str, quantity: str, target: tuple[float, str] | None) -> Figure:
    """Return latency over the arrival rate of one replica, mean and p99, with the target and the planned point.

    rows : rate_rps, mean_ms, p99_ms, planned (the row that the fleet runs at); as text rate, mean, p99, running, kv, binds
    quantity : "TTFT" or "TPOT"
    target : in ms and how it is written; None where there is none
    """
    scale, note = _latency_scale(rows, None if target is None else target[0])
    y_axis = axis(f"{quantity} (ms{note})")
    room = {"domain": [0.0, max(row["rate_rps"] for row in rows) * _LABEL_SIDE], "nice": False}
    x = number("rate_rps", scale=room, axis=axis("Arrival rate of one replica (requests/s)"))
    titles = {
        "rate": "Arrival rate",
        "p99": f"p99 {quantity}",
        "mean": f"mean {quantity}",
        "running": "Running sequences",
        "kv": "KV cache in use",
        "binds": "What binds",
    }
    tip: Spec = {"x": x, "tooltip": tooltip(titles)}
    p99, mean = number("p99_ms", scale=scale, axis=y_axis), number("mean_ms", scale=scale, axis=y_axis)
    line = {"type": "line", "clip": True, "strokeWidth": 2.5, "color": ACCENT, "point": {"color": ACCENT, "size": 22}}
    planned = [row for row in rows if row["planned"]]
    layers = [] if target is None else _target_layers(target, scale)
    layers += [
        layer(rows, {"type": "line", "clip": True, "strokeWidth": 1.8, "color": GREY}, **tip, y=mean),
        layer(rows, line, **tip, y=p99),
        _end_label(rows, x, p99, "p99"),
        _end_label(rows, x, mean, "mean"),
        layer(planned, {"type": "point", "size": 150, "filled": True, "color": HUES[1], "opacity": 1}, **tip, y=p99),
        layer(planned, text(align="left", dx=10, dy=12, fontWeight=600), x=x, y=p99, text={"value": "planned"}),
    ]
    return figure(layers, CURVE_HEIGHT, title)


def _latency_scale(rows: Sequence[Row], target_ms: float | None) -> tuple[Spec, str]:
    """Return a scale on which both the lines and the target can be read.

    What lies far above the target, near saturation, leaves the frame; a target far above every line is left out of it.
    """
    both = [row[column] for row in rows for column in ("p99_ms", "mean_ms")]
    if target_ms is None:
        return scale_for(both)
    highest, planned_ms = max(both), max([row["p99_ms"] for row in rows if row["planned"]], default=0.0)
    if target_ms > _FAR_ABOVE * highest:
        top = highest * _HEAD_ROOM
    else:
        top = max(min(highest, max(target_ms, planned_ms) * _ABOVE_TARGET), target_ms) * _HEAD_ROOM
    return {"domain": [0.0, top], "nice": False}, ""


def _target_layers(target: tuple[float, str], scale: Spec) -> list[Spec]:
    """Draw the target, or say at the top that it lies above the frame."""
    top = scale["domain"][1]
    if target[0] <= top:
        return target_rule(*target, axis_name="y")
    return [
        layer(
            [{"value": top}],
            text(align="left", baseline="top", dx=4, dy=2),
            x={"value": 0},
            y={"value": 0},
            text={"value": f"{target[1]} is far above"},
        )
    ]


def _end_label(rows: Sequence[Row], x: Spec, y: Spec, label: str) -> Spec:
    """Name a line at its last point inside the frame."""
    top = y["scale"]["domain"][1] if "domain" in y["scale"] else math.inf
    inside = [row for row in rows if row[y["field"]] <= top]
    return layer(inside[-1:], text(align="left", dx=6, dy=-2), x=x, y=y, text={"value": label})


def memory_bar(rows: Sequence[Row], title: str) -> Figure:
    """Return one GPU's memory as a stacked bar.

    rows : part (with its size, for the legend), gib, colour, order, share, source; one row a part, in the order of the bar
    """
    parts = [row["part"] for row in rows]
    legend = {
        "title": None,
        "orient": "bottom",
        "columns": _LEGEND_COLUMNS,
        "labelLimit": 220,
        "rowPadding": 4,
        "offset": 4,
        "symbolType": "square",
    }
    bar = layer(
        rows,
        {"type": "bar", "height": 34},
        x=number("gib", stack="zero", axis=axis("Memory of one GPU (GiB)", labelPadding=6), scale={"nice": False}),
        color=name(
            "part",
            sort=parts,
            scale={"domain": parts, "range": [row["colour"] for row in rows]},
            legend={**legend, "offset": 4, "symbolType": "square"},
        ),
        order=number("order"),
        tooltip=tooltip({"part": "Part", "share": "Share of the memory", "source": "Source"}),  # type: ignore[arg-type]
    )
    return figure([bar], BAR_HEIGHT + LEGEND_LINE_HEIGHT * math.ceil(len(parts) / _LEGEND_COLUMNS), title)


def step_bars(rows: Sequence[Row], title: str) -> Figure:
    """Return the parts of one step's time, longest first.

    rows : part, ms, label (figure and share), hidden (whether other work hides it)
    """
    room = max(row["ms"] for row in rows) * _LABEL_ROOM
    y = name(
        "part",
        sort=[row["part"] for row in rows],
        axis={"title": None, "labelFontSize": 12, "labelLimit": 200, "labelOverlap": False, "ticks": False, "domain": False},
    )
    x = number("ms", axis=axis("Time in one step (ms)"), scale={"domain": [0.0, room], "nice": False})
    bars = layer(
        rows,
        {"type": "bar", "height": 18},
        y=y,
        x=x,
        color={"condition": {"test": "datum.hidden", "value": GREY}, "value": ACCENT},
        tooltip=tooltip({"part": "Part", "label": "Time"}),  # type: ignore[arg-type]
    )
    labels = layer(rows, text(align="left", dx=5), y=y, x=x, text=name("label"))
    return figure([bars, labels], ROW_HEIGHT * len(rows) + 10, title)
