"""What is to come before an engine's door: first tries, later ones, and clients whose patience ends."""

import heapq
import math
from collections import deque
from itertools import count
from typing import NamedTuple

GIVE_UP, COME, COME_AGAIN = 0, 1, 2


class Event(NamedTuple):
    """Something to come: a try of the request at a position, or the client of the try at a place gives up."""

    at_s: float
    kind: int
    what: int
    number: int


class Agenda:
    """What is to come. First tries and clients' patience come in order of time, so that only later tries need a heap.

    Of what comes at one instant, giving up is first, then first tries, then later ones as they were foreseen.
    """

    def __init__(self, arrival_s: list[float]) -> None:
        self._arrival_s = arrival_s
        self._arrived = 0
        self._again: list[tuple[float, int, int, int]] = []
        self._leaving: deque[Event] = deque()
        self._sequence = count()

    def come_again(self, at_s: float, position: int, number: int) -> None:
        """Foresee another try of a request."""
        heapq.heappush(self._again, (at_s, next(self._sequence), position, number))

    def give_up(self, at_s: float, place: int, number: int) -> None:
        """Foresee the end of a client's patience; not before any that was foreseen earlier."""
        self._leaving.append(Event(at_s, GIVE_UP, place, number))

    def peek(self) -> Event | None:
        """Return what comes next; None when nothing does."""
        at_s = self._arrival_s[self._arrived] if self._arrived < len(self._arrival_s) else math.inf
        again_s = self._again[0][0] if self._again else math.inf
        if self._leaving and self._leaving[0].at_s <= at_s and self._leaving[0].at_s <= again_s:
            return self._leaving[0]
        if again_s < at_s:
            again = self._again[0]
            return Event(again_s, COME_AGAIN, again[2], again[3])
        return None if at_s == math.inf else Event(at_s, COME, self._arrived, 0)

    def drop(self, event: Event) -> None:
        """Strike out what `peek` has returned."""
        if event.kind == COME:
            self._arrived += 1
        elif event.kind == GIVE_UP:
            self._leaving.popleft()
        else:
            heapq.heappop(self._again)
