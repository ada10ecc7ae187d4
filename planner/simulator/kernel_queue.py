"""Part of the compiled loop: the waiting queue, first come first served or by priority."""

from planner.simulator import layout as n
from planner.simulator.compiled import hot, part
from planner.simulator.layout import Ints, Shorts, State


@part
def _key_less(asked: Shorts, a: int, b: int) -> bool:
    """Order of two waiting requests: priority, then arrival; requests are numbered by arrival."""
    return asked[n.RANK, a] < asked[n.RANK, b] or (asked[n.RANK, a] == asked[n.RANK, b] and a < b)


@part
def push_heap(k: State, request: int) -> None:
    """Add a request to the priority queue."""
    place = k.g[n.HEAPED]
    k.g[n.HEAPED] += 1
    while place > 0:
        parent = (place - 1) // 2
        if not _key_less(k.asked, request, k.heap[parent]):
            break
        k.heap[place] = k.heap[parent]
        place = parent
    k.heap[place] = request


@part
def _pop_heap(k: State) -> None:
    k.g[n.HEAPED] -= 1
    size = k.g[n.HEAPED]
    if size == 0:
        return
    request = k.heap[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _key_less(k.asked, k.heap[child + 1], k.heap[child]):
            child += 1
        if not _key_less(k.asked, k.heap[child], request):
            break
        k.heap[place] = k.heap[child]
        place = child
    k.heap[place] = request


@hot
def arrive(k: State, now_s: float) -> None:
    """Queue the requests that have arrived by now."""
    total = k.times.shape[1]
    while k.g[n.ARRIVED] < total and k.times[n.ARRIVAL, k.g[n.ARRIVED]] <= now_s:
        if k.g[n.PRIORITY]:
            push_heap(k, k.g[n.ARRIVED])
        k.g[n.ARRIVED] += 1


@hot
def waiting(g: Ints) -> int:
    """Requests that could be admitted now, preempted ones among them."""
    if g[n.PRIORITY]:
        heaped: int = g[n.HEAPED]
        return heaped
    queued: int = g[n.STACKED] + g[n.ARRIVED] - g[n.ADMITTED]
    return queued


@hot
def peek(k: State) -> int:
    """Return the request at the head of the queue, which isn't empty."""
    request: int = k.g[n.ADMITTED]
    if k.g[n.PRIORITY]:
        request = k.heap[0]
    elif k.g[n.STACKED] > 0:
        request = k.lists[n.STACK_LIST, k.g[n.STACKED] - 1]
    return request


@hot
def pop(k: State) -> None:
    """Take the head out of the queue."""
    if k.g[n.PRIORITY]:
        _pop_heap(k)
    elif k.g[n.STACKED] > 0:
        k.g[n.STACKED] -= 1
    else:
        k.g[n.ADMITTED] += 1


@part
def push_front(k: State, request: int) -> None:
    """Put a preempted request back: in front, or where its priority says."""
    if k.g[n.PRIORITY]:
        push_heap(k, request)
    else:
        k.lists[n.STACK_LIST, k.g[n.STACKED]] = request
        k.g[n.STACKED] += 1
