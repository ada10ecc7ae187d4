"""The Offline questions."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.offline import DailyWork
from planner.analysis.offline_levers import api_bills, offline_explanation, stacked
from planner.analysis.offline_simulated import SimulatedOffline, simulated_offline
from planner.offline_case import OfflineCase, check_context, offline_case
from planner.ui import reading
from planner.ui.charts.offline import bill_bars
from planner.ui.components.common import READABLE_PX, show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_offline as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import figure, sentence

_LARGEST = 1e16


def _inputs(case: Case) -> Sequence[Input]:
    start = offline_case(case)
    work, terms = start.work, start.terms
    return (
        Input("in", "Prompt tokens a day", words.typed(work.prompts_total), low=1, high=_LARGEST),
        Input("out", "Output tokens a day", words.typed(work.outputs_total), low=1, high=_LARGEST),
        Input("prompt", "Prompt tokens, each request", f"{work.prompt_tokens:.4g}", low=1, high=1e6),
        Input("seqs", "max_num_seqs", f"{start.way.max_num_seqs:.0f}", reading.whole, low=1, high=65536),
        Input("hours", "Hours a day it may run", f"{terms.hours:g}", low=0.1, high=24, help="A nightly window, or a deadline"),
        Input("cached", "Prompt tokens that repeat", f"{100.0 * terms.cached_share:.3g} %", reading.share, low=0, high=0.99),
        Input("lost", "Spot: minutes lost a day", f"{terms.spot_lost_minutes:g}", low=0, high=1400),
        Input("idle", "Idle GPU-hours a day, paid for", f"{terms.idle_gpu_hours:g}", low=0, high=1e6),
    )


def _asked_of(case: Case) -> str | None:
    return words.textbook_line(offline_case(case)) if case.textbook else None


def _asked(start: OfflineCase, asked: Asked) -> OfflineCase:
    """Return the case with what the inputs state: the outputs of a request follow from the tokens of the day."""
    prompts, outputs, prompt = asked.number("in"), asked.number("out"), asked.number("prompt")
    terms = replace(
        start.terms,
        hours=asked.number("hours"),
        cached_share=asked.number("cached"),
        spot_lost_minutes=asked.number("lost"),
        idle_gpu_hours=asked.number("idle"),
    )
    way = start.way._replace(max_num_seqs=asked.number("seqs"))
    asked_case = replace(start, work=DailyWork.of_day(prompts, outputs, prompt), terms=terms, way=way)
    if terms.cached_share == start.terms.cached_share:
        return asked_case
    return replace(asked_case, cached_source="as asked above", cached_assumed=False)


def _draw(case: Case, asked: Asked) -> None:
    question = _asked(offline_case(case), asked)
    check_context(question)
    work, terms = question.work, question.terms
    base, savings = stacked(question.way, work, terms)
    last = savings[-1].bill
    apis = api_bills(question.model.id, work)
    explanation = offline_explanation(base, savings)
    say(explanation)
    st.caption(sentence(words.work_line(question)))
    show(
        bill_bars(*words.bar_rows(base, savings, apis, words.reuse_mark(question)), words.bars_title(base, savings, apis)),
        "chart-q-offline",
    )
    st.dataframe(words.lever_frame(base, savings), hide_index=True, alt="Levers by dollars saved", height="content")

    def work_of(tell: Tell) -> SimulatedOffline:
        tell("Serving the day's requests now, with every lever, and in static batches", 0.3)
        return simulated_offline(case, (base, last), work, terms)

    run = simulated("offline", case, asked, work_of)
    beside(words.offline_rows(base, last, run), "Offline fleet by formula and simulated")
    if run is not None:
        st.caption(sentence(words.offline_caption(run, case.seed)))
    title = words.window_title(base, terms)
    st.markdown(f"**{sentence(title)}**")
    st.dataframe(words.window_frame(base, terms), hide_index=True, alt=title, height="content", width=READABLE_PX)
    st.caption(sentence(words.window_caption(terms)))
    if apis:
        st.markdown(f"**{sentence(f'The same {figure(work.prompts_total + work.outputs_total)} tokens behind an API')}**")
        st.dataframe(words.api_frame(apis), hide_index=True, alt="API prices", height="content", width=READABLE_PX)
        st.caption(sentence(words.api_caption(apis)))
    why(*words.offline_why(base, question))
    setting(explanation.setting, words.offline_code(last, question))


VIEWS: tuple[View, ...] = (View("offline", "Batch work by the day", _inputs, _draw, _asked_of),)
