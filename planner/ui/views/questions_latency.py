"""What the Latency questions show: rows of their charts and tables, and their sentences."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.littles_law import InFlight, SimulatedFlight, Stream, duration_s
from planner.ui.charts.curves import Curve
from planner.ui.colours import ACCENT, GREY
from planner.ui.views.questions import Beside
from planner.ui.words import figure, seconds

_POINTS = 60
_REACH = 2.5


def flight_curves(case: Case, stream: Stream, found: InFlight) -> Sequence[Curve]:
    """Return the two sides of N = rate × duration(N) over N; they cross where the engine settles, or never."""
    last = _REACH * (found.in_flight or float(case.limits.max_num_seqs))
    numbers = [last * (index + 1) / _POINTS for index in range(_POINTS)]
    return (
        Curve("N", [(n, n) for n in numbers], GREY),
        Curve("rate × duration(N)", [(n, stream.rate_rps * duration_s(n, stream, case.coefficients)) for n in numbers], ACCENT),
    )


def flight_title(found: InFlight) -> str:
    """Return the finding of the chart."""
    if found.in_flight is None:
        return "The curves never cross: at this rate the engine can't keep up"
    return f"The curves cross at {figure(found.in_flight)} requests in flight"


def flight_rows(found: InFlight, simulated: SimulatedFlight | None) -> tuple[Beside, ...]:
    """Return the fixed point beside the simulated run."""
    duration = None if simulated is None else seconds(simulated.duration_s)
    number = None if simulated is None else figure(simulated.in_flight)
    law = None if simulated is None else f"{figure(simulated.law_rps_s)} = rate × duration"
    return (
        Beside(
            "In flight",
            None if found.in_flight is None else figure(found.in_flight),
            number,
            "The formula serves each prompt as if alone and takes the mean lengths; prefills of others lengthen steps, so the "
            "simulated number is larger under load.",
        ),
        Beside("Time in the engine", None if found.duration_s is None else seconds(found.duration_s), duration),
        Beside("Little's law in the run", None, law, "The law holds whatever the distributions are."),
    )
