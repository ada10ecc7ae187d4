"""Bytes and FLOPs of one GPU: weights, KV cache and recurrent state, and the work of a token, after sharding.

One function for each quantity, called everywhere. With pipeline stages each gives the stage that has most of it.
"""

from typing import NamedTuple

from planner.models.quantization import Module, Quantization, kv_value_bytes
from planner.models.sharding import check_layout, stage_count, stage_layers
from planner.models.spec import MIXER_KINDS, LayerShape, ModelSpec

_BITS_PER_BYTE = 8.0
_FLOPS_PER_PARAM = 2.0
_STATE_BYTES = {"bf16": 2.0, "fp32": 4.0}
_INDEX_KEY_BYTES = 1.0 + 4.0 / 128.0
_SPARSE_LATENT_BYTES = 1.0 + 4.0 / 128.0
_ROPE_BYTES = 2.0


class WeightBytes(NamedTuple):
    """Weights of one GPU [B].

    embedding_bytes : token embedding and learned positions
    dense_bytes : attention, dense MLPs, shared experts, routers, norms
    expert_bytes : routed experts
    head_bytes : language-model head, also when it is the embedding
    head_is_embedding : the head's bytes are the embedding's, stored once and still read for every sampled token
    """

    embedding_bytes: float
    dense_bytes: float
    expert_bytes: float
    head_bytes: float
    head_is_embedding: bool = False

    @property
    def total(self) -> float:
        """Bytes stored [B], a tied head once."""
        head = 0.0 if self.head_is_embedding else self.head_bytes
        return self.embedding_bytes + self.dense_bytes + self.expert_bytes + head


class KvBytes(NamedTuple):
    """Cache of one GPU.

    full_bytes_per_token : for every token of a sequence [B/token]
    window_bytes_per_token : for those in the window alone [B/token]
    window_tokens : the window [token]; None without windowed layers
    state_bytes_per_sequence : recurrent state, whatever the length [B]
    """

    full_bytes_per_token: float
    window_bytes_per_token: float
    window_tokens: int | None
    state_bytes_per_sequence: float

    def sequence_bytes(self, tokens: float) -> float:
        """Return the cache of one sequence of `tokens` [B]: all of it in full layers, at most a window in others, and its state."""
        windowed = tokens if self.window_tokens is None else min(tokens, float(self.window_tokens))
        return self.full_bytes_per_token * tokens + self.window_bytes_per_token * windowed + self.state_bytes_per_sequence


class TokenFlops(NamedTuple):
    """Work of one GPU.

    linear_flops : of one scheduled token in all layers, no embedding, no head [FLOP/token]
    head_flops : of one sampled token in the head [FLOP/token]
    full_pair_flops : of one query-key pair of prefill in layers that see every token [FLOP]
    window_pair_flops : the same in layers that see at most window_tokens [FLOP]
    decode_full_pair_flops, decode_window_pair_flops : of one pair of decode; more for latent attention, which decodes in the latent
    window_tokens : the window that the windowed pairs are counted in [token]; None without windowed or sparse layers
    """

    linear_flops: float
    head_flops: float
    full_pair_flops: float
    window_pair_flops: float
    decode_full_pair_flops: float
    decode_window_pair_flops: float
    window_tokens: int | None


class _Span(NamedTuple):
    """What one layer reads of a sequence: all tokens, or at most window_tokens of them; per-GPU values."""

    window_tokens: int | None
    kv_bytes: float
    pair_flops: float
    decode_pair_flops: float


