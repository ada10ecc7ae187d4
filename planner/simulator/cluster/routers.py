"""Which replica gets a request: routers, each a function and one entry in a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.errors import InputError
from planner.simulator.cluster.views import Offer, ReplicaView

_MIXER = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


@dataclass(slots=True)
class RouterState:
    """What a router carries from one request to the next.

    rng : for routers that draw; routed : requests that it has routed
    """

    rng: np.random.Generator
    routed: int = 0


class Router(NamedTuple):
    """A router.

    choose : position, among the replicas that are offered (at least one), of the one that gets the request
    looks_at_replicas : the choice depends on their state; one that doesn't can be computed before anything runs
    description : one line for a menu
    """

    choose: Callable[[Offer, Sequence[ReplicaView], RouterState], int]
    looks_at_replicas: bool
    description: str


def round_robin(_offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """Take the replicas in turn."""
    return state.routed % len(replicas)


def at_random(_offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """Take any replica with equal chance."""
    return int(state.rng.integers(len(replicas)))


def fewest_requests(_offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """Take the replica with the fewest unfinished requests; ties go round."""
    return _least([replica.requests for replica in replicas], state)


def fewest_tokens(_offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """Take the replica whose unfinished requests have the fewest tokens, prompts and outputs so far; ties go round."""
    return _least([replica.tokens for replica in replicas], state)


def better_of_two(_offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """Draw two replicas, take the one with fewer unfinished requests (Mitzenmacher 2001)."""
    if len(replicas) == 1:
        return 0
    first, second = (int(i) for i in state.rng.choice(len(replicas), size=2, replace=False))
    return first if replicas[first].requests <= replicas[second].requests else second


def same_prefix_same_replica(offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """Send requests with the same first block to the same replica (rendezvous hashing); without a known prefix go round.

    When a replica comes or goes, only its own prefixes move.
    """
    if offer.prefix is None:
        return round_robin(offer, replicas, state)
    scores = [_mix(offer.prefix, replica.index) for replica in replicas]
    return scores.index(max(scores))


def same_prefix_unless_busy(offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """As prefix-affine, but pass over replicas with more than 1.25 times the mean number of requests, this one among them.

    Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2018); the factor is assumed.
    """
    if offer.prefix is None:
        return fewest_requests(offer, replicas, state)
    loads = [replica.requests for replica in replicas]
    most = -(-125 * (sum(loads) + 1) // (100 * len(replicas)))
    free = [position for position, load in enumerate(loads) if load < most]
    prefix = offer.prefix
    return max(free, key=lambda position: _mix(prefix, replicas[position].index))


def vllm_data_parallel(_offer: Offer, replicas: Sequence[ReplicaView], state: RouterState) -> int:
    """Take the lowest of vLLM's score: requests + 6 · waiting · max(0, KV share - 0.5); ties go round.

    Read from vLLM 0.33's data-parallel client (v1/engine/core_client.py), not recorded; its counts are up to 100 ms old.
    """
    scores = [replica.requests + 6.0 * replica.waiting * max(0.0, replica.kv_share - 0.5) for replica in replicas]
    return _least(scores, state)


ROUTERS: dict[str, Router] = {
    "round-robin": Router(round_robin, looks_at_replicas=False, description="Replicas in turn"),
    "random": Router(at_random, looks_at_replicas=False, description="Any replica with equal chance"),
    "least-requests": Router(fewest_requests, looks_at_replicas=True, description="Fewest unfinished requests"),
    "least-tokens": Router(fewest_tokens, looks_at_replicas=True, description="Fewest tokens among unfinished requests"),
    "power-of-two": Router(better_of_two, looks_at_replicas=True, description="The less loaded of two drawn at random"),
    "prefix-affine": Router(same_prefix_same_replica, looks_at_replicas=False, description="Same prompt prefix, same replica"),
    "prefix-affine-bounded": Router(
        same_prefix_unless_busy,
        looks_at_replicas=True,
        description="Same prompt prefix, same replica, unless it is busier than most",
    ),
    "vllm-data-parallel": Router(
        vllm_data_parallel, looks_at_replicas=True, description="vLLM's data-parallel balancer (read from source, not recorded)"
    ),
}


def router_named(name: str) -> Router:
    """Return a router of the table, or raise InputError."""
    if name not in ROUTERS:
        raise InputError("router", name, f"must be one of {', '.join(ROUTERS)}", "Choose one of them")
    return ROUTERS[name]


def _least(loads: Sequence[float], state: RouterState) -> int:
    """Return the position of the least load; among equals the first at or after the one whose turn it is."""
    count = len(loads)
    turn = state.routed % count
    return min(range(count), key=lambda position: (loads[position], (position - turn) % count))


def _mix(prefix: int, replica: int) -> int:
    """Return a well-mixed number of a prefix and a replica, the same in every process."""
    value = ((prefix & _WORD) * _MIXER ^ (replica + 1) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 30)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)
