"""The profiling peak, tensor by tensor, against hand sums and logged peaks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults, vllm_facts
from planner.hardware import load_gpu
from planner.memory import activation
from planner.memory.held import allocator_rounding_bytes, held_weights_bytes, rounding_bytes
from planner.models import QUANTIZATIONS, load_model
from planner.units import GIB, MIB


def deployment(model_id: str, version: str = "0.19.0", quantization: str = "bf16", tp: int = 1, **changes: Any) -> Deployment:
    gpu = load_gpu(changes.pop("gpu_id", "h100-80g-sxm"))
    pp = changes.pop("pp", 1)
    engine = engine_defaults("vllm", version, gpu, tp)
    engine = engine.replace(**changes) if changes else engine
    return Deployment(gpu, load_model(model_id), QUANTIZATIONS[quantization], "bf16", Parallelism(tp=tp, pp=pp), engine)


@pytest.mark.parametrize(
    ("version", "runner", "per_logit"),
    [("0.11.0", 1, 38), ("0.16.0", 1, 38), ("0.17.0", 1, 14), ("0.33.0", 1, 14), ("0.29.0", 2, 2), ("0.33.0", 2, 14)],
)
def test_what_sampling_holds_by_release(version: str, runner: int, per_logit: int) -> None:
    assert activation.sampler_bytes_per_logit(vllm_facts(version), runner, element_bytes=2) == per_logit


def test_the_sampler_of_llama_8b_by_hand() -> None:
    # 8192 hidden states, 1024 rows twice, 14 B a logit, one float32 row for each of 132 multiprocessors, 32 MiB of workspace.
    expected = 8192 * 4096 * 2 + 2 * 1024 * 4096 * 2 + 14 * 1024 * 128256 + 4 * 132 * 128256 + 32 * MIB
    parts = activation.activation_parts(deployment("llama-3.1-8b-instruct"))
    assert parts.sampler_bytes == expected
    assert parts.peak_bytes == expected
    assert parts.peak_bytes == pytest.approx(1.89 * GIB, abs=0.01 * GIB)


def test_a_later_stage_holds_what_it_received() -> None:
    # Hidden states and residual of 8192 tokens, 8192 values of 2 B each.
    whole, staged = (activation.activation_parts(deployment("llama-3.1-70b-instruct", tp=2, pp=pp)) for pp in (1, 2))
    assert staged.peak_bytes - whole.peak_bytes == staged.stage_bytes == 2 * 8192 * 8192 * 2


def test_the_forward_pass_of_a_16384_token_budget() -> None:
    # vLLM 0.10.2 on H100, llava-v1.6-mistral-7b: 1.97 GiB logged, of which 16384 image embeddings of 4096 values stay alive.
    gpu = load_gpu("h100-80g-sxm")
    engine = engine_defaults("vllm", "0.11.0", gpu, tp=1, usage="offline")
    model = load_model("mistral-7b-instruct-v0.3")
    peak = activation.forward_peak_bytes(Deployment(gpu, model, QUANTIZATIONS["bf16"], "bf16", Parallelism(), engine), 16384)
    assert peak + 16384 * 4096 * 2 == pytest.approx(1.97 * GIB, abs=0.01 * GIB)


def test_quantised_activations_are_one_more_copy() -> None:
    plain = activation.forward_peak_bytes(deployment("llama-3.1-8b-instruct"), 8192)
    quantised = activation.forward_peak_bytes(deployment("llama-3.1-8b-instruct", quantization="fp8"), 8192)
    assert quantised - plain == 8192 * 14336


def test_fused_experts_keep_two_buffers() -> None:
    # Qwen3-30B-A3B: 8 experts a token, max(2·768, 2048) and max(768, 2048) wide.
    assert activation.moe_workspace_bytes(deployment("qwen3-30b-a3b"), 8192) == 8192 * 8 * (2048 + 2048) * 2
    # Mixtral at tp 2: 2 experts, 14336 and 7168 wide; with whole experts the width isn't divided.
    assert activation.moe_workspace_bytes(deployment("mixtral-8x7b-instruct-v0.1", tp=2), 8192) == 8192 * 2 * (14336 + 7168) * 2
    assert activation.moe_workspace_bytes(deployment("llama-3.1-8b-instruct"), 8192) == 0


@pytest.mark.parametrize(
    ("model_id", "version", "runner"),
    [
        ("llama-3.1-8b-instruct", "0.21.0", 1),
        ("qwen3-8b", "0.22.0", 2),
        ("llama-3.1-8b-instruct", "0.22.0", 1),
        ("llama-3.1-8b-instruct", "0.23.0", 2),
        ("qwen3-30b-a3b", "0.28.0", 1),
        ("gemma-2-9b", "0.25.0", 2),
        ("qwen3-30b-a3b", "0.29.0", 2),
    ],
)
def test_the_model_runner_by_release_and_architecture(model_id: str, version: str, runner: int) -> None:
    made = deployment(model_id, version)
    assert activation.model_runner(vllm_facts(version), made) == runner
    assert (activation.sequence_slot_bytes(made) > 0) == (runner == 2)


def test_slots_are_a_count_and_a_bit_for_every_word() -> None:
    made = deployment("llama-3.1-8b-instruct", "0.33.0")
    assert activation.sequence_slot_bytes(made) == 1024 * 128256 * 4.125


def test_graphs_follow_layers_and_sizes() -> None:
    assert activation.graphs_bytes(deployment("llama-3.1-8b-instruct")) == pytest.approx((0.26 + 0.0195 * 32) * GIB)
    assert activation.graphs_bytes(deployment("llama-3.1-8b-instruct", cuda_graphs=False)) == 0
    staged = activation.graphs_bytes(deployment("llama-3.1-8b-instruct", pp=2))
    assert staged == pytest.approx((0.26 + 0.0195 * 16) * GIB)
    few = activation.graphs_bytes(deployment("llama-3.1-8b-instruct", max_num_seqs=8))
    assert few < activation.graphs_bytes(deployment("llama-3.1-8b-instruct"))


def test_libraries_take_more_among_several_gpus() -> None:
    sizes = [activation.non_torch_bytes(deployment("llama-3.1-8b-instruct", tp=tp)) / GIB for tp in (1, 2, 4, 8)]
    assert sizes == pytest.approx([0.25, 2.09, 2.15, 2.15])
    assert activation.non_torch_bytes(deployment("llama-3.1-8b-instruct", pp=2)) == pytest.approx(0.07 * GIB)


@given(st.integers(64, 16384), st.integers(64, 16384))
@settings(max_examples=30, deadline=None)
def test_a_larger_token_budget_never_needs_less(a: int, b: int) -> None:
    few, many = (
        activation.activation_parts(deployment("llama-3.1-8b-instruct", max_num_seqs=64, max_num_batched_tokens=n)).peak_bytes
        for n in sorted((a, b))
    )
    assert few <= many


@given(st.floats(1, 4e9))
@settings(max_examples=60, deadline=None)
def test_the_allocator_keeps_at_most_a_mebibyte(size_bytes: float) -> None:
    assert 0 <= rounding_bytes(size_bytes) <= 1 * MIB


def test_rounding_of_qwen_72b_at_tp_2() -> None:
    # Of four matrices a layer only the down projection ends within a page: 231 MiB take 232, in each of 80 layers.
    assert allocator_rounding_bytes(load_model("qwen2.5-72b-instruct"), QUANTIZATIONS["bf16"], tp=2) == 80 * MIB
    assert held_weights_bytes(deployment("qwen2.5-72b-instruct", tp=2)) == pytest.approx(67.80 * GIB, abs=0.01 * GIB)
