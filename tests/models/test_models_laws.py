"""Bytes and FLOPs of one GPU: laws that hold for every model and layout."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.models import (
    QUANTIZATIONS,
    ModelSpec,
    kv_bytes,
    kv_read_bytes,
    legal_tp,
    list_models,
    model_from_config,
    token_flops,
    weight_bytes,
)

BF16 = QUANTIZATIONS["bf16"]
LAWS = settings(max_examples=60, deadline=None)


def models() -> st.SearchStrategy[ModelSpec]:
    return st.sampled_from(list_models())


@st.composite
def layouts(draw: st.DrawFn) -> tuple[ModelSpec, int]:
    spec = draw(models())
    return spec, draw(st.sampled_from(legal_tp(spec, 16)))


@given(layouts(), st.sampled_from(sorted(QUANTIZATIONS)))
@LAWS
def test_no_weight_is_lost_by_splitting(layout: tuple[ModelSpec, int], quantization: str) -> None:
    spec, tp = layout
    whole = weight_bytes(spec, QUANTIZATIONS[quantization])
    part = weight_bytes(spec, QUANTIZATIONS[quantization], tp=tp)
    for name in ("embedding_bytes", "dense_bytes", "expert_bytes", "head_bytes", "total"):
        assert getattr(part, name) * tp >= getattr(whole, name) * (1 - 1e-12)
        assert getattr(part, name) <= getattr(whole, name)


@given(layouts(), st.sampled_from(["bf16", "fp8", "fp32"]))
@LAWS
def test_no_cache_is_lost_by_splitting(layout: tuple[ModelSpec, int], dtype: str) -> None:
    spec, tp = layout
    whole, part = kv_bytes(spec, dtype), kv_bytes(spec, dtype, tp=tp)
    assert part.full_bytes_per_token * tp >= whole.full_bytes_per_token
    assert part.window_bytes_per_token * tp >= whole.window_bytes_per_token
    assert part.state_bytes_per_sequence * tp == pytest.approx(whole.state_bytes_per_sequence)
    assert part.full_bytes_per_token <= whole.full_bytes_per_token


@given(models(), st.integers(1, 8))
@LAWS
def test_the_fullest_stage_holds_at_least_its_share(spec: ModelSpec, pp: int) -> None:
    whole, stage = weight_bytes(spec, BF16), weight_bytes(spec, BF16, pp=pp)
    assert whole.total <= stage.total * pp + 1
    assert stage.total <= whole.total
    assert kv_bytes(spec, "bf16", pp=pp).full_bytes_per_token * pp >= kv_bytes(spec, "bf16").full_bytes_per_token
    assert token_flops(spec, pp=pp).linear_flops * pp >= token_flops(spec).linear_flops


@given(layouts())
@LAWS
def test_work_splits_no_better_than_evenly(layout: tuple[ModelSpec, int]) -> None:
    spec, tp = layout
    whole, part = token_flops(spec), token_flops(spec, tp=tp)
    assert whole.linear_flops / tp <= part.linear_flops * (1 + 1e-12)
    assert part.linear_flops <= whole.linear_flops
    assert part.head_flops * tp == pytest.approx(whole.head_flops)
    assert part.full_pair_flops * tp >= whole.full_pair_flops * (1 - 1e-12)


@given(models())
@LAWS
def test_flops_equal_two_for_each_active_parameter(spec: ModelSpec) -> None:
    flops = token_flops(spec)
    assert flops.linear_flops + flops.head_flops == 2 * (spec.active_params - spec.position_params)
    assert flops.decode_full_pair_flops >= flops.full_pair_flops


@given(models())
@LAWS
def test_bf16_weights_are_two_bytes_for_each_parameter(spec: ModelSpec) -> None:
    assert weight_bytes(spec, BF16).total == 2 * spec.total_params


@given(models(), st.sampled_from(["fp8", "fp8-block", "int8", "int4-awq", "int4-gptq", "mxfp4", "nvfp4"]))
@LAWS
def test_quantized_weights_lie_between_their_bits_and_sixteen(spec: ModelSpec, name: str) -> None:
    quantization = QUANTIZATIONS[name]
    total = weight_bytes(spec, quantization).total
    assert quantization.weight_bits / 8 * spec.total_params < total < 2 * spec.total_params


@given(models(), st.sampled_from(["bf16", "fp8"]), st.integers(1, 200_000))
@LAWS
def test_a_row_never_reads_more_than_is_stored(spec: ModelSpec, dtype: str, context: int) -> None:
    read, held = kv_read_bytes(spec, dtype), kv_bytes(spec, dtype)
    read_bytes = read.full_bytes_per_token * context + read.window_bytes_per_token * min(context, read.window_tokens or 0)
    held_bytes = held.full_bytes_per_token * context + held.window_bytes_per_token * min(context, held.window_tokens or 0)
    assert read_bytes <= held_bytes * (1 + 1e-9)


@st.composite
def llama_configs(draw: st.DrawFn) -> dict[str, object]:
    kv_heads, group, head_dim = draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.sampled_from([32, 64, 128]))
    return {
        "model_type": "llama",
        "hidden_size": draw(st.integers(1, 64)) * 64,
        "num_hidden_layers": draw(st.integers(1, 100)),
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": draw(st.integers(1, 30_000)),
        "vocab_size": draw(st.integers(1, 300_000)),
        "tie_word_embeddings": draw(st.booleans()),
    }


@given(llama_configs())
@LAWS
def test_any_llama_has_the_closed_form_count(config: dict[str, int]) -> None:
    spec = model_from_config(config, "any")
    hidden, width = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    layer = 2 * hidden * width + 2 * hidden * kv_width + 3 * hidden * config["intermediate_size"] + 2 * hidden
    tables = (1 if config["tie_word_embeddings"] else 2) * config["vocab_size"] * hidden
    assert spec.total_params == config["num_hidden_layers"] * layer + hidden + tables
    assert kv_bytes(spec, "bf16").full_bytes_per_token == 4 * config["num_hidden_layers"] * kv_width
