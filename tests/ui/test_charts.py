"""Charts by their specification: valid Vega-Lite, axes with units, the target on its rule, colours that belong to the GPU."""

import json
import re
from typing import Any

import altair as alt
import pytest

from planner.ui.charts.base import LOG_FROM_RATIO, Figure, Row, axis, log_ticks, scale_for, sparse_log_ticks
from planner.ui.charts.compare import MET, MISSED, comparison
from planner.ui.charts.knobs import knob_map
from planner.ui.charts.labels import Spot, placed
from planner.ui.charts.replica import LEGEND_LINE_HEIGHT, latency_curve, memory_bar, step_bars
from planner.ui.colours import GREY, HUES, INK, SHAPES, STEPS, WARNING, gpu_colour, gpu_shape, name_colour, on_hue, on_step, step_of

LIGHT_GROUND, DARK_GROUND = "#FFFFFF", "#11161C"
TEXT_COLUMNS = ("fleet", "cost", "per_million", "ttft", "tpot", "knobs")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def checked(figure: Figure) -> list[dict[str, Any]]:
    """Return the layers of a chart that Vega-Lite's schema accepts and that JSON can carry."""
    json.dumps(figure.spec, allow_nan=False)
    alt.LayerChart.from_dict(figure.spec, validate=True)
    layers: list[dict[str, Any]] = figure.spec["layer"]
    return layers


def axis_titles(layers: list[dict[str, Any]]) -> set[str]:
    axes = [layer["encoding"].get(channel, {}).get("axis") for layer in layers for channel in ("x", "y")]
    return {axis["title"] for axis in axes if axis and axis["title"]}


