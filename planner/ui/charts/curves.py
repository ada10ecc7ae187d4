"""Curves of one quantity against another: named directly, targets as dashed rules, the chosen point marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from planner.ui.charts.base import Figure, Spec, axis, figure, layer, name, number, scale_for, target_rule, text, tooltip
from planner.ui.charts.names import OFFSETS_PX, Label, Line, Scale, Spot, name_spots, scale_of
from planner.ui.colours import HUES
from planner.ui.words import figure as written

HEIGHT = 300
TALL = 420
_DASH = [5, 4]
_POINT_PX = 90
_NAME_SHARE = 0.98
Place = Literal["above right", "below right", "above left", "below left"]
_PLACES: dict[str, Spec] = {
    place: {"align": "left" if right > 0 else "right", "dx": right, "dy": down} for place, (right, down) in OFFSETS_PX.items()
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
    name_at : where along the points the name stands, from 0 at the first one to 1 [1]; elsewhere where it would cover something
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
    shown = [(curve, curve.colour or HUES[index % len(HUES)]) for index, curve in enumerate(drawn) if curve.points]
    spots = _spots([curve for curve, _ in shown], rules, marks, (_scale(x, xs), _scale(y, ys)))
    for (curve, colour), spot in zip(shown, spots, strict=True):
        encoding: Spec = {"x": x, "y": y, "tooltip": tip}
        layers += _curve(curve, colour, encoding, spot)
    for mark in marks:
        rows = [{"x": mark.x, "y": mark.y, "label": mark.label}]
        point = {"type": "point", "filled": True, "size": _POINT_PX, "color": mark.colour, "opacity": 1}
        layers.append(layer(rows, point, x=x, y=y))
        layers.append(layer(rows, text(**_PLACES[mark.place], fontWeight="bold"), x=x, y=y, text=name("label")))
    return figure(layers, HEIGHT, title)


def taller(drawn: Figure, height: int = TALL) -> Figure:
    """Return a chart of many curves with more room between them."""
    return Figure({**drawn.spec, "height": height}, drawn.title)


def _scale(encoding: Spec, values: Sequence[float]) -> Scale:
    return scale_of(values, log=encoding["scale"].get("type") == "log")


def _spots(drawn: Sequence[Curve], rules: Sequence[Rule], marks: Sequence[Mark], scales: tuple[Scale, Scale]) -> list[Spot]:
    """Return where each curve's name goes beside the labels of rules and marks."""
    across, up = scales

    def share(scale: Scale, value: float) -> float:
        return float(scale.share(np.array([value]))[0])

    labels = [Label(mark.label, share(across, mark.x), share(up, mark.y), mark.place) for mark in marks]
    labels += [Label(rule.label, 0.0, share(up, rule.value), "above right") for rule in rules if rule.axis == "y"]
    labels += [Label(rule.label, share(across, rule.value), 1.0, "below right") for rule in rules if rule.axis == "x"]
    lines = []
    for curve in drawn:
        xs, ys = np.array(curve.points, dtype=np.float64).T
        lines.append(Line(curve.name, across.share(xs), up.share(ys), curve.dots, curve.name_at, curve.name_place))
    lines += [Line("", np.array([x]), np.array([y]), dots=True, at=0.0, place="above right") for _, x, y, _ in labels[: len(marks)]]
    return name_spots(lines, labels, HEIGHT)[: len(drawn)]


def _curve(curve: Curve, colour: str, encoding: Spec, spot: Spot) -> list[Spec]:
    rows = [{"x": x, "y": y, "series": curve.name, "x_text": written(x), "y_text": written(y)} for x, y in curve.points]
    if curve.dots:
        mark: Spec = {"type": "point", "filled": True, "size": 46, "color": colour, "opacity": 1}
    else:
        mark = {"type": "line", "color": colour, "strokeWidth": 2, "point": {"size": 1, "opacity": 0}, "clip": True}
        if curve.dashed:
            mark["strokeDash"] = _DASH
    end = rows[spot.point]
    label = text(**_PLACES[spot.place], color=colour, fontWeight="bold")
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
