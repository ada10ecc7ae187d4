"""Independent simulations on all cores: the simulator's loop runs outside the interpreter's lock."""

import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

Item = TypeVar("Item")
Out = TypeVar("Out")
Other = TypeVar("Other")


def in_parallel(function: Callable[[Item], Out], items: Iterable[Item]) -> list[Out]:
    """Return function(item) for each item, in their order.

    The calling thread works too, beside threads that are kept from call to call. So a call from within a call ends even when no
    other thread is free. The first error that is met ends the work on items not begun, and is raised.

    >>> in_parallel(lambda n: n * n, [1, 2, 3])
    [1, 4, 9]
    """
    work = list(items)
    found: dict[int, Out] = {}
    places = itertools.count()

    def take() -> None:
        try:
            while (place := next(places)) < len(work):
                found[place] = function(work[place])
        except BaseException:
            for _ in work:
                next(places)
            raise

    others = [_threads().submit(take) for _ in range(min(_cores(), len(work)) - 1)]
    try:
        take()
    finally:
        begun = [other for other in others if not other.cancel()]
        errors = [error for other in begun if (error := other.exception()) is not None]
    if errors:
        raise errors[0]
    return [found[place] for place in range(len(work))]


def together(first: Callable[[], Out], second: Callable[[], Other]) -> tuple[Out, Other]:
    """Return what two functions return, run at the same time.

    >>> together(lambda: 1, lambda: "b")
    (1, 'b')
    """
    ones: list[Out] = []
    others: list[Other] = []

    def run(place: int) -> None:
        if place == 0:
            ones.append(first())
        else:
            others.append(second())

    in_parallel(run, (0, 1))
    return ones[0], others[0]


@lru_cache(maxsize=1)
def _cores() -> int:
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(_cores() - 1, 1), thread_name_prefix="simulation")
