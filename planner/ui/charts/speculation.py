"""The speed-up map: what drafts gain or lose at every batch and acceptance."""

from collections.abc import Sequence

from planner.ui.charts.base import LABEL_SIZE, Figure, Row, Spec, axis, figure, layer, tooltip
from planner.ui.colours import WARNING

CELL_HEIGHT = 34


def speedup_map(rows: Sequence[Row], title: str) -> Figure:
    """Return the heat map: gains and losses in two colours, and every cell with its figure, so that none rests on hue.

    rows : batch, acceptance (as text), label, colour, ink, asked, and as text speedup, best
    """
    place: Spec = {
        "x": {"field": "batch", "type": "ordinal", "sort": "ascending", "axis": axis("Sequences in the batch", labelAngle=0)},
        "y": {"field": "acceptance", "type": "ordinal", "sort": "descending", "axis": axis("Acceptance of a draft")},
    }
    titles = {"batch_text": "Sequences", "acceptance": "Acceptance", "speedup": "Speed-up", "best": "Best K there"}
    tip: Spec = {**place, "tooltip": tooltip(titles)}
    cells = layer(
        rows,
        {"type": "rect", "cornerRadius": 2, "stroke": "transparent", "strokeWidth": 3},
        **tip,
        color={"field": "colour", "type": "nominal", "scale": None},
    )
    ink = {"field": "ink", "type": "nominal", "scale": None}
    figures = layer(rows, {"type": "text", "fontSize": LABEL_SIZE}, **tip, text={"field": "label"}, color=ink)
    frame = {"type": "rect", "filled": False, "stroke": WARNING, "strokeWidth": 3, "cornerRadius": 2}
    asked = [row for row in rows if row["asked"]]
    layers = [cells, figures, *([layer(asked, frame, **tip)] if asked else [])]
    return figure(layers, CELL_HEIGHT * len({row["acceptance"] for row in rows}) + 20, title)
