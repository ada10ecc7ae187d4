"""A window of steps: which requests each step held, as bars over time."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.ui.charts.base import LABEL_SIZE, Figure, Row, Spec, axis, figure, layer, name, number, text, tooltip
from planner.ui.colours import ACCENT, FAINT, GREY, HUES, INK, WARNING

ROW_PX = 13
FRAME_PX = 110
WORK_COLOURS = {"decode": ACCENT, "prefill chunk": HUES[4], "recomputed chunk": HUES[3], "wasted row": GREY, "waiting": "#7A869266"}


@dataclass(frozen=True, slots=True)
class Frame:
    """What a window spans.

    order : names of the requests, from top to bottom
    span_s : from the first step's start to the last one's end [s]
    longest : from_s, to_s and label of the longest step
    """

    order: Sequence[str]
    span_s: tuple[float, float]
    longest: Row
    title: str


def step_gantt(bars: Sequence[Row], waits: Sequence[Row], preempted: Sequence[Row], frame: Frame) -> Figure:
    """Return the steps as bars: a line for each request, coloured by what the step did for it.

    bars : request, from_s, to_s, work, and as text tokens, context, prompt, time, took
    waits : request, from_s, to_s, waited
    preempted : request, from_s, time
    """
    y = name("request", sort=list(frame.order), axis=axis("Request", labelFontSize=10, labelOverlap=True, grid=False))
    x = number("from_s", scale={"domain": list(frame.span_s), "nice": False}, axis=axis("Time from the start (s)", format=",.2~f"))
    works = [work for work in WORK_COLOURS if work in {row["work"] for row in bars} or (work == "waiting" and waits)]
    legend = {"title": None, "orient": "top", "labelFontSize": LABEL_SIZE, "symbolType": "square"}
    colour = name("work", scale={"domain": works, "range": [WORK_COLOURS[work] for work in works]}, legend=legend)
    place: Spec = {"y": y, "x": x, "x2": {"field": "to_s"}}
    titles = {
        "request": "Request",
        "work": "Work",
        "tokens": "Tokens in this step",
        "context": "Tokens computed before",
        "prompt": "Prompt tokens",
        "time": "Step starts",
        "took": "Step takes",
    }
    layers = [
        layer([frame.longest], {"type": "rect", "color": FAINT}, x=x, x2={"field": "to_s"}),
        layer(
            [{**row, "work": "waiting"} for row in waits],
            {"type": "bar", "height": {"band": 0.24}},
            **place,
            color=colour,
            tooltip=tooltip({"request": "Request", "waited": "Waited here"}),  # type: ignore[arg-type]
        ),
        layer(
            bars,
            {"type": "bar", "height": {"band": 0.78}},
            **place,
            color=colour,
            tooltip=tooltip(titles),  # type: ignore[arg-type]
        ),
        layer(
            preempted,
            {
                "type": "point",
                "shape": "cross",
                "angle": 45,
                "size": 120,
                "filled": True,
                "color": WARNING,
                "stroke": INK,
                "strokeWidth": 0.5,
            },
            y=y,
            x=x,
            tooltip=tooltip({"request": "Preempted", "time": "At"}),  # type: ignore[arg-type]
        ),
        layer([frame.longest], text(align="left", baseline="bottom", dx=2, dy=-2), x=x, y={"value": 0}, text=name("label")),
    ]
    return figure(layers, FRAME_PX + ROW_PX * len(frame.order), frame.title)
