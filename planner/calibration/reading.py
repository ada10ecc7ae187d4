"""Read calibration records and host terms that anybody may have written: bounded, and every fault an InputError that names it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from planner.calibration.schema import SCHEMA_VERSION, CalibrationRecord, HostTerms
from planner.errors import InputError, as_input_error, unique_fields
from planner.units import KIB

MAX_RECORD_BYTES = int(256 * KIB)
Document = dict[str, Any]
M = TypeVar("M", bound=BaseModel)

UPGRADES: Mapping[int, Callable[[Document], Document]] = {}
"""By schema version: how a record of that version becomes one of the next. Version 1 is the first, so nothing is listed yet."""


def record_from_json(data: bytes | str, name: str) -> CalibrationRecord:
    """Return the record in a JSON document of this schema version or an older one.

    data : the document, at most 256 KiB
    name : label for messages, such as the file's name; never opened

    Raises InputError naming field, value, bound and remedy.
    """
    return _validated(CalibrationRecord, _upgraded(_document(data, name), name), name)


def host_from_json(data: bytes | str, name: str) -> HostTerms:
    """Return the host terms in a JSON document; arguments and errors as record_from_json."""
    return _validated(HostTerms, _document(data, name), name)


def read_bounded(path: Path) -> bytes:
    """Return a file's bytes, or raise InputError when it can't be read or is larger than a record can be."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_RECORD_BYTES + 1)
    except OSError as error:
        raise InputError(path.name, error.strerror, "could not be read", "Check that the file exists and may be read") from error
    return data


def _document(data: bytes | str, name: str) -> Document:
    raw = data.encode("utf-8", errors="surrogatepass") if isinstance(data, str) else data
    if len(raw) > MAX_RECORD_BYTES:
        bound = f"must be at most {MAX_RECORD_BYTES:,} bytes"
        raise InputError(name, f"over {MAX_RECORD_BYTES:,} bytes", bound, "A record holds parameters, not measurements")
    try:
        document = from_json(raw, allow_inf_nan=False)
        json.loads(raw, object_pairs_hook=unique_fields)  # of a key stated twice, from_json keeps the last and says nothing
    except InputError as fault:
        raise InputError(f"{name}: {fault.field}", fault.value, fault.bound, fault.remedy) from fault
    except ValueError as error:
        remedy = "Give a complete JSON document without NaN"
        raise InputError(name, raw[:40], f"is not valid JSON ({error})", remedy) from error
    if not isinstance(document, dict):
        raise InputError(name, document, "must be a JSON object", "See hardware_profiles/calibrations for examples")
    return document


def _upgraded(document: Document, name: str) -> Document:
    """Bring a document to this schema version, one step at a time."""
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError(f"{name}: schema_version", version, "must be a whole number", "Records begin with schema_version")
    while version in UPGRADES and version < SCHEMA_VERSION:
        document = UPGRADES[version](document)
        version += 1
    if version != SCHEMA_VERSION:
        bound = f"must be {SCHEMA_VERSION}, or an older version that this release knows"
        raise InputError(f"{name}: schema_version", version, bound, "Use the release that wrote the record, or fit it again")
    return {**document, "schema_version": SCHEMA_VERSION}


def _validated(model: type[M], document: Document, name: str) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        fault = as_input_error(error, f"record {name}")
        raise InputError(f"{name}: {fault.field}", fault.value, fault.bound, fault.remedy) from error
