"""The largest rate at which one replica meets its targets: searches over rates, each of which is one simulation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from planner.parallel import in_parallel
from planner.plans.capacity import COARSE_REQUESTS, Demand, Replica, latency_at, saturated_rps
from planner.plans.results import Knobs, Latency
from planner.scenario import Targets

_HALVINGS = 4
_ROUNDS = 10
_PRECISION = 0.012
_COARSE_PRECISION = 0.03
_EDGE = 0.08
_ONE_SIDED = 2
_STRIDES = 4
_USELESS_SHARE = 0.1
_FIRST_STRIDE = 1.15
_MARGIN = 1.1
_NEAR = 1.0175
_PAIRS = 14
_WIDE = 0.1
_LEAST_RPS = 1e-3
_LEAST_S = 1e-9


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica carries.

    rate_rps : largest rate that meets the targets [request/s]; None when none does
    binds : what stops it there
    latency : at that rate, or at the lowest rate tried when no rate meets the targets
    running_peak : most sequences at once at that rate and just above it; a max_num_seqs above it changes nothing [seq]
    """

    rate_rps: float | None
    binds: str
    latency: Latency
    running_peak: int | None = None


@lru_cache(maxsize=50_000)
def capacity_of(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets) -> Capacity:
    """Return the largest rate at which one replica meets the targets, to about 1 %.

    Without targets it is the saturated rate. With them, a rate meets them when the run isn't overloaded and both percentiles hold;
    a replica that misses them even at a sixteenth of its saturated rate has no useful capacity.
    The search halves the rate until one meets them, then closes in by false position (with Illinois' rule) on the logarithms of
    the rate and of the worse ratio of percentile to target.
    """
    saturated = saturated_rps(demand, replica, knobs)
    if saturated <= 0.0:
        return Capacity(None, "nothing fits", latency_at(demand, replica, knobs, _LEAST_RPS))
    if targets.offline:
        at = latency_at(demand, replica, knobs, saturated)
        return Capacity(saturated, at.binds, at)
    missed = latency_at(demand, replica, knobs, saturated * _MARGIN)
    if miss(missed, targets) <= 0.0:
        return Capacity(saturated, missed.binds, missed, missed.running_peak)
    met = missed
    for halvings in range(1, _HALVINGS + 1):
        met = latency_at(demand, replica, knobs, saturated / 2**halvings)
        if miss(met, targets) <= 0.0:
            break
        missed = met
    else:
        return Capacity(None, missed_target(met, targets), met)
    met, missed = _close_in(demand, replica, knobs, targets, (met, missed))
    peak = max(met.running_peak or 0, missed.running_peak or 0)
    return Capacity(met.rate_rps, missed_target(missed, targets), met, peak)


@lru_cache(maxsize=50_000)
def capacity_from(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, guess_rps: float) -> Capacity:
    """Return what `capacity_of` finds, in half the simulations where a guess is near.

    guess_rps : a rate near the capacity, such as that of other settings or of a like replica [request/s]

    Strides away from the guess, each the square of the one before, bracket the capacity; a guess that is far off is dropped.
    """
    if targets.offline or guess_rps <= 0.0:
        return capacity_of(demand, replica, knobs, targets)
    edge = latency_at(demand, replica, knobs, guess_rps)
    upwards = meets(edge, targets)
    for stride in range(_STRIDES):
        factor = _FIRST_STRIDE ** (2**stride)
        tried = latency_at(demand, replica, knobs, edge.rate_rps * factor if upwards else edge.rate_rps / factor)
        if meets(tried, targets) != upwards:
            met, missed = _close_in(demand, replica, knobs, targets, (edge, tried) if upwards else (tried, edge))
            peak = max(met.running_peak or 0, missed.running_peak or 0)
            return Capacity(met.rate_rps, missed_target(missed, targets), met, peak)
        edge = tried
    if not upwards and edge.rate_rps < _USELESS_SHARE * saturated_rps(demand, replica, knobs):
        return Capacity(None, missed_target(edge, targets), edge)
    return capacity_of(demand, replica, knobs, targets)


