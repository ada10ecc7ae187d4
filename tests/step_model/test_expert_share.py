"""What narrow experts reach of the peak."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.records import record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.expert_share import FUSED_SHARE, expert_layer_share, expert_share
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import rates_of


def deployment(model: str, tp: int, ep: int = 1, *, gpu_id: str = "h200-141g-sxm", weights: str = "bf16") -> Deployment:
    gpu = load_gpu(gpu_id)
    engine = engine_defaults("vllm", "0.19.0", gpu, tp)
    return Deployment(gpu, load_model(model), QUANTIZATIONS[weights], "bf16", Parallelism(tp=tp, ep=ep), engine)


@pytest.mark.parametrize(
    ("gpu_id", "weights", "share"),
    [
        ("b200-sxm", "nvfp4", FUSED_SHARE),
        ("b300-sxm", "mxfp4", FUSED_SHARE),
        ("b200-sxm", "fp8", 1.0),
        ("h200-141g-sxm", "mxfp4", 1.0),
    ],
)
def test_fp4_experts_on_blackwell_run_in_one_kernel(gpu_id: str, weights: str, share: float) -> None:
    part = deployment("gpt-oss-120b", 1, gpu_id=gpu_id, weights=weights)
    assert expert_layer_share(part) == share
    record = record_for(part.gpu, "vllm", "0.24.0")
    assert record.expert_layer_s is not None
    assert rates_of(part, record).expert_layer_s == pytest.approx(share * record.expert_layer_s.value)


def test_the_width_that_records_stand_for_changes_nothing() -> None:
    assert expert_share(0.345, deployment("qwen3-30b-a3b", 1)) == pytest.approx(0.345)


def test_a_dense_model_has_no_experts_to_narrow() -> None:
    assert expert_share(0.4, deployment("llama-3.1-8b-instruct", 4)) == 0.4


@given(st.floats(0.01, 1.0))
@settings(max_examples=30, deadline=None)
def test_splitting_narrows_and_spreading_whole_experts_does_not(efficiency: float) -> None:
    shares = [expert_share(efficiency, deployment("minimax-m2.7", tp)) for tp in (1, 2, 4)]
    assert shares == sorted(shares, reverse=True)
    assert all(0.0 < share <= 1.0 for share in shares)
    assert expert_share(efficiency, deployment("minimax-m2.7", 4, ep=4)) == shares[0]


@pytest.mark.parametrize(("tp", "measured"), [(1, 0.35), (2, 0.18), (4, 0.125), (8, 0.07)], ids=["1536", "768", "384", "192"])
def test_prefill_of_minimax_asks_for_these_shares(tp: int, measured: float) -> None:
    """Share of the linear layers' share that reproduces TTFT of 8k prompts, MiniMax-M2.5 NVFP4 on B300 (InferenceX), to 15 %."""
    stored = deployment("minimax-m2.7", tp, gpu_id="b300-sxm", weights="nvfp4")
    assert expert_share(0.2, stored) == pytest.approx(measured, rel=0.15)


def test_experts_that_are_unpacked_reach_less_of_the_16_bit_rate() -> None:
    """Stored in 4 bits and multiplied in 16: 0.57 of the narrow form, and at 768 values of the record's own figure."""
    packed = deployment("qwen3-30b-a3b", 1, weights="int4-awq")
    assert expert_share(0.35, packed) == pytest.approx(0.35 * 0.57)
