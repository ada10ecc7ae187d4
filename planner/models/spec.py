"""A language model as layer groups: what each layer stores, moves and computes, whatever its family."""

import datetime as dt
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from planner.models.quantization import QUANTIZATIONS, Quantization, WeightDtype
from planner.provenance import Source

LayerKind = Literal["full", "sliding", "chunked", "compressed", "mla", "linear", "mamba2", "dense_mlp", "moe", "none"]
MIXER_KINDS = frozenset({"full", "sliding", "chunked", "compressed", "mla", "linear", "mamba2"})
ATTENTION_KINDS = frozenset({"full", "sliding", "chunked", "compressed", "mla"})
MAX_LAYERS = 1_000
MAX_PARAMS = 10**15
NAME_PATTERN = r"^[^\x00-\x1f\x7f]+$"
ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

Params = Annotated[int, Field(ge=0, le=MAX_PARAMS)]
Size = Annotated[int, Field(ge=1, le=10**9)]
Values = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]


def layer_numbers(text: object) -> object:
    """Expand "0-2,5" to (0, 1, 2, 5); anything but text passes through to the validator.

    >>> layer_numbers("0-2,5")
    (0, 1, 2, 5)
    """
    if not isinstance(text, str):
        return text
    numbers: list[int] = []
    for run in text.split(","):
        first, dash, last = run.partition("-")
        start = int(first)
        stop = int(last) if dash else start
        if not start <= stop < MAX_LAYERS:
            msg = f"a run of layers goes upwards and stays below {MAX_LAYERS}"
            raise ValueError(msg)
        numbers.extend(range(start, stop + 1))
    return tuple(numbers)


def layer_runs(numbers: tuple[int, ...]) -> str:
    """Write layer numbers as runs, the inverse of layer_numbers.

    >>> layer_runs((0, 1, 2, 5))
    '0-2,5'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


LayerNumbers = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=MAX_LAYERS)], ...],
    BeforeValidator(layer_numbers),
    PlainSerializer(layer_runs, return_type=str),
]


class LayerShape(BaseModel):
    """What one layer of a group holds: parameters by how they are sharded, cache, state and attention."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: LayerKind = Field(
        description="token mixer (attention, recurrent) or feed-forward kind; 'none' is a layer that was removed"
    )
    params_per_layer: Params = Field(description="all parameters of this part of one layer, every expert included")
    active_params_per_layer: Params = Field(description="parameters that one token touches")
    vector_params: Params = Field(default=0, description="norms, biases, convolution kernels: never quantised, whole on each GPU")
    router_params: Params = Field(default=0, description="expert router: kept in 16 bit, whole on each GPU")
    unsharded_params: Params = Field(default=0, description="other matrices that tensor parallelism does not split")
    kv_params: Params = Field(default=0, description="key and value projections, split by KV head and replicated beyond that")

    heads: Size | None = Field(default=None, description="query heads; value heads of a recurrent layer")
    kv_heads: Size | None = Field(default=None, description="KV heads; key heads or groups of a recurrent layer")
    qk_head_dim: Size | None = Field(default=None, description="width of one query or key head")
    v_head_dim: Size | None = Field(default=None, description="width of one value head")
    kv_values_per_token: Values = Field(default=0, description="cached values of one token, all KV heads")
    rope_values_per_token: Values = Field(default=0, description="of these, position values of a latent cache")
    window_tokens: Size | None = Field(default=None, description="tokens kept and seen by a sliding or chunked layer")
    compressed_values_per_token: Values = Field(default=0, description="values kept for every token beside those in the window")
    state_values: Values = Field(default=0, description="recurrent state of one sequence")
    conv_values: Values = Field(default=0, description="convolution state of one sequence, in the model's dtype")
    state_dtype: Literal["bf16", "fp32"] = Field(default="bf16", description="dtype of the recurrent state")
    index_values_per_token: Values = Field(default=0, description="index keys of sparse attention")
    index_pair_flops: Values = Field(default=0, description="FLOPs of the index for one query-key pair")
    selected_tokens: Size | None = Field(default=None, description="tokens that sparse attention reads at most")

    intermediate: Size | None = Field(default=None, description="width of the MLP or of one expert")
    experts: Size | None = Field(default=None, description="routed experts")
    top_k: Size | None = Field(default=None, description="routed experts that one token visits")
    expert_params: Params = Field(default=0, description="parameters of one routed expert")
    shared_params: Params = Field(default=0, description="parameters of the shared experts")

    @model_validator(mode="after")
    def _consistent(self) -> "LayerShape":
        parts = self.vector_params + self.router_params + self.unsharded_params + self.kv_params
        if parts + self.all_expert_params > self.params_per_layer:
            msg = f"the parts of a {self.kind} layer exceed its {self.params_per_layer} parameters"
            raise ValueError(msg)
        if self.active_params_per_layer > self.params_per_layer:
            msg = f"a {self.kind} layer cannot have more active parameters than parameters"
            raise ValueError(msg)
        if self.rope_values_per_token > self.kv_values_per_token:
            msg = f"a {self.kind} layer cannot cache more position values than values"
            raise ValueError(msg)
        if self.kind in ATTENTION_KINDS and None in (self.heads, self.kv_heads, self.qk_head_dim, self.v_head_dim):
            msg = f"a {self.kind} layer needs heads, kv_heads, qk_head_dim and v_head_dim"
            raise ValueError(msg)
        if self.kind in {"sliding", "chunked", "compressed"} and self.window_tokens is None:
            msg = f"a {self.kind} layer needs window_tokens"
            raise ValueError(msg)
        if self.kind == "moe" and (self.experts is None or self.top_k is None or self.top_k > self.experts):
            msg = "a moe layer needs experts and top_k, top_k at most experts"
            raise ValueError(msg)
        return self

    @property
    def all_expert_params(self) -> int:
        """Parameters of all routed experts of one layer."""
        return (self.experts or 0) * self.expert_params

    @property
    def sharded_params(self) -> int:
        """Matrix parameters of one layer that tensor parallelism splits evenly, routed experts aside."""
        whole = self.vector_params + self.router_params + self.unsharded_params
        return self.params_per_layer - self.all_expert_params - whole - self.kv_params


