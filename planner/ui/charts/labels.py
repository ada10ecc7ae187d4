"""Where labels go on a scatter, so that none covers another: tried right, left, above and below of its point, then left out."""

from collections.abc import Sequence
from dataclasses import dataclass

CHARACTER_PX = 6.6
LINE_PX = 15.0
GAP_PX = 11.0
DIAGONAL_PX = 5.0
PLACES = ("right", "left", "above", "below")
DIAGONAL_PLACES = ("above left", "below right", "above right", "below left")


@dataclass(frozen=True, slots=True)
class Spot:
    """A point with its label, in pixels from the top left."""

    x: float
    y: float
    text: str


Box = tuple[float, float, float, float]


def placed(
    spots: Sequence[Spot],
    points: Sequence[tuple[float, float]],
    size: tuple[float, float],
    places: Sequence[str] = PLACES,
    rules: Sequence[tuple[float, float]] = (),
) -> list[str | None]:
    """Return the place of each label, None where there is no room.

    spots : the labels, the most important first
    points : every mark of the chart; a label covers none of them
    size : width and height of the plot
    places : which sides may be tried, in this order
    rules : points of dashed lines; a label covers one only where it would be left out otherwise
    """
    width, height = size
    marks: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    taken: list[Box] = []
    found: list[str | None] = []
    for spot in spots:
        own = (spot.x - 6, spot.y - 6, spot.x + 6, spot.y + 6)
        others = [box for box in marks if box != own] + taken
        free = [
            name
            for name in places
            if _inside(box := _box(spot, name), width, height) and not any(_meet(box, other) for other in others)
        ]
        clear = [name for name in free if not any(_meet(_box(spot, name), (x - 2, y - 2, x + 2, y + 2)) for x, y in rules)]
        place = next(iter((*clear, *free)), None)
        found.append(place)
        if place is not None:
            taken.append(_box(spot, place))
    return found


def _box(spot: Spot, place: str) -> Box:
    wide = CHARACTER_PX * len(spot.text)
    gap = DIAGONAL_PX if place in DIAGONAL_PLACES else GAP_PX
    left = spot.x - wide / 2
    if place.endswith("right"):
        left = spot.x + gap
    elif place.endswith("left"):
        left = spot.x - gap - wide
    top = spot.y - LINE_PX / 2
    if place.startswith("above"):
        top = spot.y - gap - LINE_PX
    elif place.startswith("below"):
        top = spot.y + gap
    return (left, top, left + wide, top + LINE_PX)


def _inside(box: Box, width: float, height: float) -> bool:
    return box[0] >= 0.0 and box[1] >= -LINE_PX and box[2] <= width and box[3] <= height + LINE_PX / 2


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
