"""What routed experts stored in 16 bit reach: the curve, its GPUs, and the Poisson sweeps that it was chosen on."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from planner.accuracy import predict, setting_of
from planner.calibration.families import whole_experts
from planner.calibration.measurement_tables import read_measurements
from planner.calibration.measurements import Measurement
from planner.calibration.records import record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.expert_share import expert_share
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import coefficients_for

SWEEPS = Path(__file__).parent.parent / "recorded" / "poisson_sweeps_experts.csv"
NVL, A100 = "h100-94g-nvl", "a100-80g-pcie"


@lru_cache(maxsize=1)
def rows() -> tuple[Measurement, ...]:
    return tuple(row for row in read_measurements(SWEEPS) if isinstance(row, Measurement))


def swept(gpu: str, model: str, rate: float) -> Measurement:
    return next(row for row in rows() if (row.gpu, row.model, row.rate_rps) == (gpu, model, rate))


def deployment(gpu_id: str, model: str, tp: int) -> Deployment:
    gpu = load_gpu(gpu_id)
    engine = engine_defaults("vllm", "0.19.0", gpu, tp)
    return Deployment(gpu, load_model(model), QUANTIZATIONS["bf16"], "bf16", Parallelism(tp=tp), engine)


@pytest.mark.parametrize(
    ("gpu_id", "model", "tp", "share"),
    [
        (NVL, "qwen3-30b-a3b", 1, 0.50),
        (NVL, "mixtral-8x7b-instruct-v0.1", 2, 0.5 * 7168 / (7168 + 165) * (768 + 165) / 768),
        (NVL, "qwen3-30b-a3b", 2, 0.5 * 384 / (384 + 750) * (768 + 750) / 768),
        (A100, "qwen3-30b-a3b", 1, 0.35),
        (A100, "mixtral-8x7b-instruct-v0.1", 2, 0.35 * 7168 / (7168 + 750) * (768 + 750) / 768),
        (A100, "qwen3-30b-a3b", 2, 0.35 * 384 / (384 + 750) * (768 + 750) / 768),
    ],
)
def test_the_share_by_hand(gpu_id: str, model: str, tp: int, share: float) -> None:
    part = deployment(gpu_id, model, tp)
    assert expert_share(whole_experts(part.gpu).ratio, part) == pytest.approx(share)


@pytest.mark.parametrize("gpu_id", [NVL, A100, "h200-141g-sxm", "b200-sxm", "mi300x"])
def test_wider_experts_reach_more_on_every_gpu(gpu_id: str) -> None:
    models = ("qwen3-30b-a3b", "mixtral-8x7b-instruct-v0.1")
    shares = [expert_share(0.3, deployment(gpu_id, model, tp)) for model in models for tp in (8, 4, 2, 1)]
    assert shares == sorted(shares)
    assert shares[3] == pytest.approx(0.3)


@pytest.mark.parametrize(("gpu_id", "ratio"), [(NVL, 0.50), ("h20-96g", 0.50), (A100, 0.35), ("l40s", 0.35)])
def test_the_share_of_a_gpu_without_experts_in_its_record_is_its_architectures(gpu_id: str, ratio: float) -> None:
    record = record_for(load_gpu(gpu_id), "vllm", "0.24.0")
    expert = record.expert_compute_efficiency["bf16"]
    assert expert.value == pytest.approx(ratio * record.compute_efficiency["bf16"].value, rel=1e-3)
    assert "Poisson sweeps" in expert.source.ref


@pytest.mark.parametrize("gpu_id", [NVL, A100])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "mixtral-8x7b-instruct-v0.1"])
def test_saturation_of_the_sweeps(gpu_id: str, model: str) -> None:
    row = swept(gpu_id, model, 100.0)
    assert row.requests_per_s is not None
    assert predict(setting_of(row)).requests_per_s == pytest.approx(row.requests_per_s, rel=0.07)


def test_tpot_of_the_sweeps_below_and_at_saturation() -> None:
    for rate in (25.0, 50.0):
        row = swept(NVL, "qwen3-30b-a3b", rate)
        assert row.tpot_p50_s is not None
        assert predict(setting_of(row)).tpot_p50_s == pytest.approx(row.tpot_p50_s, rel=0.10), rate


def test_a100s_share_is_too_small_for_hopper() -> None:
    row = swept(NVL, "qwen3-30b-a3b", 50.0)
    setting = setting_of(row)
    smaller = {
        path: 0.7 * parameter.value
        for path, parameter in setting.record.parameters()
        if path.startswith("expert_compute_efficiency.")
    }
    record = setting.record.with_values(smaller)
    slower = predict(replace(setting, record=record, coefficients=coefficients_for(setting.deployment, record)))
    assert row.requests_per_s is not None
    assert slower.requests_per_s < 0.92 * row.requests_per_s
