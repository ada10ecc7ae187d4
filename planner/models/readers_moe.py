"""Readers of mixture-of-experts families with grouped-query attention."""

from collections.abc import Collection

from planner.errors import InputError
from planner.models.config_fields import Fields
from planner.models.feed_forward import Experts, Mlp
from planner.models.layout import (
    Layer,
    Layout,
    Sizes,
    bias_values,
    effective_window,
    layer_types,
    max_positions,
    read_sizes,
    windows,
)
from planner.models.mixers import GroupedAttention, SparseIndex
from planner.models.readers_dense import qk_norm_values
from planner.models.spec import LayerShape

_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOP_K_KEYS = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token", "moe_top_k")
_MAX_EXPERTS = 10**5


def expert_counts(fields: Fields) -> tuple[int, int]:
    """Return routed experts and how many of them a token visits."""
    experts = fields.count(*_EXPERT_KEYS, most=_MAX_EXPERTS)
    return experts, fields.count(*_TOP_K_KEYS, most=experts)


def moe_layers(fields: Fields, layers: int) -> list[bool]:
    """Return for each layer whether it routes to experts.

    mlp_layer_types or a list moe_layer_freq decides; else layers before first_k_dense_replace are dense and of the others every
    moe_layer_freq-th routes.
    """
    listed = fields.per_layer("mlp_layer_types", layers)
    if listed is not None:
        for entry in listed:
            if entry not in ("sparse", "moe", "dense"):
                raise InputError("config.mlp_layer_types", entry, "must be sparse or dense", "Check the list in config.json")
        return [entry != "dense" for entry in listed]
    if isinstance(fields.get("moe_layer_freq"), list):
        return [entry == 1 for entry in fields.per_layer("moe_layer_freq", layers) or ()]
    first = fields.optional("first_k_dense_replace", least=0) or 0
    every = fields.optional("moe_layer_freq") or 1
    return [number >= first and number % every == 0 for number in range(layers)]


def _layout(fields: Fields, sizes: Sizes, layers: list[Layer], other_params: int | None = None) -> Layout:
    outside = sizes.hidden if other_params is None else other_params
    return Layout(sizes.hidden, fields.count("vocab_size"), layers, outside, max_positions=max_positions(fields))


def _routed(fields: Fields, sizes: Sizes, intermediate: int, *, shared_params: int = 0, vectors: int = 0) -> LayerShape:
    experts, top_k = expert_counts(fields)
    return Experts(sizes.hidden, intermediate, experts, top_k, shared_params=shared_params, vectors=sizes.hidden + vectors).shape()


def read_mixtral(fields: Fields) -> Layout:
    """Mixtral: every layer routes; experts have three matrices."""
    sizes = read_sizes(fields)
    moe = _routed(fields, sizes, fields.count("intermediate_size"))
    spans = windows(fields, sizes.layers)
    return _layout(fields, sizes, [(sizes.attention(span, sizes.hidden).shape(), moe) for span in spans])


def _qwen_is_moe(fields: Fields, layers: int) -> list[bool]:
    dense = set(fields.numbers("mlp_only_layers", layers)) if fields.get("mlp_only_layers") is not None else set()
    step = fields.optional("decoder_sparse_step") or 1
    return [number not in dense and (number + 1) % step == 0 for number in range(layers)]


def qwen_feed_forward(fields: Fields, sizes: Sizes) -> list[LayerShape]:
    """Return the feed-forward part of each layer of a Qwen mixture; a shared expert has a gate of one value per hidden unit."""
    shared = fields.optional("shared_expert_intermediate_size", least=0) or 0
    gate = sizes.hidden if shared else 0
    intermediate = fields.count("moe_intermediate_size")
    moe = _routed(fields, sizes, intermediate, shared_params=3 * sizes.hidden * shared, vectors=gate)
    routes = _qwen_is_moe(fields, sizes.layers)
    if all(routes):
        return [moe] * sizes.layers
    dense = Mlp(sizes.hidden, fields.count("intermediate_size"), vectors=sizes.hidden).shape()
    return [moe if routed else dense for routed in routes]


