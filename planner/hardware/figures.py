"""Types of the figures in a profile, each with the range in which it can be meant.

The lower bounds catch a figure written in another unit (GB/s where bytes/s stand); the upper ones catch a slipped exponent.
"""

import re
from typing import Annotated, Literal

from pydantic import Field

from planner.errors import InputError
from planner.provenance import Source

Topology = Literal["switch", "pairs", "mesh", "torus", "host"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")

ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")

Identifier = Annotated[str, Field(pattern=rf"^{ID_PATTERN.pattern}$")]
Dtype = Annotated[str, Field(pattern=rf"^({'|'.join(DTYPES)})$")]
Label = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^<>\x00-\x1f]+$")]
Text = Annotated[str, Field(min_length=1, max_length=2000)]

Bytes = Annotated[float, Field(ge=1e3, le=1e14, allow_inf_nan=False, strict=True)]
DeviceMemoryBytes = Annotated[float, Field(ge=1e8, le=1e14, allow_inf_nan=False, strict=True)]
MemoryBytesPerS = Annotated[float, Field(ge=1e9, le=1e15, allow_inf_nan=False, strict=True)]
LinkBytesPerS = Annotated[float, Field(ge=1e8, le=1e14, allow_inf_nan=False, strict=True)]
FlopsPerS = Annotated[float, Field(ge=1e10, le=1e19, allow_inf_nan=False, strict=True)]
Gigabytes = Annotated[float, Field(ge=0.1, le=1e5, allow_inf_nan=False, strict=True)]
Watts = Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
UsdPerHour = Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]


class FigureSource(Source):
    """Origin of a figure of a profile, with how many other sources say the same."""

    agreeing: Annotated[int, Field(ge=0, le=1000, strict=True)] = Field(
        default=0, description="independent sources found that give the same figure"
    )
    differing: tuple[Text, ...] = Field(default=(), description="sources found that give another figure, each with it")


def checked_id(field: str, value: str) -> str:
    """Return `value` when it can be an id (and so a file name); else raise InputError.

    >>> checked_id("gpu_id", "h100-80g-sxm")
    'h100-80g-sxm'
    """
    if not isinstance(value, str) or not ID_PATTERN.fullmatch(value):
        raise InputError(
            field,
            value,
            "must be small letters, digits, dots and dashes, at most 64 of them",
            "Write it like h100-80g-sxm",
        )
    return value
