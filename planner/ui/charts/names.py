"""Where the names of curves, points and rules go, so that none covers a curve, a dot, a rule or another name.

A name stays where its view wants it as long as nothing lies there. Else the side and the point along the curve with the least under
it is taken. The browser decides how wide a chart is: a wide window counts, and a narrow one a little.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.ui.charts.labels import CHARACTER_PX, LINE_PX

Floats = npt.NDArray[np.float64]
Boxes = list[tuple[float, float, float, float]]

_NEAR_PX = {"above right": (9, -8), "below right": (9, 13), "above left": (-9, -8), "below left": (-9, 13)}
_FAR_PX = {"far above right": (6, -23), "far below right": (6, 28), "far above left": (-6, -23), "far below left": (-6, 28)}
OFFSETS_PX = {**_NEAR_PX, **_FAR_PX}
"""From a point to the near end of its name, and to the name's base line [px]; far ones are for where curves lie close together."""
ABOVE_BASELINE_PX, NAME_PX = 10.0, 14.0
WIDTHS_PX = (390.0, 860.0)
_WEIGHTS = (0.2, 1.0)
_ALONG = tuple(step / 24.0 for step in range(24, -1, -1))
_APART_PX = 4.0
_DOT_PX = 5.0
_PER_NAME, _PER_DOT, _PER_LINE, _OUTSIDE, _MOVED, _FAR = 30.0, 12.0, 4.0, 20.0, 0.1, 0.5
_BETWEEN, _MERGED = 1.5, 5.0
_BELOW = {10.0: 5.0, 5.0: 2.0, 2.0: 1.0}


class Scale(NamedTuple):
    """An axis: its ends in the data's unit; log: logarithmic."""

    low: float
    high: float
    log: bool

    def share(self, values: Floats) -> Floats:
        """Return how far along the axis values lie, from 0 at its low end to 1 at its high end [1]."""
        if self.log:
            low, high, values = math.log(self.low), math.log(self.high), np.log(np.maximum(values, self.low))
        else:
            low, high = self.low, self.high
        return np.asarray((values - low) / ((high - low) or 1.0), dtype=np.float64)


def scale_of(values: Sequence[float], *, log: bool, zero: bool = True) -> Scale:
    """Return an axis over values as Vega draws it: to round steps, or the values' own range for a logarithm.

    zero : a linear axis starts at zero
    """
    if log:
        positive = [value for value in values if value > 0.0]
        return Scale(min(positive, default=1.0), max(positive, default=10.0), log=True)
    ends = [0.0] if zero or not values else []
    low, high = min([*values, *ends]), max([*values, *ends])
    if high <= low:
        return Scale(0.0, 1.0, log=False)
    step = 0.0
    while (wider := _round_step(high - low)) > step:
        step = wider
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(low, high, log=False)


