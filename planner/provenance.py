"""Where a figure comes from: every number of the planner carries one of these."""

import datetime as dt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["datasheet", "published", "measured", "fitted", "assumed"]
Confidence = Literal["high", "medium", "low"]


class Source(BaseModel):
    """Origin of one figure or of a group of figures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind = Field(description="datasheet, published (elsewhere), measured, fitted (here), assumed")
    ref: str = Field(min_length=1, max_length=1000, description="document, repository and commit, or reasoning")
    retrieved: dt.date | None = Field(default=None, description="day on which the source was read")
    confidence: Confidence = Field(default="medium", description="how far independent sources agree")
    note: str | None = Field(default=None, max_length=2000)
