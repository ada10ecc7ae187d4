"""Part of the compiled loop: KV blocks with content hashes and an LRU list of idle cached blocks.

The same pool as `plain_blocks.BlockPool` over arrays. Idle blocks without a hash need no order (all are alike), so they are a stack
and a counter of never used ones. A block that only its own request could find enters the hash table when that request is preempted:
before, nobody would look for it.
"""

from planner.simulator import layout as n
from planner.simulator.compiled import part
from planner.simulator.layout import State


@part
def block_key(k: State, request: int, position: int) -> int:
    """Return what identifies the content of a request's block; negative when only that request can hold it."""
    key: int = -(request * n.POSITIONS + position) - 1
    if position < shared_blocks(k, request):
        identity = ((position + 1) * k.options[n.BLOCK_SIZE] - 1) // k.options[n.HASH_TOKENS]
        key = k.identities[k.offsets[request] + identity] * n.POSITIONS + position
    return key


@part
def shared_blocks(k: State, request: int) -> int:
    """Return how many leading blocks of a request have an identity that others may share."""
    known = (k.offsets[request + 1] - k.offsets[request]) * k.options[n.HASH_TOKENS]
    shared: int = min(known, k.prompt[request]) // k.options[n.BLOCK_SIZE]
    return shared


@part
def _spot(k: State, key: int) -> int:
    """Return the table's place of a key: where it is, or the empty one where it would go."""
    mask = len(k.table_keys) - 1
    mixed = key * -7046029254386353131
    place = (mixed ^ (mixed >> 29)) & mask
    while k.table_keys[place] != key and k.table_keys[place] != n.EMPTY_KEY:
        place = (place + 1) & mask
    return place


@part
def find_block(k: State, key: int) -> int:
    """Return the block that has held this content longest, or NONE."""
    place = _spot(k, key)
    block: int = k.table_first[place] if k.table_keys[place] == key else n.NONE
    return block


@part
def make_findable(k: State, block: int, key: int) -> None:
    """Enter a full block in the hash table, behind others of the same content."""
    k.nodes[block, n.MARK] = n.FINDABLE
    k.nodes[block, n.SAME_NEXT] = n.NONE
    k.keys[block] = key
    place = _spot(k, key)
    if k.table_keys[place] != key:
        k.table_keys[place] = key
        k.table_first[place] = block
        return
    other = k.table_first[place]
    while k.nodes[other, n.SAME_NEXT] != n.NONE:
        other = k.nodes[other, n.SAME_NEXT]
    k.nodes[other, n.SAME_NEXT] = block


@part
def _forget(k: State, block: int) -> None:
    """Take a block out of the hash table."""
    place = _spot(k, k.keys[block])
    other = k.table_first[place]
    follower = k.nodes[block, n.SAME_NEXT]
    if other != block:
        while k.nodes[other, n.SAME_NEXT] != block:
            other = k.nodes[other, n.SAME_NEXT]
        k.nodes[other, n.SAME_NEXT] = follower
    elif follower != n.NONE:
        k.table_first[place] = follower
    else:
        _close_gap(k, place)


@part
def _close_gap(k: State, place: int) -> None:
    """Empty a place of the table and pull later keys of the same cluster over it."""
    mask = len(k.table_keys) - 1
    gap = place
    k.table_keys[gap] = n.EMPTY_KEY
    place = (place + 1) & mask
    while k.table_keys[place] != n.EMPTY_KEY:
        mixed = k.table_keys[place] * -7046029254386353131
        home = (mixed ^ (mixed >> 29)) & mask
        if ((place - home) & mask) >= ((place - gap) & mask):
            k.table_keys[gap] = k.table_keys[place]
            k.table_first[gap] = k.table_first[place]
            k.table_keys[place] = n.EMPTY_KEY
            gap = place
        place = (place + 1) & mask