def _round_step(span: float) -> float:
    """Return the step of about ten round ones over a span, as d3-array's `tickIncrement` chooses it.

    >>> _round_step(53.4), _round_step(97.0)
    (5.0, 10.0)
    """
    decade = 10.0 ** math.floor(math.log10(span / 10.0))
    error = span / 10.0 / decade
    return decade * next((factor for factor in (10.0, 5.0, 2.0) if error >= math.sqrt(factor * _BELOW[factor])), 1.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A curve, a point or a rule with its name.

    x, y : of its points, as shares of the axes from the bottom left [1]; dots : it is drawn as dots alone
    at, place : where its view wants the name: along the points from 0 to 1 [1], and on which side
    """

    name: str
    x: Floats
    y: Floats
    dots: bool
    at: float
    place: str


class Spot(NamedTuple):
    """Where a name goes: number of the point, and side of it."""

    point: int
    place: str


def name_spots(lines: Sequence[Line], height_px: float) -> list[Spot]:
    """Return where the name of each line goes, the first ones first; lines have points.

    height_px : of the plot, without its axes
    """
    under = [_pixels(lines, width, height_px) for width in WIDTHS_PX]
    found = []
    for line in lines:
        best, least = Spot(0, line.place), math.inf
        for tried, spot in enumerate(_wanted_first(line)):
            cost = sum(weight * view.cost(line, spot, height_px) for weight, view in zip(_WEIGHTS, under, strict=True))
            cost += _MOVED * min(tried, 1) + _FAR * (spot.place in _FAR_PX) + 1e-3 * tried
            if cost < least:
                best, least = spot, cost
            if least == 0.0:
                break
        found.append(best)
        for view in under:
            view.taken.append(view.box(line, best, height_px))
    return found


def _index(line: Line, at: float) -> int:
    return int((len(line.x) - 1) * at)


def _wanted_first(line: Line) -> Iterator[Spot]:
    near = [line.place, *(place for place in _NEAR_PX if place != line.place)]
    for sides in (near, list(_FAR_PX)):
        for at in (line.at, *_ALONG):
            for place in sides:
                yield Spot(_index(line, at), place)


@dataclass(slots=True)
class _View:
    """A chart at one width: pixels of its lines and dots by curve, and the boxes that are taken [px]."""

    width_px: float
    lines: list[tuple[Floats, Floats]]
    dots: tuple[Floats, Floats]
    taken: Boxes

    def box(self, line: Line, spot: Spot, height_px: float) -> tuple[float, float, float, float]:
        """Return the box of a name: left, top, right and bottom [px]."""
        x, y = line.x[spot.point] * self.width_px, (1.0 - line.y[spot.point]) * height_px
        return _box(line.name, (float(x), float(y)), spot.place)

    def cost(self, line: Line, spot: Spot, height_px: float) -> float:
        """Return what lies under a name, weighted."""
        box = self.box(line, spot, height_px)
        left, top, right, bottom = box
        cost = _PER_NAME * sum(_meet(box, other) for other in self.taken)
        cost += _OUTSIDE * (left < 0.0 or top < -LINE_PX - 1.0 or right > self.width_px or bottom > height_px)
        cost += _PER_DOT * int(_inside(self.dots, box, _DOT_PX).sum())
        if spot.place in _FAR_PX:  # a curve between a name and its own curve may seem to be the one that is named
            y = (1.0 - float(line.y[spot.point])) * height_px
            between = (left, bottom, right, y - 1.0) if y > bottom else (left, y + 1.0, right, top)
            cost += _BETWEEN * sum(bool(_inside(each, between, 0.0).any()) for each in self.lines)
        cost += _MERGED * self._beside(line, spot, height_px)
        return float(cost + _PER_LINE * sum(bool(_inside(each, box, 0.0).any()) for each in self.lines))

    def _beside(self, line: Line, spot: Spot, height_px: float) -> int:
        """Return how many other curves pass where a curve's name would stand: there it could name any of them."""
        if line.dots or len(line.x) == 1:
            return 0
        x, y = float(line.x[spot.point]) * self.width_px, (1.0 - float(line.y[spot.point])) * height_px
        here = (x, y, x, y)
        return max(0, sum(bool(_inside(each, here, _APART_PX).any()) for each in self.lines) - 1)


def _pixels(lines: Sequence[Line], width_px: float, height_px: float) -> _View:
    drawn, dots = [], [(np.empty(0), np.empty(0))]
    for line in lines:
        x, y = line.x * width_px, (1.0 - line.y) * height_px
        if line.dots or len(x) == 1:
            dots.append((x, y))
        else:
            passed = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
            places = np.linspace(0.0, passed[-1], int(passed[-1] / _APART_PX) + 2)
            drawn.append((np.interp(places, passed, x), np.interp(places, passed, y)))
    return _View(width_px, drawn, (np.concatenate([x for x, _ in dots]), np.concatenate([y for _, y in dots])), [])


def _box(text: str, at_px: tuple[float, float], place: str) -> tuple[float, float, float, float]:
    right_px, down_px = OFFSETS_PX[place]
    wide = CHARACTER_PX * len(text)
    left = at_px[0] + right_px - (wide if right_px < 0 else 0.0)
    top = at_px[1] + down_px - ABOVE_BASELINE_PX
    return (left, top, left + wide, top + NAME_PX)


def _inside(points: tuple[Floats, Floats], box: tuple[float, float, float, float], reach_px: float) -> npt.NDArray[np.bool_]:
    (x, y), (left, top, right, bottom) = points, box
    return (x > left - reach_px) & (x < right + reach_px) & (y > top - reach_px) & (y < bottom + reach_px)


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
