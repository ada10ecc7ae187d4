"""What the Accuracy page says: the misses first, every source with its terms, and charts that Altair's schema takes."""

import altair as alt
import pytest

from planner.accuracy.shipped import (
    Coverage,
    Errors,
    GpuSteps,
    GroupPart,
    Part,
    ShippedAccuracy,
    ShippedSteps,
    SourceReport,
    shipped_accuracy,
)
from planner.errors import InputError
from planner.hardware import list_gpus
from planner.tuning import FitPoint, Target
from planner.ui.charts.accuracy import distributions, predicted_rows, strips
from planner.ui.charts.base import Figure
from planner.ui.choices import gpu_ranks
from planner.ui.views import accuracy as words
from planner.ui.views import accuracy_own as own
from planner.ui.views import accuracy_rows as rows
from planner.ui.views.calibrate_files import Given

NAMES = {gpu.id: gpu.name for gpu in list_gpus()}
SOURCES = shipped_accuracy()


def errors(median: float, bias: float, points: int = 10) -> Errors:
    low, high = min(bias - 5.0, 0.0), max(bias + 5.0, 0.0)
    return Errors(
        points=points, median_abs_pct=median, mean_abs_pct=median, p90_abs_pct=2 * median, bias_pct=bias,
        quantiles_pct=(low, bias - 1.0, bias, bias + 1.0, high),
    )  # fmt: skip


def group(model: str, median: float, bias: float) -> GroupPart:
    return GroupPart(
        gpu="h100-80g-sxm", engine="vllm", model=model, held_out=False, rows=10, predicted=10, errors={"tpot": errors(median, bias)}
    )


def source(**changes: object) -> ShippedAccuracy:
    overall = Part(rows=30, predicted=20, errors={"tpot": errors(12.0, -3.0, 20)}, coverage={})
    groups = (group("mild", 5.0, 5.0), group("worst", 60.0, -60.0), group("middle", 20.0, 20.0))
    report = SourceReport(overall=overall, held_out=overall, groups=groups, not_predicted={"no rate": 10})
    given: dict[str, object] = {
        "id": "made_up", "title": "Made up runs", "source": "nowhere", "terms": "MIT", "caveat": "Not measured.",
        "date": "2026-01-02", "command": "python -m planner accuracy made_up.csv", "shipped": report, "none": report,
    }  # fmt: skip
    return ShippedAccuracy.model_validate(given | changes)


def holds(figure: Figure) -> None:
    """Raise when Altair's schema doesn't take a chart; a few rows of each layer stand for all."""
    layers = [
        {**layer, "data": {"values": layer["data"]["values"][:3]}} if "data" in layer else layer for layer in figure.spec["layer"]
    ]
    alt.Chart.from_dict({**figure.spec, "layer": layers, "$schema": "https://vega.github.io/schema/vega-lite/v6.json"})


def test_the_sentence_holds_the_figures_of_the_largest_source() -> None:
    text = words.headline(SOURCES)
    tpot = words.headline_source(SOURCES).shipped.overall.errors["tpot"]
    assert f"{tpot.points:,} measured points" in text
    assert f"{tpot.median_abs_pct:.3g}" in text
    peer = words.headline_source(SOURCES).shipped.peer["tpot"]
    assert f"{peer.median_abs_pct:.3g}" in text


def test_the_largest_miss_is_named_with_its_direction() -> None:
    found = words.worst(source(), "tpot", {"worst": "The Worst"})
    assert found is not None
    assert "The Worst" in found
    assert "60" in found
    assert "too fast" in found
    assert words.worst(source(), "ttft", {}) is None


def test_too_much_throughput_is_called_high_and_too_long_a_time_slow() -> None:
    report = source().shipped.model_copy(
        update={"groups": (source().shipped.groups[0].model_copy(update={"errors": {"throughput": errors(9.0, 9.0)}}),)}
    )
    high = words.worst(source(shipped=report), "throughput", {})
    assert high is not None
    assert "too high" in high
    slow = words.worst(source(), "tpot", {})
    assert slow is not None


