"""A calibration drawn: intervals of its figures, errors by group, predicted against measured times, residuals."""

from collections.abc import Sequence

from planner.ui.charts.base import (
    LABEL_SIZE,
    Figure,
    Row,
    Spec,
    axis,
    figure,
    layer,
    name,
    number,
    scale_for,
    tooltip,
)
from planner.ui.charts.predicted import LEGEND, few_ticks, predicted_over_measured, series_colour
from planner.ui.colours import ACCENT, FAINT, GREY, HUES, WARNING

RESIDUAL_HEIGHT = 260
ROW_PX = 26
FRAME_PX = 128
"""Height that the legend, the axis and its title take of a chart's [px]."""
LEGEND_LINE_PX = 20
"""Height that each further line of a legend takes [px]."""
RESTS_COLOURS = {"measured": ACCENT, "prior": WARNING, "assumed": GREY}
PHASE_COLOURS = {"decode": ACCENT, "prefill": HUES[4], "mixed": HUES[2]}
METRIC_COLOURS = {"TTFT": HUES[4], "TPOT": ACCENT, "E2E": HUES[2], "throughput": HUES[3]}
COLOURS = {**PHASE_COLOURS, **METRIC_COLOURS, "step": HUES[5]}
ERROR_COLOURS = {"before": GREY, "fitted": ACCENT, "left out of the fit": WARNING}
_SHAPES = {"before": "triangle-down", "fitted": "circle", "left out of the fit": "diamond"}
_RATIO_TICKS = (0.1, 0.2, 0.5, 0.7, 1.0, 1.4, 2.0, 5.0, 10.0)
_NARROWEST = (0.8, 1.25)
_WIDEST = (0.05, 20.0)
_ROOM = 1.15


def intervals(rows: Sequence[Row], title: str) -> Figure:
    """Return each figure's 80 % interval as a multiple of its value, coloured by what it rests on.

    rows : name, low, at (1), high [1], rests_on; as text value, interval
    """
    low = max(min(_NARROWEST[0], *(row["low"] for row in rows)), _WIDEST[0]) / _ROOM
    high = min(max(_NARROWEST[1], *(row["high"] for row in rows)), _WIDEST[1]) * _ROOM
    scale = {"type": "log", "domain": [low, high], "nice": False, "clamp": True}
    ticks = [tick for tick in _RATIO_TICKS if low <= tick <= high]
    x_axis = axis("Interval ÷ value (log scale)", values=ticks, format=".3~f")
    y = name("name", sort=[row["name"] for row in rows], axis=_names())
    kinds = [kind for kind in RESTS_COLOURS if any(row["rests_on"] == kind for row in rows)]
    colours = {"domain": kinds, "range": [RESTS_COLOURS[kind] for kind in kinds]}
    colour = name("rests_on", scale=colours, legend={**LEGEND, "symbolType": "circle", "columns": 1})
    titles = {"name": "Figure", "value": "Value", "interval": "80 % interval", "rests_on": "Rests on"}
    tip = tooltip(titles)
    layers = [
        layer([{"at": 1.0}], {"type": "rule", "color": FAINT, "strokeWidth": 1.5}, x=number("at")),
        layer(
            rows,
            {"type": "rule", "strokeWidth": 4, "strokeCap": "round"},
            y=y,
            x=number("low", scale=scale, axis=x_axis),
            x2={"field": "high"},
            color=colour,
            tooltip=tip,  # type: ignore[arg-type]
        ),
        layer(
            rows,
            {"type": "point", "filled": True, "size": 64, "opacity": 1},
            y=y,
            x=number("at", scale=scale, axis=x_axis),
            color=colour,
            tooltip=tip,  # type: ignore[arg-type]
        ),
    ]
    return figure(layers, FRAME_PX + LEGEND_LINE_PX * (len(kinds) - 1) + ROW_PX * len(rows), title)


