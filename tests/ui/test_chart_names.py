"""Names of curves: they stay where they are wanted while nothing lies there, and cover nothing they needn't."""

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.ui.charts.curves import AXES_PX, HEIGHT, Axis, Curve, Mark, Rule, curves
from planner.ui.charts.labels import CHARACTER_PX
from planner.ui.charts.names import ABOVE_BASELINE_PX, NAME_PX, OFFSETS_PX, WIDTHS_PX, Line, Spot, name_spots, scale_of

LINEAR = Axis("x", log=False), Axis("y", log=False)
ACROSS = np.linspace(0.0, 1.0, 41)
WEDGE = (("upper", 105.0, 140.0), ("lower", 95.0, 60.0))


def line(name: str, y: np.ndarray, at: float = 1.0, place: str = "above left", *, dots: bool = False) -> Line:
    return Line(name, ACROSS, y, dots, at, place)


def box(one: Line, spot: Spot, width: float) -> tuple[float, float, float, float]:
    right, down = OFFSETS_PX[spot.place]
    wide = CHARACTER_PX * len(one.name)
    left = float(one.x[spot.point]) * width + right - (wide if right < 0 else 0.0)
    top = (1.0 - float(one.y[spot.point])) * HEIGHT + down - ABOVE_BASELINE_PX
    return left, top, left + wide, top + NAME_PX


def apart(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_a_name_stays_where_it_is_wanted_while_nothing_lies_there() -> None:
    rising = line("rising", ACROSS * 0.8)
    assert name_spots([rising], HEIGHT) == [Spot(40, "above left")]


@pytest.mark.parametrize("at", [0.0, 0.1, 0.2])
def test_a_name_stands_where_its_curve_lies_alone(at: float) -> None:
    together = np.full_like(ACROSS, 0.2)
    leaving = np.where(ACROSS > 0.4, 0.2 + (ACROSS - 0.4), 0.2)
    _, spot = name_spots([line("stays", together), line("leaves", leaving, at)], HEIGHT)
    assert ACROSS[spot.point] > 0.4


@pytest.mark.parametrize("place", list(OFFSETS_PX))
@pytest.mark.parametrize("shape", ["falling", "rising", "peak"])
def test_a_name_doesnt_lie_on_its_own_line(shape: str, place: str) -> None:
    y = {"falling": 0.9 - 0.8 * ACROSS, "rising": 0.1 + 0.8 * ACROSS, "peak": 0.9 - 3.2 * (ACROSS - 0.5) ** 2}[shape]
    one = line("best K of each", y, 0.5, place)
    (spot,) = name_spots([one], HEIGHT)
    fine = np.linspace(0.0, 1.0, 2000)
    for width in WIDTHS_PX:
        left, top, right, bottom = box(one, spot, width)
        xs, ys = fine * width, (1.0 - np.interp(fine, ACROSS, y)) * HEIGHT
        assert not ((xs > left) & (xs < right) & (ys > top) & (ys < bottom)).any()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.05, 0.95), min_size=2, max_size=4), st.sampled_from(list(OFFSETS_PX)))
def test_names_of_curves_that_end_together_lie_apart(starts: list[float], place: str) -> None:
    lines = [line(f"departure {index}", start + (0.9 - start) * ACROSS, 1.0, place) for index, start in enumerate(starts)]
    spots = name_spots(lines, HEIGHT)
    for width in WIDTHS_PX:
        boxes = [box(one, spot, width) for one, spot in zip(lines, spots, strict=True)]
        assert all(apart(a, b) for a, b in pairwise(boxes))


def test_a_name_between_close_curves_goes_further_off() -> None:
    close = [
        line("this curve's long name", 0.40 + 0.3 * ACROSS),
        line("another", 0.37 + 0.3 * ACROSS),
        line("third", 0.43 + 0.3 * ACROSS),
    ]
    spot = name_spots(close, HEIGHT)[0]
    assert spot.place.startswith("far")
    left, top, right, bottom = box(close[0], spot, WIDTHS_PX[-1])
    fine = np.linspace(0.0, 1.0, 2000)
    for one in close:
        xs, ys = fine * WIDTHS_PX[-1], (1.0 - np.interp(fine, ACROSS, one.y)) * HEIGHT
        assert not ((xs > left) & (xs < right) & (ys > top) & (ys < bottom)).any()


