"""The one error that wrong input raises: it names the field, the value, the bound and the remedy."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

_SHOWN_CHARACTERS = 80
_BOUNDS = {
    "string_pattern_mismatch": "has a form or a character that isn't allowed",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be an object of fields",
    "model_type": "must be an object of fields",
    "model_attributes_type": "must be an object of fields",
    "union_tag_not_found": "must state its kind",
}
_UNION_TAGS = frozenset({"rate", "users", "tokens_per_day"})


def shorten(value: object, limit: int = _SHOWN_CHARACTERS) -> str:
    """Return repr(value) cut to `limit` characters, so that a hostile value can't flood a message.

    >>> shorten("a" * 200, 10)
    "'aaaaaaaa…"
    """
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str) -> str:
    r"""Return text with what isn't printable escaped: a file's name may hold line breaks and terminal sequences.

    >>> one_line("a\nb\x1b[2J – é")
    'a\\nb\\x1b[2J – é'
    """
    if text.isprintable():
        return text
    return "".join(part if part.isprintable() else part.encode("unicode_escape").decode("ascii") for part in text)


class InputError(ValueError):
    """Input that no plan can be made from.

    field : dotted name of what the user gave, in the words of the form or file
    value : what was given
    bound : what is allowed
    remedy : what to do about it

    >>> str(InputError("targets.ttft_s", -1, "must be above 0", "Give seconds, for example 1.0"))
    'targets.ttft_s is -1: must be above 0. Give seconds, for example 1.0.'
    """

    def __init__(self, field: str, value: object, bound: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.bound = bound.rstrip(".")
        self.remedy = remedy.rstrip(".")
        super().__init__(one_line(f"{field} is {shorten(value)}: {self.bound}. {self.remedy}."))


def unique_fields(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, whose fields may be there once only: of two values neither is the one that was meant.

    For `json.loads(text, object_pairs_hook=unique_fields)`, which else keeps the last and says nothing.
    """
    found: dict[str, Any] = {}
    for field, value in pairs:
        if field in found:
            raise InputError(field, value, "is stated twice in one object", "Keep one of the two")
        found[field] = value
    return found


def as_input_error(error: ValidationError, document: str) -> InputError:
    """Turn pydantic's first complaint into an InputError; document : name of what was read, for the remedy."""
    first = error.errors(include_url=False)[0]
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, InputError):
        return inner
    *parents, last = first["loc"] or (document,)
    field = ".".join(str(part) for part in (*(part for part in parents if part not in _UNION_TAGS), last))
    value = first["input"]
    if first["type"] == "extra_forbidden":
        return InputError(field, value, f"is not a field of the {document}", "Remove it or correct its spelling")
    if first["type"] == "missing":
        return InputError(field, None, "is required", f"Add it to the {document}")
    return InputError(field, value, bound_in_words(first), f"Correct the field in the {document}")


def bound_in_words(complaint: Mapping[str, Any]) -> str:
    """Return what must hold in the words of this project; complaint : one of pydantic's `errors()`.

    >>> bound_in_words({"type": "greater_than", "msg": "Input should be greater than 0"})
    'must be greater than 0'
    """
    kind, message = str(complaint["type"]), str(complaint["msg"])
    if kind in _BOUNDS:
        return _BOUNDS[kind]
    if kind == "union_tag_invalid":
        return f"must be of a kind out of {complaint['ctx']['expected_tags']}"
    text = re.sub(r"^(Input|String|List|Dictionary|Value|Tuple) should ", "must ", message)
    return text[:1].lower() + text[1:]
