"""Dollars a day against p99 TPOT: every GPU at a glance."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from planner.ui.charts.base import (
    Figure,
    Row,
    Spec,
    axis,
    figure,
    layer,
    log_ticks,
    name,
    number,
    target_rule,
    text,
    tooltip,
)
from planner.ui.charts.labels import Spot, placed
from planner.ui.colours import INK

HEIGHT = 430
MET, MISSED = "meets the targets", "misses"
_LOG_DOLLARS_FROM = 8.0
_ASSUMED_WIDTH_PX = 450.0
_BESIDE_RING = 1.5
_ROOM = 1.12
_AT_EDGE = 0.8
_LOG_ROOM = 1.25
_PLACEMENT: dict[str, Spec] = {
    "right": {"align": "left", "dx": 11, "dy": 1},
    "left": {"align": "right", "dx": -11, "dy": 1},
    "above": {"align": "center", "dy": -16},
    "below": {"align": "center", "dy": 18},
}
_TOOLTIP = {
    "label": "Candidate",
    "status": "Targets",
    "fleet": "Fleet",
    "cost": "Cost",
    "per_million": "Per million tokens",
    "ttft": "p99 TTFT",
    "tpot": "p99 TPOT",
    "knobs": "Settings",
}


def comparison(rows: Sequence[Row], title: str, target: tuple[float, str] | None) -> Figure:
    """Return the scatter of candidates.

    rows : label, colour, shape, usd_per_day, tpot_p99_ms, status (MET or MISSED), chosen, named (its label goes before others);
      as text fleet, cost, per_million, ttft, tpot, knobs
    target : TPOT in ms and how it is written; None for offline work
    """
    frame = _frame_of(rows, target)
    x_title, y_title = "p99 TPOT at the planned load (ms)", f"Fleet ($/day{', log scale' if frame.log else ''})"
    ticks = {"values": log_ticks(frame.dollars)} if frame.log else {}
    y_scale = {"type": "log" if frame.log else "linear", "domain": list(frame.dollars), "nice": False}
    place = {
        "x": number("tpot_p99_ms", scale={"domain": list(frame.tpot_ms), "nice": False}, axis=axis(x_title)),
        "y": number("usd_per_day", scale=y_scale, axis=axis(y_title, format="$,.3~s", **ticks)),
    }
    ring = {"type": "point", "shape": "circle", "size": 420, "strokeWidth": 2, "filled": False, "color": INK}
    layers = [] if target is None else target_rule(*target, axis_name="x", before=target[0] > _AT_EDGE * frame.tpot_ms[1])
    layers += [_points(rows, place), layer([row for row in rows if row["chosen"]], ring, **place)]
    for row, where in _places(rows, frame):
        options = {**_PLACEMENT[where], "fontWeight": 700 if row["chosen"] else 400}
        if row["chosen"] and "dx" in options:
            options["dx"] = options["dx"] * _BESIDE_RING
        layers.append(layer([row], text(**options), **place, text=name("label")))
    return figure(layers, HEIGHT, title)


def _points(rows: Sequence[Row], place: Spec) -> Spec:
    """Return the marks: filled where the targets are met, hollow where they are missed."""
    filled = {"condition": {"test": f"datum.status == '{MET}'", "field": "colour", "type": "nominal", "scale": None}}
    return layer(
        rows,
        {"type": "point", "size": 110, "strokeWidth": 1.8, "opacity": 1},
        **place,
        shape=name("shape", scale=None, legend=None),
        stroke=name("colour", scale=None),
        fill={**filled, "value": "transparent"},
        tooltip=tooltip(_TOOLTIP),  # type: ignore[arg-type]
    )


class _Frame(NamedTuple):
    """What the axes span, so that labels can be placed: TPOT in ms, dollars a day, and whether dollars are logarithmic."""

    tpot_ms: tuple[float, float]
    dollars: tuple[float, float]
    log: bool

    def pixels(self, row: Row) -> tuple[float, float]:
        """Return where a row's mark lies, from the top left of a plot of the assumed width."""
        (low, high), usd = self.dollars, row["usd_per_day"]
        share = math.log(usd / low) / math.log(high / low) if self.log else (usd - low) / (high - low)
        return row["tpot_p99_ms"] / self.tpot_ms[1] * _ASSUMED_WIDTH_PX, HEIGHT * (1.0 - share)


def _frame_of(rows: Sequence[Row], target: tuple[float, str] | None) -> _Frame:
    """Return axes that hold every mark with room for its label; dollars turn logarithmic when they spread widely."""
    dollars = [row["usd_per_day"] for row in rows]
    slowest = max([row["tpot_p99_ms"] for row in rows] + ([target[0]] if target else []))
    if max(dollars) / min(dollars) >= _LOG_DOLLARS_FROM:
        return _Frame((0.0, slowest * _ROOM), (min(dollars) / _LOG_ROOM, max(dollars) * _LOG_ROOM), log=True)
    return _Frame((0.0, slowest * _ROOM), (0.0, max(dollars) * _ROOM), log=False)


def _places(rows: Sequence[Row], frame: _Frame) -> list[tuple[Row, str]]:
    """Return the rows whose label fits, each with its side: the chosen first, then named ones, then the cheapest."""
    met = (row for row in rows if row["named"] or row["status"] == MET)
    named = sorted(met, key=lambda row: (not row["chosen"], not row["named"], row["usd_per_day"]))
    spots = [Spot(*frame.pixels(row), row["label"]) for row in named]
    found = placed(spots, [frame.pixels(row) for row in rows], (_ASSUMED_WIDTH_PX, HEIGHT))
    return [(row, where) for row, where in zip(named, found, strict=True) if where is not None]
