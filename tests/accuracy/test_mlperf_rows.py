"""MLPerf's rows: how long its load generator sends, whose lengths it sends, and a recorded subset with limits."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy import AccuracyReport, accuracy_report, predict, report_of, setting_of, shipped_accuracy
from planner.accuracy.compare import ENDLESS, STALLED
from planner.accuracy.lengths import data_sets, lengths, scaled_to
from planner.accuracy.names import engine_named
from planner.accuracy.predict import load_of
from planner.calibration.measurements import Measurement
from planner.calibration.records import record_for
from planner.hardware import load_gpu
from planner.paths import PROFILES_DIR

SUBSET = Path(__file__).parent / "mlperf_subset.csv"
ROW = Measurement(
    source="mlcommons/inference_results_v5.1: an invented row",
    engine="TensorRT",
    engine_version="TensorRT 10.11, CUDA 12.9",
    model="Llama-2-70b-chat",
    weight_dtype="fp8",
    gpu="H200-NVL-141GB",
    gpu_count=8,
    tp=1,
    scenario="open-loop",
    prompt_tokens=222.3,
    output_tokens=290.0,
    length_kind="mlperf-openorca",
    rate_rps=56.0,
    max_num_seqs=256,
    tpot_p50_s=0.04,
    tpot_p99_s=0.05,
    ttft_p50_s=0.1,
    ttft_p99_s=0.3,
)


def like(**changes: object) -> Measurement:
    return ROW.model_copy(update=changes)


@lru_cache(maxsize=1)
def subset() -> AccuracyReport:
    return accuracy_report(SUBSET)


def within(metric: str) -> float:
    errors = np.array([row.errors[metric] for row in subset().predicted if metric in row.errors])
    assert len(errors) >= 20
    return float((np.abs(errors) <= 0.25).mean())


@pytest.mark.parametrize(("metric", "share"), [("tpot_tail", 0.75), ("ttft_tail", 0.5), ("throughput", 0.85)])
def test_tails_and_throughput_of_recorded_rows_are_met_within_a_quarter(metric: str, share: float) -> None:
    """99th percentile ÷ median of TPOT and TTFT, and tokens/s (MLCommons has not verified these derived figures)."""
    assert within(metric) >= share


def test_rows_that_contradict_their_layout_are_left_out() -> None:
    """Mixtral ran more requests than its batch limit; DeepSeek-R1 with copied attention, which its launch script states."""
    assert subset().not_predicted == {"more requests in flight than the stated layout runs": 1, "data-parallel attention": 1}
    busy = like(e2e_mean_s=60.0, ttft_mean_s=0.1)
    assert report_of([busy]).not_predicted == {"more requests in flight than the stated layout runs": 1}
    assert report_of([busy.model_copy(update={"max_num_seqs": 1024})]).not_predicted == {}
    assert report_of([busy.model_copy(update={"e2e_mean_s": 35.0})]).not_predicted == {}


def test_load_lasts_ten_minutes_and_replicas_take_it_in_turn() -> None:
    arrival_s = load_of(setting_of(ROW)).requests.arrival_s
    assert len(arrival_s) == 4200
    assert arrival_s[-1] == pytest.approx(600.0, rel=0.03)
    gaps = np.diff(arrival_s)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1.0 / 8.0, rel=0.15)
    alone = np.diff(load_of(setting_of(like(gpu_count=1, rate_rps=7.0))).requests.arrival_s)
    assert alone.var() / alone.mean() ** 2 == pytest.approx(1.0, rel=0.15)
    stated = load_of(setting_of(like(requests=800))).requests
    assert len(stated) == 100


def test_offline_runs_last_as_long() -> None:
    """In a run of four batches the first and last ones weigh; ten minutes bring it near the pace that it holds."""
    row = like(scenario="offline", rate_rps=None)
    lasting, short = (
        predict(setting_of(each)).output_tokens_per_s for each in (row, row.model_copy(update={"source": "elsewhere"}))
    )
    assert lasting > short
    stated = predict(setting_of(row.model_copy(update={"requests": 60_000}))).output_tokens_per_s
    assert lasting == pytest.approx(stated, rel=0.03)


def test_a_queue_without_end_has_no_ttft_unless_the_run_is_stated() -> None:
    endless = like(rate_rps=400.0, max_num_seqs=2048)
    report = report_of([endless])
    assert report.not_compared == {ENDLESS: 1}
    assert set(report.results[0].errors) == {"tpot", "tpot_tail", "tpot_p99"}
    assert set(report.results[0].stated) == set(report.results[0].errors)
    assert f"not compared: {ENDLESS}: 1" in report.text()
    assert report.document()["not_compared"] == {ENDLESS: 1}
    stated = report_of([endless.model_copy(update={"requests": 4000})])
    assert set(report_of([endless], intervals=True).results[0].responses) == {"tpot"}
    assert stated.not_compared == {}
    assert "ttft" in stated.results[0].errors


def test_the_tail_of_a_cold_start_is_named_and_not_compared() -> None:
    """Llama-3.1-8B at 5 requests/s on H100 NVL (vllm-cost-meter, C1): p50 44 ms, p90 57 ms, p99 713 ms of 500 requests."""
    figures = {"ttft_p50_s": 0.0441, "ttft_p90_s": 0.0568, "ttft_p99_s": 0.7133, "tpot_p50_s": 0.0083, "tpot_p99_s": 0.0095}
    load = {"prompt_tokens": 512.0, "output_tokens": 256.0, "length_kind": "fixed", "rate_rps": 5.0, "requests": 500}
    cold = like(model="Llama-3.1-8B", engine="vLLM", gpu="H100-NVL-94GB", gpu_count=1, max_num_seqs=None, **load, **figures)
    report = report_of([cold])
    assert report.not_compared == {STALLED: 1}
    assert "ttft" in report.results[0].errors
    assert not {"ttft_p99", "ttft_tail"} & set(report.results[0].errors)
    for changes in ({"ttft_p99_s": 0.2}, {"length_kind": "sharegpt"}, {"ttft_p90_s": None}):
        assert report_of([cold.model_copy(update=changes)]).not_compared == {}


@pytest.mark.parametrize("kind", sorted(data_sets()))
def test_data_sets_keep_their_pairs_and_have_the_rows_means(kind: str) -> None:
    known = data_sets()[kind]
    mean_output = 600.0 if known.output_tokens else 128.0
    row = like(length_kind=kind, prompt_tokens=900.0, output_tokens=mean_output)
    prompts, outputs = lengths(row, 20_000, np.random.default_rng(1))
    assert prompts.mean() == pytest.approx(900.0, rel=0.03)
    assert outputs.mean() == pytest.approx(mean_output, rel=0.05)
    assert len(set(zip(prompts.tolist(), outputs.tolist(), strict=True))) <= len(known.prompt_tokens)
    if known.output_limit_tokens:
        assert outputs.max() <= known.output_limit_tokens
    assert known.terms == "Apache-2.0"


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30), st.floats(1.0, 900.0), st.integers(1, 1000))
@settings(max_examples=60, deadline=None)
def test_scaling_gives_the_mean_and_keeps_the_order(values: list[int], mean: float, limit: int) -> None:
    scaled = scaled_to(np.array(values, np.float64), mean, float(limit))
    assert scaled.mean() == pytest.approx(mean, rel=1e-5)
    assert (np.diff(scaled[np.argsort(values, kind="stable")]) >= -1e-9).all()
    assert scaled.max() <= max(limit, mean) * (1 + 1e-9)


def test_what_an_engine_runs_on_is_not_its_release() -> None:
    def version(text: str) -> str:
        release = engine_named(like(engine_version=text))
        assert release is not None
        return release.version

    assert version("TensorRT 10.11.0.33, CUDA 12.9") == "1.2.0"
    assert version("TensorRT 10.14, CUDA 13.1, TensorRT-LLM feat/1.1-mlpinf") == "1.1.0"
    assert version("1.0.0rc3") == "1.0.0"


def test_joint_attention_kernels_are_not_carried_over_to_an_engine_without_them() -> None:
    gpu = load_gpu("rtx-pro-6000-bw-server")
    assert record_for(gpu, "vllm", "0.19.0").mix_factor.value > 1.5
    carried = record_for(gpu, "tensorrt-llm", "1.2.0").mix_factor
    assert carried.value == 1.0
    assert carried.informed_by == "assumed"


def test_the_readme_states_the_tails_that_ship() -> None:
    (shipped,) = (document.shipped for document in shipped_accuracy() if document.id == "mlperf")
    text = (PROFILES_DIR / "evidence" / "accuracy" / "README.md").read_text(encoding="utf-8")
    tails = {metric: errors for metric, errors in shipped.overall.errors.items() if metric.endswith("_tail")}
    assert set(tails) == {"tpot_tail", "ttft_tail"}
    for metric, tail in tails.items():
        assert tail.median_abs_pct <= 20.0
        (line,) = (
            line for line in text.splitlines() if line.startswith(f"| {metric.removesuffix('_tail').upper()} | {tail.points} |")
        )
        assert line.endswith(f"| {tail.median_abs_pct:.0f} % |")
    assert f"In {shipped.not_compared[ENDLESS]} rows the predicted engine doesn't keep up" in text
    assert f"median error {shipped.overall.errors['throughput'].median_abs_pct:.0f} % (offline" in text
