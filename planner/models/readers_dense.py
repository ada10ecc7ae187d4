"""Readers of dense decoder families: from the keys of config.json to layers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from planner.errors import InputError
from planner.models.config_fields import Fields, divided
from planner.models.feed_forward import Mlp, removed_layer
from planner.models.layout import Layer, Layout, Sizes, bias_values, effective_window, max_positions, read_sizes, windows
from planner.models.spec import LayerShape

Reader = Callable[[Fields], Layout]


@dataclass(frozen=True, slots=True)
class GatedStyle:
    """How a decoder with a gated MLP differs from Llama.

    mixer_norms, mlp_norms : hidden-size norms beside attention and beside the MLP
    qk_norm : norm of queries and keys: one for all heads, one per head, or over the full width
    query_bias, output_bias, mlp_bias : whether the projections have biases when the config does not say
    bias_key : the key that says it
    every : every n-th layer is full where the config has no pattern
    """

    mixer_norms: int = 1
    mlp_norms: int = 1
    qk_norm: Literal["none", "head", "heads", "full"] = "none"
    query_bias: bool = False
    output_bias: bool | None = None
    bias_key: str = "attention_bias"
    every: int | None = None


def qk_norm_values(style: str, sizes: Sizes) -> int:
    """Return the values of query and key norms: one head's width, or that of all heads."""
    return {"none": 0, "head": 2 * sizes.head_dim}.get(style, sizes.query_values + sizes.kv_values)


def gated_decoder(fields: Fields, style: GatedStyle, window_list: list[int | None] | None = None) -> Layout:
    """Read a decoder of grouped-query attention and a three-matrix MLP."""
    sizes = read_sizes(fields)
    query_bias = fields.flag(style.bias_key, default=style.query_bias)
    output_bias = query_bias if style.output_bias is None else fields.flag("attention_out_bias", default=style.output_bias)
    vectors = style.mixer_norms * sizes.hidden + bias_values(query=query_bias, output=output_bias, sizes=sizes)
    vectors += qk_norm_values(style.qk_norm, sizes)
    intermediate = fields.count("intermediate_size")
    mlp_bias = 2 * intermediate + sizes.hidden if fields.flag("mlp_bias", default=False) else 0
    mlp = Mlp(sizes.hidden, intermediate, vectors=style.mlp_norms * sizes.hidden + mlp_bias).shape()
    spans = windows(fields, sizes.layers, style.every) if window_list is None else window_list
    mixers = {span: sizes.attention(span, vectors).shape() for span in set(spans)}
    return Layout(
        hidden=sizes.hidden,
        vocab=fields.count("vocab_size"),
        layers=[(mixers[span], mlp) for span in spans],
        other_params=sizes.hidden,
        max_positions=max_positions(fields),
    )


def styled(style: GatedStyle) -> Reader:
    """Return the reader of a family that differs from Llama by style alone."""
    return lambda fields: gated_decoder(fields, style)


def read_qwen2(fields: Fields) -> Layout:
    """Qwen2 and 2.5: biases on query, key and value; layers from max_window_layers on slide only if use_sliding_window is true."""
    return gated_decoder(fields, GatedStyle(query_bias=True, output_bias=False, bias_key="qkv_bias"), _qwen_windows(fields))


def read_qwen3(fields: Fields) -> Layout:
    """Qwen3: a norm on each query and key head, no biases; windows as in Qwen2."""
    return gated_decoder(fields, GatedStyle(qk_norm="head"), _qwen_windows(fields))


def _qwen_windows(fields: Fields) -> list[int | None]:
    layers = fields.layers()
    if not fields.flag("use_sliding_window", default=False):
        return [None] * layers
    if fields.get("layer_types") is not None:
        return windows(fields, layers)
    first = fields.count("max_window_layers", least=0)
    window = effective_window(fields)
    return [window if number >= first else None for number in range(layers)]


def read_gemma2(fields: Fields) -> Layout:
    """Gemma 2: four norms a layer; even layers slide."""
    return gated_decoder(fields, GatedStyle(mixer_norms=2, mlp_norms=2, every=2))


