"""The Latency questions: how many are in flight."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.littles_law import SimulatedFlight, Stream, in_flight, simulated_flight
from planner.ui import reading
from planner.ui.charts.curves import Axis, Mark, curves
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.views.questions_latency import flight_curves, flight_rows, flight_title

_REQUESTS = 10_000


def _flight_inputs(case: Case) -> Sequence[Input]:
    return (
        Input("rate", "Requests/s of the replica", f"{case.rate_rps:.4g}", low=1e-3, high=1e5),
        Input("prompt", "Prompt tokens, mean", f"{case.lengths.prompt_mean:.4g}", low=1, high=1e6),
        Input("output", "Output tokens, mean", f"{case.lengths.output_mean:.4g}", low=1, high=1e6),
        Input("n", "Requests to simulate", f"{_REQUESTS}", reading.whole, low=100, high=200_000),
    )


def _flight(case: Case, asked: Asked) -> None:
    stream = Stream(asked.number("rate"), asked.number("prompt"), asked.number("output"))
    capacity_bytes = case.kv_tokens * case.kv_bytes_per_token
    found = in_flight(stream, case.kv_bytes_per_token, case.coefficients, capacity_bytes)
    say(found.explanation)

    def work(tell: Tell) -> SimulatedFlight:
        tell("Serving the requests", 0.1)
        return simulated_flight(case, case.requests(asked.whole("n"), stream.rate_rps))

    marks = [] if found.in_flight is None else [Mark(found.in_flight, found.in_flight, "where it settles")]
    axes = (Axis("Requests in flight, N"), Axis("Requests in flight"))
    show(curves(flight_title(found), axes, flight_curves(case, stream, found), marks=marks), "chart-q-flight")
    beside(flight_rows(found, simulated("flight", case, asked, work)), "Little's law by formula and simulated")
    why((found.explanation.formula,), ())
    setting(found.explanation.setting)


VIEWS = (View("flight", "How many are in flight?", _flight_inputs, _flight),)