@pytest.mark.parametrize("each", SOURCES, ids=lambda each: each.id)
def test_every_source_is_told_and_drawn_with_its_misses_first(each: ShippedAccuracy) -> None:
    assert words.facts(each)["Terms"] == each.terms
    assert words.facts(each)["Predicted on"] == words.day_of(each.date)
    for place, metric in enumerate(words.metrics_of(each)):
        medians = words.groups_frame(each, metric, NAMES)[f"{words.METRICS[metric]}, median"].dropna().tolist()
        assert medians == sorted(medians, reverse=True)
        if place:
            continue
        dots, lines, title = rows.group_rows(each, metric, NAMES, gpu_ranks())
        if dots:
            holds(strips(dots, lines, rows.CLIP_PCT, title))
        boxes = rows.overall_rows(each, metric)
        holds(distributions(boxes, rows.CLIP_PCT, words.overall_title(each, metric)))
        shown, title, unit = rows.shown_rows(each, metric, NAMES)
        if shown:
            holds(predicted_rows(shown, title, unit))


def test_every_row_that_is_not_predicted_has_its_reason() -> None:
    for each in SOURCES:
        overall = each.shipped.overall
        frame = words.not_predicted_frame(each.shipped.not_predicted)
        missing = 0 if frame.empty else int(frame["Rows"].sum())
        assert missing == overall.rows - overall.predicted, each.id


def test_mlperf_s_notice_is_said() -> None:
    assert any("not verified by MLCommons" in notice for notice in words.notices(SOURCES))


def test_sources_without_leave_show_no_rows() -> None:
    for each in SOURCES:
        if "error figures only" in each.terms:
            assert each.rows == ()


def test_coverage_is_said_where_it_was_measured() -> None:
    cover = {"tpot": Coverage(points=40, covered_pct=77.5, half_width_pct=18.0)}
    overall = Part(rows=30, predicted=20, errors={"tpot": errors(12.0, -3.0, 20)}, coverage=cover)
    text = words.coverage_sentence(source(shipped=source().shipped.model_copy(update={"overall": overall})))
    assert "77.5" in text
    assert "40 points" in text
    assert "not checked" in words.coverage_sentence(source())


def test_steps_by_gpu_put_the_largest_held_out_error_first() -> None:
    gpus = tuple(
        GpuSteps(
            gpu=gpu,
            engine="vllm",
            version="0.24.0",
            rows=9,
            errors=errors(2.0, 0.0),
            held_out=errors(held, 0.0),
            median_limit_pct=3.0,
            mean_limit_pct=5.0,
        )
        for gpu, held in (("l40s", 2.5), ("h100-80g-sxm", 4.5))
    )
    steps = ShippedSteps(title="t", source="s", terms="MIT", caveat="c", date="2026-01-02", command="x", gpus=gpus, groups=())
    assert words.steps_frame(steps, NAMES)["GPU"].tolist() == [NAMES["h100-80g-sxm"], NAMES["l40s"]]
    assert words.steps_frame(steps, NAMES)["Aim for the mean"].tolist() == ["≤ 5\xa0%", "≤ 5\xa0%"]
    assert "2.5–4.5" in words.steps_sentence(steps)
    assert "third" not in words.steps_sentence(steps)


def test_a_gpu_with_one_group_shows_what_a_third_of_its_range_left_out_says() -> None:
    only = GpuSteps(gpu="l40s", engine="vllm", version="0.24.0", rows=9, errors=errors(2.0, 0.0), by_range=errors(4.1, -1.0))
    neither = GpuSteps(gpu="b200-sxm", engine="vllm", version="0.24.0", rows=9, errors=errors(3.0, 0.0))
    whole = GpuSteps(
        gpu="h100-80g-sxm", engine="vllm", version="0.24.0", rows=9, errors=errors(2.0, 0.0), held_out=errors(2.9, 0.0)
    )
    gpus = (neither, whole, only)
    steps = ShippedSteps(title="t", source="s", terms="MIT", caveat="c", date="2026-01-02", command="x", gpus=gpus, groups=())
    frame = words.steps_frame(steps, NAMES).set_index("GPU")
    assert frame["Left out in turn"].tolist() == ["each third of the range", words.DASH, "each model and layout"]
    assert frame["Left out: median (bias)"].iloc[0].startswith("4.1")
    assert "third of its range left out are 4.1" in words.steps_sentence(steps)
    assert "2.9" in words.steps_sentence(steps)


