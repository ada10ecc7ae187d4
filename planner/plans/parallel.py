"""Several simulations at once."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Out = TypeVar("_Out")


def in_parallel(function: Callable[[_Item], _Out], items: Iterable[_Item]) -> list[_Out]:
    """Return function(item) for each item, on all cores: the simulator's loop runs outside the interpreter's lock."""
    work = list(items)
    if len(work) < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(function, work))
