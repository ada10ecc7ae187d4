"""What published launch scripts say of kernels: CUDA graphs, fused all-reduces, copied attention, four-bit activations."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy import accuracy_report, setting_of
from planner.accuracy.names import quantization_named
from planner.accuracy.recipes import recipe_for
from planner.accuracy.setting import LAUNCH_S_PER_LAYER, NotPredictedError
from planner.calibration.measurements import Measurement
from planner.models import load_model
from planner.step_model import StepShape, step_s

SUBSET = Path(__file__).parent / "mlperf_subset.csv"
V51 = "mlcommons/inference_results_v5.1:closed/NVIDIA/results/B200-SXM-180GBx8_TRT/llama3.1-405b/Interactive/performance/run_1"
V60 = "mlcommons/inference_results_v6.0:closed/NVIDIA/results/B300-SXM-270GBx8_TRT/deepseek-r1/Offline/performance/run_1"


def row(**changes: object) -> Measurement:
    fields: dict[str, object] = {
        "source": V51, "engine": "TensorRT", "engine_version": "TensorRT 10.11, CUDA 12.9", "model": "Llama-3.1-405B-Instruct",
        "weight_dtype": "fp4", "kv_dtype": "fp8", "gpu": "B200-SXM-180GB", "gpu_count": 8, "tp": 4, "pp": 1,
        "scenario": "open-loop", "front_end": "offline", "prompt_tokens": 9428, "output_tokens": 653, "rate_rps": 1.15,
        "max_num_seqs": 256, "max_num_batched_tokens": 2048, "tpot_p50_s": 0.0617,
    }  # fmt: skip
    return Measurement.model_validate(fields | changes)


def decode(sequences: float) -> StepShape:
    return StepShape(sequences, sequences, sequences, sequences, 9750.0 * sequences, 0.0)


def test_without_cuda_graphs_a_decode_step_lasts_as_long_as_its_launches() -> None:
    """llama3_1-405b.py of B200-SXM-180GBx8 says use_graphs False: 126 layers of 0.3 ms, whatever the batch up to 100 sequences."""
    setting = setting_of(row())
    assert not setting.deployment.engine.cuda_graphs
    c = setting.coefficients
    for sequences in (1.0, 23.0, 62.0):
        assert float(step_s(decode(sequences), c)) == pytest.approx(126 * LAUNCH_S_PER_LAYER, rel=0.06)


def test_the_medians_at_two_rates_show_the_decode_step_and_the_rate_of_prompts() -> None:
    """TPOT = b / (1 - λ / μ): 61.7 ms at 0.575 prompts/s and 101 ms at 0.95 (MLPerf v5.1, 9 and 13 rows) give b = 38 ms."""
    tpot_s, rate_rps = np.array([0.0617, 0.101]), np.array([0.575, 0.95])
    # 1 / tpot falls evenly with the rate
    slope = np.diff(1.0 / tpot_s) / np.diff(rate_rps)
    decode_s = 1.0 / (1.0 / tpot_s[0] - float(slope[0]) * rate_rps[0])
    assert decode_s == pytest.approx(126 * LAUNCH_S_PER_LAYER, rel=0.05)


def test_a_long_chunk_hides_launches_and_all_reduces() -> None:
    eager, plain = setting_of(row()), setting_of(row(source="somebody's own run"))
    assert plain.deployment.engine.cuda_graphs
    chunk = StepShape(2048.0, 1.0, 1.0, 0.0, 0.0, 0.0, 2048.0 * 4700.0)
    fused_s, apart_s = float(step_s(chunk, eager.coefficients)), float(step_s(chunk, plain.coefficients))
    transfers_s = 2048.0 * plain.coefficients.all_reduce_s_per_token
    assert apart_s - fused_s == pytest.approx(transfers_s, rel=0.05)
    assert transfers_s > 0.2 * fused_s


@settings(max_examples=20, deadline=None)
@given(sequences=st.integers(1, 256))
def test_dropping_graphs_never_speeds_a_step_up(sequences: int) -> None:
    unfused = row(source=V51.replace("B200-SXM-180GBx8", "GB200-NVL72_GB200-186GB_aarch64x72"), gpu="GB200-192GB")
    plain = row(source="somebody's own run", gpu="GB200-192GB")
    slower, faster = setting_of(unfused).coefficients, setting_of(plain).coefficients
    assert float(step_s(decode(sequences), slower)) >= float(step_s(decode(sequences), faster))


def test_the_interactive_runs_of_gb200_do_not_fuse_their_all_reduces() -> None:
    """Its script names gemm_plugin where the others name gemm_allreduce_plugin."""
    interactive = V51.replace("B200-SXM-180GBx8", "GB200-NVL72_GB200-186GB_aarch64x72")
    model = "llama-3.1-405b-instruct"
    assert not recipe_for(row(source=interactive), "tensorrt-llm", model, "gb200").all_reduce_in_product
    server = interactive.replace("Interactive", "Server")
    assert recipe_for(row(source=server), "tensorrt-llm", model, "gb200").all_reduce_in_product


def test_recorded_rows_of_405b_are_met() -> None:
    """Tails of eight rows on B200, GB200 and GB300 within a quarter; before the scripts were read half of 30 rows were."""
    rows = [result for result in accuracy_report(SUBSET).predicted if result.group is not None and "405b" in result.group[2]]
    tails = [abs(result.errors[metric]) for result in rows for metric in ("tpot_tail", "ttft_tail") if metric in result.errors]
    middles = [abs(result.errors["tpot"]) for result in rows if "tpot" in result.errors]
    throughput = [abs(result.errors["throughput"]) for result in rows]
    assert len(tails) >= 12
    assert np.mean(np.array(tails) <= 0.25) >= 0.85
    assert np.median(middles) <= 0.25
    assert max(throughput) <= 0.12


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_copied_attention_is_named_where_the_scripts_state_it(scenario: str) -> None:
    """deepseek-r1.py of MLPerf v6.0: enable_attention_dp, which the rows leave out."""
    copied = row(
        source=V60.replace("Offline", scenario),
        model="DeepSeek-R1",
        gpu="B300-SXM-270GB",
        tp=8,
        ep=8,
        rate_rps=9.5,
        prompt_tokens=803,
    )
    with pytest.raises(NotPredictedError, match="data-parallel attention"):
        setting_of(copied)
    setting_of(copied.model_copy(update={"source": "somebody's own run"}))


def test_mxfp4_of_dense_models_multiplies_in_four_bits() -> None:
    """AMD Quark's checkpoints quantise activations too (open/AMD/documentation/calibration.md of MLPerf v5.1); gpt-oss doesn't."""
    amd = row(model="Llama-2-70b-chat", weight_dtype="mxfp4", gpu="MI355X", engine="vLLM", engine_version="0.9.1", tp=1)
    found = quantization_named(amd, load_model("llama-2-70b-hf"))
    assert found is not None
    assert (found.id, found.compute_dtype, found.weight_bits) == ("mxfp4", "fp4", 4.25)
    own = quantization_named(row(model="gpt-oss-120b", weight_dtype="mxfp4"), load_model("gpt-oss-120b"))
    assert own is not None
    assert own.compute_dtype == "bf16"
