"""What the compiled loop of clients keeps in memory: one tuple of arrays, and the names of their elements and rows."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.simulator.forecast import Forecast
from planner.simulator.layout import Floats, Ints, Shorts

Masks = npt.NDArray[np.bool_]

# Elements of `h`, the whole numbers: first what was set
RULE = 0
BOUND = 1
FAILING = 2
FORETELLS = 3  # 1: there is a forecast
RETRY = 4
MOST_TRIES = 5
GIVES_UP = 6  # 1: clients who lose patience come back
# then what has happened
ARRIVED = 7  # first tries that have come
TRIES = 8
INSIDE = 9  # places taken: tries let in so far
FIRST = 10  # all places before it are over
LEAVING = 11  # the place whose client's patience ends next
HEAPED = 12
FORESEEN = 13  # later tries foreseen so far
DRAWN = 14
H_SIZE = 15

# Elements of `x`, the real numbers
DELAY = 0
PATIENCE = 1  # inf: without end
DEADLINE = 2  # inf: none
X_SIZE = 3

# Values of RULE
OPEN = 0
REQUESTS = 1
TOKENS = 2
PREDICTED = 3

# Values of FAILING
REJECT = 0
QUEUE = 1
BATCH_CLASS = 2

# Values of RETRY
NEVER = 0
FIXED = 1
EXPONENTIAL = 2
AS_TOLD = 3

# Rows of `tries`
POSITION = 0
NUMBER = 1
FATE = 2
PLACE = 3
RANK = 4
FAILED = 5
TRY_ROWS = 6

# Values of FATE
SERVED = 0
REJECTED = 1
DROPPED = 2

# Rows of `again`
FORESEEN_AS = 0
AGAIN_POSITION = 1
AGAIN_NUMBER = 2
AGAIN_ROWS = 3


class Doorway(NamedTuple):
    """All arrays of what stands before one engine.

    h, x : whole and real numbers, see above
    forecast : what "predicted" and Retry-After go by; empty where FORETELLS is 0
    off_by : factor on each request's prediction [1]; arrival_s : first tries [s]; asked : rows of `layout`, both by position
    tries, sent_s : tries as they came [s]; try_of : of each place
    gone, left : places dropped at the deadline; places whose client gave up
    again, again_s : heap of later tries [s]
    draws : jitter still to be drawn [1]
    """

    h: Ints
    x: Floats
    forecast: Forecast
    off_by: Floats
    arrival_s: Floats
    asked: Shorts
    tries: Ints
    sent_s: Floats
    try_of: Ints
    gone: Masks
    left: Masks
    again: Ints
    again_s: Floats
    draws: Floats
