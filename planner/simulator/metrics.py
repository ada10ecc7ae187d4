"""Latency, throughput and goodput of a simulated run, each defined once.

    TTFT  = first token - arrival                     of a request [s]
    TPOT  = (E2E - TTFT) / (output tokens - 1)        of a request; one-token outputs have none [s]
    ITL   = a token's time - the time of the token before it      of a token [s]
    E2E   = last token - arrival                      of a request [s]
    queue = decision that first gave it tokens - arrival          of a request [s]

The definitions are those of vLLM's `bench serve`, without its client's clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from planner.errors import InputError
from planner.simulator.result import GapHistogram, SimulationResult

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]
Metric = Literal["ttft", "tpot", "e2e", "queue"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "e2e", "queue")
WARM_UP_SHARE = 0.1
"""Share of the requests, first by arrival, that are left out because they met an emptier engine than later ones [1]."""
TARGET_PERCENTILE = 99.0
"""Percentile of TTFT and TPOT that a plan's targets bound."""
_CONFIDENCE = 0.95
_FEWEST_BATCHES = 5


class Estimate(NamedTuple):
    """A value with its 95 % confidence interval; low and high are None where the run is too short to give one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric over the requests (or tokens) that were measured.

    count : how many; 0 leaves mean and percentiles NaN
    percentiles : estimate by percentile, 0 to 100
    """

    count: int
    mean: Estimate
    percentiles: Mapping[float, Estimate]


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """What to measure.

    warm_up_share : share of the requests, first by arrival, left out because they met an emptier engine than later ones [1]
    percentiles : 0 to 100
    batches : most batches that a confidence interval is made of
    """

    warm_up_share: float = WARM_UP_SHARE
    percentiles: tuple[float, ...] = (50.0, 90.0, 95.0, 99.0)
    batches: int = 20


@dataclass(frozen=True, slots=True)
class Summary:
    """All latency metrics of a run, in seconds, and its rates.

    itl covers all tokens of the run, the warm-up's too, to within 0.05 %, and has no interval
    requests_per_s, output_tokens_per_s : served from the first arrival to the last token of the measured requests
    """

    measured: int
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    e2e: Distribution
    queue: Distribution
    requests_per_s: float
    output_tokens_per_s: float

    def distribution(self, metric: Metric) -> Distribution:
        """Return one metric's distribution."""
        found: Distribution = getattr(self, metric)
        return found


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one metric of every request [s]; with a percentile (0 to 100), a bound on that percentile."""

    metric: Metric
    limit_s: float
    percentile: float = TARGET_PERCENTILE

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InputError("target.metric", self.metric, f"must be one of {', '.join(METRICS)}", "Choose one of them")
        if not 0.0 < self.limit_s < np.inf:
            raise InputError("target.limit_s", self.limit_s, "must be above 0 and finite", "Give seconds, for example 1.0")
        if not 0.0 < self.percentile < 100.0:
            raise InputError("target.percentile", self.percentile, "must be between 0 and 100", "Give a percentile, for example 99")


def latency_targets(ttft_p99_s: float | None, tpot_p99_s: float | None) -> tuple[Target, ...]:
    """Return a plan's targets [s], those that it leaves open left out."""
    wanted: tuple[tuple[Metric, float | None], ...] = (("ttft", ttft_p99_s), ("tpot", tpot_p99_s))
    return tuple(Target(metric, limit_s) for metric, limit_s in wanted if limit_s is not None)


class Goodput(NamedTuple):
    """Requests that met every target: their share of the measured ones [1], and how many a second [request/s]."""

    share: float
    requests_per_s: float


class TargetCheck(NamedTuple):
    """A target against what was measured; surely_met says that the whole confidence interval lies below the limit."""

    target: Target
    measured: Estimate
    met: bool
    surely_met: bool


def values_s(result: SimulationResult, metric: Metric) -> Floats:
    """Return a metric of each request [s], in the caller's order; NaN where it has none."""
    if metric == "ttft":
        return result.first_token_s - result.arrival_s
    if metric == "e2e":
        return result.finish_s - result.arrival_s
    if metric == "queue":
        return result.first_scheduled_s - result.arrival_s
    return token_gaps_s(result.first_token_s, result.finish_s, result.output_tokens)


def token_gaps_s(first_token_s: Floats, finish_s: Floats, output_tokens: npt.NDArray[np.int64]) -> Floats:
    """Return TPOT, from the times of the first and the last token [s]; NaN for one token, and where a time is NaN."""
    gaps = output_tokens - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gaps > 0, (finish_s - first_token_s) / gaps, np.nan)