def read_qwen2_moe(fields: Fields) -> Layout:
    """Qwen1.5 and Qwen2 mixtures: biases on query, key and value, one gated shared expert."""
    sizes = read_sizes(fields)
    bias = bias_values(query=fields.flag("qkv_bias", default=True), output=False, sizes=sizes)
    mixer = sizes.attention(vectors=sizes.hidden + bias).shape()
    return _layout(fields, sizes, [(mixer, part) for part in qwen_feed_forward(fields, sizes)])


def read_qwen3_moe(fields: Fields) -> Layout:
    """Qwen3 mixtures: a norm on each query and key head."""
    sizes = read_sizes(fields)
    mixer = sizes.attention(vectors=sizes.hidden + 2 * sizes.head_dim).shape()
    return _layout(fields, sizes, [(mixer, part) for part in qwen_feed_forward(fields, sizes)])


def read_phimoe(fields: Fields) -> Layout:
    """Phi-3.5-MoE: norms with biases, biased projections, a biased head."""
    sizes = read_sizes(fields)
    bias = fields.flag("attention_bias", default=False)
    vectors = 2 * sizes.hidden + bias_values(query=bias, output=bias, sizes=sizes)
    moe = _routed(fields, sizes, fields.count("intermediate_size"), vectors=sizes.hidden)
    head_bias = fields.count("vocab_size") if fields.flag("lm_head_bias", default=False) else 0
    spans = windows(fields, sizes.layers)
    layers: list[Layer] = [(sizes.attention(span, vectors).shape(), moe) for span in spans]
    return _layout(fields, sizes, layers, 2 * sizes.hidden + head_bias)


def read_gpt_oss(fields: Fields) -> Layout:
    """gpt-oss: biases everywhere, one attention sink a head, windows in alternate layers."""
    sizes = read_sizes(fields)
    bias = fields.flag("attention_bias", default=True)
    vectors = sizes.hidden + sizes.heads + bias_values(query=bias, output=bias, sizes=sizes)
    intermediate = fields.count("intermediate_size")
    experts, top_k = expert_counts(fields)
    biases = 2 * intermediate + sizes.hidden
    moe = Experts(sizes.hidden, intermediate, experts, top_k, expert_biases=biases, vectors=sizes.hidden + experts).shape()
    spans = windows(fields, sizes.layers, every=2)
    return _layout(fields, sizes, [(sizes.attention(span, vectors).shape(), moe) for span in spans])


def read_glm4_moe(fields: Fields) -> Layout:
    """GLM-4.5 and 4.6: biased query, key and value, sigmoid router with a bias, shared experts, dense first layers."""
    sizes = read_sizes(fields)
    qk_norm = 2 * sizes.head_dim if fields.flag("use_qk_norm", default=False) else 0
    bias = bias_values(query=fields.flag("attention_bias", default=False), output=False, sizes=sizes)
    mixer = sizes.attention(vectors=sizes.hidden + bias + qk_norm).shape()
    return _layout(fields, sizes, [(mixer, part) for part in deepseek_feed_forward(fields, sizes.hidden, sizes.layers)])


def deepseek_feed_forward(fields: Fields, hidden: int, layers: int, *, router_bias: bool = True) -> list[LayerShape]:
    """Return the feed-forward part of each layer where n_shared_experts are as wide as routed ones and first layers are dense."""
    intermediate = fields.count("moe_intermediate_size")
    experts, top_k = expert_counts(fields)
    shared = fields.optional("n_shared_experts", "num_shared_experts", least=0) or 0
    moe = Experts(
        hidden,
        intermediate,
        experts,
        top_k,
        shared_params=3 * hidden * intermediate * shared,
        vectors=hidden + (experts if router_bias else 0),
    ).shape()
    routes = moe_layers(fields, layers)
    if all(routes):
        return [moe] * layers
    dense = Mlp(hidden, fields.count("dense_intermediate_size", "intermediate_size"), vectors=hidden).shape()
    return [moe if routed else dense for routed in routes]


def read_minimax_m2(fields: Fields) -> Layout:
    """MiniMax-M2: query and key norms over the full width, router with a bias."""
    sizes = read_sizes(fields)
    style = "full" if fields.text("qk_norm_type") == "per_layer" else "head"
    norm = qk_norm_values(style, sizes) if fields.flag("use_qk_norm", default=False) else 0
    experts, _ = expert_counts(fields)
    moe = _routed(fields, sizes, fields.count("intermediate_size"), vectors=experts)
    layer: Layer = (sizes.attention(vectors=sizes.hidden + norm).shape(), moe)
    return _layout(fields, sizes, [layer] * sizes.layers)


