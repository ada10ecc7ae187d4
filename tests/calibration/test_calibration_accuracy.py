"""Shipped records against recorded steps and published serving figures, with tolerances."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.fit import StepGroup, groups_from_csv
from planner.calibration.fit.groups import bound_s, predicted_s
from planner.calibration.fit.solve import relative_errors
from planner.calibration.records import load_record, record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients, StepShape, step_s

STEPS = gzip.decompress((Path(__file__).parent.parent / "recorded" / "step_times.csv.gz").read_bytes())

# gpu, engine, release, part of the group's name, limits of median, mean and worst error in percent
LIMITS = [
    ("h100-80g-sxm", "vllm", "0.24.0", "llama bf16", (3.0, 4.0, 22.0)),
    ("h100-80g-sxm", "vllm", "0.24.0", "fp8", (6.0, 8.0, 45.0)),
    ("h100-80g-sxm", "vllm", "0.24.0", "qwen3-30b", (6.0, 8.0, 40.0)),
    ("h200-141g-sxm", "vllm", "0.24.0", "llama bf16", (3.0, 4.0, 22.0)),
    ("a100-80g-sxm", "vllm", "0.14.0", "llama bf16", (3.0, 4.0, 25.0)),
    ("l40s", "vllm", "0.24.0", "llama bf16", (4.0, 5.0, 22.0)),
    ("h100-80g-sxm", "tensorrt-llm", "1.3.0rc20", "llama bf16", (2.0, 3.0, 15.0)),
    ("rtx-pro-6000-bw-server", "vllm", "0.19.0", "llama bf16", (4.0, 6.0, 60.0)),
    ("rtx-4090", "vllm", "0.19.0", "llama bf16", (5.0, 7.0, 50.0)),
]


def groups(gpu: str, engine: str, version: str, part: str) -> list[StepGroup]:
    record = load_record(f"{gpu}/{engine}-{version}")
    return [g for g in groups_from_csv(STEPS, load_gpu(gpu), record) if all(word in g.label for word in part.split())]


@pytest.mark.parametrize(("gpu", "engine", "version", "part", "limits"), LIMITS, ids=["/".join(row[:4]) for row in LIMITS])
def test_step_times(gpu: str, engine: str, version: str, part: str, limits: tuple[float, float, float]) -> None:
    chosen = groups(gpu, engine, version, part)
    assert chosen
    record = record_for(load_gpu(gpu), engine, version)
    errors = 100 * np.abs(np.concatenate([relative_errors(group, record) for group in chosen]))
    assert (float(np.median(errors)), float(errors.mean()), float(errors.max())) <= limits
    assert np.median(errors) <= limits[0]
    assert errors.mean() <= limits[1]
    assert errors.max() <= limits[2]
    for group in chosen:
        assert (predicted_s(group, record) >= bound_s(group)).all()


def test_the_recorded_rows_themselves_keep_to_the_data_sheet() -> None:
    for gpu, engine, version, part, _ in LIMITS:
        for group in groups(gpu, engine, version, part):
            assert (group.seconds >= 0.98 * bound_s(group)).all(), group.label


def serving(gpu_id: str, host_time: bool = True) -> StepCoefficients:
    gpu = load_gpu(gpu_id)
    engine = engine_defaults("vllm", "0.19.0", gpu, 1)
    part = Deployment(gpu, load_model("llama-3.1-8b-instruct"), QUANTIZATIONS["bf16"], "bf16", Parallelism(), engine)
    c = coefficients_for(part, record_for(gpu, "vllm", "0.19.0"))
    return c if host_time else c._replace(exposed_host_s_per_sequence=0.0, host_s_per_sequence=0.0, host_s=0.0)


def mean_tpot_s(c: StepCoefficients, rate_rps: float, prompt: float = 512, output: float = 256) -> float:
    """Mean time per output token at a Poisson rate: sequences in flight, step time and prefills as a fixed point."""
    running, tpot_s = 1.0, 0.0
    for _ in range(400):
        context = running * (prompt + output / 2)
        decode_s = float(step_s(StepShape(running, running, running, running, context), c))
        tokens = running + prompt
        mixed_s = float(step_s(StepShape(tokens, running + 1, running + 1, running, context, 0.0, prompt * prompt / 2), c))
        tpot_s = decode_s / (1.0 - rate_rps * (mixed_s - decode_s))
        running = max(0.5 * running + 0.5 * rate_rps * output * tpot_s, 1.0)
    return tpot_s


@pytest.mark.parametrize(("rate_rps", "measured_s"), [(1, 6.56e-3), (5, 8.29e-3), (10, 10.23e-3)])
def test_tpot_of_8b_on_h100_nvl_behind_http(rate_rps: float, measured_s: float) -> None:
    """Median TPOT of published Poisson sweeps of vLLM 0.19 (512 tokens in, 256 out; vllm_cost_meter), by a closed form."""
    assert mean_tpot_s(serving("h100-94g-nvl"), rate_rps) == pytest.approx(measured_s, rel=0.10)


def test_without_host_time_the_same_load_is_too_fast() -> None:
    assert mean_tpot_s(serving("h100-94g-nvl", host_time=False), 10) < 0.93 * mean_tpot_s(serving("h100-94g-nvl"), 10)
