"""Independent simulations on all cores: the simulator's loop runs outside the interpreter's lock."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Out = TypeVar("Out")


def in_parallel(function: Callable[[Item], Out], items: Iterable[Item]) -> list[Out]:
    """Return function(item) for each item, in their order.

    >>> in_parallel(lambda n: n * n, [1, 2, 3])
    [1, 4, 9]
    """
    work = list(items)
    if len(work) < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(function, work))