def read_minimax_m3(fields: Fields) -> Layout:
    """MiniMax-M3: block-sparse attention in most layers (an index picks blocks), dense first layers, one shared expert."""
    sizes = read_sizes(fields)
    sparse = fields.section("sparse_attention_config")
    flags = sparse.per_layer("sparse_attention_freq", sizes.layers) or [1] * sizes.layers
    index_heads, index_dim = sparse.heads("sparse_num_index_heads"), sparse.count("sparse_index_dim")
    index = SparseIndex(
        selected_tokens=sparse.count("sparse_topk_blocks") * sparse.count("sparse_block_size"),
        params=sizes.hidden * (index_heads + 1) * index_dim,
        vectors=2 * index_dim,
        key_values=index_dim,
        pair_flops=2.0 * index_heads * index_dim,
    )
    vectors = sizes.hidden + 2 * sizes.head_dim
    full = sizes.attention(vectors=vectors).shape()
    indexed = GroupedAttention(
        sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.head_dim, vectors=vectors, index=index
    ).shape()
    mixers = [indexed if flag == 1 else full for flag in flags]
    return _layout(fields, sizes, list(zip(mixers, deepseek_feed_forward(fields, sizes.hidden, sizes.layers), strict=True)))


def read_llama4(fields: Fields) -> Layout:
    """Llama 4: chunked attention but in every fourth layer; every interleave_moe_layer_step-th routes, with a shared expert."""
    sizes = read_sizes(fields)
    intermediate = fields.count("intermediate_size")
    moe = _routed(fields, sizes, intermediate, shared_params=3 * sizes.hidden * intermediate)
    step = fields.optional("interleave_moe_layer_step") or 1
    listed: Collection[int] = range(step - 1, sizes.layers, step)
    if fields.get("moe_layers") is not None:
        listed = fields.numbers("moe_layers", sizes.layers)
    dense = moe
    if len(listed) < sizes.layers:
        dense = Mlp(sizes.hidden, fields.count("intermediate_size_mlp"), vectors=sizes.hidden).shape()
    chunk = fields.optional("attention_chunk_size", most=10**9)
    full = sizes.attention(vectors=sizes.hidden).shape()
    head_dim = sizes.head_dim
    chunked = GroupedAttention(
        sizes.hidden, sizes.heads, sizes.kv_heads, head_dim, head_dim, vectors=sizes.hidden, window_tokens=chunk, chunked=True
    ).shape()
    is_chunked = _llama4_chunked(fields, sizes.layers)
    return _layout(
        fields,
        sizes,
        [(chunked if is_chunked[number] else full, moe if number in listed else dense) for number in range(sizes.layers)],
    )


def _llama4_chunked(fields: Fields, layers: int) -> list[bool]:
    listed = layer_types(fields, layers, ("chunked_attention", "full_attention"))
    if listed is not None:
        return [entry == "chunked_attention" for entry in listed]
    rope = fields.per_layer("no_rope_layers", layers)
    if rope:
        return [entry == 1 for entry in rope]
    every = fields.optional("no_rope_layer_interval", most=layers) or 4
    return [(number + 1) % every != 0 for number in range(layers)]


