"""The Speculation questions."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.speculation_case import LAYER_LAUNCH_S, Speculating, busy_batch, speculation_on
from planner.analysis.speculation_simulated import SimulatedSpeculation, most_context_tokens, simulated_speculation
from planner.ui import reading
from planner.ui.charts.curves import Axis, tall_curves
from planner.ui.charts.speculation import speedup_map
from planner.ui.components.common import READABLE_PX, show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_speculation as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence
from planner.units import US

_AXES = Axis("Sequences in the batch", log=True), Axis("Throughput with drafts ÷ without", log=False)
_DRAFTS = {str(k): k for k in range(1, 9)}
_TEXTBOOK_CONTEXT, _TEXTBOOK_BATCH = "512", "64"


def _inputs(case: Case) -> Sequence[Input]:
    batch = _TEXTBOOK_BATCH if case.textbook else f"{busy_batch(case)}"
    context = _TEXTBOOK_CONTEXT if case.textbook else f"{case.context_tokens:.0f}"
    longest = max(float(int(most_context_tokens(case, max(_DRAFTS.values())))), float(context))
    return (
        Input("k", "Drafts a step, K", "4", choices=_DRAFTS, slider=True),
        Input(
            "acceptance",
            "Acceptance of a draft",
            "0.7",
            words.read_acceptance,
            help="Chance that a draft is accepted, given those before it; one for all positions, or like 0.8, 0.7, 0.5",
        ),
        Input("draft", "Drafts come from", next(iter(words.METHODS)), choices=words.METHODS),
        Input("batch", "Sequences in the batch", batch, reading.whole, low=1, high=512),
        Input("context", "Context of each (tokens)", context, low=1, high=min(longest, 1e6)),
        Input(
            "launch",
            "Layer launch, no graph",
            f"{LAYER_LAUNCH_S / US:.0f} µs",
            reading.duration("us"),
            low=0,
            high=0.01,
            help="Host time of one layer's kernels when no CUDA graph replays them",
        ),
    )


def _draw(case: Case, asked: Asked) -> None:
    acceptance = words.by_position(asked.values["acceptance"], asked.whole("k"))
    question = Speculating(asked.values["draft"], acceptance, asked.whole("batch"), asked.number("context"), asked.number("launch"))
    found = speculation_on(case, question)
    say(found.explanation)
    chart = st.empty()

    def draw_curves(run: SimulatedSpeculation | None, key: str) -> None:
        with chart.container():
            lines = words.speedup_curves(found, run)
            rules, marks = words.speedup_rules(found), words.speedup_marks(found)
            show(tall_curves(words.speedup_title(found), _AXES, lines, rules, marks), key)

    draw_curves(None, "chart-q-spec")
    show(speedup_map(words.map_rows(found), words.map_title(found)), "chart-q-spec-map")

    def work(tell: Tell) -> SimulatedSpeculation:
        def told(batch: int, share: float) -> None:
            tell(f"Serving the requests with and without drafts, {batch:,} sequences at once", share)

        return simulated_speculation(case, (question.context_tokens, question.batch), found.rule, told)

    run = simulated("spec", case, asked, work)
    if run is not None:
        draw_curves(run, "chart-q-spec-simulated")
        st.caption(sentence(words.speculation_caption(run, case)))
    beside(words.speculation_rows(found, run), "Speculation by formula and simulated")
    if run is not None and run.watched:
        title = words.rollback_title(run)
        st.markdown(f"**{sentence(title)}**")
        st.dataframe(words.rollback_frame(run), hide_index=True, alt=title, height="content", width=READABLE_PX)
    why(*words.speculation_why(found))
    setting(found.explanation.setting, words.speculation_code(found))
    st.caption(sentence(words.speculation_limits(found)))


VIEWS: tuple[View, ...] = (View("spec", "Does speculation pay?", _inputs, _draw),)
