"""Fits to benchmarks of real engines: a recorded vLLM on a CPU and published reports of vLLM on an H100."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.calibration.engine_run import config_from_json, engine_row, read_engine_run, sent
from planner.calibration.fit.collected import deployment_of
from planner.calibration.importers import BenchmarkRun, read_benchmark
from planner.calibration.records import load_record
from planner.hardware import load_gpu
from planner.memory import memory_budget
from planner.tuning import Bench, CalibrationFit, Target, fit_benchmarks, fit_files, read_file
from tests.calibration.test_cpu_chain import BEGAN, CONFIG, GPU, RECORD, RUN

DATA = Path(__file__).parents[1] / "data" / "benchmarks"
RATES = ("1.5", "3.0", "4.5")


def as_vllm_bench_serve(rate: str) -> bytes:
    """The recorded requests of one load as `vllm bench serve --save-detailed` writes them."""
    requests = sent(read_engine_run(RUN.read_bytes(), RUN.name), f"poisson-{rate}")
    span_s = float((requests.arrival_s + requests.e2e_s).max() - requests.arrival_s.min())
    prompts, outputs = int(requests.prompt_tokens.sum()), int(requests.output_tokens.sum())
    count = len(requests.arrival_s)
    document: dict[str, Any] = {
        "backend": "openai",
        "model_id": "llama-shape-8x512",
        "request_rate": float(rate),
        "burstiness": 1.0,
        "max_concurrency": None,
        "completed": count,
        "failed": 0,
        "total_input_tokens": prompts,
        "total_output_tokens": outputs,
        "duration": span_s,
        "request_throughput": count / span_s,
        "output_throughput": outputs / span_s,
        "total_token_throughput": (prompts + outputs) / span_s,
        "mean_ttft_ms": 1e3 * float(requests.ttft_s.mean()),
        "input_lens": requests.prompt_tokens.tolist(),
        "output_lens": requests.output_tokens.tolist(),
        "ttfts": requests.ttft_s.tolist(),
        "latencies": requests.e2e_s.tolist(),
        "start_times": (1000.0 + requests.arrival_s).tolist(),
        "errors": [""] * count,
    }
    return json.dumps(document).encode()


@pytest.fixture(scope="module")
def runs() -> list[BenchmarkRun]:
    return [read_benchmark(as_vllm_bench_serve(rate))[0] for rate in RATES]


@pytest.fixture(scope="module")
def fit(runs: list[BenchmarkRun]) -> CalibrationFit:
    run = read_engine_run(RUN.read_bytes(), RUN.name)
    deployment = deployment_of(engine_row(run, config_from_json(CONFIG), "llama-shape-8x512", BEGAN), load_gpu(GPU), "0.32.0")
    return fit_benchmarks(Bench(deployment, memory_budget(deployment, 131_072)), runs, load_record(RECORD))


def test_results_of_a_recorded_vllm_are_read_as_they_were_measured(runs: list[BenchmarkRun]) -> None:
    assert [run.load_text for run in runs] == ["Poisson, 1.5 requests/s", "Poisson, 3 requests/s", "Poisson, 4.5 requests/s"]
    assert [run.ttft.mean_s for run in runs] == pytest.approx([0.15178, 0.15255, 0.15701], rel=1e-3)
    assert not any(run.saturated for run in runs)


def test_a_recorded_vllm_is_fitted_within_its_drift_and_its_held_out_loads_are_predicted(fit: CalibrationFit) -> None:
    """The machine's own speed differs by 5 % between the three runs, which no one record can follow."""
    means = [point for point in fit.points if point.statistic in {"mean", "p50"}]
    after = np.array([abs(point.after / point.measured - 1.0) for point in means])
    held = np.array([abs(point.held_out / point.measured - 1.0) for point in means if point.held_out is not None])
    assert len(after) == len(held) == 12
    assert np.median(after) < 0.05
    assert after.max() < 0.09
    assert np.median(held) < 0.10
    assert held.max() < 0.15


def test_published_reports_of_an_h100_are_fitted() -> None:
    """inference-perf on Llama-3.1-8B, vLLM 0.11: the third stage floods the server through a bounded number of connections."""
    files = [read_file((DATA / f"inference_perf_stage_{stage}.json").read_bytes(), f"stage {stage}") for stage in (1, 3, 5)]
    target = Target(
        gpu_id="h100-80g-sxm", model_id="llama-3.1-8b-instruct", engine_version="0.11.0", max_num_seqs=128, max_model_len=512
    )
    fitted = fit_files(files, target)
    tpot = next(pair for pair in fitted.errors if pair.metric == "tpot")
    assert tpot.after_median_pct < 5.0
    assert tpot.held_out_median_pct is not None
    assert tpot.held_out_median_pct < 12.0
    assert any("More was offered than served" in warning for warning in fitted.warnings)
    assert "vllm" in fitted.record.description.lower()
