"""Typed, bounded access to the keys of a Hugging Face config.json; every wrong value names its key and bound."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from planner.errors import InputError, unique_fields
from planner.models.spec import MAX_LAYERS

MAX_CONFIG_BYTES = 2 * 2**20
_MAX_SIZE = 10**7
_MAX_HEADS = 10**5
_NOTHING: Mapping[str, object] = MappingProxyType({})
_NO_DEFAULTS: Mapping[str, int] = MappingProxyType({})
_CHECK = "Check the value against the model's own config.json"


def parse_config(config: Mapping[str, object] | str | bytes) -> Mapping[str, object]:
    """Return the JSON object of a config.json given as text, bytes or an already parsed mapping.

    Raises InputError when it is above 2 MiB (checked before parsing), not JSON, nested too deeply, or not an object.
    """
    if isinstance(config, Mapping):
        return config
    if not isinstance(config, str | bytes):
        raise InputError("config", config, "must be JSON text or an object", "Give the contents of a config.json")
    if len(config) > MAX_CONFIG_BYTES:
        bound = f"must be at most {MAX_CONFIG_BYTES:,} bytes"
        raise InputError("config", f"{len(config):,} bytes", bound, "Give the config.json, not the weights or the tokenizer")
    try:
        parsed = json.loads(config, object_pairs_hook=unique_fields)
    except RecursionError:
        raise InputError("config", _start(config), "must not be nested this deeply", "Give the model's own config.json") from None
    except InputError as fault:
        raise InputError(f"config.{fault.field}", fault.value, fault.bound, fault.remedy) from None
    except ValueError as error:
        raise InputError("config", _start(config), f"must be JSON ({error})", "Give the model's own config.json") from None
    if not isinstance(parsed, dict):
        raise InputError("config", parsed, "must be a JSON object", "Give the model's own config.json")
    return parsed


def _start(config: str | bytes) -> str:
    """Return how a file begins, to recognise it by."""
    head = config[:40]
    return head if isinstance(head, str) else head.decode("utf-8", errors="replace")


def checked_name(name: object, where: str) -> str:
    """Return a name of at most 200 printable characters; it stays data, so markup in it is kept and never interpreted."""
    bound = "must be text of 1 to 200 characters without control characters"
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise InputError(where, name, bound, "Give a short plain name")
    return name


@dataclass(frozen=True, slots=True)
class Fields:
    """The keys of one language model's config.

    raw : the language model's own keys (those of text_config where there is one)
    outer : the whole file's keys, which hold some settings of a nested config
    defaults : what a key means when a nested config leaves it out
    where : name of this part of the file in errors
    """

    raw: Mapping[str, object]
    outer: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    defaults: Mapping[str, int] = field(default_factory=lambda: _NO_DEFAULTS)
    where: str = "config"

    def get(self, *names: str) -> object:
        """Return the first of several spellings that is present and not null, else the default, else None."""
        for name in names:
            if self.raw.get(name) is not None:
                return self.raw[name]
        for name in names:
            if name in self.defaults:
                return self.defaults[name]
        return None

    def missing(self, needs: Sequence[str]) -> tuple[str, ...]:
        """Return those of the needed keys that are absent; alternatives are joined by "|"."""
        return tuple(need for need in needs if self.get(*need.split("|")) is None)

    def optional(self, *names: str, least: int = 1, most: int = _MAX_SIZE) -> int | None:
        """Return a whole number, or None when no spelling of the key is present."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(f"{self.where}.{names[0]}", value, f"must be a whole number from {least} to {most:,}", _CHECK)
        return value

    def count(self, *names: str, least: int = 1, most: int = _MAX_SIZE) -> int:
        """Return a whole number that must be present under one of its spellings."""
        value = self.optional(*names, least=least, most=most)
        if value is None:
            raise InputError(f"{self.where}.{names[0]}", None, "is missing", f"Add the key {' or '.join(names)}")
        return value

    def heads(self, *names: str) -> int:
        """Return a number of heads."""
        return self.count(*names, most=_MAX_HEADS)

    def layers(self, *names: str) -> int:
        """Return the number of layers."""
        return self.count(*(names or ("num_hidden_layers",)), most=MAX_LAYERS)

    def number(self, name: str, most: float) -> float:
        """Return a number above 0 that must be present."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise InputError(f"{self.where}.{name}", value, f"must be a number above 0 and at most {most:,}", _CHECK)
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a true-or-false setting; default is what the family means by leaving it out."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}.{name}", value, "must be true or false", _CHECK)
        return value

    def text(self, name: str) -> str | None:
        """Return a short text, or None when the key is absent."""
        value = self.get(name)
        return None if value is None else checked_name(value, f"{self.where}.{name}")

    def section(self, name: str) -> "Fields":
        """Return a nested object's keys; an absent one is an error."""
        value = self.get(name)
        if not isinstance(value, Mapping):
            raise InputError(f"{self.where}.{name}", value, "must be an object", f"Add the section {name}")
        return Fields(value, where=f"{self.where}.{name}")

    def per_layer(self, name: str, layers: int) -> list[object] | None:
        """Return one entry for each layer, or None when the key is absent; longer lists keep extra entries for other heads."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not layers <= len(value) <= 2 * MAX_LAYERS:
            raise InputError(f"{self.where}.{name}", value, f"must be a list of {layers} entries, one a layer", _CHECK)
        return list(value)[:layers]

    def numbers(self, name: str, layers: int) -> tuple[int, ...]:
        """Return a list of layer numbers; an absent one is an error."""
        value = self.get(name)
        if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) > MAX_LAYERS:
            raise InputError(f"{self.where}.{name}", value, "must be a list of layer numbers", _CHECK)
        for number in value:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= layers:
                raise InputError(f"{self.where}.{name}", number, f"must be a layer number from 0 to {layers}", _CHECK)
        return tuple(value)


def divided(total: int, parts: int, what: str) -> int:
    """Return total / parts, which must be whole; `what` names the quantity, for example "hidden_size by num_attention_heads"."""
    if total % parts:
        raise InputError(f"config.{what}", f"{total} / {parts}", "must divide without a rest", _CHECK)
    return total // parts
