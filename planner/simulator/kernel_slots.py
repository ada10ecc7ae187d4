"""Part of the compiled loop: the running list, and the sequences that decode as counters."""

from planner.simulator import layout as n
from planner.simulator.compiled import hot, part
from planner.simulator.kernel_cache import release_blocks
from planner.simulator.layout import State


@hot
def append_running(k: State, slot: int) -> None:
    """Put a slot at the end of the running list."""
    last = k.g[n.LAST]
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
    k.free_slots[k.g[n.FREE_SLOTS]] = slot
    k.g[n.FREE_SLOTS] += 1


@hot
def _ring_place(k: State, step: int) -> int:
    return step & (len(k.ring) - 1)


@hot
def link_ending(k: State, slot: int) -> None:
    """Note the step that brings a sequence's last token."""
    place = _ring_place(k, k.slots[slot, n.LAST_STEP])
    other = k.ring[place]
    k.slots[slot, n.RING_NEXT] = other
    k.slots[slot, n.RING_PREVIOUS] = n.NONE
    if other != n.NONE:
        k.slots[other, n.RING_PREVIOUS] = slot
    k.ring[place] = slot


@hot
def unlink_ending(k: State, slot: int) -> None:
    """Forget it again."""
    before = k.slots[slot, n.RING_PREVIOUS]
    after = k.slots[slot, n.RING_NEXT]
    if before == n.NONE:
        k.ring[_ring_place(k, k.slots[slot, n.LAST_STEP])] = after
    else:
        k.slots[before, n.RING_NEXT] = after
    if after != n.NONE:
        k.slots[after, n.RING_PREVIOUS] = before


@hot
def _crossing_place(k: State, slot: int) -> int:
    """Return the step, modulo block size, in which a decoding sequence needs a new block."""
    block_size = k.options[n.BLOCK_SIZE]
    place: int = (-k.slots[slot, n.BASE]) % block_size
    return place


@hot
def add_decoding(k: State, slot: int) -> None:
    """Count a slot among those that decode from step STEP on; BASE and LAST_STEP are set."""
    base = k.slots[slot, n.BASE]
    k.slots[slot, n.PHASE] = n.DECODE
    k.g[n.DECODING] += 1
    k.g[n.SUM_BASE] += base
    place = _crossing_place(k, slot)
    k.crossing[place] += 1
    if k.options[n.CACHING]:
        other = k.bucket[place]
        k.slots[slot, n.BUCKET_NEXT] = other
        k.slots[slot, n.BUCKET_PREVIOUS] = n.NONE
        if other != n.NONE:
            k.slots[other, n.BUCKET_PREVIOUS] = slot
        k.bucket[place] = slot
    if k.options[n.WINDOW] > 0:
        _enter_window(k, slot)
    link_ending(k, slot)


@hot
def remove_decoding(k: State, slot: int) -> None:
    """Take a slot out of the counters of those that decode; its ending stays linked."""
    k.g[n.DECODING] -= 1
    k.g[n.SUM_BASE] -= k.slots[slot, n.BASE]
    place = _crossing_place(k, slot)
    k.crossing[place] -= 1
    if k.options[n.CACHING]:
        before = k.slots[slot, n.BUCKET_PREVIOUS]
        after = k.slots[slot, n.BUCKET_NEXT]
        if before == n.NONE:
            k.bucket[place] = after
        else:
            k.slots[before, n.BUCKET_NEXT] = after
        if after != n.NONE:
            k.slots[after, n.BUCKET_PREVIOUS] = before
    if k.options[n.WINDOW] > 0:
        _leave_window(k, slot)


@part
def _enter_window(k: State, slot: int) -> None:
    """Add min(context, window) of step STEP, and note when the context will reach the window."""
    window = k.options[n.WINDOW]
    context = k.slots[slot, n.BASE] + k.g[n.STEP]
    k.g[n.WINDOW_SUM] += min(context, window)
    if context < window:
        k.g[n.WINDOW_BELOW] += 1
        reaches = window - k.slots[slot, n.BASE]
        if reaches <= k.slots[slot, n.LAST_STEP] + 1:
            k.leaves_window[_ring_place(k, reaches)] += 1


@part
def _leave_window(k: State, slot: int) -> None:
    window = k.options[n.WINDOW]
    context = k.slots[slot, n.BASE] + k.g[n.STEP]
    k.g[n.WINDOW_SUM] -= min(context, window)
    if context < window:
        k.g[n.WINDOW_BELOW] -= 1
        reaches = window - k.slots[slot, n.BASE]
        if reaches <= k.slots[slot, n.LAST_STEP] + 1:
            k.leaves_window[_ring_place(k, reaches)] -= 1


@hot
def next_step(k: State) -> None:
    """Go on to the next step: every decoding sequence has one more token of context."""
    k.g[n.STEP] += 1
    if k.options[n.WINDOW] > 0:
        k.g[n.WINDOW_SUM] += k.g[n.WINDOW_BELOW]
        place = _ring_place(k, k.g[n.STEP])
        k.g[n.WINDOW_BELOW] -= k.leaves_window[place]
        k.leaves_window[place] = 0


@hot
def blocks_for(k: State, tokens: int) -> int:
    """Blocks that `tokens` tokens fill [block]."""
    block_size = k.options[n.BLOCK_SIZE]
    blocks: int = (tokens + block_size - 1) // block_size
    return blocks


@hot
def give_back(k: State, slot: int, held: int, hashed_tokens: int, returns: int) -> None:
    """Give back a slot's blocks: a count, or block by block where contents are cached."""
    if k.options[n.CACHING]:
        release_blocks(k, slot, held, hashed_tokens // k.options[n.BLOCK_SIZE], returns)
    else:
        k.g[n.FREE] += held
