"""Part of the compiled loop: which sequences get tokens in the next step.

Where every running sequence gets what it wants, their order doesn't matter and counters do. Otherwise the step is decided one by
one, in the engine's own order, with preemption.
"""

from planner.attention_pairs import causal_pairs, window_pairs
from planner.simulator import layout as n
from planner.simulator.compiled import hot, part
from planner.simulator.kernel_cache import find_cached, hash_shared, share_block, take_block
from planner.simulator.kernel_log import log_row
from planner.simulator.kernel_preempt import choose_victim, preempt, stands_before
from planner.simulator.kernel_queue import peek, pop, waiting
from planner.simulator.kernel_slots import (
    append_running,
    blocks_for,
    remove_decoding,
    unlink_ending,
)
from planner.simulator.layout import State


@hot
def cut_long_prefill(k: State, tokens: int) -> int:
    """Cap the tokens of one prefill by the long-prefill threshold, which spares a request that is alone."""
    threshold = k.g[n.THRESHOLD]
    allowed: int = tokens
    if 0 < threshold < tokens and k.g[n.RUNNING] + waiting(k.g) + k.g[n.GHOSTS] > 1:
        allowed = threshold
    return allowed


@hot
def grow_chunk(k: State, slot: int, tokens: int) -> None:
    """Take the blocks of a prefill chunk; the caller has seen that they are free."""
    held = k.slots[slot, n.BLOCKS]
    computed = k.slots[slot, n.COMPUTED]
    needed = blocks_for(k.g, computed + tokens)
    k.g[n.FREE] -= needed - held
    k.slots[slot, n.BLOCKS] = needed
    if k.g[n.CACHING]:
        for position in range(held, needed):
            k.cache.blocks[slot, position] = take_block(k.g, k.cache)
        hash_shared(k, slot, computed, computed + tokens)


@hot
def give_chunk(k: State, slot: int, tokens: int) -> bool:
    """Count a prefill chunk in the step being decided; True when it ends the prefill."""
    computed = k.slots[slot, n.COMPUTED]
    reach = computed + tokens
    k.g[n.CHUNK_TOKENS] += tokens
    k.g[n.CHUNK_ROWS] += 1
    k.g[n.CHUNK_CONTEXT] += computed
    k.f[n.PAIRS] += causal_pairs(computed, tokens)
    window = k.g[n.WINDOW]
    if window > 0:
        k.f[n.WINDOW_PAIRS] += window_pairs(computed, tokens, window)
    if k.g[n.LOGGING]:
        log_row(k.g, k.record, k.slots[slot, n.REQUEST], tokens, computed)
    k.slots[slot, n.COMPUTED] = reach
    if reach < k.slots[slot, n.TARGET]:
        return False
    k.lists[n.COMPLETED_LIST, k.g[n.COMPLETED]] = slot
    k.g[n.COMPLETED] += 1
    return True


@hot
def _everyone_fits(k: State) -> bool:
    """Say whether all running sequences get what they want, so that their order doesn't matter."""
    if k.g[n.WERE_LEFT_OUT] > 0:
        return False
    free = k.g[n.FREE] - k.residues[n.CROSSING, k.g[n.STEP] % k.g[n.BLOCK_SIZE]]
    budget = k.g[n.MAX_TOKENS] - k.g[n.DECODING]
    for i in range(k.g[n.PREFILLS]):
        slot = k.lists[n.PREFILL_LIST, i]
        computed = k.slots[slot, n.COMPUTED]
        tokens = cut_long_prefill(k, k.slots[slot, n.TARGET] - computed)
        if tokens > budget:
            if slot != k.g[n.LAST]:
                return False
            tokens = budget
        budget -= tokens
        if tokens > 0:
            free -= blocks_for(k.g, computed + tokens) - k.slots[slot, n.BLOCKS]
    fits: bool = free >= 0
    return fits


