"""The Accuracy page's recorded engine in words and a table: its runs, and what its machine's drift costs any prediction."""

import pandas as pd

from planner.accuracy.shipped import ShippedRun
from planner.ui.views.calibrate_fit import signed
from planner.ui.words import percent, plural, span


def _pct(value: float) -> str:
    return percent(value / 100.0)


def run_sentence(run: ShippedRun) -> str:
    """Return how far the means of the runs lie off, as predicted and once steps follow the machine."""
    worst = max(abs(value) for phase in run.phases for value in (phase.ttft_pct, phase.tpot_pct, phase.e2e_pct))
    followed = max(phase.at_drift_pct for phase in run.phases)
    return (
        f"Mean TTFT, TPOT and E2E of {plural(len(run.phases), 'load')} on a real engine are predicted within {_pct(worst)}, "
        f"and within {_pct(followed)} once steps follow the speed of its machine, which drifted."
    )


def drift_sentence(run: ShippedRun) -> str:
    """Return what the drift costs any prediction of these runs."""
    own, drawn = max(phase.at_own_speed_pct for phase in run.phases), run.redrawn
    return (
        f"The machine shared its cores. One speed for each load leaves {_pct(own)} at most; one speed for all of them leaves "
        f"{_pct(run.at_one_speed_pct)} at least, even chosen in hindsight. Its own exact step times, measured at another moment of "
        f"such drift, would miss by {_pct(drawn.median_pct)} ({span(_pct(drawn.low_pct), _pct(drawn.high_pct))} in 80 % of "
        f"{drawn.draws} draws), and by no more than 5 % in {percent(drawn.within_5_pct_share)} of them."
    )


def run_frame(run: ShippedRun) -> pd.DataFrame:
    """Return the errors of each load."""
    return pd.DataFrame(
        [
            {
                "Load": _load(phase.phase),
                "Requests": phase.requests,
                "Mean TTFT": signed(phase.ttft_pct),
                "Mean TPOT": signed(phase.tpot_pct),
                "Mean E2E": signed(phase.e2e_pct),
                "Largest at its own speed": _pct(phase.at_own_speed_pct),
                "Largest along the drift": _pct(phase.at_drift_pct),
            }
            for phase in run.phases
        ]
    )


def _load(phase: str) -> str:
    kind, _, rate = phase.partition("-")
    return f"Poisson, {rate} requests/s" if kind == "poisson" and rate else phase
