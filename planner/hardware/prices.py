"""Dated prices of instances: one CSV a provider, each row with its date, source and licence.

An instance is priced, never a GPU: the host is part of it (a g5.xlarge costs 1.006 USD an hour for its one A10G, a g5.48xlarge
2.036 for each of its eight).
"""

import csv
import datetime as dt
import io
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.errors import InputError
from planner.hardware.catalogue import Index, Stamp, gpu_index, load_gpu, profile_folders, stamps
from planner.hardware.figures import Identifier, Label, Text, UsdPerHour
from planner.hardware.reading import close_matches, validated
from planner.units import MIB

PRICES = "prices"
CSV_SUFFIX = ".csv"
MAX_CSV_BYTES = int(4 * MIB)
FRESH_DAYS = 90
_EARLIEST = dt.date(2015, 1, 1)


class Price(BaseModel):
    """What one provider asks for one instance in one region on one day."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: Identifier = Field(description="the provider in small letters, such as aws")
    instance: Label = Field(description="the provider's name of the instance")
    gpu_id: Identifier = Field(description="the id of a known accelerator")
    gpu_count: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = Field(
        description="accelerators in the instance; below 1 where it holds a fraction of one"
    )
    region: Label = Field(description="the provider's name of the region")
    on_demand_usd_per_hour: UsdPerHour | None = Field(default=None, description="USD an hour for the whole instance")
    spot_usd_per_hour: UsdPerHour | None = Field(default=None, description="USD an hour for the whole instance, interruptible")
    as_of: dt.date = Field(description="the day of the price, such as 2026-07-20")
    source: Text = Field(description="where the price was read")
    licence: Label = Field(description="the licence of that source, such as Apache-2.0")
    note: Text | None = Field(default=None, description="what else matters")

    def usd_per_gpu_hour(self) -> float | None:
        """On-demand price of the instance divided by its accelerators [USD/h]; None when it isn't sold on demand.

        A share of the host is in it, so the same GPU differs between instance sizes.
        """
        return None if self.on_demand_usd_per_hour is None else self.on_demand_usd_per_hour / self.gpu_count

    def spot_usd_per_gpu_hour(self) -> float | None:
        """Spot price of the instance divided by its accelerators [USD/h]; None when unknown."""
        return None if self.spot_usd_per_hour is None else self.spot_usd_per_hour / self.gpu_count

    def age_days(self, on: dt.date) -> int:
        """Days from the price's date to `on`; raises InputError when `on` is earlier."""
        if on < self.as_of:
            raise InputError("on", on, f"is before the price's date, {self.as_of}", "Give the day for which the price is asked")
        return (on - self.as_of).days

    def is_stale(self, on: dt.date, fresh_days: int = FRESH_DAYS) -> bool:
        """Whether the price is older than `fresh_days` on the day `on`."""
        return self.age_days(on) > fresh_days

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.as_of < _EARLIEST:
            raise InputError("as_of", self.as_of, f"must be {_EARLIEST} or later", "Give the day on which the price was read")
        if self.on_demand_usd_per_hour is None and self.spot_usd_per_hour is None:
            raise InputError("on_demand_usd_per_hour", None, "must be set, or spot_usd_per_hour", "Give at least one of the two")
        if (
            self.on_demand_usd_per_hour is not None
            and self.spot_usd_per_hour is not None
            and self.spot_usd_per_hour > self.on_demand_usd_per_hour
        ):
            raise InputError(
                "spot_usd_per_hour",
                self.spot_usd_per_hour,
                f"must be at most on_demand_usd_per_hour, {self.on_demand_usd_per_hour:g}",
                "Give both for the whole instance",
            )
        return self


def list_prices() -> tuple[Price, ...]:
    """Return all prices: the shipped rows, with the user's in place of those of the same provider, instance and region."""
    files = tuple(stamp for folder in reversed(profile_folders(PRICES)) for stamp in stamps(folder, CSV_SUFFIX))
    index = gpu_index()
    found: dict[tuple[str, str, str], Price] = {}
    for stamp in files:
        for price in _file_prices(stamp):
            _check_gpu(price, index, stamp.path.name)
            found[price.provider, price.instance, price.region] = price
    return tuple(found.values())


def prices_for(gpu_id: str, provider: str | None = None, region: str | None = None) -> tuple[Price, ...]:
    """Return the prices of instances with one kind of accelerator, cheapest a GPU-hour first.

    gpu_id : a known id
    provider, region : keep only these; None keeps all

    Sorted by on-demand USD per GPU-hour; what is only sold as spot comes last, by its spot price. Empty when none is known: unlike
    an unknown id, that is no fault.
    """
    load_gpu(gpu_id)
    chosen = (
        price
        for price in list_prices()
        if price.gpu_id == gpu_id and provider in (None, price.provider) and region in (None, price.region)
    )
    return tuple(sorted(chosen, key=_dearness))


def prices_from_csv(text: str, name: str) -> tuple[Price, ...]:
    """Return the prices in CSV text with a header of the fields of Price; raises InputError naming the line and field.

    text : the document, at most 4 MiB
    name : label for messages
    """
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAX_CSV_BYTES:
        raise InputError(name, f"{size:,} bytes", f"must be at most {MAX_CSV_BYTES:,} bytes", "Split it by provider")
    reader = csv.DictReader(io.StringIO(text), restkey="", strict=True)
    known = tuple(Price.model_fields)
    prices: list[Price] = []
    try:
        for column in reader.fieldnames or ():
            if column not in known:
                raise InputError(name, column, "is not a known column", f"Known near it: {close_matches(column, known)}")
        prices.extend(_price(row, f"{name}, line {reader.line_num}") for row in reader)
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num + 1}", None, f"is not valid CSV ({error})", "Correct the line") from error
    if not prices:
        raise InputError(name, text[:40], "holds no price", f"Give a header and rows of {', '.join(known)}")
    return tuple(prices)


def _price(row: dict[str, Any], where: str) -> Price:
    if "" in row:
        raise InputError(where, row[""], "has more cells than the header", "Put quotes around a cell that holds a comma")
    return validated(Price, {key: value for key, value in row.items() if value not in (None, "")}, where)


@lru_cache(maxsize=256)
def _file_prices(stamp: Stamp) -> tuple[Price, ...]:
    if stamp.size > MAX_CSV_BYTES:
        raise InputError(
            stamp.path.name, f"{stamp.size:,} bytes", f"must be at most {MAX_CSV_BYTES:,} bytes", "Split it by provider"
        )
    return prices_from_csv(_text(stamp.path), stamp.path.name)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(path.name, "bytes", "is not UTF-8 text", "Save the file as UTF-8") from error
    except OSError as error:
        raise InputError(path.name, error.strerror, "could not be read", "Check that the file may be read") from error


def _check_gpu(price: Price, index: Index, where: str) -> None:
    if price.gpu_id not in index:
        raise InputError(
            f"{where}: gpu_id", price.gpu_id, "is not a known accelerator", f"Known near it: {close_matches(price.gpu_id, index)}"
        )


def _dearness(price: Price) -> tuple[bool, float, str, str, str]:
    on_demand, spot = price.usd_per_gpu_hour(), price.spot_usd_per_gpu_hour()
    usd = on_demand if on_demand is not None else spot
    return (on_demand is None, usd or 0.0, price.provider, price.region, price.instance)
