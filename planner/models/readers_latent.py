"""Readers of families with latent attention: DeepSeek V2 to V4, GLM-5, Kimi."""

from planner.errors import InputError
from planner.models.config_fields import Fields
from planner.models.feed_forward import Experts, Mlp
from planner.models.layout import Layer, Layout, max_positions
from planner.models.mixers import CompressedAttention, LatentAttention, LinearAttention, SparseIndex
from planner.models.readers_moe import deepseek_feed_forward, expert_counts, moe_layers
from planner.models.spec import LayerShape

_STREAM_SCALES = 3


def latent_attention(fields: Fields, index: SparseIndex | None = None, gate_params: int = 0) -> LayerShape:
    """Return multi-head latent attention with its input norm."""
    if fields.flag("attention_bias", default=False):
        raise InputError("config.attention_bias", value=True, bound="is not read here", remedy="Use a config without it")
    hidden = fields.count("hidden_size")
    return LatentAttention(
        hidden=hidden,
        heads=fields.heads("num_attention_heads"),
        q_rank=fields.optional("q_lora_rank"),
        kv_rank=fields.count("kv_lora_rank"),
        nope_dim=fields.count("qk_nope_head_dim"),
        rope_dim=fields.count("qk_rope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        vectors=hidden,
        gate_params=gate_params,
        index=index,
    ).shape()


def _layout(fields: Fields, layers: list[Layer], other_params: int | None = None) -> Layout:
    hidden = fields.count("hidden_size")
    outside = hidden if other_params is None else other_params
    return Layout(hidden, fields.count("vocab_size"), layers, outside, max_positions=max_positions(fields))


def read_deepseek(fields: Fields) -> Layout:
    """DeepSeek V2, V3, R1, Kimi K2, GLM-4.7-Flash: latent attention throughout; topk_method noaux_tc gives routers a bias."""
    layers = fields.layers()
    router_bias = fields.text("topk_method") == "noaux_tc"
    parts = deepseek_feed_forward(fields, fields.count("hidden_size"), layers, router_bias=router_bias)
    mixer = latent_attention(fields)
    return _layout(fields, [(mixer, part) for part in parts])


def _index(fields: Fields, *, shared: bool) -> SparseIndex:
    selected = fields.count("index_topk", most=10**9)
    if shared:
        return SparseIndex(selected_tokens=selected)
    hidden, heads, dim = fields.count("hidden_size"), fields.heads("index_n_heads"), fields.count("index_head_dim")
    return SparseIndex(
        selected_tokens=selected,
        params=fields.count("q_lora_rank") * heads * dim + hidden * dim + hidden * heads,
        vectors=2 * dim,
        key_values=dim,
        pair_flops=2.0 * heads * dim,
    )


def read_deepseek_sparse(fields: Fields) -> Layout:
    """DeepSeek-V3.2 and GLM-5: latent attention that reads index_topk tokens; from GLM-5.2 on, layers may share one index."""
    layers = fields.layers()
    types = fields.per_layer("indexer_types", layers) or ["full"] * layers
    for entry in types:
        if entry not in ("full", "shared"):
            raise InputError("config.indexer_types", entry, "must be full or shared", "Check the list in config.json")
    mixers = {shared: latent_attention(fields, _index(fields, shared=shared)) for shared in (False, True)}
    parts = deepseek_feed_forward(fields, fields.count("hidden_size"), layers)
    return _layout(fields, [(mixers[entry == "shared"], part) for entry, part in zip(types, parts, strict=True)])


def read_deepseek_v4(fields: Fields) -> Layout:
    """DeepSeek-V4: a window of keys beside entries compressed 4 or 128 to 1; several residual streams mixed around each part."""
    hidden, layers = fields.count("hidden_size"), fields.layers()
    streams = fields.count("hc_mult", most=64)
    mixed = (2 + streams) * streams
    mixing = mixed * streams * hidden + mixed + _STREAM_SCALES
    intermediate = fields.count("moe_intermediate_size")
    experts, top_k = expert_counts(fields)
    hashed = fields.optional("num_hash_layers", least=0) or 0
    shared = 3 * hidden * intermediate * (fields.optional("n_shared_experts", least=0) or 0)
    routed, by_hash = (
        Experts(hidden, intermediate, experts, top_k, shared_params=shared, vectors=hidden + mixing + bias).shape()
        for bias in (experts, 0)
    )
    ratios = fields.per_layer("compress_ratios", layers)
    if ratios is None:
        raise InputError("config.compress_ratios", None, "is missing", "Add the list with one ratio a layer")
    mixers = {ratio: _compressed(fields, ratio, hidden + mixing) for ratio in set(map(_ratio, ratios))}
    parts = [by_hash if number < hashed else routed for number in range(layers)]
    joined: list[Layer] = [(mixers[_ratio(ratio)], part) for ratio, part in zip(ratios, parts, strict=True)]
    return _layout(fields, joined, hidden + streams * streams * hidden + streams + 1)


def _ratio(entry: object) -> int:
    if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry <= 10**6:
        raise InputError("config.compress_ratios", entry, "must be whole numbers from 0", "Check the list in config.json")
    return entry


def _compressed(fields: Fields, ratio: int, vectors: int) -> LayerShape:
    indexed = ratio == 4
    return CompressedAttention(
        hidden=fields.count("hidden_size"),
        heads=fields.heads("num_attention_heads"),
        head_dim=fields.count("head_dim"),
        q_rank=fields.count("q_lora_rank"),
        output_groups=fields.count("o_groups"),
        output_rank=fields.count("o_lora_rank"),
        window_tokens=fields.count("sliding_window", most=10**9),
        vectors=vectors,
        ratio=ratio or None,
        selected_entries=fields.count("index_topk", most=10**9) if indexed else None,
        index_dim=fields.count("index_head_dim") if indexed else 0,
        index_heads=fields.heads("index_n_heads") if indexed else 0,
    ).shape()


def read_kimi_linear(fields: Fields) -> Layout:
    """Kimi Linear and K3: Kimi delta attention in most layers, latent attention in the rest, experts perhaps in a latent width."""
    hidden, layers, heads = fields.count("hidden_size"), fields.layers(), fields.heads("num_attention_heads")
    linear = fields.section("linear_attn_config")
    full = linear.numbers("full_attn_layers", layers)
    gate = hidden * heads * fields.count("v_head_dim") if fields.flag("mla_use_output_gate", default=False) else 0
    latent = latent_attention(fields, gate_params=gate)
    delta = _kimi_delta(linear, hidden)
    parts = _kimi_feed_forward(fields, hidden, layers)
    return _layout(fields, [(latent if number + 1 in full else delta, parts[number]) for number in range(layers)])


def _kimi_delta(linear: Fields, hidden: int) -> LayerShape:
    heads, dim = linear.heads("num_heads"), linear.count("head_dim")
    width = heads * dim
    low_rank_gates = 1 if linear.flag("use_full_rank_gate", default=False) else 2
    full_gate = hidden * width if low_rank_gates == 1 else 0
    return LinearAttention(
        key_heads=heads,
        value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        matrices=4 * hidden * width + full_gate + low_rank_gates * dim * width + hidden * heads,
        unsharded=low_rank_gates * hidden * dim,
        vectors=hidden + width + heads + dim,
        conv_channels=3 * width,
        conv_kernel=linear.count("short_conv_kernel_size", most=64),
        state_dtype="fp32",
    ).shape()


def _kimi_feed_forward(fields: Fields, hidden: int, layers: int) -> list[LayerShape]:
    intermediate = fields.count("moe_intermediate_size")
    experts, top_k = expert_counts(fields)
    width = fields.optional("routed_expert_hidden_size")
    norm = width if width and fields.flag("latent_moe_use_norm", default=False) else 0
    shared = fields.optional("num_shared_experts", "n_shared_experts", least=0) or 0
    moe = Experts(
        hidden,
        intermediate,
        experts,
        top_k,
        width=width,
        latent_params=2 * hidden * width if width else 0,
        shared_params=3 * hidden * intermediate * shared,
        vectors=hidden + experts + norm,
    ).shape()
    dense = Mlp(hidden, fields.count("intermediate_size"), vectors=hidden).shape()
    return [moe if routed else dense for routed in moe_layers(fields, layers)]
