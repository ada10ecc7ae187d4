"""Rates over the hours of a day or a week, as factors on the mean rate."""

import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from planner.errors import InputError, as_input_error
from planner.paths import WORKLOADS_DIR, user_home
from planner.provenance import Source
from planner.workloads.laws import Floats
from planner.workloads.trace import Slug, Text, read_document

HOURS_PER_DAY = 24
HOURS_PER_WEEK = 168
_WEEKDAYS, _WEEKEND_DAYS = 5, 2
_MAX_HOURS = 8 * HOURS_PER_WEEK

Factors = tuple[Annotated[float, Field(ge=0, le=1000)], ...]


class RateProfile(BaseModel):
    """Hourly rates of an observed service relative to their mean.

    factors : 24 (every day alike), 48 (a weekday, then a weekend day) or whole weeks of 168 from Monday 00:00 [1]
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: Slug
    name: Text
    description: Text
    factors: Factors = Field(max_length=_MAX_HOURS)
    timezone: Text = Field(description="zone of hour 0, or what is known of it")
    peak_minute_factor: float | None = Field(default=None, ge=1, le=1000, description="busiest minute ÷ mean, from the source [1]")
    licence: Text
    attribution: Text | None = None
    source: Source

    @model_validator(mode="after")
    def _factors_are_a_profile(self) -> "RateProfile":
        hourly_factors(self.factors)
        return self

    @property
    def hourly(self) -> Floats:
        """Factor of each hour, mean 1: one day, or whole weeks from Monday 00:00 [1]."""
        return hourly_factors(self.factors)

    @property
    def peak_factor(self) -> float:
        """Busiest hour ÷ mean [1]."""
        return float(self.hourly.max())


def hourly_factors(factors: Factors) -> Floats:
    """Return factors with mean 1 for one day (24 given) or for whole weeks (48 or a multiple of 168 given) [1].

    48 factors are a weekday and a weekend day; the week is five of the first and two of the second. Dividing by their
    mean makes the stated rate the mean rate of the cycle.
    """
    values = np.asarray(factors, dtype=np.float64)
    count = len(values)
    if count == 2 * HOURS_PER_DAY:
        weekday, weekend = values[:HOURS_PER_DAY], values[HOURS_PER_DAY:]
        values = np.concatenate([np.tile(weekday, _WEEKDAYS), np.tile(weekend, _WEEKEND_DAYS)])
    elif count != HOURS_PER_DAY and (count == 0 or count % HOURS_PER_WEEK):
        raise InputError("factors", count, "must be 24, 48 or a multiple of 168 numbers", "Give one factor per hour")
    if values.sum() <= 0:
        raise InputError("factors", 0.0, "must have a mean above 0", "Give the rate of each hour")
    return np.asarray(values / values.mean())


def load_profile(profile_id: str) -> RateProfile:
    """Return a profile by id, the user's before the shipped one; raises InputError when unknown."""
    for path in _paths():
        if path.stem == profile_id:
            return _read(path, path.stat().st_mtime_ns)
    known = ", ".join(sorted({path.stem for path in _paths()}))
    raise InputError("profile", profile_id, f"must be one of {known}", "Choose a listed profile or give factors")


def list_profiles() -> tuple[RateProfile, ...]:
    """Return every profile, by id."""
    return tuple(load_profile(profile_id) for profile_id in sorted({path.stem for path in _paths()}))


def _paths() -> Iterator[Path]:
    home = user_home()
    for directory in (home / "workloads" if home else None, WORKLOADS_DIR):
        if directory is not None:
            yield from sorted((directory / "profiles").glob("*.toml"))


@functools.lru_cache(maxsize=64)
def _read(path: Path, _mtime_ns: int) -> RateProfile:
    try:
        return RateProfile.model_validate(read_document(path, tomllib.loads))
    except ValidationError as error:
        raise as_input_error(error, path.name) from error
