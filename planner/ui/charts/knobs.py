"""The knob map: what a replica reaches for every pair of max_num_seqs and max_num_batched_tokens."""

from collections.abc import Sequence

from planner.ui.charts.base import LABEL_SIZE, Figure, Row, Spec, axis, figure, layer, tooltip
from planner.ui.colours import INK, WARNING

CELL_HEIGHT = 38
_FRAMES = (("default", [4, 3]), ("chosen", [1, 0]))


def knob_map(rows: Sequence[Row], title: str) -> Figure:
    """Return the heat map.

    rows : seqs, budget, label (capacity, or what stops it), colour, ink, feasible, mark ("chosen", "default" or both), and as text
      seqs_text, budget_text, capacity, binds
    """
    place: Spec = {
        "x": _ordinal("budget", "ascending", axis("max_num_batched_tokens (tokens a step)", labelAngle=0, format=",d")),
        "y": _ordinal("seqs", "descending", axis("max_num_seqs (sequences)", format=",d")),
    }
    titles = {
        "seqs_text": "max_num_seqs",
        "budget_text": "max_num_batched_tokens",
        "capacity": "Capacity within the targets",
        "binds": "What binds",
    }
    tip: Spec = {**place, "tooltip": tooltip(titles)}
    only_met = {"test": "datum.feasible"}
    cells = layer(
        rows,
        {"type": "rect", "cornerRadius": 2, "stroke": "transparent", "strokeWidth": 3},
        **tip,
        color={"field": "colour", "type": "nominal", "scale": None},
        opacity={"condition": {**only_met, "value": 1.0}, "value": 0.22},
    )
    ink = {"condition": {**only_met, "field": "ink", "type": "nominal", "scale": None}, "value": INK}
    figures = layer(rows, {"type": "text", "fontSize": LABEL_SIZE}, **tip, text={"field": "label"}, color=ink)
    layers = [cells, figures]
    for mark, dash in _FRAMES:
        marked = [row for row in rows if mark in row["mark"]]
        colour = WARNING if mark == "chosen" else marked[0]["ink"] if marked and marked[0]["feasible"] else INK
        frame = {"type": "rect", "filled": False, "stroke": colour, "strokeWidth": 3, "strokeDash": dash, "cornerRadius": 2}
        layers += [layer(marked, frame, **tip)] if marked else []
    return figure(layers, CELL_HEIGHT * len({row["seqs"] for row in rows}) + 20, title)


def _ordinal(field: str, sort: str, own_axis: Spec) -> Spec:
    return {"field": field, "type": "ordinal", "sort": sort, "axis": own_axis}
