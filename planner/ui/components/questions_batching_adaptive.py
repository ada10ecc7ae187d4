"""A token budget that follows the load, against the best fixed one."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.adaptive_budget import AdaptiveDay, Day, OnBreach, Rule, adaptive_day, adaptive_explanation, usual_rate_rps
from planner.analysis.case import Case
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.components.common import READABLE_PX, show
from planner.ui.components.questions import View, beside, measured, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_batching_adaptive as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.views.questions_batching import tpot_input, ttft_input
from planner.ui.words import sentence

_REQUESTS = 5000
_FACTOR = 4.0
_STEP = 1.5
_ON_BREACH: dict[str, OnBreach] = {"lower": "lower", "lower when nobody waits": "lower when nobody waits"}
_SHARE_AXES = Axis("Token budget", log=True), Axis("Requests within both targets (%)", log=False, zero=False)
_BUDGET_AXES = Axis("Hour of the first day", log=False), Axis("Token budget", log=True)
_DRIFT_AXES = Axis("Hour of the first day", log=False), Axis("Prompt tokens/s", log=False)


def _inputs(case: Case) -> Sequence[Input]:
    return (
        Input("rate", "Requests/s, mean of the day", f"{usual_rate_rps(case):.3g}", low=0.01, high=1e4),
        Input("long", "Long prompts at the height", "30%", reading.share, low=0.0, high=1.0, help="Four times as long as recorded"),
        Input("interval", "Between decisions", "1 s", reading.duration("s"), low=0.5, high=3600.0),
        Input("deep", "Queue is deep from", "4", reading.whole, low=1, high=100_000, help="Waiting requests"),
        Input("breach", "On a TPOT breach", "lower", choices=_ON_BREACH, help="Whether a deep queue goes before a missed target"),
        ttft_input(case),
        tpot_input(case),
    )


def _draw(case: Case, asked: Asked) -> None:
    day = Day(_REQUESTS, asked.number("rate"), asked.number("long"), _FACTOR)
    rule = Rule(asked.number("interval"), asked.whole("deep"), asked.number("tpot"), _STEP, _ON_BREACH[asked.word("breach")])
    ttft_s = asked.number("ttft")

    def work(tell: Tell) -> AdaptiveDay:
        return measured(adaptive_day(case, day, rule, ttft_s, tell))

    found = simulated("adaptive", case, asked, work)
    if found is None:
        return
    explanation = adaptive_explanation(found, rule, ttft_s)
    say(explanation)
    lines, rules, marks = words.share_curves(found), words.share_rules(found), words.share_marks(found)
    show(curves(words.share_title(found), _SHARE_AXES, lines, rules, marks), "chart-q-adaptive-share")
    show(
        curves(words.budget_title(found), _BUDGET_AXES, words.budget_curve(found), words.budget_rules(found)),
        "chart-q-adaptive-budget",
    )
    show(curves(words.drift_title(found), _DRIFT_AXES, words.drift_curves(found)), "chart-q-adaptive-drift")
    with st.container(width=READABLE_PX):
        st.caption(sentence(words.adaptive_caption(case, found, day)))
    beside(words.adaptive_rows(found), "The adaptive budget beside fixed ones")
    why([*words.adaptive_why(rule, found), explanation.formula], words.adaptive_notes(found))
    setting(words.adaptive_advice(case, found, explanation), f"--max-num-batched-tokens {found.best.budget}")


VIEW = View("adaptive", "Adaptive", _inputs, _draw)
