"""What continuous batching buys over static batching."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.batching_simulated import (
    Outputs,
    SimulatedBatching,
    gain_curve,
    gain_of,
    real_traces,
    simulated_batching,
)
from planner.analysis.case import Case
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves, tall_curves
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_batching_static as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence

_REQUESTS = 3000
_OUTPUTS: dict[str, Outputs] = {"as recorded": "as recorded", "exponential": "exponential", "constant": "constant"}
_GAIN_AXES = Axis("Requests in a batch", log=True), Axis("Rows computed ÷ useful rows", log=True)
_THROUGHPUT_AXES = Axis("Requests in a batch", log=True), Axis("Output tokens/s", log=False)


def _inputs(case: Case) -> Sequence[Input]:
    law = "exponential" if case.textbook else "as recorded"
    return (
        Input("batch", "Requests in a batch", "32", reading.whole, low=1, high=1024),
        Input("outputs", "Output lengths", law, choices=_OUTPUTS, help="The workload's own, or another law with their mean"),
        Input("n", "Requests to simulate", f"{_REQUESTS}", reading.whole, low=100, high=20_000),
    )


def _draw(case: Case, asked: Asked) -> None:
    batch, outputs = asked.whole("batch"), _OUTPUTS[asked.word("outputs")]
    gain = gain_of(case.workload, outputs, batch)
    say(gain.explanation)
    chart = st.empty()
    own = gain_curve(words.own_name(case, outputs), case.workload, outputs)
    traces = real_traces(case.workload.id if outputs == "as recorded" else "")
    exponential = gain_curve("exponential law", case.workload, "exponential")

    def draw_gain(run: SimulatedBatching | None, key: str) -> None:
        with chart.container():
            lines = words.gain_curves(own, traces, exponential, run)
            show(tall_curves(words.gain_title(own, traces), _GAIN_AXES, lines, marks=words.gain_marks(batch, gain)), key)

    draw_gain(None, "chart-q-static")

    def work(tell: Tell) -> SimulatedBatching:
        tell("Serving the requests with both engines", 0.2)
        return simulated_batching(case, outputs, batch, asked.whole("n"))

    run = simulated("static", case, asked, work)
    if run is not None:
        draw_gain(run, "chart-q-static-simulated")
        lines = words.throughput_curves(run)
        show(
            curves(words.throughput_title(run.asked), _THROUGHPUT_AXES, lines, words.batch_rules(batch)),
            "chart-q-static-throughput",
        )
        st.caption(sentence(words.static_caption(case, run)))
    beside(words.static_rows(gain, run), "Static against continuous batching by formula and simulated")
    why(*words.static_why(gain, outputs, case))
    setting(gain.explanation.setting, words.static_setting(batch), "python")


VIEW = View("static", "Why continuous?", _inputs, _draw)
