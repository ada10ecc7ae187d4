"""How vLLM lays the caches of all layers into one pool of blocks, and what a sequence takes of it.

All layers of one cache type get the same block table. A model of one type has one group; a model of several is cut into groups of
equally many layers, so that a block of any group has the same size and all draw from one pool (`v1/core/kv_cache_utils.py`). A
sequence then holds blocks in every group: for its whole length in full attention, for a window in sliding attention, and a fixed
few for recurrent state.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from planner.deployment import Deployment
from planner.engines import vllm_facts
from planner.models import MIXER_KINDS, LayerGroup, ModelSpec, kv_bytes

GroupKind = Literal["full", "window", "chunk", "state"]

_KERNEL_BLOCK_TOKENS = 16
_KINDS: dict[str, GroupKind] = {"full": "full", "mla": "full", "sliding": "window", "chunked": "chunk"}


class CacheType(NamedTuple):
    """Layers whose caches look the same.

    token_bytes : cache of one token in one layer on one GPU [B/token]; 0 for state
    state_bytes : state of one sequence in one layer on one GPU [B/seq]
    window_tokens : tokens that a window or chunk spans [token]
    """

    kind: GroupKind
    token_bytes: float
    state_bytes: float
    window_tokens: int | None


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers that share one block table.

    layers : layers in the group, padding included, on one pipeline stage
    block_tokens : tokens of one block in this group [token]
    window_tokens : tokens that a window or chunk spans [token]
    state_blocks : blocks of recurrent state that a sequence holds [block]
    """

    kind: GroupKind
    layers: int
    block_tokens: int
    window_tokens: int | None = None
    state_blocks: int = 0

    def blocks_for(self, tokens: int, in_flight_tokens: int) -> int:
        """Return the blocks that a sequence of `tokens` holds in this group at most [block].

        in_flight_tokens : tokens that may be scheduled and not yet settled: a window keeps them beside its own
        """
        if self.kind == "state":
            return self.state_blocks
        if self.window_tokens is None:
            return -(-tokens // self.block_tokens)
        if self.kind == "chunk":
            return -(-min(self.window_tokens + in_flight_tokens, tokens) // self.block_tokens)
        held = min(self.window_tokens - 1 + in_flight_tokens, tokens)
        return -(-held // self.block_tokens) + 1


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The pool's layout.

    block_tokens : tokens of a block in the group that has fewest [token]
    bytes_per_block : bytes of one block on one GPU [B]
    in_flight_tokens : tokens that a window reserves beside its own [token]
    padding_layers : layers that exist only to make groups equal
    """

    groups: tuple[CacheGroup, ...]
    block_tokens: int
    bytes_per_block: float
    in_flight_tokens: int
    padding_layers: int = 0

    @property
    def uniform(self) -> bool:
        """Whether one token takes the same of the pool at every length: one group of full attention."""
        return len(self.groups) == 1 and self.groups[0].kind == "full"

    def blocks_for(self, tokens: int, in_flight_tokens: int | None = None) -> int:
        """Return the blocks that a sequence of `tokens` takes of the pool [block].

        in_flight_tokens : None reserves as much as admission does; 0 is what a sequence that only decodes holds
        """
        in_flight = self.in_flight_tokens if in_flight_tokens is None else in_flight_tokens
        return sum(group.blocks_for(tokens, in_flight) for group in self.groups)

    def longest_tokens(self, blocks: int, at_most: int) -> int:
        """Return the longest sequence that `blocks` hold, at most `at_most` [token]; 0 when they hold none."""
        low, high = 0, at_most
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_for(middle) <= blocks:
                low = middle
            else:
                high = middle - 1
        return low


def kv_layout(deployment: Deployment) -> KvLayout:
    """Return how an engine lays out a deployment's cache: vLLM's rule by its release, a plain form of it for other engines."""
    engine = deployment.engine
    types = cache_types(deployment.model, deployment.kv_dtype, deployment.parallelism.tp)
    block_tokens = resolved_block_tokens(deployment)
    rules = _rules(deployment)
    kinds = {(cache_type.kind, cache_type.window_tokens) for cache_type in types}
    in_flight = _steps_in_flight(deployment) * engine.max_num_batched_tokens
    if len(kinds) <= 1:
        return _one_group(types, block_tokens, in_flight, rules.stages)
    return _groups(types, block_tokens, in_flight, rules)


def resolved_block_tokens(deployment: Deployment) -> int:
    """Return the tokens of a block after the attention backend has had its say [token].

    Latent attention: 64 with an fp8 cache or sparse attention, 32 on compute capability 10, 16 elsewhere; otherwise as configured.
    Source: get_supported_kernel_block_sizes of vLLM's backends and their order in platforms/cuda.py (0.33).
    """
    asked = deployment.engine.block_size
    latent = [group for group in deployment.model.groups if group.kind == "mla"]
    if not latent:
        return asked
    needed = _KERNEL_BLOCK_TOKENS
    if deployment.kv_dtype == "fp8" or any(group.index_values_per_token for group in latent):
        needed = 64
    elif (deployment.gpu.compute_capability or "").startswith("10."):
        needed = 32
    return needed * math.ceil(asked / needed)


def cache_types(model: ModelSpec, kv_dtype: str, tp: int) -> Counter[CacheType]:
    """Return the model's cache types with the number of layers of each; a layer with two caches counts in both."""
    return Counter(dict(_cache_types(model, kv_dtype, tp)))


@lru_cache(maxsize=1024)
def _cache_types(model: ModelSpec, kv_dtype: str, tp: int) -> tuple[tuple[CacheType, int], ...]:
    types: Counter[CacheType] = Counter()
    for group in model.groups:
        if group.kind not in MIXER_KINDS:
            continue
        held = _of_one_layer(model, group, kv_dtype, tp)
        if held.full_bytes_per_token > 0:
            types[CacheType("full", held.full_bytes_per_token, 0.0, None)] += group.count
        if held.window_bytes_per_token > 0:
            kind = _KINDS.get(group.kind, "window")
            types[CacheType(kind, held.window_bytes_per_token, 0.0, group.window_tokens)] += group.count
        if held.state_bytes_per_sequence > 0:
            types[CacheType("state", 0.0, held.state_bytes_per_sequence, None)] += group.count
    return tuple(types.items())


class _Held(NamedTuple):
    full_bytes_per_token: float
    window_bytes_per_token: float
    state_bytes_per_sequence: float


def _of_one_layer(model: ModelSpec, group: LayerGroup, kv_dtype: str, tp: int) -> _Held:
    """Cache of one layer of a group on one GPU, by the arithmetic that every part of the planner uses."""
    held = kv_bytes(model.model_copy(update={"groups": (group,)}), kv_dtype, tp=tp)
    layers = group.count
    return _Held(held.full_bytes_per_token / layers, held.window_bytes_per_token / layers, held.state_bytes_per_sequence / layers)


class _Rules(NamedTuple):
    padding: float
    state_blocks: int
    stages: int


def _rules(deployment: Deployment) -> _Rules:
    engine, stages = deployment.engine, deployment.parallelism.pp
    if engine.engine != "vllm":
        return _Rules(padding=1.0, state_blocks=1, stages=stages)
    return _Rules(vllm_facts(engine.version).group_padding, 2 if engine.enable_prefix_caching else 1, stages)


def _steps_in_flight(deployment: Deployment) -> int:
    """Steps whose tokens a window keeps at once: from vLLM 0.26 on every step in flight, before and elsewhere one."""
    engine, stages = deployment.engine, deployment.parallelism.pp
    if engine.engine != "vllm" or not vllm_facts(engine.version).window_holds_all_in_flight:
        return 1
    return stages + 1 if engine.async_scheduling else stages


def _one_group(types: Counter[CacheType], block_tokens: int, in_flight: int, stages: int) -> KvLayout:
    """All layers in one group: one kind of cache, whose layers may differ in width."""
    layers = sum(types.values())
    if not layers:
        return KvLayout((), block_tokens, 0.0, in_flight)
    first = next(iter(types))
    if first.kind == "state":
        state_bytes = sum(cache_type.state_bytes * count for cache_type, count in types.items())
        group = CacheGroup("state", -(-layers // stages), block_tokens, state_blocks=1)
        return KvLayout((group,), block_tokens, state_bytes / stages, in_flight)
    token_bytes = sum(cache_type.token_bytes * count for cache_type, count in types.items())
    per_stage = token_bytes * (-(-layers // stages)) / layers
    group = CacheGroup(first.kind, -(-layers // stages), block_tokens, first.window_tokens)
    return KvLayout((group,), block_tokens, per_stage * block_tokens, in_flight)


def _groups(types: Counter[CacheType], block_tokens: int, in_flight: int, rules: _Rules) -> KvLayout:
    """Layers of several kinds: pages of one size, groups of equally many layers."""
    widest_token_bytes = max(cache_type.token_bytes for cache_type in types)
    state_bytes = max(cache_type.state_bytes for cache_type in types)
    if state_bytes > widest_token_bytes * block_tokens and widest_token_bytes > 0:
        kernel_bytes = widest_token_bytes * _KERNEL_BLOCK_TOKENS
        block_tokens = _KERNEL_BLOCK_TOKENS * math.ceil(state_bytes / kernel_bytes)
    page_bytes = max(widest_token_bytes * block_tokens, state_bytes)
    counts = list(types.values())
    size = max(counts) if max(counts) < min(counts) * rules.padding else min(counts)
    groups: list[CacheGroup] = []
    padding = 0
    for cache_type, count in types.items():
        repeats = -(-count // size)
        padding += repeats * size - count
        group = _group_of(cache_type, -(-size // rules.stages), _tokens_in_page(cache_type, page_bytes, block_tokens), rules)
        groups.extend([group] * repeats)
    smallest = min(group.block_tokens for group in groups if group.kind != "state")
    return KvLayout(tuple(groups), smallest, page_bytes * -(-size // rules.stages), in_flight, padding)


def _group_of(cache_type: CacheType, layers: int, block_tokens: int, rules: _Rules) -> CacheGroup:
    if cache_type.kind == "state":
        return CacheGroup("state", layers, block_tokens, state_blocks=rules.state_blocks)
    return CacheGroup(cache_type.kind, layers, block_tokens, cache_type.window_tokens)


def _tokens_in_page(cache_type: CacheType, page_bytes: float, block_tokens: int) -> int:
    """A narrower layer takes more tokens a page where its page divides the widest; else its page is padded."""
    own_bytes = cache_type.token_bytes * block_tokens
    if own_bytes > 0 and page_bytes % own_bytes == 0:
        return block_tokens * int(page_bytes // own_bytes)
    return block_tokens
