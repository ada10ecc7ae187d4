"""What every question's view shows beside its charts: figures by formula and by simulation, side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from planner.analysis.case import Case
from planner.ui.words import DASH, rate

FORMER_TITLES = {
    "Adaptive budget": "Adaptive",
    "Adaptive budget?": "Adaptive",
    "Budget against load": "Budget by load",
    "Has the traffic drifted?": "Traffic drifted?",
    "Static or continuous?": "Why continuous?",
    "What is goodput?": "Goodput",
    "Which knob binds?": "What binds?",
    "Which token budget?": "Token budget",
}
"""What a view is called now, by the title that links of earlier releases name it by."""


class Beside(NamedTuple):
    """One figure twice, as text with units: by its closed form, and simulated; None where there is none.

    note : where they part and why, or what assumption holds
    """

    figure: str
    formula: str | None
    simulated: str | None
    note: str = ""


def beside_frame(rows: Sequence[Beside]) -> pd.DataFrame:
    """Return the comparison as a table; without the formula's column where no figure has a closed form."""
    columns = {
        "Figure": [row.figure for row in rows],
        "By formula": [row.formula or DASH for row in rows],
        "Simulated": [row.simulated or DASH for row in rows],
    }
    if not any(row.formula for row in rows):
        del columns["By formula"]
    return pd.DataFrame(columns)


def asked_of(case: Case, *, answered: bool) -> str:
    """Return whose question it is: the replica with its settings and its load.

    answered : whether the plan has an answer; without one the replica is that of the candidate that comes nearest
    """
    limits = case.limits
    replica = (
        f"Asked of one replica, {case.label}, with max_num_seqs {limits.max_num_seqs:,}, max_num_batched_tokens "
        f"{limits.max_num_batched_tokens:,} and {rate(case.rate_rps)}."
    )
    if answered:
        return replica
    return f"No layout meets the scenario's targets. {replica} It comes nearest, and is given the whole load."
