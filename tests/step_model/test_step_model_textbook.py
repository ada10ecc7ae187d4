"""The textbook setting against figures worked out by hand: Llama-3.1-8B in BF16 on one H100 SXM of 989 TFLOP/s and 3.35 TB/s."""

import pytest

from planner.calibration.records import load_record
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import GpuProfile, load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients, StepShape, step_s, step_time

MS = 1e-3
US = 1e-6


def round_h100() -> GpuProfile:
    """An H100 with the rounded figures of the textbook setting."""
    gpu = load_gpu("h100-80g-sxm")
    rates = {**gpu.dense_flops_per_s, "bf16": 989e12}
    return gpu.model_copy(update={"memory_bytes_per_s": 3.35e12, "dense_flops_per_s": rates})


def textbook(model: str = "llama-3.1-8b-instruct", tp: int = 1) -> StepCoefficients:
    gpu = round_h100()
    engine = engine_defaults("vllm", "0.33.0", gpu, tp)
    deployment = Deployment(gpu, load_model(model), QUANTIZATIONS["bf16"], "bf16", Parallelism(tp=tp), engine)
    return coefficients_for(deployment, load_record("textbook"))


def decode(sequences: float, context: float) -> StepShape:
    return StepShape(sequences, sequences, sequences, sequences, sequences * context)


def prefill(tokens: float) -> StepShape:
    """A whole prompt; each query sees itself too, which the integral q²/2 leaves out."""
    return StepShape(tokens, 1.0, 1.0, prefill_pairs=tokens * (tokens + 1) / 2)


@pytest.mark.parametrize(
    ("sequences", "context", "expected_ms"),
    [(64, 2048, 9.906052785967072), (128, 2048, 15.192979754423758), (12.488081038626653, 625, 4.9339507440173245)],
)
def test_decode_steps(sequences: float, context: float, expected_ms: float) -> None:
    """64 and 128 sequences at 2,048 tokens; 12.5 sequences of 500 tokens in and half of 250 out."""
    assert float(step_s(decode(sequences, context), textbook())) / MS == pytest.approx(expected_ms, rel=1e-6)


@pytest.mark.parametrize(("tokens", "expected_s"), [(2048, 0.063520484213299824), (32_768, 1.5731993959578583)])
def test_prefills(tokens: int, expected_s: float) -> None:
    assert float(step_s(prefill(tokens), textbook())) == pytest.approx(expected_s, rel=1e-6)


def test_cost_of_one_token() -> None:
    c = textbook()
    assert c.linear_s_per_token / US == pytest.approx(29.714599951040395, rel=1e-6)
    assert c.decode_s_per_context_token == pytest.approx(131_072 / (0.97 * 3.35e12), rel=1e-9)
    assert float(step_s(decode(64, 2048), c)) / 64 / US == pytest.approx(154.78207478073548, rel=1e-6)


def test_knee_of_the_linear_layers() -> None:
    c = textbook()
    assert c.dense_weights_s / c.linear_s_per_token == pytest.approx(144.56839513771348, rel=1e-6)


def test_70b_over_four_gpus() -> None:
    """Llama-3.1-70B at TP4, 355 sequences of 1,000 tokens in and half of 250 out: 20.76 ms of reading, and more of multiplying."""
    c, batch = textbook("llama-3.1-70b-instruct", tp=4), 355.0688666666666
    time = step_time(decode(batch, 1125), c)
    reading_s = c.dense_weights_s + c.head_weights_s + time.decode_attention_s
    assert reading_s / MS == pytest.approx(20.764629458070473, rel=1e-4)
    assert time.linear_s == time.linear_compute_s > c.dense_weights_s
    assert time.binds == "compute"
    assert time.all_reduce_s == 0.0


def test_overheads_are_zero_and_the_maximum_is_hard() -> None:
    c = textbook()
    assert (c.layers_s, c.host_s, c.host_s_per_sequence, c.exposed_host_s_per_sequence, c.activation_s_per_token) == (0,) * 5
    assert (c.inverse_p, c.mix_factor) == (0.0, 1.0)
    time = step_time(decode(64, 2048), c)
    assert time.binds == "bandwidth"
    assert time.linear_s == time.linear_weights_s


def test_host_time_is_hidden_by_asynchronous_scheduling() -> None:
    """Host 5 ms and GPU 10 ms: 15 ms one after the other, 10 ms overlapped."""
    zero = StepCoefficients(*[0.0] * 21)._replace(layers_s=10 * MS, host_s=5 * MS, expert_miss_ratio=1.0, mix_factor=1.0)
    one = decode(1, 0)
    assert float(step_s(one, zero)) == pytest.approx(15 * MS)
    assert float(step_s(one, zero._replace(host_overlap=1.0))) == pytest.approx(10 * MS)
