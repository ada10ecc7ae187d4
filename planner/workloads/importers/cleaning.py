"""Raw columns → checked arrays; every row is kept, or dropped with a reason, or named in an error."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from planner.errors import InputError
from planner.units import DAY_S, US
from planner.workloads.importers.formats import RawRows, TimeUnit
from planner.workloads.laws import MAX_TOKENS, Floats, Tokens
from planner.workloads.requests import BlockHashes

BadRows = Literal["refuse", "drop"]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_EPOCHS = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"))
_COARSE_SHARE = 0.5
_COARSE_GRID_US = 100_000
_FEWEST_TIMES = 10
_LARGEST_TIME = 1e19
"""Nanoseconds since 1970 have 19 digits."""
_MOST_YEARS = 5
_BLOCK_SIZES = (512, 16, 64, 32, 128, 256)


@dataclass(slots=True)
class _Losses:
    """Which rows remain, and why the others don't."""

    kept: Mask
    bad_rows: BadRows
    reasons: dict[str, int] = field(default_factory=dict)

    def drop(self, wrong: Mask, reason: str) -> None:
        """Drop rows that are allowed to be useless."""
        lost = self.kept & wrong
        if lost.any():
            self.reasons[reason] = self.reasons.get(reason, 0) + int(lost.sum())
            self.kept &= ~lost

    def refuse(self, wrong: Mask, column: str, value_at: Callable[[int], object], bound: str) -> None:
        """Raise for the first wrong row, or drop the rows when the caller asked for that."""
        wrong = wrong & self.kept
        if not wrong.any():
            return
        if self.bad_rows == "drop":
            self.drop(wrong, f"{column} {bound}")
            return
        row = int(np.argmax(wrong))
        value = value_at(row)
        shown = value.item() if isinstance(value, np.generic) else value
        raise InputError(f"rows[{row + 1}].{column}", shown, bound, "Correct the row, or have rows that can't be read left out")


@dataclass(frozen=True, slots=True)
class CleanRows:
    """Checked rows in order of arrival, with what was done to them."""

    prompt_tokens: Tokens
    output_tokens: Tokens
    arrival_s: Floats | None
    time_resolution_s: float | None
    started: str | None
    block_hashes: BlockHashes | None
    dropped: dict[str, int]
    notes: tuple[str, ...]


def clean_rows(raw: RawRows, bad_rows: BadRows = "refuse") -> CleanRows:
    """Check, convert and order the rows.

    Dropped and counted: empty cells, zero prompts, zero outputs (failures), rows that the format marks as no work.
    Errors that name row and column (or counted drops): text, fractions, negative, infinite and absurd numbers, bad times.
    """
    losses = _Losses(np.ones(len(raw.prompt), dtype=bool), bad_rows)
    for reason, mask in raw.drop.items():
        losses.drop(mask.to_numpy(dtype=bool), reason)
    prompts = _tokens(raw.prompt, "prompt_tokens", losses)
    outputs = _tokens(raw.output, "output_tokens", losses)
    times, notes, started = _times(raw, losses)
    if not losses.kept.any():
        raise InputError("file", losses.reasons, "must hold a row with a prompt and an output", "Check the columns and units")
    order = np.flatnonzero(losses.kept)
    if times is not None:
        times, order, notes = _ordered(times, order, notes)
        _check_span(float(times[-1]))
    hashes, hash_notes = _hashes(raw, prompts, order)
    tick_s = None if times is None else coarse_tick_s(times)
    if tick_s is not None:
        notes = (*notes, f"Times fall on ticks of {tick_s:g} s and are spread inside them when sampled.")
    return CleanRows(
        prompt_tokens=prompts[order].astype(np.int64),
        output_tokens=outputs[order].astype(np.int64),
        arrival_s=times,
        time_resolution_s=tick_s,
        started=started,
        block_hashes=hashes,
        dropped=losses.reasons,
        notes=(*notes, *hash_notes),
    )


def _check_span(span_s: float) -> None:
    """Refuse times that lie further apart than any trace of one service: seconds mixed with dates, or zeros for unknown ones."""
    years = span_s / (365.25 * DAY_S)
    if years > _MOST_YEARS:
        raise InputError(
            "arrival",
            f"{years:,.3g} years from first to last",
            f"must span at most {_MOST_YEARS} years",
            "Bring all times to one unit and one origin, and drop rows without a time",
        )


def coarse_tick_s(arrival_s: Floats) -> float | None:
    """Return the tick of coarse time stamps, given in order; None when they are fine [s].

    Coarse are times that all lie on a grid of 0.1 s or more (their greatest common step is the tick), and times of which at
    least half are shared with another row (the smallest gap between distinct times is the tick). In whole microseconds.
    """
    steps_us = np.diff(np.rint(arrival_s / US).astype(np.int64))
    gaps_us = steps_us[steps_us > 0]
    if len(gaps_us) < _FEWEST_TIMES:
        return None
    grid_us = int(np.gcd.reduce(gaps_us))
    if grid_us >= _COARSE_GRID_US:
        return grid_us * US
    shared = len(gaps_us) + 1 <= (1 - _COARSE_SHARE) * len(arrival_s)
    return int(gaps_us.min()) * US if shared else None


