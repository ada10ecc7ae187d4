"""What the Calibrate page says: records in words, commands for collectors, files, fits, and charts that Altair's schema takes."""

import gzip
import json
import shlex

import altair as alt
import pytest

from planner.calibration import collect_http, collect_links, collect_torch, collect_vllm
from planner.calibration.records import CalibrationRecord, list_records, load_record
from planner.calibration.schema import HOST_SCALARS, SCALARS
from planner.errors import InputError
from planner.models import list_models, load_model
from planner.plans.results import Plan
from planner.scenario import Scenario, scenario_from_dict
from planner.tuning import CalibrationFit, fit_files
from planner.ui.charts.base import Figure
from planner.ui.charts.calibrate import error_dots, intervals, predicted_measured, residuals
from planner.ui.views import calibrate as views
from planner.ui.views import calibrate_collect as collect
from planner.ui.views import calibrate_files as files
from planner.ui.views import calibrate_fit as words
from planner.ui.views import calibrate_record as records

LLAMA = "llama-3.1-8b-instruct"
PARSERS = {"vllm": collect_vllm.parse, "torch": collect_torch.parse, "http": collect_http.parse, "links": collect_links.parse}


def place(model: str = LLAMA, quantization: str = "bf16", tensor_parallel: int = 1) -> collect.Place:
    return collect.Place("h100-80g-sxm", load_model(model), quantization, tensor_parallel)


@pytest.fixture(scope="module")
def fit() -> CalibrationFit:
    """A fit to the example that the page offers: a real file of collect_vllm.py."""
    usable = files.usable(files.read_all([files.example()]))
    return fit_files(usable, files.target_of(files.initial_values(usable, place()), place()))


def holds(figure: Figure) -> None:
    """Raise when Altair's schema doesn't take a chart; a few rows of each layer stand for all."""
    layers = [{**layer, "data": {"values": layer["data"]["values"][:3]}} for layer in figure.spec["layer"]]
    alt.Chart.from_dict({**figure.spec, "layer": layers, "$schema": "https://vega.github.io/schema/vega-lite/v6.json"})


@pytest.mark.parametrize("record", list_records(), ids=lambda record: record.id)
def test_every_record_is_told_in_words_and_drawn(record: CalibrationRecord) -> None:
    assert record.id in records.rests_on(record)
    frame = records.parameter_frame(record)
    assert len(frame) == len(list(record.parameters()))
    assert frame.map(bool).all(axis=None)
    rows, title = records.interval_rows(record)
    assert rows or record.basis == "textbook"
    if rows:
        holds(intervals(rows, title))
    if record.evidence is not None and record.evidence.groups:
        rows, title = records.error_rows(record.evidence)
        holds(error_dots(rows, title))


def test_every_constant_has_a_name_of_its_own() -> None:
    named = [records.name_of(path) for path in (*SCALARS, *(f"host.{name}" for name in HOST_SCALARS))]
    assert len(set(named)) == len(named)
    assert all(name[0].isupper() for name in named)


def test_a_record_s_sentence_gives_the_range_of_its_held_out_errors() -> None:
    record = load_record("h100-80g-sxm/vllm-0.24.0")
    assert record.evidence is not None
    held = [group.held_out_median_abs_pct for group in record.evidence.groups if group.held_out_median_abs_pct is not None]
    assert f"{min(held):.3g}" in records.rests_on(record)
    assert f"{record.evidence.rows:,} times" in records.rests_on(record)


def test_the_worst_group_comes_first() -> None:
    evidence = load_record("h100-80g-sxm/vllm-0.24.0").evidence
    assert evidence is not None
    held = [row["pct"] for row in records.error_rows(evidence)[0] if row["kind"] == "left out of the fit"]
    assert held == sorted(held, reverse=True)


@pytest.mark.parametrize("collector", collect.COLLECTORS, ids=lambda collector: collector.id)
@pytest.mark.parametrize("effort", ["quick", "full"])
@pytest.mark.parametrize("model", [LLAMA, "llama-3.3-70b-instruct", "qwen3-30b-a3b"])
def test_a_command_is_one_that_the_collector_takes(collector: collect.Collector, effort: collect.Effort, model: str) -> None:
    line = collect.command(collector, effort, place(model, tensor_parallel=2)).splitlines()[-1]
    parts = shlex.split(line)
    assert collector.file_name in parts
    PARSERS[collector.id](parts[parts.index(collector.file_name) + 1 :])
    assert compile(collect.source_of(collector), collector.file_name, "exec")


def test_a_model_without_a_built_in_shape_has_its_config_fetched_first() -> None:
    first, second = collect.command(collect.BY_ID["vllm"], "quick", place("llama-3.3-70b-instruct")).splitlines()
    assert first.startswith("hf download meta-llama/Llama-3.3-70B-Instruct config.json")
    assert "--model-config llama-3.3-70b-instruct/config.json" in second
    assert "\n" not in collect.command(collect.BY_ID["vllm"], "quick", place())


