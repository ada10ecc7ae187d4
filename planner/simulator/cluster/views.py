"""What routers and admission hooks can see: the request as it was sent, and the replicas as they are."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Offer(NamedTuple):
    """A request as the cluster's door sees it; the length of its output isn't known there.

    request : position in the caller's requests; now_s : when it is offered [s]
    prompt_tokens, max_new_tokens : [token]; predicted_output_tokens : of a predictor [token]
    prefix : identity of the first block of its prompt; None when unknown
    """

    request: int
    now_s: float
    prompt_tokens: int
    max_new_tokens: int
    predicted_output_tokens: float
    class_index: int
    tenant: int
    priority: int
    prefix: int | None


class ReplicaView(Protocol):
    """One replica at the moment of the offer. Counts are free to read; tokens and blocks cost a pass over its requests."""

    @property
    def index(self) -> int:
        """Number of the replica in its pool, from 0."""
        ...

    @property
    def requests(self) -> int:
        """Requests that it has and has not finished [request]."""
        ...

    @property
    def waiting(self) -> int:
        """Requests in its waiting queue [request]."""
        ...

    @property
    def tokens(self) -> int:
        """Prompt tokens of its unfinished requests, and their output tokens so far [token]."""
        ...

    @property
    def prefill_tokens(self) -> int:
        """Tokens that its unfinished requests have yet to prefill [token]."""
        ...

    @property
    def kv_share(self) -> float:
        """Share of its KV blocks that requests hold [1]."""
        ...


PoolViews = Mapping[str, Sequence[ReplicaView]]
