"""Lengths of a row's requests: those of a published data set where its lengths are known, else drawn from their mean."""

from functools import lru_cache
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from planner.calibration.measurements import Measurement
from planner.errors import InputError
from planner.paths import PROFILES_DIR

LENGTHS_FILE = PROFILES_DIR / "evidence" / "accuracy" / "lengths.json"

Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]
Length = Annotated[int, Field(ge=1, le=10**6)]

_VARIATION: dict[str, tuple[float, float]] = {"sharegpt": (1.0, 0.9)}
"""Coefficients of variation of prompts and outputs by the beginning of a data set's name."""


class DataSet(BaseModel):
    """A sample of one data set's requests, prompts and outputs in pairs, taken evenly over the prompts in order of length."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = Field(description="what rows call it")
    source: str
    terms: str
    output_limit_tokens: Length | None = Field(default=None, description="where generation is cut off [token]")
    prompt_tokens: tuple[Length, ...] = Field(min_length=1)
    output_tokens: tuple[Length, ...] | None = Field(default=None, description="None: all outputs have the row's mean")

    @model_validator(mode="after")
    def _in_pairs(self) -> "DataSet":
        if self.output_tokens is not None and len(self.output_tokens) != len(self.prompt_tokens):
            raise InputError("output_tokens", len(self.output_tokens), "must be as many as prompt_tokens", "Give pairs")
        return self


@lru_cache(maxsize=1)
def data_sets() -> dict[str, DataSet]:
    """Return the data sets whose lengths are known, by what rows call them."""
    known = TypeAdapter(tuple[DataSet, ...]).validate_json(LENGTHS_FILE.read_bytes())
    return {each.kind: each for each in known}


def lengths(measured: Measurement, count: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """Return prompts and outputs [token] of `count` requests of a row.

    A known data set gives pairs, prompts and outputs each scaled to the row's mean. Other lengths are constant, even from a share
    of the nominal length up to it, or gamma about their mean.
    """
    known = data_sets().get(measured.length_kind)
    if known is not None:
        return _from_data_set(known, measured, count, rng)
    cvs = next((cvs for name, cvs in _VARIATION.items() if measured.length_kind.startswith(name)), None)
    sides = []
    for side, mean in enumerate((measured.prompt_tokens, measured.output_tokens)):
        if cvs is not None:
            shape = cvs[side] ** -2.0
            drawn = rng.gamma(shape, mean / shape, count)
        else:
            drawn = rng.uniform(mean * measured.shortest_share, mean, count)
        sides.append(_whole(drawn))
    return sides[0], sides[1]


def _from_data_set(known: DataSet, measured: Measurement, count: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    chosen = rng.integers(len(known.prompt_tokens), size=count)
    prompts = scaled_to(np.array(known.prompt_tokens, np.float64), measured.prompt_tokens, None)[chosen]
    if known.output_tokens is None:
        return _whole(prompts), _whole(np.full(count, measured.output_tokens))
    outputs = scaled_to(np.array(known.output_tokens, np.float64), measured.output_tokens, known.output_limit_tokens)
    return _whole(prompts), _whole(outputs[chosen])


def scaled_to(values: Floats, mean: float, limit: float | None) -> Floats:
    """Return values [token] times the one factor that gives them a mean [token] when cut at a limit [token].

    A mean at or beyond the limit puts every value there: at the mean itself.
    """
    if limit is not None and mean >= limit:
        return np.full_like(values, mean)
    scaled = values * (mean / float(values.mean()))
    while limit is not None and float(np.minimum(scaled, limit).mean()) < mean * (1.0 - 1e-6):
        scaled *= mean / float(np.minimum(scaled, limit).mean())
    return scaled if limit is None else np.asarray(np.minimum(scaled, limit))


def _whole(values: Floats) -> Tokens:
    return np.maximum(np.rint(values), 1.0).astype(np.int64)
