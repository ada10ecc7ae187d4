"""The error figures that ship with the planner, one document for each source of measured results."""

from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from planner.paths import PROFILES_DIR

FOLDER = PROFILES_DIR / "evidence" / "accuracy" / "sources"

Text = Annotated[str, Field(min_length=1, max_length=2000)]


class ShippedAccuracy(BaseModel):
    """What the accuracy command said of one source, with and without calibration records."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str = Field(pattern=r"^[a-z0-9_]+$", max_length=80)
    title: Text
    source: Text = Field(description="where the measured figures were published")
    terms: Text = Field(description="terms under which they were published")
    caveat: Text = Field(description="what a reader must know before comparing")
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="when the command ran")
    command: Text
    shipped: dict[str, Any] = Field(description="report with the shipped calibration records")
    none: dict[str, Any] = Field(description="report with priors alone")


@lru_cache(maxsize=1)
def shipped_accuracy() -> tuple[ShippedAccuracy, ...]:
    """Return the documents of all sources, by id."""
    return tuple(ShippedAccuracy.model_validate_json(path.read_bytes()) for path in sorted(FOLDER.glob("*.json")))
