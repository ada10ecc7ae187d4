"""The view on admission: whom to let in, and what becomes of the others."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.admission import admission_limit
from planner.analysis.admission_simulated import ARRIVALS, Offered, gate_runs, mistakes, remainder_runs
from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.predictor import Aims, door_bounds
from planner.analysis.served import saturated_rps
from planner.analysis.steps import Decoders
from planner.errors import InputError
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.components.common import READABLE_PX, show, side_by_side
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_overload_admit as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence

_REQUESTS = 800
_LOADS = (0.6, 0.85, 1.0, 1.6)
_SIGMAS = (0.0, 0.5, 1.0)
_TEXTBOOK = Decoders(64.0, 2048.0)
_AXES = Axis("Load (% of what a full engine carries)", log=False), Axis("Good answers (requests/s)", log=False)


def _inputs(case: Case) -> Sequence[Input]:
    ttft_s, tpot_s = case.ttft_p99_s or 1.0, case.tpot_p99_s or 0.05
    own = case.decoders(float(door_bounds(case, Aims(max(ttft_s, 2.0 * case.request_s), tpot_s)).batch.sequences or 1))
    decoders = _TEXTBOOK if case.textbook else own
    error = "Standard deviation of ln(predicted ÷ true)"
    return (
        Input("n", "Sequences that decode", f"{decoders.sequences:g}", low=1, high=1e5),
        Input("context", "Their context (tokens)", f"{decoders.context_tokens:.0f}", low=0, high=1e7),
        Input("ttft", "TTFT target", f"{ttft_s:g} s", reading.duration("s"), low=1e-3, high=3600.0),
        Input("tpot", "TPOT target", f"{1e3 * tpot_s:g} ms", reading.duration("ms"), low=1e-4, high=60.0),
        Input("load", "Load (share of a full engine)", "125 %", reading.share, low=0.05, high=5.0),
        Input("sigma", "Prediction's error σ", "0.2", low=0.0, high=3.0, help=error),
        Input("rest", "Those who fail it", next(iter(words.REMAINDERS)), choices=words.REMAINDERS),
    )


def _draw(case: Case, asked: Asked) -> None:
    aims = Aims(asked.number("ttft"), asked.number("tpot"))
    decoders = Decoders(asked.number("n"), asked.number("context"))
    found = admission_limit(decoders, aims.ttft_s, aims.tpot_s or 0.0, case.coefficients, decoders.context_tokens)
    say(Explanation(words.admit_answer(found, aims), "", ""))
    capacity_rps = saturated_rps(case)
    if capacity_rps is None:
        raise InputError("replica", case.label, "serves none of these requests", "Change the scenario")
    bounds, load, sigma = door_bounds(case, aims), asked.number("load"), asked.number("sigma")
    offered = Offered(load, capacity_rps, "Poisson", _REQUESTS)

    def work(tell: Tell) -> words.Studied:
        loads = sorted({*_LOADS, load})
        streams = [Offered(each, capacity_rps, arrivals, _REQUESTS) for arrivals in ARRIVALS for each in loads]
        gates = gate_runs(case, aims, streams, sigma, tell)
        tell("Letting in those who were turned away, one by one", 0.6)
        wrong = [mistakes(case, aims, offered, each) for each in sorted({*_SIGMAS, sigma})]
        tell("Sending them elsewhere", 0.9)
        return words.Studied(gates, wrong, remainder_runs(case, aims, offered, sigma))

    studied = simulated("admit", case, asked, work)
    if studied is not None:
        _charts(studied, offered, sigma)
    beside(words.admit_rows(offered, bounds, sigma, studied), "The gate by formula and simulated")
    why(words.admit_formulas(found), words.admit_notes(case, offered, studied))
    rest = asked.values["rest"]
    setting(words.admit_setting(rest, studied), *words.admit_code(rest, found, bounds, aims))


def _charts(studied: words.Studied, offered: Offered, sigma: float) -> None:
    for column, arrivals in zip(side_by_side(), ARRIVALS, strict=True):
        with column:
            drawn = words.gate_curves(studied.gates, arrivals)
            marks = words.gate_marks(studied.gates, arrivals, offered.load)
            title = words.gate_title(studied.gates, arrivals, offered.load)
            show(curves(title, _AXES, drawn, words.gate_rules(offered), marks), f"chart-q-admit-{arrivals}")
    axes = Axis("Prediction's error σ", log=False), Axis("Share of requests (%)", log=False)
    title = words.error_title(studied.mistakes, sigma)
    show(curves(title, axes, words.error_curves(studied.mistakes)), "chart-q-admit-error")
    st.markdown(f"**{sentence(words.remainder_title(studied.remainders))}**")
    frame = words.remainder_frame(studied.remainders)
    st.dataframe(frame, hide_index=True, alt="What becomes of those who fail", height="content", width=READABLE_PX)


VIEW = View("admit", "Whom to admit?", _inputs, _draw)
