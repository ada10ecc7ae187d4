"""Token mixers as layer shapes: attention with a cache, and recurrent layers with a state.

Each class holds the sizes that a config.json states and counts the parameters of one layer, its input norm included.
"""

from dataclasses import dataclass
from typing import Literal

from planner.models.spec import LayerKind, LayerShape


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """Index of a sparse attention layer: it scores every earlier token and keeps the best.

    params : its projections, whole on each GPU; vectors : its norms
    key_values : index keys stored for one token; 0 when the layer reuses another layer's choice
    pair_flops : FLOPs of one query-key score
    selected_tokens : tokens that attention then reads
    """

    selected_tokens: int
    params: int = 0
    vectors: int = 0
    key_values: float = 0
    pair_flops: float = 0


NO_INDEX = SparseIndex(selected_tokens=0)


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Multi-head, grouped-query or multi-query attention over a full or windowed cache.

    vectors : norms, biases and sinks beside the two projections' own
    gate_params : output gates and whatever else is split by query head
    value_projection : False where values are the keys before their norm (one projection, both cached)
    """

    hidden: int
    heads: int
    kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    vectors: int = 0
    gate_params: int = 0
    value_projection: bool = True
    window_tokens: int | None = None
    chunked: bool = False
    index: SparseIndex | None = None

    def shape(self) -> LayerShape:
        """Return the layer's shape: projections 2-D, cache 2 sides of kv_heads."""
        query = self.hidden * self.heads * self.qk_head_dim
        output = self.hidden * self.heads * self.v_head_dim
        key_value = self.hidden * self.kv_heads * (self.qk_head_dim + (self.v_head_dim if self.value_projection else 0))
        index = self.index or NO_INDEX
        params = query + output + key_value + self.gate_params + self.vectors + index.params + index.vectors
        kind: LayerKind = "full"
        if self.window_tokens is not None:
            kind = "chunked" if self.chunked else "sliding"
        return LayerShape(
            kind=kind,
            params_per_layer=params,
            active_params_per_layer=params,
            vector_params=self.vectors + index.vectors,
            unsharded_params=index.params,
            kv_params=key_value,
            heads=self.heads,
            kv_heads=self.kv_heads,
            qk_head_dim=self.qk_head_dim,
            v_head_dim=self.v_head_dim,
            kv_values_per_token=self.kv_heads * (self.qk_head_dim + self.v_head_dim),
            window_tokens=self.window_tokens,
            index_values_per_token=index.key_values,
            index_pair_flops=index.pair_flops,
            selected_tokens=self.index.selected_tokens if self.index else None,
        )


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2 report, section 2.1): one latent and one position part cached for all heads.

    q_rank : low rank of the query projection; None where queries are projected at once
    vectors : norms beside those of the two latents
    gate_params : output gate, split by head
    """

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_head_dim: int
    vectors: int = 0
    gate_params: int = 0
    index: SparseIndex | None = None

    def shape(self) -> LayerShape:
        """Return the layer's shape; the down-projections are whole on each GPU, as vLLM's deepseek_v2.py keeps them."""
        qk_head_dim = self.nope_dim + self.rope_dim
        query_in = self.hidden if self.q_rank is None else self.q_rank
        query_down = 0 if self.q_rank is None else self.hidden * self.q_rank
        latent_down = self.hidden * (self.kv_rank + self.rope_dim)
        up = query_in * self.heads * qk_head_dim + self.kv_rank * self.heads * (self.nope_dim + self.v_head_dim)
        output = self.heads * self.v_head_dim * self.hidden
        index = self.index or NO_INDEX
        vectors = self.vectors + self.kv_rank + (self.q_rank or 0) + index.vectors
        unsharded = query_down + latent_down + index.params
        params = unsharded + up + output + self.gate_params + vectors
        return LayerShape(
            kind="mla",
            params_per_layer=params,
            active_params_per_layer=params,
            vector_params=vectors,
            unsharded_params=unsharded,
            heads=self.heads,
            kv_heads=1,
            qk_head_dim=qk_head_dim,
            v_head_dim=self.v_head_dim,
            kv_values_per_token=self.kv_rank + self.rope_dim,
            rope_values_per_token=self.rope_dim,
            index_values_per_token=index.key_values,
            index_pair_flops=index.pair_flops,
            selected_tokens=self.index.selected_tokens if self.index else None,
        )


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """DeepSeek-V4 attention: a window of single-head keys that are their own values, and beyond it one entry for `ratio` tokens.

    ratio : tokens in one compressed entry; None for a layer with the window alone
    selected_entries : entries that the index lets a query read; None where it reads all
    """

    hidden: int
    heads: int
    head_dim: int
    q_rank: int
    output_groups: int
    output_rank: int
    window_tokens: int
    vectors: int = 0
    ratio: int | None = None
    selected_entries: int | None = None
    index_dim: int = 0
    index_heads: int = 0

    def shape(self) -> LayerShape:
        """Return the layer's shape (DeepSeek-V4 as in transformers 5.24, models/deepseek_v4)."""
        split = self.q_rank * self.heads * self.head_dim + self.heads * self.head_dim * self.output_rank
        split += self.output_groups * self.output_rank * self.hidden
        unsharded = self.hidden * (self.q_rank + self.head_dim)
        vectors = self.vectors + self.q_rank + self.head_dim + self.heads
        compressed, index_values, index_flops = 0.0, 0.0, 0.0
        selected: int | None = None
        if self.ratio is not None:
            wide = self.head_dim if self.selected_entries is None else 2 * self.head_dim
            unsharded += 2 * self.hidden * wide
            vectors += self.ratio * wide + self.head_dim
            compressed = self.head_dim / self.ratio
        if self.ratio is not None and self.selected_entries is not None:
            unsharded += 4 * self.hidden * self.index_dim
            unsharded += self.index_heads * (self.q_rank * self.index_dim + self.hidden)
            vectors += (2 * self.ratio + 1) * self.index_dim
            index_values = self.index_dim / self.ratio
            index_flops = 2.0 * self.index_heads * self.index_dim / self.ratio
            selected = self.selected_entries * self.ratio
        params = split + unsharded + vectors
        return LayerShape(
            kind="sliding" if self.ratio is None else "compressed",
            params_per_layer=params,
            active_params_per_layer=params,
            vector_params=vectors,
            unsharded_params=unsharded,
            heads=self.heads,
            kv_heads=1,
            qk_head_dim=self.head_dim,
            v_head_dim=self.head_dim,
            kv_values_per_token=self.head_dim,
            window_tokens=self.window_tokens,
            compressed_values_per_token=compressed,
            index_values_per_token=index_values,
            index_pair_flops=index_flops,
            selected_tokens=selected,
        )


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """A recurrent layer whose state is one matrix per value head (gated delta net, Kimi delta attention, lightning attention).

    matrices : projections, split by head; unsharded : low-rank gates kept whole
    conv_channels, conv_kernel : causal convolution before the state; its state keeps kernel - 1 inputs
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    matrices: int
    unsharded: int = 0
    vectors: int = 0
    conv_channels: int = 0
    conv_kernel: int = 1
    state_dtype: Literal["bf16", "fp32"] = "bf16"

    def shape(self) -> LayerShape:
        """Return the layer's shape; state as in vLLM's layers/mamba/mamba_utils.py."""
        vectors = self.vectors + self.conv_channels * self.conv_kernel
        params = self.matrices + self.unsharded + vectors
        return LayerShape(
            kind="linear",
            params_per_layer=params,
            active_params_per_layer=params,
            vector_params=vectors,
            unsharded_params=self.unsharded,
            heads=self.value_heads,
            kv_heads=self.key_heads,
            qk_head_dim=self.key_dim,
            v_head_dim=self.value_dim,
            state_values=self.value_heads * self.key_dim * self.value_dim,
            conv_values=self.conv_channels * (self.conv_kernel - 1),
            state_dtype=self.state_dtype,
        )


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A Mamba-2 layer (Dao and Gu 2024): input projection, convolution, state-space heads, gated norm, output projection.

    vectors : norms beside the gated one, and a convolution bias where there is one
    """

    hidden: int
    heads: int
    head_dim: int
    groups: int
    state_size: int
    conv_kernel: int
    vectors: int = 0
    state_dtype: Literal["bf16", "fp32"] = "bf16"

    def shape(self) -> LayerShape:
        """Return the layer's shape; state as in vLLM's layers/mamba/mamba_utils.py."""
        inner = self.heads * self.head_dim
        channels = inner + 2 * self.groups * self.state_size
        matrices = self.hidden * (inner + channels + self.heads) + inner * self.hidden
        vectors = self.vectors + channels * self.conv_kernel + 3 * self.heads + inner
        return LayerShape(
            kind="mamba2",
            params_per_layer=matrices + vectors,
            active_params_per_layer=matrices + vectors,
            vector_params=vectors,
            heads=self.heads,
            kv_heads=self.groups,
            qk_head_dim=self.state_size,
            v_head_dim=self.head_dim,
            state_values=inner * self.state_size,
            conv_values=channels * (self.conv_kernel - 1),
            state_dtype=self.state_dtype,
        )
