"""Bytes and FLOPs of one GPU: closed forms by hand, legal layouts and refusals."""

import pytest

from planner.errors import InputError
from planner.models import (
    QUANTIZATIONS,
    ModelSpec,
    attended_window,
    kv_bytes,
    kv_read_bytes,
    legal_tp,
    load_model,
    model_from_config,
    stage_layers,
    token_flops,
    tp_refusal,
    weight_bytes,
)

BF16 = QUANTIZATIONS["bf16"]
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
}


def tiny(**changes: object) -> ModelSpec:
    return model_from_config({**TINY, **changes}, "tiny")


# Closed forms


def test_llama_weights_by_hand() -> None:
    hidden, heads, kv_heads, width, vocab, layers = 64, 8, 2, 96, 128, 5
    attention = 2 * hidden * hidden + 2 * hidden * kv_heads * (hidden // heads)
    layer = attention + 3 * hidden * width + 2 * hidden
    held = weight_bytes(tiny(), BF16)
    assert held.embedding_bytes == held.head_bytes == 2 * vocab * hidden
    assert held.dense_bytes == 2 * (layers * layer + hidden)
    assert held.expert_bytes == 0
    assert held.total == held.embedding_bytes + held.dense_bytes + held.head_bytes


def test_a_tied_head_is_read_but_stored_once() -> None:
    tied, untied = weight_bytes(tiny(tie_word_embeddings=True), BF16), weight_bytes(tiny(), BF16)
    assert tied.head_is_embedding
    assert tied.head_bytes == untied.head_bytes
    assert untied.total - tied.total == untied.head_bytes


def test_a_tied_table_is_on_both_ends_of_a_pipeline() -> None:
    held = weight_bytes(tiny(tie_word_embeddings=True, num_hidden_layers=4), BF16, pp=2)
    assert not held.head_is_embedding
    assert held.total == held.dense_bytes + held.head_bytes


def test_key_and_value_projections_are_split_no_further_than_their_heads() -> None:
    spec = tiny()
    kv_projection = 2 * 64 * 2 * 8
    whole, split = weight_bytes(spec, BF16, tp=1), weight_bytes(spec, BF16, tp=8)
    norms = 5 * 2 * 64 + 64
    matrices = whole.dense_bytes / 2 - norms - 5 * kv_projection
    assert split.dense_bytes == pytest.approx(2 * (norms + 5 * kv_projection / 2 + matrices / 8))


def test_cache_is_replicated_once_kv_heads_run_out() -> None:
    spec = tiny()
    by_tp = {tp: kv_bytes(spec, "bf16", tp=tp).full_bytes_per_token for tp in (1, 2, 4, 8)}
    assert by_tp == {1: 5 * 2 * 2 * 8 * 2, 2: 160, 4: 160, 8: 160}


def test_latent_cache_is_not_divided_by_tensor_parallelism() -> None:
    spec = load_model("deepseek-v3")
    for tp in (1, 2, 8):
        assert kv_bytes(spec, "bf16", tp=tp).full_bytes_per_token == 61 * (512 + 64) * 2
        assert kv_bytes(spec, "fp8", tp=tp).full_bytes_per_token == 35_136


def test_sparse_latent_cache_keeps_positions_in_16_bit_and_adds_index_keys() -> None:
    spec = load_model("deepseek-v3.2")
    assert kv_bytes(spec, "fp8").full_bytes_per_token == 61 * (656 + 132)
    assert kv_bytes(spec, "bf16").full_bytes_per_token == 61 * (1152 + 132)


def test_glm_layers_that_share_an_index_store_none() -> None:
    assert kv_bytes(load_model("glm-5.2"), "bf16").full_bytes_per_token == 78 * 1152 + 21 * 132
    assert kv_bytes(load_model("glm-5.1"), "bf16").full_bytes_per_token == 78 * (1152 + 132)


def test_fp16_is_another_name_for_two_bytes_and_fp32_doubles_them() -> None:
    spec = load_model("qwen3-8b")
    assert kv_bytes(spec, "fp16") == kv_bytes(spec, "bf16")
    assert kv_bytes(spec, "fp32").full_bytes_per_token == 2 * kv_bytes(spec, "bf16").full_bytes_per_token
    assert kv_bytes(spec, "fp8").full_bytes_per_token == kv_bytes(spec, "bf16").full_bytes_per_token / 2


def test_recurrent_state_by_hand() -> None:
    """Qwen3.5-397B: 45 gated delta nets of 64 heads 128 by 128 in fp32 and 12,288 channels of convolution, 3 inputs in bf16."""
    layer = 64 * 128 * 128 * 4 + (2 * 16 * 128 + 64 * 128) * 3 * 2
    held = kv_bytes(load_model("qwen3.5-397b-a17b"), "bf16", tp=4)
    assert held.state_bytes_per_sequence == 45 * layer / 4
    assert kv_bytes(load_model("qwen3.5-397b-a17b"), "fp8", tp=4).state_bytes_per_sequence == held.state_bytes_per_sequence
    assert kv_read_bytes(load_model("qwen3.5-397b-a17b"), "bf16", tp=4).state_bytes_per_sequence == held.state_bytes_per_sequence


def test_mamba_state_by_hand() -> None:
    """Nemotron-3-Nano: 23 layers of 64 heads of 64 with a state of 128 in fp32, 8 groups, kernel 4."""
    layer = 64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2
    assert kv_bytes(load_model("nvidia-nemotron-3-nano-30b-a3b-bf16"), "bf16").state_bytes_per_sequence == 23 * layer


def test_flops_of_a_token_are_twice_the_parameters_it_touches() -> None:
    spec = load_model("llama-3.1-8b-instruct")
    flops = token_flops(spec)
    assert flops.linear_flops == 2 * (8_030_261_248 - 2 * 525_336_576)
    assert flops.head_flops == 2 * 525_336_576
    assert flops.full_pair_flops == 4 * 32 * 128 * 32
    assert flops.window_pair_flops == 0
    assert flops.window_tokens is None
    assert flops.decode_full_pair_flops == flops.full_pair_flops


def test_flops_of_a_mixture_count_the_experts_visited() -> None:
    spec = load_model("mixtral-8x7b-instruct-v0.1")
    assert token_flops(spec).linear_flops == 2 * (spec.active_params - spec.head_params)


@pytest.mark.parametrize("ep", [1, 4])
def test_a_gpu_does_its_share_of_the_visited_experts(ep: int) -> None:
    spec = load_model("mixtral-8x7b-instruct-v0.1")
    whole, split = token_flops(spec).linear_flops, token_flops(spec, tp=4, ep=ep).linear_flops
    replicated = 2 * (32 * (2 * 4096 + 8 * 4096) + 4096)
    assert split == pytest.approx(replicated + (whole - replicated) / 4)


def test_two_windows_are_counted_at_the_longer() -> None:
    spec = load_model("gpt-oss-20b")
    sliding = next(group for group in spec.groups if group.kind == "sliding")
    shorter = sliding.model_copy(update={"window_tokens": 64, "at": (0, 2)})
    longer = sliding.model_copy(update={"at": sliding.at[2:]})
    rest = tuple(group for group in spec.groups if group.kind != "sliding")
    mixed = spec.model_copy(update={"groups": (*rest, shorter, longer)})
    assert kv_bytes(mixed, "bf16") == kv_bytes(spec, "bf16"), "an upper bound of what is stored"
    one_layer = 8 * (64 + 64) * 2
    assert kv_read_bytes(mixed, "bf16").window_bytes_per_token == one_layer * (10 + 2 * 64 / 128)


def test_latent_attention_costs_more_to_decode_than_to_prefill() -> None:
    flops = token_flops(load_model("deepseek-v3"), tp=8)
    assert flops.full_pair_flops == 61 * 2 * 16 * (192 + 128)
    assert flops.decode_full_pair_flops == 61 * 2 * 16 * (576 + 512)


def test_sparse_attention_reads_what_it_selects() -> None:
    spec = load_model("deepseek-v3.2")
    read, flops = kv_read_bytes(spec, "bf16"), token_flops(spec)
    assert read.full_bytes_per_token == 61 * 132
    assert read.window_bytes_per_token == 61 * 1152
    assert read.window_tokens == flops.window_tokens == attended_window(spec) == 2048
    assert flops.full_pair_flops == 61 * 2 * 64 * 128, "the index scores every pair, on every GPU"
    assert token_flops(spec, tp=8).full_pair_flops == flops.full_pair_flops


def test_compressed_attention_adds_up_for_a_long_context() -> None:
    """DeepSeek-V4-Pro at 100,000 tokens, bf16: 61 windows of 128, 31 layers of 1 entry for 128, 30 that read 1,024 entries of 4."""
    read, context = kv_read_bytes(load_model("deepseek-v4-pro"), "bf16"), 100_000
    assert read.window_tokens == 4096
    total = read.full_bytes_per_token * context + read.window_bytes_per_token * read.window_tokens
    entries = 61 * 128 + 31 * context / 128 + 30 * 1024
    assert total == pytest.approx(entries * 512 * 2 + 30 * context / 4 * 132)


def test_chunked_attention_sees_half_a_chunk_on_average() -> None:
    spec = load_model("llama-4-scout-17b-16e-instruct")
    assert kv_bytes(spec, "bf16").window_tokens == 8192
    read = kv_read_bytes(spec, "bf16")
    assert read.window_tokens == 4096
    assert read.window_bytes_per_token == kv_bytes(spec, "bf16").window_bytes_per_token


def test_experts_are_split_or_placed() -> None:
    spec = load_model("qwen3-30b-a3b")
    expert = 3 * 2048 * 768
    assert weight_bytes(spec, BF16, tp=4).expert_bytes == 2 * 48 * 128 * expert / 4
    assert weight_bytes(spec, BF16, tp=4, ep=4).expert_bytes == 2 * 48 * 32 * expert
    assert weight_bytes(spec, BF16, tp=4, ep=2).expert_bytes == 2 * 48 * 64 * expert / 2
    assert weight_bytes(spec, BF16, tp=1, ep=8).expert_bytes == 2 * 48 * 16 * expert
    assert weight_bytes(spec, BF16, tp=8, ep=24).expert_bytes == 2 * 48 * 6 * expert, "the fullest of 24 holds 6 of 128"


def test_routers_and_norms_are_whole_on_every_gpu() -> None:
    spec = load_model("mixtral-8x7b-instruct-v0.1")
    whole, split = weight_bytes(spec, BF16).dense_bytes, weight_bytes(spec, BF16, tp=8).dense_bytes
    replicated = 2 * (32 * (2 * 4096 + 8 * 4096) + 4096)
    assert split == pytest.approx(replicated + (whole - replicated) / 8)


def test_stages_share_layers_as_the_engine_does() -> None:
    assert [len(stage) for stage in stage_layers(61, 2)] == [31, 30]
    assert [len(stage) for stage in stage_layers(80, 4)] == [20, 20, 20, 20]
    assert [len(stage) for stage in stage_layers(22, 4)] == [5, 6, 6, 5]


def test_the_fullest_stage_counts_layers_by_kind() -> None:
    """DeepSeek-V3 in two stages: the second holds 30 of 58 expert layers though the first, with 31 layers, has more of them all."""
    held = weight_bytes(load_model("deepseek-v3"), BF16, pp=2)
    assert held.expert_bytes == 2 * 30 * 256 * 3 * 7168 * 2048
    assert held.embedding_bytes == 0
    assert held.head_bytes > 0


def test_quantization_leaves_out_what_it_excludes() -> None:
    spec = load_model("gpt-oss-120b")
    plain, native = weight_bytes(spec, BF16), weight_bytes(spec, spec.default_quantization)
    assert native.expert_bytes == plain.expert_bytes * 4.25 / 16
    assert native._replace(expert_bytes=0) == plain._replace(expert_bytes=0)


def test_module_bits_apply_to_their_module_alone() -> None:
    spec = load_model("deepseek-v4-flash")
    native = spec.default_quantization
    assert native.bits_of("experts") == 4.25
    assert native.bits_of("attention") == pytest.approx(8 + 32 / 128**2)
    assert native.bits_of("head") == native.bits_of("router") == 16


# Legal layouts


def test_legal_tensor_parallel_sizes() -> None:
    assert legal_tp(load_model("llama-3.1-8b-instruct"), 8) == (1, 2, 4, 8)
    assert legal_tp(load_model("qwen2.5-7b-instruct"), 8) == (1, 2, 4), "28 heads do not divide by 8"
    assert legal_tp(load_model("falcon-7b"), 8) == (1,), "71 heads"
    assert legal_tp(load_model("phi-4"), 8) == (1, 2), "4 and 8 do not go with 10 KV heads, 5 not with the vocabulary"


def test_refusals_say_why() -> None:
    assert "28 query heads" in str(tp_refusal(load_model("qwen2.5-7b-instruct"), 8))
    assert "10 KV heads" in str(tp_refusal(load_model("phi-4"), 4))
    assert "vocabulary" in str(tp_refusal(load_model("phi-4"), 5))
    assert "groups of a recurrent layer" in str(tp_refusal(load_model("nvidia-nemotron-3-nano-30b-a3b-bf16"), 16))
    assert "MLP width of 96" in str(tp_refusal(tiny(num_attention_heads=64, head_dim=8, num_key_value_heads=1), 64))
    assert tp_refusal(load_model("phi-4"), 1) is None


def test_a_shard_holds_whole_scale_blocks() -> None:
    spec = load_model("qwen3-235b-a22b")
    assert tp_refusal(spec, 8) is None
    assert "128" in str(tp_refusal(spec, 8, QUANTIZATIONS["fp8-block"])), "1,536 over 8 leaves 192"
    assert tp_refusal(spec, 8, QUANTIZATIONS["fp8-block"], ep=8) is None, "whole experts are not cut"
    assert legal_tp(spec, 8, QUANTIZATIONS["fp8-block"]) == (1, 2, 4)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tp": 3}, "parallelism.tp"),
        ({"tp": 0}, "parallelism.tp"),
        ({"tp": -1}, "parallelism.tp"),
        ({"tp": 10**12}, "parallelism.tp"),
        ({"tp": True}, "parallelism.tp"),
        ({"tp": 2.0}, "parallelism.tp"),
        ({"pp": 33}, "parallelism.pp"),
        ({"pp": 0}, "parallelism.pp"),
        ({"ep": 2}, "parallelism.ep"),
    ],
)
def test_layouts_that_cannot_be_are_refused(changes: dict[str, int], field: str) -> None:
    spec = load_model("llama-3.1-8b-instruct")
    with pytest.raises(InputError) as caught:
        weight_bytes(spec, BF16, **changes)
    assert caught.value.field == field
    with pytest.raises(InputError):
        token_flops(spec, **changes)


def test_experts_do_not_spread_beyond_their_number_or_across_the_grain() -> None:
    spec = load_model("qwen3-30b-a3b")
    with pytest.raises(InputError, match="128 routed experts"):
        weight_bytes(spec, BF16, tp=4, ep=256)
    with pytest.raises(InputError, match="multiple"):
        weight_bytes(spec, BF16, tp=4, ep=6)


@pytest.mark.parametrize("dtype", ["fp4", "", "BF16", "<b>", None])
def test_unknown_cache_dtypes_are_refused(dtype: object) -> None:
    with pytest.raises(InputError, match="kv_dtype"):
        kv_bytes(load_model("qwen3-8b"), dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, 5000, True, 2.0, "8"])
def test_gpu_counts_are_checked(count: object) -> None:
    with pytest.raises(InputError, match="gpu_count"):
        legal_tp(load_model("qwen3-8b"), count)  # type: ignore[arg-type]
