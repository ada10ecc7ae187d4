"""Part of the compiled loop: the waiting queue, first come first served or by priority."""

from planner.simulator import layout as n
from planner.simulator.compiled import hot, part
from planner.simulator.layout import State


@part
def _key_less(k: State, a: int, b: int) -> bool:
    """Order of two waiting requests: priority, then arrival; requests are numbered by arrival."""
    return k.rank[a] < k.rank[b] or (k.rank[a] == k.rank[b] and a < b)


@part
def push_heap(k: State, request: int) -> None:
    """Add a request to the priority queue."""
    place = k.g[n.HEAPED]
    k.g[n.HEAPED] += 1
    while place > 0:
        parent = (place - 1) // 2
        if not _key_less(k, request, k.heap[parent]):
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
        if child + 1 < size and _key_less(k, k.heap[child + 1], k.heap[child]):
            child += 1
        if not _key_less(k, k.heap[child], request):
            break
        k.heap[place] = k.heap[child]
        place = child
    k.heap[place] = request


@hot
def arrive(k: State, now_s: float) -> None:
    """Queue the requests that have arrived by now."""
    total = len(k.arrival_s)
    while k.g[n.ARRIVED] < total and k.arrival_s[k.g[n.ARRIVED]] <= now_s:
        if k.options[n.PRIORITY]:
            push_heap(k, k.g[n.ARRIVED])
        k.g[n.ARRIVED] += 1


@hot
def waiting(k: State) -> int:
    """Requests that could be admitted now, preempted ones among them."""
    if k.options[n.PRIORITY]:
        heaped: int = k.g[n.HEAPED]
        return heaped
    queued: int = k.g[n.STACKED] + k.g[n.ARRIVED] - k.g[n.ADMITTED]
    return queued


@hot
def peek(k: State) -> int:
    """Return the request at the head of the queue, which isn't empty."""
    request: int = k.g[n.ADMITTED]
    if k.options[n.PRIORITY]:
        request = k.heap[0]
    elif k.g[n.STACKED] > 0:
        request = k.stack[k.g[n.STACKED] - 1]
    return request


@hot
def pop(k: State) -> None:
    """Take the head out of the queue."""
    if k.options[n.PRIORITY]:
        _pop_heap(k)
    elif k.g[n.STACKED] > 0:
        k.g[n.STACKED] -= 1
    else:
        k.g[n.ADMITTED] += 1


@part
def push_front(k: State, request: int) -> None:
    """Put a preempted request back: in front, or where its priority says."""
    if k.options[n.PRIORITY]:
        push_heap(k, request)
    else:
        k.stack[k.g[n.STACKED]] = request
        k.g[n.STACKED] += 1