def test_weights_that_are_quantised_on_load_are_measured_so() -> None:
    assert "--quantization fp8" in collect.command(collect.BY_ID["vllm"], "quick", place(quantization="fp8"))
    assert "--quantization" not in collect.command(collect.BY_ID["vllm"], "quick", place())


@pytest.mark.parametrize("model", [model.id for model in list_models()][::9])
def test_every_model_has_a_command(model: str) -> None:
    for collector in collect.COLLECTORS:
        assert collect.command(collector, "quick", place(model))
        assert collect.notes(collector, place(model))


def test_the_record_in_use_is_the_plan_s(default_plan: Plan) -> None:
    used = views.in_use(Scenario(), default_plan)
    assert default_plan.chosen is not None
    assert default_plan.chosen.record is not None
    assert used.record.id == default_plan.chosen.record.id
    assert used.paths is not None
    assert not any(path.startswith("all_reduce.") for path in used.paths) or default_plan.chosen.tensor_parallel > 1
    assert "expert_layer_s" not in used.paths


def test_without_a_plan_the_scenario_s_first_gpu_stands_in() -> None:
    scenario = scenario_from_dict({"hardware": {"gpu_ids": ["l40s"], "tensor_parallel": [2]}})
    used = views.in_use(scenario, None)
    assert (used.record.gpu_id, used.place.tensor_parallel) == ("l40s", 2)


def test_using_a_record_plans_for_its_gpu() -> None:
    record = load_record("l40s/vllm-0.24.0")
    named = scenario_from_dict({"hardware": {"gpu_ids": ["h100-80g-sxm", "l40s"]}})
    assert views.patch_for(record, named) == {"engine.calibration_id": record.id}
    for gpu_ids in ([], ["h100-80g-sxm"]):
        other = scenario_from_dict({"hardware": {"gpu_ids": gpu_ids}})
        assert views.patch_for(record, other) == {"engine.calibration_id": record.id, "hardware.gpu_ids": ["l40s"]}
    assert views.patch_for(load_record("textbook"), Scenario()) == {"engine.calibration_id": "textbook"}


