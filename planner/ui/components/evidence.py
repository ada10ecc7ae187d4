"""The evidence of the Plan page: charts, candidates, command, derivations."""

from typing import Literal

import pandas as pd
import streamlit as st

from planner.exporters.candidates import candidate_rows
from planner.exporters.flags import serve_command
from planner.exporters.table import to_csv, to_json
from planner.plans.results import Plan
from planner.ui.charts.compare import comparison
from planner.ui.charts.knobs import knob_map
from planner.ui.charts.replica import latency_curve, memory_bar, step_bars
from planner.ui.choices import gpu_ranks
from planner.ui.components.common import ColumnConfigs, heading, localized, show, side_by_side, source_table
from planner.ui.views.candidates import met_frame, rejected_frame
from planner.ui.views.rows import comparison_rows, curve_rows, knob_rows, memory_rows, step_rows, target_label
from planner.ui.views.why import derivations
from planner.ui.words import sentence, stop

SHORT_ROWS = 12
_COLUMNS: ColumnConfigs = {
    "GPU": st.column_config.TextColumn(width=190, pinned=True),
    "Link": st.column_config.TextColumn(help="What the all-reduces of a replica are timed over; nothing for one GPU."),
    "Reason": st.column_config.TextColumn(width=200),
    "Detail": st.column_config.TextColumn(width=420),
    "What would help": st.column_config.TextColumn(width=320),
}
TABLE_HEIGHT = 420


def comparable(plan: Plan) -> bool:
    """Whether any candidate has both a price and a latency, so that there is something to compare."""
    return any(each.cost is not None and each.latency is not None for each in plan.candidates)


def gpu_comparison(plan: Plan) -> None:
    """Draw every GPU by cost and TPOT."""
    rows, title = comparison_rows(plan, gpu_ranks())
    if not rows:
        return
    target_s = plan.scenario.targets.tpot_p99_s
    show(comparison(rows, title, target_label(target_s)), key="chart-compare")


def replica(plan: Plan) -> None:
    """Draw the chosen replica: latency over rate, knob map, memory, step."""
    chosen = plan.chosen
    if chosen is None or plan.details is None:
        return
    heading(f"One replica: {chosen.label}")
    targets = plan.scenario.targets
    for column, quantity, target_s in zip(side_by_side(), ("TTFT", "TPOT"), (targets.ttft_p99_s, targets.tpot_p99_s), strict=True):
        with column:
            rows, title = curve_rows(plan, quantity)
            if rows:
                show(latency_curve(rows, title, quantity, target_label(target_s)), key=f"chart-{quantity}")
    left, right = side_by_side()
    with left:
        rows, title = memory_rows(chosen)
        if rows:
            show(memory_bar(rows, title), key="chart-memory")
        rows, title = step_rows(plan)
        if rows:
            show(step_bars(rows, title), key="chart-step")
    with right:
        rows, title = knob_rows(plan)
        if rows:
            show(knob_map(rows, title), key="chart-knobs")
            st.caption(
                "Each cell: requests a second that one replica serves within the targets; grey cells miss them, and say why. "
                "Solid frame: chosen. Dashed frame: the engine's own settings. No cell: the engine refuses the pair."
            )


def command(plan: Plan) -> None:
    """Draw the engine's command line with a copy button."""
    if plan.chosen is None or plan.chosen.deployment is None:
        return
    heading("Run it")
    serve = serve_command(plan.chosen.deployment)
    st.code(serve.line, language="bash", wrap_lines=True)
    for note in serve.notes:
        st.caption(sentence(stop(note)))


def candidates(plan: Plan) -> None:
    """Draw the table of all candidates, those that meet the targets and those that don't, with downloads."""
    met, rejected = met_frame(plan), rejected_frame(plan)
    heading("Every candidate")
    serve = "Serve the load" if plan.scenario.targets.offline else "Meet the targets"
    names = [f"{serve} ({len(met)})", f"Rejected ({len(rejected)})"]
    met_tab, rejected_tab = st.tabs(names, default=names[1] if met.empty else names[0])
    with met_tab:
        _table(met, "Candidates that serve the scenario, cheapest first", "No candidate does.")
    with rejected_tab:
        _table(rejected, "Rejected candidates with the reason and the remedy", "None was rejected.")
    rows = candidate_rows(plan)
    with st.container(horizontal=True):
        name = f"candidates-{plan.scenario.digest()}"
        st.download_button("CSV", to_csv(rows), f"{name}.csv", "text/csv", key="candidates-csv", icon=":material/download:")
        st.download_button(
            "JSON", to_json(rows), f"{name}.json", "application/json", key="candidates-json", icon=":material/download:"
        )


def why(plan: Plan) -> None:
    """Draw one fold for each figure: its formula with the numbers, and the sources."""
    heading("Why")
    for index, derivation in enumerate(derivations(plan)):
        with st.expander(sentence(derivation.title), key=f"why-{index}"):
            for line in derivation.lines:
                st.markdown(sentence(line))
            source_table(derivation.sources, f"Sources of: {derivation.title}")


def _table(frame: pd.DataFrame, alt: str, empty: str) -> None:
    if frame.empty:
        st.caption(empty)
        return
    height: Literal["content"] | int = "content" if len(frame) < SHORT_ROWS else TABLE_HEIGHT
    config = {**localized(frame), **{name: each for name, each in _COLUMNS.items() if name in frame}}
    st.dataframe(frame, hide_index=True, alt=alt, height=height, placeholder="", column_config=config)
