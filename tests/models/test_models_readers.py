"""What readers must not fall for: each family's traps, nested configs, aliases and omitted keys."""

import json
from functools import cache
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.models import FAMILIES, ModelSpec, kv_bytes, load_model, model_from_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


@cache
def shipped() -> dict[str, dict[str, object]]:
    return json.loads((Path(__file__).parent / "configs.json").read_text())


def config_of(model_id: str, **changes: object) -> dict[str, object]:
    config = {**shipped()[model_id], **changes}
    return {key: value for key, value in config.items() if value is not ...}


def read(config: dict[str, object]) -> ModelSpec:
    return model_from_config(config, "model")


def test_text_bytes_and_mapping_read_the_same() -> None:
    text = json.dumps(LLAMA)
    assert read(LLAMA) == model_from_config(text, "model") == model_from_config(text.encode(), "model")


def test_llama_from_a_config_is_the_shipped_one() -> None:
    spec = read(LLAMA)
    assert spec.groups == load_model("llama-3.1-8b-instruct").groups
    assert spec.total_params == 8_030_261_248
    assert spec.id == "model"


# Tied embeddings: what an omitted key means depends on the family


@pytest.mark.parametrize(
    "model_id", ["gemma-2-2b", "c4ai-command-r-v01", "starcoder2-3b", "falcon-7b", "opt-13b", "bloom", "smollm3-3b"]
)
def test_omitted_tie_key_means_tied(model_id: str) -> None:
    config = next(config for name, config in shipped().items() if config["model_type"] == load_model(model_id).family)
    assert read({key: value for key, value in config.items() if key != "tie_word_embeddings"}).tied_embeddings


@pytest.mark.parametrize("model_id", ["mixtral-8x22b-instruct-v0.1", "deepseek-v3.2", "qwen3-0.6b", "qwen2.5-0.5b-instruct"])
def test_omitted_tie_key_means_untied(model_id: str) -> None:
    assert not read(config_of(model_id, tie_word_embeddings=...)).tied_embeddings


def test_outer_tie_key_holds_for_a_nested_text_config() -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "model_type"} | {"model_type": "llama"}
    assert read({"model_type": "llava", "tie_word_embeddings": True, "text_config": inner}).tied_embeddings
    assert not read(
        {"model_type": "llava", "tie_word_embeddings": True, "text_config": inner | {"tie_word_embeddings": False}}
    ).tied_embeddings


# Heads


def test_falcon_7b_is_multi_query_whatever_it_says() -> None:
    spec = read(config_of("falcon-7b"))
    assert shipped()["falcon-7b"]["num_attention_heads"] == 71
    assert spec.groups[0].kv_heads == 1
    assert read(config_of("falcon-7b", num_kv_heads=71)).groups == spec.groups
    assert read(config_of("falcon-40b")).groups[0].kv_heads == 8


def test_head_width_need_not_be_hidden_over_heads() -> None:
    spec = read({**LLAMA, "model_type": "mistral", "hidden_size": 5120, "head_dim": 128})
    assert spec.groups[0].qk_head_dim == 128
    assert load_model("gemma-2-27b").groups[0].qk_head_dim == 128, "4608 / 32 would be 144"


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InputError, match="num_attention_heads by num_key_value_heads"):
        read({**LLAMA, "num_key_value_heads": 5})
    with pytest.raises(InputError, match="hidden_size by num_attention_heads"):
        read({**LLAMA, "hidden_size": 4097})
    with pytest.raises(InputError, match="num_key_value_heads"):
        read({**LLAMA, "num_key_value_heads": 64})


def test_omitted_kv_heads_are_as_many_as_query_heads() -> None:
    assert read({key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}).groups[0].kv_heads == 32


# Biases and norms


