"""Errors drawn: their distribution over all rows, a dot for each model, and rows predicted against measured."""

from collections.abc import Sequence

from planner.ui.charts.base import LABEL_SIZE, Figure, Row, Spec, axis, figure, layer, name, number, tooltip
from planner.ui.charts.predicted import predicted_over_measured
from planner.ui.colours import ACCENT, FAINT, GREY, HUES, INK

ROW_PX = 26
FRAME_PX = 96
SERIES_COLOURS = {
    "vLLM": ACCENT,
    "SGLang": HUES[2],
    "TensorRT-LLM": HUES[4],
    "TPOT": ACCENT,
    "TTFT": HUES[4],
    "ITL": HUES[5],
    "E2E": HUES[2],
}
_ROOM = 1.2
_TIPS = {"median": "Median error", "bias": "Bias", "middle": "80 % of the errors", "points": "Points"}
_X_TITLE = "Predicted ÷ measured − 1 (%)"


def distributions(rows: Sequence[Row], clip: tuple[float, float], title: str) -> Figure:
    """Return boxes of signed errors: the middle half thick, 80 % thin, the median marked.

    rows : name, p10, p25, p50, p75, p90 [%], colour; as text median, bias, middle, points
    clip : ends of the axis [%]; what lies beyond is drawn at the end
    """
    order = [row["name"] for row in rows]
    y = name("name", sort=order, axis=_names())
    x = _x([row[column] for row in rows for column in ("p10", "p90")], clip)
    tip: Spec = {"y": y, "tooltip": tooltip({"name": "Predictions of", **_TIPS})}
    colour = name("colour", scale=None)
    layers = [
        _zero(),
        layer(rows, {"type": "rule", "strokeWidth": 1.5}, **tip, x=number("p10", **x), x2={"field": "p90"}, color=colour),
        layer(rows, {"type": "bar", "height": 12}, **tip, x=number("p25", **x), x2={"field": "p75"}, color=colour),
        layer(rows, {"type": "tick", "thickness": 3, "height": 18, "color": INK}, **tip, x=number("p50", **x)),
    ]
    return figure(layers, FRAME_PX + ROW_PX * len(rows), title)


def strips(rows: Sequence[Row], lines: Sequence[str], clip: tuple[float, float], title: str) -> Figure:
    """Return a line for each GPU and engine with a dot for each model at its median error; the faint bar spans 80 % of its errors.

    rows : line, model, at, low, high [%], size, colour, shape; as text median, bias, middle, points
    lines : from top to bottom; clip : ends of the axis [%]
    """
    y = name("line", sort=list(lines), axis=_names())
    x = _x([row[column] for row in rows for column in ("low", "high")], clip)
    tip = tooltip({"model": "Model", "line": "On", **_TIPS})
    largest = max(row["size"] for row in rows)
    layers = [
        _zero(),
        layer(rows, {"type": "rule", "strokeWidth": 3, "color": FAINT}, y=y, x=number("low", **x), x2={"field": "high"}),
        layer(
            rows,
            {"type": "point", "filled": True, "opacity": 0.9, "stroke": INK, "strokeWidth": 0.4},
            y=y,
            x=number("at", **x),
            size=number("size", scale={"type": "sqrt", "domain": [0, largest], "range": [30, 220]}, legend=None),
            color=name("colour", scale=None),
            shape=name("shape", scale=None, legend=None),
            tooltip=tip,  # type: ignore[arg-type]
        ),
    ]
    return figure(layers, FRAME_PX + ROW_PX * len(lines), title)


def _zero() -> Spec:
    return layer([{"zero": 0.0}], {"type": "rule", "color": GREY, "strokeDash": [5, 4], "strokeWidth": 1.5}, x=number("zero"))


def _x(values: Sequence[float], clip: tuple[float, float]) -> Spec:
    """Return an axis that holds every value and the zero, no further than the clip."""
    low, high = min(0.0, *values) * _ROOM - 2.0, max(0.0, *values) * _ROOM + 2.0
    low, high = max(low, clip[0]), min(high, clip[1])
    return {"scale": {"domain": [low, high], "nice": False, "clamp": True}, "axis": axis(_X_TITLE)}


def _names() -> Spec:
    return {
        "title": None,
        "labelFontSize": LABEL_SIZE,
        "labelLimit": 280,
        "labelOverlap": False,
        "ticks": False,
        "domain": False,
        "grid": True,
    }


def predicted_rows(rows: Sequence[Row], title: str, unit: str) -> Figure:
    """Return predicted over measured rows with the line of equality.

    rows : measured, after, series (of SERIES_COLOURS); as text label, batch, measured_text, after_text, error
    unit : of both axes
    """
    titles = {
        "label": "Model",
        "series": "What",
        "batch": "Run",
        "measured_text": "Measured",
        "after_text": "Predicted",
        "error": "Error",
    }
    return predicted_over_measured(rows, title, unit, SERIES_COLOURS, titles)
