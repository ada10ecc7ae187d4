"""Where a GPU's memory goes under an engine, and how many KV blocks are left."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from planner.deployment import Deployment
from planner.engines import vllm_facts
from planner.errors import InputError
from planner.memory import activation
from planner.memory.held import held_weights_bytes
from planner.memory.kv_layout import KvLayout, kv_layout
from planner.memory.visible import visible_memory_bytes, visible_memory_source
from planner.provenance import Kind, Source
from planner.units import GIB

PartName = Literal["weights", "activations", "sequence slots", "graphs", "other libraries", "kv cache", "not used"]
ShortfallKind = Literal["weights", "one block", "one sequence"]

_NO_LENGTH = 2**27
_LOGGED = Source(kind="measured", ref="the engine's own 'GPU KV cache size' line, as entered")


class MemoryPart(NamedTuple):
    """One segment of the memory bar: what it is, its size [B] and where the figure comes from."""

    name: PartName
    bytes: float
    source: Source


class Shortfall(NamedTuple):
    """Why a deployment can't start.

    kind : "weights" leave nothing for the cache, the cache holds less than "one block", or less than "one sequence"
    missing_bytes : memory that one GPU lacks [B]
    reason : one sentence with the figures
    """

    kind: ShortfallKind
    missing_bytes: float
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """One GPU's memory, in bytes; the parts add up to total_bytes.

    total_bytes : memory that the engine sees
    requested_bytes : what gpu_memory_utilization lets it take
    weights_bytes, activation_bytes, slots_bytes, graphs_bytes, non_torch_bytes : taken before the cache; slots are buffers for
      each of max_num_seqs, graphs are 0 where the release doesn't count them
    uncounted_graphs_bytes : CUDA graphs outside the budget (vLLM up to 0.19), which must fit beside requested_bytes
    kv_bytes : memory of the blocks
    block_size : tokens of a block [token]
    num_gpu_blocks : blocks allocated; num_blocks : those that sequences can use, one less in vLLM (the null block)
    kv_tokens : tokens of cache as the engine reports them [token]; None while nothing fits
    max_model_len : longest sequence that the engine takes [token]; None when the model states no length
    max_concurrency : sequences of max_model_len that fit at once [seq]
    layout : how the pool is shared by layers of different kinds
    shortfall : None when the deployment starts
    """

    total_bytes: float
    requested_bytes: float
    weights_bytes: float
    activation_bytes: float
    slots_bytes: float
    graphs_bytes: float
    uncounted_graphs_bytes: float
    non_torch_bytes: float
    kv_bytes: float
    block_size: int
    num_gpu_blocks: int
    num_blocks: int
    kv_tokens: int | None
    max_model_len: int | None
    max_concurrency: float | None
    layout: KvLayout
    shortfall: Shortfall | None
    sources: tuple[tuple[PartName, Source], ...]

    @property
    def fits(self) -> bool:
        """Whether the engine would start."""
        return self.shortfall is None

    def parts(self) -> tuple[MemoryPart, ...]:
        """Return the segments of the memory bar, largest obligations first; they sum to total_bytes when the deployment fits."""
        sources = dict(self.sources)
        sizes: tuple[tuple[PartName, float], ...] = (
            ("weights", self.weights_bytes),
            ("activations", self.activation_bytes),
            ("sequence slots", self.slots_bytes),
            ("graphs", self.graphs_bytes),
            ("other libraries", self.non_torch_bytes),
            ("kv cache", self.kv_bytes),
        )
        rest = self.total_bytes - sum(size for _, size in sizes)
        return tuple(MemoryPart(name, size, sources[name]) for name, size in (*sizes, ("not used", max(0.0, rest))))

    def blocks_per_sequence(self, tokens: int) -> int:
        """Return the blocks that a decoding sequence of `tokens` holds [block]."""
        return self.layout.blocks_for(tokens, in_flight_tokens=0)

    def sequences_that_fit(self, tokens: int) -> float | None:
        """Return how many decoding sequences of `tokens` the cache holds [seq]; None for a model that caches nothing.

        tokens : prompt and output of each [token]
        """
        if tokens < 1:
            raise InputError("tokens", tokens, "must be at least 1", "Give the length of a sequence")
        held = self.blocks_per_sequence(tokens)
        return self.num_blocks / held if held else None

    def one_group_blocks(self, *tokens: int) -> int:
        """Return the pool as blocks of one full-attention group [block], exact for sequences of `tokens` in equal numbers.

        For a model whose layers cache alike this is num_blocks; with windows or recurrent state the pool holds as many sequences of
        `tokens` as this many plain blocks would.
        """
        if self.layout.uniform:
            return self.num_blocks
        plain = sum(-(-each // self.block_size) for each in tokens)
        held = sum(self.blocks_per_sequence(each) for each in tokens)
        return self.num_blocks * plain // held if held else self.num_blocks


@lru_cache(maxsize=4096)
def memory_budget(deployment: Deployment, logged_kv_tokens: int | None = None) -> MemoryBudget:
    """Return where one GPU's memory goes and how many KV blocks are left, as the deployment's engine computes it.

    logged_kv_tokens : the engine's own "GPU KV cache size" [token], which replaces the computed one

    vLLM: available = ceil(total · utilisation) - weights - activation peak - buffers - libraries - CUDA graphs (from 0.20);
    blocks = available // bytes per block; the first block is never used. Source: determine_available_memory and
    get_kv_cache_config of each release. For pipeline stages the one that holds most is taken. A deployment that doesn't fit is a
    result with a shortfall, not an error.

    Checked on 35 start-ups of vLLM 0.19 on H100 (`memory_report`): median error 0.01 % of the KV tokens, worst 1.4 %. Start-ups of
    0.19 to 0.31 on A100, A10G and RTX PRO 6000 were met within 0.4 to 6 %, the libraries' share being the least certain; enter the
    logged size where one is known.
    """
    if logged_kv_tokens is not None and (isinstance(logged_kv_tokens, bool) or logged_kv_tokens < 1):
        raise InputError(
            "engine.logged_kv_tokens", logged_kv_tokens, "must be at least 1", "Copy the number of the engine's log line"
        )
    needs = _vllm_needs(deployment) if deployment.engine.engine == "vllm" else _other_needs(deployment)
    if logged_kv_tokens is not None:
        needs = needs._replace(num_gpu_blocks=_logged_blocks(deployment, needs, logged_kv_tokens), kv_source=_LOGGED)
    return _budget(deployment, needs, logged_kv_tokens)


def reported_kv_tokens(deployment: Deployment, layout: KvLayout, num_gpu_blocks: int, max_model_len: int | None) -> int:
    """Return the "GPU KV cache size" that vLLM prints for a pool [token], by its release.

    Up to 0.19: num_gpu_blocks // groups × block_size. From 0.20: int(max concurrency × max_model_len).
    """
    if not layout.groups:
        return 0
    by_concurrency = deployment.engine.engine != "vllm" or vllm_facts(deployment.engine.version).capacity_from_concurrency
    if by_concurrency and max_model_len is not None:
        return int(num_gpu_blocks / max(1, layout.blocks_for(max_model_len)) * max_model_len)
    return num_gpu_blocks // len(layout.groups) * layout.block_tokens


def blocks_of_reported(deployment: Deployment, layout: KvLayout, kv_tokens: int) -> int:
    """Return the pool's blocks behind a printed "GPU KV cache size" [block]: the inverse of `reported_kv_tokens`."""
    length = _length_asked(deployment)
    by_concurrency = deployment.engine.engine != "vllm" or vllm_facts(deployment.engine.version).capacity_from_concurrency
    if by_concurrency and length is not None:
        return math.ceil(kv_tokens / length * layout.blocks_for(length) - 1e-9)
    return kv_tokens // layout.block_tokens * max(1, len(layout.groups))


