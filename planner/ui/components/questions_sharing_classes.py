"""The view on batch work beside interactive work."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.class_sharing import BatchWork, SharedEngine, batch_share, counted_share, steady_stream
from planner.analysis.class_sharing_simulated import Sharing, SimulatedSharing, simulated_sharing
from planner.analysis.steps import Decoders
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.charts.sharing import trade
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_sharing_classes as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import seconds


def _inputs(case: Case) -> Sequence[Input]:
    start = words.start_of(case)
    most = float(min(case.kv_tokens, case.limits.max_model_len or case.kv_tokens))
    prompt = start.stream.prompt_tokens
    return (
        Input("n", "Interactive sequences", f"{start.decoders.sequences:.3g}", low=0.1, high=float(case.limits.max_num_seqs)),
        Input("context", "Their mean context (tokens)", f"{start.decoders.context_tokens:.4g}", low=1, high=most),
        Input("output", "Their output (tokens)", f"{start.output_tokens:.4g}", low=2, high=most),
        Input("tpot", "TPOT target", seconds(start.tpot_s), reading.duration("ms"), low=1e-4, high=10.0),
        Input("bprompt", "Batch prompt (tokens)", f"{prompt:.4g}", low=1, high=most),
        Input("boutput", "Batch output (tokens)", f"{start.output_tokens:.4g}", low=2, high=most),
    )


def _draw(case: Case, asked: Asked) -> None:
    decoders, tpot_s = Decoders(asked.number("n"), asked.number("context")), asked.number("tpot")
    batch = BatchWork(asked.number("bprompt"), asked.number("boutput"))
    sharing = Sharing(steady_stream(decoders, asked.number("output"), tpot_s), batch, tpot_s)
    shared = SharedEngine(sharing.interactive, batch, case.limits.max_num_batched_tokens, float(case.kv_tokens))
    context = batch.running_context_tokens
    pure = batch_share(decoders, tpot_s, context, case.coefficients, float(case.kv_tokens))
    counted = counted_share(shared, tpot_s, case.coefficients)
    answer = st.empty()
    with answer.container():
        say(words.class_answer(sharing, pure, counted))

    def work(tell: Tell) -> SimulatedSharing:
        return simulated_sharing(case, sharing, (pure.kv_tokens, counted.kv_tokens), tell)

    found = simulated("classes", case, asked, work)
    if found is not None:
        with answer.container():
            say(words.class_answer(sharing, pure, counted, found))
    axes = (Axis("KV that batch work may hold (tokens)", log=False), Axis("Interactive TPOT (ms)", log=False))
    drawn = words.cap_curves(case, sharing, shared, found)
    title = words.cap_title(sharing, counted, found)
    show(curves(title, axes, drawn, words.cap_rules(sharing, found), words.cap_marks(found)), "chart-q-classes-cap")
    if found is not None:
        quantities = ("Interactive p99 TPOT (ms)", "Batch output (tokens/s per engine)")
        spots, line = words.trade_spots(found), words.trade_line(found)
        show(trade(words.trade_title(sharing, found), quantities, spots, line, words.trade_rule(sharing)), "chart-q-classes-trade")
    beside(words.class_rows(pure, counted, found), "Caps by formula and simulated")
    why((pure.explanation.formula, counted.explanation.formula), words.class_notes(case, sharing, found))
    setting(words.class_setting(found), words.class_code(words.batch_slots(sharing, counted, found)), "python")


CLASSES = View("classes", "How much for batch?", _inputs, _draw)
