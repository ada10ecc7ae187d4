"""The view on a spike: rules at the door, clients who come back, and what to answer them."""

from collections.abc import Sequence

import streamlit as st

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.overload import Spike, backlog, rejection
from planner.analysis.predictor import Aims, door_bounds
from planner.analysis.served import saturated_rps
from planner.analysis.spike_simulated import RULE_NAMES, STORM_RULES, SpikeRun, SpikeSetting, spike_runs, storm_runs
from planner.analysis.spike_simulated import Asked as Run
from planner.errors import InputError
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.components.common import show, side_by_side
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_overload_spike as words
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.words import sentence

_TIME = Axis("Time since the spike began (s)", log=False)
_TEXTBOOK_LOAD = 0.6


def _inputs(case: Case) -> Sequence[Input]:
    own = case.rate_rps / (saturated_rps(case) or case.rate_rps)
    load = _TEXTBOOK_LOAD if case.textbook else min(own, 0.95)
    full = "Share of the rate at which requests leave a full engine"
    seqs = "--max-num-seqs: the batch takes in what it allows, whatever TPOT says"
    return (
        Input("load", "Load before and after", f"{100 * load:.3g} %", reading.share, low=0.01, high=0.99, help=full),
        Input("factor", "Spike (× that load)", "3", low=1.0, high=50.0),
        Input("for", "Its length", "60 s", reading.duration("s"), low=5.0, high=600.0),
        Input("patience", "Clients give up after", "5 s", reading.duration("s"), low=0.1, high=3600.0),
        Input("retry", "Then, or once rejected, they", next(iter(words.RETRIES)), choices=words.RETRIES),
        Input("seqs", "max_num_seqs", f"{case.limits.max_num_seqs}", reading.whole, low=1, high=16_384, help=seqs),
    )


def _setting(case: Case, asked: Asked) -> SpikeSetting:
    if case.ttft_p99_s is None:
        raise InputError("TTFT target", "open", "is needed to tell who is answered in time", "Set it in the sidebar")
    capacity_rps = saturated_rps(case)
    if capacity_rps is None:
        raise InputError("replica", case.label, "serves none of these requests", "Change the scenario or max_num_seqs")
    spike = Spike(asked.number("load"), asked.number("factor"), asked.number("for"))
    return SpikeSetting(spike, capacity_rps, Aims(case.ttft_p99_s, case.tpot_p99_s), asked.number("patience"))


def _draw(case: Case, asked: Asked) -> None:
    budget = max(case.limits.max_num_batched_tokens, asked.whole("seqs"))
    case = case.with_limits(max_num_seqs=asked.whole("seqs"), max_num_batched_tokens=budget)
    spike = _setting(case, asked)
    found, bounds = backlog(spike.spike), door_bounds(case, spike.aims)
    say(Explanation(words.spike_answer(found, spike), "", ""))

    def compare(tell: Tell) -> list[SpikeRun]:
        return spike_runs(case, spike, [Run(rule, asked.values["retry"]) for rule in RULE_NAMES], tell)

    runs = simulated("spike", case, asked, compare)
    if runs is not None:
        _over_time(runs, spike)
        st.dataframe(words.rule_frame(runs, bounds, spike), hide_index=True, alt="Rules side by side", height="content")
        _storms(case, asked, spike, runs)
    beside(words.spike_rows(found, runs), "The queue's arithmetic beside the simulated spike")
    why(words.spike_formulas(found, spike, bounds), words.spike_notes(case, spike, runs, bounds))
    setting(words.spike_setting(runs), words.spike_flags(bounds))
    allowed_s = max(spike.aims.ttft_s - case.request_s, 0.0)
    full = rejection(found.backlog_s, allowed_s)
    limited = rejection(found.backlog_s, allowed_s, client_limit=True)
    st.code(words.spike_response(full, limited), language="http", wrap_lines=True)
    st.code(words.spike_alerts(spike), language="yaml", wrap_lines=True)
    st.caption(sentence(words.alert_note(spike)))


def _over_time(runs: Sequence[SpikeRun], spike: SpikeSetting) -> None:
    shown = words.shown_runs(runs)
    axes = _TIME, Axis("Good answers (requests/s)", log=False)
    drawn = curves(words.goodput_title(runs), axes, words.goodput_curves(shown, spike), words.spike_rules(spike))
    show(drawn, "chart-q-spike-good")
    axes = _TIME, Axis("GPU time for clients who have gone (%)", log=False)
    drawn = curves(words.dead_title(runs, spike), axes, words.dead_curves(shown), words.spike_rules(spike)[:1])
    show(drawn, "chart-q-spike-dead")


def _storms(case: Case, asked: Asked, spike: SpikeSetting, known: Sequence[SpikeRun]) -> None:
    """Draw what each kind of client does, without a bound and with one on requests; known : the runs above."""

    def work(tell: Tell) -> list[SpikeRun]:
        return storm_runs(case, spike, known, tell)

    runs = simulated("spike", case, asked, work, "storm")
    if runs is None:
        return
    axes = _TIME, Axis("Requests sent (requests/s)", log=False)
    for column, rule in zip(side_by_side(), STORM_RULES, strict=True):
        with column:
            own = [run for run in runs if run.rule == rule]
            title = words.storm_title(own, own[0].rule, spike)
            show(
                curves(title, axes, words.storm_curves(own), words.spike_rules(spike)), f"chart-q-spike-storm-{own[0].retry}-{rule}"
            )
    st.dataframe(words.storm_frame(runs), hide_index=True, alt="Clients who come back", height="content")


VIEW = View("spike", "Traffic spikes?", _inputs, _draw)
