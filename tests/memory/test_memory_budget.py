"""The budget: closed form, laws, start-ups logged elsewhere, and what doesn't fit."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.memory import memory_budget, what_would_help
from planner.models import QUANTIZATIONS, load_model
from planner.units import GIB


def deployment(model_id: str, gpu_id: str = "h100-80g-sxm", version: str = "0.33.0", tp: int = 1, **changes: Any) -> Deployment:
    gpu, model = load_gpu(gpu_id), load_model(model_id)
    name = changes.pop("quantization", None)
    quantization = QUANTIZATIONS[name] if name else model.default_quantization
    kv_dtype, engine_name = changes.pop("kv_dtype", "bf16"), changes.pop("engine", "vllm")
    engine = engine_defaults(engine_name, version, gpu, tp)
    engine = engine.replace(**changes) if changes else engine
    return Deployment(gpu, model, quantization, kv_dtype, Parallelism(tp=tp), engine)


def test_the_parts_are_the_whole() -> None:
    for made in (
        deployment("llama-3.1-8b-instruct"),
        deployment("gpt-oss-20b"),
        deployment("llama-3.1-8b-instruct", engine="sglang", version="0.5.23"),
    ):
        budget = memory_budget(made)
        assert sum(part.bytes for part in budget.parts()) == pytest.approx(budget.total_bytes)
        assert all(part.bytes >= 0 for part in budget.parts())


def test_blocks_are_what_is_left() -> None:
    budget = memory_budget(deployment("llama-3.1-8b-instruct"))
    taken = budget.weights_bytes + budget.activation_bytes + budget.slots_bytes + budget.graphs_bytes + budget.non_torch_bytes
    assert budget.requested_bytes == math.ceil(budget.total_bytes * 0.92)
    assert budget.num_gpu_blocks == math.floor((budget.requested_bytes - taken) / (16 * 131072))
    assert budget.num_blocks == budget.num_gpu_blocks - 1
    assert budget.kv_bytes == budget.num_gpu_blocks * 16 * 131072


def test_graphs_are_outside_the_budget_up_to_0_19() -> None:
    old, new = (
        memory_budget(deployment("llama-3.1-8b-instruct", version=version, gpu_memory_utilization=0.9))
        for version in ("0.19.0", "0.20.0")
    )
    assert old.graphs_bytes == 0
    assert old.uncounted_graphs_bytes == new.graphs_bytes > 0
    assert old.num_gpu_blocks > new.num_gpu_blocks


@pytest.mark.parametrize(
    ("arguments", "logged", "tolerance"),
    [
        # vllm/vllm-openai:v0.31.0 on an A100 80GB with every default; published start-up log of 2026-10-06.
        ({"model_id": "llama-3.1-8b-instruct", "gpu_id": "a100-80g-sxm", "version": "0.31.0"}, 460_496, 0.01),
        # casys-kaist/LLMServingSim, commit 0acc21b, bench/examples/RTXPRO6000/Llama-3.1-8B/vllm/meta.json (MIT).
        (
            {
                "model_id": "llama-3.1-8b-instruct",
                "gpu_id": "rtx-pro-6000-bw-server",
                "version": "0.28.0",
                "max_num_seqs": 128,
                "max_num_batched_tokens": 2048,
            },
            574_608,
            0.02,
        ),
        # The same, commit 0d3de68, Qwen3-32B: without custom all-reduce the libraries take less than on H100.
        (
            {
                "model_id": "qwen3-32b",
                "gpu_id": "rtx-pro-6000-bw-server",
                "version": "0.28.0",
                "tp": 2,
                "max_num_seqs": 128,
                "max_num_batched_tokens": 2048,
            },
            462_144,
            0.06,
        ),
        # vllm/vllm-openai:v0.19.1 on an A10G, Qwen2.5-14B-Instruct-AWQ, --max-model-len 4096; published start-up log of 2026-04-19.
        (
            {
                "model_id": "qwen2.5-14b-instruct",
                "gpu_id": "a10g",
                "version": "0.19.1",
                "quantization": "int4-awq",
                "max_model_len": 4096,
            },
            49_696,
            0.07,
        ),
    ],
    ids=["a100", "rtx-pro-6000", "rtx-pro-6000-tp2", "a10g"],
)
def test_start_ups_on_other_gpus_and_releases(arguments: dict[str, Any], logged: int, tolerance: float) -> None:
    assert memory_budget(deployment(**arguments)).kv_tokens == pytest.approx(logged, rel=tolerance)


@given(st.floats(0.5, 1.0), st.floats(0.5, 1.0))
@settings(max_examples=30, deadline=None)
def test_a_larger_share_never_gives_fewer_blocks(a: float, b: float) -> None:
    less, more = (memory_budget(deployment("llama-3.1-8b-instruct", gpu_memory_utilization=share)) for share in sorted((a, b)))
    assert less.num_blocks <= more.num_blocks


@given(st.integers(1024, 65536), st.integers(1024, 65536))
@settings(max_examples=30, deadline=None)
def test_a_larger_token_budget_never_gives_more_blocks(a: int, b: int) -> None:
    small, large = (memory_budget(deployment("llama-3.1-8b-instruct", max_num_batched_tokens=n)) for n in sorted((a, b)))
    assert small.num_blocks >= large.num_blocks


@pytest.mark.parametrize("model_id", ["llama-3.1-8b-instruct", "qwen2.5-7b-instruct", "gpt-oss-20b", "qwen3-30b-a3b"])
def test_more_gpus_never_hold_fewer_tokens(model_id: str) -> None:
    tokens = [memory_budget(deployment(model_id, tp=tp)).kv_tokens or 0 for tp in (1, 2, 4)]
    assert tokens == sorted(tokens)


def test_a_logged_size_replaces_the_computed_one() -> None:
    made = deployment("llama-3.1-8b-instruct", "rtx-4090")
    budget = memory_budget(made, logged_kv_tokens=41_408)
    assert (budget.kv_tokens, budget.num_gpu_blocks, budget.num_blocks) == (41_408, 2588, 2587)
    assert dict(budget.sources)["kv cache"].kind == "measured"


@pytest.mark.parametrize("version", ["0.19.0", "0.33.0"])
@pytest.mark.parametrize("model_id", ["llama-3.1-8b-instruct", "gemma-3-12b-it", "gpt-oss-20b", "qwen3-next-80b-a3b-instruct"])
def test_a_logged_size_leads_back_to_its_blocks(model_id: str, version: str) -> None:
    made = deployment(model_id, "b200-sxm", version)
    computed = memory_budget(made)
    assert computed.kv_tokens is not None
    again = memory_budget(made, logged_kv_tokens=computed.kv_tokens)
    assert again.num_gpu_blocks == pytest.approx(computed.num_gpu_blocks, abs=len(computed.layout.groups))


@pytest.mark.parametrize("tokens", [0, -5, True])
def test_a_logged_size_below_one_is_refused(tokens: int) -> None:
    with pytest.raises(InputError, match="logged_kv_tokens"):
        memory_budget(deployment("llama-3.1-8b-instruct"), logged_kv_tokens=tokens)


def test_weights_that_do_not_fit_are_an_answer() -> None:
    made = deployment("llama-3.1-70b-instruct")
    budget = memory_budget(made)
    assert not budget.fits
    assert budget.shortfall is not None
    assert budget.shortfall.kind == "weights"
    assert budget.shortfall.missing_bytes == pytest.approx(63.07 * GIB, rel=0.01)
    assert (budget.kv_tokens, budget.num_blocks) == (None, 0)
    helps = {remedy.kind: remedy for remedy in what_would_help(made)}
    assert helps["tensor parallelism"].value == 2
    assert helps["tensor parallelism"].fits
    assert not helps["max_num_seqs"].fits


def test_a_sequence_that_does_not_fit_says_how_long_one_may_be() -> None:
    made = deployment("llama-3.1-8b-instruct", "l4", max_model_len=131072)
    budget = memory_budget(made)
    assert budget.shortfall is not None
    assert budget.shortfall.kind == "one sequence"
    helps = {remedy.kind: remedy for remedy in what_would_help(made)}
    longest = helps["max_model_len"].value
    assert isinstance(longest, int)
    assert memory_budget(replace(made, engine=made.engine.replace(max_model_len=longest))).fits
    assert not memory_budget(replace(made, engine=made.engine.replace(max_model_len=longest + 16))).fits


def test_what_fits_needs_no_help() -> None:
    assert what_would_help(deployment("llama-3.1-8b-instruct")) == ()


def test_sequences_that_fit_follow_the_layout() -> None:
    plain, windowed = memory_budget(deployment("llama-3.1-8b-instruct")), memory_budget(deployment("gemma-3-12b-it"))
    assert plain.sequences_that_fit(1600) == plain.num_blocks / 100
    assert plain.one_group_blocks(1600) == plain.num_blocks
    # One full group of 8 layers holds everything, five of sliding layers at most 65 blocks each.
    assert windowed.blocks_per_sequence(32768) == 2048 + 5 * 65
    assert windowed.one_group_blocks(32768) == windowed.num_blocks * 2048 // (2048 + 5 * 65)
    with pytest.raises(InputError):
        plain.sequences_that_fit(0)
    stateless = replace(plain, layout=replace(plain.layout, groups=()))
    assert stateless.sequences_that_fit(1600) is None


def test_a_fixed_cache_size_ignores_the_share() -> None:
    budget = memory_budget(deployment("llama-3.1-8b-instruct", kv_cache_memory_bytes=8.0 * GIB))
    assert budget.num_gpu_blocks == 8 * 1024 // 2


def test_tensorrt_llm_takes_its_share_of_what_is_free() -> None:
    budget = memory_budget(deployment("llama-3.1-8b-instruct", engine="tensorrt-llm", version="1.2.0"))
    free = budget.total_bytes - budget.weights_bytes - budget.non_torch_bytes - budget.activation_bytes
    assert budget.kv_bytes == pytest.approx(0.9 * free, rel=1e-3)
    assert budget.block_size == 32
