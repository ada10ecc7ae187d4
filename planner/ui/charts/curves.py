"""Curves of one quantity against another: named directly, targets as dashed rules, the chosen point marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.ui.charts.base import (
    TARGET_RULE,
    Figure,
    Spec,
    axis,
    figure,
    layer,
    name,
    number,
    scale_for,
    sparse_log_ticks,
    text,
    tooltip,
)
from planner.ui.charts.names import OFFSETS_PX, Line, Spot, name_spots, scale_of
from planner.ui.colours import HUES, name_colour
from planner.ui.words import figure as written

HEIGHT = 300
TALL = 420
AXES_PX = 72.0
"""Height that the lower axis and its title take of a chart's [px]."""
_LOG_PADDING_PX = 14
_TYPICAL_WIDTH_PX = 600.0
_DASH = [5, 4]
_POINT_PX = 90
_NAME_SHARE = 0.98
Floats = npt.NDArray[np.float64]
Place = Literal["above right", "below right", "above left", "below left"]
_PLACES: dict[str, Spec] = {
    place: {"align": "left" if right > 0 else "right", "dx": right, "dy": down} for place, (right, down) in OFFSETS_PX.items()
}


class Axis(NamedTuple):
    """An axis: quantity and unit.

    log : None lets the span of the values decide
    zero : a linear axis starts at zero; False where differences matter and ratios don't
    """

    title: str
    log: bool | None = None
    zero: bool = True


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
    """A point of its own with what it says; place : on which side, as long as it covers nothing there."""

    x: float
    y: float
    label: str
    colour: str = HUES[1]
    place: Place = "above right"


def curves(
    title: str, axes: tuple[Axis, Axis], drawn: Sequence[Curve], rules: Sequence[Rule] = (), marks: Sequence[Mark] = ()
) -> Figure:
    """Return the curves as one chart; title : the finding in one sentence."""
    return _chart(_Content(title, axes, drawn, rules, marks), HEIGHT)


def tall_curves(
    title: str, axes: tuple[Axis, Axis], drawn: Sequence[Curve], rules: Sequence[Rule] = (), marks: Sequence[Mark] = ()
) -> Figure:
    """Return a chart of many curves, with more room between them."""
    return _chart(_Content(title, axes, drawn, rules, marks), TALL)


class _Content(NamedTuple):
    title: str
    axes: tuple[Axis, Axis]
    drawn: Sequence[Curve]
    rules: Sequence[Rule]
    marks: Sequence[Mark]


def _chart(content: _Content, height_px: int) -> Figure:
    title, axes, drawn, rules, marks = content
    xs = [x for curve in drawn for x, _ in curve.points] + [mark.x for mark in marks] + _values(rules, "x")
    ys = [y for curve in drawn for _, y in curve.points] + [mark.y for mark in marks] + _values(rules, "y")
    x, y = _encoding("x", axes[0], xs), _encoding("y", axes[1], ys)
    tip = tooltip({"series": "Curve", "x_text": axes[0].title, "y_text": axes[1].title})
    shown = [(curve, curve.colour or HUES[index % len(HUES)]) for index, curve in enumerate(drawn) if curve.points]
    plot_px = height_px - AXES_PX
    lines = _lines([curve for curve, _ in shown], rules, marks, (_Shares(x, xs), _Shares(y, ys, plot_px)))
    spots = iter(name_spots(lines, plot_px))
    marked: list[Spec] = []
    for mark in marks:
        rows = [{"x": mark.x, "y": mark.y, "label": mark.label}]
        point = {"type": "point", "filled": True, "size": _POINT_PX, "color": mark.colour, "opacity": 1}
        marked.append(layer(rows, point, x=x, y=y))
        marked.append(layer(rows, text(**_PLACES[next(spots).place], fontWeight="bold"), x=x, y=y, text=name("label")))
    layers: list[Spec] = []
    for rule in rules:
        layers += _rule(rule, next(spots))
    for curve, colour in shown:
        encoding: Spec = {"x": x, "y": y, "tooltip": tip}
        layers += _curve(curve, colour, encoding, next(spots))
    return figure(layers + marked, height_px, title)


