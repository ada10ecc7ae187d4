"""The knob map: what a replica reaches for every pair of max_num_seqs and max_num_batched_tokens."""

import altair as alt
import pandas as pd

from planner.ui.charts.base import Figure
from planner.ui.colours import GREY, INK, WARNING

CELL_HEIGHT = 38


def knob_map(frame: pd.DataFrame, title: str) -> Figure:
    """Return the heat map.

    frame : seqs, budget, label (capacity, or what stops it), colour, ink, feasible, mark ("chosen", "default" or ""), and text
      columns capacity, binds
    """
    x = alt.X(
        "budget:O",
        sort="ascending",
        axis=alt.Axis(
            title="max_num_batched_tokens (tokens a step)", labelAngle=0, labelFontSize=12, titleFontSize=12, format=",d"
        ),
    )
    y = alt.Y(
        "seqs:O",
        sort="descending",
        axis=alt.Axis(title="max_num_seqs (sequences)", labelFontSize=12, titleFontSize=12, format=",d"),
    )
    tooltip = [
        alt.Tooltip("seqs:O", title="max_num_seqs", format=",d"),
        alt.Tooltip("budget:O", title="max_num_batched_tokens", format=",d"),
        alt.Tooltip("capacity:N", title="Capacity within the targets"),
        alt.Tooltip("binds:N", title="What binds"),
    ]
    base = alt.Chart(frame).encode(x=x, y=y, tooltip=tooltip)
    cells = base.mark_rect(cornerRadius=2, stroke="transparent", strokeWidth=3).encode(
        color=alt.Color("colour:N", scale=None), opacity=alt.condition("datum.feasible", alt.value(1.0), alt.value(0.22))
    )
    figures = base.mark_text(fontSize=12).encode(
        text="label:N", color=alt.condition("datum.feasible", alt.Color("ink:N", scale=None), alt.value(INK))
    )
    rows = frame["seqs"].nunique()
    layers: list[alt.Chart] = [cells, figures]
    for name, dash, colour in (("default", [4, 3], INK), ("chosen", [1, 0], WARNING)):
        marked = frame[frame["mark"].str.contains(name)]
        if len(marked):
            outline = alt.Chart(marked).mark_rect(filled=False, stroke=colour, strokeWidth=3, strokeDash=dash, cornerRadius=2)
            layers.append(outline.encode(x=x, y=y, tooltip=tooltip))
    return Figure(alt.layer(*layers).properties(height=CELL_HEIGHT * rows + 20), title)


UNREACHED = GREY
