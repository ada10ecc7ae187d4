"""The Accuracy page's parts: the answer, the misses of one source, every source, single steps."""

from typing import Literal

import pandas as pd
import streamlit as st

from planner.accuracy.shipped import RUN_FILE, STEPS_FILE, Metric, ShippedAccuracy, shipped_run, shipped_steps
from planner.ui.charts.accuracy import distributions, predicted_rows, strips
from planner.ui.choices import gpu_names, gpu_ranks, model_names
from planner.ui.components.common import READABLE_PX, ColumnConfigs, heading, localized, show, side_by_side
from planner.ui.views import accuracy as words
from planner.ui.views import accuracy_rows as rows
from planner.ui.views import accuracy_run as run_words
from planner.ui.words import literal, sentence, stop

_SHORT_ROWS = 12
_TABLE_HEIGHT = 420


def answer(sources: tuple[ShippedAccuracy, ...]) -> None:
    """Draw the sentence with the figures in it, and the largest miss of the same source."""
    best = words.headline_source(sources)
    with st.container(width=READABLE_PX):
        st.markdown(f"#### {sentence(words.headline(sources))}")
        miss = words.worst(best, "tpot", _names())
        if miss is not None:
            st.markdown(sentence(miss))
        st.caption(sentence(words.totals(sources)))


def source_chosen(sources: tuple[ShippedAccuracy, ...]) -> tuple[ShippedAccuracy, Metric | None]:
    """Draw the choice of a source and of a metric that it states; None where it states none."""
    by_id = {source.id: source for source in sources}
    names = list(by_id)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = by_id[
            st.selectbox(
                "Measured results of",
                names,
                index=names.index(words.headline_source(sources).id),
                format_func=lambda each: by_id[each].title,
                key="accuracy-source",
                width=520,
                persist_state="session",
            )
        ]
        stated = words.metrics_of(chosen)
        if not stated:
            return chosen, None
        metric = st.selectbox(
            "Error of",
            stated,
            format_func=words.METRICS.__getitem__,
            key=f"accuracy-metric-{chosen.id}",
            width=220,
            persist_state="session",
        )
    return chosen, metric


def source(chosen: ShippedAccuracy, metric: Metric | None) -> None:
    """Draw one source: where it comes from, its misses, its groups, and what isn't predicted."""
    if chosen.notice is not None:
        st.caption(f":material/gavel: {sentence(stop(chosen.notice))}")
    if metric is not None:
        _charts(chosen, metric)
        st.caption(sentence(words.coverage_sentence(chosen)))
        _table(words.groups_frame(chosen, metric, _names()), f"Errors of {chosen.title} by GPU, engine and model, largest first")
        st.caption("All errors in per cent: predicted ÷ measured − 1. Bias is the median with its sign; p90 is of the size.")
    left, right = side_by_side()
    with left:
        st.markdown("**What isn't predicted or compared, and why**")
        reasons = words.not_predicted_frame({**chosen.shipped.not_predicted, **chosen.shipped.not_compared})
        if reasons.empty:
            st.caption("Every row is predicted.")
        else:
            _table(reasons, "Rows that aren't predicted or compared, by reason")
    with right:
        st.markdown("**Where the figures come from**")
        st.table({literal(key): literal(value) for key, value in words.facts(chosen).items()}, border="horizontal")
        st.code(words.reproduce(chosen), language="bash", wrap_lines=True)


def _charts(chosen: ShippedAccuracy, metric: Metric) -> None:
    names = _names()
    dots, lines, title = rows.group_rows(chosen, metric, names, gpu_ranks())
    left, right = side_by_side()
    with left:
        if dots:
            show(strips(dots, lines, rows.CLIP_PCT, title), key="chart-accuracy-groups")
            st.caption(
                "A dot for each model at its median error, larger with more points; the faint bar spans 80 % of its errors. "
                "What lies beyond an end of the axis is drawn at it."
            )
    with right:
        boxes = rows.overall_rows(chosen, metric)
        if boxes:
            show(distributions(boxes, rows.CLIP_PCT, words.overall_title(chosen, metric)), key="chart-accuracy-overall")
            st.caption("Thick: the middle half of the errors. Thin: 80 % of them. Tick: the median.")
        shown, title, unit = rows.shown_rows(chosen, metric, names)
        if shown:
            show(predicted_rows(shown, title, unit), key="chart-accuracy-rows")
        else:
            st.caption("Its terms, or what it states, leave single rows out: error figures alone are shown.")


def every_source(sources: tuple[ShippedAccuracy, ...]) -> None:
    """Draw every source with its errors, terms and caveat, the largest misses first."""
    heading("Every source")
    frame = words.sources_frame(sources)
    config: ColumnConfigs = {
        **localized(frame),
        "Source": st.column_config.TextColumn(width="large", pinned=True),
        "Caveat": st.column_config.TextColumn(width="large"),
    }
    alt = "Sources of measured results with their errors, largest first"
    st.dataframe(frame, hide_index=True, alt=alt, height="content", column_config=config, placeholder="")
    for notice in words.notices(sources):
        st.caption(f":material/gavel: {sentence(notice)}")


def steps() -> None:
    """Draw how far single steps are off, by GPU."""
    if not STEPS_FILE.is_file():
        return
    found = shipped_steps()
    heading("Single steps")
    st.markdown(sentence(words.steps_sentence(found)))
    _table(words.steps_frame(found, gpu_names()), "Errors of step times by GPU, largest first")
    st.caption(sentence(f"{stop(found.source)} {stop(found.terms)} {stop(found.caveat)} Computed on {words.day_of(found.date)}."))
    st.code(found.command, language="bash", wrap_lines=True)


def recorded_run() -> None:
    """Draw how far whole runs of a recorded engine are off, and what its machine's drift costs any prediction."""
    if not RUN_FILE.is_file():
        return
    found = shipped_run()
    heading("A real engine, run by run")
    with st.container(width=READABLE_PX):
        st.markdown(sentence(run_words.run_sentence(found)))
        st.caption(sentence(run_words.drift_sentence(found)))
    _table(run_words.run_frame(found), "Errors of a recorded engine's runs by load")
    st.caption(sentence(f"{stop(found.source)} Computed on {words.day_of(found.date)}."))
    st.code(found.command, language="bash", wrap_lines=True)


def _table(frame: pd.DataFrame, alt: str) -> None:
    height: Literal["content"] | int = "content" if len(frame) < _SHORT_ROWS else _TABLE_HEIGHT
    st.dataframe(frame, hide_index=True, alt=alt, height=height, column_config=localized(frame), placeholder="")


def _names() -> dict[str, str]:
    """Return the names of GPUs and models by id."""
    return {**model_names(), **gpu_names()}
