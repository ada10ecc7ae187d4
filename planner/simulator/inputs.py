"""Turns requests as the workloads give them into the queue that the engine accepts, and counts what it refuses."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.simulator.layout import POSITIONS, Ints, Shorts
from planner.simulator.limits import EngineLimits
from planner.simulator.state import Queue
from planner.workloads import BlockHashes
from planner.workloads.requests import take_rows

Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]
MOST_TOKENS = 2**30


class RequestArrays(Protocol):
    """What the simulator reads of requests; `planner.workloads.Requests` has it, and `RequestTable` for arrays of any order."""

    @property
    def arrival_s(self) -> npt.NDArray[np.float64]:
        """Seconds from the start [s]."""
        ...

    @property
    def prompt_tokens(self) -> npt.NDArray[np.int64]:
        """Tokens of each prompt [token]."""
        ...

    @property
    def output_tokens(self) -> npt.NDArray[np.int64]:
        """Tokens of each output [token]."""
        ...

    @property
    def cached_prompt_tokens(self) -> npt.NDArray[np.int64] | None:
        """Tokens of each prompt that the prefix cache is known to hold, or None [token]."""
        ...

    @property
    def block_hashes(self) -> BlockHashes | None:
        """Content of the prompts' leading blocks, or None."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: npt.NDArray[np.int64]) -> "RequestArrays":
        """Return the requests at `rows`, with all that is known of them."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RequestTable:
    """Requests as they come, in any order, from a trace or a test; what the engine would refuse stays in and is counted.

    arrival_s : seconds, finite and not negative [s]
    prompt_tokens, output_tokens : [token]
    block_hashes : content of the prompts' leading blocks
    cached_prompt_tokens : tokens of each prompt that the prefix cache is known to hold, where no content is given [token]
    """

    arrival_s: npt.NDArray[np.float64]
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    block_hashes: BlockHashes | None = None
    cached_prompt_tokens: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        for name in ("prompt_tokens", "output_tokens"):
            column = getattr(self, name)
            if len(column) != count:
                raise InputError(name, len(column), f"must hold one number for each of {count} requests", "Give equal lengths")
            if not np.issubdtype(column.dtype, np.integer):
                raise InputError(name, str(column.dtype), "must be whole numbers", "Round or convert the column first")
            if count and int(column.max()) > MOST_TOKENS:
                raise InputError(name, int(column.max()), f"must be at most {MOST_TOKENS}", "Correct or drop the row")
        cached = self.cached_prompt_tokens
        if cached is not None and (len(cached) != count or bool(((cached < 0) | (cached > self.prompt_tokens)).any())):
            raise InputError("cached_prompt_tokens", len(cached), "must be from 0 to each prompt's tokens", "Correct or drop it")
        wrong = ~np.isfinite(self.arrival_s) | (self.arrival_s < 0.0)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(
                f"arrival_s[{row}]", float(self.arrival_s[row]), "must be finite and at least 0", "Correct or drop the row"
            )

    def __len__(self) -> int:
        return len(self.arrival_s)

    def take(self, rows: npt.NDArray[np.int64]) -> Self:
        """Return the requests at `rows`, in that order, with all that is known of them."""
        return take_rows(self, rows)


@dataclass(frozen=True, slots=True, eq=False)
class Intake:
    """The accepted requests in order of arrival, and where each came from.

    order : position in the caller's arrays of each accepted request
    """

    queue: Queue
    order: Ints


def take_in(requests: RequestArrays, limits: EngineLimits, priorities: npt.NDArray[np.int64] | None) -> Intake:
    """Return the requests that the engine accepts, by arrival; ties keep the caller's order.

    The engine refuses a prompt that leaves no room for an output within max_model_len, a request without prompt or output, and one
    that could never fit in the KV cache alone (the real engine would retry that one for ever).
    """
    prompt = requests.prompt_tokens
    output = requests.output_tokens
    if limits.max_model_len is not None:
        output = np.minimum(output, limits.max_model_len - prompt)
    fits = prompt + output - 1 <= limits.num_blocks * limits.block_size
    accepted = np.flatnonzero((prompt >= 1) & (output >= 1) & fits)
    arrival_s = requests.arrival_s[accepted]
    if len(accepted) > 1 and bool((np.diff(arrival_s) < 0.0).any()):
        accepted = accepted[np.argsort(arrival_s, kind="stable")]
        arrival_s = requests.arrival_s[accepted]
    hashes = requests.block_hashes if limits.enable_prefix_caching else None
    if priorities is not None and len(priorities) != len(requests):
        raise InputError("priorities", len(priorities), f"must cover {len(requests)} requests", "Give one number per request")
    rank = np.zeros(len(accepted), np.int32) if priorities is None else priorities[accepted].astype(np.int32)
    identities, offsets = _identities(hashes, accepted)
    queue = Queue(
        arrival_s=np.ascontiguousarray(arrival_s, np.float64),
        prompt=prompt[accepted].astype(np.int32),
        output=output[accepted].astype(np.int32),
        rank=rank,
        identities=identities,
        offsets=offsets,
        hash_tokens=hashes.block_tokens if hashes is not None else limits.block_size,
        known_hit=known_hits(requests, limits, accepted),
    )
    return Intake(queue, accepted)


def known_hits(requests: RequestArrays, limits: EngineLimits, accepted: Ints) -> Shorts:
    """Return the prompt tokens that the cache is said to hold, in whole blocks that leave a token to compute.

    They are skipped, yet their blocks count as the request's own: who shares them isn't known.
    """
    cached = requests.cached_prompt_tokens
    if cached is None or requests.block_hashes is not None or not limits.enable_prefix_caching:
        return np.zeros(len(accepted), np.int32)
    most = np.minimum(cached[accepted], requests.prompt_tokens[accepted] - 1)
    return (most // limits.block_size * limits.block_size).astype(np.int32)


def _identities(hashes: BlockHashes | None, accepted: Ints) -> tuple[Ints, Ints]:
    """Return the content of the accepted requests' blocks, small enough that a block's key fits in 64 bits."""
    if hashes is None:
        return np.zeros(1, np.int64), np.zeros(len(accepted) + 1, np.int64)
    taken = hashes.take(accepted)
    flat = taken.flat
    if len(flat) and (int(flat.min()) < 0 or int(flat.max()) >= 2**62 // POSITIONS):
        flat = np.unique(flat, return_inverse=True)[1].astype(np.int64)
    return np.ascontiguousarray(flat, np.int64), np.ascontiguousarray(taken.offsets, np.int64)
