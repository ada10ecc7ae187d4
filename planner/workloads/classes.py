"""Classes of requests and the random streams of a workload: one stream per cause."""

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from planner.workloads.laws import Floats, Tokens
from planner.workloads.lengths import Lengths
from planner.workloads.trace import Text


class RequestClass(BaseModel):
    """A kind of request inside a workload.

    share : share of requests [1]
    priority : as the engine orders them: lower is served first
    lengths : the class's own law; None takes the workload's
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Text
    share: float = Field(gt=0, le=1)
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    lengths: Lengths | None = None


class Streams(NamedTuple):
    """One generator per cause, so that another arrival process leaves lengths and classes as they were."""

    arrivals: np.random.Generator
    lengths: np.random.Generator
    classes: np.random.Generator


def streams(seed: int) -> Streams:
    """Return the generators of a seed; same seed, same numbers."""
    return Streams(*(np.random.default_rng([seed, index]) for index in range(len(Streams._fields))))


def child_streams(rng: np.random.Generator) -> Streams:
    """Return generators spawned from one; the same generator state gives the same children."""
    return Streams(*rng.spawn(len(Streams._fields)))


def draw_classes(classes: tuple[RequestClass, ...], uniforms: Floats) -> Tokens:
    """Return the index of the class at each uniform number in [0, 1)."""
    upper = np.cumsum([each.share for each in classes])
    index = np.searchsorted(upper / upper[-1], uniforms, side="right")
    return np.minimum(index, len(classes) - 1).astype(np.int64)
