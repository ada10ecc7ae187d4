"""Whether a request comes in at all: admission hooks. A hook is any function of an offer and the pools; the usual ones are here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from planner.errors import InputError
from planner.simulator.cluster.views import Offer, PoolViews

Verb = Literal["admit", "reject", "divert"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of an offer: admit to the first pool, reject (HTTP 429 or 503), or divert to the pool that is named."""

    verb: Verb
    pool: str | None = None


Admission = Callable[[Offer, PoolViews], Decision]

ADMIT = Decision("admit")
REJECT = Decision("reject")


def admit_all(_offer: Offer, _pools: PoolViews) -> Decision:
    """Admit every request; the queue has no bound, as in vLLM by default."""
    return ADMIT


def bounded_queue(max_num_queued_reqs: int | None = None, max_num_queued_tokens: int | None = None) -> Admission:
    """Return vLLM's own bound: reject while all replicas together have as many unfinished requests, or tokens yet to prefill.

    max_num_queued_reqs : counts all unfinished requests [request]; max_num_queued_tokens : counts prompt tokens in prefill [token]
    """
    for name, bound in (("max_num_queued_reqs", max_num_queued_reqs), ("max_num_queued_tokens", max_num_queued_tokens)):
        if bound is not None and bound < 1:
            raise InputError(name, bound, "must be at least 1", "Leave it unset for no bound")

    def admission(_offer: Offer, pools: PoolViews) -> Decision:
        replicas = [replica for pool in pools.values() for replica in pool]
        if max_num_queued_reqs is not None and sum(replica.requests for replica in replicas) >= max_num_queued_reqs:
            return REJECT
        if max_num_queued_tokens is not None and sum(replica.prefill_tokens for replica in replicas) >= max_num_queued_tokens:
            return REJECT
        return ADMIT

    return admission


def predicted_ttft(pool: str, ttft_s: float, prefill_tokens_per_s: float, otherwise: Decision = REJECT) -> Admission:
    """Return a hook that admits only what should see its first token in time.

    pool : the pool that would serve it; ttft_s : target [s]
    prefill_tokens_per_s : rate at which one replica works off prompts while it decodes [token/s]
    otherwise : what becomes of the rest: reject, or divert to another pool

    The prediction is the least backlog of prompt tokens in the pool, with the request's own, over the rate.
    """
    for name, value in (("ttft_s", ttft_s), ("prefill_tokens_per_s", prefill_tokens_per_s)):
        if not 0.0 < value < float("inf"):
            raise InputError(name, value, "must be above 0 and finite", "Give a positive number")

    def admission(offer: Offer, pools: PoolViews) -> Decision:
        if not pools[pool]:
            return otherwise
        backlog = min(replica.prefill_tokens for replica in pools[pool]) + offer.prompt_tokens
        return ADMIT if backlog / prefill_tokens_per_s <= ttft_s else otherwise

    return admission


def by_class(pool_of_class: dict[int, str]) -> Admission:
    """Return a hook that sends the classes named to a pool of their own; the others go to the first pool."""
    decisions = {index: Decision("divert", pool) for index, pool in pool_of_class.items()}

    def admission(offer: Offer, _pools: PoolViews) -> Decision:
        return decisions.get(offer.class_index, ADMIT)

    return admission
