"""What people type, read as figures: "800 ms", "10B", "1,200", "15 %"; anything else is an InputError with its remedy."""

import math
import re
from collections.abc import Callable

from planner.errors import InputError
from planner.units import BILLION, HOUR_S, MILLION, MINUTE_S, MS

MAX_CHARACTERS = 60
_DIGITS = r"[+-]?(?:\d{1,3}(?:[,_ \xa0]\d{3})+|\d+|(?=\.\d))(?:\.\d*)?(?:[eE][+-]?\d{1,3})?"
_NUMBER = re.compile(rf"\s*(?P<number>{_DIGITS})\s*(?P<suffix>[A-Za-zµ%]*)\s*")
_MAGNITUDES = {"": 1.0, "k": 1e3, "K": 1e3, "M": MILLION, "B": BILLION, "b": BILLION, "G": BILLION, "T": 1e12}
_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": MS, "s": 1.0, "sec": 1.0, "min": MINUTE_S, "h": HOUR_S}

Reader = Callable[[str, str], float | int | str | None]


def number(field: str, text: str) -> float:
    """Read a number that may carry k, M, B or T.

    >>> [number("rate", text) for text in ("10", "1,200", "10B", "2.5k", "1e6")]
    [10.0, 1200.0, 10000000000.0, 2500.0, 1000000.0]
    """
    value, suffix = _split(field, text)
    if suffix not in _MAGNITUDES:
        raise InputError(field, text, "must be a number, with k, M, B or T if it is large", "Write it like 10, 2.5k or 10B")
    large = value * _MAGNITUDES[suffix]
    if not math.isfinite(large):
        raise InputError(field, text, "must be a finite number", "Write a smaller one")
    return large


def whole(field: str, text: str) -> int:
    """Read a whole number.

    >>> whole("max_num_seqs", "1k")
    1000
    """
    value = number(field, text)
    if value != math.floor(value):
        raise InputError(field, text, "must be a whole number", "Leave the decimals out")
    return int(value)


def share(field: str, text: str) -> float:
    """Read a share as per cent or as a fraction.

    >>> share("headroom", "15%"), share("headroom", "0.15")
    (0.15, 0.15)
    """
    value, suffix = _split(field, text)
    if suffix == "%":
        return value / 100.0
    if suffix:
        raise InputError(field, text, "must be a share", "Write it like 15% or 0.15")
    return value


def duration(unit: str) -> Callable[[str, str], float]:
    """Return a reader of durations in seconds; `unit` is meant where none is written.

    >>> read = duration("ms")
    >>> read("TPOT", "30"), read("TPOT", "0.03 s")
    (0.03, 0.03)
    """

    def read(field: str, text: str) -> float:
        value, suffix = _split(field, text)
        if (suffix or unit) not in _DURATIONS:
            raise InputError(field, text, "must be a duration", "Write it like 800 ms or 1.5 s")
        return value * _DURATIONS[suffix or unit]

    return read


def optional(read: Reader) -> Reader:
    """Return a reader that takes an empty field for None."""

    def read_optional(field: str, text: str) -> float | int | str | None:
        return read(field, text) if text.strip() else None

    return read_optional


def word(field: str, text: str) -> str:
    """Read a name: spaces around it go, and it may not be empty."""
    stripped = text.strip()
    if not stripped:
        raise InputError(field, text, "is empty", "Choose or write one")
    return stripped


def prices(field: str, text: str) -> dict[str, float]:
    """Read prices by GPU.

    >>> prices("prices", "h100-80g-sxm 2.10, l40s = 0.9")
    {'h100-80g-sxm': 2.1, 'l40s': 0.9}
    """
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[,;\n]", text[: 100 * MAX_CHARACTERS]))):
        pieces = [piece.lstrip("$") for piece in re.split(r"[\s=:]+", part) if piece.lstrip("$")]
        if len(pieces) != 2:
            raise InputError(field, part, "must be a GPU and its price", "Write it like h100-80g-sxm 2.10, l40s 0.90")
        gpu_id, price = pieces
        found[gpu_id] = number(f"{field}.{gpu_id}", price)
    return found


def _split(field: str, text: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise InputError(field, text, "must be a number", "Write it like 10, 1.5 or 1,200")
    value = float(re.sub(r"[,_\s]", "", match["number"]))
    if not math.isfinite(value):
        raise InputError(field, text, "must be a finite number", "Write a smaller one")
    return value, match["suffix"]
