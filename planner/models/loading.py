"""Finds models by id: the shipped catalogue, and the user's own files in PLANNER_HOME/models, which win over it.

A user's entry is one file: a catalogue file or a Hugging Face config.json, named <id>.json or <id>/config.json.
"""

import difflib
import os
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from planner.errors import InputError, bound_in_words
from planner.models.config_fields import MAX_CONFIG_BYTES, parse_config
from planner.models.hf_config import model_from_config, model_id
from planner.models.spec import ModelSpec
from planner.paths import MODELS_DIR, user_home

_MAX_FILES = 10_000


def load_model(wanted: str, field: str = "model") -> ModelSpec:
    """Return the model of an id, or of a Hugging Face repository name that the catalogue knows; case does not matter.

    field : where the id was given, for messages

    Raises InputError for an unknown id, with those that come close, and for a file that is not a model.
    """
    if not isinstance(wanted, str) or not 0 < len(wanted) <= 200:
        raise InputError(field, wanted, "must be a model's id", "Choose one from list_models()")
    files = _files()
    path = files.get(wanted.casefold())
    if path is not None:
        return _read(path)
    for spec in map(_read, files.values()):
        if spec.hf_repo is not None and spec.hf_repo.casefold() == wanted.casefold():
            return spec
    near = difflib.get_close_matches(wanted.casefold(), files, n=4, cutoff=0.5)
    bound = f"is not in the catalogue; close to it: {', '.join(near)}" if near else "is not in the catalogue"
    raise InputError(field, wanted, bound, "Choose an id from list_models(), or put its config.json into PLANNER_HOME/models")


def list_models() -> tuple[ModelSpec, ...]:
    """Return all models by id, the user's own among them; raises InputError when one of the user's files is not a model."""
    return tuple(_read(path) for _, path in sorted(_files().items()))


def _files() -> dict[str, Path]:
    """Return the file of each id, the user's after the shipped ones so that they win."""
    found = _scan(MODELS_DIR)
    home = user_home()
    if home is not None:
        found |= _scan(home / "models")
    return found


def _scan(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    if not folder.is_dir():
        return found
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= _MAX_FILES:
                raise InputError("PLANNER_HOME", str(folder), f"must hold at most {_MAX_FILES:,} models", "Move some files away")
            path = Path(entry.path)
            if entry.name.endswith(".json") and path.is_file():
                found[_id_of(entry.name.removesuffix(".json"), entry.name)] = path
            elif (path / "config.json").is_file():
                found[_id_of(entry.name, entry.name)] = path / "config.json"
    return found


def _id_of(name: str, entry_name: str) -> str:
    try:
        return model_id(name)
    except InputError as error:
        remedy = "Rename it, or move it out of PLANNER_HOME/models"
        raise InputError(f"models/{entry_name}", name, error.bound, remedy) from error


def _read(path: Path) -> ModelSpec:
    stat = path.stat()
    return _parsed(str(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _parsed(path_text: str, _mtime_ns: int, size: int) -> ModelSpec:
    path = Path(path_text)
    where = f"models/{path.parent.name}/{path.name}" if path.name == "config.json" else f"models/{path.name}"
    if size > MAX_CONFIG_BYTES:
        raise InputError(where, f"{size:,} bytes", f"must be at most {MAX_CONFIG_BYTES:,} bytes", "Give a config.json, not weights")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(where, path_text, f"cannot be read ({error.strerror})", "Check the file and its permissions") from None
    if path.parent == MODELS_DIR:
        return ModelSpec.model_validate_json(text)
    name = path.parent.name if path.name == "config.json" else path.stem
    try:
        content = parse_config(text)
        return _own(text, name, where) if "groups" in content else model_from_config(content, name)
    except InputError as error:
        if error.field.startswith(where):
            raise
        raise InputError(f"{where}: {error.field}", error.value, error.bound, error.remedy) from error


def _own(text: bytes, name: str, where: str) -> ModelSpec:
    """Return the model of a user's file in the catalogue's layout."""
    try:
        spec = ModelSpec.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{where}: {field}", first["input"], bound_in_words(first), "Compare with a file of the shipped catalogue"
        ) from None
    if model_id(spec.id) != model_id(name):
        raise InputError(f"{where}: id", spec.id, f"must be the file's name, {name}", "Rename the file or change the id")
    return spec
