"""Which token budget a step should have."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.steps import Decoders
from planner.analysis.token_budget import (
    Beside,
    Frontier,
    bounds_explanation,
    budget_bounds,
    frontier,
    frontier_budgets,
    frontier_explanation,
    knee_parts,
    usual_decoders,
    why_elsewhere,
)
from planner.ui import reading
from planner.ui.charts.curves import Axis
from planner.ui.charts.marked import marked_curve
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_batching_budget as words
from planner.ui.views.question_inputs import Asked, Input, short
from planner.ui.views.questions_batching import tpot_input, ttft_input
from planner.ui.words import sentence

_REQUESTS = 4000
_STEP_AXES = Axis("Token budget of a step", log=True), Axis("Full step (ms)", log=True)


def _inputs(case: Case) -> Sequence[Input]:
    decoders = usual_decoders(case)
    return (
        Input("decoders", "Sequences that decode", f"{decoders.sequences:.0f}", reading.whole, low=1, high=4096),
        Input("context", "Context of each (tokens)", f"{decoders.context_tokens:.0f}", low=1, high=1e6),
        Input("prompt", "Prompt tokens, mean", short(case.lengths.prompt_mean_tokens), low=1, high=1e6),
        Input("rate", "Requests/s", f"{case.rate_rps:.4g}", low=1e-3, high=1e4),
        ttft_input(case),
        tpot_input(case),
    )


def _draw(case: Case, asked: Asked) -> None:
    load = Beside(
        Decoders(asked.number("decoders"), asked.number("context")),
        asked.number("prompt"),
        asked.number("rate"),
        asked.number("ttft"),
        asked.number("tpot"),
    )
    bounds = budget_bounds(case, load)
    by_formula = bounds_explanation(bounds, load)
    answer = st.empty()
    with answer.container():
        say(by_formula)
    show(marked_curve(words.step_title(load, bounds), _STEP_AXES, words.step_curve(case, load, bounds)), "chart-q-budget-step")

    def work(tell: Tell) -> Frontier:
        tell("Serving the same requests under each budget", 0.2)
        return frontier(case, load, frontier_budgets(case, bounds), _REQUESTS)

    run = simulated("budget", case, asked, work)
    found = None if run is None else frontier_explanation(run, load)
    if run is not None and found is not None:
        with answer.container():
            say(found)
        picture = words.frontier_curve(case, load, bounds, run)
        show(marked_curve(words.frontier_title(load, run), words.frontier_axes(load, picture), picture), "chart-q-budget-frontier")
        st.caption(sentence(words.LEGEND))
        st.caption(sentence(words.budget_caption(case, run)))
    beside(words.budget_rows(load, bounds, run), "Token budgets by formula and simulated")
    best = None if run is None or run.best is None else run.best.budget
    parts = knee_parts(case, load.decoders, bounds.knee.linear_tokens)
    formulas = words.budget_why(bounds, load, by_formula.formula)
    why([*formulas, *([] if found is None else [found.formula])], (why_elsewhere(bounds, parts, best),))
    setting(words.budget_advice(case, load, bounds, run), words.budget_flag(case, bounds, run))


VIEW = View("budget", "Token budget", _inputs, _draw)