@lru_cache(maxsize=50_000)
def capacity_near(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, guess_rps: float) -> Capacity:
    """Return what `capacity_from` finds, two rates at a time: for the largest sample, one run of which keeps a core busy.

    A guess that is right to 1.7 % costs four runs in two rounds. Further off, each pair lies around where the line through what
    two runs missed by crosses the target.
    """
    if targets.offline or guess_rps <= 0.0:
        return capacity_of(demand, replica, knobs, targets)
    around_rps, ratio = guess_rps, _NEAR
    met: Latency | None = None
    missed: Latency | None = None
    for turn in range(_PAIRS):
        pair = _both(demand, replica, knobs, (around_rps / ratio, around_rps * ratio))
        holds = [meets(run, targets) for run in pair]
        met = pair[1] if all(holds) else pair[0] if holds[0] else met
        missed = pair[0] if not holds[0] else pair[1] if not holds[1] else missed
        if met is None or missed is None:
            around_rps = _crossing_rps(pair, targets, met, missed, _FIRST_STRIDE ** (2 ** min(turn, _STRIDES - 1)))
            continue
        width = math.log(missed.rate_rps / met.rate_rps)
        if width < _PRECISION:
            peak = max(met.running_peak or 0, missed.running_peak or 0)
            return Capacity(met.rate_rps, missed_target(missed, targets), met, peak)
        if width < _WIDE or turn > _STRIDES:
            around_rps, ratio = math.sqrt(met.rate_rps * missed.rate_rps), math.exp(width / 6.0)
        else:
            around_rps = _crossing_rps(pair, targets, met, missed, 1.0)
    return capacity_from(demand, replica, knobs, targets, around_rps)


def _crossing_rps(pair: Sequence[Latency], targets: Targets, met: Latency | None, missed: Latency | None, reach: float) -> float:
    """Return the rate at which the line through a pair of runs, of the logarithms of rate and miss, crosses the target [request/s].

    met, missed : runs between which it must lie, with room for a pair around it; None where none is known yet
    reach : how far beyond the pair it may lie then, as a ratio [1]; it lies so far where the line doesn't rise
    """
    below, above = miss(pair[0], targets), miss(pair[1], targets)
    start, end = math.log(pair[0].rate_rps), math.log(pair[1].rate_rps)
    margin = 1.5 * math.log(_NEAR)
    crossing = start - below * (end - start) / (above - below) if above > below else math.inf if below <= 0.0 else -math.inf
    least = start - max(math.log(reach), margin) if met is None else math.log(met.rate_rps) + margin
    most = end + max(math.log(reach), margin) if missed is None else math.log(missed.rate_rps) - margin
    return math.exp(min(max(crossing, least), most))


def _both(demand: Demand, replica: Replica, knobs: Knobs, rates_rps: tuple[float, float]) -> list[Latency]:
    return in_parallel(lambda rate_rps: latency_at(demand, replica, knobs, rate_rps), rates_rps)


@lru_cache(maxsize=50_000)
def capacity_under(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, missed_rps: float) -> Capacity:
    """Return the capacity of a replica that is known to miss its targets at a rate on this sample; it is below that rate."""
    if targets.offline:
        return capacity_of(demand, replica, knobs, targets)
    missed = met = latency_at(demand, replica, knobs, missed_rps)
    for stride in range(_STRIDES):
        met = latency_at(demand, replica, knobs, missed.rate_rps / _FIRST_STRIDE ** (2**stride))
        if meets(met, targets):
            break
        missed = met
    else:
        if met.rate_rps < _USELESS_SHARE * saturated_rps(demand, replica, knobs):
            return Capacity(None, missed_target(met, targets), met)
        found = capacity_of(demand, replica, knobs, targets)
        if found.rate_rps is None or found.rate_rps < met.rate_rps:
            return found
        met = latency_at(demand, replica, knobs, saturated_rps(demand, replica, knobs) / 2**_HALVINGS)
        if not meets(met, targets):
            return Capacity(None, missed_target(met, targets), met)
    met, missed = _close_in(demand, replica, knobs, targets, (met, missed))
    peak = max(met.running_peak or 0, missed.running_peak or 0)
    return Capacity(met.rate_rps, missed_target(missed, targets), met, peak)