class _Shares:
    """Where values lie along an axis, as shares of the plot: Vega leaves a margin at both ends of a logarithm."""

    def __init__(self, encoding: Spec, values: Sequence[float], length_px: float = _TYPICAL_WIDTH_PX) -> None:
        scale = encoding["scale"]
        log = scale.get("type") == "log"
        self._scale = scale_of(values, log=log, zero=scale.get("zero", True))
        self._margin = _LOG_PADDING_PX / length_px if log else 0.0

    def of(self, values: Sequence[float]) -> Floats:
        """Return the shares [1]."""
        return np.asarray(self._margin + (1.0 - 2.0 * self._margin) * self._scale.share(np.array(values, dtype=np.float64)))


def _lines(drawn: Sequence[Curve], rules: Sequence[Rule], marks: Sequence[Mark], shares: tuple[_Shares, _Shares]) -> list[Line]:
    """Return marks, rules and curves, in this order, as what has a name."""
    across, up = shares
    ends = np.array([0.0, 1.0])
    lines = [Line(mark.label, across.of([mark.x]), up.of([mark.y]), dots=True, at=0.0, place=mark.place) for mark in marks]
    for rule in rules:
        if rule.axis == "y":
            lines.append(Line(rule.label, ends, up.of([rule.value] * 2), dots=False, at=0.0, place="above right"))
        else:
            lines.append(Line(rule.label, across.of([rule.value] * 2), 1.0 - ends, dots=False, at=0.0, place="below right"))
    for curve in drawn:
        xs, ys = zip(*curve.points, strict=True)
        lines.append(Line(curve.name, across.of(xs), up.of(ys), curve.dots, curve.name_at, curve.name_place))
    return lines


def _rule(rule: Rule, spot: Spot) -> list[Spec]:
    """Return a dashed rule with what it says at one of its ends."""
    rows = [{"value": rule.value, "label": rule.label}]
    along: Spec = {rule.axis: number("value")}
    ends: dict[str, tuple[float | str, float | str]] = {"x": (0, "height"), "y": (0, "width")}
    end: Spec = {"y" if rule.axis == "x" else "x": {"value": ends[rule.axis][spot.point]}}
    return [layer(rows, dict(TARGET_RULE), **along), layer(rows, text(**_PLACES[spot.place]), **along, **end, text=name("label"))]


def _curve(curve: Curve, colour: str, encoding: Spec, spot: Spot) -> list[Spec]:
    rows = [{"x": x, "y": y, "series": curve.name, "x_text": written(x), "y_text": written(y)} for x, y in curve.points]
    if curve.dots:
        mark: Spec = {"type": "point", "filled": True, "size": 46, "color": colour, "opacity": 1}
    else:
        mark = {"type": "line", "color": colour, "strokeWidth": 2, "point": {"size": 1, "opacity": 0}, "clip": True}
        if curve.dashed:
            mark["strokeDash"] = _DASH
    end = rows[spot.point]
    label = text(**_PLACES[spot.place], color=name_colour(colour), fontWeight="bold")
    return [
        layer(rows, mark, **encoding),
        layer([end], label, x=encoding["x"], y=encoding["y"], text=name("series")),
    ]


def _encoding(field: str, shown: Axis, values: Sequence[float]) -> Spec:
    if shown.log is None:
        scale, note = scale_for(values)
    elif shown.log:
        scale, note = {"type": "log", "nice": False, "padding": _LOG_PADDING_PX}, ", log scale"
    else:
        scale, note = {"zero": shown.zero, "nice": True}, ""
    ticks = {"values": sparse_log_ticks(positive)} if note and (positive := [each for each in values if each > 0.0]) else {}
    return number(field, scale=scale, axis=axis(f"{shown.title}{note}", **ticks))


def _values(rules: Sequence[Rule], axis_name: str) -> list[float]:
    return [rule.value for rule in rules if rule.axis == axis_name]
