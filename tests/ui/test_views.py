"""What the Plan page says of a plan: every figure in it is the plan's own, with its unit, and its derivation adds up."""

import datetime as dt
import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from planner.deployment import Link
from planner.exporters.candidates import candidate_rows
from planner.exporters.table import to_csv
from planner.plans.results import Interval, Plan
from planner.ui.choices import gpu_ranks
from planner.ui.views import rows as views
from planner.ui.views.answer import interval, metrics, over
from planner.ui.views.candidates import met_frame, rejected_frame
from planner.ui.views.why import derivations
from planner.ui.words import figure, literal, rate, seconds, sentence, usd
from planner.units import GIB, MS

TODAY = dt.date(2026, 11, 30)


def test_metrics_state_the_plan_with_interval_and_target(default_plan: Plan) -> None:
    gpus, ttft, tpot, cost = metrics(default_plan, TODAY)
    chosen = default_plan.chosen
    assert chosen is not None
    assert chosen.replicas is not None
    assert chosen.latency is not None
    assert chosen.cost is not None
    assert gpus.value == str(chosen.replicas.total * chosen.tensor_parallel)
    assert ttft.value == seconds(chosen.latency.ttft_p99_s)
    assert "target 1\xa0s" in ttft.note
    assert "target 30\xa0ms" in tpot.note
    assert (cost.label, cost.value) == ("Cost a day", usd(chosen.cost.usd_per_day))


def test_an_old_price_is_dated_and_marked(default_plan: Plan) -> None:
    assert default_plan.chosen is not None
    assert default_plan.chosen.cost is not None
    as_of = default_plan.chosen.cost.tariff.as_of
    assert as_of is not None
    fresh, old = (metrics(default_plan, as_of + dt.timedelta(days=days))[3].note for days in (90, 91))
    assert "price of" in fresh
    assert "days old" not in fresh
    assert "91 days old" in old


def test_metrics_stay_away_where_there_is_no_answer(default_plan: Plan) -> None:
    assert metrics(replace(default_plan, chosen=None), TODAY) == ()


def test_an_interval_of_one_value_is_one_figure() -> None:
    assert interval(Interval(7.0, 7.0, 7.0), lambda value: f"{value:.0f}") == "7"
    assert interval(Interval(0.38, 0.41, 0.46), seconds) == "380–460\xa0ms"


def test_comparison_shows_each_gpu_once_and_marks_the_choice(default_plan: Plan) -> None:
    rows, title = views.comparison_rows(default_plan, gpu_ranks())
    assert default_plan.chosen is not None
    assert len({row["gpu"] for row in rows}) == len(rows)
    assert [row["label"] for row in rows if row["chosen"]] == [default_plan.chosen.label]
    assert default_plan.chosen.label in title
    for row in rows:
        assert row["usd_per_day"] > 0.0
        assert row["tpot_p99_ms"] > 0.0


def test_a_gpu_keeps_its_colour_when_others_leave(default_plan: Plan) -> None:
    everyone, _ = views.comparison_rows(default_plan, gpu_ranks())
    half = replace(default_plan, candidates=default_plan.candidates[::2])
    fewer, _ = views.comparison_rows(half, gpu_ranks())
    colours = {row["gpu"]: (row["colour"], row["shape"]) for row in everyone}
    assert fewer
    assert all(colours[row["gpu"]] == (row["colour"], row["shape"]) for row in fewer)


@pytest.mark.parametrize("quantity", ["TTFT", "TPOT"])
def test_curve_rises_with_load_and_holds_the_planned_point(default_plan: Plan, quantity: str) -> None:
    rows, title = views.curve_rows(default_plan, quantity)
    assert default_plan.chosen is not None
    assert default_plan.chosen.latency is not None
    rates = [row["rate_rps"] for row in rows]
    assert rates == sorted(set(rates))
    assert [row["rate_rps"] for row in rows if row["planned"]] == [default_plan.chosen.latency.rate_rps]
    assert rows[-1]["p99_ms"] > rows[0]["p99_ms"]
    assert title.startswith(f"p99 {quantity}")


def test_curve_crosses_its_target_where_the_title_says(default_plan: Plan) -> None:
    rows, title = views.curve_rows(default_plan, "TPOT")
    found = re.search(r"at ([\d.,]+)\xa0req/s", title)
    assert "crosses" in title
    assert found is not None
    crossed = float(found[1])
    below = [row["p99_ms"] for row in rows if row["rate_rps"] < crossed * 0.98]
    above = [row["p99_ms"] for row in rows if row["rate_rps"] > crossed * 1.02]
    assert max(below) <= 30.0
    assert min(above) >= 30.0


def test_memory_parts_fill_the_gpu(default_plan: Plan) -> None:
    chosen = default_plan.chosen
    assert chosen is not None
    assert chosen.memory is not None
    rows, title = views.memory_rows(chosen)
    assert math.isclose(sum(row["gib"] for row in rows), chosen.memory.total_bytes / GIB, rel_tol=1e-9)
    assert [row["order"] for row in rows] == list(range(len(rows)))
    assert figure(chosen.memory.kv_tokens) in title


def test_step_parts_sum_to_the_step(default_plan: Plan) -> None:
    step = views.planned_step(default_plan)
    rows, title = views.step_rows(default_plan)
    assert step is not None
    assert math.isclose(sum(row["ms"] for row in rows) * MS, step.total_s + step.hidden_s, rel_tol=1e-9)
    assert [row["ms"] for row in rows] == sorted((row["ms"] for row in rows), reverse=True)
    assert seconds(step.total_s) in title
    assert step.binds in title


