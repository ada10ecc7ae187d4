"""Lanes over time: what each of a few parties does when, as bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.ui.charts.base import LABEL_SIZE, Figure, Row, Spec, axis, figure, layer, name, number, text, tooltip
from planner.ui.colours import on_hue

LANE_PX = 30
_FRAME_PX = 96


@dataclass(frozen=True, slots=True)
class Lanes:
    """What a chart of lanes shows.

    order : names of the lanes, from top to bottom
    colours : of each kind of work, in the order of the legend
    axis : title of the time axis, with its unit
    end : end of the time axis, in that unit
    """

    order: Sequence[str]
    colours: Mapping[str, str]
    axis: str
    end: float


def lanes(bars: Sequence[Row], shown: Lanes, title: str) -> Figure:
    """Return the lanes as one chart.

    bars : lane, start, end (on the axis), work, label to write in the bar or "", and as text what, when, took
    """
    y = name(
        "lane", sort=list(shown.order), axis=axis(None, labelLimit=220, labelOverlap=False, grid=False, domain=False, ticks=False)
    )
    x = number("start", scale={"domain": [0.0, shown.end], "nice": False}, axis=axis(shown.axis))
    kinds = [kind for kind in shown.colours if kind in {row["work"] for row in bars}]
    legend = {"title": None, "orient": "top", "labelFontSize": LABEL_SIZE, "symbolType": "square"}
    colour = name("work", scale={"domain": kinds, "range": [shown.colours[kind] for kind in kinds]}, legend=legend)
    tip = tooltip({"lane": "Who", "work": "Work", "what": "How much", "when": "From", "took": "For"})
    place: Spec = {"y": y, "x": x, "x2": {"field": "end"}}
    thick = [row for row in bars if row["work"] != "waiting"]
    thin = [row for row in bars if row["work"] == "waiting"]
    layers = [
        layer(rows, {"type": "bar", "height": {"band": band}, "clip": True}, **place, color=colour, tooltip=tip)  # type: ignore[arg-type]
        for rows, band in ((thin, 0.2), (thick, 0.72))
        if rows
    ]
    written = [
        {**row, "middle": (row["start"] + row["end"]) / 2.0, "ink": on_hue(shown.colours[row["work"]])}
        for row in bars
        if row["label"]
    ]
    if written:
        mark = {**text(align="center", fontWeight="bold"), "clip": True}
        ink = name("ink", scale=None)
        layers.append(layer(written, mark, y=y, x=number("middle"), text=name("label"), color=ink))
    return figure(layers, _FRAME_PX + LANE_PX * len(shown.order), title)