def test_llama_biases_follow_their_keys() -> None:
    plain = read(LLAMA).total_params
    assert read({**LLAMA, "attention_bias": True}).total_params == plain + 32 * (4096 + 2 * 1024 + 4096)
    assert read({**LLAMA, "mlp_bias": True}).total_params == plain + 32 * (2 * 14336 + 4096)


def test_qwen_biases_and_norms() -> None:
    plain = read(LLAMA).total_params
    assert read({**LLAMA, "model_type": "qwen2"}).total_params == plain + 32 * (4096 + 2 * 1024)
    assert read({**LLAMA, "model_type": "qwen3", "head_dim": 128}).total_params == plain + 32 * 2 * 128


def test_families_that_share_llamas_shape() -> None:
    for family in ("mistral", "granite", "internlm2", "phi3"):
        assert read({**LLAMA, "model_type": family}).groups == read(LLAMA).groups
    olmo = {**LLAMA, "model_type": "olmo2", "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 100352}
    norms = 32 * 2 * 4096
    assert read(olmo).total_params == read({**olmo, "model_type": "llama"}).total_params + norms
    assert read(olmo).total_params == pytest.approx(7.30e9, rel=0.001), "OLMo 2 7B, arXiv 2501.00656, table 1"


# Windows


def window_layers(spec: ModelSpec) -> tuple[int, ...]:
    return tuple(sorted(number for group in spec.groups if group.window_tokens for number in group.at))


def test_windows_by_list_by_pattern_and_by_habit() -> None:
    gemma = config_of("gemma-3-12b-it")
    by_pattern = window_layers(read(gemma))
    assert by_pattern == tuple(number for number in range(48) if (number + 1) % 6)
    types = ["full_attention" if number == 0 else "sliding_attention" for number in range(48)]
    assert window_layers(read({**gemma, "layer_types": types})) == tuple(range(1, 48))
    assert window_layers(read({**gemma, "sliding_window_pattern": 2})) == tuple(range(0, 48, 2))
    by_habit = read({key: value for key, value in gemma.items() if key != "sliding_window_pattern"})
    assert window_layers(by_habit) == by_pattern
    assert window_layers(load_model("gemma-2-9b")) == tuple(range(0, 42, 2)), "even layers slide"
    assert window_layers(load_model("gpt-oss-20b")) == tuple(range(0, 24, 2))
    assert window_layers(load_model("c4ai-command-a-03-2025")) == tuple(number for number in range(64) if (number + 1) % 4)


def test_a_window_as_long_as_the_context_is_none() -> None:
    assert not window_layers(read({**LLAMA, "model_type": "mistral", "sliding_window": 131072}))
    assert window_layers(read({**LLAMA, "model_type": "mistral", "sliding_window": 4096})) == tuple(range(32))
    assert not window_layers(read({**LLAMA, "model_type": "mistral", "sliding_window": None}))


def test_qwen_windows_need_their_switch() -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28}
    assert not window_layers(read(qwen))
    assert window_layers(read({**qwen, "use_sliding_window": True})) == (28, 29, 30, 31)


def test_sliding_layers_without_a_window_are_refused() -> None:
    types = ["sliding_attention"] * 32
    with pytest.raises(InputError, match="sliding_window"):
        read({**LLAMA, "layer_types": types})


def test_llama4_chunks_three_layers_of_four_and_interleaves_experts() -> None:
    maverick = read(config_of("llama-4-maverick-17b-128e-instruct"))
    chunked = next(group for group in maverick.groups if group.kind == "chunked")
    assert chunked.at == tuple(number for number in range(48) if (number + 1) % 4)
    experts = next(group for group in maverick.groups if group.kind == "moe")
    assert experts.at == tuple(range(1, 48, 2))


def test_gemma4_full_layers_have_their_own_heads_and_share_keys_with_values() -> None:
    spec = read(config_of("gemma-4-31b-it"))
    full, sliding = (next(group for group in spec.groups if group.kind == kind) for kind in ("full", "sliding"))
    assert (full.qk_head_dim, full.kv_heads, sliding.qk_head_dim, sliding.kv_heads) == (512, 4, 256, 16)
    assert full.kv_params == 5376 * 4 * 512, "one projection serves both"
    assert full.kv_values_per_token == 2 * 4 * 512, "both are cached"


