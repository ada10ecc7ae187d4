"""How far a plan has come: a function that the caller gives, told at each stage; by raising, it gives the plan up."""

from collections.abc import Callable

Tell = Callable[[str, float], None]
"""Told what is being done and which share of the whole is done [1]."""


Check = Callable[[], None]
"""Called between simulations; by raising, it gives the plan up within a long stage."""


def unchecked() -> None:
    """Never give up."""


def silent(_text: str, _share: float) -> None:
    """Tell nobody."""


def within(tell: Tell, start: float, end: float) -> Tell:
    """Return a function for a part of the work that lies between two shares of the whole [1]."""
    return lambda text, share: tell(text, start + (end - start) * share)


def with_check(tell: Tell) -> tuple[Tell, Check]:
    """Return a function to tell stages to, and one that tells the latest of them again, so that a plan can end within a stage.

    >>> said = []
    >>> tell, check = with_check(lambda text, share: said.append((text, share)))
    >>> tell("Simulating", 0.5)
    >>> check()
    >>> said
    [('Simulating', 0.5), ('Simulating', 0.5)]
    """
    latest: list[tuple[str, float]] = []

    def noted(text: str, share: float) -> None:
        latest[:] = [(text, share)]
        tell(text, share)

    def again() -> None:
        if latest:
            tell(*latest[0])

    return noted, again
