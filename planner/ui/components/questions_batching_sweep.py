"""Token budgets against loads: tokens a second over a p95, with the knee."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.budget_sweep import Metric, Sweep, bound_of, knee_of, sweep
from planner.analysis.case import Case
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, measured, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_batching_sweep as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence

_REQUESTS = 2500
_METRICS: dict[str, Metric] = {"TTFT": "ttft", "E2E": "e2e"}


def _inputs(_case: Case) -> Sequence[Input]:
    return (
        Input("metric", "Latency", "E2E", choices=_METRICS, help="To the first token, or to the last"),
        Input("p95", "Bound on the p95", words.BY_TARGETS, words.bound, low=1e-4, high=86_400.0, help=words.BOUND_HELP),
        Input(
            "load",
            "Highest load",
            "100%",
            reading.share,
            low=0.1,
            high=2.0,
            help="Of the rate that saturates this replica's own settings",
        ),
        Input("n", "Requests of each run", f"{_REQUESTS}", reading.whole, low=200, high=10_000),
    )


def _draw(case: Case, asked: Asked) -> None:
    metric: Metric = "ttft" if asked.word("metric") == "ttft" else "e2e"

    def work(tell: Tell) -> Sweep:
        tell("Serving the same requests under each budget at each load", 0.2)
        return measured(sweep(case, asked.whole("n"), asked.number("load")))

    runs_on = Asked({name: value for name, value in asked.values.items() if name in {"load", "n"}})
    found = simulated("sweep", case, runs_on, work)
    if found is None:
        return
    bound_s = asked.values["p95"] or bound_of(case, metric)
    knee = knee_of(found, metric, bound_s)
    say(knee.explanation)
    axes = Axis(f"p95 {words.NAMES[metric]} (s)", log=True), Axis("Output tokens/s", log=False)
    lines, rules = words.sweep_curves(found, metric, knee), words.sweep_rules(bound_s, metric)
    show(curves(words.sweep_title(found, metric, knee), axes, lines, rules, words.sweep_marks(knee, metric)), "chart-q-sweep")
    st.caption(sentence(words.sweep_caption(case, found)))
    beside(words.sweep_rows(found, metric, knee), "The knee by rule of thumb and simulated")
    bound_from = [] if asked.values["p95"] else words.bound_note(case, metric)
    why((knee.explanation.formula,), [*words.sweep_notes(knee, metric), *bound_from])
    setting(words.sweep_advice(case, knee), words.sweep_command(knee))


VIEW = View("sweep", "Budget by load", _inputs, _draw)
