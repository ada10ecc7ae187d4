"""Part of the compiled loop: KV blocks with content hashes and an LRU list of idle cached blocks.

The same pool as `plain_blocks.BlockPool` over arrays. Idle blocks without a hash need no order (all are alike), so they are a stack
and a counter of never used ones. A block that only its own request could find enters the hash table when that request is preempted:
before, nobody would look for it.
"""

from planner.simulator import layout as n
from planner.simulator.compiled import part
from planner.simulator.layout import Cache, Ints, Shorts, State


@part
def block_key(g: Ints, asked: Shorts, cache: Cache, request: int, position: int) -> int:
    """Return what identifies the content of a request's block; negative when only that request can hold it."""
    key: int = -(request * n.POSITIONS + position) - 1
    if position < shared_blocks(g, asked, cache, request):
        identity = ((position + 1) * g[n.BLOCK_SIZE] - 1) // g[n.HASH_TOKENS]
        key = cache.identities[cache.offsets[request] + identity] * n.POSITIONS + position
    return key


@part
def shared_blocks(g: Ints, asked: Shorts, cache: Cache, request: int) -> int:
    """Return how many leading blocks of a request have an identity that others may share."""
    known = (cache.offsets[request + 1] - cache.offsets[request]) * g[n.HASH_TOKENS]
    shared: int = min(known, asked[n.PROMPT, request]) // g[n.BLOCK_SIZE]
    return shared


@part
def _spot(cache: Cache, key: int) -> int:
    """Return the table's place of a key: where it is, or the empty one where it would go."""
    mask = len(cache.table) - 1
    mixed = key * -7046029254386353131
    place = (mixed ^ (mixed >> 29)) & mask
    while cache.table[place, n.TABLE_KEY] != key and cache.table[place, n.TABLE_KEY] != n.EMPTY_KEY:
        place = (place + 1) & mask
    return place


@part
def find_block(cache: Cache, key: int) -> int:
    """Return the block that has held this content longest, or NONE."""
    place = _spot(cache, key)
    block: int = cache.table[place, n.TABLE_FIRST] if cache.table[place, n.TABLE_KEY] == key else n.NONE
    return block


@part
def make_findable(cache: Cache, block: int, key: int) -> None:
    """Enter a full block in the hash table, behind others of the same content."""
    cache.nodes[block, n.MARK] = n.FINDABLE
    cache.nodes[block, n.SAME_NEXT] = n.NONE
    cache.nodes[block, n.KEY] = key
    place = _spot(cache, key)
    if cache.table[place, n.TABLE_KEY] != key:
        cache.table[place, n.TABLE_KEY] = key
        cache.table[place, n.TABLE_FIRST] = block
        return
    other = cache.table[place, n.TABLE_FIRST]
    while cache.nodes[other, n.SAME_NEXT] != n.NONE:
        other = cache.nodes[other, n.SAME_NEXT]
    cache.nodes[other, n.SAME_NEXT] = block


@part
def _forget(cache: Cache, block: int) -> None:
    """Take a block out of the hash table."""
    place = _spot(cache, cache.nodes[block, n.KEY])
    other = cache.table[place, n.TABLE_FIRST]
    follower = cache.nodes[block, n.SAME_NEXT]
    if other != block:
        while cache.nodes[other, n.SAME_NEXT] != block:
            other = cache.nodes[other, n.SAME_NEXT]
        cache.nodes[other, n.SAME_NEXT] = follower
    elif follower != n.NONE:
        cache.table[place, n.TABLE_FIRST] = follower
    else:
        _close_gap(cache, place)


@part
def _close_gap(cache: Cache, place: int) -> None:
    """Empty a place of the table and pull later keys of the same cluster over it."""
    mask = len(cache.table) - 1
    gap = place
    cache.table[gap, n.TABLE_KEY] = n.EMPTY_KEY
    place = (place + 1) & mask
    while cache.table[place, n.TABLE_KEY] != n.EMPTY_KEY:
        mixed = cache.table[place, n.TABLE_KEY] * -7046029254386353131
        home = (mixed ^ (mixed >> 29)) & mask
        if ((place - home) & mask) >= ((place - gap) & mask):
            cache.table[gap, n.TABLE_KEY] = cache.table[place, n.TABLE_KEY]
            cache.table[gap, n.TABLE_FIRST] = cache.table[place, n.TABLE_FIRST]
            cache.table[place, n.TABLE_KEY] = n.EMPTY_KEY
            gap = place
        place = (place + 1) & mask