def weight_bytes(spec: ModelSpec, quantization: Quantization, tp: int = 1, pp: int = 1, ep: int = 1) -> WeightBytes:
    """Weights of the fullest GPU [B].

    tp, pp, ep : ways of tensor, pipeline and expert parallelism; ep 1 splits each routed expert over tp, ep above 1 places experts
        whole on ep groups of GPUs (the fullest group counts where experts do not divide)

    Matrices are split over tp; key and value projections at most over the KV heads; embedding and head over the vocabulary; norms,
    routers, low-rank down-projections and sparse-attention indexes are whole on every GPU. The first stage holds the embedding, the
    last the head; a tied model with several stages holds the table on both. Vision towers and prediction layers are not counted
    (ModelSpec.vision_params, mtp_params), nor are rotary tables (0.03 GiB for Llama-3.1-8B in vLLM 0.19).

    Raises InputError for a layout that the model cannot be split into.
    """
    check_layout(spec, tp, pp, ep)
    stages = stage_layers(spec.layers, pp)
    candidates = [_stage_weights(spec, quantization, (tp, ep), stages, number) for number in range(pp)]
    return max(candidates, key=lambda weights: weights.total)


def _stage_weights(
    spec: ModelSpec, quantization: Quantization, split: tuple[int, int], stages: tuple[range, ...], number: int
) -> WeightBytes:
    tp, ep = split
    dense = expert = embedding = head = 0.0
    for group in spec.groups:
        count = stage_count(group, stages[number])
        dense += count * _dense_bytes(group, quantization, tp)
        expert += count * _expert_bytes(group, quantization, tp, ep)
    other = quantization.other_bits / _BITS_PER_BYTE
    first, last = number == 0, number == len(stages) - 1
    if first:
        embedding = spec.embedding_params * quantization.bits_of("embedding") / _BITS_PER_BYTE / tp + spec.position_params * other
    if last:
        head = spec.head_params * quantization.bits_of("embedding" if spec.tied_embeddings else "head") / _BITS_PER_BYTE / tp
        dense += spec.other_params * other
    return WeightBytes(embedding, dense, expert, head, spec.tied_embeddings and first and last)


def _dense_bytes(shape: LayerShape, quantization: Quantization, tp: int) -> float:
    module: Module = "attention" if shape.kind in MIXER_KINDS else "mlp" if shape.kind == "dense_mlp" else "shared_experts"
    matrices = shape.sharded_params / tp + shape.unsharded_params + shape.kv_params * _kv_share(shape, tp)
    bits = matrices * quantization.bits_of(module) + shape.router_params * quantization.bits_of("router")
    return (bits + shape.vector_params * quantization.other_bits) / _BITS_PER_BYTE


