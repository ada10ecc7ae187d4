"""How far a plan has come: a function that the caller gives, told at each stage; by raising, it gives the plan up."""

from collections.abc import Callable

Tell = Callable[[str, float], None]
"""Told what is being done and which share of the whole is done [1]."""


def silent(_text: str, _share: float) -> None:
    """Tell nobody."""


def within(tell: Tell, start: float, end: float) -> Tell:
    """Return a function for a part of the work that lies between two shares of the whole [1]."""
    return lambda text, share: tell(text, start + (end - start) * share)
