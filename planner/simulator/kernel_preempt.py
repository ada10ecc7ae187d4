"""Part of the compiled loop: who is preempted when blocks run out, and what becomes of it."""

from planner.simulator import layout as n
from planner.simulator.compiled import part
from planner.simulator.kernel_log import log_row
from planner.simulator.kernel_queue import push_front
from planner.simulator.kernel_slots import blocks_for, give_back, remove_decoding, remove_running, unlink_ending
from planner.simulator.layout import State


@part
def choose_victim(k: State) -> int:
    """Return whom the engine preempts: the youngest, or the highest (priority, arrival), of equals the first in the list."""
    if not k.g[n.PRIORITY]:
        last: int = k.g[n.LAST]
        return last
    best: int = k.g[n.FIRST]
    slot = k.slots[best, n.NEXT]
    while slot != n.NONE:
        one = k.slots[slot, n.REQUEST]
        other = k.slots[best, n.REQUEST]
        if k.asked[n.RANK, one] > k.asked[n.RANK, other] or (
            k.asked[n.RANK, one] == k.asked[n.RANK, other] and k.times[n.ARRIVAL, one] > k.times[n.ARRIVAL, other]
        ):
            best = slot
        slot = k.slots[slot, n.NEXT]
    return best


@part
def stands_before(k: State, one: int, other: int) -> bool:
    """Say whether one slot stands before another in the running list."""
    slot = k.slots[one, n.NEXT]
    while slot not in (n.NONE, other):
        slot = k.slots[slot, n.NEXT]
    found: bool = slot == other
    return found


@part
def preempt(k: State, slot: int) -> None:
    """Take all blocks from a sequence and let it wait; tokens that it was given in this step go back to the budget."""
    request = k.slots[slot, n.REQUEST]
    step = k.g[n.STEP]
    returns = 1
    if k.slots[slot, n.PHASE] == n.PREFILL:
        computed = k.slots[slot, n.COMPUTED]
        chunk = k.slots[slot, n.CHUNK]
        k.g[n.BUDGET] += chunk
        k.slots[slot, n.CHUNK] = 0
        _drop_prefill(k, slot)
        give_back(k, slot, k.slots[slot, n.BLOCKS], computed + chunk, returns)
    else:
        taken = int(k.slots[slot, n.TAKEN] == step)
        computed = k.slots[slot, n.BASE] + step
        hashed = computed + taken - _unseen_token(k, slot, taken)
        returns = int(k.slots[slot, n.LAST_STEP] >= step)
        k.g[n.BUDGET] += taken
        unlink_ending(k, slot)
        if k.slots[slot, n.PHASE] == n.DECODE:
            remove_decoding(k, slot)
            k.g[n.LINGERING] -= 1 - returns
        give_back(k, slot, blocks_for(k.g, computed + taken), hashed, returns)
        if returns == 1:
            k.asked[n.PRODUCED, request] = k.asked[n.OUTPUT, request] - (k.slots[slot, n.LAST_STEP] - step + 1)
            k.times[n.FINISH, request] = k.since[slot] if k.slots[slot, n.SKIPPED] == step - 1 else k.f[n.END]
    remove_running(k, slot)
    k.asked[n.PREEMPTED, request] += 1
    k.g[n.PREEMPTIONS] += 1
    k.g[n.PREEMPTED_NOW] += 1
    if k.g[n.LOGGING]:
        log_row(k.g, k.record, request, n.NONE, 0)
    if returns == 1:
        k.f[n.REQUEUED] -= k.f[n.NOW]
        k.g[n.RECOMPUTED] += computed
        push_front(k, request)
    else:
        k.g[n.GHOSTS] += 1
        k.g[n.DONE] += 1


@part
def _unseen_token(k: State, slot: int, taken: int) -> int:
    """Return 1 when the token that a sequence computed last isn't known yet, so that it can't be part of a hash."""
    if not k.g[n.ASYNC]:
        return 0
    row = k.g[n.STEP] - 1 + taken
    drained = k.g[n.DRAINED]
    if row == drained or (taken == 0 and k.g[n.STEP] == drained):
        return 0
    had_row = k.slots[slot, n.FIRST_STEP] < row and k.slots[slot, n.SKIPPED] != row
    return int(had_row and k.slots[slot, n.SKIPPED] != row - 1)


@part
def _drop_prefill(k: State, slot: int) -> None:
    kept = 0
    for i in range(k.g[n.PREFILLS]):
        if k.lists[n.PREFILL_LIST, i] != slot:
            k.lists[n.PREFILL_LIST, kept] = k.lists[n.PREFILL_LIST, i]
            kept += 1
    k.g[n.PREFILLS] = kept