def test_dots_cover_no_name() -> None:
    crowd = line("many dots", np.full(41, 0.5), 0.0, "above right", dots=True)
    other = line("others", np.full(41, 0.5) + 0.03, 0.0, "above right", dots=True)
    target = Line("target 1 s", np.array([0.0, 1.0]), np.array([0.6, 0.6]), dots=False, at=0.0, place="above right")
    spots = name_spots([target, crowd, other], HEIGHT)[1:]
    for width in WIDTHS_PX:
        for one, spot in zip((crowd, other), spots, strict=True):
            left, top, right, bottom = box(one, spot, width)
            for dots in (crowd, other):
                x, y = dots.x * width, (1.0 - dots.y) * HEIGHT
                assert not ((x > left) & (x < right) & (y > top) & (y < bottom)).any()


@pytest.mark.parametrize(
    ("values", "log", "ends"),
    [
        ([3.0, 97.0], False, (0.0, 100.0)),
        ([-5.0, 5.0], False, (-5.0, 5.0)),
        ([53.4], False, (0.0, 55.0)),
        ([1_742.0], False, (0.0, 1_800.0)),
        ([0.0], False, (0.0, 1.0)),
        ([2.0, 64.0], True, (2.0, 64.0)),
    ],
)
def test_an_axis_ends_where_vega_ends_it(values: list[float], log: bool, ends: tuple[float, float]) -> None:
    assert scale_of(values, log=log)[:2] == pytest.approx(ends)


def names(spec: Any) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for each in json.loads(json.dumps(spec))["layer"]:
        rows = each["data"]["values"]
        if each["mark"]["type"] == "text" and "series" in rows[0]:
            found.append((rows[0]["series"], each["mark"]))
    return found


def test_a_chart_names_each_curve_once_and_draws_none_without_points() -> None:
    points = [(float(x), float(x)) for x in range(10)]
    drawn = [Curve("one", points), Curve("none", []), Curve("same", points), Curve("dots", points, dots=True)]
    chart = curves("A finding", LINEAR, drawn, [Rule("y", 5.0, "target"), Rule("x", 4.0, "now")], [Mark(3.0, 3.0, "here")])
    assert [name for name, _ in names(chart.spec)] == ["one", "same", "dots"]
    for bad in ([(1.0, 1.0)], [(1.0, 0.0), (2.0, 0.0)]):
        assert names(curves("A finding", LINEAR, [Curve("one", bad)]).spec)


def text_marks(spec: Any, label: str) -> list[dict[str, Any]]:
    layers = json.loads(json.dumps(spec))["layer"]
    return [each for each in layers if each["mark"]["type"] == "text" and each["data"]["values"][0].get("label") == label]


def test_a_rule_is_named_at_the_end_where_no_curve_runs() -> None:
    near_left = Curve("falling", [(x / 50.0, 100.0 * math.exp(-x / 8.0) + 20.0) for x in range(51)])
    (free,) = text_marks(curves("A finding", LINEAR, [near_left], [Rule("y", 130.0, "target 130")]).spec, "target 130")
    assert free["encoding"]["x"] == {"value": 0}
    both = [Curve(name, [(x / 50.0, near if x < 25 else far) for x in range(51)]) for name, near, far in WEDGE]
    (moved,) = text_marks(curves("A finding", LINEAR, both, [Rule("y", 100.0, "target 100")]).spec, "target 100")
    assert (moved["encoding"]["x"], moved["mark"]["dx"] < 0) == ({"value": "width"}, True)
    late = curves("A finding", LINEAR, [near_left], [Rule("x", 1.0, "a bound at the right edge")])
    (before,) = text_marks(late.spec, "a bound at the right edge")
    assert before["mark"]["align"] == "right"


def test_what_a_mark_says_leaves_the_curve_that_it_would_cover() -> None:
    rising = [(float(x), float(x)) for x in range(51)]
    chart = curves("A finding", LINEAR, [Curve("rising", rising)], marks=[Mark(25.0, 25.0, "a best batch", place="below left")])
    (label,) = text_marks(chart.spec, "a best batch")
    assert (label["mark"]["align"], label["mark"]["dy"] > 0) in {("right", False), ("left", True)}


def test_no_name_stands_on_a_rule() -> None:
    flat = Line("just above the target", ACROSS, np.full(41, 0.5), dots=False, at=1.0, place="above left")
    rule = Line("target", np.array([0.0, 1.0]), np.array([0.53, 0.53]), dots=False, at=0.0, place="above right")
    assert name_spots([rule, flat], HEIGHT - AXES_PX)[1].place.startswith("below")


def test_an_axis_without_zero_starts_at_its_values() -> None:
    shown = Axis("x", log=False), Axis("share", log=False, zero=False)
    spec = json.loads(json.dumps(curves("A finding", shown, [Curve("one", [(0.0, 90.0), (1.0, 95.0)])]).spec))
    assert spec["layer"][0]["encoding"]["y"]["scale"] == {"zero": False, "nice": True}
    assert scale_of([90.0, 95.0], log=False, zero=False)[:2] == pytest.approx((90.0, 95.0))