@hot
def schedule_running(k: State) -> None:
    """Give the running sequences their tokens."""
    k.g[n.BUDGET] = k.g[n.MAX_TOKENS]
    k.g[n.PREEMPTED_NOW] = 0
    if not _everyone_fits(k):
        _one_by_one(k)
        return
    place = k.g[n.STEP] % k.g[n.BLOCK_SIZE]
    take_crossing_blocks(k, place)
    k.g[n.BUDGET] -= k.g[n.DECODING]
    kept = 0
    for i in range(k.g[n.PREFILLS]):
        slot = k.lists[n.PREFILL_LIST, i]
        tokens = cut_long_prefill(k, k.slots[slot, n.TARGET] - k.slots[slot, n.COMPUTED])
        tokens = min(tokens, k.g[n.BUDGET])
        ends = False
        if tokens > 0:
            grow_chunk(k, slot, tokens)
            ends = give_chunk(k, slot, tokens)
            k.g[n.BUDGET] -= tokens
        if not ends:
            k.lists[n.PREFILL_LIST, kept] = slot
            kept += 1
    k.g[n.PREFILLS] = kept


@hot
def take_crossing_blocks(k: State, place: int) -> None:
    """Take a block for each decoding sequence whose last one is full; the caller has seen that they are free."""
    k.g[n.FREE] -= k.residues[n.CROSSING, place]
    if k.g[n.CACHING] and k.residues[n.CROSSING, place] > 0:
        slot = k.residues[n.BUCKET, place]
        while slot != n.NONE:
            _take_decode_block(k, slot)
            slot = k.slots[slot, n.BUCKET_NEXT]


@part
def _take_decode_block(k: State, slot: int) -> None:
    position = (k.slots[slot, n.BASE] + k.g[n.STEP]) // k.g[n.BLOCK_SIZE]
    k.cache.blocks[slot, position] = take_block(k.g, k.cache)


@part
def _one_by_one(k: State) -> None:
    """Decide the running sequences in admission order; preempt where blocks run out."""
    slot = k.g[n.FIRST]
    while slot != n.NONE and k.g[n.BUDGET] > 0:
        tokens = _wanted_tokens(k, slot)
        passed_over = 0
        if tokens > 0:
            passed_over = _make_room(k, slot, tokens)
            if passed_over == n.NONE:
                break
            _give_tokens(k, slot, tokens)
        slot = k.slots[slot, n.NEXT]
        while passed_over > 0 and slot != n.NONE:
            slot = k.slots[slot, n.NEXT]
            passed_over -= 1
    _count_chunks(k)
    _leave_out_others(k)


@part
def _wanted_tokens(k: State, slot: int) -> int:
    phase = k.slots[slot, n.PHASE]
    if phase == n.DECODE:
        return 1
    if phase == n.ENDED:
        return 0
    wanted: int = min(cut_long_prefill(k, k.slots[slot, n.TARGET] - k.slots[slot, n.COMPUTED]), k.g[n.BUDGET])
    return wanted


@part
def _make_room(k: State, slot: int, tokens: int) -> int:
    """Preempt until the blocks for `tokens` are free; NONE when the sequence itself had to go.

    Otherwise return how many sequences after it the engine passes over: it walks its list by position, and a victim that stood
    earlier in the list without tokens in this step (its last one is in flight) moves all later ones up unnoticed.
    """
    passed_over = 0
    if k.slots[slot, n.PHASE] == n.DECODE:
        needed = int((k.slots[slot, n.BASE] + k.g[n.STEP]) % k.g[n.BLOCK_SIZE] == 0)
    else:
        needed = blocks_for(k.g, k.slots[slot, n.COMPUTED] + tokens) - k.slots[slot, n.BLOCKS]
    while needed > k.g[n.FREE]:
        victim = choose_victim(k)
        given = k.slots[victim, n.CHUNK] > 0 or k.slots[victim, n.TAKEN] == k.g[n.STEP]
        passed_over += int(not given and stands_before(k, victim, slot))
        preempt(k, victim)
        if victim == slot:
            return n.NONE
    return passed_over


@part
def _give_tokens(k: State, slot: int, tokens: int) -> None:
    k.g[n.BUDGET] -= tokens
    if k.slots[slot, n.PHASE] == n.PREFILL:
        grow_chunk(k, slot, tokens)
        k.slots[slot, n.CHUNK] = tokens
        return
    if (k.slots[slot, n.BASE] + k.g[n.STEP]) % k.g[n.BLOCK_SIZE] == 0:
        k.g[n.FREE] -= 1
        if k.g[n.CACHING]:
            _take_decode_block(k, slot)
    k.slots[slot, n.TAKEN] = k.g[n.STEP]


