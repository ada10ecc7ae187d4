"""Dollars a day against p99 TPOT: every GPU at a glance."""

import math
from collections.abc import Sequence

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
    scale_for,
    target_rule,
    text,
    tooltip,
)
from planner.ui.charts.labels import Spot, placed
from planner.ui.colours import INK

HEIGHT = 430
MET, MISSED = "meets the targets", "misses"
_LOG_DOLLARS_FROM = 20.0
_ASSUMED_WIDTH_PX = 520.0
_BESIDE_RING = 1.5
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

    rows : label, colour, shape, usd_per_day, tpot_p99_ms, status (MET or MISSED), chosen, named (carries its label where it fits);
      as text fleet, cost, per_million, ttft, tpot, knobs
    target : TPOT in ms and how it is written; None for offline work
    """
    dollars = [row["usd_per_day"] for row in rows]
    x_scale, x_note = scale_for(row["tpot_p99_ms"] for row in rows)
    y_scale, y_note = scale_for(dollars, log_from=_LOG_DOLLARS_FROM)
    ticks = {"values": log_ticks(dollars)} if y_note else {}
    place = {
        "x": number("tpot_p99_ms", scale=x_scale, axis=axis(f"p99 TPOT at the planned load (ms{x_note})")),
        "y": number("usd_per_day", scale=y_scale, axis=axis(f"Fleet ($/day{y_note})", format="$,.3~s", **ticks)),
    }
    ring = {"type": "point", "shape": "circle", "size": 420, "strokeWidth": 2, "filled": False, "color": INK}
    layers = [] if target is None else target_rule(*target, axis_name="x")
    layers += [_points(rows, place), layer([row for row in rows if row["chosen"]], ring, **place)]
    for row, where in _places(rows, log=bool(y_note)):
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


def _places(rows: Sequence[Row], *, log: bool) -> list[tuple[Row, str]]:
    """Return the named rows whose label fits, the chosen first, each with the side that it goes to."""
    height_of = [math.log(row["usd_per_day"]) if log else row["usd_per_day"] for row in rows]
    low, high = (min(height_of, default=0.0) if log else 0.0), max(height_of, default=1.0)
    rightmost = max((row["tpot_p99_ms"] for row in rows), default=1.0)
    points = [
        (row["tpot_p99_ms"] / rightmost * _ASSUMED_WIDTH_PX, HEIGHT * (1.0 - (y - low) / ((high - low) or 1.0)))
        for row, y in zip(rows, height_of, strict=True)
    ]
    named = sorted(
        ((row, point) for row, point in zip(rows, points, strict=True) if row["named"]),
        key=lambda pair: (not pair[0]["chosen"], pair[0]["usd_per_day"]),
    )
    spots = [Spot(x, y, row["label"]) for row, (x, y) in named]
    found = placed(spots, points, _ASSUMED_WIDTH_PX, HEIGHT)
    return [(row, where) for (row, _), where in zip(named, found, strict=True) if where is not None]
