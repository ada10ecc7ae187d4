"""A long prompt is admitted while others decode: what happens step by step."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.long_prompt import LongPrompt
from planner.analysis.long_prompt_runs import Experiment, SimulatedLongPrompt
from planner.analysis.long_prompt_simulated import (
    by_budget,
    formula,
    simulated_long_prompt,
    threshold_beside,
    usual,
    why_not_simulated,
)
from planner.analysis.steps import Decoders
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.charts.lanes import lanes
from planner.ui.components.common import localized, show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_latency_long as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence, stop

_ITL_AXES = Axis("Time from the long prompt's first step (s)", log=False), Axis("Step, which is the inter-token latency (ms)")
_TTFT_AXES = Axis("Arrives after the long prompt (s)", log=False), Axis("TTFT (s)")
_BUDGET_AXES = Axis("TTFT of the long prompt (s)"), Axis("Worst step (ms)")


def _inputs(case: Case) -> Sequence[Input]:
    first = usual(case)
    budgets = {f"{budget:,}": budget for budget in sorted({*words.BUDGETS, case.limits.max_num_batched_tokens})}
    thresholds: dict[str, int | None] = {words.NO_THRESHOLD: None} | {f"{each:,}": each for each in words.THRESHOLDS}
    return (
        Input("prompt", "Long prompt (tokens)", f"{first.prompt_tokens}", reading.whole, low=1, high=2_000_000),
        Input("decoders", "Sequences that decode", f"{first.decoders.sequences:.0f}", reading.whole, low=1, high=4096),
        Input("context", "Their context (tokens)", f"{first.decoders.context_tokens:.0f}", reading.whole, low=1, high=1_000_000),
        Input("rate", "New arrivals/s", f"{first.rate_rps:.4g}", low=1e-3, high=1e4),
        Input("budget", "max_num_batched_tokens", f"{case.limits.max_num_batched_tokens:,}", choices=budgets, slider=True),
        Input("threshold", "long_prefill_token_threshold", words.NO_THRESHOLD, choices=thresholds, slider=True),
    )


def _draw(case: Case, asked: Asked) -> None:
    decoders = Decoders(asked.number("decoders"), asked.number("context"))
    threshold = asked.values["threshold"]
    experiment = Experiment(asked.whole("prompt"), decoders, asked.whole("budget"), threshold, asked.number("rate"))
    found = formula(case, experiment)
    say(found.explanation)
    refusal = why_not_simulated(case, experiment, found)

    def work(tell: Tell) -> SimulatedLongPrompt:
        tell("Serving the long prompt under both settings", 0.2)
        return simulated_long_prompt(case, experiment)

    run = None
    if refusal is None:
        run = simulated("long", case, asked, work)
    else:
        st.caption(sentence(stop(f"Not simulated: {refusal}")))
    if run is not None:
        shown = run.asked
        rows, frame = words.lane_rows(shown, int(decoders.sequences)), words.lanes_of(shown, int(decoders.sequences))
        show(lanes(rows, frame, words.lanes_title(shown)), "chart-q-long-lanes")
    title = words.itl_title(run, found)
    show(curves(title, _ITL_AXES, words.itl_curves(found, run, experiment), words.itl_rules(case)), "chart-q-long-itl")
    if run is not None:
        drawn, rules = words.ttft_curves(found, run, experiment), words.ttft_rules(case)
        show(curves(words.ttft_title(run), _TTFT_AXES, drawn, rules), "chart-q-long-ttft")
        st.caption(sentence(words.caption(run, experiment, case.seed)))
    _budgets(case, experiment, found)
    beside(words.long_rows(found, run), "The long prompt by formula and simulated")
    _table(found, run)
    why(words.long_why(found, experiment))
    threshold = threshold_beside(experiment)
    setting(f"{found.explanation.setting} {words.setting_note(run)}", words.flags(experiment, threshold, run))


def _budgets(case: Case, experiment: Experiment, found: LongPrompt) -> None:
    points = by_budget(case, experiment, words.BUDGETS)
    if len(points) > 1:
        marks = words.budget_marks(points, found, experiment)
        show(curves(words.budget_title(points), _BUDGET_AXES, words.budget_curves(points), marks=marks), "chart-q-long-budgets")


def _table(found: LongPrompt, run: SimulatedLongPrompt | None) -> None:
    st.markdown("**Each step of the prefill**")
    frame = words.step_table(found, run)
    shown = {**localized(frame), **{name: st.column_config.NumberColumn(format="%.2f") for name in words.TIMED}}
    st.dataframe(frame, hide_index=True, height=280, column_config=shown, alt="Each step of the long prompt's prefill")


VIEW = View("long", "A long prompt arrives", _inputs, _draw)
