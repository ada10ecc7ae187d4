"""What every question's view shows beside its charts: figures by formula and by simulation, side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from planner.ui.words import DASH


class Beside(NamedTuple):
    """One figure twice, as text with units: by its closed form, and simulated; None where there is none.

    note : where they part and why, or what assumption holds
    """

    figure: str
    formula: str | None
    simulated: str | None
    note: str = ""


def beside_frame(rows: Sequence[Beside]) -> pd.DataFrame:
    """Return the comparison as a table."""
    return pd.DataFrame(
        {
            "Figure": [row.figure for row in rows],
            "By formula": [row.formula or DASH for row in rows],
            "Simulated": [row.simulated or DASH for row in rows],
        }
    )
