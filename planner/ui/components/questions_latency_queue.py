"""Why p99 TTFT shoots up, and the utilisation to plan for."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from planner.analysis.case import Case
from planner.analysis.queue_departures import Departures, Prompts, Surroundings, departures, planned_explanation, stream_of
from planner.analysis.queue_model import planned_utilisation, tail_curve
from planner.ui import reading
from planner.ui.charts.curves import Axis, tall_curves
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_latency_queue as words
from planner.ui.views.question_inputs import Asked, Input, short
from planner.ui.views.questions_batching import ttft_input
from planner.ui.words import sentence
from planner.workloads import CLIENT_CVS, GammaArrivals, PoissonArrivals

_REQUESTS = 12_000
_TEXTBOOK_PROMPT = "2048"
_OWN_ROWS = "as in the workload"
_SPREADS = {
    _OWN_ROWS: None,
    "all equal (CV² 0)": 0.0,
    "exponential (CV² 1)": 1.0,
    "mixed (CV² 2.2)": 2.2,
    "very mixed (CV² 5)": 5.0,
}
_AS_PLANNED = "as planned"
_ARRIVALS = {_AS_PLANNED: None, "Poisson": PoissonArrivals()} | {
    f"{name} (CV {cv:g})": GammaArrivals(cv=cv) for name, cv in CLIENT_CVS.items() if cv > 1.0
}
_UTILISATIONS = tuple(np.linspace(0.02, 0.98, 97).tolist())
_DEFAULT_REFERENCE = 0.5
_AXES = Axis("Utilisation of prefill: rate × mean prefill time (%)", log=False), Axis("p99 TTFT (s)", log=True)


def _inputs(case: Case) -> Sequence[Input]:
    prompt = _TEXTBOOK_PROMPT if case.textbook else short(case.lengths.prompt_mean_tokens)
    spread = "mixed (CV² 2.2)" if case.textbook else _OWN_ROWS
    target = ttft_input(case)
    return (
        replace(target, name="target", label=f"p99 {target.label}"),
        Input("prompt", "Prompt tokens, mean", prompt, low=1, high=1e5),
        Input("spread", "Prefill times", spread, choices=_SPREADS, help="CV²: variance over squared mean"),
        Input("kv", "KV cache (tokens)", f"{case.kv_tokens}", reading.whole, low=16, high=10**9),
        Input("arrivals", "Arrivals", _AS_PLANNED, choices=_ARRIVALS, help="CV of the gaps between arrivals; used last"),
        Input("cached", "Prompt already cached", "0 %", reading.share, low=0, high=0.95, help="Used last"),
    )


def _draw(case: Case, asked: Asked) -> None:
    case = replace(case, ttft_p99_s=asked.number("target"))
    around = Surroundings(asked.whole("kv"), asked.values["arrivals"] or case.workload.arrivals, asked.number("cached"))
    stream = stream_of(case, Prompts(asked.number("prompt"), asked.values["spread"]), around, _REQUESTS)
    formula = planned_utilisation(asked.number("target"), stream.service, outside_s=case.request_s)
    answer, chart = st.empty(), st.empty()
    with answer.container():
        say(formula.explanation)
    tail = tail_curve(stream.service, _UTILISATIONS)

    def draw_chart(found: Departures | None, key: str) -> None:
        drawn = words.tail_curves(tail, found, case)
        rules, marks = words.tail_rules(formula.target_s), words.tail_marks(found, formula)
        with chart.container():
            show(tall_curves(words.tail_title(found, formula), _AXES, drawn, rules, marks), key)

    draw_chart(None, "chart-q-queue-formula")

    def work(tell: Tell) -> Departures:
        return departures(case, stream, around, formula.general or _DEFAULT_REFERENCE, tell)

    run = simulated("queue", case, asked, work)
    if run is not None:
        draw_chart(run, "chart-q-queue")
        with answer.container():
            say(planned_explanation(run, formula))
    st.caption(sentence(words.caption(_REQUESTS, case.seed)))
    beside(words.queue_rows(run, formula, case), "Utilisation to plan for by formula and simulated")
    why(words.queue_why(formula, case.request_s))
    said = formula.explanation if run is None else planned_explanation(run, formula)
    setting(said.setting, None if run is None else words.alert(run), "yaml")


VIEW = View("queue", "Why does TTFT shoot up?", _inputs, _draw)