def test_knob_map_marks_the_choice(default_plan: Plan) -> None:
    rows, title = views.knob_rows(default_plan)
    chosen = default_plan.chosen
    assert chosen is not None
    assert chosen.knobs is not None
    marked = [(row["seqs"], row["budget"]) for row in rows if "chosen" in row["mark"]]
    assert marked == [(chosen.knobs.max_num_seqs, chosen.knobs.max_num_batched_tokens)]
    for mark in ("chosen", "default"):
        (cell,) = [row["capacity"] for row in rows if mark in row["mark"]]
        assert str(cell) in title


def test_the_knob_map_says_when_another_cell_carries_more_than_the_choice(default_plan: Plan) -> None:
    details, chosen = default_plan.details, default_plan.chosen
    assert details is not None
    assert chosen is not None
    assert chosen.capacity_rps is not None
    more = [
        replace(cell, capacity_rps=2.0 * chosen.capacity_rps) if index == 0 else cell for index, cell in enumerate(details.knob_map)
    ]
    assert more[0].knobs != chosen.knobs
    _, title = views.knob_rows(replace(default_plan, details=replace(details, knob_map=tuple(more))))
    assert title.startswith(
        f"The chosen settings serve up to {rate(chosen.capacity_rps)}, the best cell {rate(2.0 * chosen.capacity_rps)}"
    )


def test_target_labels_carry_their_unit() -> None:
    assert views.target_label(0.03) == (0.03 / MS, "target 30\xa0ms")
    assert views.target_label(None) is None


def test_every_candidate_is_in_one_of_the_two_tables(default_plan: Plan) -> None:
    met, rejected = met_frame(default_plan), rejected_frame(default_plan)
    assert len(met) + len(rejected) == len(default_plan.candidates)
    assert list(met["$/day"].dropna()) == sorted(met["$/day"].dropna())
    assert rejected["Reason"].notna().all()


def test_a_layout_of_several_gpus_names_its_link(default_plan: Plan) -> None:
    shown = pd.concat([met_frame(default_plan), rejected_frame(default_plan)])
    assert (shown["Link"].notna() == (shown["TP"] > 1)).all()
    assert {"NVLink4", "PCIe"} <= set(shown["Link"].dropna())
    by_label = {each.label: each for each in default_plan.candidates if each.feasible}
    rows, _ = views.comparison_rows(default_plan, gpu_ranks())
    for row in rows:
        if row["label"] in by_label:
            candidate = by_label[row["label"]]
            assert row["fleet"].endswith(over(candidate))
            assert bool(over(candidate)) is (candidate.tensor_parallel > 1)


def test_rows_for_export_cover_every_candidate(default_plan: Plan) -> None:
    rows = candidate_rows(default_plan)
    assert len(rows) == len(default_plan.candidates)
    assert sum(row["chosen"] is True for row in rows) == 1
    assert len(to_csv(rows).splitlines()) == len(rows) + 1
    for row in rows:
        assert (row["reason"] is None) == row["meets_targets"]


def test_each_figure_is_derived(default_plan: Plan) -> None:
    found = derivations(default_plan)
    assert [each.title.partition(":")[0] for each in found] == ["Load", "KV cache", "Capacity", "Replicas", "Latency", "Cost"]
    assert all(each.lines for each in found)
    assert all(row.kind and row.reference for each in found for row in each.sources)


def test_the_derivation_of_replicas_adds_up(default_plan: Plan) -> None:
    replicas = derivations(default_plan)[3]
    found = re.search(r"⌈([\d.]+)\xa0req/s ÷ \(([\d.]+)\xa0req/s × \(1 − ([\d.]+)\xa0% headroom\)\)⌉ = (\d+)", replicas.lines[0])
    assert found is not None
    rate, capacity, headroom, needed = (float(text) for text in found.groups())
    assert math.ceil(rate / (capacity * (1.0 - headroom / 100.0)) - 1e-3) == needed


def test_the_derivation_of_cost_adds_up(default_plan: Plan) -> None:
    cost = derivations(default_plan)[5]
    found = re.search(r"(\d+) machines? × \$([\d.]+)/h × 24 h = \$([\d.,]+)/day", cost.lines[0])
    assert found is not None
    machines, per_hour, per_day = (float(text.replace(",", "")) for text in found.groups())
    assert math.isclose(machines * per_hour * 24.0, per_day, rel_tol=0.006)


def test_the_link_of_a_replicas_gpus_is_said(default_plan: Plan) -> None:
    assert default_plan.chosen is not None
    assert not any("All-reduces" in line for line in derivations(default_plan)[4].lines)
    link = Link("PCIe", "host", 31.5e9, in_fast_domain=False, reason="the box has no NVLink, so 2 reduce over PCIe and the host")
    linked = replace(default_plan, chosen=replace(default_plan.chosen, link=link))
    said = "All-reduces go over PCIe, 31.5\xa0GB/s one way: the box has no NVLink, so 2 reduce over PCIe and the host."
    assert said in derivations(linked)[4].lines


def test_without_an_answer_the_load_is_still_derived(default_plan: Plan) -> None:
    assert [each.title.partition(":")[0] for each in derivations(replace(default_plan, chosen=None))] == ["Load"]


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "![x](http://example.org/a.png)", "[x](javascript:alert(1))", "$x$", ":material/home:", "**b**"],
)
def test_no_name_becomes_markup(text: str) -> None:
    escaped = literal(text)
    assert re.sub(r"\\(.)", r"\1", escaped) == text
    assert not re.search(r"(?<!\\)[<>\[\]()$:*`]", escaped)
    assert not re.search(r"(?<!\\)[<\[$:*`]", sentence(text))
