"""The requests that a simulation or a replay runs: arrays of equal length, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from planner.errors import InputError
from planner.workloads.laws import MAX_TOKENS, Floats, Tokens

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Table = TypeVar("Table", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, eq=False)
class BlockHashes:
    """Identities of the full and partial prompt blocks of each request; equal prefixes have equal identities.

    flat : identities of all requests, one after the other
    offsets : request i owns flat[offsets[i] : offsets[i + 1]]
    block_tokens : tokens in one block [token]
    """

    flat: Tokens
    offsets: Tokens
    block_tokens: int

    def __post_init__(self) -> None:
        ordered = len(self.offsets) > 0 and self.offsets[0] == 0 and bool((np.diff(self.offsets) >= 0).all())
        if not ordered or self.offsets[-1] != len(self.flat) or self.block_tokens < 1:
            raise InputError(
                "block_hashes",
                len(self.flat),
                "offsets must rise from 0 to the number of identities, and block_tokens must be at least 1",
                "Build it with BlockHashes.from_lists",
            )

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]], block_tokens: int) -> Self:
        """Build from one list of identities per request."""
        counts = np.fromiter((len(row) for row in lists), dtype=np.int64, count=len(lists))
        flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in lists]) if len(lists) else np.empty(0, np.int64)
        return cls(flat.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), block_tokens)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> Tokens:
        """Return the identities of one request."""
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def take(self, indices: Tokens) -> Self:
        """Return the requests at `indices`, in that order."""
        counts = np.diff(self.offsets)[indices]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        within = np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], counts)
        return type(self)(self.flat[np.repeat(self.offsets[indices], counts) + within], offsets, self.block_tokens)

    def cycled(self, n: int) -> Self:
        """Return n requests in order; each pass after the first gets identities of its own, so that it can't hit the earlier."""
        indices = np.arange(n, dtype=np.int64)
        taken = self.take(indices % len(self))
        step = int(self.flat.max()) + 1 if len(self.flat) else 0
        passes = np.repeat(indices // len(self), np.diff(taken.offsets))
        return type(self)(taken.flat + passes * step, taken.offsets, self.block_tokens)


def take_rows(table: Table, rows: Tokens) -> Table:
    """Return rows of a table of requests, in that order.

    table : a dataclass whose columns are arrays, BlockHashes, or None where not known; rows : positions
    """
    columns = ((each.name, getattr(table, each.name)) for each in fields(table))
    return replace(table, **{name: column.take(rows) for name, column in columns if column is not None})


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Requests in the order in which they arrive.

    arrival_s : seconds from the start, not falling [s]
    prompt_tokens, output_tokens : at least 1 [token]
    class_index : position in the workload's classes
    cached_prompt_tokens : prompt tokens that a prefix cache is known to hold, below prompt_tokens; None: not known [token]
    block_hashes : prompt blocks for a prefix cache; None: not known
    """

    arrival_s: Floats
    prompt_tokens: Tokens
    output_tokens: Tokens
    class_index: Tokens
    cached_prompt_tokens: Tokens | None = None
    block_hashes: BlockHashes | None = None

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_values()

    def _check_shapes(self) -> None:
        n = len(self.arrival_s)
        for name in ("arrival_s", "prompt_tokens", "output_tokens", "class_index", "cached_prompt_tokens"):
            array = getattr(self, name)
            if array is None:
                continue
            if array.ndim != 1 or len(array) != n:
                raise InputError(name, array.shape, f"must hold one number for each of {n} requests", "Give arrays of equal length")
            if name != "arrival_s" and array.dtype != np.int64:
                raise InputError(name, str(array.dtype), "must be int64", "Convert with .astype(np.int64)")
        if self.block_hashes is not None and len(self.block_hashes) != n:
            raise InputError("block_hashes", len(self.block_hashes), f"must cover {n} requests", "Give one list per request")

    def _check_values(self) -> None:
        finite = np.isfinite(self.arrival_s)
        _refuse("arrival_s", self.arrival_s, ~finite | (self.arrival_s < 0), "must be finite and at least 0")
        _refuse("arrival_s", self.arrival_s, np.diff(self.arrival_s, prepend=0.0) < 0, "must not fall from one request to the next")
        for name in ("prompt_tokens", "output_tokens"):
            tokens = getattr(self, name)
            _refuse(name, tokens, (tokens < 1) | (tokens > MAX_TOKENS), f"must be between 1 and {MAX_TOKENS}")
        _refuse("class_index", self.class_index, self.class_index < 0, "must be at least 0")
        cached = self.cached_prompt_tokens
        if cached is not None:
            _refuse(
                "cached_prompt_tokens", cached, (cached < 0) | (cached >= self.prompt_tokens), "must be from 0 to prompt_tokens - 1"
            )

    def __len__(self) -> int:
        return len(self.arrival_s)

    def take(self, rows: Tokens) -> Self:
        """Return the requests at `rows`, in rising order, with all that is known of them."""
        return take_rows(self, rows)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per request, with the columns that are known; block_hashes as lists."""
        columns: dict[str, object] = {
            "arrival_s": self.arrival_s,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "class_index": self.class_index,
        }
        if self.cached_prompt_tokens is not None:
            columns["cached_prompt_tokens"] = self.cached_prompt_tokens
        if self.block_hashes is not None:
            columns["block_hashes"] = [self.block_hashes.row(i).tolist() for i in range(len(self))]
        frame = pd.DataFrame(columns)
        if self.block_hashes is not None:
            frame.attrs["block_tokens"] = self.block_hashes.block_tokens
        return frame

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Self:
        """Read what `to_frame` wrote; raises InputError when a needed column is absent."""
        for column in ("arrival_s", "prompt_tokens", "output_tokens"):
            if column not in frame.columns:
                raise InputError(
                    "frame", list(frame.columns), f"must have a column {column}", "Import foreign tables with import_rows"
                )

        def whole(column: str) -> Tokens:
            values = frame[column].to_numpy(dtype=np.float64)
            _refuse(column, values, ~np.isfinite(values) | (values != np.floor(values)), "must be a whole number")
            return values.astype(np.int64)

        hashes = None
        if "block_hashes" in frame.columns:
            block_tokens = frame.attrs.get("block_tokens")
            if not isinstance(block_tokens, int):
                raise InputError(
                    "frame.attrs", block_tokens, "must state block_tokens beside block_hashes", "Set frame.attrs['block_tokens']"
                )
            hashes = BlockHashes.from_lists(frame["block_hashes"].tolist(), block_tokens)
        return cls(
            arrival_s=frame["arrival_s"].to_numpy(dtype=np.float64),
            prompt_tokens=whole("prompt_tokens"),
            output_tokens=whole("output_tokens"),
            class_index=whole("class_index") if "class_index" in frame.columns else np.zeros(len(frame), dtype=np.int64),
            cached_prompt_tokens=whole("cached_prompt_tokens") if "cached_prompt_tokens" in frame.columns else None,
            block_hashes=hashes,
        )


def _refuse(name: str, values: npt.NDArray[np.generic], wrong: npt.NDArray[np.bool_], bound: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{name}[{row}]", values[row].item(), bound, "Correct or drop the row")