def _close_in(
    demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, bracket: tuple[Latency, Latency]
) -> tuple[Latency, Latency]:
    """Return a rate that meets the targets and one that misses, 1 % apart; 3 % on the smaller sample, whose noise is larger.

    By false position; by halves after three rates on the same side, as where the engine stops keeping up percentiles leap.
    """
    met, missed = bracket
    below, above, side = miss(met, targets), miss(missed, targets), 0
    for _ in range(_ROUNDS):
        low, high = math.log(met.rate_rps), math.log(missed.rate_rps)
        if high - low < (_PRECISION if demand.count > COARSE_REQUESTS else _COARSE_PRECISION):
            break
        share = 0.5 if abs(side) > _ONE_SIDED else min(max(below / (below - above), _EDGE), 1.0 - _EDGE)
        tried = latency_at(demand, replica, knobs, math.exp(low + share * (high - low)))
        found = miss(tried, targets)
        if found > 0.0:
            missed, above = tried, found
            below, side = (below / 2.0 if side > 0 else below), max(side, 0) + 1
        else:
            met, below = tried, found
            above, side = (above / 2.0 if side < 0 else above), min(side, 0) - 1
    return met, missed


class Probe(NamedTuple):
    """One look at a replica at a rate.

    miss : logarithm of the worse ratio of percentile to target [1], between -1 and 1; 0 or less where both targets hold
    latency : what was reached there
    """

    miss: float
    latency: Latency

    @property
    def held(self) -> bool:
        """Whether the rate is carried."""
        return self.miss <= 0.0


def probe(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, rate_rps: float) -> Probe:
    """Say whether a replica carries a rate, by one simulation; without targets, whether it completes as much."""
    if not targets.offline:
        latency = latency_at(demand, replica, knobs, rate_rps)
        return Probe(miss(latency, targets), latency)
    most_rps = saturated_rps(demand, replica, knobs)
    latency = latency_at(demand, replica, knobs, max(most_rps, _LEAST_RPS))
    return Probe(max(-1.0, min(1.0, math.log(rate_rps / most_rps))) if most_rps > 0.0 else 1.0, latency)


class Misses(NamedTuple):
    """Logarithm of percentile ÷ target, by target [1]; minus infinity where none is set or no request has the metric."""

    ttft: float
    tpot: float


def misses_of(latency: Latency, targets: Targets) -> Misses:
    """Return how far a run is off each target."""

    def ratio(reached_s: float | None, target_s: float | None) -> float:
        return -math.inf if target_s is None or reached_s is None else math.log(max(reached_s, _LEAST_S) / target_s)

    return Misses(ratio(latency.ttft_p99_s, targets.ttft_p99_s), ratio(latency.tpot_p99_s, targets.tpot_p99_s))


def miss(latency: Latency, targets: Targets) -> float:
    """Return the logarithm of the worse ratio of percentile to target [1], between -1 and 1.

    1 when the engine doesn't keep up, or when no request got a token.
    """
    served = latency.stable and latency.ttft_p99_s is not None
    return max(-1.0, min(1.0, max(misses_of(latency, targets)))) if served else 1.0


def meets(latency: Latency, targets: Targets) -> bool:
    """Whether the latencies of a run hold both targets and the engine kept up."""
    return miss(latency, targets) <= 0.0


def missed_target(latency: Latency, targets: Targets) -> str:
    """Return what stops a replica at a rate that doesn't hold: the target missed by most, with the resource behind it."""
    if targets.offline:
        return latency.binds
    ttft, tpot = misses_of(latency, targets)
    if max(ttft, tpot) <= 0.0:
        return f"throughput ({latency.binds})"
    return f"{'TTFT' if ttft >= tpot else 'TPOT'} target ({latency.binds})"