def _tokens(column: pd.Series, name: str, losses: _Losses) -> Floats:
    """Return the counts as floats, after dropping the empty and zero ones and refusing the wrong ones."""
    if column.dtype == np.bool_:
        raise InputError(name, "true or false", "must be whole numbers", "Choose the column that holds token counts")
    numbers = _numeric(column)
    missing = column.isna().to_numpy() | _blank(column)
    losses.drop(missing, f"{name} is empty")
    value_at = column.iloc.__getitem__
    losses.refuse(np.isnan(numbers), name, value_at, "must be a number")
    losses.refuse(~np.isfinite(numbers) | (numbers > MAX_TOKENS), name, value_at, f"must be at most {MAX_TOKENS} tokens")
    losses.refuse(numbers < 0, name, value_at, "must not be negative")
    losses.refuse(numbers != np.floor(numbers), name, value_at, "must be a whole number")
    losses.drop(numbers == 0, f"{name} is 0")
    return numbers


def _numeric(column: pd.Series) -> Floats:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if column.dtype == "str":
        return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.fromiter((_number(value) for value in column), dtype=np.float64, count=len(column))


def _number(value: object) -> float:
    """Return a cell as a float; NaN when it is no number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.number):
        return np.nan
    if isinstance(value, str) and "_" in value:
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf
    except ValueError:
        return np.nan


def _blank(column: pd.Series) -> Mask:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return np.zeros(len(column), dtype=bool)
    if column.dtype == "str":
        return column.str.strip().eq("").to_numpy(dtype=bool)
    return np.fromiter((isinstance(value, str) and not value.strip() for value in column), dtype=bool, count=len(column))


def _times(raw: RawRows, losses: _Losses) -> tuple[Floats | None, tuple[str, ...], str | None]:
    """Return seconds since the first kept row, one per raw row, or None when the file has no times."""
    column = raw.arrival
    if column is None or column.isna().all():
        return None, ("No arrival times: arrivals are Poisson.",), None
    if np.isnan(_number(column.dropna().iloc[0])):
        return _clock_times(column, losses)
    numbers = _numeric(column)
    losses.drop(column.isna().to_numpy() | _blank(column), "arrival is empty")
    bound = f"must be a finite number like the first, at most {_LARGEST_TIME:g}"
    losses.refuse(~(np.abs(numbers) <= _LARGEST_TIME), "arrival", column.iloc.__getitem__, bound)
    if not losses.kept.any():
        return None, (), None
    unit, guess = _unit(raw.arrival_unit, float(np.max(numbers[losses.kept])))
    seconds = (numbers - np.min(numbers[losses.kept])) * _SECONDS[unit]
    return seconds, guess, None


def _clock_times(column: pd.Series, losses: _Losses) -> tuple[Floats | None, tuple[str, ...], str | None]:
    text = column.astype("string")
    given = text.dropna()
    if len(given) > 1 and (given == given.iloc[0]).all():
        return None, ("Every row has the same time stamp: arrivals are Poisson.",), None
    stamps = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
    losses.drop(column.isna().to_numpy() | _blank(column), "arrival is empty")
    losses.refuse(stamps.isna().to_numpy(), "arrival", column.iloc.__getitem__, "must be a date and time in ISO form")
    if not losses.kept.any():
        return None, (), None
    first = stamps[losses.kept].min()
    seconds = np.asarray((stamps - first).dt.total_seconds().to_numpy(na_value=0.0), dtype=np.float64)
    return seconds, (), first.isoformat()


def _unit(unit: TimeUnit, largest: float) -> tuple[str, tuple[str, ...]]:
    """Return the unit of numeric times; a guess is told. Numbers of 10^11 and more can only be times since 1970 in finer units."""
    if unit in _SECONDS:
        return unit, ()
    found = next((name for bound, name in _EPOCHS if largest >= bound), "s")
    return found, (f"Times were taken as {found}, judged by their size.",)


def _ordered(times: Floats, kept: Rows, notes: tuple[str, ...]) -> tuple[Floats, Rows, tuple[str, ...]]:
    """Return the kept times in order, the rows in that order, and notes about order and repeats."""
    values = times[kept]
    steps = np.diff(values)
    if (steps < 0).any():
        notes = (*notes, f"{int((steps < 0).sum()):,} rows came before an earlier one; rows were sorted by time.")
        within = np.argsort(values, kind="stable")
        values, kept = values[within], kept[within]
    repeats = int((np.diff(values) == 0).sum())
    if repeats:
        notes = (*notes, f"{repeats:,} rows share their time with the row before.")
    return values - values[0], kept, notes


def _hashes(raw: RawRows, prompts: Floats, order: Rows) -> tuple[BlockHashes | None, tuple[str, ...]]:
    """Return block hashes of the kept rows; the block size is the one that explains every list's length."""
    if raw.block_hashes is None:
        return None, ()
    lists = [raw.block_hashes.iloc[index] for index in order]
    whole = all(isinstance(row, list | np.ndarray) and all(_is_hash(value) for value in row) for row in lists)
    if not whole:
        return None, ("Block hashes were left out: some row has none.",)
    counts = np.array([len(row) for row in lists])
    for size in _BLOCK_SIZES:
        if (np.ceil(prompts[order] / size) == counts).all():
            return BlockHashes.from_lists(lists, size), (f"Block hashes are of {size}-token blocks, judged by their number.",)
    return None, ("Block hashes were left out: no block size explains their number.",)


def _is_hash(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63
