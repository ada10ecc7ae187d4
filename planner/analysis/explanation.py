"""How a result explains itself: the answer in one sentence, the formula with its numbers, the setting to change."""

from typing import NamedTuple


class Explanation(NamedTuple):
    """What a view shows around a figure.

    answer : one sentence with the figure in it
    formula : the formula with the numbers put in
    setting : what to set, in the engine's own words or as a rule
    """

    answer: str
    formula: str
    setting: str