def _logged_blocks(deployment: Deployment, needs: "_Needs", logged_kv_tokens: int) -> int:
    """Return the pool's blocks behind a logged size [block]; InputError when no pool of this GPU could have it."""
    blocks = blocks_of_reported(deployment, needs.layout, logged_kv_tokens)
    held_gib = blocks * needs.layout.bytes_per_block / GIB
    if blocks <= needs.null_blocks or held_gib > needs.total_bytes / GIB:
        bound = f"would be {blocks} blocks of {held_gib:.3g} GiB in {needs.total_bytes / GIB:.3g} GiB of each {deployment.gpu.name}"
        remedy = "Copy the number of the engine's log line, and name the model, GPU and TP size that it ran with"
        raise InputError("engine.logged_kv_tokens", logged_kv_tokens, bound, remedy)
    return blocks


class _Needs(NamedTuple):
    """What an engine takes before the cache, and the pool that is left."""

    total_bytes: float
    requested_bytes: float
    activation_bytes: float
    slots_bytes: float
    graphs_bytes: float
    uncounted_graphs_bytes: float
    non_torch_bytes: float
    available_bytes: float
    num_gpu_blocks: int
    null_blocks: int
    layout: KvLayout
    kv_source: Source
    activation_source: Source
    graphs_source: Source
    other_source: Source