def read_mimo_v2(fields: Fields) -> Layout:
    """MiMo-V2: value heads narrower than key heads; sliding layers have KV heads and sinks of their own."""
    sizes = read_sizes(fields)
    value_dim = fields.count("v_head_dim")
    window = effective_window(fields)
    full_bias = bias_values(query=fields.flag("attention_bias", default=False), output=False, sizes=sizes)
    if full_bias:
        raise InputError("config.attention_bias", value=True, bound="is not read for mimo_v2", remedy="Use a config without it")
    full = GroupedAttention(
        sizes.hidden,
        sizes.heads,
        sizes.kv_heads,
        sizes.head_dim,
        value_dim,
        vectors=sizes.hidden + (sizes.heads if fields.flag("add_full_attention_sink_bias", default=False) else 0),
    ).shape()
    heads = fields.heads("swa_num_attention_heads", "num_attention_heads")
    sliding = GroupedAttention(
        sizes.hidden,
        heads,
        fields.heads("swa_num_key_value_heads", "num_key_value_heads"),
        fields.count("swa_head_dim", "head_dim"),
        fields.count("swa_v_head_dim", "v_head_dim"),
        vectors=sizes.hidden + (heads if fields.flag("add_swa_attention_sink_bias", default=True) else 0),
        window_tokens=window,
    ).shape()
    pattern = fields.per_layer("hybrid_layer_pattern", sizes.layers)
    listed = layer_types(fields, sizes.layers, ("sliding_attention", "full_attention"))
    if pattern is None and listed is None:
        raise InputError("config.hybrid_layer_pattern", None, "is missing", "Add hybrid_layer_pattern or layer_types")
    slides = [entry == 1 for entry in pattern] if pattern else [entry == "sliding_attention" for entry in listed or ()]
    mixers = [sliding if slide else full for slide in slides]
    return _layout(fields, sizes, list(zip(mixers, deepseek_feed_forward(fields, sizes.hidden, sizes.layers), strict=True)))


def read_step3p7(fields: Fields) -> Layout:
    """Step-3.7: query and key norms, router with a bias; sliding layers may have more query heads, each with a gate."""
    sizes = read_sizes(fields)
    experts, _ = expert_counts(fields)
    shared = 3 * sizes.hidden * fields.count("share_expert_dim", least=0)
    moe = _routed(fields, sizes, fields.count("moe_intermediate_size"), shared_params=shared, vectors=experts)
    dense = Mlp(sizes.hidden, fields.count("intermediate_size"), vectors=sizes.hidden).shape()
    heads = fields.optional("num_sliding_attention_heads") or sizes.heads
    if fields.get("attention_other_setting") is not None:
        heads = fields.section("attention_other_setting").heads("num_attention_heads")
    wide = Sizes(sizes.hidden, sizes.layers, heads, sizes.kv_heads, sizes.head_dim)
    gated = fields.flag("use_head_wise_attn_gate", default=False)
    mixers: list[LayerShape] = []
    for span in windows(fields, sizes.layers):
        used = sizes if span is None else wide
        gate = used.hidden * used.heads if gated else 0
        mixers.append(used.attention(span, used.hidden + 2 * used.head_dim, gate).shape())
    routes = moe_layers(fields, sizes.layers)
    return _layout(fields, sizes, [(mixer, moe if routed else dense) for mixer, routed in zip(mixers, routes, strict=True)])


def read_gemma4(fields: Fields) -> Layout:
    """Gemma 4: full layers have wider heads and values that are their keys; mixtures keep a dense MLP beside the experts."""
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if fields.optional(key, least=0):
            remedy = "Use a Gemma 4 without per-layer embeddings and shared caches (26B-A4B, 31B)"
            raise InputError(f"config.{key}", fields.get(key), "is not read: must be 0", remedy)
    sizes = read_sizes(fields)
    hidden = sizes.hidden
    wide = fields.optional("global_head_dim") or sizes.head_dim
    same = fields.flag("attention_k_eq_v", default=False)
    kv_heads = (fields.optional("num_global_key_value_heads", most=sizes.heads) if same else None) or sizes.kv_heads
    full = GroupedAttention(
        hidden, sizes.heads, kv_heads, wide, wide, vectors=2 * hidden + 2 * wide, value_projection=not same
    ).shape()
    sliding = sizes.attention(effective_window(fields), 2 * hidden + 2 * sizes.head_dim).shape()
    mlp = Mlp(hidden, fields.count("intermediate_size"), vectors=2 * hidden + 1).shape()
    tail: Layer = (mlp,)
    if fields.flag("enable_moe_block", default=False):
        experts, top_k = expert_counts(fields)
        vectors = 4 * hidden + experts
        tail = (mlp, Experts(hidden, fields.count("moe_intermediate_size"), experts, top_k, vectors=vectors).shape())
    spans = windows(fields, sizes.layers, every=6)
    return _layout(fields, sizes, [(full if span is None else sliding, *tail) for span in spans])
