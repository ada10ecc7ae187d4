"""Part of the compiled loop: the running list, and the sequences that decode as counters."""

from planner.simulator import layout as n
from planner.simulator.compiled import hot, part
from planner.simulator.kernel_cache import release_blocks
from planner.simulator.layout import Ints, State


@hot
def append_running(k: State, slot: int) -> None:
    """Put a slot at the end of the running list."""
    last = k.g[n.LAST]
    k.g[n.ADMISSIONS] += 1
    k.slots[slot, n.ORDER] = k.g[n.ADMISSIONS]
    k.slots[slot, n.NEXT] = n.NONE
    k.slots[slot, n.PREVIOUS] = last
    if last == n.NONE:
        k.g[n.FIRST] = slot
    else:
        k.slots[last, n.NEXT] = slot
    k.g[n.LAST] = slot
    k.g[n.RUNNING] += 1


@hot
def remove_running(k: State, slot: int) -> None:
    """Take a slot out of the running list and free its row."""
    before = k.slots[slot, n.PREVIOUS]
    after = k.slots[slot, n.NEXT]
    if before == n.NONE:
        k.g[n.FIRST] = after
    else:
        k.slots[before, n.NEXT] = after
    if after == n.NONE:
        k.g[n.LAST] = before
    else:
        k.slots[after, n.PREVIOUS] = before
    k.g[n.RUNNING] -= 1
    k.lists[n.FREE_LIST, k.g[n.FREE_SLOTS]] = slot
    k.g[n.FREE_SLOTS] += 1


@hot
def _ring_place(ring: Ints, step: int) -> int:
    place: int = step & (ring.shape[1] - 1)
    return place


@hot
def link_ending(k: State, slot: int) -> None:
    """Note the step that brings a sequence's last token; the youngest of those that end together stands first."""
    place = _ring_place(k.ring, k.slots[slot, n.LAST_STEP])
    before = n.NONE
    after = k.ring[n.ENDING, place]
    while after != n.NONE and k.slots[after, n.ORDER] > k.slots[slot, n.ORDER]:
        before = after
        after = k.slots[after, n.RING_NEXT]
    k.slots[slot, n.RING_PREVIOUS] = before
    k.slots[slot, n.RING_NEXT] = after
    if after != n.NONE:
        k.slots[after, n.RING_PREVIOUS] = slot
    if before != n.NONE:
        k.slots[before, n.RING_NEXT] = slot
    else:
        k.ring[n.ENDING, place] = slot


@hot
def unlink_ending(k: State, slot: int) -> None:
    """Forget it again."""
    before = k.slots[slot, n.RING_PREVIOUS]
    after = k.slots[slot, n.RING_NEXT]
    if before == n.NONE:
        k.ring[n.ENDING, _ring_place(k.ring, k.slots[slot, n.LAST_STEP])] = after
    else:
        k.slots[before, n.RING_NEXT] = after
    if after != n.NONE:
        k.slots[after, n.RING_PREVIOUS] = before


@hot
def _crossing_place(base: int, block_size: int) -> int:
    """Return the step, modulo block size, in which a sequence whose context is base + step needs a new block."""
    return -base % block_size


@hot
def add_decoding(k: State, slot: int) -> None:
    """Count a slot among those that decode from step STEP on; BASE and LAST_STEP are set."""
    base = k.slots[slot, n.BASE]
    k.slots[slot, n.PHASE] = n.DECODE
    k.g[n.DECODING] += 1
    k.g[n.SUM_BASE] += base
    place = _crossing_place(k.slots[slot, n.BASE], k.g[n.BLOCK_SIZE])
    k.residues[n.CROSSING, place] += 1
    if k.g[n.CACHING]:
        other = k.residues[n.BUCKET, place]
        k.slots[slot, n.BUCKET_NEXT] = other
        k.slots[slot, n.BUCKET_PREVIOUS] = n.NONE
        if other != n.NONE:
            k.slots[other, n.BUCKET_PREVIOUS] = slot
        k.residues[n.BUCKET, place] = slot
    if k.g[n.WINDOW] > 0:
        _enter_window(k, slot)
    link_ending(k, slot)


@hot
def remove_decoding(k: State, slot: int) -> None:
    """Take a slot out of the counters of those that decode; its ending stays linked."""
    k.g[n.DECODING] -= 1
    k.g[n.SUM_BASE] -= k.slots[slot, n.BASE]
    place = _crossing_place(k.slots[slot, n.BASE], k.g[n.BLOCK_SIZE])
    k.residues[n.CROSSING, place] -= 1
    if k.g[n.CACHING]:
        before = k.slots[slot, n.BUCKET_PREVIOUS]
        after = k.slots[slot, n.BUCKET_NEXT]
        if before == n.NONE:
            k.residues[n.BUCKET, place] = after
        else:
            k.slots[before, n.BUCKET_NEXT] = after
        if after != n.NONE:
            k.slots[after, n.BUCKET_PREVIOUS] = before
    if k.g[n.WINDOW] > 0:
        _leave_window(k, slot)


@part
def _enter_window(k: State, slot: int) -> None:
    """Add min(context, window) of step STEP, and note when the context will reach the window."""
    window = k.g[n.WINDOW]
    context = k.slots[slot, n.BASE] + k.g[n.STEP]
    k.g[n.WINDOW_SUM] += min(context, window)
    if context < window:
        k.g[n.WINDOW_BELOW] += 1
        reaches = window - k.slots[slot, n.BASE]
        if reaches <= k.slots[slot, n.LAST_STEP] + 2:
            k.ring[n.LEAVING, _ring_place(k.ring, reaches)] += 1


@part
def _leave_window(k: State, slot: int) -> None:
    window = k.g[n.WINDOW]
    context = k.slots[slot, n.BASE] + k.g[n.STEP]
    k.g[n.WINDOW_SUM] -= min(context, window)
    if context < window:
        k.g[n.WINDOW_BELOW] -= 1
        reaches = window - k.slots[slot, n.BASE]
        if reaches <= k.slots[slot, n.LAST_STEP] + 2:
            k.ring[n.LEAVING, _ring_place(k.ring, reaches)] -= 1


@hot
def next_step(k: State) -> None:
    """Go on to the next step: every decoding sequence has one more token of context."""
    k.g[n.STEP] += 1
    if k.g[n.WINDOW] > 0:
        k.g[n.WINDOW_SUM] += k.g[n.WINDOW_BELOW]
        place = _ring_place(k.ring, k.g[n.STEP])
        k.g[n.WINDOW_BELOW] -= k.ring[n.LEAVING, place]
        k.ring[n.LEAVING, place] = 0


@hot
def blocks_for(g: Ints, tokens: int) -> int:
    """Blocks that `tokens` tokens fill [block]."""
    block_size = g[n.BLOCK_SIZE]
    blocks: int = (tokens + block_size - 1) // block_size
    return blocks


@hot
def give_back(k: State, slot: int, held: int, hashed_tokens: int, returns: int) -> None:
    """Give back a slot's blocks: a count, or block by block where contents are cached."""
    if k.g[n.CACHING]:
        release_blocks(k, slot, held, hashed_tokens // k.g[n.BLOCK_SIZE], returns)
    else:
        k.g[n.FREE] += held