def meets(values: Mapping[Metric, Floats], served: Masks, targets: Sequence[Target]) -> Masks:
    """Whether each request was served within every target, each taken as a bound on every request.

    values : metrics of each request [s], those that targets name; a request without one, as TPOT of a single token, keeps its bound
    """
    good = served.copy()
    for target in targets:
        good &= ~(values[target.metric] > target.limit_s)
    return good


def met(result: SimulationResult, targets: Sequence[Target]) -> Masks:
    """Whether each request of a run was served within every target, in the caller's order; see `meets`."""
    values = {target.metric: values_s(result, target.metric) for target in targets}
    return meets(values, np.isfinite(result.finish_s), targets)


def measured_s(result: SimulationResult, metric: Metric, warm_up_share: float = WARM_UP_SHARE) -> Floats:
    """Return a metric of the measured requests that have one, by arrival [s]."""
    values = values_s(result, metric)[_measured(result, warm_up_share)]
    return values[~np.isnan(values)]


def percentile_s(known_s: Floats, percentile: float) -> float:
    """Return a percentile (0 to 100) of one or more values, linear between neighbours [s]."""
    return float(_interpolated(known_s[None, :], (percentile,))[percentile][0])


def leaving_rps(finish_s: Floats, left_out_share: float) -> float | None:
    """Return the rate at which requests leave over the middle of a run, without its ramp and its drain [request/s].

    finish_s : when each request ended, NaN for one that didn't [s]
    left_out_share : of the requests that ended, at each end [1], 0 < share < 1/2

    None where fewer than two ended, or all of the middle ended at once.

    >>> leaving_rps(np.arange(101.0) / 4.0, 0.1)
    4.0
    """
    ends = np.sort(finish_s[np.isfinite(finish_s)])
    if len(ends) < 2:
        return None
    first, last = int(left_out_share * len(ends)), int((1.0 - left_out_share) * len(ends))
    span_s = float(ends[last] - ends[first])
    return (last - first) / span_s if span_s > 0.0 else None


def summarise(result: SimulationResult, options: MeasureOptions | None = None) -> Summary:
    """Return the latencies and rates of a run."""
    options = options or MeasureOptions()
    _check_options(options)
    chosen = _measured(result, options.warm_up_share)
    by_metric = {metric: _distribution(values_s(result, metric)[chosen], options) for metric in METRICS}
    span_s = _span_s(result, chosen)
    tokens = int(result.output_tokens[chosen].sum())
    return Summary(
        measured=len(chosen),
        ttft=by_metric["ttft"],
        tpot=by_metric["tpot"],
        itl=_weighted(result.gaps, options.percentiles),
        e2e=by_metric["e2e"],
        queue=by_metric["queue"],
        requests_per_s=len(chosen) / span_s if span_s > 0.0 else 0.0,
        output_tokens_per_s=tokens / span_s if span_s > 0.0 else 0.0,
    )


def goodput(result: SimulationResult, targets: Sequence[Target], warm_up_share: float = WARM_UP_SHARE) -> Goodput:
    """Return the requests that met all targets; rejected ones met none. See `meets`."""
    chosen = _measured(result, warm_up_share)
    rejected = int(result.rejected.sum())
    span_s = _span_s(result, chosen)
    count = int(met(result, targets)[chosen].sum())
    total = len(chosen) + rejected
    return Goodput(count / total if total else 0.0, count / span_s if span_s > 0.0 else 0.0)


def check_targets(
    result: SimulationResult, targets: Sequence[Target], options: MeasureOptions | None = None
) -> tuple[TargetCheck, ...]:
    """Return each percentile target with what was measured."""
    base = options or MeasureOptions()
    wanted = MeasureOptions(base.warm_up_share, tuple(sorted({target.percentile for target in targets})), base.batches)
    summary = summarise(result, wanted)
    checks = []
    for target in targets:
        measured = summary.distribution(target.metric).percentiles[target.percentile]
        surely = measured.high is not None and measured.high <= target.limit_s
        checks.append(TargetCheck(target, measured, met=measured.value <= target.limit_s, surely_met=surely))
    return tuple(checks)


def over_replications(values: Sequence[float]) -> Estimate:
    """Return the mean of independent replications with its interval; None below two of them."""
    return _with_interval(float(np.mean(values)), np.asarray(values, np.float64))


