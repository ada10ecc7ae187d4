"""What every chart shares: the figure with its finding, axes that name their unit, target rules, text in the theme's own ink."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import pandas as pd

from planner.ui.colours import GREY, INK

LOG_FROM_RATIO = 100.0
LABEL_SIZE = 12
_TARGET_DASH = [5, 4]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and what it shows.

    title : the finding in one sentence; it stands above the chart and names it for screen readers
    """

    chart: alt.Chart | alt.LayerChart | alt.FacetChart
    title: str


def axis(title: str, **options: Any) -> alt.Axis:  # noqa: ANN401 - altair's own options
    """Return an axis with few, light grid lines; title : quantity and unit."""
    return alt.Axis(title=title, **{"tickCount": 6, "labelFontSize": LABEL_SIZE, "titleFontSize": LABEL_SIZE, **options})


def scale_for(values: "pd.Series[float]", *, log_from: float = LOG_FROM_RATIO) -> tuple[alt.Scale, str]:
    """Return a logarithmic scale when the largest value is `log_from` times the smallest, else a linear one from zero.

    The second item is what the axis title says of it.
    """
    positive = values[values > 0.0]
    if len(positive) and positive.max() / positive.min() >= log_from:
        return alt.Scale(type="log", nice=False, padding=14), ", log scale"
    return alt.Scale(zero=True, nice=True), ""


def log_ticks(values: "pd.Series[float]") -> list[float]:
    """Return 1, 2, 5, 10 … over the values' range: the few lines that a logarithmic axis needs.

    >>> log_ticks(pd.Series([30.0, 900.0]))
    [50.0, 100.0, 200.0, 500.0]
    """
    low, high = float(values.min()), float(values.max())
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for decade in decades for step in (1, 2, 5) if low <= (tick := step * 10.0**decade) <= high]


def text(frame: pd.DataFrame, **mark: Any) -> alt.Chart:  # noqa: ANN401
    """Return a chart of labels in the theme's own text colour, which follows light and dark by itself."""
    chart: alt.Chart = alt.Chart(frame).mark_text(**{"color": INK, "fontSize": LABEL_SIZE, **mark})
    return chart


def target_rule(value: float, label: str, *, axis_name: Literal["x", "y"]) -> alt.LayerChart:
    """Return a dashed rule with its value written on it; axis_name : the axis that the value lies on."""
    frame = pd.DataFrame({"value": [value], "label": [label]})
    rule = alt.Chart(frame).mark_rule(strokeDash=_TARGET_DASH, color=GREY, strokeWidth=1.5)
    if axis_name == "x":
        mark = text(frame, align="left", baseline="top", dx=5, dy=2)
        return alt.LayerChart(layer=[rule.encode(x="value:Q"), mark.encode(x="value:Q", y=alt.value(0), text="label:N")])
    mark = text(frame, align="right", baseline="bottom", dx=-2, dy=-3)
    return alt.LayerChart(layer=[rule.encode(y="value:Q"), mark.encode(y="value:Q", x=alt.value("width"), text="label:N")])
