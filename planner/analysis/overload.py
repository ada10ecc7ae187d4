"""Traffic beyond capacity for a while: the backlog it leaves, how long that drains, and what to tell clients."""

import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.units import percentage


class Spike(NamedTuple):
    """Load as a share of capacity.

    base_load : before and after [1]; factor : load in the spike ÷ base [1]; duration_s : of the spike [s]
    """

    base_load: float
    factor: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a spike leaves behind when everything is queued.

    backlog_s : work in the queue when the spike ends, in seconds of the whole capacity [s]; the wait of the last arrival
    drain_s : until the queue is empty again [s]; None when the base load alone fills the capacity
    excess_share : share of the spike's arrivals beyond capacity, what must be rejected or deferred [1]
    """

    backlog_s: float
    drain_s: float | None
    excess_share: float
    explanation: Explanation


def backlog(spike: Spike) -> Backlog:
    """Return the backlog of a spike: (load - 1) · duration, drained at the rate 1 - base load.

    >>> result = backlog(Spike(0.6, 3.0, 60.0))
    >>> round(result.backlog_s, 6), round(result.drain_s, 6)
    (48.0, 120.0)
    """
    require_positive("base_load", spike.base_load, "shares of capacity")
    require_positive("factor", spike.factor, "multiples of the base load")
    require_positive("duration_s", spike.duration_s, "seconds")
    load = spike.base_load * spike.factor
    work_s = max(load - 1.0, 0.0) * spike.duration_s
    spare = 1.0 - spike.base_load
    drain = work_s / spare if spare > 0.0 else (0.0 if work_s == 0.0 else None)
    excess = max(load - 1.0, 0.0) / load
    drained = "and never drains" if drain is None else f"and takes {drain:.0f} s more to drain"
    return Backlog(
        work_s,
        drain,
        excess,
        Explanation(
            f"The spike leaves {work_s:.0f} s of work {drained}; {percentage(excess)} of its requests exceed the capacity.",
            f"({spike.base_load:g} × {spike.factor:g} - 1) × {spike.duration_s:g} s = {work_s:.0f} s, drained at 1 - "
            f"{spike.base_load:g}",
            "Bound the queue (--max-num-queued-reqs, --max-num-queued-tokens) at what the TTFT target allows, and reject the "
            "rest at once.",
        ),
    )


class Rejection(NamedTuple):
    """What a client is told.

    status : HTTP status; retry_after_s : whole seconds until it may succeed [s]; jitter_s : spread that clients should add [s]
    response : the response's text, to copy
    """

    status: int
    retry_after_s: int
    jitter_s: int
    response: str


def rejection(queued_s: float, allowed_s: float, *, client_limit: bool = False) -> Rejection:
    """Return the response to a request that would wait too long.

    queued_s : work in the queue [s]; allowed_s : wait that the TTFT target leaves [s]
    client_limit : True when this client is over its own limit (429), False when the service is full (503)

    Retry-After is the time until the queue is short enough, at least a second; a jitter as long keeps clients from coming back
    together.
    """
    for field, value in (("queued_s", queued_s), ("allowed_s", allowed_s)):
        if not (math.isfinite(value) and value >= 0.0):
            raise InputError(field, value, "must be finite and at least 0", "Give seconds")
    wait = max(math.ceil(queued_s - allowed_s), 1)
    status = HTTPStatus.TOO_MANY_REQUESTS if client_limit else HTTPStatus.SERVICE_UNAVAILABLE
    kind = "rate_limit_exceeded" if client_limit else "overloaded"
    body = (
        f'{{"error": {{"type": "{kind}", "message": "Queue is {queued_s:.0f} s long; retry after {wait} s with random jitter."}}}}'
    )
    text = f"HTTP/1.1 {status.value} {status.phrase}\nRetry-After: {wait}\nContent-Type: application/json\n\n{body}\n"
    return Rejection(status.value, wait, wait, text)
