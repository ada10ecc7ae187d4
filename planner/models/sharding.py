"""Which layouts split a model over GPUs, and which layers each pipeline stage holds."""

from planner.errors import InputError
from planner.models.quantization import Module, Quantization
from planner.models.spec import ATTENTION_KINDS, LayerGroup, ModelSpec

_VOCAB_PADDING = 64
_MAX_RANKS = 4096


def stage_layers(layers: int, pp: int) -> tuple[range, ...]:
    """Return the layer numbers of each pipeline stage.

    layers, pp : layers of the model, stages, pp <= layers

    Equal shares; what is left over goes one each to the stages before the last, backwards, since the last holds the head
    (vLLM, distributed/utils.py, get_pp_indices).

    >>> [len(stage) for stage in stage_layers(61, 4)]
    [15, 15, 16, 15]
    """
    sizes = [layers // pp] * pp
    for step in range(2, layers % pp + 2):
        sizes[-step] += 1
    starts = [sum(sizes[:stage]) for stage in range(pp)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def stage_count(group: LayerGroup, stage: range) -> int:
    """Return how many of a group's layers lie in a stage."""
    if len(stage) >= group.at[-1] + 1 and stage.start == 0:
        return len(group.at)
    return sum(1 for number in group.at if number in stage)


def tp_refusal(spec: ModelSpec, tp: int, quantization: Quantization | None = None, ep: int = 1) -> str | None:
    """Return why a model cannot be split over tp GPUs, or None when it can.

    quantization : adds the rule that a shard holds whole scale blocks or groups
    ep : above 1 experts are placed whole, so their width need not divide

    The rules are those that vLLM 0.33 checks when it loads a model: query heads divide by tp; KV heads divide by tp or tp by them
    (then they are replicated); heads and groups of recurrent layers and MLP widths divide. The vocabulary is first padded to a
    multiple of 64.
    """
    if tp == 1:
        return None
    for group in spec.groups:
        refusal = _mixer_refusal(group, tp) or _width_refusal(group, tp, quantization, ep)
        if refusal:
            return refusal
    padded = -(-spec.vocab // _VOCAB_PADDING) * _VOCAB_PADDING
    if padded % tp:
        return f"the vocabulary of {spec.vocab:,}, padded to {padded:,}, does not divide by {tp}"
    return None


def _mixer_refusal(group: LayerGroup, tp: int) -> str | None:
    heads, kv_heads = group.heads, group.kv_heads
    if heads is None or kv_heads is None:
        return None
    if heads % tp:
        return f"{heads} {'query' if group.kind in ATTENTION_KINDS else 'recurrent'} heads do not divide by {tp}"
    if group.kind in ATTENTION_KINDS:
        if kv_heads % tp and tp % kv_heads:
            return f"{kv_heads} KV heads neither divide by {tp} nor divide it"
    elif kv_heads % tp and kv_heads != 1:
        return f"{kv_heads} key heads or groups of a recurrent layer do not divide by {tp}"
    return None


def _width_refusal(group: LayerGroup, tp: int, quantization: Quantization | None, ep: int) -> str | None:
    width = group.intermediate
    if width is None or (group.kind == "moe" and ep > 1):
        return None
    what = "expert width" if group.kind == "moe" else "MLP width"
    if width % tp:
        return f"the {what} of {width:,} does not divide by {tp}"
    module: Module = "experts" if group.kind == "moe" else "mlp"
    if quantization is None or quantization.bits_of(module) >= quantization.other_bits:
        return None
    whole = quantization.block_size or (quantization.group_size if quantization.id.startswith("int4") else None)
    if whole is None or (width // tp) % whole == 0:
        return None
    return f"the {what} of {width:,} over {tp} leaves {width // tp:,}, which the {quantization.id} scales of {whole} do not divide"


def legal_tp(spec: ModelSpec, gpu_count: int, quantization: Quantization | None = None) -> tuple[int, ...]:
    """Return the tensor-parallel sizes up to gpu_count over which a model can be split.

    Raises InputError unless gpu_count is a whole number above 0.
    """
    checked_ranks("gpu_count", gpu_count)
    return tuple(tp for tp in range(1, gpu_count + 1) if tp_refusal(spec, tp, quantization) is None)


def checked_ranks(field: str, value: int) -> int:
    """Return a number of GPUs, which must be a whole number from 1 to 4,096."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_RANKS:
        raise InputError(field, value, f"must be a whole number from 1 to {_MAX_RANKS:,}", "Give a number of GPUs")
    return value


def check_layout(spec: ModelSpec, tp: int, pp: int, ep: int = 1) -> None:
    """Raise InputError for a layout that the model cannot be split into.

    ep : GPUs that share the routed experts; it divides tp or tp divides it (attention is then replicated over ep / tp ranks)
    """
    checked_ranks("parallelism.tp", tp)
    checked_ranks("parallelism.pp", pp)
    checked_ranks("parallelism.ep", ep)
    refusal = tp_refusal(spec, tp, ep=ep)
    if refusal is not None:
        legal = ", ".join(map(str, legal_tp(spec, 16)))
        raise InputError("parallelism.tp", tp, f"cannot split {spec.id}: {refusal}", f"Choose one of {legal}")
    if pp > spec.layers:
        raise InputError("parallelism.pp", pp, f"must be at most the model's {spec.layers} layers", "Choose fewer stages")
    if ep == 1:
        return
    experts = max((group.experts or 0 for group in spec.groups), default=0)
    if ep > experts:
        raise InputError("parallelism.ep", ep, f"must be at most the model's {experts} routed experts", "Choose a smaller ep")
    if tp % ep and ep % tp:
        raise InputError("parallelism.ep", ep, f"must divide tp {tp} or be a multiple of it", "Choose ep = tp")