@part
def _count_chunks(k: State) -> None:
    kept = 0
    for i in range(k.g[n.PREFILLS]):
        slot = k.lists[n.PREFILL_LIST, i]
        tokens = k.slots[slot, n.CHUNK]
        k.slots[slot, n.CHUNK] = 0
        if tokens == 0 or not give_chunk(k, slot, tokens):
            k.lists[n.PREFILL_LIST, kept] = slot
            kept += 1
    k.g[n.PREFILLS] = kept


@part
def _leave_out_others(k: State) -> None:
    """Take decoding sequences that got no token out of the counters until the step is over."""
    step = k.g[n.STEP]
    slot = k.g[n.FIRST]
    while slot != n.NONE:
        if k.slots[slot, n.PHASE] == n.DECODE:
            if k.slots[slot, n.TAKEN] == step:
                k.g[n.LATE_ROWS] += k.slots[slot, n.SKIPPED] == step - 1
            else:
                remove_decoding(k, slot)
                if k.slots[slot, n.LAST_STEP] < step:
                    k.slots[slot, n.PHASE] = n.ENDED
                    k.g[n.LINGERING] -= 1
                else:
                    _leave_out(k, slot)
        slot = k.slots[slot, n.NEXT]


@part
def _leave_out(k: State, slot: int) -> None:
    unlink_ending(k, slot)
    k.slots[slot, n.PHASE] = n.LEFT
    k.lists[n.LEFT_OUT_LIST, k.g[n.LEFT_OUT]] = slot
    k.g[n.LEFT_OUT] += 1


@hot
def schedule_waiting(k: State) -> None:
    """Admit waiting requests in order until something runs out; note what."""
    k.g[n.WAIT_REASON] = n.REASON_NONE
    while waiting(k.g) > 0:
        if k.g[n.PREEMPTED_NOW] > 0:
            k.g[n.WAIT_REASON] = n.REASON_KV
            return
        if k.g[n.RUNNING] >= k.g[n.MAX_NUM_SEQS]:
            k.g[n.WAIT_REASON] = n.REASON_SEQS
            return
        if k.g[n.BUDGET] == 0:
            k.g[n.WAIT_REASON] = n.REASON_TOKENS
            return
        if not _admit(k):
            k.g[n.WAIT_REASON] = n.REASON_KV
            return


@hot
def _admit(k: State) -> bool:
    """Admit the head of the queue with its first chunk; False when its blocks aren't free."""
    request = peek(k)
    slot = k.lists[n.FREE_LIST, k.g[n.FREE_SLOTS] - 1]
    known = k.asked[n.PROMPT, request] + k.asked[n.PRODUCED, request]
    found = 0
    idle = 0
    if k.g[n.CACHING]:
        found, idle = find_cached(k, request, slot, known)
    computed = max(found * k.g[n.BLOCK_SIZE], k.asked[n.KNOWN_HIT, request])
    tokens = min(cut_long_prefill(k, known - computed), k.g[n.BUDGET])
    reach = known if k.g[n.WHOLE_SEQUENCE] else computed + tokens
    spare = k.g[n.WATERMARK] if k.g[n.RUNNING] > 0 else 0
    if blocks_for(k.g, reach) - found + idle + spare > k.g[n.FREE]:
        return False
    pop(k)
    k.g[n.FREE_SLOTS] -= 1
    for position in range(found):
        share_block(k.g, k.cache, k.cache.blocks[slot, position])
    _note_admission(k, request, known, computed)
    k.slots[slot, n.REQUEST] = request
    k.slots[slot, n.PHASE] = n.PREFILL
    k.slots[slot, n.COMPUTED] = computed
    k.slots[slot, n.TARGET] = known
    k.slots[slot, n.BLOCKS] = found
    k.slots[slot, n.CHUNK] = 0
    append_running(k, slot)
    k.g[n.BUDGET] -= tokens
    grow_chunk(k, slot, tokens)
    if not give_chunk(k, slot, tokens):
        k.lists[n.PREFILL_LIST, k.g[n.PREFILLS]] = slot
        k.g[n.PREFILLS] += 1
    return True


@hot
def _note_admission(k: State, request: int, known: int, computed: int) -> None:
    if k.asked[n.CACHED, request] < 0:
        k.times[n.SCHEDULED, request] = k.f[n.NOW]
        k.asked[n.CACHED, request] = computed
        k.g[n.QUERY_TOKENS] += known
        k.g[n.HIT_TOKENS] += computed
    else:
        k.f[n.REQUEUED] += k.f[n.NOW]
        k.g[n.RECOMPUTED] -= computed
