"""The largest misses are named with their reasons, and each still is one."""

import pytest

from planner.accuracy.misses import Miss, misses, misses_of
from planner.accuracy.shipped import ShippedAccuracy, shipped_accuracy
from planner.ui.views.accuracy_misses import UNEXPLAINED, misses_frame

SOURCES = {source.id: source for source in shipped_accuracy()}
LARGE_PCT, MANY = 30.0, 20


@pytest.mark.parametrize("miss", misses(), ids=lambda miss: f"{miss.source} {miss.gpu} {miss.model}")
def test_a_named_miss_is_one(miss: Miss) -> None:
    groups = miss.groups(SOURCES[miss.source])
    assert groups
    assert max(group.errors[miss.metric].median_abs_pct for group in groups) > 12.0


@pytest.mark.parametrize("source_id", ["serving_by_concurrency", "tensorrt_llm_perf_overview", "mlperf"])
def test_large_misses_with_many_rows_are_named(source_id: str) -> None:
    source = SOURCES[source_id]
    metric = "tpot" if "tpot" in source.shipped.overall.errors else "throughput"
    named = {(group.gpu, group.model) for miss, groups in misses_of(source) for group in groups}
    large = [
        group
        for group in source.shipped.groups
        if metric in group.errors and group.errors[metric].median_abs_pct > LARGE_PCT and group.errors[metric].points >= MANY
    ]
    assert {(group.gpu, group.model) for group in large} <= named


def test_the_table_has_the_largest_first_and_says_what_is_not_explained() -> None:
    source = SOURCES["serving_by_concurrency"]
    frame = misses_frame(source, {"h200-141g-sxm": "H200"}, {"qwen3-235b-a22b": "Qwen3-235B"})
    found = misses_of(source)
    sizes = [max(group.errors[miss.metric].median_abs_pct for group in groups) for miss, groups in found]
    assert sizes == sorted(sizes, reverse=True)
    row = frame[frame["Where"].str.startswith("Qwen3-235B under vLLM on H200")].iloc[0]
    assert row["Why"].startswith(UNEXPLAINED)
    assert row["Error"].startswith("TPOT −")
    explained = [miss.explained for miss, _ in found]
    assert [not text.startswith(UNEXPLAINED) for text in frame["Why"]] == explained


def test_a_source_without_known_misses_has_no_table() -> None:
    other: ShippedAccuracy = SOURCES["serving_by_concurrency"].model_copy(update={"id": "another_source"})
    assert misses_frame(other, {}, {}).empty


def test_names_from_outside_can_not_become_formulas() -> None:
    source = SOURCES["serving_by_concurrency"]
    names = {group.model: "=1+1" for group in source.shipped.groups}
    assert not misses_frame(source, {}, names)["Where"].str.startswith("=").any()