def error_dots(rows: Sequence[Row], title: str) -> Figure:
    """Return the median error of each group, as one dot a kind: before a fit, fitted, left out of it.

    rows : group, pct [%], kind (of ERROR_COLOURS); as text error, rows, bias
    """
    most = max(row["pct"] for row in rows) * _ROOM
    order = list(dict.fromkeys(row["group"] for row in rows))
    kinds = [kind for kind in ERROR_COLOURS if any(row["kind"] == kind for row in rows)]
    y = name("group", sort=order, axis=_names())
    x = number("pct", scale={"domain": [0.0, max(most, 1.0)], "nice": True}, axis=axis("Median error of a predicted time (%)"))
    spans = [_span(rows, group) for group in order]
    layers = [
        layer(spans, {"type": "rule", "color": FAINT, "strokeWidth": 3}, y=y, x=number("low"), x2={"field": "high"}),
        layer(
            rows,
            {"type": "point", "filled": True, "size": 90, "opacity": 1},
            y=y,
            x=x,
            color=name("kind", scale={"domain": kinds, "range": [ERROR_COLOURS[kind] for kind in kinds]}, legend=LEGEND),
            shape=name("kind", scale={"domain": kinds, "range": [_SHAPES[kind] for kind in kinds]}, legend=LEGEND),
            tooltip=tooltip({"group": "Steps of", "kind": "Which", "error": "Median error", "bias": "Bias", "rows": "Points"}),  # type: ignore[arg-type]
        ),
    ]
    return figure(layers, FRAME_PX + ROW_PX * len(order), title)


def _span(rows: Sequence[Row], group: str) -> Row:
    values = [row["pct"] for row in rows if row["group"] == group]
    return {"group": group, "low": min(values), "high": max(values)}


def _names() -> Spec:
    return {
        "title": None,
        "labelFontSize": LABEL_SIZE,
        "labelLimit": 240,
        "labelOverlap": False,
        "ticks": False,
        "domain": False,
        "grid": True,
    }


def predicted_measured(rows: Sequence[Row], title: str, unit: str) -> Figure:
    """Return predicted over measured values with the line of equality; what was predicted before the fit stays as faint marks.

    rows : measured, before, after, series (of COLOURS); as text label, series, measured_text, before_text, after_text, error, batch
    unit : such as "ms", of both axes
    """
    titles = {
        "label": "Of",
        "series": "What",
        "batch": "Batch",
        "measured_text": "Measured",
        "after_text": "Predicted",
        "error": "Error",
        "before_text": "Before the fit",
    }
    return predicted_over_measured(rows, title, unit, COLOURS, titles)


def residuals(rows: Sequence[Row], title: str, column: str, quantity: str) -> Figure:
    """Return the error of each point over one of its inputs.

    rows : error_pct, series, and the column; as text label, batch, error, measured_text
    column, quantity : which input, and what its axis says of it
    """
    scale, note = scale_for(row[column] for row in rows)
    reach = max(10.0, max(abs(row["error_pct"]) for row in rows) * 1.1)
    values = [row[column] for row in rows]
    ticks = {"values": few_ticks(min(values), max(values))} if note else {}
    x = number(column, scale=scale, axis=axis(f"{quantity}{note}", **ticks))
    y = number("error_pct", scale={"domain": [-reach, reach], "nice": False}, axis=axis("Predicted ÷ measured − 1 (%)"))
    titles = {"label": "Of", "series": "What", "batch": "Batch", "measured_text": "Measured", "error": "Error"}
    layers = [
        layer([{"zero": 0.0}], {"type": "rule", "color": GREY, "strokeDash": [5, 4]}, y=number("zero")),
        layer(
            rows,
            {"type": "point", "filled": True, "size": 40, "opacity": 0.75},
            x=x,
            y=y,
            color=series_colour(rows, COLOURS),
            tooltip=tooltip(titles),  # type: ignore[arg-type]
        ),
    ]
    return figure(layers, RESIDUAL_HEIGHT, title)
