"""What the Simulate page draws: charts that Vega-Lite accepts, findings that are true, texts for every outcome."""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pytest

from planner.plans import Plan, plan
from planner.replay import Replay, ReplaySettings, replay, sentence_of, step_window
from planner.scenario import scenario_from_dict
from planner.simulator import values_s
from planner.ui.charts.base import Figure
from planner.ui.charts.simulate import LIMIT_COLOURS, latency_cdf, limits_over_time, timeline
from planner.ui.charts.simulate_steps import WORK_COLOURS, Frame, step_gantt
from planner.ui.colours import ACCENT, GREY
from planner.ui.components.simulate_jobs import CancelledError, Job, Kept
from planner.ui.views.rows import target_label
from planner.ui.views.simulate import (
    definitions,
    difference_frame,
    difference_title,
    event_frame,
    latency_frame,
    metrics,
    percent_of_all,
    steps_sentence,
    what_was_run,
)
from planner.ui.views.simulate_inputs import INPUTS, KEYS, key_of, read_inputs, summary_of
from planner.ui.views.simulate_rows import LIMITS, cdf_rows, limit_rows, limits_in, step_notes, step_rows, timeline_rows
from planner.ui.words import NBSP
from planner.workloads import load_workload

ONE_GPU = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}
TIGHT = {
    "hardware": {"gpu_ids": ["l4"], "tensor_parallel": [1]},
    "engine": {"logged_kv_tokens": 16000},
    "targets": {"ttft_p99_s": None, "tpot_p99_s": None},
}


@pytest.fixture(scope="module")
def one_gpu() -> Plan:
    return plan(scenario_from_dict(ONE_GPU))


@pytest.fixture(scope="module")
def steady(one_gpu: Plan) -> Replay:
    return replay(one_gpu, ReplaySettings(requests=3000))


@pytest.fixture(scope="module")
def compared(one_gpu: Plan) -> Replay:
    return replay(one_gpu, ReplaySettings(requests=3000, max_num_seqs=24))


@pytest.fixture(scope="module")
def overloaded(one_gpu: Plan) -> Replay:
    return replay(one_gpu, ReplaySettings(requests=2000, rate_rps=60.0))


@pytest.fixture(scope="module")
def preempting() -> Replay:
    return replay(plan(scenario_from_dict(TIGHT)), ReplaySettings(requests=300, rate_rps=5.0))


def checked(figure: Figure) -> list[dict[str, Any]]:
    json.dumps(figure.spec, allow_nan=False)
    alt.LayerChart.from_dict(figure.spec, validate=True)
    assert len(figure.title) > 10
    layers: list[dict[str, Any]] = figure.spec["layer"]
    return layers


def cdf_of(found: Replay, metric: Any) -> list[dict[str, Any]]:
    rows = cdf_rows(found, metric)
    limits = {check.target.metric: check.target.limit_s for check in found.shown.checks}
    return checked(latency_cdf(rows.rows, rows.title, metric.upper(), target_label(limits.get(metric))))


def lines_of(layers: list[dict[str, Any]]) -> dict[str, str]:
    """Return the colour of each run's line."""
    return {layer["data"]["values"][0]["run"]: layer["mark"]["color"] for layer in layers if layer["mark"]["type"] == "line"}


@pytest.mark.parametrize(
    ("ms", "aside"), [((200.0, 210.0, 220.0), False), ((840.0, 900.0, 940.0), True), ((980.0, 1100.0, 1300.0), True)]
)
def test_what_is_written_stands_clear_of_a_distribution_that_rises_at_its_target(ms: tuple[float, ...], aside: bool) -> None:
    rows = [
        {"run": "planned", "ms": each, "share_percent": share, "latency": "x", "below": "x"}
        for each, share in zip(ms, (2.0, 50.0, 99.0), strict=True)
    ]
    layers = latency_cdf(rows, "A distribution with its target", "TTFT", (1000.0, "target 1 s")).spec["layer"]
    written = [layer for layer in layers if layer["mark"]["type"] == "text"]
    assert [layer["mark"]["align"] for layer in written] == ["left" if aside else "right"] * 2
    heights = [layer["encoding"]["y"]["value"]["expr"] for layer in written]
    assert len(set(heights)) == 2


