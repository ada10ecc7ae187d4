"""Read TOML that anybody may have written: bounded, and every fault an InputError that names it.

A file of this folder is small (a profile has about 3 kB), so the bounds are tight: they keep a hostile upload from holding the
process. tomllib needs time quadratic in the parts of a dotted key, recurses over nested arrays, and reads integers of any length.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from planner.errors import InputError, bound_in_words
from planner.units import KIB

MAX_TOML_BYTES = int(64 * KIB)
MAX_LINE_CHARACTERS = 2_000
MAX_DEPTH = 6
MAX_INTEGER_BITS = 63

Table = Mapping[str, Any]
M = TypeVar("M", bound=BaseModel)


def close_matches(word: str, known: Iterable[str]) -> str:
    """Return the known words that hold `word` or are nearest to it, as text; the first few of all when none is near.

    >>> close_matches("h100-80gb-sxm", ["h100-80g-sxm", "t4"]), close_matches("h100", ["b100", "h100-80g-sxm"])
    ('h100-80g-sxm', 'h100-80g-sxm')
    >>> close_matches("zzz", ["b", "a"])
    'a, b'
    """
    names = sorted(known)
    start = word[:64].lower()
    near = [name for name in names if start and start in name][:10]
    near = near or difflib.get_close_matches(start, names, n=5, cutoff=0.5)
    return ", ".join(near or (names if len(names) <= 10 else [*names[:10], "…"]))


def read_toml_file(path: Path) -> Table:
    """Read one TOML file of at most MAX_TOML_BYTES.

    path : a regular file

    Raises InputError when it cannot be read, is too large, is not UTF-8 or is not TOML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOML_BYTES + 1)
    except OSError as error:
        raise InputError(path.name, error.strerror, "could not be read", "Check that the file exists and may be read") from error
    if len(data) > MAX_TOML_BYTES:
        raise _too_large(path.name, f"over {MAX_TOML_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(path.name, data[:20], "is not UTF-8 text", "Save the file as UTF-8") from error
    return toml_table(text, path.name)


def toml_table(text: str, where: str) -> Table:
    """Parse TOML text within the bounds of this module.

    text : the whole document
    where : file name or label, for messages

    Raises InputError naming what is wrong with it and where.
    """
    _check_size(text, where)
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise _too_deep(where) from error
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise InputError(where, text.strip()[:40], f"is not valid TOML ({error})", "Correct the line that is named") from error
    _check_values(table, where)
    return table


def validated(model: type[M], table: Table, where: str) -> M:
    """Build a pydantic model from a parsed table; the first fault becomes an InputError in the words of the file.

    model : class to build
    table : parsed document
    where : file name or label, for messages
    """
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        raise _input_error(first, where, model) from error


def _check_size(text: str, where: str) -> None:
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAX_TOML_BYTES:
        raise _too_large(where, f"{size:,} bytes")
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > MAX_LINE_CHARACTERS:
            bound = f"has {len(line):,} characters; a line may have {MAX_LINE_CHARACTERS:,}"
            raise InputError(f"{where}, line {number}", line[:40], bound, "Break the line, or shorten the text in it")


def _too_large(where: str, size: str) -> InputError:
    bound = f"must be at most {MAX_TOML_BYTES:,} bytes"
    return InputError(where, size, bound, "Keep one accelerator or node a file, without data in it")


def _too_deep(where: str) -> InputError:
    return InputError(where, "nested tables", f"must nest at most {MAX_DEPTH} deep", "Use the layout of the shipped profiles")


def _check_values(table: Table, where: str) -> None:
    """Refuse nesting and integers that later steps (messages, conversion to float) could not carry."""
    level: list[Any] = [table]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
                raise InputError(where, "an integer of over 19 digits", "must fit 64 bits", "Write large figures as 3.35e12")
        if not below:
            return
        level = below
    raise _too_deep(where)


def _input_error(first: Mapping[str, Any], where: str, model: type[BaseModel]) -> InputError:
    own = first.get("ctx", {}).get("error")
    path = [str(part) for part in first["loc"] if part != "[key]"]
    if isinstance(own, InputError):
        return InputError(f"{where}: {'.'.join([*path, own.field])}", own.value, own.bound, own.remedy)
    field = f"{where}: {'.'.join(path)}"
    kind = str(first["type"])
    owner, description = _described(model, first["loc"])
    if kind == "extra_forbidden":
        return InputError(field, first["input"], "is not a known key", f"Known near it: {close_matches(path[-1], owner)}")
    meaning = f"Give {description}" if description else "See the shipped profiles for an example"
    if kind == "missing":
        return InputError(field, None, "is missing", meaning)
    return InputError(field, first["input"], bound_in_words(first), meaning)


def _described(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[tuple[str, ...], str | None]:
    """Return the keys of the table that `loc` ends in, and the description of the last field that has one."""
    fields = model.model_fields
    description: str | None = None
    for part in loc:
        info = fields.get(str(part))
        if info is None:
            continue
        description = info.description or description
        inner = _inner_model(info.annotation)
        if inner is not None and part != loc[-1]:
            fields = inner.model_fields
    return tuple(fields), description


def _inner_model(annotation: object) -> type[BaseModel] | None:
    """Return the model class inside an annotation such as `Pcie | None` or `dict[str, FigureSource]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _inner_model(argument)
        if found is not None:
            return found
    return None
