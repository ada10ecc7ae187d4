"""A curve with named points on it, each name written where it covers no other: budgets on a frontier, knees on a curve."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.ui.charts.base import (
    LOG_FROM_RATIO,
    Figure,
    Spec,
    axis,
    figure,
    layer,
    log_ticks,
    name,
    number,
    target_rule,
    text,
    tooltip,
)
from planner.ui.charts.curves import Axis, Rule
from planner.ui.charts.labels import DIAGONAL_PLACES, PLACES, Spot, placed
from planner.ui.colours import ACCENT, GREY, HUES
from planner.ui.words import figure as written

HEIGHT = 340
Kind = Literal["published", "formula", "own", "best", "other"]
_ASSUMED_WIDTH_PX = 460.0
_LOG_ROOM = 1.3
_RULE_STEP_PX = 8.0
_ROOM = 1.08
_RULE_AT_EDGE = 0.75
_BESIDE_MARK_PX = 11.0  # nearer points of the line lie behind the mark itself
_NEAR, _FAR = 2.5, 100.0
_PRIORITY: tuple[Kind, ...] = ("best", "own", "published", "formula", "other")
_LOOKS: dict[Kind, Spec] = {
    "published": {"color": ACCENT, "shape": "circle", "size": 80},
    "formula": {"color": HUES[2], "shape": "diamond", "size": 90},
    "own": {"color": HUES[3], "shape": "square", "size": 90},
    "best": {"color": HUES[1], "shape": "triangle-up", "size": 130},
    "other": {"color": GREY, "shape": "circle", "size": 40},
}
_PLACEMENT: dict[str, Spec] = {
    "right": {"align": "left", "dx": 10, "dy": 1},
    "left": {"align": "right", "dx": -10, "dy": 1},
    "above": {"align": "center", "dy": -15},
    "below": {"align": "center", "dy": 17},
    "above left": {"align": "right", "dx": -6, "dy": -12},
    "below right": {"align": "left", "dx": 6, "dy": 13},
    "above right": {"align": "left", "dx": 6, "dy": -12},
    "below left": {"align": "right", "dx": -6, "dy": 13},
}


class Marked(NamedTuple):
    """A point with its name; kind : decides colour, shape and whose name goes first where room is short."""

    x: float
    y: float
    label: str
    kind: Kind
    tip: str


@dataclass(frozen=True, slots=True)
class MarkedCurve:
    """What is drawn: a line (may be empty), named points, and dashed rules. All values are above 0."""

    line: Sequence[tuple[float, float]]
    marked: Sequence[Marked]
    rules: Sequence[Rule] = ()


class _Span(NamedTuple):
    low: float
    high: float
    log: bool

    def share(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def encoding(self, field: str, title: str) -> Spec:
        ticks = {"values": log_ticks([self.low, self.high])} if self.log else {}
        scale = {"type": "log" if self.log else "linear", "domain": [self.low, self.high], "nice": False}
        if not self.log:
            scale["zero"] = False  # the domain says where the axis starts; a rule's layer would pull zero into it
        return number(field, scale=scale, axis=axis(f"{title}{', log scale' if self.log else ''}", **ticks))


def marked_curve(title: str, axes: tuple[Axis, Axis], shown: MarkedCurve) -> Figure:
    """Return the chart; title : the finding in one sentence."""
    x_span = _span(axes[0], [x for x, _ in shown.line] + [each.x for each in shown.marked], _along(shown.rules, "x"))
    y_span = _span(axes[1], [y for _, y in shown.line] + [each.y for each in shown.marked], _along(shown.rules, "y"))
    x, y = x_span.encoding("x", axes[0].title), y_span.encoding("y", axes[1].title)
    layers: list[Spec] = []
    for rule in shown.rules:
        share = (x_span if rule.axis == "x" else y_span).share(rule.value)
        if 0.0 <= share <= 1.0:
            before = rule.axis == "x" and share > _RULE_AT_EDGE
            layers += target_rule(rule.value, rule.label, axis_name=rule.axis, before=before)
    if shown.line:
        mark = {"type": "line", "color": GREY, "strokeWidth": 1.5, "clip": True}
        layers.append(
            layer([{"x": px, "y": py, "order": i} for i, (px, py) in enumerate(shown.line)], mark, x=x, y=y, order=number("order"))
        )
    tip = tooltip({"label": "Point", "x_text": axes[0].title, "y_text": axes[1].title, "tip": "What it is"})
    for each in sorted(shown.marked, key=lambda each: -_PRIORITY.index(each.kind)):
        row = {"x": each.x, "y": each.y, "label": each.label, "tip": each.tip, "x_text": written(each.x), "y_text": written(each.y)}
        encoding: Spec = {"x": x, "y": y, "tooltip": tip}
        layers.append(layer([row], {"type": "point", "filled": True, "opacity": 1, **_LOOKS[each.kind]}, **encoding))
    for each, place in _named(shown, (x_span, y_span)):
        mark = text(**_PLACEMENT[place], fontWeight=700 if each.kind in {"best", "own"} else 400)
        layers.append(layer([{"x": each.x, "y": each.y, "label": each.label}], mark, x=x, y=y, text=name("label")))
    return figure(layers, HEIGHT, title)


def _span(shown: Axis, values: Sequence[float], ruled: Sequence[float]) -> _Span:
    """Return what an axis covers: its points and its rules; logarithmic where a rule lies far off."""
    low, high = min(values), max(values)
    near = [value for value in ruled if value <= _FAR * high]
    far = any(value > _NEAR * high for value in near)
    high = max([high, *near])
    if shown.log or (shown.log is None and (far or high / low >= LOG_FROM_RATIO)):
        return _Span(min([low, *near]) / _LOG_ROOM, high * _LOG_ROOM, log=True)
    if not shown.zero:
        low = min([low, *near])
        room = (_ROOM - 1.0) * ((high - low) or high)
        return _Span(max(low - room, 0.0), high + room, log=False)
    return _Span(0.0, high * _ROOM, log=False)


def _ruled(rules: Sequence[Rule], spans: tuple[_Span, _Span]) -> list[tuple[float, float]]:
    """Return points along the rules [px]."""
    points: list[tuple[float, float]] = []
    for rule in rules:
        share = spans[rule.axis == "y"].share(rule.value)
        along = [step * _RULE_STEP_PX for step in range(int(_ASSUMED_WIDTH_PX / _RULE_STEP_PX))]
        if rule.axis == "x":
            points += [(share * _ASSUMED_WIDTH_PX, y) for y in along]
        else:
            points += [(x, HEIGHT * (1.0 - share)) for x in along]
    return points


def _along(rules: Sequence[Rule], axis_name: str) -> list[float]:
    return [rule.value for rule in rules if rule.axis == axis_name]


def _named(shown: MarkedCurve, spans: tuple[_Span, _Span]) -> list[tuple[Marked, str]]:
    """Return the points whose name fits, each with its side; names cover neither points nor the line's own points."""

    def pixels(x: float, y: float) -> tuple[float, float]:
        return spans[0].share(x) * _ASSUMED_WIDTH_PX, HEIGHT * (1.0 - spans[1].share(y))

    order = sorted((each for each in shown.marked if each.label), key=lambda each: _PRIORITY.index(each.kind))
    marks = [pixels(each.x, each.y) for each in shown.marked]
    line = [pixels(x, y) for x, y in shown.line]
    taken = marks + [point for point in line if all(math.dist(point, mark) > _BESIDE_MARK_PX for mark in marks)]
    spots = [Spot(*pixels(each.x, each.y), each.label) for each in order]
    found = placed(spots, taken, (_ASSUMED_WIDTH_PX, HEIGHT), (*PLACES, *DIAGONAL_PLACES), _ruled(shown.rules, spans))
    return [(each, place) for each, place in zip(order, found, strict=True) if place is not None]