def _expert_bytes(shape: LayerShape, quantization: Quantization, tp: int, ep: int) -> float:
    if shape.experts is None:
        return 0.0
    whole_experts = -(-shape.experts // ep)
    split = max(1, tp // ep)
    return whole_experts * shape.expert_params / split * quantization.bits_of("experts") / _BITS_PER_BYTE


def _kv_share(shape: LayerShape, tp: int) -> float:
    """Part of the KV heads that one GPU holds: 1/tp, but never less than one head."""
    return max(1.0 / tp, 1.0 / (shape.kv_heads or 1))


def kv_bytes(spec: ModelSpec, kv_dtype: str, tp: int = 1, pp: int = 1) -> KvBytes:
    """Bytes that the cache of one GPU stores for one token and for one sequence.

    kv_dtype : "bf16" (or "fp16"), "fp8" or "fp32"

    Grouped-query layers store 2 sides of max(1, kv_heads / tp) heads: beyond the KV heads they are replicated. Latent attention
    stores one latent whatever tp. Index keys are stored in fp8 with one scale for 128 values. In fp8 the latent caches of sparse
    attention have one scale for 128 values too and keep the position part in 16 bit (656 B a layer for DeepSeek-V3.2). Recurrent
    state is split over tp; its matrix has the dtype that the checkpoint asks for, its convolution 16 bit (vLLM 0.33,
    v1/kv_cache_interface.py, layers/mamba/mamba_utils.py).

    With windows of several lengths every windowed layer is counted at the longest (an upper bound). With stages, each field is that
    of the stage with most of it.

    Raises InputError for an unknown dtype or a layout that the model cannot be split into.
    """
    check_layout(spec, tp, pp)
    value = kv_value_bytes(kv_dtype)
    stages = stage_layers(spec.layers, pp)
    full = window = state = 0.0
    for stage in stages:
        counted = [(stage_count(group, stage), group) for group in spec.groups]
        full = max(full, sum(n * _stored_full(group, value, tp) for n, group in counted))
        window = max(window, sum(n * _stored_window(group, value, tp) for n, group in counted))
        state = max(state, sum(n * _state_bytes(group) / tp for n, group in counted))
    windows = [group.window_tokens for group in spec.groups if group.window_tokens is not None]
    return KvBytes(full, window, max(windows, default=None), state)


def _layer_kv_bytes(shape: LayerShape, value_bytes: float, tp: int) -> float:
    """Bytes of one token in one layer's main cache on one GPU."""
    if shape.kind == "mla" and shape.selected_tokens is not None and value_bytes == kv_value_bytes("fp8"):
        latent = shape.kv_values_per_token - shape.rope_values_per_token
        return latent * _SPARSE_LATENT_BYTES + shape.rope_values_per_token * _ROPE_BYTES
    return shape.kv_values_per_token * value_bytes * _kv_share(shape, tp)


def _stored_full(shape: LayerShape, value_bytes: float, tp: int) -> float:
    main = 0.0 if shape.window_tokens is not None else _layer_kv_bytes(shape, value_bytes, tp)
    return main + shape.compressed_values_per_token * value_bytes + shape.index_values_per_token * _INDEX_KEY_BYTES


def _stored_window(shape: LayerShape, value_bytes: float, tp: int) -> float:
    return 0.0 if shape.window_tokens is None else _layer_kv_bytes(shape, value_bytes, tp)


def _state_bytes(shape: LayerShape) -> float:
    return shape.state_values * _STATE_BYTES[shape.state_dtype] + shape.conv_values * _STATE_BYTES["bf16"]


def kv_read_bytes(spec: ModelSpec, kv_dtype: str, tp: int = 1, pp: int = 1) -> KvBytes:
    """Bytes that one decode row makes one GPU read for each token of its context, in the fields of KvBytes.

    They equal kv_bytes but for sparse attention, which stores every token and reads the chosen ones, and for chunked attention,
    which sees half a chunk on average. Shorter windows are put on the longest one's scale, so that the sum is right for any context
    that fills them all. The state is read once and written once for each token.

    Raises InputError as kv_bytes does.
    """
    check_layout(spec, tp, pp)
    value = kv_value_bytes(kv_dtype)
    window = attended_window(spec)
    full = windowed = state = 0.0
    for stage in stage_layers(spec.layers, pp):
        spans = _stage_spans(spec, stage, value, tp)
        full = max(full, sum(n * span.kv_bytes for n, span in spans if span.window_tokens is None))
        windowed = max(windowed, sum(n * span.kv_bytes * _scale(span, window) for n, span in spans))
        state = max(state, sum(stage_count(group, stage) * _state_bytes(group) / tp for group in spec.groups))
    return KvBytes(full, windowed, window, state)


def attended_window(spec: ModelSpec) -> int | None:
    """Return the longest span that windowed, chunked or sparse layers attend to [token], or None when all see everything."""
    spans = [span.window_tokens for group in spec.groups for span in _spans(group, kv_value_bytes("bf16"), 1)]
    return max((window for window in spans if window is not None), default=None)


def _scale(span: _Span, window: int | None) -> float:
    return 0.0 if span.window_tokens is None or window is None else span.window_tokens / window


def _stage_spans(spec: ModelSpec, stage: range, value_bytes: float, tp: int) -> list[tuple[int, _Span]]:
    return [(stage_count(group, stage), span) for group in spec.groups for span in _spans(group, value_bytes, tp)]


def _spans(shape: LayerShape, value_bytes: float, tp: int) -> tuple[_Span, ...]:
    if shape.kv_values_per_token == 0 or shape.heads is None or shape.qk_head_dim is None or shape.v_head_dim is None:
        return ()
    heads = shape.heads / tp
    pair = _FLOPS_PER_PARAM * heads * (shape.qk_head_dim + shape.v_head_dim)
    decode_pair = pair
    if shape.kind == "mla":
        latent = shape.kv_values_per_token - shape.rope_values_per_token
        decode_pair = _FLOPS_PER_PARAM * heads * (shape.kv_values_per_token + latent)
    if shape.kind == "mla" and shape.selected_tokens is not None:
        pair = decode_pair
    main_bytes = _layer_kv_bytes(shape, value_bytes, tp)
    spans: list[_Span] = []
    if shape.index_pair_flops:
        index_bytes = shape.index_values_per_token * _INDEX_KEY_BYTES
        spans.append(_Span(None, index_bytes, shape.index_pair_flops, shape.index_pair_flops))
    if shape.kind == "compressed":
        entries = shape.compressed_values_per_token / shape.kv_values_per_token
        compressed_bytes = shape.compressed_values_per_token * value_bytes
        spans.append(_Span(shape.selected_tokens, compressed_bytes, pair * entries, pair * entries))
        spans.append(_Span(shape.window_tokens, main_bytes, pair, pair))
    elif shape.kind == "chunked" and shape.window_tokens is not None:
        spans.append(_Span(-(-shape.window_tokens // 2), main_bytes, pair, pair))
    else:
        spans.append(_Span(shape.selected_tokens or shape.window_tokens, main_bytes, pair, decode_pair))
    return tuple(spans)


def token_flops(spec: ModelSpec, tp: int = 1, pp: int = 1, ep: int = 1) -> TokenFlops:
    """Work that one scheduled token makes on one GPU [FLOP].

    linear_flops is 2 for each parameter that the token touches in the layers and the final norm, after sharding; a GPU that keeps a
    matrix whole does its work whole. Routed experts count as if tokens spread evenly: top_k experts over tp GPUs, whatever ep,
    since ep beyond tp brings the tokens of other ranks with it. Attention is 2 heads (qk_head_dim + v_head_dim) for each query-key
    pair and layer; latent attention decodes, and sparse latent attention always runs, in the latent (2 heads (576 + 512) for
    DeepSeek-V3).
    The update of recurrent states, at most 2 % of the linear layers' work in the catalogue, is left out.

    Raises InputError for a layout that the model cannot be split into.
    """
    check_layout(spec, tp, pp, ep)
    stages = stage_layers(spec.layers, pp)
    linear = 0.0
    for number, stage in enumerate(stages):
        params = sum(stage_count(group, stage) * _active_params(group, tp) for group in spec.groups)
        linear = max(linear, params + (spec.other_params if number == pp - 1 else 0))
    window = attended_window(spec)
    pairs = [_stage_pairs(_stage_spans(spec, stage, 1.0, tp), window) for stage in stages]
    full, windowed, decode_full, decode_windowed = (max(column) for column in zip(*pairs, strict=True))
    return TokenFlops(
        linear_flops=_FLOPS_PER_PARAM * linear,
        head_flops=_FLOPS_PER_PARAM * spec.head_params / tp,
        full_pair_flops=full,
        window_pair_flops=windowed,
        decode_full_pair_flops=decode_full,
        decode_window_pair_flops=decode_windowed,
        window_tokens=window,
    )


def _active_params(shape: LayerShape, tp: int) -> float:
    routed = (shape.top_k or 0) * shape.expert_params / tp
    whole = shape.vector_params + shape.router_params + shape.unsharded_params
    return shape.sharded_params / tp + whole + shape.kv_params * _kv_share(shape, tp) + routed


def _stage_pairs(spans: list[tuple[int, _Span]], window: int | None) -> tuple[float, float, float, float]:
    full = sum(n * span.pair_flops for n, span in spans if span.window_tokens is None)
    windowed = sum(n * span.pair_flops * _scale(span, window) for n, span in spans)
    decode_full = sum(n * span.decode_pair_flops for n, span in spans if span.window_tokens is None)
    decode_windowed = sum(n * span.decode_pair_flops * _scale(span, window) for n, span in spans)
    return full, windowed, decode_full, decode_windowed
