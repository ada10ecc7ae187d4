"""One replica: latency over arrival rate, memory, and the time of one step."""

import math

import altair as alt
import pandas as pd

from planner.ui.charts.base import Figure, axis, scale_for, target_rule, text
from planner.ui.colours import ACCENT, GREY, HUES

CURVE_HEIGHT = 280
BAR_HEIGHT = 170
ROW_HEIGHT = 30
_LABEL_ROOM = 1.5
_LABEL_SIDE = 1.1
_ABOVE_TARGET = 2.2


def latency_curve(frame: pd.DataFrame, title: str, quantity: str, target: tuple[float, str] | None) -> Figure:
    """Return latency over the arrival rate of one replica, mean and p99, with the target and the planned point.

    frame : rate_rps, mean_ms, p99_ms, planned (the row that the fleet runs at); as text rate, mean, p99, running, kv, binds
    quantity : "TTFT" or "TPOT"
    target : in ms and how it is written; None where there is none
    """
    scale, note = _latency_scale(frame, None if target is None else target[0])
    y_title = f"{quantity} (ms{note})"
    tooltip = [
        alt.Tooltip("rate:N", title="Arrival rate"),
        alt.Tooltip("p99:N", title=f"p99 {quantity}"),
        alt.Tooltip("mean:N", title=f"mean {quantity}"),
        alt.Tooltip("running:N", title="Running sequences"),
        alt.Tooltip("kv:N", title="KV cache in use"),
        alt.Tooltip("binds:N", title="What binds"),
    ]
    room = alt.Scale(domain=[0.0, float(frame["rate_rps"].max()) * _LABEL_SIDE], nice=False)
    base = alt.Chart(frame).encode(x=alt.X("rate_rps:Q", scale=room, axis=axis("Arrival rate of one replica (requests/s)")))
    p99 = base.mark_line(color=ACCENT, strokeWidth=2.5, clip=True, point=alt.OverlayMarkDef(color=ACCENT, size=22)).encode(
        y=alt.Y("p99_ms:Q", scale=scale, axis=axis(y_title)), tooltip=tooltip
    )
    mean = base.mark_line(color=GREY, strokeWidth=1.8, clip=True).encode(y=alt.Y("mean_ms:Q", scale=scale), tooltip=tooltip)
    planned = frame[frame["planned"]].head(1)
    spot = (
        alt.Chart(planned)
        .mark_point(size=150, filled=True, color=HUES[1], opacity=1)
        .encode(x="rate_rps:Q", y=alt.Y("p99_ms:Q", scale=scale), tooltip=tooltip)
    )
    spot_label = text(planned, align="left", dx=10, dy=12, fontWeight=600).encode(x="rate_rps:Q", y=alt.Y("p99_ms:Q", scale=scale))
    layers: list[alt.Chart | alt.LayerChart] = [
        mean,
        p99,
        _end_label(frame, "p99_ms", "p99", scale),
        _end_label(frame, "mean_ms", "mean", scale),
        spot,
        spot_label.encode(text=alt.value("planned")),
    ]
    if target is not None:
        layers.insert(0, target_rule(*target, axis_name="y"))
    return Figure(alt.layer(*layers).properties(height=CURVE_HEIGHT), title)


def _latency_scale(frame: pd.DataFrame, target_ms: float | None) -> tuple[alt.Scale, str]:
    """Return a scale on which the target stays readable: what lies far above it, near saturation, leaves the frame."""
    both = pd.concat([frame["p99_ms"], frame["mean_ms"]])
    if target_ms is None:
        return scale_for(both)
    inside = max(float(frame.loc[frame["planned"], "p99_ms"].max()), target_ms) * _ABOVE_TARGET
    return alt.Scale(domain=[0.0, min(float(both.max()) * 1.05, inside)], nice=False), ""


def _end_label(frame: pd.DataFrame, column: str, name: str, scale: alt.Scale) -> alt.Chart:
    """Name a line at its last point inside the frame."""
    top = scale["domain"][1] if scale["domain"] is not alt.Undefined else math.inf
    last = frame[frame[column] <= top].tail(1)
    return text(last, align="left", dx=6, dy=-2).encode(x="rate_rps:Q", y=alt.Y(f"{column}:Q", scale=scale), text=alt.value(name))


def memory_bar(frame: pd.DataFrame, title: str) -> Figure:
    """Return one GPU's memory as a stacked bar.

    frame : part (with its size, for the legend), gib, colour, order, share, source; one row a part, in the order of the bar
    """
    parts = list(frame["part"])
    bar = (
        alt.Chart(frame)
        .mark_bar(height=34)
        .encode(
            x=alt.X("gib:Q", stack="zero", axis=axis("Memory of one GPU (GiB)"), scale=alt.Scale(nice=False)),
            color=alt.Color(
                "part:N",
                sort=parts,
                scale=alt.Scale(domain=parts, range=list(frame["colour"])),
                legend=alt.Legend(
                    title=None, orient="bottom", columns=3, labelLimit=220, rowPadding=4, labelFontSize=12, symbolType="square"
                ),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("share:N", title="Share of the memory"),
                alt.Tooltip("source:N", title="Source"),
            ],
        )
    )
    return Figure(bar.properties(height=BAR_HEIGHT), title)


def step_bars(frame: pd.DataFrame, title: str) -> Figure:
    """Return the parts of one step's time, longest first.

    frame : part, ms, label (figure and share), hidden (whether other work hides it)
    """
    order = list(frame["part"])
    room = float(frame["ms"].max()) * _LABEL_ROOM
    y = alt.Y("part:N", sort=order, axis=alt.Axis(title=None, labelFontSize=12, labelLimit=200, ticks=False, domain=False))
    bars = (
        alt.Chart(frame)
        .mark_bar(height=18)
        .encode(
            y=y,
            x=alt.X("ms:Q", axis=axis("Time in one step (ms)"), scale=alt.Scale(domain=[0.0, room], nice=False)),
            color=alt.condition("datum.hidden", alt.value(GREY), alt.value(ACCENT)),
            tooltip=[alt.Tooltip("part:N", title="Part"), alt.Tooltip("label:N", title="Time")],
        )
    )
    labels = text(frame, align="left", dx=5).encode(y=y, x="ms:Q", text="label:N")
    return Figure(alt.layer(bars, labels).properties(height=ROW_HEIGHT * len(frame) + 10), title)
