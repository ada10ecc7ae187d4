"""How many are in flight, and does the KV cache hold them."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.littles_law import InFlight, Stream
from planner.analysis.littles_law_simulated import (
    SimulatedFlight,
    affordable_requests,
    flight_explanation,
    flight_of,
    longer_outputs,
    longest_means,
    simulated_flight,
    with_prefills,
)
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_latency_flight as words
from planner.ui.views.question_inputs import Asked, Input, short
from planner.ui.words import sentence

_REQUESTS = 10_000
_RUNS = 4
_FACTORS = (0.5, 1.5, 2.0, 3.0)
_AXES = Axis("Requests in flight, N", log=False), Axis("Requests in flight", log=False)
_LONGER_AXES = Axis("Output tokens, mean"), Axis("Requests in flight")


def _inputs(case: Case) -> Sequence[Input]:
    most_prompt, most_output = (float(int(most)) for most in longest_means(case))
    longest = max(1.0, float(int(most_output / max(_FACTORS))))
    return (
        Input("rate", "Requests/s of the replica", f"{case.rate_rps:.4g}", low=1e-3, high=1e5),
        Input("prompt", "Prompt tokens, mean", short(case.lengths.prompt_mean_tokens), low=1, high=min(most_prompt, 1e6)),
        Input("output", "Output tokens, mean", short(case.lengths.output_mean_tokens), low=1, high=min(longest, 1e6)),
        Input("n", "Requests to simulate", f"{_REQUESTS}", reading.whole, low=100, high=50_000),
    )


def _draw(case: Case, asked: Asked) -> None:
    stream = case.stream_at(asked.number("rate"), asked.number("prompt"), asked.number("output"))
    found = flight_of(case, stream)
    longer = longer_outputs(case, stream, found)
    answer = st.empty()
    with answer.container():
        say(flight_explanation(case, found, longer))
    crossing = st.empty()
    count = affordable_requests(asked.whole("n"), stream.output_tokens)

    def work(tell: Tell) -> SimulatedFlight:
        tell(f"Serving {_RUNS} independent runs and {len(_FACTORS)} other outputs", 0.2)
        return simulated_flight(case, stream, count, _RUNS, _FACTORS)

    run = simulated("flight", case, asked, work)
    if run is not None:
        with answer.container():
            say(flight_explanation(case, found, longer, run))
    with crossing.container():
        _crossing(case, stream, found, run)
    rules = words.longer_rules(case, longer, stream)
    show(curves(words.longer_title(longer), _LONGER_AXES, words.longer_curves(longer, run), rules), "chart-q-flight-longer")
    beside(words.flight_rows(found, with_prefills(case, stream), run), "In flight by formula and simulated")
    if run is not None:
        st.caption(sentence(words.flight_caption(run, count, case.seed)))
    why(words.flight_why(case, stream, found))
    setting(flight_explanation(case, found, longer, run).setting, words.flight_setting(case, found, run))


def _crossing(case: Case, stream: Stream, found: InFlight, run: SimulatedFlight | None) -> None:
    drawn, marks = words.flight_curves(case, stream, found), words.flight_marks(found)
    show(curves(words.flight_title(found, run), _AXES, drawn, marks=marks), "chart-q-flight")


VIEW = View("flight", "How many are in flight?", _inputs, _draw)