def read_cohere(fields: Fields) -> Layout:
    """Command R: attention and MLP in parallel behind one norm; query and key norms hold every head where use_qk_norm is set."""
    qk_norm: Literal["none", "heads"] = "heads" if fields.flag("use_qk_norm", default=False) else "none"
    return gated_decoder(fields, GatedStyle(mlp_norms=0, qk_norm=qk_norm))


def read_falcon(fields: Fields) -> Layout:
    """Falcon: multi-query unless the new decoder architecture says num_kv_heads; Falcon-7B states 71 KV heads and has one."""
    hidden = fields.count("hidden_size")
    layers = fields.layers("num_hidden_layers", "n_layer")
    heads = fields.heads("num_attention_heads", "n_head")
    new = fields.flag("new_decoder_architecture", default=False)
    if new:
        kv_heads = fields.optional("num_kv_heads", "n_head_kv", most=heads) or heads
        norms = fields.optional("num_ln_in_parallel_attn", most=2) or 2
    else:
        kv_heads = 1 if fields.flag("multi_query", default=True) else heads
        norms = 1 if fields.flag("parallel_attn", default=True) else 2
    sizes = Sizes(hidden, layers, heads, kv_heads, divided(hidden, heads, "hidden_size by num_attention_heads"))
    divided(heads, kv_heads, "num_attention_heads by num_kv_heads")
    intermediate = fields.optional("ffn_hidden_size") or 4 * hidden
    bias = fields.flag("bias", default=False)
    attention_bias = bias_values(query=bias, output=bias, sizes=sizes)
    mlp = Mlp(hidden, intermediate, matrices=2, vectors=intermediate + hidden if bias else 0).shape()
    mixer = sizes.attention(vectors=2 * norms * hidden + attention_bias).shape()
    layer: Layer = (mixer, mlp)
    return Layout(hidden, fields.count("vocab_size"), [layer] * layers, 2 * hidden, max_positions=max_positions(fields))


def read_opt(fields: Fields) -> Layout:
    """OPT: biases everywhere, norms with biases, a learned position table with two rows more than positions."""
    hidden = fields.count("hidden_size")
    if (fields.optional("word_embed_proj_dim") or hidden) != hidden:
        remedy = "Use another OPT size; this one projects its embeddings"
        raise InputError(
            "config.word_embed_proj_dim", fields.get("word_embed_proj_dim"), f"must equal hidden_size {hidden}", remedy
        )
    sizes = read_sizes(fields)
    intermediate = fields.count("ffn_dim", "intermediate_size")
    positions = fields.count("max_position_embeddings")
    mixer = sizes.attention(vectors=2 * hidden + bias_values(query=True, output=True, sizes=sizes)).shape()
    mlp = Mlp(hidden, intermediate, matrices=2, vectors=2 * hidden + intermediate + hidden).shape()
    layer: Layer = (mixer, mlp)
    final_norm = 2 * hidden if fields.flag("do_layer_norm_before", default=True) else 0
    return Layout(hidden, fields.count("vocab_size"), [layer] * sizes.layers, final_norm, (positions + 2) * hidden, positions)


def read_bloom(fields: Fields) -> Layout:
    """BLOOM: multi-head attention with biases, a norm after the embedding, positions by slope (no table)."""
    hidden = fields.count("hidden_size", "n_embed", "n_embd")
    layers = fields.layers("n_layer", "num_hidden_layers")
    heads = fields.heads("num_attention_heads", "n_head")
    sizes = Sizes(hidden, layers, heads, heads, divided(hidden, heads, "hidden_size by num_attention_heads"))
    mixer = sizes.attention(vectors=2 * hidden + bias_values(query=True, output=True, sizes=sizes)).shape()
    mlp = Mlp(hidden, 4 * hidden, matrices=2, vectors=2 * hidden + 5 * hidden).shape()
    layer: Layer = (mixer, mlp)
    return Layout(hidden, fields.count("vocab_size"), [layer] * layers, 4 * hidden, max_positions=max_positions(fields))