@part
def _leave_idle(g: Ints, cache: Cache, block: int) -> None:
    before = cache.nodes[block, n.IDLE_PREVIOUS]
    after = cache.nodes[block, n.IDLE_NEXT]
    if before == n.NONE:
        g[n.IDLE_FIRST] = after
    else:
        cache.nodes[before, n.IDLE_NEXT] = after
    if after == n.NONE:
        g[n.IDLE_LAST] = before
    else:
        cache.nodes[after, n.IDLE_PREVIOUS] = before


@part
def take_block(g: Ints, cache: Cache) -> int:
    """Take one idle block; the least recently used cached one when no other is left. The caller has counted it in FREE."""
    block: int = n.NONE
    if g[n.PLAIN] > 0:
        g[n.PLAIN] -= 1
        block = cache.nodes[g[n.PLAIN], n.PLAIN_STACK]
    elif g[n.FRESH] < g[n.NUM_BLOCKS]:
        block = g[n.FRESH]
        g[n.FRESH] += 1
    else:
        block = g[n.IDLE_FIRST]
        _leave_idle(g, cache, block)
        if cache.nodes[block, n.MARK] == n.FINDABLE:
            _forget(cache, block)
    cache.nodes[block, n.MARK] = n.UNHASHED
    cache.nodes[block, n.REFERENCES] = 1
    return block


@part
def share_block(g: Ints, cache: Cache, block: int) -> None:
    """Take a block that was found by its content; an idle one leaves the free list."""
    if cache.nodes[block, n.REFERENCES] == 0:
        _leave_idle(g, cache, block)
        g[n.FREE] -= 1
    cache.nodes[block, n.REFERENCES] += 1


@part
def _release_block(g: Ints, cache: Cache, block: int) -> None:
    cache.nodes[block, n.REFERENCES] -= 1
    if cache.nodes[block, n.REFERENCES] > 0:
        return
    g[n.FREE] += 1
    if cache.nodes[block, n.MARK] == n.UNHASHED:
        cache.nodes[g[n.PLAIN], n.PLAIN_STACK] = block
        g[n.PLAIN] += 1
        return
    last = g[n.IDLE_LAST]
    cache.nodes[block, n.IDLE_PREVIOUS] = last
    cache.nodes[block, n.IDLE_NEXT] = n.NONE
    if last == n.NONE:
        g[n.IDLE_FIRST] = block
    else:
        cache.nodes[last, n.IDLE_NEXT] = block
    g[n.IDLE_LAST] = block


@part
def release_blocks(k: State, slot: int, held: int, hashed: int, returns: int) -> None:
    """Give back a sequence's blocks, tail first.

    held, hashed : blocks that it holds, and how many leading ones are full and known [block]
    returns : 1 when the sequence was preempted and will look for its own blocks
    """
    request = k.slots[slot, n.REQUEST]
    shared = shared_blocks(k.g, k.asked, k.cache, request)
    for position in range(held - 1, -1, -1):
        block = k.cache.blocks[slot, position]
        if shared <= position < hashed and k.cache.nodes[block, n.MARK] == n.UNHASHED:
            if returns == 1:
                make_findable(k.cache, block, block_key(k.g, k.asked, k.cache, request, position))
            else:
                k.cache.nodes[block, n.MARK] = n.HASHED
        _release_block(k.g, k.cache, block)


@part
def hash_shared(k: State, slot: int, before: int, after: int) -> None:
    """Make the blocks findable that a prefill chunk from `before` to `after` tokens fills and others may share."""
    request = k.slots[slot, n.REQUEST]
    block_size = k.g[n.BLOCK_SIZE]
    full = min(after // block_size, shared_blocks(k.g, k.asked, k.cache, request))
    for position in range(before // block_size, full):
        make_findable(k.cache, k.cache.blocks[slot, position], block_key(k.g, k.asked, k.cache, request, position))


@part
def find_cached(k: State, request: int, slot: int, known_tokens: int) -> tuple[int, int]:
    """Write the longest run of cached leading blocks into the slot's block table; return its length and how many are idle."""
    limit = (known_tokens - 1) // k.g[n.BLOCK_SIZE]
    if k.asked[n.PREEMPTED, request] == 0:
        limit = min(limit, shared_blocks(k.g, k.asked, k.cache, request))
    idle = 0
    for position in range(limit):
        block = find_block(k.cache, block_key(k.g, k.asked, k.cache, request, position))
        if block == n.NONE:
            return position, idle
        k.cache.blocks[slot, position] = block
        idle += k.cache.nodes[block, n.REFERENCES] == 0
    return limit, idle
