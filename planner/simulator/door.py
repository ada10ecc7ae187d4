"""What the door of an engine sees of it, compiled: it is asked for each request that comes."""

import numpy as np
import numpy.typing as npt

from planner.simulator import layout as n
from planner.simulator.compiled import entry
from planner.simulator.layout import Floats, Ints, Shorts

Masks = npt.NDArray[np.bool_]
Places = tuple[int, int]


@entry
def look_inside(g: Ints, times: Floats, asked: Shorts, gone: Masks, span: Places, at_s: float) -> tuple[int, int, int, int]:  # noqa: PLR0913, PLR0917
    """Return what has happened by at_s [s] to those let in, from place span[0] to span[1].

    The first place that isn't over; how many of the others aren't, without lower priorities that wait; how many of them decode; and
    the prompts of those that wait for their first token [token].
    """
    first = span[0]
    unended = 0
    decoding = 0
    prompts = 0
    for place in range(span[0], span[1]):
        if times[n.FINISH, place] <= at_s or gone[place]:
            if place == first:
                first += 1
        elif times[n.FIRST_TOKEN, place] <= at_s:
            unended += 1
            decoding += 1
        elif g[n.PRIORITY] == 0 or asked[n.RANK, place] <= 0:
            unended += 1
            prompts += asked[n.PROMPT, place]
    return first, unended, decoding, prompts
