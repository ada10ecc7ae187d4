"""Who waits and who is served: a row for each way to share, its figures as dots, or as parts of a whole."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.ui.charts.base import (
    LABEL_SIZE,
    Figure,
    Spec,
    axis,
    figure,
    layer,
    name,
    number,
    scale_for,
    target_rule,
    tooltip,
)
from planner.ui.colours import HUES, on_hue

_ROW_PX = 34
_AXIS_PX = 74
_TRADE_PX = 450
_NAME_PX = 250
_END_SHARE = 0.75
_DOT_SIZES = (210, 120, 60, 40)
_SHAPES = ("circle", "diamond", "square", "triangle-up")


class Dot(NamedTuple):
    """One figure of one row.

    row : the way to share; series : which figure; value : where it lies; said : the same as text; note : for the tooltip
    """

    row: str
    series: str
    value: float
    said: str
    note: str = ""


class Part(NamedTuple):
    """One part of a row's whole.

    from_share, to_share : of the whole [1]; said : written in it
    """

    row: str
    series: str
    from_share: float
    to_share: float
    said: str


class Spot(NamedTuple):
    """One way to share between two quantities.

    name : of the way, shown in the legend; x, y : where it lies; x_said, y_said : the same as text
    """

    name: str
    x: float
    y: float
    x_said: str
    y_said: str


def trade(title: str, quantities: tuple[str, str], spots: Sequence[Spot], line: Sequence[Spot], rule: tuple[float, str]) -> Figure:
    """Return ways to share between two quantities, named in a legend so that no name hides another.

    quantities : of both axes, with units; line : one way at settings of its own, from one end to the other; rule : a target on x
    """
    series = list(dict.fromkeys(spot.name for spot in (*line, *spots)))
    x = number("x", scale={"zero": True, "nice": True}, axis=axis(quantities[0]))
    y = number("y", scale={"zero": True, "nice": True}, axis=axis(quantities[1]))
    legend = {**(_legend(series) or {}), "columns": 1, "labelLimit": 380, "symbolType": "circle"}
    colour = name("name", scale={"domain": series, "range": list(HUES[: len(series)])}, legend=legend)
    tip: Spec = {"tooltip": tooltip({"name": "Sharing", "x_said": quantities[0], "y_said": quantities[1]})}
    through = {"type": "line", "strokeWidth": 2, "point": {"size": 40, "filled": True, "opacity": 1}}
    point = {"type": "point", "filled": True, "size": _DOT_SIZES[0], "opacity": 1}
    layers: list[Spec] = target_rule(*rule, axis_name="x")
    layers.append(layer([spot._asdict() for spot in line], through, x=x, y=y, color=colour, **tip))
    layers.append(layer([spot._asdict() for spot in spots], point, x=x, y=y, color=colour, **tip))
    return figure(layers, _TRADE_PX, title)


def dots(title: str, quantity: str, drawn: Sequence[Dot], rule: tuple[float, str] | None = None) -> Figure:
    """Return a row for each way to share with a dot for each figure; a thin line joins them.

    title : the finding; quantity : of the axis, with its unit; rule : a target and what it says
    """
    rows = list(dict.fromkeys(dot.row for dot in drawn))
    series = list(dict.fromkeys(dot.series for dot in drawn))
    values = [dot.value for dot in drawn] + ([rule[0]] if rule else [])
    scale, note = scale_for(values)
    x = number("value", scale=scale, axis=axis(f"{quantity}{note}"))
    y = _rows_axis(rows)
    table = [dot._asdict() for dot in drawn]
    colour = name("series", scale={"domain": series, "range": list(HUES[: len(series)])}, legend=_legend(series))
    shape = name("series", scale={"domain": series, "range": list(_SHAPES[: len(series)])}, legend=_legend(series))
    spans = [
        {"row": row, "low": min(each), "high": max(each)}
        for row in rows
        if (each := [dot.value for dot in drawn if dot.row == row])
    ]
    at_end = rule is not None and rule[0] > _END_SHARE * max(values)
    layers: list[Spec] = [] if rule is None else target_rule(*rule, axis_name="x", before=at_end)
    layers.append(
        layer(spans, {"type": "rule", "color": HUES[0], "opacity": 0.35}, x=number("low", scale=scale), x2={"field": "high"}, y=y)
    )
    titles = {"row": "Order", "series": "Figure", "said": "Value", "note": "Note"}
    tip: Spec = {"tooltip": tooltip(titles)}
    for kind, size in zip(series, _DOT_SIZES, strict=False):  # the later on top and smaller, so that none is hidden
        own = [row for row in table if row["series"] == kind]
        mark = {"type": "point", "filled": True, "size": size, "opacity": 1}
        layers.append(layer(own, mark, x=x, y=y, color=colour, shape=shape, **tip))
    return figure(layers, _ROW_PX * len(rows) + _AXIS_PX, title)


def parts(title: str, quantity: str, drawn: Sequence[Part], rule: tuple[float, str] | None = None) -> Figure:
    """Return a bar for each way to share, made of its parts; quantity : of the axis; rule : the fair share and what it says."""
    rows = list(dict.fromkeys(part.row for part in drawn))
    series = list(dict.fromkeys(part.series for part in drawn))
    table = [
        {
            **part._asdict(),
            "from_percent": part.from_share * 100.0,
            "to_percent": part.to_share * 100.0,
            "ink": on_hue(HUES[series.index(part.series)]),
        }
        for part in drawn
    ]
    x = number("from_percent", scale={"domain": [0, 100]}, axis=axis(quantity))
    y = _rows_axis(rows, outer=_RULE_ROOM)
    colour = name("series", scale={"domain": series, "range": list(HUES[: len(series)])}, legend=_legend(series))
    tip: Spec = {"tooltip": tooltip({"row": "Counting", "series": "Tenant", "said": "Share"})}
    bar = {"type": "bar", "height": {"band": 0.68}, "opacity": 0.9}
    layers = [layer(table, bar, x=x, x2={"field": "to_percent"}, y=y, color=colour, **tip)]
    if rule is not None:
        layers += target_rule(rule[0] * 100.0, rule[1], axis_name="x")
    wide = [row for row in table if row["to_percent"] - row["from_percent"] >= _READABLE_PERCENT]
    for last in (False, True):  # written at the outer ends, away from the rule
        own = [row for row in wide if (row["series"] == series[-1]) is last]
        mark = {
            "type": "text",
            "align": "right" if last else "left",
            "dx": -8 if last else 8,
            "fontSize": LABEL_SIZE,
            "fontWeight": 600,
        }
        end = number("to_percent" if last else "from_percent")
        layers.append(layer(own, mark, x=end, y=y, text=name("said"), color=name("ink", scale=None)))
    return figure(layers, _ROW_PX * len(rows) + _AXIS_PX, title)


_READABLE_PERCENT = 9.0
_ONE_LINE = 40
_RULE_ROOM = 0.7


def _rows_axis(rows: Sequence[str], outer: float | None = None) -> Spec:
    """Return the axis of the rows; outer : room above and below them, in rows, for what is written there."""
    scale = {} if outer is None else {"scale": {"paddingOuter": outer}}
    return name("row", sort=list(rows), axis=axis(None, labelLimit=_NAME_PX, labelFlush=False, ticks=False, domain=False), **scale)


def _legend(series: Sequence[str]) -> Spec | None:
    if len(series) < 2:
        return None
    return {
        "title": None,
        "orient": "top",
        "columns": len(series) if sum(map(len, series)) <= _ONE_LINE else 1,
        "labelFontSize": LABEL_SIZE,
        "symbolSize": _DOT_SIZES[1],
        "labelLimit": 260,
        "offset": 4,
        "columnPadding": 4,
    }
