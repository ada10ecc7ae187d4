"""What goodput is, and how more throughput can make it worse."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.goodput import BestBatch
from planner.analysis.goodput_simulated import (
    Promise,
    SimulatedGoodput,
    formula_batch,
    goodput_explanation,
    simulated_goodput,
)
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, measured, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_batching_goodput as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.views.questions_batching import TEXTBOOK_CONTEXT, TEXTBOOK_TPOT_S, tpot_input, ttft_input
from planner.ui.words import sentence

_REQUESTS = 2500
_TOKENS = Axis("Output tokens/s", log=False)
_FORMULA_AXES = Axis("Sequences in the batch", log=False), _TOKENS
_BATCH_AXES = Axis("Sequences in the batch", log=True), _TOKENS
_TPOT_AXES = Axis("Sequences in the batch", log=True), Axis("TPOT (ms)", log=False)
_RATE_AXES = Axis("Requests/s that come", log=False), Axis("Good requests/s", log=False)


def _inputs(case: Case) -> Sequence[Input]:
    context = TEXTBOOK_CONTEXT if case.textbook else case.context_tokens
    return (
        Input("context", "Context of each (tokens)", f"{context:.0f}", low=1, high=1e6),
        ttft_input(case),
        tpot_input(case, TEXTBOOK_TPOT_S if case.textbook else None),
        Input("n", "Requests of each run by rate", f"{_REQUESTS}", reading.whole, low=200, high=20_000),
    )


def _draw(case: Case, asked: Asked) -> None:
    context = asked.number("context")
    if round(context) == round(case.context_tokens):
        context = case.context_tokens
    promise = Promise(asked.number("ttft"), asked.number("tpot"), context)
    best = formula_batch(case, promise)
    answer = st.empty()
    with answer.container():
        say(best.explanation)
    simulated_first = st.container()
    lines, marks = words.formula_curves(case, promise, best), words.formula_marks(best)
    show(curves(words.formula_title(promise, best), _FORMULA_AXES, lines, marks=marks), "chart-q-goodput-formula")

    def work(tell: Tell) -> SimulatedGoodput:
        tell("Serving clients by batch, then requests by rate", 0.2)
        return measured(simulated_goodput(case, promise, best.batch, asked.whole("n")))

    run = simulated("goodput", case, asked, work)
    if run is not None:
        found = goodput_explanation(run, promise)
        with answer.container():
            say(found)
        with simulated_first:
            drawn, marks = words.batch_curves(run), words.batch_marks(run)
            show(curves(words.batch_title(run), _BATCH_AXES, drawn, marks=marks), "chart-q-goodput-batch")
        _charts(case, promise, best, (run, asked.whole("n")))
    beside(words.goodput_rows(case, promise, best, run), "Goodput by formula and simulated")
    found = best.explanation if run is None else goodput_explanation(run, promise)
    why((f"decode alone: {best.explanation.formula}", *([] if run is None else [found.formula])), (words.DEFINITION,))
    setting(found.setting, words.goodput_code(run, best, promise))


def _charts(case: Case, promise: Promise, best: BestBatch, simulated_runs: tuple[SimulatedGoodput, int]) -> None:
    run, count = simulated_runs
    tpot = words.tpot_curves(case, promise, run)
    show(curves(words.tpot_title(promise, best, run), _TPOT_AXES, tpot, words.tpot_rules(promise)), "chart-q-goodput-tpot")
    rates = words.rate_curves(case, run)
    show(curves(words.rate_title(run), _RATE_AXES, rates, marks=words.rate_marks(run)), "chart-q-goodput-rate")
    st.caption(sentence(words.goodput_caption(case, run, count)))


VIEW = View("goodput", "Goodput", _inputs, _draw)
