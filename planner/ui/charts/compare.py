"""Dollars a day against p99 TPOT: every GPU at a glance."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from planner.ui.charts.base import Figure, axis, log_ticks, scale_for, target_rule, text
from planner.ui.charts.labels import PLACES, Spot, placed
from planner.ui.colours import INK

HEIGHT = 400
COLUMNS = (
    "gpu", "label", "colour", "shape", "usd_per_day", "tpot_p99_ms", "status", "chosen", "named",
    "ttft", "tpot", "cost", "per_million", "fleet", "knobs",
)  # fmt: skip
_LOG_DOLLARS_FROM = 20.0
_ASSUMED_WIDTH_PX = 520.0
_BESIDE_RING = 1.5
_PLACEMENT: dict[str, dict[str, Any]] = {
    "right": {"align": "left", "dx": 11, "dy": 1},
    "left": {"align": "right", "dx": -11, "dy": 1},
    "above": {"align": "center", "dy": -16},
    "below": {"align": "center", "dy": 18},
}


def comparison(frame: pd.DataFrame, title: str, target: tuple[float, str] | None) -> Figure:
    """Return the scatter of candidates.

    frame : COLUMNS, one row a candidate; `status` is "meets the targets" or "misses", `named` rows carry their label where it fits
    target : TPOT in ms and how it is written; None for offline work
    """
    x_scale, x_note = scale_for(frame["tpot_p99_ms"])
    y_scale, y_note = scale_for(frame["usd_per_day"], log_from=_LOG_DOLLARS_FROM)
    ticks = {"values": log_ticks(frame["usd_per_day"])} if y_note else {}
    x = alt.X("tpot_p99_ms:Q", scale=x_scale, axis=axis(f"p99 TPOT at the planned load (ms{x_note})"))
    y = alt.Y("usd_per_day:Q", scale=y_scale, axis=axis(f"Fleet ($/day{y_note})", format="$,.3~s", **ticks))
    base = alt.Chart(frame).encode(x=x, y=y, shape=alt.Shape("shape:N", scale=None, legend=None), tooltip=_tooltip())
    points = base.mark_point(size=110, strokeWidth=1.8, opacity=1).encode(
        stroke=alt.Stroke("colour:N", scale=None),
        fill=alt.condition("datum.status == 'meets the targets'", alt.Fill("colour:N", scale=None), alt.value("transparent")),
    )
    ring = base.transform_filter("datum.chosen").mark_point(size=420, strokeWidth=2, filled=False, color=INK)
    layers: list[alt.Chart | alt.LayerChart] = [] if target is None else [target_rule(*target, axis_name="x")]
    layers += [points, ring.encode(shape=alt.value("circle"))]
    labelled = frame.assign(place=_places(frame, log=bool(y_note)))
    for place in PLACES:
        for chosen in (False, True):
            rows = labelled[(labelled["place"] == place) & (labelled["chosen"] == chosen)]
            if len(rows):
                options = {**_PLACEMENT[place], "fontWeight": 700 if chosen else 400}
                if chosen and "dx" in options:
                    options["dx"] = options["dx"] * _BESIDE_RING
                mark = text(rows, **options)
                layers.append(mark.encode(x=x, y=y, text="label:N"))
    return Figure(alt.layer(*layers).properties(height=HEIGHT), title)


def _tooltip() -> list[alt.Tooltip]:
    titles = {
        "label": "Candidate",
        "status": "Targets",
        "fleet": "Fleet",
        "cost": "Cost",
        "per_million": "Per million tokens",
        "ttft": "p99 TTFT",
        "tpot": "p99 TPOT",
        "knobs": "Settings",
    }
    return [alt.Tooltip(f"{column}:N", title=title) for column, title in titles.items()]


def _places(frame: pd.DataFrame, *, log: bool) -> "pd.Series[Any]":
    """Return where each named row's label goes, the chosen one first; None for the rest."""
    x = frame["tpot_p99_ms"].astype(float)
    y = np.log(frame["usd_per_day"].astype(float)) if log else frame["usd_per_day"].astype(float)
    x_px = x / x.max() * _ASSUMED_WIDTH_PX
    low, high = (y.min() if log else 0.0), y.max()
    y_px = HEIGHT * (1.0 - (y - low) / ((high - low) or 1.0))
    order = frame[frame["named"]].sort_values(["chosen", "usd_per_day"], ascending=[False, True]).index
    spots = [Spot(x_px[row], y_px[row], str(frame["label"][row])) for row in order]
    places = placed(spots, list(zip(x_px, y_px, strict=True)), _ASSUMED_WIDTH_PX, HEIGHT)
    return pd.Series(dict(zip(order, places, strict=True)), dtype=object).reindex(frame.index)