@part
def _leave_idle(k: State, block: int) -> None:
    before = k.nodes[block, n.IDLE_PREVIOUS]
    after = k.nodes[block, n.IDLE_NEXT]
    if before == n.NONE:
        k.g[n.IDLE_FIRST] = after
    else:
        k.nodes[before, n.IDLE_NEXT] = after
    if after == n.NONE:
        k.g[n.IDLE_LAST] = before
    else:
        k.nodes[after, n.IDLE_PREVIOUS] = before


@part
def take_block(k: State) -> int:
    """Take one idle block; the least recently used cached one when no other is left. The caller has counted it in FREE."""
    block: int = n.NONE
    if k.g[n.PLAIN] > 0:
        k.g[n.PLAIN] -= 1
        block = k.plain[k.g[n.PLAIN]]
    elif k.g[n.FRESH] < k.options[n.NUM_BLOCKS]:
        block = k.g[n.FRESH]
        k.g[n.FRESH] += 1
    else:
        block = k.g[n.IDLE_FIRST]
        _leave_idle(k, block)
        if k.nodes[block, n.MARK] == n.FINDABLE:
            _forget(k, block)
    k.nodes[block, n.MARK] = n.UNHASHED
    k.nodes[block, n.REFERENCES] = 1
    return block


@part
def share_block(k: State, block: int) -> None:
    """Take a block that was found by its content; an idle one leaves the free list."""
    if k.nodes[block, n.REFERENCES] == 0:
        _leave_idle(k, block)
        k.g[n.FREE] -= 1
    k.nodes[block, n.REFERENCES] += 1


@part
def _release_block(k: State, block: int) -> None:
    k.nodes[block, n.REFERENCES] -= 1
    if k.nodes[block, n.REFERENCES] > 0:
        return
    k.g[n.FREE] += 1
    if k.nodes[block, n.MARK] == n.UNHASHED:
        k.plain[k.g[n.PLAIN]] = block
        k.g[n.PLAIN] += 1
        return
    last = k.g[n.IDLE_LAST]
    k.nodes[block, n.IDLE_PREVIOUS] = last
    k.nodes[block, n.IDLE_NEXT] = n.NONE
    if last == n.NONE:
        k.g[n.IDLE_FIRST] = block
    else:
        k.nodes[last, n.IDLE_NEXT] = block
    k.g[n.IDLE_LAST] = block


@part
def release_blocks(k: State, slot: int, held: int, hashed: int, returns: int) -> None:
    """Give back a sequence's blocks, tail first.

    held, hashed : blocks that it holds, and how many leading ones are full and known [block]
    returns : 1 when the sequence was preempted and will look for its own blocks
    """
    request = k.slots[slot, n.REQUEST]
    shared = shared_blocks(k, request)
    for position in range(held - 1, -1, -1):
        block = k.block_table[slot, position]
        if shared <= position < hashed and k.nodes[block, n.MARK] == n.UNHASHED:
            if returns == 1:
                make_findable(k, block, block_key(k, request, position))
            else:
                k.nodes[block, n.MARK] = n.HASHED
        _release_block(k, block)


@part
def hash_shared(k: State, slot: int, before: int, after: int) -> None:
    """Make the blocks findable that a prefill chunk from `before` to `after` tokens fills and others may share."""
    request = k.slots[slot, n.REQUEST]
    block_size = k.options[n.BLOCK_SIZE]
    full = min(after // block_size, shared_blocks(k, request))
    for position in range(before // block_size, full):
        make_findable(k, k.block_table[slot, position], block_key(k, request, position))


@part
def find_cached(k: State, request: int, slot: int, known_tokens: int) -> tuple[int, int]:
    """Write the longest run of cached leading blocks into the slot's block table; return its length and how many are idle."""
    limit = (known_tokens - 1) // k.options[n.BLOCK_SIZE]
    if k.preempted[request] == 0:
        limit = min(limit, shared_blocks(k, request))
    idle = 0
    for position in range(limit):
        block = find_block(k, block_key(k, request, position))
        if block == n.NONE:
            return position, idle
        k.block_table[slot, position] = block
        idle += k.nodes[block, n.REFERENCES] == 0
    return limit, idle