def test_gemma4_parts_that_are_not_read_are_refused() -> None:
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        with pytest.raises(InputError, match=key):
            read(config_of("gemma-4-31b-it", **{key: 8}))


# Experts


def test_expert_counts_go_by_many_names() -> None:
    mixtral = config_of("mixtral-8x22b-instruct-v0.1", num_local_experts=..., num_experts_per_tok=...)
    expected = read(config_of("mixtral-8x22b-instruct-v0.1")).groups
    for experts, top_k in (
        ("num_experts", "num_experts_per_token"),
        ("n_routed_experts", "top_k_experts"),
        ("moe_num_experts", "moe_top_k"),
    ):
        assert read({**mixtral, experts: 8, top_k: 2}).groups == expected


def test_dense_layers_among_experts() -> None:
    spec = load_model("deepseek-v3")
    dense = next(group for group in spec.groups if group.kind == "dense_mlp")
    assert dense.at == (0, 1, 2)
    qwen = config_of("qwen3-235b-a22b", mlp_only_layers=[0, 1], intermediate_size=12288)
    assert next(group for group in read(qwen).groups if group.kind == "dense_mlp").at == (0, 1)
    stepped = config_of("qwen3-235b-a22b", decoder_sparse_step=2, intermediate_size=12288)
    assert next(group for group in read(stepped).groups if group.kind == "moe").at == tuple(range(1, 94, 2))


def test_a_top_k_beyond_the_experts_is_refused() -> None:
    with pytest.raises(InputError, match="num_experts_per_tok"):
        read(config_of("mixtral-8x22b-instruct-v0.1", num_experts_per_tok=9))


def test_experts_in_a_latent_width() -> None:
    spec = load_model("kimi-k3")
    experts = next(group for group in spec.groups if group.kind == "moe")
    assert experts.expert_params == 3 * 3584 * 3072
    assert experts.unsharded_params == 2 * 7168 * 3584


def test_mimo_heads_differ_by_layer_and_side() -> None:
    spec = load_model("mimo-v2-flash")
    full, sliding = (next(group for group in spec.groups if group.kind == kind) for kind in ("full", "sliding"))
    assert (full.kv_heads, sliding.kv_heads) == (4, 8)
    assert full.kv_values_per_token == 4 * (192 + 128)


def test_step_sliding_layers_may_have_more_heads() -> None:
    plain = read(config_of("step-3.7-flash"))
    wide = read(config_of("step-3.7-flash", attention_other_setting={"num_attention_heads": 96}))
    assert wide.total_params - plain.total_params == 33 * 2 * 4096 * 32 * 128


# Removed, recurrent and block-wise layers


def test_nemotron_nas_layers_without_attention_store_nothing() -> None:
    spec = load_model("llama-3_3-nemotron-super-49b-v1")
    assert sum(group.count for group in spec.groups if group.kind == "none") == 31
    assert kv_bytes(spec, "bf16").full_bytes_per_token == 49 * 2 * 8 * 128 * 2


def test_nemotron_h_pattern_and_list_are_one() -> None:
    names = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    config = config_of("nemotron-h-56b-base-8k")
    listed = [names[letter] for letter in str(config["hybrid_override_pattern"])]
    as_list = {key: value for key, value in config.items() if key != "hybrid_override_pattern"} | {"layers_block_type": listed}
    assert read(as_list).groups == read(config).groups
    assert read(config).layers == 118
    with pytest.raises(InputError, match="hybrid_override_pattern"):
        read({**config, "hybrid_override_pattern": "MX"})