def marks(layers: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [layer for layer in layers if layer["mark"]["type"] == kind]


def candidates(*points: tuple[str, float, float, bool]) -> list[Row]:
    """Return rows from (label, dollars, TPOT in ms, meets the targets); the first is chosen."""
    return [
        {
            **dict.fromkeys(TEXT_COLUMNS, ""),
            "label": label,
            "colour": gpu_colour(i),
            "shape": gpu_shape(i),
            "usd_per_day": usd,
            "tpot_p99_ms": tpot,
            "status": MET if met else MISSED,
            "chosen": i == 0,
            "named": True,
        }
        for i, (label, usd, tpot, met) in enumerate(points)
    ]


TWO = candidates(("H100", 98.0, 24.0, True), ("L40S", 81.0, 41.0, False))
CURVE: list[Row] = [
    {
        "rate_rps": rate,
        "mean_ms": mean,
        "p99_ms": p99,
        "planned": rate == 2.0,
        **dict.fromkeys(("rate", "p99", "mean", "running", "kv", "binds"), ""),
    }
    for rate, mean, p99 in [(1.0, 10.0, 12.0), (2.0, 14.0, 20.0), (3.0, 25.0, 40.0), (4.0, 300.0, 900.0)]
]


@pytest.mark.parametrize("colour", [*HUES, WARNING])
def test_marks_stand_out_on_both_grounds(colour: str) -> None:
    assert contrast(colour, LIGHT_GROUND) >= 3.0
    assert contrast(colour, DARK_GROUND) >= 3.0


@pytest.mark.parametrize("colour", [*HUES, GREY])
@pytest.mark.parametrize(("ground", "ink"), [(LIGHT_GROUND, "#1B2733"), (DARK_GROUND, "#E6EBF0")])
def test_names_in_a_marks_colour_are_readable_on_both_grounds(colour: str, ground: str, ink: str) -> None:
    share = int(re.search(r"#\w{6} (\d+)%, currentColor", name_colour(colour))[1]) / 100  # type: ignore[index]
    channels = [round(share * int(colour[i : i + 2], 16) + (1 - share) * int(ink[i : i + 2], 16)) for i in (1, 3, 5)]
    assert contrast("#" + "".join(f"{each:02X}" for each in channels), ground) >= 4.5


@pytest.mark.parametrize("colour", HUES[:5])
def test_what_is_written_on_a_bar_is_readable(colour: str) -> None:
    assert contrast(on_hue(colour), colour) >= 4.5


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_figures_in_the_knob_map_are_readable(step: int) -> None:
    assert contrast(STEPS[step], on_step(step)) >= 4.5


def test_colour_and_shape_together_tell_sixty_gpus_apart() -> None:
    assert len({(gpu_colour(rank), gpu_shape(rank)) for rank in range(60)}) == len(HUES) * len(SHAPES) == 60


def test_steps_of_the_scale_cover_it() -> None:
    assert [step_of(value, 7.0) for value in range(8)] == [0, 1, 2, 3, 4, 5, 6, 6]
    assert step_of(0.0, 0.0) == 0


def test_comparison_names_its_axes_and_writes_the_target_on_its_rule() -> None:
    layers = checked(comparison(TWO, "H100 is the cheapest", (30.0, "target 30 ms")))
    assert axis_titles(layers) == {"p99 TPOT at the planned load (ms)", "Fleet ($/day)"}
    (rule,) = marks(layers, "rule")
    assert rule["mark"]["strokeDash"]
    assert rule["data"]["values"] == [{"value": 30.0, "label": "target 30 ms"}]


def test_every_gpu_that_meets_the_targets_is_named_where_there_is_room() -> None:
    points = candidates(("H100", 98.0, 24.0, True), ("B200", 300.0, 5.0, True), ("L40S", 200.0, 41.0, False))
    layers = checked(comparison([{**row, "named": row["chosen"]} for row in points], "", None))
    written = {row["label"] for layer in marks(layers, "text") for row in layer["data"]["values"]}
    assert written == {"H100", "B200"}


def test_comparison_says_when_it_is_logarithmic() -> None:
    layers = checked(comparison(candidates(("H100", 98.0, 24.0, True), ("GB300", 9800.0, 5.0, True)), "", None))
    assert "Fleet ($/day, log scale)" in axis_titles(layers)
    assert marks(layers, "rule") == []


def test_the_chosen_gpu_is_bold_and_ringed() -> None:
    layers = checked(comparison(TWO, "", None))
    bold = [layer["data"]["values"][0]["label"] for layer in marks(layers, "text") if layer["mark"]["fontWeight"] == 700]
    assert bold == ["H100"]
    (ring,) = [layer for layer in marks(layers, "point") if layer["mark"].get("shape") == "circle"]
    assert [row["label"] for row in ring["data"]["values"]] == ["H100"]


def test_only_candidates_that_meet_the_targets_are_filled() -> None:
    fill = marks(checked(comparison(TWO, "", None)), "point")[0]["encoding"]["fill"]
    assert fill["condition"]["test"] == "datum.status == 'meets the targets'"
    assert fill["value"] == "transparent"


def test_a_name_can_hold_anything() -> None:
    hostile = candidates(("<img src=x onerror=alert(1)>'\"\\", 98.0, 24.0, True))
    assert json.loads(json.dumps(checked(comparison(hostile, "", None))))


def test_curve_keeps_the_target_readable_beside_saturation() -> None:
    layers = checked(latency_curve(CURVE, "", "TPOT", (30.0, "target 30 ms")))
    assert axis_titles(layers) == {"Arrival rate of one replica (requests/s)", "TPOT (ms)"}
    assert {layer["encoding"]["y"]["scale"]["domain"][1] for layer in marks(layers, "line")} == {30.0 * 2.1 * 1.06}


@pytest.mark.parametrize(("target_ms", "drawn"), [(5.0, True), (30.0, True), (900.0, True), (2000.0, True), (10_000.0, False)])
def test_a_target_is_drawn_inside_the_frame_or_said_to_be_above(target_ms: float, drawn: bool) -> None:
    layers = checked(latency_curve(CURVE, "", "TPOT", (target_ms, "target")))
    top = marks(layers, "line")[0]["encoding"]["y"]["scale"]["domain"][1]
    assert bool(marks(layers, "rule")) == drawn
    assert (target_ms <= top) == drawn
    planned_ms = next(row["p99_ms"] for row in CURVE if row["planned"])
    assert planned_ms <= top


def test_curve_without_a_target_shows_everything() -> None:
    layers = checked(latency_curve(CURVE, "", "TTFT", None))
    assert marks(layers, "rule") == []
    assert axis_titles(layers) == {"Arrival rate of one replica (requests/s)", "TTFT (ms)"}


def test_curve_names_its_lines_inside_the_frame_and_the_planned_point() -> None:
    layers = checked(latency_curve(CURVE, "", "TPOT", (30.0, "target 30 ms")))
    named = {
        layer["encoding"]["text"]["value"]: layer["data"]["values"]
        for layer in marks(layers, "text")
        if "value" in layer["encoding"]["text"]
    }
    assert {label: [row["rate_rps"] for row in rows] for label, rows in named.items()} == {
        "p99": [3.0],
        "mean": [3.0],
        "planned": [2.0],
    }


def test_memory_bar_stacks_in_the_given_order_with_sizes_in_the_legend() -> None:
    parts = [("weights 15 GiB", 15.0, "#0072B2"), ("kv cache 50 GiB", 50.0, "#009E73")]
    rows: list[Row] = [
        {"part": part, "gib": size, "colour": colour, "order": i, "share": "", "source": ""}
        for i, (part, size, colour) in enumerate(parts)
    ]
    (bar,) = checked(memory_bar(rows, ""))
    assert bar["encoding"]["color"]["scale"] == {"domain": [part for part, _, _ in parts], "range": ["#0072B2", "#009E73"]}
    assert bar["encoding"]["order"]["field"] == "order"
    assert axis_titles([bar]) == {"Memory of one GPU (GiB)"}


def test_step_bars_start_at_zero_and_leave_room_for_labels() -> None:
    rows: list[Row] = [
        {"part": "linear layers", "ms": 8.0, "label": "8 ms", "hidden": False},
        {"part": "host", "ms": 4.0, "label": "", "hidden": True},
    ]
    (bars,) = marks(checked(step_bars(rows, "")), "bar")
    low, high = bars["encoding"]["x"]["scale"]["domain"]
    assert low == 0.0
    assert high > 8.0 * 1.2


def test_knob_map_frames_the_chosen_and_the_default_cell() -> None:
    cells = [(64, 2048, "chosen"), (64, 8192, ""), (1024, 8192, "default")]
    rows: list[Row] = [
        {
            "seqs": seqs,
            "budget": budget,
            "label": "9",
            "colour": STEPS[0],
            "ink": on_step(0),
            "feasible": mark != "default",
            "mark": mark,
            **dict.fromkeys(("seqs_text", "budget_text", "capacity", "binds"), ""),
        }
        for seqs, budget, mark in cells
    ]
    layers = checked(knob_map(rows, ""))
    frames = {
        layer["mark"]["stroke"]: layer["data"]["values"] for layer in marks(layers, "rect") if layer["mark"].get("filled") is False
    }
    assert {colour: [(row["seqs"], row["budget"]) for row in found] for colour, found in frames.items()} == {
        WARNING: [(64, 2048)],
        INK: [(1024, 8192)],
    }
    assert axis_titles(layers) == {"max_num_batched_tokens (tokens a step)", "max_num_seqs (sequences)"}


@pytest.mark.parametrize("step", [0, len(STEPS) - 1])
def test_the_frame_of_the_engines_own_cell_stands_out_from_the_cell_not_from_the_page(step: int) -> None:
    own: Row = {"seqs": 64, "budget": 512, "label": "9", "colour": STEPS[step], "ink": on_step(step), "feasible": True}
    row = {**own, "mark": "default", **dict.fromkeys(("seqs_text", "budget_text", "capacity", "binds"), "")}
    (frame,) = [each for each in marks(checked(knob_map([row], "")), "rect") if each["mark"].get("filled") is False]
    assert frame["mark"]["stroke"] == on_step(step)


def test_the_memory_bar_leaves_its_axis_room_whatever_the_legend_takes() -> None:
    def height(parts: int) -> int:
        rows = [{"part": f"p{i}", "gib": 1.0, "colour": "#0072B2", "order": i, "share": "1", "source": ""} for i in range(parts)]
        return int(memory_bar(rows, "").spec["height"])

    assert height(8) - height(2) == 3 * LEGEND_LINE_HEIGHT


def test_text_follows_the_theme_by_itself() -> None:
    layers = checked(comparison(TWO, "", (30.0, "target 30 ms")))
    assert {layer["mark"]["color"] for layer in marks(layers, "text")} == {INK}


def test_log_axis_has_few_round_ticks() -> None:
    assert log_ticks([54.0, 3500.0]) == [100.0, 200.0, 500.0, 1000.0, 2000.0]


def test_scale_turns_logarithmic_at_two_decades() -> None:
    assert scale_for([1.0, LOG_FROM_RATIO - 1])[1] == ""
    assert scale_for([1.0, LOG_FROM_RATIO])[1] == ", log scale"
    assert scale_for([0.0, 5.0])[1] == ""
    assert scale_for([])[1] == ""


def test_labels_never_cover_each_other() -> None:
    spots = [Spot(100.0, 100.0, "first"), Spot(102.0, 101.0, "second"), Spot(101.0, 99.0, "third"), Spot(100.0, 100.0, "fourth")]
    places = placed(spots, [(spot.x, spot.y) for spot in spots], (400.0, 300.0))
    given = [place for place in places if place is not None]
    assert places[0] is not None
    assert len(given) == len(set(given))


def test_a_label_at_the_edge_turns_inwards() -> None:
    assert placed([Spot(395.0, 150.0, "a long name")], [(395.0, 150.0)], (400.0, 300.0)) == ["left"]
    assert placed([Spot(5.0, 150.0, "a long name")], [(5.0, 150.0)], (400.0, 300.0)) == ["right"]


def test_a_label_keeps_off_a_dashed_line_where_it_can() -> None:
    point, across = Spot(200.0, 150.0, "a name"), [(float(x), 150.0) for x in range(0, 400, 8)]
    assert placed([point], [(200.0, 150.0)], (400.0, 300.0), rules=across) == ["above"]
    everywhere = [(float(x), float(y)) for x in range(0, 400, 8) for y in range(0, 300, 8)]
    assert placed([point], [(200.0, 150.0)], (400.0, 300.0), rules=everywhere) == ["right"]


def test_a_logarithmic_axis_draws_every_tick_that_it_is_given() -> None:
    ticks = sparse_log_ticks([1.0, 256.0])
    assert ticks == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]
    assert axis("Batch", values=ticks)["tickCount"] == len(ticks)
