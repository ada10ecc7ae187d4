"""The parts of the Simulate page: the answer, the distributions, the run over time, its steps, every request."""

from collections.abc import Callable

import streamlit as st

from planner.errors import InputError
from planner.exporters.replay import requests_csv, requests_parquet
from planner.plans.results import Plan
from planner.replay import LONGEST_STEP, Replay, ReplaySettings, StepWindow, replay, sentence_of, step_window
from planner.simulator.metrics import Metric
from planner.ui.charts.simulate import latency_cdf, limits_over_time, timeline
from planner.ui.charts.simulate_steps import Frame, step_gantt
from planner.ui.components.answer import METRIC_PX
from planner.ui.components.common import READABLE_PX, heading, show, side_by_side
from planner.ui.components.simulate_inputs import complain, start_input
from planner.ui.components.simulate_jobs import Tell, result_of
from planner.ui.plans import catalogue_stamp
from planner.ui.views.rows import target_label
from planner.ui.views.simulate import (
    definitions,
    difference_frame,
    difference_title,
    event_frame,
    latency_frame,
    metrics,
    steps_sentence,
    what_was_run,
)
from planner.ui.views.simulate_rows import cdf_rows, limit_rows, limits_in, step_notes, step_rows, timeline_rows
from planner.ui.words import seconds, sentence, stop


def replayed(plan: Plan, settings: ReplaySettings) -> Replay | None:
    """Return the replay; None while it runs, after drawing its progress."""
    key = ("replay", plan.scenario.to_json(), catalogue_stamp(), settings)
    runs = 2 if settings.engine_changes() else 1
    return result_of("replay", key, runs * settings.requests, lambda tell: replay(plan, settings, tell))


def answer(found: Replay) -> None:
    """Draw the sentence with the verdict, and four figures."""
    with st.container(width=READABLE_PX):
        st.markdown(f"#### {sentence(sentence_of(found, seconds))}")
    views = metrics(found)
    grid = st.grid(len(views), min_column_width=METRIC_PX)
    for view in views:
        with grid.container(border=True, height="stretch", gap="xxsmall"):
            st.metric(view.label, sentence(view.value), help=sentence(view.help))
            st.caption(sentence(view.note))
    for line in what_was_run(found):
        st.caption(sentence(line))


def latencies(found: Replay) -> None:
    """Draw the distributions of TTFT and TPOT with their targets, and the table of all latencies."""
    heading("Latency")
    targets = {check.target.metric: check.target.limit_s for check in found.shown.checks}
    drawn: tuple[Metric, ...] = ("ttft", "tpot")
    for column, metric in zip(side_by_side(), drawn, strict=True):
        rows = cdf_rows(found, metric)
        with column:
            if rows.rows:
                show(
                    latency_cdf(rows.rows, rows.title, metric.upper(), target_label(targets.get(metric))), key=f"chart-sim-{metric}"
                )
            else:
                st.markdown(f"**{sentence(rows.title)}**")
    st.dataframe(latency_frame(found.shown), hide_index=True, alt="Mean and percentiles of every latency", height="content")
    events = event_frame(found.shown)
    if not events.empty:
        st.dataframe(events, hide_index=True, alt="Rejections, preemptions and waste", height="content")
    st.caption(sentence(steps_sentence(found.shown)))


def comparison(found: Replay) -> None:
    """Draw the planned and the changed run side by side, if a setting was changed."""
    if found.changed is None:
        return
    heading("Planned against changed")
    st.markdown(f"**{sentence(stop(difference_title(found)))}**")
    st.dataframe(difference_frame(found), hide_index=True, alt=difference_title(found), height="content")


def over_time(found: Replay) -> None:
    """Draw the run over time, and which limit binds."""
    heading("Over time")
    end_s = max(run.result.totals.makespan_s for run in (found.planned, found.shown))
    left, right = side_by_side()
    with left:
        rows = timeline_rows(found)
        st.markdown(f"**{sentence(rows.title)}**")
        with st.container(gap=None):
            for index, panel in enumerate(timeline(rows.rows, end_s)):
                st.vega_lite_chart(spec=panel.spec, key=f"chart-sim-timeline-{index}", alt=panel.title)
    with right:
        limits = limit_rows(found.shown)
        if limits.rows:
            figure = limits_over_time(limits.rows, limits.title, limits_in(limits), found.shown.result.totals.makespan_s)
            show(figure, key="chart-sim-limits")


def steps(found: Replay) -> None:
    """Draw a window of steps, from a time that the user picks or around the longest step."""
    heading("Step by step")
    start = start_input()
    if isinstance(start, InputError):
        return
    key = ("steps", found.plan.scenario.to_json(), catalogue_stamp(), found.settings, start)
    try:
        window = result_of("steps", key, _weight(found), _window_of(found, start))
    except InputError as fault:
        complain(fault)
        return
    if window is None:
        return
    if not window.steps:
        st.caption("No step ran from then on.")
        return
    rows = step_rows(window, found)
    last = window.steps[-1]
    frame = Frame(rows.order, (window.steps[0].start_s, last.start_s + last.duration_s), rows.longest, rows.title)
    show(step_gantt(rows.bars, rows.waits, rows.preempted, frame), key="chart-sim-steps")
    st.caption(sentence(step_notes(window)))


def _window_of(found: Replay, start: float | None) -> Callable[[Tell], StepWindow]:
    def work(tell: Tell) -> StepWindow:
        tell("Serving the requests again, with a log of these steps", 0.1)
        return step_window(found, found.shown, LONGEST_STEP if start is None else start)

    return work


def _weight(found: Replay) -> int:
    return max(1, len(found.requests) // 100)


def downloads(found: Replay) -> None:
    """Offer every request with its latencies; the files are made on the click."""
    heading("Every request")
    st.caption("Arrival, lengths, queue time, TTFT, TPOT, E2E, preemptions, and whether the request met every target.")
    name = f"requests-{found.plan.scenario.digest()}-seed-{found.seed}"
    with st.container(horizontal=True):
        st.download_button(
            "CSV",
            lambda: requests_csv(found),
            f"{name}.csv",
            "text/csv",
            key="sim-csv",
            icon=":material/download:",
            on_click="ignore",
        )
        st.download_button(
            "Parquet",
            lambda: requests_parquet(found),
            f"{name}.parquet",
            "application/vnd.apache.parquet",
            key="sim-parquet",
            icon=":material/download:",
            on_click="ignore",
        )


def why(found: Replay) -> None:
    """Draw how the figures are made."""
    heading("Why")
    with st.expander("How these figures are made", key="sim-why"):
        for each in definitions(found):
            st.markdown(f"**{sentence(each.name)}** {sentence(each.text)}")
