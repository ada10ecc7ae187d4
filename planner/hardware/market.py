"""What cloud prices do as a whole: ranges for spot and for commitments. Ranges are not prices.

Use them to say how far a price may move, never in place of a dated row.
"""

from functools import lru_cache
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner import paths
from planner.errors import InputError
from planner.hardware.catalogue import PROFILES, Stamp
from planner.hardware.figures import Identifier, Text
from planner.hardware.reading import read_toml_file, validated
from planner.provenance import Source

MARKET_FILE = "market.toml"
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
_FROZEN = ConfigDict(frozen=True, extra="forbid")


class SpotDiscount(BaseModel):
    """How much less spot costs than on demand, as shares of the on-demand price."""

    model_config = _FROZEN

    provider: Identifier = Field(description="the provider in small letters")
    low: Share | None = Field(default=None, description="smallest discount seen")
    median: Share | None = Field(default=None, description="median discount")
    high: Share | None = Field(default=None, description="largest discount seen")
    note: Text | None = Field(default=None, description="what else matters")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_ordered("low", [self.low, self.median, self.high])
        return self


class CommitmentDiscount(BaseModel):
    """Discount of a reserved term, averaged over a whole cloud; GPU families often get less or none."""

    model_config = _FROZEN

    provider: Identifier = Field(description="the provider in small letters")
    term_months: Annotated[int, Field(ge=1, le=120, strict=True)] = Field(description="length of the commitment in months")
    low: Share = Field(description="smallest discount")
    high: Share = Field(description="largest discount")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_ordered("low", [self.low, self.high])
        return self


class Market(BaseModel):
    """All ranges, with their sources by the name of the list."""

    model_config = _FROZEN

    spot_discounts: tuple[SpotDiscount, ...]
    commitment_discounts: tuple[CommitmentDiscount, ...]
    sources: dict[str, Source]

    @model_validator(mode="after")
    def _sourced(self) -> Self:
        for name in type(self).model_fields:
            if name != "sources" and name not in self.sources:
                raise InputError("sources", sorted(self.sources), f"must name {name}", "Say where each list comes from")
        return self


def load_market() -> Market:
    """Return the ranges: the user's market.toml in place of the shipped one when there is one."""
    home = paths.user_home()
    own = home / PROFILES / "prices" / MARKET_FILE if home is not None else None
    path = own if own is not None and own.is_file() else paths.PROFILES_DIR / "prices" / MARKET_FILE
    status = path.stat()
    return _market(Stamp(path, status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=8)
def _market(stamp: Stamp) -> Market:
    return validated(Market, read_toml_file(stamp.path), stamp.path.name)


def _check_ordered(field: str, values: list[float | None]) -> None:
    given = [value for value in values if value is not None]
    if given != sorted(given):
        raise InputError(field, given, "must rise from low to high", "Swap them")
