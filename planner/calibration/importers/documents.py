"""Bytes of an upload → JSON documents or lines of text, within bounds; nothing of a file is trusted."""

import json
import math
import zlib
from typing import Any

from planner.errors import InputError, shorten

MAX_BYTES = 64 * 2**20
MAX_DOCUMENTS = 10_000
_ENDLESS = frozenset({"request_rate", "burstiness", "rate"})
_RUNS = "benchmarks"
_GZIP = b"\x1f\x8b"
_REFUSED = {
    b"PK": "a ZIP archive",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"%PDF": "a PDF document",
    b"PAR1": "a parquet file",
}
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}

Document = dict[str, Any]


class Cleaned(Document):
    """A document whose NaN and infinite numbers have become None.

    not_numbers : where they stood, such as "ttft.mean" or "benchmarks[1].ttft.mean"; lists of single requests apart, and an endless
        rate or burstiness
    """

    not_numbers: tuple[str, ...] = ()


def text_of(data: bytes, name: str) -> str:
    """Return a file's text.

    data : UTF-8, or UTF-16 with a byte order mark, plain or compressed with gzip; at most 64 MiB either way

    Raises InputError for archives, binary files, text in another encoding and what is empty or too long.
    """
    for magic, what in _REFUSED.items():
        if data.startswith(magic):
            raise InputError(name, what, "must be text, plain or compressed with gzip", "Unpack it first")
    plain = _unpacked(data, name) if data.startswith(_GZIP) else data
    if len(plain) > MAX_BYTES:
        raise InputError(
            name, f"{len(plain):,} bytes", f"must be at most {MAX_BYTES // 2**20} MiB", "Leave out the generated texts"
        )
    if not plain.strip():
        raise InputError(name, "nothing", "must not be empty", "Choose the file again")
    encoding = next((known for mark, known in _MARKS.items() if plain.startswith(mark)), "utf-8")
    try:
        text = plain.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(name, plain[:40], "must be UTF-8 text", "Save the file as UTF-8") from error
    if "\x00" in text[:65536]:
        raise InputError(name, "binary", "must be text", "Choose the tool's JSON or log file")
    return text


def _unpacked(data: bytes, name: str) -> bytes:
    """Return what every member of a gzip file holds, one after the other, up to just beyond the bound."""
    plain = b""
    while data and len(plain) <= MAX_BYTES:
        member = zlib.decompressobj(wbits=31)
        try:
            plain += member.decompress(data, MAX_BYTES + 1 - len(plain))
        except zlib.error as error:
            raise InputError(name, str(error), "must be a whole gzip file", "Compress it again or give it plain") from error
        if len(plain) <= MAX_BYTES and not member.eof:
            raise InputError(name, "gzip", "must be a whole gzip file, and it is cut", "Copy it again")
        data = member.unused_data
    return plain


def documents_of(text: str, name: str) -> list[Document]:
    """Return the JSON objects of a text: one, an array of them, or several one after the other (as appended results are).

    NaN and infinities become None: tools write them where nothing was measured. Such documents are `Cleaned` and name them. Raises
    InputError naming the place of a fault.
    """
    constants: list[str] = []

    def constant(word: str) -> float:
        constants.append(word)
        return float(word)

    decoder = json.JSONDecoder(parse_constant=constant)
    found: list[Document] = []
    place = 0
    while place < len(text):
        if text[place].isspace() or text[place] == ",":
            place += 1
            continue
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, min(getattr(error, "pos", place), len(text))) + 1
            remedy = "Give the complete file; the last bytes of an interrupted copy are missing"
            raise InputError(name, text[place : place + 40], f"is not valid JSON at line {line}", remedy) from error
        items = value if isinstance(value, list) else [value]
        found += [_cleaned(item) if constants else item for item in items if isinstance(item, dict)]
        constants.clear()
        if len(found) > MAX_DOCUMENTS:
            raise InputError(name, len(found), f"must hold at most {MAX_DOCUMENTS:,} results", "Split the file")
        if len(items) and not isinstance(items[0], dict):
            raise InputError(name, shorten(items[0]), "must hold JSON objects", "Give the tool's result file")
    return found


def _cleaned(document: Document) -> Cleaned:
    """Return a document with None for every NaN and infinite number, at any depth."""
    whole = Cleaned(document)
    names: list[str] = []
    open_parts: list[tuple[Any, str | None]] = [(whole, "")]
    while open_parts:
        part, path = open_parts.pop()
        pairs = list(part.items()) if isinstance(part, dict) else list(enumerate(part))
        for key, value in pairs:
            name = _name_within(path, key)
            if isinstance(value, dict | list):
                open_parts.append((value, name))
            elif isinstance(value, float) and not math.isfinite(value):
                part[key] = None
                if name is not None and not (math.isinf(value) and key in _ENDLESS):
                    names.append(name)
    whole.not_numbers = tuple(sorted(names))
    return whole


def _name_within(path: str | None, key: str | int) -> str | None:
    """Return the name of a value below a path; None in the lists, those of a report's runs apart."""
    if path is None or (isinstance(key, int) and path != _RUNS):
        return None
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")


def at(document: object, *path: str | int) -> Any:  # noqa: ANN401 - JSON holds anything
    """Return what lies at a path of keys and positions; None where anything on the way is missing.

    >>> at({"a": [{"b": 1}]}, "a", 0, "b"), at({"a": 1}, "b", "c")
    (1, None)
    """
    place: Any = document
    for key in path:
        if isinstance(key, int):
            place = place[key] if isinstance(place, list) and -len(place) <= key < len(place) else None
        else:
            place = place.get(key) if isinstance(place, dict) else None
        if place is None:
            return None
    return place


def number(value: object, field: str, factor: float = 1.0) -> float | None:
    """Return a JSON number times a factor; None for none, NaN or infinity.

    field : name for the message

    Raises InputError for text, truth values, lists and negative numbers: every figure of a benchmark is 0 or more.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(field, value, "must be a number", "Export the result again; don't edit it by hand")
    try:
        scaled = float(value) * factor
    except OverflowError as error:
        raise InputError(field, shorten(value), "must be below 1e15", "Export the result again") from error
    if not math.isfinite(scaled):
        return None
    if scaled < 0.0:
        raise InputError(field, value, "must not be negative", "Export the result again; a clock ran backwards or a sign is wrong")
    return scaled


def text_at(document: object, *path: str | int) -> str | None:
    """Return a text at a path, at most 300 characters of it; None where there is no text."""
    found = at(document, *path)
    return found.strip()[:300] or None if isinstance(found, str) else None


def numbers(values: object, field: str) -> list[float | None] | None:
    """Return a list of numbers as `number` reads them; None for what is no list. Raises InputError as it does."""
    if not isinstance(values, list):
        return None
    return [number(value, f"{field}[{place}]") for place, value in enumerate(values)]
