"""The pool's layout: closed forms of vLLM's grouping rule, and laws of what a sequence takes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.memory import CacheGroup, KvLayout, kv_layout
from planner.models import load_model


def layout(model_id: str, version: str = "0.33.0", tp: int = 1, gpu_id: str = "h100-80g-sxm", **changes: Any) -> KvLayout:
    gpu, model = load_gpu(gpu_id), load_model(model_id)
    kv_dtype = changes.pop("kv_dtype", "bf16")
    parallelism = Parallelism(tp=tp, pp=changes.pop("pp", 1))
    engine = engine_defaults("vllm", version, gpu, tp)
    engine = engine.replace(**changes) if changes else engine
    return kv_layout(Deployment(gpu, model, model.default_quantization, kv_dtype, parallelism, engine))


def test_equal_layers_make_one_group() -> None:
    held = layout("llama-3.1-8b-instruct")
    assert held.uniform
    assert held.bytes_per_block == 16 * 131072
    assert held.blocks_for(8192) == 512


def test_grouped_heads_are_replicated_beyond_the_kv_heads() -> None:
    assert layout("llama-3.1-70b-instruct", tp=8).bytes_per_block == layout("llama-3.1-70b-instruct", tp=1).bytes_per_block / 8
    assert layout("qwen2.5-7b-instruct", tp=4).bytes_per_block == layout("qwen2.5-7b-instruct", tp=1).bytes_per_block / 4


@pytest.mark.parametrize(
    ("model_id", "groups", "layers", "padding"),
    [
        ("gemma-2-27b", 2, 23, 0),
        ("gemma-3-12b-it", 6, 8, 0),
        ("gemma-3-4b-it", 7, 5, 1),
        ("llama-4-scout-17b-16e-instruct", 4, 12, 0),
        ("gpt-oss-20b", 2, 12, 0),
    ],
)
def test_windows_and_full_layers_share_the_pool_in_groups_of_equal_size(
    model_id: str, groups: int, layers: int, padding: int
) -> None:
    held = layout(model_id, "0.19.0")
    assert (len(held.groups), held.groups[0].layers, held.padding_layers) == (groups, layers, padding)


def test_windows_keep_every_step_in_flight_from_0_26_on() -> None:
    # gpt-oss: window 128; blocks of one windowed group for a long sequence at budgets 8192 and 2048 (two steps in flight).
    full = -(-131072 // 16)
    assert layout("gpt-oss-20b", "0.33.0").blocks_for(131072) == full + 1033
    assert layout("gpt-oss-20b", "0.33.0", max_num_batched_tokens=2048).blocks_for(131072) == full + 265
    assert layout("gpt-oss-20b", "0.25.0").blocks_for(131072) == full + 521
    assert layout("gpt-oss-20b").blocks_for(131072, in_flight_tokens=0) == full + 9


def test_state_enlarges_the_blocks_of_attention() -> None:
    # Qwen3-Next at tp 4: 1 KiB a token and layer, a state of 268 KiB, so 272 tokens a block.
    held = layout("qwen3-next-80b-a3b-instruct", tp=4)
    assert held.block_tokens == 272
    assert {group.kind for group in held.groups} == {"full", "state"}
    assert held.blocks_for(1) == held.blocks_for(272)


@pytest.mark.parametrize(
    ("gpu_id", "kv_dtype", "model_id", "tokens"),
    [
        ("h200-141g-sxm", "bf16", "deepseek-v3", 16),
        ("h200-141g-sxm", "fp8", "deepseek-v3", 64),
        ("b200-sxm", "bf16", "deepseek-v3", 32),
        ("h200-141g-sxm", "bf16", "deepseek-v3.2", 64),
    ],
)
def test_latent_attention_sets_the_block_by_backend(gpu_id: str, kv_dtype: str, model_id: str, tokens: int) -> None:
    held = layout(model_id, tp=8, gpu_id=gpu_id, kv_dtype=kv_dtype)
    assert (held.block_tokens, len(held.groups)) == (tokens, 1)


def test_stages_divide_the_layers() -> None:
    assert layout("llama-3.1-8b-instruct", pp=2).bytes_per_block == 16 * 131072 / 2


@given(st.integers(1, 200_000), st.integers(1, 200_000), st.integers(0, 16384))
@settings(max_examples=60, deadline=None)
def test_a_longer_sequence_never_takes_fewer_blocks(a: int, b: int, in_flight: int) -> None:
    for group in (
        CacheGroup("full", 8, 16),
        CacheGroup("window", 8, 16, 1024),
        CacheGroup("chunk", 8, 16, 8192),
        CacheGroup("state", 8, 272, None, 2),
    ):
        assert group.blocks_for(min(a, b), in_flight) <= group.blocks_for(max(a, b), in_flight)
        assert group.blocks_for(a, 0) <= group.blocks_for(a, in_flight)


@given(st.integers(0, 20_000))
@settings(max_examples=40, deadline=None)
def test_the_longest_sequence_fits_and_the_next_does_not(blocks: int) -> None:
    held = layout("gemma-3-12b-it")
    longest = held.longest_tokens(blocks, at_most=131072)
    assert longest == 0 or held.blocks_for(longest) <= blocks
    assert longest == 131072 or held.blocks_for(longest + 1) > blocks
