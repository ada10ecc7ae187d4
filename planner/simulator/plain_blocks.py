"""The KV block pool as plain Python objects: reference counts, content hashes and an LRU list of idle cached blocks."""

from collections import OrderedDict
from collections.abc import Sequence as Many

BlockKey = tuple[int, int]


class BlockPool:
    """Blocks that requests take, share and give back.

    A block is in use (referenced), or idle. Idle blocks without a hash stand in front of the free list, cached ones behind them
    in the order in which they became idle; allocation takes from the front, so a cached block is evicted only when no other is
    left, the least recently used first.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._plain = list(range(num_blocks))
        self._idle_cached: OrderedDict[int, None] = OrderedDict()
        self._references = [0] * num_blocks
        self._key_of: dict[int, BlockKey] = {}
        self._blocks_of: dict[BlockKey, dict[int, None]] = {}

    @property
    def free(self) -> int:
        """Idle blocks, cached or not [block]."""
        return len(self._plain) + len(self._idle_cached)

    @property
    def used(self) -> int:
        """Blocks that a request holds [block]."""
        return self.num_blocks - self.free

    def idle_among(self, blocks: Many[int]) -> int:
        """Return how many of the blocks no request holds: taking them uses up free blocks [block]."""
        return sum(self._references[block] == 0 for block in blocks)

    def take(self, count: int) -> list[int]:
        """Take `count` blocks from the front of the free list; what they cached is lost. The caller checks `free` first."""
        if self._idle_cached:
            return [self._take_one() for _ in range(count)]
        rest = len(self._plain) - count
        taken = self._plain[rest:]
        del self._plain[rest:]
        taken.reverse()
        for block in taken:
            self._references[block] = 1
        return taken

    def _take_one(self) -> int:
        if self._plain:
            block = self._plain.pop()
        else:
            block, _ = self._idle_cached.popitem(last=False)
            key = self._key_of.pop(block)
            del self._blocks_of[key][block]
            if not self._blocks_of[key]:
                del self._blocks_of[key]
        self._references[block] = 1
        return block

    def share(self, blocks: Many[int]) -> None:
        """Take cached blocks that were found by content; idle ones leave the free list."""
        for block in blocks:
            if self._references[block] == 0:
                del self._idle_cached[block]
            self._references[block] += 1

    def give_back(self, blocks: Many[int]) -> None:
        """Give back a request's blocks, in its token order; the tail becomes idle first."""
        if not self._key_of:  # nothing was ever findable, so nothing is shared
            self._plain.extend(reversed(blocks))
            return
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                if block in self._key_of:
                    self._idle_cached[block] = None
                else:
                    self._plain.append(block)

    def remember(self, block: int, key: BlockKey) -> None:
        """Make a full block findable by its content."""
        self._key_of[block] = key
        self._blocks_of.setdefault(key, {})[block] = None

    def find(self, key: BlockKey) -> int | None:
        """Return the block that has held this content longest, or None."""
        blocks = self._blocks_of.get(key)
        return next(iter(blocks)) if blocks else None