def test_distribution_is_that_of_the_requests(steady: Replay) -> None:
    rows = cdf_rows(steady, "ttft").rows
    values = values_s(steady.planned.client, "ttft")[300:]
    for row in rows[:: len(rows) // 7]:
        assert np.percentile(values, row["share_percent"]) * 1e3 == pytest.approx(row["ms"])
    assert [row["ms"] for row in rows] == sorted(row["ms"] for row in rows)
    assert any(row["share_percent"] == 99.0 for row in rows)
    assert rows[-1]["share_percent"] == 100.0


@pytest.mark.parametrize("metric", ["ttft", "tpot"])
def test_distributions_overlay_both_runs_with_the_target(compared: Replay, metric: str) -> None:
    layers = cdf_of(compared, metric)
    assert lines_of(layers) == {"planned": GREY, "changed": ACCENT}
    assert any(layer["mark"].get("strokeDash") for layer in layers)
    labels = {layer["data"]["values"][0].get("label", "") for layer in layers if layer["mark"]["type"] == "text"}
    assert {label.split(" ")[0] for label in labels} >= {"planned", "changed", "target"}


def test_a_single_run_is_drawn_in_the_accent(steady: Replay) -> None:
    assert lines_of(cdf_of(steady, "ttft")) == {"planned": ACCENT}


def test_long_latencies_are_drawn_in_seconds(overloaded: Replay, steady: Replay) -> None:
    def title(layers: list[dict[str, Any]]) -> str:
        return next(
            layer["encoding"]["x"]["axis"]["title"] for layer in layers if layer["encoding"].get("x", {}).get("axis") is not None
        )

    assert title(cdf_of(overloaded, "ttft")).startswith("TTFT (s")
    assert title(cdf_of(steady, "ttft")).startswith("TTFT (ms")


def test_the_finding_of_a_distribution_counts_against_the_target(compared: Replay) -> None:
    share = float((values_s(compared.shown.client, "ttft")[300:] <= 1.0).mean())
    assert cdf_rows(compared, "ttft").title.startswith(percent_of_all(share))


def test_no_request_with_a_tpot_is_said(one_gpu: Plan) -> None:
    lonely = replay(one_gpu, ReplaySettings(requests=1, seed=5))
    rows = cdf_rows(lonely, "tpot")
    assert rows.rows or rows.title == "No request has a TPOT"


def test_timeline_shares_one_axis(compared: Replay) -> None:
    rows = timeline_rows(compared)
    end_s = max(compared.planned.result.totals.makespan_s, compared.shown.result.totals.makespan_s)
    panels = timeline(rows.rows, end_s)
    assert len(panels) == 4
    for panel in panels:
        layers = checked(panel)
        assert {tuple(layer["encoding"]["x"]["scale"]["domain"]) for layer in layers} == {(0.0, end_s)}
        assert lines_of(layers) == {"planned": GREY, "changed": ACCENT}
    titles = [panel.spec["layer"][0]["encoding"]["x"]["axis"]["title"] for panel in panels]
    assert titles == [None, None, None, "Time from the start (s)"]


def test_timeline_is_thinned(compared: Replay) -> None:
    per_run = {run: len(list(rows)) for run, rows in itertools.groupby(timeline_rows(compared).rows, key=lambda row: row["run"])}
    assert set(per_run) == {"planned", "changed"}
    assert max(per_run.values()) <= 256


def test_limits_fill_the_time(overloaded: Replay) -> None:
    rows = limit_rows(overloaded.shown)
    layers = checked(limits_over_time(rows.rows, rows.title, limits_in(rows), overloaded.shown.result.totals.makespan_s))
    assert layers[0]["encoding"]["color"]["scale"]["domain"] == list(limits_in(rows))
    for _, bins in itertools.groupby(rows.rows, key=lambda row: row["t_s"]):
        stacked = list(bins)
        assert stacked[0]["from_percent"] == 0.0
        assert stacked[-1]["to_percent"] == pytest.approx(100.0)
        for below, above in itertools.pairwise(stacked):
            assert above["from_percent"] == below["to_percent"]
    assert set(LIMITS) <= set(LIMIT_COLOURS)


def test_the_limit_named_is_the_one_that_binds_most(overloaded: Replay, preempting: Replay) -> None:
    shares = overloaded.shown.result.bound_shares()
    assert limit_rows(overloaded.shown).title.startswith(max(("max_num_seqs", "max_num_batched_tokens"), key=lambda n: shares[n]))  # type: ignore[index]
    assert limit_rows(preempting.shown).title.startswith("KV blocks bind in")


@pytest.mark.parametrize("start", [None, 30.0])
def test_steps_are_drawn_a_line_for_each_request(preempting: Replay, start: float | None) -> None:
    window = step_window(preempting, preempting.shown, "longest step" if start is None else start)
    rows = step_rows(window, preempting)
    last = window.steps[-1]
    span_s = (window.steps[0].start_s, last.start_s + last.duration_s)
    layers = checked(step_gantt(rows.bars, rows.waits, rows.preempted, Frame(rows.order, span_s, rows.longest, rows.title)))
    bars = next(layer for layer in layers if layer["mark"]["type"] == "bar" and "took" in layer["data"]["values"][0])
    assert len(bars["data"]["values"]) == len(window.cells) <= 60 * 40
    assert set(bars["encoding"]["color"]["scale"]["domain"]) <= set(WORK_COLOURS)
    assert {row["request"] for row in bars["data"]["values"]} <= set(rows.order)


def test_what_is_left_out_of_the_steps_is_said(overloaded: Replay, steady: Replay) -> None:
    crowded = step_window(overloaded, overloaded.shown, 20.0)
    assert crowded.left_out > 0
    assert f"{len(crowded.requests)} of {len(crowded.requests) + crowded.left_out} requests are drawn" in step_notes(crowded)
    assert "are drawn" not in step_notes(step_window(steady, steady.shown, 1.0))


def test_events_are_listed_only_where_something_happened(steady: Replay, preempting: Replay) -> None:
    assert event_frame(steady.shown).empty
    assert "No request was rejected" in steps_sentence(steady.shown)
    events = event_frame(preempting.shown)
    assert set(events["Event"]) >= {"Preemptions", "Recomputed tokens"}
    assert "No request was rejected" not in steps_sentence(preempting.shown)


def test_tables_hold_no_bare_numbers(compared: Replay) -> None:
    for frame in (latency_frame(compared.shown), difference_frame(compared)):
        assert all(isinstance(cell, str) for cell in frame.to_numpy().ravel())
    assert list(latency_frame(compared.shown)["Latency"]) == ["TTFT", "TPOT", "ITL", "E2E", "Queue time"]


def test_difference_is_told_in_a_sentence(compared: Replay) -> None:
    assert "p99 TTFT rises from" in difference_title(compared)
    assert "p99 TPOT falls from" in difference_title(compared)


def test_a_run_that_served_nobody_is_told_with_dashes() -> None:
    short = plan(scenario_from_dict(ONE_GPU | {"engine": {"max_model_len": 3000}}))
    found = next(
        run for seed in range(200) if (run := replay(short, ReplaySettings(requests=1, seed=seed))).planned.result.rejected.all()
    )
    assert sentence_of(found).endswith("it rejected every request, as none fits in the engine.")
    assert [view.value for view in metrics(found)] == ["—", "—", "0 %".replace(" ", NBSP), "0"]
    assert set(latency_frame(found.shown)["p99"]) == {"—"}
    assert "1 request rejected" in what_was_run(found)[-1]
    assert cdf_rows(found, "ttft") == ([], "No request has a TTFT")
    assert timeline_rows(found).rows
    assert limit_rows(found.shown).title == "Nothing ran"
    assert step_window(found, found.shown).steps == ()
    assert definitions(found)


@pytest.mark.parametrize(
    ("workload", "count", "said"),
    [
        ("azure-conversation-2023", 20, "20 requests of Azure conversation 2023, drawn from the workload, at"),
        ("mooncake-conversation", 20, "20 requests of Mooncake conversation, its first ones in their order (their prompts share"),
        ("mooncake-conversation", 50_000, ", all 12,031 in their order, then again (their prompts share prefixes), at"),
    ],
)
def test_which_requests_were_served_is_told(workload: str, count: int, said: str, steady: Replay) -> None:
    served = load_workload("chat").sample_requests(count, 1.0, 1)
    of_workload = replace(steady, plan=replace(steady.plan, workload=load_workload(workload)), requests=served)
    assert said in what_was_run(of_workload)[0]


@pytest.mark.parametrize(("share", "text"), [(1.0, "100"), (0.99999, "99.99"), (0.9995, "99.95"), (0.5, "50")])
def test_all_is_said_only_of_all(share: float, text: str) -> None:
    assert percent_of_all(share).startswith(text)


def test_every_setting_has_an_input() -> None:
    assert {each.field for each in INPUTS} == set(ReplaySettings.model_fields)
    assert len(set(KEYS)) == len(KEYS)


def test_faults_name_their_input() -> None:
    state = read_inputs({"sim-rate": "x", "sim-cv": "y"})
    assert state.settings is None
    assert set(state.faults) == {"sim-rate", "sim-cv"}
    for key, fault in read_inputs({"sim-n": "0"}).faults.items():
        assert key == key_of(fault) == "sim-n"


def test_folded_lines_say_what_is_run(one_gpu: Plan) -> None:
    changed = read_inputs({"sim-rate": "7", "sim-seqs": "32", "sim-async": "off"}).settings
    assert changed is not None
    assert "7 req/s" in summary_of("requests", changed, one_gpu)
    assert summary_of("engine", changed, one_gpu) == "2 changes against the plan"
    assert summary_of("engine", ReplaySettings(), one_gpu) == "as planned"


def test_kept_results_are_bounded_by_their_weight() -> None:
    kept = Kept(most=3, most_weight=100)
    for key in range(5):
        kept.put(key, 10, f"result {key}")
    assert [kept.get(key) for key in range(5)] == [None, None, "result 2", "result 3", "result 4"]
    kept.put("heavy", 1000, "heavy")
    assert kept.get("heavy") == "heavy"
    assert kept.get(4) is None
    assert kept.weight == 1000


def test_given_up_work_ends_at_its_next_stage() -> None:
    with ThreadPoolExecutor(1) as pool:
        begun = threading.Event()
        job: Job[None] = Job("key", pool.submit(lambda: None), time.monotonic())

        def work() -> None:
            for stage in range(1000):
                job.tell(f"stage {stage}", stage / 1000)
                begun.set()
                job.cancelled.wait(1.0)

        job.future = pool.submit(work)
        assert begun.wait(5.0)
        job.cancelled.set()
        with pytest.raises(CancelledError):
            job.future.result(timeout=5.0)
        assert job.share < 0.01
