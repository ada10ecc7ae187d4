"""What every chart shares: the figure with its finding, axes that name their unit, target rules, text in the theme's own ink."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner.ui.colours import GREY, INK

Row = Mapping[str, Any]
Spec = dict[str, Any]
LOG_FROM_RATIO = 100.0
LABEL_SIZE = 12
_TICKS = 6
_LEAST_LOG_TICKS, _MOST_LOG_TICKS = 4, 12
_FINE = (1, 2, 3, 4, 6, 8)
TARGET_RULE: Spec = {"type": "rule", "strokeDash": [5, 4], "color": GREY, "strokeWidth": 1.5}


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and what it shows.

    spec : Vega-Lite
    title : the finding in one sentence; it stands above the chart and names it for screen readers
    """

    spec: Spec
    title: str


def layer(rows: Iterable[Row], mark: Spec, **encoding: Spec) -> Spec:
    """Return one layer: rows drawn with a mark."""
    return {"data": {"values": [dict(row) for row in rows]}, "mark": mark, "encoding": encoding}


def figure(layers: Sequence[Spec], height: int, title: str) -> Figure:
    """Return the layers as one chart."""
    return Figure({"height": height, "layer": list(layers)}, title)


def number(field: str, **options: Any) -> Spec:  # noqa: ANN401 - Vega-Lite's own options
    """Return the encoding of a quantity."""
    return {"field": field, "type": "quantitative", **options}


def name(field: str, **options: Any) -> Spec:  # noqa: ANN401
    """Return the encoding of a name."""
    return {"field": field, "type": "nominal", **options}


def axis(title: str | None, **options: Any) -> Spec:  # noqa: ANN401
    """Return an axis with few, light grid lines; title : quantity and unit; values : its ticks, of which Vega drops none."""
    count = len(options.get("values", ())) or _TICKS
    return {"title": title, "tickCount": count, "labelFontSize": LABEL_SIZE, "titleFontSize": LABEL_SIZE, **options}


def tooltip(titles: Mapping[str, str]) -> list[Spec]:
    """Return a tooltip of text columns; titles : of each column."""
    return [name(column, title=title) for column, title in titles.items()]


def scale_for(values: Iterable[float], *, log_from: float = LOG_FROM_RATIO) -> tuple[Spec, str]:
    """Return a logarithmic scale when the largest value is `log_from` times the smallest, else a linear one from zero.

    The second item is what the axis title says of it.
    """
    positive = [value for value in values if value > 0.0]
    if positive and max(positive) / min(positive) >= log_from:
        return {"type": "log", "nice": False, "padding": 14}, ", log scale"
    return {"zero": True, "nice": True}, ""


def log_ticks(values: Iterable[float], steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """Return 1, 2, 5, 10 … over the values' range: the few lines that a logarithmic axis needs; steps : of each decade.

    >>> log_ticks([30.0, 900.0])
    [50.0, 100.0, 200.0, 500.0]
    """
    low, high = min(values := list(values)), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]


def sparse_log_ticks(values: Iterable[float]) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2, 5 … in each decade; the decades alone over many, more steps within one.

    >>> sparse_log_ticks([1.0, 1e6]), sparse_log_ticks([6.0, 50.0])
    ([1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0, 1000000.0], [6.0, 8.0, 10.0, 20.0, 30.0, 40.0])
    """
    low, high = min(values := list(values)), max(values)
    ticks = log_ticks([low, high])
    if len(ticks) > _MOST_LOG_TICKS:
        return [tick for tick in ticks if math.log10(tick).is_integer()]
    return ticks if len(ticks) >= _LEAST_LOG_TICKS else log_ticks([low, high], _FINE)


def text(**options: Any) -> Spec:  # noqa: ANN401
    """Return a mark of labels in the theme's own text colour, which follows light and dark by itself."""
    return {"type": "text", "color": INK, "fontSize": LABEL_SIZE, **options}


def target_rule(value: float, label: str, *, axis_name: Literal["x", "y"], before: bool = False) -> list[Spec]:
    """Return a dashed rule with its value written on it.

    axis_name : the axis that the value lies on
    before : write to the left of an upright rule, for one that stands at the right edge
    """
    rows = [{"value": value, "label": label}]
    rule = dict(TARGET_RULE)
    if axis_name == "x":
        mark = text(align="right" if before else "left", baseline="top", dx=-5 if before else 5, dy=2)
        return [layer(rows, rule, x=number("value")), layer(rows, mark, x=number("value"), y={"value": 0}, text=name("label"))]
    mark = text(align="left", baseline="bottom", dx=4, dy=-3)
    return [layer(rows, rule, y=number("value")), layer(rows, mark, y=number("value"), x={"value": 0}, text=name("label"))]
