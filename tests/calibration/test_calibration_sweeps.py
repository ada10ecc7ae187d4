"""The record of the H100 NVL: fitted to Poisson sweeps of one model with two dtypes, each predicted from the other one's fit."""

import datetime as dt
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from planner.accuracy import predict, setting_of
from planner.calibration.families import dtype_ratio
from planner.calibration.fit.__main__ import start_record
from planner.calibration.importers import BenchmarkRun, Spread
from planner.calibration.measurement_tables import read_measurements
from planner.calibration.measurements import Measurement
from planner.calibration.records import CalibrationRecord, load_record
from planner.step_coefficients import coefficients_for
from planner.tuning import Bench, CalibrationFit, Target, TuneOptions, fit_benchmarks

SWEEPS = Path(__file__).parent.parent / "recorded" / "poisson_sweeps_h100_nvl.csv"
GPU, RECORD = "h100-94g-nvl", "h100-94g-nvl/vllm-0.19.0"
SIXTEEN_BIT = {"compute_efficiency.bf16", "compute_efficiency.fp16"}
FIXED = frozenset({"mix_factor", "expert_spread", "smoothness", "memory_efficiency.bf16", "memory_efficiency.fp8"})
"""The memory's share is the chip's, known from operator tables of other Hopper parts; a capped card differs in its clocks."""
SOURCE = (
    "fit to Poisson sweeps of Llama-3.1-8B under vLLM 0.19 behind HTTP, fp8 and then fp16 (pChitral/vllm-cost-meter at 2babbc9, "
    "MIT), with the simulator inside the fit"
)


def rows(dtype: str) -> list[Measurement]:
    return [row for row in read_measurements(SWEEPS) if isinstance(row, Measurement) and row.weight_dtype == dtype]


def run_of(row: Measurement) -> BenchmarkRun:
    assert row.requests_per_s is not None
    return BenchmarkRun(
        tool="vllm bench serve",
        label=f"{row.rate_rps:g} requests/s",
        engine="vllm",
        engine_version=row.engine_version,
        arrivals="poisson",
        rate_rps=row.rate_rps,
        burstiness=1.0,
        requests=row.requests or 0,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        duration_s=(row.requests or 0) / row.requests_per_s,
        requests_per_s=row.requests_per_s,
        output_tokens_per_s=row.output_tokens_per_s,
        ttft=Spread(mean_s=row.ttft_mean_s, p50_s=row.ttft_p50_s, p90_s=row.ttft_p90_s, p99_s=row.ttft_p99_s),
        tpot=Spread(p50_s=row.tpot_p50_s, p90_s=row.tpot_p90_s),
    )


def fit(dtype: str, prior: CalibrationRecord) -> CalibrationFit:
    quantization = {"fp16": "bf16"}.get(dtype, dtype)
    target = Target(gpu_id=GPU, model_id="llama-3.1-8b-instruct", quantization=quantization, engine_version="0.19.0")
    deployment = target.deployment()
    options = TuneOptions(source=SOURCE, day=dt.date(2026, 11, 30), hold_out=False, fixed=FIXED)
    return fit_benchmarks(Bench(deployment, target.memory(deployment), 1), [run_of(row) for row in rows(dtype)], prior, options)


@lru_cache(maxsize=1)
def refitted() -> CalibrationRecord:
    """Return the record as it is made: the prior, moved by the fp8 runs and then by the fp16 runs."""
    first = fit("fp8", start_record(GPU, "vllm", "0.19.0"))
    second = fit("fp16", first.record)
    paths = {value.path for part in (first, second) for value in part.parameters} | {path for path in FIXED if "." in path}
    return second.record.only(paths)


@pytest.mark.slow
def test_the_shipped_record_comes_out_of_the_sweeps() -> None:
    shipped, again = dict(load_record(RECORD).parameters()), dict(refitted().parameters())
    assert set(shipped) == set(again)
    for path, parameter in again.items():
        assert shipped[path].low <= parameter.value <= shipped[path].high, path
        if parameter.informed_by == "data":
            assert shipped[path].value == pytest.approx(parameter.value, rel=0.1), path


@pytest.mark.parametrize(("dtype", "limit"), [("fp8", 0.12), ("fp16", 0.08)])
def test_latencies_and_saturation_of_the_sweeps(dtype: str, limit: float) -> None:
    """TPOT p50 at 10 and 25 requests/s, TTFT p99 at every rate and saturation, 500 requests each."""
    for row in rows(dtype):
        figures = predict(setting_of(row))
        assert row.ttft_p99_s is not None
        assert row.tpot_p50_s is not None
        assert row.requests_per_s is not None
        assert figures.ttft_p99_s == pytest.approx(row.ttft_p99_s, rel=0.20), row.rate_rps
        if row.rate_rps in {10, 25}:
            assert figures.tpot_p50_s == pytest.approx(row.tpot_p50_s, rel=limit), row.rate_rps
        assert figures.requests_per_s == pytest.approx(row.requests_per_s, rel=0.08)


@pytest.mark.slow
def test_the_fp8_runs_alone_foretell_the_fp16_runs() -> None:
    """The other way round: a fit of the fp8 runs, its compute share carried over to 16 bit, and no fp16 run seen."""
    record = fit("fp8", start_record(GPU, "vllm", "0.19.0")).record
    share = record.compute_efficiency["fp8"].value / dtype_ratio(GPU, "fp8").ratio
    carried = record.with_values({path: share for path, _ in record.parameters() if path in SIXTEEN_BIT})
    for row in rows("fp16"):
        setting = setting_of(row)
        figures = predict(replace(setting, record=carried, coefficients=coefficients_for(setting.deployment, carried)))
        assert row.ttft_p99_s is not None
        assert row.tpot_p50_s is not None
        assert row.requests_per_s is not None
        assert row.rate_rps is not None
        below_saturation = row.rate_rps <= 25
        assert figures.ttft_p99_s == pytest.approx(row.ttft_p99_s, rel=0.10 if below_saturation else 0.20), row.rate_rps
        if row.rate_rps in {10, 25}:
            assert figures.tpot_p50_s == pytest.approx(row.tpot_p50_s, rel=0.08), row.rate_rps
        assert figures.requests_per_s == pytest.approx(row.requests_per_s, rel=0.02), row.rate_rps