def _check_options(options: MeasureOptions) -> None:
    if not 0.0 <= options.warm_up_share < 1.0:
        raise InputError("warm_up_share", options.warm_up_share, "must be in [0, 1)", "Give a share, for example 0.1")
    for percentile in options.percentiles:
        if not 0.0 < percentile < 100.0:
            raise InputError("percentiles", percentile, "must be between 0 and 100", "Give percentiles, for example 99")


def _measured(result: SimulationResult, warm_up_share: float) -> npt.NDArray[np.int64]:
    """Return the positions of the requests to measure, by arrival."""
    accepted = np.flatnonzero(~result.rejected)
    arrival_s = result.arrival_s[accepted]
    if len(accepted) > 1 and bool((np.diff(arrival_s) < 0.0).any()):
        accepted = accepted[np.argsort(arrival_s, kind="stable")]
    return accepted[int(warm_up_share * len(accepted)) :]


def _span_s(result: SimulationResult, chosen: npt.NDArray[np.int64]) -> float:
    """Return the time from the first measured request's arrival to the last one's end [s]."""
    if len(chosen) == 0:
        return 0.0
    return float(np.nanmax(result.finish_s[chosen], initial=0.0) - result.arrival_s[chosen[0]])


def _distribution(values: Floats, options: MeasureOptions) -> Distribution:
    known = values[~np.isnan(values)]
    count = len(known)
    if count == 0:
        nothing = Estimate(float("nan"))
        return Distribution(0, nothing, dict.fromkeys(options.percentiles, nothing))
    batches = _batches(known, options.batches, least=10)
    mean = _with_interval(float(known.mean()), batches.mean(axis=1) if batches is not None else None)
    return Distribution(count, mean, _percentiles(known, options))


def _percentiles(known: Floats, options: MeasureOptions) -> dict[float, Estimate]:
    """Return percentiles, exact over all values, with intervals from the same percentiles of consecutive batches."""
    exact = _interpolated(known[None, :], options.percentiles)
    estimates = {q: Estimate(float(exact[q][0])) for q in options.percentiles}
    by_batches: dict[int, list[float]] = {}
    for q in options.percentiles:
        least = max(10, int(np.ceil(200.0 / (100.0 - q))))
        by_batches.setdefault(min(options.batches, len(known) // least), []).append(q)
    for count, percentiles in by_batches.items():
        batches = _batches(known, count, least=1)
        if batches is not None:
            samples = _interpolated(batches, tuple(percentiles))
            estimates |= {q: _with_interval(estimates[q].value, samples[q]) for q in percentiles}
    return estimates


def _interpolated(rows: Floats, percentiles: tuple[float, ...]) -> dict[float, Floats]:
    """Return the percentiles of each row, linear between neighbours, as numpy.percentile does."""
    last = rows.shape[1] - 1
    places = {q: last * q / 100.0 for q in percentiles}
    wanted = sorted({min(int(place) + step, last) for place in places.values() for step in (0, 1)})
    if not wanted:
        return {}
    parted = np.partition(rows, wanted, axis=1)
    found = {}
    for q, place in places.items():
        below = int(place)
        low, high = parted[:, below], parted[:, min(below + 1, last)]
        found[q] = low + (high - low) * (place - below)
    return found


def _batches(known: Floats, most: int, least: int) -> Floats | None:
    """Cut the values, in order of arrival, into equal batches of at least `least`; None when fewer than five come out."""
    count = min(most, len(known) // least)
    if count < _FEWEST_BATCHES:
        return None
    size = len(known) // count
    return known[len(known) - count * size :].reshape(count, size)


def _with_interval(value: float, samples: Floats | None) -> Estimate:
    """Return the value with Student's t interval of the samples' scatter, centred on it."""
    if samples is None or len(samples) < 2:
        return Estimate(value)
    t = float(stdtrit(len(samples) - 1, 0.5 + 0.5 * _CONFIDENCE))
    half = t * float(samples.std(ddof=1)) / len(samples) ** 0.5
    return Estimate(value, value - half, value + half)


def _weighted(gaps: GapHistogram, percentiles: tuple[float, ...]) -> Distribution:
    """Return the distribution of gaps over tokens."""
    count = int(gaps.tokens.sum())
    if count == 0:
        nothing = Estimate(float("nan"))
        return Distribution(0, nothing, dict.fromkeys(percentiles, nothing))
    reached = np.cumsum(gaps.tokens)
    found = {q: float(gaps.middle_s[np.searchsorted(reached, q / 100.0 * count)]) for q in percentiles}
    return Distribution(count, Estimate(gaps.sum_s / count), {q: Estimate(value) for q, value in found.items()})