def read_starcoder2(fields: Fields) -> Layout:
    """StarCoder2: two-matrix MLP, norms with biases, biases on every projection unless use_bias is false."""
    sizes = read_sizes(fields)
    bias = fields.flag("use_bias", default=True)
    intermediate = fields.count("intermediate_size")
    vectors = 2 * sizes.hidden + bias_values(query=bias, output=bias, sizes=sizes)
    mlp_bias = intermediate + sizes.hidden if bias else 0
    mlp = Mlp(sizes.hidden, intermediate, matrices=2, vectors=2 * sizes.hidden + mlp_bias).shape()
    mixers = {span: sizes.attention(span, vectors).shape() for span in set(windows(fields, sizes.layers))}
    layers = [(mixers[span], mlp) for span in windows(fields, sizes.layers)]
    return Layout(sizes.hidden, fields.count("vocab_size"), layers, 2 * sizes.hidden, max_positions=max_positions(fields))


def read_phi(fields: Fields) -> Layout:
    """Phi-1 to Phi-2: attention and MLP in parallel behind one norm with bias, biases everywhere, a biased head."""
    sizes = read_sizes(fields)
    if fields.flag("qk_layernorm", default=False):
        raise InputError("config.qk_layernorm", value=True, bound="is not read for phi", remedy="Give a Phi-1 or Phi-2 config.json")
    intermediate, vocab = fields.count("intermediate_size"), fields.count("vocab_size")
    mixer = sizes.attention(vectors=2 * sizes.hidden + bias_values(query=True, output=True, sizes=sizes)).shape()
    mlp = Mlp(sizes.hidden, intermediate, matrices=2, vectors=intermediate + sizes.hidden).shape()
    layer: Layer = (mixer, mlp)
    return Layout(sizes.hidden, vocab, [layer] * sizes.layers, 2 * sizes.hidden + vocab, max_positions=max_positions(fields))


def read_nemotron_nas(fields: Fields) -> Layout:
    """Llama-Nemotron: Llama whose layers lost attention or MLP width one by one, as block_configs lists."""
    sizes = read_sizes(fields)
    blocks = fields.per_layer("block_configs", sizes.layers)
    if blocks is None:
        raise InputError("config.block_configs", None, "is missing", "Add the list with one entry a layer")
    layers = [(_nas_mixer(block, sizes), _nas_mlp(block, sizes)) for block in map(_block, blocks)]
    return Layout(sizes.hidden, fields.count("vocab_size"), layers, sizes.hidden, max_positions=max_positions(fields))


def _block(entry: object) -> Fields:
    if not isinstance(entry, dict):
        raise InputError("config.block_configs", entry, "must hold objects", "Check the list in config.json")
    return Fields(entry)


def _refuse_linear(part: Fields) -> None:
    if part.flag("replace_with_linear", default=False):
        bound = "is not read: such a layer has another shape"
        raise InputError("config.block_configs.replace_with_linear", value=True, bound=bound, remedy="Use a model without it")


def _nas_mixer(block: Fields, sizes: Sizes) -> LayerShape:
    part = block.section("attention")
    _refuse_linear(part)
    if part.flag("no_op", default=False):
        return removed_layer()
    group = part.count("n_heads_in_group", most=sizes.heads)
    kv_heads = divided(sizes.heads, group, "num_attention_heads by n_heads_in_group")
    window = part.optional("window_length", most=10**9)
    return Sizes(sizes.hidden, sizes.layers, sizes.heads, kv_heads, sizes.head_dim).attention(window, sizes.hidden).shape()


def _nas_mlp(block: Fields, sizes: Sizes) -> LayerShape:
    part = block.section("ffn")
    _refuse_linear(part)
    if part.flag("no_op", default=False):
        return removed_layer()
    width = int(2 * part.number("ffn_mult", most=1000) * sizes.hidden / 3)
    rounded = -(-width // _NAS_WIDTH_STEP) * _NAS_WIDTH_STEP
    return Mlp(sizes.hidden, rounded, vectors=sizes.hidden).shape()


_NAS_WIDTH_STEP = 256