def test_more_files_than_are_read_are_counted_and_equal_ones_are_no_loss() -> None:
    given = [files.Given(f"{index}.json", str(index // 2).encode(), str(index)) for index in range(6)]
    kept, notes = files.each_once([*given, files.Given("empty", b"", "7"), files.Given("empty too", b"", "8")], 4)
    assert [each.name for each in kept] == ["0.json", "2.json", "4.json", "empty"]
    assert notes[:3] == tuple(f"{odd}.json holds the same as {odd - 1}.json: it counts once." for odd in (1, 3, 5))
    assert notes[3] == "The first 4 files are read, and 1 more are left out: give fewer at once."


def test_a_record_s_engine_has_its_own_spelling_and_its_basis_fits_the_table() -> None:
    frame = records.records_frame(list_records(), frozenset())
    engines = dict(zip(frame["Record"], frame["Engine"], strict=True))
    assert engines["h100-80g-sxm/tensorrt-llm-1.3.0rc20"] == "TensorRT-LLM 1.3.0rc20"
    assert engines["h100-80g-sxm/vllm-0.24.0"] == "vLLM 0.24.0"
    assert set(frame["Rests on"].str.len()) <= set(range(20))


def test_the_example_says_what_it_is() -> None:
    (read,) = files.read_all([files.example()])
    assert read.file is not None
    assert read.file.format == "collect_vllm.py"
    assert read.file.engine_version == "0.32.0"
    assert "example" in read.file.name


def test_a_fit_is_told_with_its_errors(fit: CalibrationFit) -> None:
    whole = next(pair for pair in fit.errors if not pair.phase)
    assert f"{whole.after_median_pct:.3g}" in words.summary(fit)
    assert f"{whole.before_median_pct:.3g}" in words.summary(fit)
    errors = words.error_frame(fit).iloc[0]
    assert errors["Now (median)"].startswith(f"{whole.after_median_pct:.3g}")
    assert errors["Before (median)"].startswith(f"{whole.before_median_pct:.3g}")
    frame = words.parameter_frame(fit)
    assert set(frame["Rests on"]) <= {"measured", "prior", "assumed"}
    assert not any("memory_efficiency" in note for note in words.notes(fit))


def test_every_chart_of_a_fit_is_one_that_altair_takes(fit: CalibrationFit) -> None:
    rows, title = words.point_rows(fit)
    assert 0 < len(rows) <= words.MOST_POINTS
    holds(predicted_measured(rows, title, "ms"))
    holds(error_dots(*words.error_rows(fit)))
    columns: tuple[words.Input, ...] = ("sequences", "context_tokens")
    for column in columns:
        found, title = words.residual_rows(fit, column)
        holds(residuals(found, title, column, column))
    holds(intervals(records.interval_rows(fit.record, words.fitted_paths(fit))[0], words.parameter_title(fit)))


def test_the_title_counts_the_points_within_a_tenth(fit: CalibrationFit) -> None:
    near = sum(abs(point.after / point.measured - 1.0) <= 0.1 for point in fit.points)
    assert words.point_rows(fit)[1].startswith(f"{100 * near / len(fit.points):.3g}")


def test_thinning_keeps_every_series_and_the_bound(fit: CalibrationFit) -> None:
    many = [*fit.points] * 5
    kept = words.thinned(many)
    assert len(kept) == words.MOST_POINTS
    assert {words.series_of(point) for point in kept} == {words.series_of(point) for point in many}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("tp", "two"),
        ("tp", "-1"),
        ("tp", "1e9"),
        ("max_num_seqs", "nan"),
        ("max_num_seqs", "0"),
        ("engine", "<b>vllm</b>"),
        ("engine_version", "../.."),
    ],
)
def test_a_field_of_the_form_that_cannot_be_meant_is_named(field: str, text: str) -> None:
    with pytest.raises(InputError) as fault:
        files.target_of({"gpu_id": "l40s", field: text}, place())
    assert field in str(fault.value)


BENCH = {
    "date": "20261101-120000", "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 40,
    "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": None, "duration": 21.0, "completed": 40, "failed": 0,
    "total_input_tokens": 10_240, "total_output_tokens": 2_560, "request_throughput": 1.905, "output_throughput": 121.9,
    "total_token_throughput": 609.5, "mean_ttft_ms": 35.0, "median_ttft_ms": 33.0, "p99_ttft_ms": 60.0, "mean_tpot_ms": 7.5,
    "median_tpot_ms": 7.4, "p99_tpot_ms": 9.0, "mean_itl_ms": 7.5, "median_itl_ms": 7.3, "p99_itl_ms": 12.0,
}  # fmt: skip


def test_a_benchmark_s_result_fills_the_form_and_asks_for_what_it_lacks() -> None:
    usable = files.usable(files.read_all([files.Given("bench.json", json.dumps(BENCH).encode(), "x")]))
    initial = files.initial_values(usable, place("qwen3-8b"))
    assert (initial["model_id"], initial["engine"], initial["gpu_id"]) == (LLAMA, "vllm", "h100-80g-sxm")
    assert {field.name for field in files.form_fields(usable, "fit")} > {"gpu_id", "model_id", "tp", "max_num_seqs"}
    assert files.unknown_names(usable, "fit") == ()
    assert files.runs_frame(usable)["Load"].tolist() == ["Poisson, 2 requests/s"]
    fit = fit_files(usable, files.target_of(initial, place()))
    assert "TTFT" in words.summary(fit)
    rows, title = words.point_rows(fit)
    holds(predicted_measured(rows, title, "ms"))


def test_what_a_result_says_of_its_server_fills_the_form() -> None:
    told = {"max_num_seqs": "64", "max_num_batched_tokens": "512", "quantization": "fp8", "engine_version": "0.32.0", "tp": "2"}
    usable = files.usable(files.read_all([files.Given("bench.json", json.dumps(BENCH | told).encode(), "x")]))
    initial = files.initial_values(usable, place("qwen3-8b"))
    assert {name: initial[name] for name in told} == told


def test_a_model_that_the_catalogue_lacks_is_named() -> None:
    other = json.dumps({**BENCH, "model_id": "someone/Tiny-<b>Model"}).encode()
    usable = files.usable(files.read_all([files.Given("bench.json", other, "x")]))
    (note,) = files.unknown_names(usable, "fit")
    assert "Tiny-" in note
    assert files.initial_values(usable, place())["model_id"] == LLAMA


BAD = {
    "empty.jsonl": b"",
    "nan.json": b'{"request_throughput": NaN}',
    "truncated.json": b'{"backend": "vllm", "model_id": "m", "duration":',
    "utf16.json": '{"backend": "vllm"}'.encode("utf-16"),
    "list.json": b"[1, 2, 3]",
    "noise.bin": bytes(range(256)) * 10,
    "page.html": b"<html><script>alert(1)</script></html>",
    "half.gz": b"\x1f\x8b\x08\x00\x00",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_reason(name: str) -> None:
    (read,) = files.read_all([files.Given(name, BAD[name], name)])
    assert read.file is None
    assert read.fault is not None
    assert read.fault.remedy


def test_a_collector_s_file_that_ends_early_is_used_as_far_as_it_goes() -> None:
    whole = gzip.decompress(files.example().data)
    (read,) = files.read_all([files.Given("cut.jsonl", whole[: len(whole) // 2], "cut")])
    assert read.file is not None
    assert any("cut off" in remark for remark in files.remarks_of([read.file]))
