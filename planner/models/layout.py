"""What a reader makes of a config.json, and the rules that many families share: windows, dense layers, sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.models.config_fields import Fields, divided
from planner.models.mixers import GroupedAttention
from planner.models.spec import LayerGroup, LayerShape

Layer = tuple[LayerShape, ...]
_SLIDING = "sliding_attention"
_FULL = "full_attention"


@dataclass(frozen=True, slots=True)
class Layout:
    """A model's layers in order and what lies outside them.

    other_params : final norm and the like; position_params : learned position table
    """

    hidden: int
    vocab: int
    layers: Sequence[Layer]
    other_params: int
    position_params: int = 0
    max_positions: int | None = None


def grouped(layers: Sequence[Layer]) -> tuple[LayerGroup, ...]:
    """Join equal layer parts into groups, in the order in which they first appear."""
    places: dict[LayerShape, list[int]] = {}
    for number, parts in enumerate(layers):
        for part in parts:
            places.setdefault(part, []).append(number)
    return tuple(LayerGroup(at=tuple(at), **dict(part)) for part, at in places.items())


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that nearly every config states."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    def attention(self, window_tokens: int | None = None, vectors: int = 0, gate_params: int = 0) -> GroupedAttention:
        """Return grouped-query attention of these sizes."""
        return GroupedAttention(
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            qk_head_dim=self.head_dim,
            v_head_dim=self.head_dim,
            vectors=vectors,
            gate_params=gate_params,
            window_tokens=window_tokens,
        )

    @property
    def query_values(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_values(self) -> int:
        """Width of all key heads."""
        return self.kv_heads * self.head_dim


def read_sizes(fields: Fields) -> Sizes:
    """Read hidden size, layers and heads; an absent num_key_value_heads means one KV head for each query head."""
    hidden = fields.count("hidden_size")
    heads = fields.heads("num_attention_heads")
    kv_heads = fields.optional("num_key_value_heads", most=heads) or heads
    divided(heads, kv_heads, "num_attention_heads by num_key_value_heads")
    head_dim = fields.optional("head_dim", "attention_head_dim") or divided(hidden, heads, "hidden_size by num_attention_heads")
    return Sizes(hidden=hidden, layers=fields.layers(), heads=heads, kv_heads=kv_heads, head_dim=head_dim)


def max_positions(fields: Fields) -> int | None:
    """Return the longest context stated [token]; Cohere's model_max_length goes before max_position_embeddings, as in vLLM."""
    return fields.optional("model_max_length", "max_position_embeddings", "seq_length", "n_positions", most=10**9)


def layer_types(fields: Fields, layers: int, allowed: Sequence[str]) -> list[str] | None:
    """Return the layer_types list with every entry among `allowed`, or None when the config has none."""
    listed = fields.per_layer("layer_types", layers)
    if listed is None:
        return None
    for entry in listed:
        if not isinstance(entry, str) or entry not in allowed:
            raise InputError("config.layer_types", entry, f"must be one of {', '.join(allowed)}", "Check the list in config.json")
    return [str(entry) for entry in listed]


def effective_window(fields: Fields) -> int | None:
    """Return the sliding window [token], or None where there is none or it is no shorter than the longest context."""
    window = fields.optional("sliding_window", most=10**9)
    longest = max_positions(fields)
    return None if window is None or (longest is not None and window >= longest) else window


def windows(fields: Fields, layers: int, every: int | None = None) -> list[int | None]:
    """Return each layer's window [token], None for a full layer.

    layer_types decides; without it every `every`-th layer is full and the others slide (the config's
    sliding_window_pattern before the family's habit); with neither, a stated window holds in every layer.
    """
    window = effective_window(fields)
    listed = layer_types(fields, layers, (_SLIDING, _FULL))
    if listed is not None:
        if window is None and fields.get("sliding_window") is None and _SLIDING in listed:
            raise InputError("config.sliding_window", None, "is missing", "Add the window of the sliding_attention layers")
        return [window if entry == _SLIDING else None for entry in listed]
    pattern = fields.optional("sliding_window_pattern", "_sliding_window_pattern", most=layers) or every
    if pattern is None:
        return [window] * layers
    return [window if (number + 1) % pattern else None for number in range(layers)]


def bias_values(*, query: bool, output: bool, sizes: Sizes) -> int:
    """Return the bias values of an attention layer: of its query, key and value projections, and of its output projection."""
    return (sizes.query_values + 2 * sizes.kv_values if query else 0) + (sizes.hidden if output else 0)