def silent(_text: str, _share: float) -> None:
    return


def given(text: str | bytes, name: str = "mine.csv") -> Given:
    return Given(name, text.encode() if isinstance(text, str) else text, name)


TABLE = (
    "gpu,engine,model,scenario,prompt_tokens,output_tokens,concurrency,tpot_mean_s,ttft_mean_s\n"
    "h100-80g-sxm,vllm,llama-3.1-8b-instruct,closed-loop,256,32,2,0.0080,0.05\n"
    "h100-80g-sxm,vllm,no-such-model,closed-loop,256,32,2,0.0080,0.05\n"
)


def test_a_table_of_one_s_own_is_predicted_and_the_rest_counted() -> None:
    report = own.own_report(given(TABLE), silent)
    assert "1 of 2 rows is predicted" in own.report_sentence(report)
    assert report.not_predicted == {"unknown model": 1}
    frame = own.report_frame(report)
    assert frame["TPOT, measured"].tolist() == ["8\N{NO-BREAK SPACE}ms"]
    found, title = own.report_rows(report)
    holds(predicted_rows(found, title, "ms"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "mine"),
        ("a,b\n1,2\n", "columns"),
        ("gpu,engine\n", "mine"),
        (b"\x1f\x8bnope", "mine"),
        ("gpu,engine\n" + "x,y\n" * 3000, "rows"),
        (b"\xff\xfe\x00,\x00", "mine"),
    ],
    ids=["empty", "unknown columns", "header alone", "broken gzip", "too long", "wrong encoding"],
)
def test_a_table_that_is_none_is_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        own.own_report(given(text), silent)


def test_a_name_from_elsewhere_cannot_lead_out_of_the_folder() -> None:
    report = own.own_report(given(TABLE, "../../../etc/x; rm.csv"), silent)
    assert "/" not in report.name


@pytest.mark.parametrize(
    ("data", "table"),
    [
        (TABLE.encode(), True),
        (b"\xef\xbb\xbf" + TABLE.encode(), True),
        (TABLE.replace(",", ";").encode(), True),
        (TABLE.replace(",", "\t").encode(), True),
        (b'{"a": 1, "b": 2}', False),
        (b"[1, 2]", False),
        (b"plain words", False),
    ],
)
def test_tables_are_told_from_documents_by_content(data: bytes, table: bool) -> None:
    assert own.is_table(Given("x.json", data, "x")) is table


def test_the_scenario_s_record_is_compared_where_it_is_of_the_gpu() -> None:
    target = Target(gpu_id="h100-80g-sxm", model_id="llama-3.1-8b-instruct")
    other = "h100-80g-sxm/tensorrt-llm-1.3.0rc20"
    assert own.record_of(target, other).id == other
    assert own.record_of(target, "l40s/vllm-0.24.0").gpu_id == "h100-80g-sxm"
    assert own.record_of(target, None).gpu_id == "h100-80g-sxm"
    with pytest.raises(InputError, match="gone"):
        own.record_of(target, "h100-80g-sxm/gone")


def test_benchmark_points_are_told_with_the_largest_error_first() -> None:
    points = [
        FitPoint("run", "tpot", "mean", "", 0.010, 0.011, 0.011, None, 4.0, 100.0),
        FitPoint("run", "ttft", "mean", "", 0.100, 0.050, 0.050, None, 4.0, 100.0),
        FitPoint("run", "throughput", "", "", 1000.0, 990.0, 990.0, None, 4.0, 100.0),
    ]
    frame = own.points_frame(points)
    assert frame["Figure"].tolist() == ["mean TTFT", "mean TPOT", "throughput"]
    assert own.points_sentence(own.Compared(tuple(points), "this record")).startswith("On 1 run this record is off by")
    assert "mean TTFT 50" in own.points_sentence(own.Compared(tuple(points), "this record"))
    found, title = own.points_rows(points)
    assert title == "1 of 2 times is predicted within 10\N{NO-BREAK SPACE}%"
    holds(predicted_rows(found, title, "ms"))
