"""Prefix reuse: the share of prompt tokens that a prefix cache of a given size would hold."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.errors import InputError
from planner.provenance import Source
from planner.workloads.laws import Tokens
from planner.workloads.requests import BlockHashes

Share = Annotated[float, Field(ge=0, le=1)]


class PrefixHitCurve(BaseModel):
    """Hit rate by cache size, so that reuse is never a constant.

    cache_tokens : sizes of an LRU prefix cache, rising; at the last one nothing is evicted [token]
    hit_rate : share of prompt tokens found in it, not falling [1]
    block_tokens : granularity of the measurement [token]
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cache_tokens: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1, max_length=200)
    hit_rate: tuple[Share, ...]
    block_tokens: int = Field(ge=1, le=65536)
    source: Source

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if len(self.cache_tokens) != len(self.hit_rate):
            raise InputError("hit_rate", len(self.hit_rate), "must be as many as cache_tokens", "Give one rate per size")
        if any(b <= a for a, b in zip(self.cache_tokens, self.cache_tokens[1:], strict=False)):
            raise InputError("cache_tokens", self.cache_tokens, "must rise", "Order the sizes")
        if any(b < a for a, b in zip(self.hit_rate, self.hit_rate[1:], strict=False)):
            raise InputError("hit_rate", self.hit_rate, "must not fall with cache size", "Check the measurement")
        return self

    @property
    def unbounded_hit_rate(self) -> float:
        """Share of prompt tokens seen before, with a cache that never evicts [1]."""
        return self.hit_rate[-1]

    def at(self, cache_tokens: float) -> float:
        """Return the hit rate of a cache of that many tokens, linear between the points and from 0 at size 0 [1]."""
        if not cache_tokens >= 0:
            raise InputError("cache_tokens", cache_tokens, "must be at least 0", "Give tokens of KV cache")
        return float(np.interp(cache_tokens, (0.0, *self.cache_tokens), (0.0, *self.hit_rate)))


def prefix_hits(hashes: BlockHashes, prompt_tokens: Tokens, cache_blocks: int | None) -> Tokens:
    """Return the prompt tokens that an LRU prefix cache serves of each request, when they come in the given order [token].

    hashes, prompt_tokens : one entry per request
    cache_blocks : blocks the cache holds; None: it never evicts

    A block hits only while all blocks before it hit (the prefix rule). Every block of a request becomes the most recent,
    its first block last, so that tails are evicted before heads, as vLLM frees them. The last, partial block counts with the
    tokens it holds. Requests are served one at a time: concurrency, and blocks held by running requests, change an engine's
    figure.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    hit_tokens = np.zeros(len(hashes), np.int64)
    for index in range(len(hashes)):
        row = hashes.row(index).tolist()
        hits = 0
        while hits < len(row) and row[hits] in cache:
            hits += 1
        hit_tokens[index] = min(hits * hashes.block_tokens, int(prompt_tokens[index]))
        _touch(cache, row, cache_blocks)
    return hit_tokens


def prefix_hit_rate(hashes: BlockHashes, prompt_tokens: Tokens, cache_blocks: int | None) -> float:
    """Share of prompt tokens that an LRU prefix cache serves when requests come in the given order [1]; see `prefix_hits`."""
    return int(prefix_hits(hashes, prompt_tokens, cache_blocks).sum()) / int(prompt_tokens.sum())


def prefix_hit_curve(hashes: BlockHashes, prompt_tokens: Tokens, cache_blocks: Sequence[int], source: Source) -> PrefixHitCurve:
    """Return the curve over cache sizes below the number of distinct blocks, closed by that number (nothing evicted)."""
    distinct = len(np.unique(hashes.flat))
    sizes = [*sorted({size for size in cache_blocks if size < distinct}), distinct]
    rates = [prefix_hit_rate(hashes, prompt_tokens, None if size == distinct else size) for size in sizes]
    return PrefixHitCurve(
        cache_tokens=tuple(float(size * hashes.block_tokens) for size in sizes),
        hit_rate=tuple(np.maximum.accumulate(np.round(rates, 4)).tolist()),
        block_tokens=hashes.block_tokens,
        source=source,
    )


def _touch(cache: OrderedDict[int, None], row: list[int], cache_blocks: int | None) -> None:
    for block in reversed(row):
        cache[block] = None
        cache.move_to_end(block)
        if cache_blocks is not None and len(cache) > cache_blocks:
            cache.popitem(last=False)