def test_qwen3_5_interval_and_list_are_one() -> None:
    config = config_of("qwen3.5-4b", layer_types=...)
    listed = ["full_attention" if (number + 1) % 4 == 0 else "linear_attention" for number in range(32)]
    assert read({**config, "layer_types": listed}).groups == read(config).groups


def test_state_dtype_follows_the_config() -> None:
    assert next(group for group in read(config_of("qwen3.5-4b")).groups if group.kind == "linear").state_dtype == "fp32"
    plain = read(config_of("qwen3.5-4b", mamba_ssm_dtype=...))
    assert next(group for group in plain.groups if group.kind == "linear").state_dtype == "bf16"


def test_opt_keeps_a_position_table_with_two_rows_more() -> None:
    spec = load_model("opt-13b")
    assert spec.position_params == (2048 + 2) * 5120


# Nested and multimodal files


def test_a_text_config_is_read_for_its_own_family() -> None:
    inner = config_of("gemma-3-12b-it")
    outer = {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 1152}}
    assert read(outer).groups == load_model("gemma-3-12b-it").groups
    assert read(outer).family == "gemma3_text"


def test_a_text_config_without_model_type_takes_the_outer_one() -> None:
    inner = config_of("gemma-3-12b-it", model_type=...)
    assert read({"model_type": "gemma3", "text_config": inner}).groups == load_model("gemma-3-12b-it").groups


def test_keys_left_out_of_a_text_config_are_the_familys_own_and_said_so() -> None:
    """Gemma-3-4B's own file leaves heads, head width and vocabulary out."""
    sparse = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    spec = read({"model_type": "gemma3", "text_config": {**sparse, "model_type": "gemma3_text"}})
    assert spec.groups == load_model("gemma-3-4b-it").groups
    assert spec.total_params == load_model("gemma-3-4b-it").total_params
    assert "head_dim" in str(spec.sources["*"].note)
    with pytest.raises(InputError, match="head_dim"):
        read({**sparse, "model_type": "gemma3_text"})


def test_dtype_is_read_from_either_level_and_an_absent_one_is_said_to_be_assumed() -> None:
    assert read({**LLAMA, "torch_dtype": "float16"}).weight_dtype == "fp16"
    assert read({**LLAMA, "dtype": "float32"}).weight_dtype == "fp32"
    nested = {"model_type": "llava", "torch_dtype": "float16", "text_config": LLAMA}
    assert read(nested).weight_dtype == "fp16"
    assert "bf16 assumed" in str(read(LLAMA).sources["*"].note)
    with pytest.raises(InputError, match="torch_dtype"):
        read({**LLAMA, "torch_dtype": "int3"})


def test_cohere_states_its_context_twice() -> None:
    assert load_model("c4ai-command-r-plus").max_positions == 131072


# What is not known


def test_unknown_families_are_never_read_as_llama() -> None:
    with pytest.raises(InputError, match="nothing is guessed") as caught:
        read({**LLAMA, "model_type": "llama9"})
    assert "nearest: llama" in caught.value.bound
    assert "hidden_size" in caught.value.remedy


def test_an_unknown_family_is_told_what_it_lacks() -> None:
    with pytest.raises(InputError) as caught:
        read({"model_type": "rwkv", "hidden_size": 4096})
    assert "lacks num_hidden_layers, num_attention_heads, vocab_size, intermediate_size" in caught.value.bound


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_names_all_the_keys_it_lacks(family: str) -> None:
    with pytest.raises(InputError, match="lacks") as caught:
        read({"model_type": family, "irrelevant": 1})
    for need in FAMILIES[family].needs:
        assert need in caught.value.bound


@pytest.mark.parametrize("model_id", sorted(shipped()))
def test_no_needed_key_can_be_left_out(model_id: str) -> None:
    config = shipped()[model_id]
    for need in FAMILIES[str(config["model_type"])].needs:
        with pytest.raises(InputError, match=need.replace("|", r"\|")):
            read({key: value for key, value in config.items() if key not in need.split("|")})
