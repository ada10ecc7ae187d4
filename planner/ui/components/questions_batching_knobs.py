"""Which knob binds: max_num_seqs or max_num_batched_tokens."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.knobs import ceilings
from planner.case_capacity import Carried, carried, default_setting, with_ceilings
from planner.ui.charts.curves import Axis, curves
from planner.ui.components.common import show, text_table
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_batching_knobs as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.views.questions_batching import TEXTBOOK_CONTEXT, tpot_input
from planner.ui.words import sentence, stop

_AXES = Axis("Tokens that a sequence has cached", log=True), Axis("Sequences at once", log=True)


def _inputs(case: Case) -> Sequence[Input]:
    context = TEXTBOOK_CONTEXT if case.textbook else case.context_tokens
    return (
        Input("context", "Context of each (tokens)", f"{context:.0f}", low=1, high=1e6),
        Input("kv", "KV cache (tokens)", f"{case.kv_tokens}", low=1, high=1e12),
        tpot_input(case),
    )


def _draw(case: Case, asked: Asked) -> None:
    context, kv_tokens, tpot_s = asked.number("context"), asked.number("kv"), asked.number("tpot")
    found = ceilings(kv_tokens, context, tpot_s, case.coefficients)
    default = default_setting(case)
    asked_case = with_ceilings(case, kv_tokens, tpot_s)
    say(found.explanation)
    lines = words.ceiling_curves(case, kv_tokens, tpot_s)
    rules, marks = words.ceiling_rules(default, context), words.ceiling_marks(found, context)
    show(curves(words.ceiling_title(found, context), _AXES, lines, rules, marks), "chart-q-knobs")
    text_table(words.ceiling_table(found), "Ceilings of max_num_seqs with their margins")

    def work(tell: Tell) -> tuple[Carried, ...]:
        tell("Finding what the replica carries at each setting", 0.2)
        return carried(asked_case, words.settings_of(case, found, default))

    runs = simulated("knobs", case, asked, work)
    if runs is not None:
        st.markdown(f"**{sentence(stop(words.default_sentence(runs, default)))}**")
        st.dataframe(words.carried_table(runs), hide_index=True, alt="What the replica carries at each setting", height="content")
        st.caption(sentence(words.knob_caption(case)))
    beside(words.knob_rows(found, tpot_s, runs), "Settings by formula and simulated")
    why(words.knob_why(case, found, asked), (words.CEILINGS_NOTE, words.default_note(case, found, default)))
    setting(words.knob_advice(runs, found), words.knob_flags(runs, found))


VIEW = View("knobs", "What binds?", _inputs, _draw)
