"""What every page uses: a figure with its finding, a heading, a table of sources."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.column_types import ButtonColumnResult, ColumnConfig

from planner.errors import InputError
from planner.ui.charts.base import Figure
from planner.ui.views.why import SourceRow
from planner.ui.words import sentence

ColumnConfigs = dict[str, ColumnConfig | ButtonColumnResult | str | None]
READABLE_PX = 820
CARD_PX = 220
CHART_PX = 340
"""Least width at which a chart can be read; narrower columns go below one another."""


def heading(text: str) -> None:
    """Draw the heading of a section."""
    st.subheader(text, anchor=False)


def stopped(fault: InputError) -> None:
    """Say why the page can't go on: a file in the user's own folder that no part of the app can do without."""
    heading("One of your own files can't be read")
    st.error(sentence(str(fault)), icon=":material/error:")
    st.caption("Correct the file in PLANNER_HOME, or move it away, and reload the page.")


def side_by_side(count: int = 2, least_px: int = CHART_PX) -> tuple[DeltaGenerator, ...]:
    """Return columns of one width, which go below one another where they would be narrower than `least_px`."""
    grid = st.grid(count, min_column_width=least_px, gap=("medium", "large"))
    return tuple(grid.cell() for _ in range(count))


def show(figure: Figure, key: str) -> None:
    """Draw a chart under its finding; the finding is also what a screen reader says."""
    st.markdown(f"**{sentence(figure.title)}**")
    st.vega_lite_chart(spec=figure.spec, key=key, alt=figure.title)


def localized(frame: pd.DataFrame) -> ColumnConfigs:
    """Return the configuration that writes a table's numbers with separators for thousands."""
    return {str(name): st.column_config.NumberColumn(format="localized") for name in frame.select_dtypes("number").columns}


def text_table(frame: pd.DataFrame, alt: str) -> None:
    """Draw a small table of texts, whose cells go over several lines where the page is narrow."""
    with st.container(width=READABLE_PX):  # a width of the table's own would keep its cells from wrapping
        st.table(frame.map(sentence), border="horizontal", hide_index=True, alt=alt)


def source_table(rows: Sequence[SourceRow], alt: str) -> None:
    """Draw the origins of figures."""
    if not rows:
        return
    columns = {
        "Figure": "figure",
        "Value": "value",
        "Kind": "kind",
        "Confidence": "confidence",
        "Read": "date",
        "Source": "reference",
    }
    frame = pd.DataFrame([{title: getattr(row, name) for title, name in columns.items()} for row in rows])
    if not any(row.value for row in rows):
        frame = frame.drop(columns="Value")
    st.dataframe(
        frame,
        hide_index=True,
        alt=alt,
        column_config={
            "Figure": st.column_config.TextColumn(width="medium"),
            "Read": st.column_config.TextColumn(width=100),
            "Source": st.column_config.TextColumn(width="large"),
        },
    )
