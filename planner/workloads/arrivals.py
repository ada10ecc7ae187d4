"""When requests arrive: Poisson and renewal processes, recorded times, and a base process driven by an hourly profile."""

import functools
from abc import ABC, abstractmethod
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy import special
from scipy.optimize import brentq

from planner.errors import InputError
from planner.provenance import Source
from planner.units import HOUR_S
from planner.workloads.laws import Floats
from planner.workloads.profiles import Factors, hourly_factors, load_profile
from planner.workloads.trace import Slug, Trace, load_trace

MAX_REQUESTS = 50_000_000
MAX_RATE_RPS = 1e7

CLIENT_CVS = {"many users": 1.0, "few clients": 2.0, "batch-like clients": 6.0}
CLIENT_CVS_SOURCE = Source(
    kind="published",
    ref="alibaba/ServeGen @ f891d118 (arXiv 2505.09999), CV of the gaps per client, weighted by rate",
    confidence="medium",
    note="Median 1.0 to 2.0 over five services; 90th percentile 4.9 to 7.0 in four of them and 27 in one. Rounded.",
)

Cv = Annotated[float, Field(ge=0.05, le=30, description="coefficient of variation of the gaps [1]; CLIENT_CVS names usual ones")]


class ArrivalLaw(BaseModel, ABC):
    """A law of arrival times, as a document; it is asked for a rate when sampled."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def sample(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:
        """Return n arrival times from near 0, not falling, with mean rate `rate_rps` [s].

        n : how many; rate_rps : mean arrivals a second [request/s]. Raises InputError when either is out of bounds.
        """
        if not 1 <= n <= MAX_REQUESTS:
            raise InputError("n", n, f"must be between 1 and {MAX_REQUESTS}", "Sample fewer requests")
        if not 0 < rate_rps <= MAX_RATE_RPS:
            raise InputError("rate_rps", rate_rps, f"must be above 0 and at most {MAX_RATE_RPS:g}", "Give requests a second")
        return self._times(n, rate_rps, rng)

    @abstractmethod
    def _times(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:
        """Return the times; n and rate_rps are checked."""


class PoissonArrivals(ArrivalLaw):
    """Independent users: exponential gaps, CV 1. Sums of many users are Poisson up to about 10 s."""

    kind: Literal["poisson"] = "poisson"

    def _times(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:
        return np.cumsum(rng.standard_exponential(n)) / rate_rps


class GammaArrivals(ArrivalLaw):
    """Renewal process with gamma gaps; cv above 1 is burstier than Poisson (vLLM's burstiness is 1/cv²)."""

    kind: Literal["gamma"] = "gamma"
    cv: Cv

    def _times(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:
        shape = 1 / self.cv**2
        return np.cumsum(rng.standard_gamma(shape, n)) / (shape * rate_rps)


class WeibullArrivals(ArrivalLaw):
    """Renewal process with Weibull gaps: a heavier tail of pauses than gamma at the same cv."""

    kind: Literal["weibull"] = "weibull"
    cv: Cv

    def _times(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:
        shape = weibull_shape_of_cv(self.cv)
        return np.cumsum(rng.weibull(shape, n)) / (special.gamma(1 + 1 / shape) * rate_rps)


class ConstantArrivals(ArrivalLaw):
    """Even gaps, as load generators send at a constant rate; real users never do."""

    kind: Literal["constant"] = "constant"

    def _times(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:  # noqa: ARG002  every law takes a generator
        return np.arange(1, n + 1) / rate_rps


class TraceArrivals(ArrivalLaw):
    """Recorded times, stretched so that the sampled stretch has the asked rate; bursts inside it keep their shape.

    Times that share a coarse tick are spread uniformly inside it, in order. A stretch starts at the first row or at a
    random one; more requests than rows repeat the trace.
    """

    kind: Literal["trace"] = "trace"
    trace: Slug
    window: Literal["first", "random"] = "random"

    def _times(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:
        recorded = _spread(load_trace(self.trace), rng)
        rows = len(recorded)
        mean_gap = (recorded[-1] - recorded[0]) / (rows - 1)
        start = int(rng.integers(0, rows - n + 1)) if self.window == "random" and n < rows else 0
        index = start + np.arange(n + 1)
        unrolled = recorded[index % rows] + (index // rows) * (recorded[-1] - recorded[0] + mean_gap)
        span = unrolled[-1] - unrolled[0]
        if span <= 0:
            raise InputError(
                "arrivals.trace", self.trace, "must have distinct times in the sampled stretch", "Sample more requests"
            )
        return np.asarray((unrolled[:-1] - unrolled[0]) * (n / rate_rps / span))


BaseArrivals = Annotated[PoissonArrivals | GammaArrivals | WeibullArrivals, Field(discriminator="kind")]


class ProfileArrivals(ArrivalLaw):
    """A base process whose rate follows the hours: the stated rate is the mean over the whole cycle.

    profile : id of a shipped or user profile; or factors : the same as numbers (24, 48 or weeks of 168, from Monday 00:00)
    start_hour : hour of the cycle at time 0
    """

    kind: Literal["profile"] = "profile"
    profile: Slug | None = None
    factors: Factors | None = Field(default=None, max_length=1344)
    base: BaseArrivals = PoissonArrivals()
    start_hour: float = Field(default=0.0, ge=0, le=1344)

    @model_validator(mode="after")
    def _one_profile(self) -> Self:
        if (self.profile is None) == (self.factors is None):
            raise InputError("profile", self.profile, "must be given, or factors, but not both", "Give one of them")
        if self.factors is not None:
            hourly_factors(self.factors)
        return self

    @property
    def hourly(self) -> Floats:
        """Factor of each hour of the cycle, mean 1 [1]."""
        return hourly_factors(self.factors) if self.factors is not None else load_profile(self.profile or "").hourly

    @property
    def peak_factor(self) -> float:
        """Busiest hour ÷ mean [1]."""
        return float(self.hourly.max())

    def _times(self, n: int, rate_rps: float, rng: np.random.Generator) -> Floats:
        return _follow_hours(self.base.sample(n, rate_rps, rng), self.hourly, self.start_hour * HOUR_S)


Arrivals = Annotated[
    PoissonArrivals | GammaArrivals | WeibullArrivals | ConstantArrivals | TraceArrivals | ProfileArrivals,
    Field(discriminator="kind"),
]


@functools.lru_cache(maxsize=64)
def weibull_shape_of_cv(cv: float) -> float:
    """Return the Weibull shape k whose coefficient of variation is `cv` [1]; cv from 0.05 to 30.

    cv² = Γ(1 + 2/k) / Γ(1 + 1/k)² - 1, solved for k.

    >>> round(weibull_shape_of_cv(1.0), 6)
    1.0
    """
    target = float(np.log1p(cv**2))
    return float(brentq(lambda k: special.gammaln(1 + 2 / k) - 2 * special.gammaln(1 + 1 / k) - target, 0.1, 40.0, xtol=1e-12))


def _spread(trace: Trace, rng: np.random.Generator) -> Floats:
    """Return the recorded times, those of a coarse tick spread inside it."""
    if trace.arrival_s is None or len(trace) < 2 or trace.arrival_s[-1] <= trace.arrival_s[0]:
        raise InputError("arrivals.trace", trace.meta.id, "must have arrival times", "Choose poisson arrivals for length-only data")
    tick_s = trace.meta.time_resolution_s
    if tick_s is None:
        return trace.arrival_s
    return np.sort(trace.arrival_s + rng.random(len(trace)) * tick_s)


def _follow_hours(uniform_s: Floats, hourly: Floats, start_s: float) -> Floats:
    """Map times of a process with constant rate to one with hourly factors (inverse of the cumulated rate)."""
    edges_s = np.arange(len(hourly) + 1) * HOUR_S
    cumulated_s = np.concatenate([[0.0], np.cumsum(hourly * HOUR_S)])
    cycle_s = edges_s[-1]
    cycles, start_in_cycle = divmod(start_s, cycle_s)
    operational = uniform_s + cycles * cycle_s + np.interp(start_in_cycle, edges_s, cumulated_s)
    passes = np.floor(operational / cycle_s)
    clock_s = passes * cycle_s + np.interp(operational - passes * cycle_s, cumulated_s, edges_s)
    return np.maximum.accumulate(clock_s - start_s)
