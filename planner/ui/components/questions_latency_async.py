"""Asynchronous scheduling: what it overlaps, what it needs, when it is off."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.async_scheduling import overlap
from planner.analysis.async_scheduling_simulated import Sides, SimulatedOverlap, own_sides, own_steps, simulated_overlap
from planner.analysis.case import Case
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.charts.lanes import lanes
from planner.ui.components.common import show, text_table
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_latency_async as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence, stop
from planner.units import MS

_REQUESTS = 6_000
_TEXTBOOK = Sides(gpu_s=0.010, host_s=0.005)
_GAIN_AXES = Axis("Step on the GPU (ms)", log=True), Axis("Throughput gained by overlap (%)", log=False)
_WASTE_AXES = Axis("Requests that end at a stop token (%)", log=False), Axis("Rows wasted by a request", log=False)


def _inputs(case: Case) -> Sequence[Input]:
    sequences = case.in_flight(case.limits.max_num_seqs - 1)
    sides = _TEXTBOOK if case.textbook else own_sides(case, float(sequences))
    return (
        Input("gpu", "Step on the GPU", f"{sides.gpu_s / MS:.4g} ms", reading.duration("ms"), low=1e-5, high=10),
        Input("host", "Host time of a step", f"{sides.host_s / MS:.4g} ms", reading.duration("ms"), low=0, high=10),
        Input("sequences", "Sequences that decode", f"{sequences}", reading.whole, low=1, high=1024),
        Input("stop", "End at a stop token", "100 %", reading.share, low=0, high=1, help="The rest end at max_tokens"),
        Input("drafts", "Draft tokens, K", "0", reading.whole, low=0, high=16),
    )


def _draw(case: Case, asked: Asked) -> None:
    sides, share, drafts = Sides(asked.number("gpu"), asked.number("host")), asked.number("stop"), asked.whole("drafts")
    found = overlap(sides.gpu_s, sides.host_s)
    say(found.explanation)
    rows = words.lane_rows(sides)
    show(lanes(rows, words.lanes_of(rows), words.lanes_title(found)), "chart-q-async-lanes")
    if sides.host_s > 0.0:
        own = own_steps(case, asked.number("sequences"))
        drawn, marks = words.gain_curves(sides, own), words.gain_marks(found, sides, own)
        show(curves(words.gain_title(found, sides), _GAIN_AXES, drawn, marks=marks), "chart-q-async-gain")

    def work(tell: Tell) -> SimulatedOverlap:
        tell("Serving the requests without and with overlap", 0.2)
        return simulated_overlap(case, sides, asked.number("sequences"), _REQUESTS)

    run = simulated("async", case, asked, work)
    title = words.waste_title(share, drafts, float(case.lengths.output_mean_tokens))
    show(curves(title, _WASTE_AXES, words.waste_curves(drafts, run), marks=words.waste_marks(share, drafts)), "chart-q-async-waste")
    beside(words.async_rows(found, sides, run, share, drafts), "Overlap by formula and simulated")
    if run is not None:
        st.caption(sentence(words.caption(run, case.seed)))
    _own(case, run, asked.number("sequences"))
    st.markdown("**What runs without it**")
    st.table(
        words.switched_off(), border="horizontal", hide_index=True, alt="Configurations without overlap, with releases and sources"
    )
    st.caption(sentence(words.origins()))
    why(words.async_why(found, sides, share, drafts))
    setting(words.setting_text(case), words.flags(case))


def _own(case: Case, run: SimulatedOverlap | None, sequences: float) -> None:
    """Draw the case's own engine both ways."""
    frame = words.own_rows(run, case)
    if frame is None:
        return
    st.markdown("**This engine at its planned load**")
    text_table(frame, "p99 TTFT and TPOT without and with overlap")
    st.caption(sentence(stop(words.own_note(case, own_sides(case, sequences)))))


VIEW = View("async", "Async scheduling", _inputs, _draw)
