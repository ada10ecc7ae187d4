"""Readers of families that mix attention with recurrent layers: Qwen3-Next to 3.8, MiniMax-M1, Nemotron-H."""

from planner.errors import InputError
from planner.models.config_fields import Fields
from planner.models.feed_forward import Experts, Mlp
from planner.models.layout import Layer, Layout, Sizes, layer_types, max_positions, read_sizes
from planner.models.mixers import LinearAttention, Mamba2
from planner.models.readers_moe import expert_counts, qwen_feed_forward
from planner.models.spec import LayerShape


def _layout(fields: Fields, hidden: int, layers: list[Layer]) -> Layout:
    return Layout(hidden, fields.count("vocab_size"), layers, hidden, max_positions=max_positions(fields))


def _state_is_fp32(fields: Fields) -> bool:
    return fields.text("mamba_ssm_dtype") == "float32" or fields.text("mamba_ssm_cache_dtype") == "float32"


def _delta_net(fields: Fields, hidden: int) -> LayerShape:
    key_heads, value_heads = fields.heads("linear_num_key_heads"), fields.heads("linear_num_value_heads")
    key_dim, value_dim = fields.count("linear_key_head_dim"), fields.count("linear_value_head_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    return LinearAttention(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        matrices=hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden,
        vectors=hidden + 2 * value_heads + value_dim,
        conv_channels=2 * keys + values,
        conv_kernel=fields.count("linear_conv_kernel_dim", most=64),
        state_dtype="fp32" if _state_is_fp32(fields) else "bf16",
    ).shape()


def _delta_mixers(fields: Fields, sizes: Sizes) -> list[LayerShape]:
    gate = sizes.hidden * sizes.query_values
    full = sizes.attention(vectors=sizes.hidden + 2 * sizes.head_dim, gate_params=gate).shape()
    linear = _delta_net(fields, sizes.hidden)
    listed = layer_types(fields, sizes.layers, ("linear_attention", "full_attention"))
    if listed is None:
        every = fields.optional("full_attention_interval", most=sizes.layers) or 4
        return [linear if (number + 1) % every else full for number in range(sizes.layers)]
    return [linear if entry == "linear_attention" else full for entry in listed]


def read_qwen3_next(fields: Fields) -> Layout:
    """Qwen3-Next and the 3.5 to 3.8 mixtures: gated delta nets with gated attention in every fourth layer, a shared expert."""
    sizes = read_sizes(fields)
    parts = qwen_feed_forward(fields, sizes)
    return _layout(fields, sizes.hidden, list(zip(_delta_mixers(fields, sizes), parts, strict=True)))


def read_qwen3_5(fields: Fields) -> Layout:
    """Qwen3.5 to 3.8 dense: gated delta nets with gated attention in every fourth layer."""
    sizes = read_sizes(fields)
    mlp = Mlp(sizes.hidden, fields.count("intermediate_size"), vectors=sizes.hidden).shape()
    return _layout(fields, sizes.hidden, [(mixer, mlp) for mixer in _delta_mixers(fields, sizes)])


def read_minimax_m1(fields: Fields) -> Layout:
    """MiniMax-Text-01 and M1: lightning attention with softmax attention in every eighth layer, all layers route."""
    sizes = read_sizes(fields)
    width = sizes.query_values
    lightning = LinearAttention(
        key_heads=sizes.heads,
        value_heads=sizes.heads,
        key_dim=sizes.head_dim,
        value_dim=sizes.head_dim,
        matrices=5 * sizes.hidden * width,
        vectors=sizes.hidden + width,
    ).shape()
    full = sizes.attention(vectors=sizes.hidden).shape()
    experts, top_k = expert_counts(fields)
    moe = Experts(sizes.hidden, fields.count("intermediate_size"), experts, top_k, vectors=sizes.hidden).shape()
    types = fields.per_layer("attn_type_list", sizes.layers)
    if types is None:
        raise InputError("config.attn_type_list", None, "is missing", "Add the list with 0 for lightning and 1 for softmax layers")
    return _layout(fields, sizes.hidden, [(full if entry == 1 else lightning, moe) for entry in types])


_BLOCKS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp", "linear_attention": "mamba", "full_attention": "attention"}


def _nemotron_blocks(fields: Fields) -> list[str]:
    pattern = fields.get("hybrid_override_pattern", "layers_block_type", "layer_types")
    if not isinstance(pattern, str | list) or not 0 < len(pattern) <= 1000:
        bound = "must be a pattern of M, E, * and -, or a list of block types"
        raise InputError("config.hybrid_override_pattern", pattern, bound, "Add the pattern or layers_block_type")
    named = [_BLOCKS.get(str(entry), str(entry)) for entry in pattern]
    for entry in named:
        if entry not in {"mamba", "moe", "attention", "mlp"}:
            raise InputError("config.hybrid_override_pattern", entry, "must be M, E, * or -", "Check the pattern in config.json")
    return named


def read_nemotron_h(fields: Fields) -> Layout:
    """Nemotron-H and Nemotron 3: each layer is one block: Mamba-2, attention, MLP or experts, perhaps in a latent width."""
    for key in ("use_bias", "mlp_bias", "attention_bias", "mamba_proj_bias"):
        if fields.flag(key, default=False):
            raise InputError(f"config.{key}", value=True, bound="is not read here", remedy="Use a config without it")
    named = _nemotron_blocks(fields)
    hidden = fields.count("hidden_size")
    builders = {"mamba": _nemotron_mamba, "attention": _nemotron_attention, "mlp": _nemotron_mlp, "moe": _nemotron_moe}
    shapes = {name: builders[name](fields, hidden) for name in set(named)}
    return _layout(fields, hidden, [(shapes[name],) for name in named])


def _nemotron_mamba(fields: Fields, hidden: int) -> LayerShape:
    heads, head_dim = fields.heads("mamba_num_heads"), fields.count("mamba_head_dim")
    groups, state = fields.heads("n_groups", "mamba_n_groups"), fields.count("ssm_state_size", "mamba_d_state")
    channels = heads * head_dim + 2 * groups * state
    return Mamba2(
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        groups=groups,
        state_size=state,
        conv_kernel=fields.count("conv_kernel", "mamba_d_conv", most=64),
        vectors=hidden + (channels if fields.flag("use_conv_bias", default=True) else 0),
        state_dtype="fp32" if _state_is_fp32(fields) else "bf16",
    ).shape()


def _nemotron_attention(fields: Fields, hidden: int) -> LayerShape:
    heads = fields.heads("num_attention_heads")
    kv_heads = fields.heads("num_key_value_heads")
    head_dim = fields.count("head_dim", "attention_head_dim")
    return Sizes(hidden, 1, heads, kv_heads, head_dim).attention(vectors=hidden).shape()


def _nemotron_mlp(fields: Fields, hidden: int) -> LayerShape:
    return Mlp(hidden, fields.count("intermediate_size"), matrices=2, vectors=hidden).shape()


def _nemotron_moe(fields: Fields, hidden: int) -> LayerShape:
    experts, top_k = expert_counts(fields)
    width = fields.optional("moe_latent_size")
    shared = fields.optional("n_shared_experts", least=0) or 0
    shared_width = fields.count("moe_shared_expert_intermediate_size") if shared else 0
    return Experts(
        hidden,
        fields.count("moe_intermediate_size"),
        experts,
        top_k,
        matrices=2,
        width=width,
        latent_params=2 * hidden * width if width else 0,
        shared_params=2 * hidden * shared_width,
        vectors=hidden + experts,
    ).shape()
