"""How far whole engines lie from predictions that haven't seen them: what a plan's intervals must add to a record's own.

A record's covariance says how well its measurements fix its parameters. Another model, layout, server or release departs from it
by more, and steadily over one deployment: a factor on all its step times. What is left beside that factor is added to TTFT (front
ends, queues) and to throughput.
"""

import json
import math
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from planner.calibration.schema import CalibrationRecord
from planner.paths import PROFILES_DIR

SPREAD_FILE = PROFILES_DIR / "evidence" / "accuracy" / "spread.json"
_BENCHMARK = "benchmark runs"
Z80 = 1.2815515655446004
"""Standard deviations from the median to each end of an 80 % interval."""
Class = Literal["measured", "prior"]
LogSd = Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)]


class ServingSpread(BaseModel):
    """Spread of measured ÷ predicted over deployments that a record hasn't seen, as standard deviations of logarithms.

    Sized so that 80 % intervals hold 80 % of published serving figures, each group of GPU, engine and model counting by the square
    root of its points.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step_log_sd: LogSd = Field(description="factor on all step times of a deployment [1]")
    ttft_log_sd: LogSd = Field(description="further factor on TTFT, beside what the step times do to it [1]")
    throughput_log_sd: LogSd = Field(description="further factor on throughput [1]")
    groups: Annotated[int, Field(ge=1)] = Field(description="GPU, engine and model combinations that it was sized on")
    points: Annotated[int, Field(ge=1)]
    source: str = Field(min_length=1, max_length=1000)


def class_of(record: CalibrationRecord) -> Class:
    """Say whether a record rests on measurements of its own GPU and engine."""
    return "prior" if record.basis == "prior" else "measured"


@lru_cache(maxsize=1)
def _spreads() -> dict[str, ServingSpread]:
    document = json.loads(SPREAD_FILE.read_bytes())
    return {name: ServingSpread.model_validate(part) for name, part in document.items()}


def spread_of(record: CalibrationRecord, label: str | None = None) -> ServingSpread:
    """Return the spread to expect of a deployment.

    label : model, weights and layout as the record names its groups; None: one that the record hasn't seen

    A deployment that the record was fitted on in a whole engine, host included, departs from it by the record's own residuals.
    """
    spread = _spreads()[class_of(record)]
    own = record.evidence.residual_log_sd if record.evidence is not None else None
    if own is None or label is None or not _has_served(record, label):
        return spread
    return spread.model_copy(update={"step_log_sd": own, "ttft_log_sd": own, "throughput_log_sd": own})


def _has_served(record: CalibrationRecord, label: str) -> bool:
    """Say whether a record was fitted on a deployment's whole steps or on benchmarks, of which its evidence names no model."""
    evidence, covariance = record.evidence, record.covariance
    if evidence is None or covariance is None or not any(name.startswith("host.") for name in covariance.names):
        return False
    return any(_names(group.group, label) or group.group.endswith(_BENCHMARK) for group in evidence.groups)


def _names(group: str, label: str) -> bool:
    """Say whether a record's group is of a deployment's model and tensor-parallel size, whatever else the two say."""
    wanted, names = label.split(), group.split()
    return names[0] == wanted[0] and wanted[-1] in names


def step_factors(record: CalibrationRecord, count: int, seed: int, label: str | None = None) -> list[float]:
    """Return factors on all step times of a deployment, drawn from the spread between deployments [1].

    count : how many draws; the textbook record is exact by definition and draws 1
    label : as in spread_of
    """
    if record.basis == "textbook":
        return [1.0] * count
    spread = spread_of(record, label).step_log_sd
    return [math.exp(score * spread) for score in _normal_scores(np.random.default_rng([seed, 9]), count)]


def figure_factors(record: CalibrationRecord, count: int, seed: int, label: str | None = None) -> list[tuple[float, float]]:
    """Return factors on TTFT and on throughput that no step time accounts for, drawn from the spread between deployments [1].

    count, label : as in step_factors; the two are drawn apart from each other and from the step times
    """
    if record.basis == "textbook":
        return [(1.0, 1.0)] * count
    spread = spread_of(record, label)
    rng = np.random.default_rng([seed, 10])
    scores = zip(_normal_scores(rng, count), _normal_scores(rng, count), strict=True)
    return [(math.exp(ttft * spread.ttft_log_sd), math.exp(rate * spread.throughput_log_sd)) for ttft, rate in scores]


def _normal_scores(rng: np.random.Generator, count: int) -> list[float]:
    """Return the middles of as many equally likely slices of the standard normal distribution, in random order [1].

    A dozen independent draws would leave the ends of an 80 % interval to luck.
    """
    return [NormalDist().inv_cdf((place + 0.5) / count) for place in rng.permutation(count).tolist()]
