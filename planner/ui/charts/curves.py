"""Curves of one quantity against another: named directly, targets as dashed rules, the chosen point marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.ui.charts.base import Figure, Spec, axis, figure, layer, name, number, scale_for, target_rule, text, tooltip
from planner.ui.colours import HUES
from planner.ui.words import figure as written

HEIGHT = 300
_DASH = [5, 4]
_POINT_PX = 90
_NAME_SHARE = 0.98


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
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str | None = None
    dashed: bool = False
    dots: bool = False


class Rule(NamedTuple):
    """A dashed line at a value of an axis, with what it says."""

    axis: Literal["x", "y"]
    value: float
    label: str


class Mark(NamedTuple):
    """A point of its own, with what it says."""

    x: float
    y: float
    label: str
    colour: str = HUES[1]


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
        layers.append(layer(rows, text(align="left", dx=9, dy=-8, fontWeight="bold"), x=x, y=y, text=name("label")))
    return figure(layers, HEIGHT, title)


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
    end = rows[int((len(rows) - 1) * _NAME_SHARE)]
    label = text(align="right", dx=-6, dy=-9, color=colour, fontWeight="bold")
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