def _vllm_needs(deployment: Deployment) -> _Needs:
    engine, facts = deployment.engine, vllm_facts(deployment.engine.version)
    total = visible_memory_bytes(deployment.gpu)
    requested = float(math.ceil(total * engine.gpu_memory_utilization))
    peak = activation.activation_parts(deployment).peak_bytes
    slots = activation.sequence_slot_bytes(deployment)
    graphs = activation.graphs_bytes(deployment)
    other = activation.non_torch_bytes(deployment)
    counted = graphs if facts.graphs_in_budget else 0.0
    available = engine.kv_cache_memory_bytes or requested - held_weights_bytes(deployment) - peak - slots - counted - other
    layout = kv_layout(deployment)
    on_h100 = deployment.gpu.id.startswith("h100")
    return _Needs(
        total_bytes=total,
        requested_bytes=requested,
        activation_bytes=peak,
        slots_bytes=slots,
        graphs_bytes=counted,
        uncounted_graphs_bytes=graphs - counted,
        non_torch_bytes=other,
        available_bytes=available,
        num_gpu_blocks=_blocks(available, layout),
        null_blocks=1,
        layout=layout,
        kv_source=_kv_source(deployment, layout),
        activation_source=_source(
            "published" if deployment.gpu.vendor == "NVIDIA" else "assumed",
            "tensors alive at the peak of vLLM's profiling run on CUDA, read in its source",
        ),
        graphs_source=_source("fitted" if on_h100 else "assumed", "line through 26 estimates of vLLM 0.19 on H100"),
        other_source=_source("measured" if on_h100 else "assumed", "median of 39 start-up logs of vLLM 0.19 on H100"),
    )


def _other_needs(deployment: Deployment) -> _Needs:
    """SGLang keeps a share of all memory for weights and cache; TensorRT-LLM takes a share of what is free after loading."""
    engine = deployment.engine
    total = visible_memory_bytes(deployment.gpu)
    weights, other = held_weights_bytes(deployment), activation.non_torch_bytes(deployment)
    tokens = engine.max_num_batched_tokens
    peak = activation.forward_peak_bytes(deployment, tokens) + activation.moe_workspace_bytes(deployment, tokens)
    if engine.engine == "sglang":
        requested = total * engine.gpu_memory_utilization
        available = requested - weights - other
        reserve = total - requested
    else:
        free = total - weights - other - peak
        available = free * engine.gpu_memory_utilization
        requested = total - free * (1.0 - engine.gpu_memory_utilization)
        reserve = peak
    layout = kv_layout(deployment)
    return _Needs(
        total_bytes=total,
        requested_bytes=requested,
        activation_bytes=reserve,
        slots_bytes=0.0,
        graphs_bytes=0.0,
        uncounted_graphs_bytes=0.0,
        non_torch_bytes=other,
        available_bytes=engine.kv_cache_memory_bytes or available,
        num_gpu_blocks=_blocks(engine.kv_cache_memory_bytes or available, layout),
        null_blocks=0,
        layout=layout,
        kv_source=_source("assumed", f"the rule of {engine.engine}'s source, not checked against its logs"),
        activation_source=_source("assumed", f"what {engine.engine} keeps free for activations and graphs"),
        graphs_source=_source("assumed", "within what the engine keeps free"),
        other_source=_source("assumed", "median of 39 start-up logs of vLLM 0.19 on H100"),
    )


