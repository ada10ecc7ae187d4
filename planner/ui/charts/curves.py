"""Curves of one quantity against another: named directly, targets as dashed rules, the chosen point marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.ui.charts.base import Figure, Spec, axis, figure, layer, name, number, scale_for, target_rule, text, tooltip
from planner.ui.colours import HUES
from planner.ui.words import figure as written

HEIGHT = 300
TALL = 420
_DASH = [5, 4]
_POINT_PX = 90
_NAME_SHARE = 0.98
Place = Literal["above right", "below right", "above left", "below left"]
_PLACES: dict[Place, Spec] = {
    "above right": {"align": "left", "dx": 9, "dy": -8},
    "below right": {"align": "left", "dx": 9, "dy": 13},
    "above left": {"align": "right", "dx": -9, "dy": -8},
    "below left": {"align": "right", "dx": -9, "dy": 13},
}


class Axis(NamedTuple):
    """An axis: quantity and unit; log None lets the span of the values decide."""

    title: str
    log: bool | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """One line.

    points : x and y, in order of x; they must be finite
    colour : from planner.ui.colours; None takes the next hue
    dashed : for a formula beside a simulated curve of the same colour
    dots : draw the points alone, for measured or simulated figures on a formula's line
    name_at : where along the points the name stands, from 0 at the first one to 1 [1]
    name_place : on which side of that point
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str | None = None
    dashed: bool = False
    dots: bool = False
    name_at: float = _NAME_SHARE
    name_place: Place = "above left"


class Rule(NamedTuple):
    """A dashed line at a value of an axis, with what it says."""

    axis: Literal["x", "y"]
    value: float
    label: str


class Mark(NamedTuple):
    """A point of its own, with what it says, written on one side of it."""

    x: float
    y: float
    label: str
    colour: str = HUES[1]
    place: Place = "above right"


def curves(
    title: str, axes: tuple[Axis, Axis], drawn: Sequence[Curve], rules: Sequence[Rule] = (), marks: Sequence[Mark] = ()
) -> Figure:
    """Return the curves as one chart; title : the finding in one sentence."""
    xs = [x for curve in drawn for x, _ in curve.points] + [mark.x for mark in marks] + _values(rules, "x")
    ys = [y for curve in drawn for _, y in curve.points] + [mark.y for mark in marks] + _values(rules, "y")
    x, y = _encoding("x", axes[0], xs), _encoding("y", axes[1], ys)
    layers: list[Spec] = []
    for rule in rules:
        layers += target_rule(rule.value, rule.label, axis_name=rule.axis)
    tip = tooltip({"series": "Curve", "x_text": axes[0].title, "y_text": axes[1].title})
    for index, curve in enumerate(drawn):
        encoding: Spec = {"x": x, "y": y, "tooltip": tip}
        layers += _curve(curve, curve.colour or HUES[index % len(HUES)], encoding)
    for mark in marks:
        rows = [{"x": mark.x, "y": mark.y, "label": mark.label}]
        point = {"type": "point", "filled": True, "size": _POINT_PX, "color": mark.colour, "opacity": 1}
        layers.append(layer(rows, point, x=x, y=y))
        layers.append(layer(rows, text(**_PLACES[mark.place], fontWeight="bold"), x=x, y=y, text=name("label")))
    return figure(layers, HEIGHT, title)


def taller(drawn: Figure, height: int = TALL) -> Figure:
    """Return a chart of many curves with more room between them."""
    return Figure({**drawn.spec, "height": height}, drawn.title)


def _curve(curve: Curve, colour: str, encoding: Spec) -> list[Spec]:
    rows = [{"x": x, "y": y, "series": curve.name, "x_text": written(x), "y_text": written(y)} for x, y in curve.points]
    if not rows:
        return []
    if curve.dots:
        mark: Spec = {"type": "point", "filled": True, "size": 46, "color": colour, "opacity": 1}
    else:
        mark = {"type": "line", "color": colour, "strokeWidth": 2, "point": {"size": 1, "opacity": 0}, "clip": True}
        if curve.dashed:
            mark["strokeDash"] = _DASH
    end = rows[int((len(rows) - 1) * curve.name_at)]
    label = text(**_PLACES[curve.name_place], color=colour, fontWeight="bold")
    return [
        layer(rows, mark, **encoding),
        layer([end], label, x=encoding["x"], y=encoding["y"], text=name("series")),
    ]


def _encoding(field: str, shown: Axis, values: Sequence[float]) -> Spec:
    if shown.log is None:
        scale, note = scale_for(values)
    elif shown.log:
        scale, note = {"type": "log", "nice": False, "padding": 14}, ", log scale"
    else:
        scale, note = {"zero": True, "nice": True}, ""
    return number(field, scale=scale, axis=axis(f"{shown.title}{note}"))


def _values(rules: Sequence[Rule], axis_name: str) -> list[float]:
    return [rule.value for rule in rules if rule.axis == axis_name]
