"""One way to serve one model: GPUs, quantization, layout and engine; and what each GPU then holds and does."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from planner.engines import EngineConfig
from planner.errors import InputError
from planner.hardware import GpuProfile, Node
from planner.models import (
    ATTENTION_KINDS,
    MIXER_KINDS,
    KvBytes,
    ModelSpec,
    Quantization,
    TokenFlops,
    WeightBytes,
    kv_bytes,
    token_flops,
    tp_refusal,
    weight_bytes,
)
from planner.models.sharding import check_layout

ACTIVATION_BYTES = {"fp32": 4}
KV_DTYPES = ("bf16", "fp8", "fp32")
_MAX_DEGREE = 4096


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one model is spread over GPUs.

    tp : GPUs that split every layer (tensor parallelism)
    pp : stages of consecutive layers (pipeline parallelism)
    ep : GPUs over which whole experts are spread (expert parallelism); 1 splits each expert over tp instead
    dp : copies of the attention layers with requests of their own (data parallelism)
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for field in ("tp", "pp", "ep", "dp"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_DEGREE:
                bound = f"must be a whole number from 1 to {_MAX_DEGREE}"
                raise InputError(f"parallelism.{field}", value, bound, "Give the number of GPUs, for example 2")
        if self.ep not in {1, self.tp * self.dp}:
            bound = f"must be 1 or tp × dp ({self.tp * self.dp})"
            raise InputError(
                "parallelism.ep", self.ep, bound, "An engine spreads the experts over all GPUs of a stage or over none"
            )

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that hold one copy of the model and serve one request stream [GPU]."""
        return self.tp * self.pp


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on GPUs under an engine; the parts fit together or an InputError says which don't."""

    gpu: GpuProfile
    model: ModelSpec
    quantization: Quantization
    kv_dtype: str
    parallelism: Parallelism
    engine: EngineConfig

    def __post_init__(self) -> None:
        if self.kv_dtype not in KV_DTYPES:
            raise InputError(
                "kv_dtype", self.kv_dtype, f"must be one of {', '.join(KV_DTYPES)}", "Choose how keys and values are stored"
            )
        if self.engine.kv_cache_dtype not in {"auto", self.kv_dtype}:
            bound = f"must be auto or the deployment's kv_dtype ({self.kv_dtype})"
            raise InputError("engine.kv_cache_dtype", self.engine.kv_cache_dtype, bound, "Give both the same")
        layout = self.parallelism
        check_layout(self.model, layout.tp, layout.pp, layout.ep)
        refusal = tp_refusal(self.model, layout.tp, self.quantization, layout.ep)
        if refusal is not None:
            raise InputError("parallelism.tp", layout.tp, refusal, "Choose a size that divides the model, or another quantization")

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica [GPU]."""
        return self.parallelism.gpus_per_replica

    @property
    def activation_element_bytes(self) -> int:
        """Bytes of one activation value [B]: 2, or 4 for weights computed in fp32."""
        return activation_element_bytes(self.quantization)


def activation_element_bytes(quantization: Quantization) -> int:
    """Return the bytes of one activation value [B]: 2, or 4 for weights computed in fp32."""
    return ACTIVATION_BYTES.get(quantization.compute_dtype, 2)


class Shard(NamedTuple):
    """What one GPU of the fullest pipeline stage holds, moves and computes.

    weights, kv, flops : after sharding; see planner.models
    activation_bytes_per_token : activations read and written for one token in all its layers [B/token]
    all_reduces : all-reduces of one step [1]; 0 at tp 1
    all_reduce_bytes_per_token : message bytes of one token in all of them [B/token]
    layers : transformer layers of the stage
    """

    weights: WeightBytes
    kv: KvBytes
    flops: TokenFlops
    activation_bytes_per_token: float
    all_reduces: int
    all_reduce_bytes_per_token: float
    layers: int


def shard(deployment: Deployment) -> Shard:
    """Return what one GPU holds and does."""
    return _shard(deployment.model, deployment.quantization, deployment.kv_dtype, deployment.parallelism)


@lru_cache(maxsize=1024)
def _shard(model: ModelSpec, quantization: Quantization, kv_dtype: str, layout: Parallelism) -> Shard:
    reduces, element_bytes = all_reduces(model, layout), activation_element_bytes(quantization)
    message_bytes = model.hidden * element_bytes
    return Shard(
        weights=weight_bytes(model, quantization, tp=layout.tp, pp=layout.pp, ep=layout.ep),
        kv=kv_bytes(model, kv_dtype, tp=layout.tp, pp=layout.pp),
        flops=token_flops(model, tp=layout.tp, pp=layout.pp, ep=layout.ep),
        activation_bytes_per_token=activation_bytes_per_token(model, layout, element_bytes),
        all_reduces=reduces,
        all_reduce_bytes_per_token=float(reduces * message_bytes),
        layers=-(-model.layers // layout.pp),
    )


def all_reduces(model: ModelSpec, layout: Parallelism) -> int:
    """Return the all-reduces of one step on one stage: one after each token mixer and one after each feed-forward part."""
    if layout.tp == 1:
        return 0
    parts = sum(group.count for group in model.groups if group.kind != "none")
    return -(-parts // layout.pp)


def activation_bytes_per_token(model: ModelSpec, layout: Parallelism, element_bytes: int = 2) -> float:
    """Return the activations that one GPU reads and writes for one token in all layers of its stage [B/token].

    element_bytes : bytes of one value [B]

    A layer moves its residual stream about eight times (two norms, two sums), its queries, keys and values twice and its
    feed-forward hidden values three times, the last two divided by tp:
    element_bytes · (8 · hidden + 2 · (heads · d + kv_heads · d) / tp + 3 · intermediate / tp). Valid for fused kernels; an
    estimate from the kernels' inputs and outputs, not measured.
    """
    values = 0.0
    for group in model.groups:
        if group.kind in MIXER_KINDS:
            values += group.count * 4 * model.hidden
            if group.kind in ATTENTION_KINDS and group.heads and group.kv_heads and group.qk_head_dim:
                values += group.count * 2 * (group.heads + group.kv_heads) * group.qk_head_dim / layout.tp
        elif group.kind in {"dense_mlp", "moe"}:
            values += group.count * (4 * model.hidden + 3 * feed_forward_width(model, group.kind) / layout.tp)
    return element_bytes * values / layout.pp


def feed_forward_width(model: ModelSpec, kind: str) -> float:
    """Return the hidden feed-forward values of one token in a layer of a kind, mean over its layers [value]; 0 without one.

    kind : "dense_mlp", or "moe", whose width counts each expert visited and the shared ones
    """
    widths = [
        (group.count, (group.top_k or 1) * (group.intermediate or 0) + group.shared_params / (3 * model.hidden))
        for group in model.groups
        if group.kind == kind
    ]
    layers = sum(count for count, _ in widths)
    return sum(count * width for count, width in widths) / layers if layers else 0.0


class Link(NamedTuple):
    """What an all-reduce of one tensor-parallel group travels over.

    kind : name of the link; topology : "switch", "pairs", "mesh", "torus" or "host"
    unidirectional_bytes_per_s : bytes/s of one GPU in one direction; None when no figure is known
    in_fast_domain : whether the whole group lies within one fast domain
    reason : one sentence for the user
    """

    kind: str
    topology: str
    unidirectional_bytes_per_s: float | None
    in_fast_domain: bool
    reason: str


def link_for(gpu: GpuProfile, tp: int, node: Node | None = None) -> Link | None:
    """Return the link that an all-reduce among `tp` GPUs uses; None for one GPU, which needs none.

    node : the machine; None for any, which then has no link that is sold separately, unless nothing else joins these GPUs

    In a mesh a GPU has one link to each other, so a group of `tp` uses tp - 1 of them. PCIe's rate is that of its data sheet, of
    which calibrations give the share that an all-reduce reaches.
    """
    if tp < 1:
        raise InputError("parallelism.tp", tp, "must be at least 1", "Give the GPUs that share one model")
    if tp == 1:
        return None
    fast = gpu.usual_link if node is None and gpu.pcie is not None else gpu.link
    joined = 1 if fast is None else fast.domain_gpus
    topology = "host" if fast is None else fast.topology
    if node is not None:
        joined, topology = node.largest_linked_gpus, node.topology
    if fast is not None and tp <= joined and topology != "host":
        rate = fast.between_two_bytes_per_s * (tp - 1) if topology == "mesh" else fast.unidirectional_bytes_per_s
        if tp == 2:
            rate = fast.between_two_bytes_per_s
        whole = f"{fast.kind} joins {joined} GPUs ({topology}), so {tp} reduce over it"
        return Link(fast.kind, topology, rate, in_fast_domain=True, reason=whole)
    if node is not None and tp > node.gpu_count and tp > joined:
        reason = f"{node.name} holds {node.gpu_count} GPUs, so {tp} reduce over the network between machines"
        return Link("network", "host", None, in_fast_domain=False, reason=reason)
    pcie = (node.pcie if node is not None else None) or gpu.pcie
    speed = None if pcie is None else pcie.theoretical_bytes_per_s
    return Link(
        "PCIe", "host", speed, in_fast_domain=False, reason=f"{_why_pcie(gpu, node)}, so {tp} reduce over PCIe and the host"
    )


def _why_pcie(gpu: GpuProfile, node: Node | None) -> str:
    fast = gpu.link
    if fast is None or fast.topology == "host":
        return f"{gpu.name} has no link beside PCIe"
    if node is None and fast.sold_separately:
        return f"{fast.kind} of {gpu.name} is sold separately"
    if node is not None and node.largest_linked_gpus == 1:
        return f"{node.name} has no {fast.kind}"
    return f"{fast.kind} joins only {fast.domain_gpus if node is None else node.largest_linked_gpus} GPUs"


def group_label(deployment: Deployment) -> str:
    """Return a deployment's model, weights and tensor-parallel size in one line, as fits name what they were fed with."""
    return f"{deployment.model.id} {deployment.quantization.id} tp{deployment.parallelism.tp}"
