"""Dated prices of tokens behind others' APIs, to set beside the cost of one's own fleet, and what their batch APIs take off."""

import csv
import datetime as dt
import io
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from planner import paths
from planner.errors import InputError
from planner.hardware.catalogue import PROFILES, Stamp
from planner.hardware.figures import Identifier, Label, Text
from planner.hardware.reading import read_toml_file, validated
from planner.provenance import Source
from planner.units import MIB, MILLION

FOLDER = "api_prices"
_TOKENS, _BATCH = "tokens.csv", "batch.toml"
_MOST_BYTES = int(MIB)
UsdPerMillion = Annotated[float, Field(gt=0, le=1e4, allow_inf_nan=False)]


class TokenPrice(BaseModel):
    """What one provider asks for the tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_id: Identifier = Field(description="id of a model of the catalogue")
    provider: Identifier = Field(description="the provider in small letters, such as together")
    input_usd_per_million_tokens: UsdPerMillion = Field(description="prompt tokens [USD/Mtoken]")
    output_usd_per_million_tokens: UsdPerMillion = Field(description="output tokens [USD/Mtoken]")
    as_of: dt.date = Field(description="the day on which the price was read")
    source: Text
    licence: Label

    def usd(self, prompt_tokens: float, output_tokens: float) -> float:
        """Return what so many tokens cost [USD]."""
        prompts = prompt_tokens / MILLION * self.input_usd_per_million_tokens
        return prompts + output_tokens / MILLION * self.output_usd_per_million_tokens


class BatchDiscount(BaseModel):
    """What a provider's batch API takes off its token prices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: Identifier
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, strict=True)] = Field(description="off the price [1]")
    window_hours: Annotated[float, Field(gt=0, le=8760, allow_inf_nan=False, strict=True)] = Field(
        description="time within which answers come"
    )
    source: Source


class _Discounts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    discounts: tuple[BatchDiscount, ...]


def token_prices(model_id: str) -> tuple[TokenPrice, ...]:
    """Return the known prices of a model's tokens, cheapest for four prompt tokens an output token first; empty when none is."""
    return tuple(
        sorted((price for price in _prices(_stamp(_TOKENS)) if price.model_id == model_id), key=lambda price: price.usd(4.0, 1.0))
    )


def batch_discounts() -> dict[str, BatchDiscount]:
    """Return the known discounts of batch APIs, by provider."""
    found = validated(_Discounts, read_toml_file(_stamp(_BATCH).path), _BATCH)
    return {each.provider: each for each in found.discounts}


def token_prices_from_csv(text: str, name: str) -> tuple[TokenPrice, ...]:
    """Return the prices in CSV text with a header of the fields of TokenPrice; raises InputError naming the line and field."""
    reader = csv.DictReader(io.StringIO(text), restkey="", strict=True)
    unknown = [column for column in reader.fieldnames or () if column not in TokenPrice.model_fields]
    if unknown:
        raise InputError(name, unknown[0], "is not a known column", f"Known: {', '.join(TokenPrice.model_fields)}")
    found = []
    for row in reader:
        where = f"{name}, line {reader.line_num}"
        if "" in row:
            raise InputError(where, row[""], "has more cells than the header", "Put quotes around a cell that holds a comma")
        found.append(validated(TokenPrice, {key: value for key, value in row.items() if value not in (None, "")}, where))
    return tuple(found)


def _stamp(file: str) -> Stamp:
    """Return the user's file of this name in place of the shipped one when there is one."""
    home = paths.user_home()
    own = home / PROFILES / FOLDER / file if home is not None else None
    path = own if own is not None and own.is_file() else paths.PROFILES_DIR / FOLDER / file
    status = path.stat()
    return Stamp(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _prices(stamp: Stamp) -> tuple[TokenPrice, ...]:
    if stamp.size > _MOST_BYTES:
        raise InputError(stamp.path.name, f"{stamp.size:,} bytes", f"must be at most {_MOST_BYTES:,} bytes", "Drop rows")
    try:
        text = stamp.path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(stamp.path.name, "bytes", "is not UTF-8 text", "Save the file as UTF-8") from error
    return token_prices_from_csv(text, stamp.path.name)
