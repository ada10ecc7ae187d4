"""Coefficients of a deployment: closed forms, dtypes that a GPU has or lacks, tensor and pipeline parallelism, experts, caps."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.records import CalibrationRecord, load_record, record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import GpuProfile, load_gpu
from planner.models import QUANTIZATIONS, kv_read_bytes, load_model, token_flops, weight_bytes
from planner.step_coefficients import (
    all_reduce_cost,
    coefficients,
    coefficients_for,
    compute_dtype_on,
    peak_rates,
    rates_of,
    work_of,
)
from planner.step_model import StepShape, gpu_s, step_s

FEW = settings(max_examples=40, deadline=None)


def deployment(
    gpu: str | GpuProfile = "h100-80g-sxm",
    model: str = "llama-3.1-8b-instruct",
    quantization: str = "bf16",
    layout: Parallelism | None = None,
    engine: str = "vllm",
) -> Deployment:
    profile = load_gpu(gpu) if isinstance(gpu, str) else gpu
    layout = layout or Parallelism()
    version = {"vllm": "0.33.0", "sglang": "0.5.23", "tensorrt-llm": "1.2.0"}[engine]
    config = engine_defaults(engine, version, profile, layout.tp)  # type: ignore[arg-type]
    return Deployment(profile, load_model(model), QUANTIZATIONS[quantization], "bf16", layout, config)


def record_of(part: Deployment) -> CalibrationRecord:
    return record_for(part.gpu, part.engine.engine, part.engine.version)


def test_each_coefficient_is_work_over_rate() -> None:
    part = deployment(layout=Parallelism(tp=2))
    record, model = record_of(part), part.model
    c = coefficients_for(part, record)
    bandwidth = record.memory_efficiency["bf16"].value * 3.35e12
    compute = record.compute_efficiency["bf16"].value * 989.4e12
    assert record.attention_efficiency is not None
    weights, flops = weight_bytes(model, part.quantization, tp=2), token_flops(model, tp=2)
    assert c.dense_weights_s == pytest.approx(weights.dense_bytes / bandwidth)
    assert c.head_weights_s == pytest.approx(weights.head_bytes / bandwidth)
    assert c.linear_s_per_token == pytest.approx(flops.linear_flops / compute)
    assert c.prefill_s_per_pair == pytest.approx(flops.full_pair_flops / (record.attention_efficiency.value * 989.4e12))
    assert record.kv_read_efficiency is not None
    cache_rate = record.kv_read_efficiency.value * 3.35e12
    assert c.decode_s_per_context_token == pytest.approx(
        kv_read_bytes(model, "bf16", tp=2).full_bytes_per_token / cache_rate, rel=1e-3
    )
    assert c.layers_s == pytest.approx(32 * record.layer_s.value)
    reduce = record.all_reduce[2]
    assert c.all_reduce_s == pytest.approx(64 * reduce.alpha_s.value)
    assert c.all_reduce_s_per_token == pytest.approx(64 * 4096 * 2 / reduce.beta_bytes_per_s.value)
    # 2 B · (8 h + 2 (heads + kv) d / tp + 3 ff / tp) a layer, at the record's share of bandwidth
    moved = 32 * 2 * (8 * 4096 + 2 * 40 * 128 / 2 + 3 * 14_336 / 2)
    assert record.activation_bandwidth_fraction is not None
    assert c.activation_s_per_token == pytest.approx(moved / (record.activation_bandwidth_fraction.value * 3.35e12))
    assert c.host_overlap == 1.0
    assert c.exposed_host_s_per_sequence == record.host.exposed_host_s_per_sequence.value


def test_synchronous_scheduling_hides_no_host_time() -> None:
    part = deployment()
    part = replace(part, engine=part.engine.replace(async_scheduling=False))
    c = coefficients_for(part, record_of(part))
    shape = StepShape(8.0, 8.0, 8.0, 8.0, 8000.0)
    assert c.host_overlap == 0.0
    assert float(step_s(shape, c)) == pytest.approx(
        float(gpu_s(shape, c)) + c.host_s + 8 * (c.host_s_per_sequence + c.exposed_host_s_per_sequence)
    )


def test_experts_stream_as_they_are_hit_and_compute_at_their_own_rate() -> None:
    part = deployment(model="qwen3-30b-a3b")
    record, work = record_of(part), work_of(part)
    c = coefficients_for(part, record)
    weights = weight_bytes(part.model, part.quantization)
    assert c.expert_miss_ratio == pytest.approx(1 - 8 / 128)
    assert work.expert_bytes == weights.expert_bytes
    assert work.dense_flops + work.expert_flops == pytest.approx(token_flops(part.model).linear_flops)
    assert work.expert_flops == pytest.approx(2 * 48 * 8 * 3 * 2048 * 768)
    slower = record.compute_efficiency["bf16"].value / record.expert_compute_efficiency["bf16"].value
    assert c.linear_s_per_token * record.compute_efficiency["bf16"].value * 989.4e12 == pytest.approx(
        work.dense_flops + slower * work.expert_flops
    )
    assert record.expert_layer_s is not None
    assert c.layers_s == pytest.approx(48 * (record.layer_s.value + record.expert_layer_s.value))


def test_latent_attention_is_bounded_by_its_compute_too() -> None:
    part = deployment("h200-141g-sxm", "deepseek-v3", "fp8-block", Parallelism(tp=8))
    c = coefficients(work_of(part), peak_rates(part))
    read_s = kv_read_bytes(part.model, "bf16", tp=8).full_bytes_per_token / 4.8e12
    multiply_s = token_flops(part.model, tp=8).decode_full_pair_flops / 989.4e12
    assert c.decode_s_per_context_token == pytest.approx(max(read_s, multiply_s))


def test_pipeline_stages_pay_constants_for_each_micro_batch() -> None:
    one, two = (deployment(model="llama-3.1-70b-instruct", layout=Parallelism(tp=2, pp=pp)) for pp in (1, 2))
    a, b = coefficients_for(one, record_of(one)), coefficients_for(two, record_of(two))
    assert b.layers_s == pytest.approx(a.layers_s)
    assert b.dense_weights_s == pytest.approx(a.dense_weights_s, rel=1e-3)
    assert b.linear_s_per_token == pytest.approx(a.linear_s_per_token / 2, rel=1e-3)
    assert b.decode_s_per_context_token == pytest.approx(a.decode_s_per_context_token / 2)
    assert b.all_reduce_s > a.all_reduce_s


# Dtypes


@pytest.mark.parametrize(
    ("gpu", "quantization", "engine", "expected"),
    [
        ("h100-80g-sxm", "fp8", "vllm", "fp8"),
        ("a100-80g-sxm", "fp8", "vllm", "bf16"),
        ("a100-80g-sxm", "fp8", "sglang", "bf16"),
        ("h100-80g-sxm", "nvfp4", "vllm", "bf16"),
        ("b200-sxm", "nvfp4", "vllm", "fp4"),
        ("a100-80g-sxm", "int8", "vllm", "int8"),
        ("a100-80g-sxm", "int4-awq", "vllm", "bf16"),
        ("t4", "bf16", "vllm", "fp16"),
        ("t4", "fp8", "vllm", "fp16"),
    ],
)
def test_matrix_products_run_in(gpu: str, quantization: str, engine: str, expected: str) -> None:
    assert compute_dtype_on(load_gpu(gpu), QUANTIZATIONS[quantization], engine) == expected


@pytest.mark.parametrize(
    ("gpu", "quantization", "engine"),
    [
        ("a100-80g-sxm", "fp8", "tensorrt-llm"),
        ("v100-32g-sxm", "fp8", "vllm"),
        ("v100-32g-sxm", "int8", "vllm"),
        ("mi210", "fp8", "vllm"),
    ],
)
def test_what_no_kernel_can_compute_is_refused(gpu: str, quantization: str, engine: str) -> None:
    with pytest.raises(InputError, match="quantization"):
        compute_dtype_on(load_gpu(gpu), QUANTIZATIONS[quantization], engine)


def test_weight_only_keeps_weights_small_and_computes_in_16_bit() -> None:
    plain, packed = deployment("a100-80g-sxm"), deployment("a100-80g-sxm", quantization="fp8")
    a, b = coefficients_for(plain, record_of(plain)), coefficients_for(packed, record_of(packed))
    assert b.linear_s_per_token == a.linear_s_per_token
    assert b.dense_weights_s < 0.7 * a.dense_weights_s
    assert b.head_weights_s == a.head_weights_s


def test_a_record_without_the_dtype_is_refused() -> None:
    part = deployment(quantization="fp8")
    bare = load_record("h100-80g-sxm/vllm-0.24.0").only(
        ["memory_efficiency.bf16", "memory_efficiency.fp8", "compute_efficiency.bf16"]
    )
    with pytest.raises(InputError, match="no fp8"):
        rates_of(part, bare)


# Tensor-parallel sizes


def test_all_reduce_sizes_between_and_beyond() -> None:
    record = record_for(load_gpu("h100-80g-sxm"), "vllm", "0.24.0")
    two, four, eight = (all_reduce_cost(record, size) for size in (2, 4, 8))
    three = all_reduce_cost(record, 3)
    assert two.alpha_s < three.alpha_s < four.alpha_s
    assert min(two[1], four[1]) <= three.s_per_byte <= max(two[1], four[1])
    assert "between 2 and 4" in three.note
    sixteen = all_reduce_cost(record, 16)
    assert sixteen[:2] == eight[:2]
    assert "no figure for 16" in sixteen.note
    assert all_reduce_cost(record, 1)[:2] == (0.0, 0.0)


def test_tensor_parallelism_without_a_known_link_is_refused() -> None:
    with pytest.raises(InputError, match="all-reduce"):
        all_reduce_cost(record_for(load_gpu("jetson-thor"), "vllm", "0.24.0"), 2)


# The catalogue's figures and the record's


def test_a_measured_rate_survives_a_correction_and_falls_with_a_cap() -> None:
    gpu = load_gpu("h100-80g-sxm")
    record = record_for(gpu, "vllm", "0.24.0")
    base = rates_of(deployment(gpu), record)
    corrected = gpu.model_copy(update={"memory_bytes_per_s": 3.9e12})
    assert rates_of(deployment(corrected), record).weights_bytes_per_s == base.weights_bytes_per_s
    slower = gpu.model_copy(update={"memory_bytes_per_s": 1.675e12})
    assert rates_of(deployment(slower), record).kv_bytes_per_s == pytest.approx(0.5 * base.kv_bytes_per_s)
    capped = gpu.model_copy(update={"dense_flops_per_s": {**gpu.dense_flops_per_s, "bf16": 494.7e12}})
    assert rates_of(deployment(capped), record).dense_flops_per_s == pytest.approx(0.5 * base.dense_flops_per_s)


@pytest.mark.parametrize("gpu", ["t4", "mi300x", "tpu-v6e", "b200-sxm", "gaudi3"])
def test_the_textbook_record_fits_any_gpu(gpu: str) -> None:
    part = deployment(gpu)
    c = coefficients_for(part, load_record("textbook"))
    peak = max(rate for dtype, rate in part.gpu.dense_flops_per_s.items() if dtype in {"bf16", "fp16"})
    assert c.linear_s_per_token == pytest.approx(token_flops(part.model).linear_flops / (0.475 * peak))
    assert c.layers_s == 0.0


MODELS = ("llama-3.1-8b-instruct", "qwen3-30b-a3b", "gemma-3-12b-it", "deepseek-v2-lite", "qwen3-next-80b-a3b-instruct")


@given(
    gpu=st.sampled_from(["h100-80g-sxm", "a100-80g-sxm", "l40s", "mi300x", "b200-sxm"]),
    model=st.sampled_from(MODELS),
    layout=st.sampled_from([("bf16", 1), ("bf16", 2), ("fp8", 1), ("fp8", 2)]),
    decode=st.tuples(st.integers(0, 256), st.integers(1, 32_768)),
    chunk=st.integers(1, 8_192),
)
@FEW
def test_no_deployment_beats_its_data_sheet(
    gpu: str, model: str, layout: tuple[str, int], decode: tuple[int, int], chunk: int
) -> None:
    (quantization, size), (decodes, context) = layout, decode
    part = deployment(gpu, model, quantization, Parallelism(tp=size))
    work, record = work_of(part), record_of(part)
    shape = StepShape(
        scheduled_tokens=float(decodes + chunk),
        sampled_tokens=float(decodes + 1),
        sequences=float(decodes + 1),
        decode_sequences=float(decodes),
        decode_context_tokens=float(decodes * context),
        decode_window_tokens=float(decodes * min(context, work.window_tokens)),
        prefill_pairs=chunk * chunk / 2,
        prefill_window_pairs=chunk * min(chunk / 2, work.window_tokens),
    )
    predicted = float(step_s(shape, coefficients_for(part, record)))
    bound = float(step_s(shape, coefficients(work, peak_rates(part))._replace(expert_spread=record.expert_spread.value)))
    assert 0 < bound <= predicted * (1 + 1e-9)
    streamed = work.dense_bytes + work.head_bytes + decodes * context * work.kv_bytes_per_token
    assert predicted >= streamed / part.gpu.memory_bytes_per_s