class LayerGroup(LayerShape):
    """Equal layer parts and the numbers of the layers that have them."""

    at: LayerNumbers = Field(min_length=1, max_length=MAX_LAYERS, description='layer numbers from 0; in files "0-2,5"')

    @model_validator(mode="after")
    def _ascending(self) -> "LayerGroup":
        if any(later <= earlier for earlier, later in pairwise(self.at)):
            msg = "layer numbers must go upwards without repeats"
            raise ValueError(msg)
        return self

    @property
    def count(self) -> int:
        """Layers in the group."""
        return len(self.at)


class Published(BaseModel):
    """What its makers and its hub page say of a model, to hold beside the computed counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    total_billion: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="advertised parameters / 1e9")
    active_billion: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="advertised active parameters / 1e9")
    hub_params: int | None = Field(default=None, gt=0, le=MAX_PARAMS, description="parameters of the hub's safetensors files")
    hub_note: str | None = Field(default=None, max_length=300, description="why the hub's figure differs from the computed one")


class ModelSpec(BaseModel):
    """A model's shape, from which weights, cache, state and FLOPs follow; also the layout of a catalogue file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    id: str = Field(pattern=ID_PATTERN, max_length=128)
    name: str = Field(pattern=NAME_PATTERN, min_length=1, max_length=200, description="data, never markup")
    family: str = Field(pattern=NAME_PATTERN, min_length=1, max_length=100, description="model_type of its config.json")
    hf_repo: str | None = Field(default=None, pattern=NAME_PATTERN, max_length=200)
    licence: str | None = Field(default=None, pattern=NAME_PATTERN, max_length=200)
    released: dt.date | None = None
    layers: int = Field(ge=1, le=MAX_LAYERS)
    hidden: Size = Field(description="width of the residual stream")
    vocab: Size
    max_positions: Size | None = Field(default=None, description="longest context that the checkpoint states [token]")
    groups: tuple[LayerGroup, ...] = Field(min_length=1, max_length=MAX_LAYERS)
    embedding_params: Params = Field(description="token embedding")
    head_params: Params = Field(description="language-model head as a matrix; when tied it is the embedding itself")
    tied_embeddings: bool
    position_params: Params = Field(default=0, description="learned position table, looked up and not multiplied")
    other_params: Params = Field(default=0, description="final norm and whatever else lies outside the layers")
    vision_params: Params = Field(default=0, description="vision tower of the same checkpoint, not in total_params")
    mtp_params: Params = Field(default=0, description="multi-token-prediction layers, not in total_params; loaded for speculation")
    weight_dtype: WeightDtype = Field(description="dtype of the unquantised checkpoint")
    native_quantization: Quantization | None = Field(default=None, description="quantisation that the checkpoint comes in")
    published: Published | None = None
    sources: dict[str, Source] = Field(min_length=1, max_length=100, description='by field; "*" for the rest')

    @model_validator(mode="after")
    def _layers_exist(self) -> "ModelSpec":
        if any(group.at[-1] >= self.layers for group in self.groups):
            msg = f"a layer group names a layer beyond the model's {self.layers}"
            raise ValueError(msg)
        return self

    def __hash__(self) -> int:
        return hash((self.id, self.groups))

    @property
    def layer_params(self) -> int:
        """Parameters of all layers."""
        return sum(group.count * group.params_per_layer for group in self.groups)

    @property
    def total_params(self) -> int:
        """All parameters of the language model, a tied head counted once."""
        head = 0 if self.tied_embeddings else self.head_params
        return self.embedding_params + self.position_params + self.layer_params + self.other_params + head

    @property
    def active_params(self) -> int:
        """Parameters that a token touches, with the head and without the lookup of an untied embedding."""
        in_layers = sum(group.count * group.active_params_per_layer for group in self.groups)
        return in_layers + self.head_params + self.position_params + self.other_params

    @property
    def default_quantization(self) -> Quantization:
        """The quantisation that the checkpoint is loaded in when nothing else is asked for."""
        return self.native_quantization or QUANTIZATIONS[self.weight_dtype]

    @property
    def is_moe(self) -> bool:
        """Whether some layer routes tokens to experts."""
        return any(group.kind == "moe" for group in self.groups)

    def source_for(self, field: str) -> Source:
        """Return where a field's figure comes from; the source named "*" stands for every field without one."""
        return self.sources.get(field) or self.sources["*"]
