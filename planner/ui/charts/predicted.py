"""Predicted over measured values with the line of equality, for every page that shows both."""

import math
from collections.abc import Mapping, Sequence

from planner.ui.charts.base import LABEL_SIZE, Figure, Row, Spec, axis, figure, layer, log_ticks, name, number, text, tooltip
from planner.ui.colours import GREY, INK

HEIGHT = 380
LEGEND: Spec = {
    "title": None,
    "orient": "top",
    "labelFontSize": LABEL_SIZE,
    "symbolStrokeWidth": 2,
    "columnPadding": 8,
    "labelLimit": 260,
}
_ROOM = 1.15
_MOST_TICKS = 8
_FAR_OUT = 10.0


def predicted_over_measured(
    rows: Sequence[Row], title: str, unit: str, colours: Mapping[str, str], titles: Mapping[str, str]
) -> Figure:
    """Return predicted over measured values with the line of equality.

    rows : measured, after, series (of `colours`), and the text columns of `titles`; with a column `before`, what was predicted
        before a fit stays as faint marks
    unit : such as "ms", of both axes
    """
    low, high = _reach(rows)
    scale = {"type": "log", "domain": [low, high], "nice": False, "clamp": True}
    ticks = few_ticks(low, high)
    x = number("measured", scale=scale, axis=axis(f"Measured ({unit}, log scale)", values=ticks))
    y_axis = axis(f"Predicted ({unit}, log scale)", values=ticks)
    y = number("after", scale=scale, axis=y_axis)
    tip = tooltip(titles)
    ends: list[Row] = [{"measured": low, "after": low}, {"measured": high, "after": high, "label": "predicted = measured"}]
    before = layer(
        rows,
        {"type": "point", "shape": "cross", "size": 26, "filled": True, "color": GREY, "opacity": 0.55},
        x=x,
        y=number("before", scale=scale, axis=y_axis),
        tooltip=tip,  # type: ignore[arg-type]
    )
    after = layer(
        rows,
        {"type": "point", "filled": True, "size": 40, "opacity": 0.7, "stroke": INK, "strokeWidth": 0.3},
        x=x,
        y=y,
        color=series_colour(rows, colours),
        tooltip=tip,  # type: ignore[arg-type]
    )
    layers = [
        layer(ends, {"type": "line", "color": GREY, "strokeDash": [5, 4], "strokeWidth": 1.5}, x=x, y=y),
        layer(ends[1:], text(align="right", dx=-14, dy=0, baseline="middle"), x=x, y=y, text=name("label")),
        *([before] if "before" in rows[0] else []),
        after,
    ]
    return figure(layers, HEIGHT, title)


def series_colour(rows: Sequence[Row], colours: Mapping[str, str]) -> Spec:
    """Return the colour of each series that the rows hold, with its legend."""
    found = [series for series in colours if any(row["series"] == series for row in rows)]
    scale = {"domain": found, "range": [colours[series] for series in found]}
    return name("series", scale=scale, legend={**LEGEND, "symbolType": "circle"})


def few_ticks(low: float, high: float) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2, 5 … in each decade, or the decades alone where there are many."""
    ticks = log_ticks([low, high])
    decades = [tick for tick in ticks if math.log10(tick).is_integer()]
    return ticks if len(ticks) <= _MOST_TICKS or len(decades) < 2 else decades


def _reach(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of both axes: all that was measured and predicted now, and what was before unless it lies far out."""
    both = [row[column] for row in rows for column in ("measured", "after")]
    least, most = min(both) / _FAR_OUT, max(both) * _FAR_OUT
    before = [min(max(row["before"], least), most) for row in rows if "before" in row]
    return min(*both, *before) / _ROOM, max(*both, *before) * _ROOM