def _kv_source(deployment: Deployment, layout: KvLayout) -> Source:
    """Say how far the rule for the blocks is known to hold: on GPUs, for attention that vLLM keeps whole or in a window."""
    checked = deployment.gpu.vendor in {"NVIDIA", "AMD"} and all(group.kind != "state" for group in layout.groups)
    if checked and all(group.kind != "compressed" for group in deployment.model.groups):
        return Source(kind="published", ref=f"vLLM {deployment.engine.version}, v1/core/kv_cache_utils.py", confidence="high")
    return _source("assumed", "vLLM's rule for layers of several kinds, not checked for this cache or accelerator")


def _budget(deployment: Deployment, needs: _Needs, logged_kv_tokens: int | None) -> MemoryBudget:
    layout = needs.layout
    usable = max(0, needs.num_gpu_blocks - needs.null_blocks)
    asked = _length_asked(deployment)
    longest = layout.longest_tokens(usable, asked or _NO_LENGTH)
    shortfall = None if logged_kv_tokens is not None else _shortfall(deployment, needs, usable)
    length = asked if asked is not None and longest >= asked else (longest or None)
    concurrency = needs.num_gpu_blocks / layout.blocks_for(length) if length and layout.groups else None
    kv_tokens = logged_kv_tokens
    if kv_tokens is None and shortfall is None:
        kv_tokens = reported_kv_tokens(deployment, layout, needs.num_gpu_blocks, length)
    weights_source = deployment.quantization.source or deployment.model.source_for("groups")
    return MemoryBudget(
        total_bytes=needs.total_bytes,
        requested_bytes=needs.requested_bytes,
        weights_bytes=held_weights_bytes(deployment),
        activation_bytes=needs.activation_bytes,
        slots_bytes=needs.slots_bytes,
        graphs_bytes=needs.graphs_bytes,
        uncounted_graphs_bytes=needs.uncounted_graphs_bytes,
        non_torch_bytes=needs.non_torch_bytes,
        kv_bytes=needs.num_gpu_blocks * layout.bytes_per_block,
        block_size=layout.block_tokens,
        num_gpu_blocks=needs.num_gpu_blocks,
        num_blocks=usable,
        kv_tokens=kv_tokens,
        max_model_len=length,
        max_concurrency=concurrency,
        layout=layout,
        shortfall=shortfall,
        sources=(
            ("weights", weights_source),
            ("activations", needs.activation_source),
            ("sequence slots", needs.activation_source),
            ("graphs", needs.graphs_source),
            ("other libraries", needs.other_source),
            ("kv cache", needs.kv_source),
            ("not used", visible_memory_source(deployment.gpu)),
        ),
    )


def _shortfall(deployment: Deployment, needs: _Needs, usable_blocks: int) -> Shortfall | None:
    """Say what is missing, or return None when the engine starts."""
    layout, length = needs.layout, deployment.engine.max_model_len
    if needs.available_bytes <= 0:
        taken_gib = (needs.requested_bytes - needs.available_bytes) / GIB
        reason = (
            f"Weights, activations and buffers take {taken_gib:.1f} GiB on each GPU; the engine may use "
            f"{needs.requested_bytes / GIB:.1f} of {needs.total_bytes / GIB:.1f} GiB"
        )
        return Shortfall("weights", layout.bytes_per_block - needs.available_bytes, reason)
    if usable_blocks < 1 and layout.groups:
        missing = layout.bytes_per_block * (1 + needs.null_blocks) - needs.available_bytes
        return Shortfall("one block", missing, f"{needs.available_bytes / GIB:.2f} GiB are left for the cache, less than one block")
    if length is None:
        return None
    wanted = layout.blocks_for(length)
    if wanted <= usable_blocks:
        return None
    missing = (wanted - usable_blocks) * layout.bytes_per_block
    longest = layout.longest_tokens(usable_blocks, length)
    reason = f"One sequence of {length} tokens takes {wanted} blocks and {usable_blocks} are left, room for {longest} tokens"
    return Shortfall("one sequence", missing, reason)


def _blocks(available_bytes: float, layout: KvLayout) -> int:
    """Whole blocks in what is left [block]; a model without a cache has the one that the engine always allocates."""
    if not layout.groups:
        return 1
    return max(0, math.floor(available_bytes / layout.bytes_per_block))


def _length_asked(deployment: Deployment) -> int | None:
    return deployment.engine.max_model_len or deployment.model.max_positions


def _source(kind: Kind, ref: str) -> Source:
    return Source(kind=kind, ref=ref, confidence="low" if kind == "assumed" else "medium")
