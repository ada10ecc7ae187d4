"""Dollars a day as bars: the present fleet, the levers one on top of the other, and others' APIs for the same tokens."""

from collections.abc import Sequence

from planner.ui.charts.base import LABEL_SIZE, Figure, Row, Spec, axis, figure, layer, name, number, text, tooltip
from planner.ui.colours import ACCENT, GREY, HUES

ROW_HEIGHT = 34
_COLOURS = {"prompts": ACCENT, "decode": HUES[1], "API": GREY}


def bill_bars(rows: Sequence[Row], totals: Sequence[Row], title: str) -> Figure:
    """Return the bars, in the order of the rows.

    rows : bar, part (prompts, decode or API), start, end, and as text usd; two of them for a fleet, one for an API
    totals : bar, end, label
    """
    order = [row["bar"] for row in totals]
    place: Spec = {
        "field": "bar",
        "type": "ordinal",
        "sort": order,
        "axis": axis(None, labelLimit=250, domain=False, ticks=False),
    }
    most = max(float(row["end"]) for row in totals)
    across = number("start", scale={"domain": [0.0, most * 1.32], "nice": False}, axis=axis("USD a day"))
    shared: Spec = {"y": place, "tooltip": tooltip({"bar": "What", "part": "Part", "usd": "USD a day"})}
    layers: list[Spec] = []
    for part, colour in _COLOURS.items():
        drawn = [row for row in rows if row["part"] == part]
        if drawn:
            mark = {"type": "bar", "color": colour, "height": {"band": 0.62}, "cornerRadiusEnd": 2}
            layers.append(layer(drawn, mark, **shared, x=across, x2={"field": "end"}))
    first = [{**row, "label": row["part"]} for row in rows if row["bar"] == order[0]]
    inside = {"type": "text", "color": "#FFFFFF", "fontSize": LABEL_SIZE, "fontWeight": "bold", "align": "left", "dx": 6}
    layers.append(layer(first, inside, y=place, x=number("start"), text=name("label")))
    layers.append(layer(totals, text(align="left", dx=6), y=place, x=number("end"), text=name("label")))
    return figure(layers, ROW_HEIGHT * len(order) + 30, title)
