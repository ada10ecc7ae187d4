"""JSON Schema of the files that a user may write, for editors and for the upload form."""

from typing import Any

from planner.hardware.gpu import GpuProfile
from planner.hardware.inherit import EXTENDS, REMOVE
from planner.hardware.node import Node

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def gpu_json_schema() -> dict[str, Any]:
    """Return the schema of a profile: complete, or with `extends` and only what differs.

    The plausibility checks (ratios, clock, memory, link) are beyond a schema; reading the file applies them.
    """
    schema = GpuProfile.model_json_schema()
    required = schema.pop("required")
    schema["properties"] |= {
        EXTENDS: {"type": "string", "description": "id of the profile whose figures stand where this one gives none"},
        REMOVE: {"type": "array", "items": {"type": "string"}, "description": "figures that this one lacks"},
    }
    source = schema["$defs"]["FigureSource"]
    source["description"] = f'{source["description"]} What an entry leaves out, it takes from "*".'
    source.pop("required")
    return {
        "$schema": _DIALECT,
        **schema,
        "required": ["id"],
        "if": {"required": [EXTENDS]},
        "then": {},
        "else": {"required": required},
    }


def node_json_schema() -> dict[str, Any]:
    """Return the schema of a node's file."""
    return {"$schema": _DIALECT, **Node.model_json_schema()}
