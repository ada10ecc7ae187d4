"""Little's law in simulated runs: how many are in flight over time, how they scatter, and what longer outputs do."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import poisson

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.littles_law import InFlight, Stream, in_flight
from planner.analysis.served import stretched
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.queueing import ReplicaLimits, Traffic, arrival_cv2_of, mean_field
from planner.simulator import WARM_UP_SHARE, Estimate, SimulationResult, over_replications, simulate
from planner.units import GB, MB, percentage
from planner.workloads import Requests
from planner.workloads.laws import MAX_TOKENS

Floats = npt.NDArray[np.float64]
_MOST_OUTPUT_TOKENS, _FEWEST_REQUESTS = 2e7, 100
_MOST = 0.99
_MOST_OUTPUT = 8.0
_LONGEST = 2.0**20
_CLOSE = 1.001
_MEAN_FIELD_ROWS = 4000
_SAMPLED = 10_000
_TWO_DECIMALS_BELOW = 100.0
_SMALLEST_SHARE = 0.001


def longest_means(case: Case, count: int = _SAMPLED) -> tuple[float, float]:
    """Return the largest mean prompt and output at which the longest of so many requests stays within MAX_TOKENS [token]."""
    drawn = case.requests(count)
    sides = (drawn.prompt_tokens, case.lengths.prompt_mean_tokens), (drawn.output_tokens, case.lengths.output_mean_tokens)
    prompt, output = (MAX_TOKENS * float(mean) / float(tokens.max()) for tokens, mean in sides)
    return prompt, output


def stream_requests(case: Case, stream: Stream, count: int, seed: int) -> Requests:
    """Return requests of the case's workload at a stream's rate, their lengths stretched to its means.

    Raises InputError where the longest of them would be longer than MAX_TOKENS.
    """
    case = replace(case, seed=seed)
    bounds = zip(("Prompt tokens, mean", "Output tokens, mean"), stream[1:3], longest_means(case, count), strict=True)
    for field, mean, most in bounds:
        if mean > most:
            bound = f"must be at most {most:,.0f}, for the longest request to stay within {MAX_TOKENS:,} tokens"
            raise InputError(field, f"{mean:,.0f}", bound, "Lower it")
    drawn = case.requests(count, stream.rate_rps)
    return stretched(
        drawn, stream.prompt_tokens / case.lengths.prompt_mean_tokens, stream.output_tokens / case.lengths.output_mean_tokens
    )


class Count(NamedTuple):
    """How many requests are in flight over time.

    mean [request]; variance [request²]; most : the number that is not exceeded in 99 % of the time [request]
    """

    mean: float
    variance: float
    most: int


def count_over_time(result: SimulationResult) -> Count:
    """Return the number in the engine over time, from the time when a tenth of the requests have come to the last arrival.

    The run fills the engine before and empties it after, which no steady state does.
    """
    served = np.isfinite(result.finish_s)
    arrival_s, finish_s = np.sort(result.arrival_s[served]), np.sort(result.finish_s[served])
    if len(arrival_s) < 2:
        return Count(float(len(arrival_s)), 0.0, len(arrival_s))
    first_s, last_s = float(arrival_s[int(WARM_UP_SHARE * len(arrival_s))]), float(arrival_s[-1])
    inside = np.concatenate([arrival_s, finish_s])
    times_s = np.concatenate([[first_s], np.sort(inside[(inside > first_s) & (inside < last_s)])])
    lasts_s = np.diff(times_s, append=last_s)
    numbers = np.searchsorted(arrival_s, times_s, side="right") - np.searchsorted(finish_s, times_s, side="right")
    share = np.bincount(numbers, weights=lasts_s) / (last_s - first_s)
    levels = np.arange(len(share))
    mean = float(share @ levels)
    return Count(mean, float(share @ (levels - mean) ** 2), int(np.searchsorted(np.cumsum(share), _MOST)))


@dataclass(frozen=True, slots=True)
class FlightRun:
    """One simulated run of a stream.

    in_flight : mean requests in the engine over the whole run [request]; duration_s : mean time of one in the engine [s]
    rate_rps : of the requests served, over the whole run [request/s]; count : their number over time, without both ends
    kv_share : of the KV cache in use, mean over the run [1]; peak_running : most sequences at once [seq]
    rejected : requests that the engine could never serve
    stable : the queue did not grow
    """

    in_flight: float
    duration_s: float
    rate_rps: float
    count: Count
    kv_share: float
    peak_running: int
    preemptions: int
    rejected: int
    stable: bool

    @property
    def law(self) -> float:
        """Rate × duration, which Little's law says is the number in flight [request]."""
        return self.rate_rps * self.duration_s


def flight_run(case: Case, requests: Requests) -> FlightRun:
    """Return how many requests are in flight when the case's engine serves these."""
    result = simulate(requests, case.limits._replace(max_model_len=None), case.coefficients)
    served = np.isfinite(result.finish_s)
    none = not bool(served.any())
    return FlightRun(
        in_flight=result.averages.running + result.averages.waiting,
        duration_s=0.0 if none else float((result.finish_s - result.arrival_s)[served].mean()),
        rate_rps=0.0 if none else float(served.sum()) / result.totals.makespan_s,
        count=count_over_time(result),
        kv_share=result.averages.kv_share,
        peak_running=result.averages.peak_running,
        preemptions=result.totals.preemptions,
        rejected=int(result.rejected.sum()),
        stable=result.verdict != "overloaded",
    )


@dataclass(frozen=True, slots=True)
class SimulatedFlight:
    """A stream over independent runs, and with other outputs.

    in_flight, duration_s : over the runs, with their interval; law_gap : largest gap between both sides of the law [1]
    most : in flight at most in 99 % of the time, mean over the runs [request]
    dispersion : variance over mean of the number in flight [1]; 1 for independent stays
    kv_bytes : keys and values held on one GPU, mean over the runs [B]
    by_output : mean output [token] and run, the stream's own among them
    """

    runs: tuple[FlightRun, ...]
    in_flight: Estimate
    duration_s: Estimate
    law_gap: float
    most: float
    dispersion: float
    kv_bytes: float
    by_output: tuple[tuple[float, FlightRun], ...]

    @property
    def stable(self) -> bool:
        """Whether the queue grew in none of the runs."""
        return all(run.stable for run in self.runs)


def affordable_requests(count: int, output_tokens: float) -> int:
    """Return how many of the requests a run serves: fewer where outputs are so long that they would take minutes, never under 100.

    >>> affordable_requests(10_000, 211.0), affordable_requests(10_000, 20_000.0), affordable_requests(10_000, 1e6)
    (10000, 1000, 100)
    """
    return max(min(count, int(_MOST_OUTPUT_TOKENS / output_tokens)), min(count, _FEWEST_REQUESTS))


def simulated_flight(case: Case, stream: Stream, count: int, runs: int, factors: Sequence[float]) -> SimulatedFlight:
    """Return what the case's engine makes of a stream.

    count : requests of each run; runs : independent ones; factors : on the mean output, one run each [1]
    """
    outputs = [factor * stream.output_tokens for factor in factors]
    wanted = [(stream, case.seed + index) for index in range(runs)]
    wanted += [(stream._replace(output_tokens=output), case.seed) for output in outputs]
    found = in_parallel(lambda one: flight_run(case, stream_requests(case, one[0], count, one[1])), wanted)
    own = tuple(found[:runs])
    each = case.kv_bytes_per_token_at(stream.running_context_tokens)
    others = [(stream.output_tokens, own[0]), *zip(outputs, found[runs:], strict=True)]
    return SimulatedFlight(
        runs=own,
        in_flight=over_replications([run.in_flight for run in own]),
        duration_s=over_replications([run.duration_s for run in own]),
        law_gap=max(abs(run.law - run.in_flight) / max(run.in_flight, 1e-12) for run in own),
        most=float(np.mean([run.count.most for run in own])),
        dispersion=float(np.mean([run.count.variance / max(run.count.mean, 1e-12) for run in own])),
        kv_bytes=float(np.mean([run.kv_share for run in own])) * case.kv_tokens * each,
        by_output=tuple(sorted(others, key=lambda pair: pair[0])),
    )


def most_in_flight(mean: float) -> int:
    """Return the number in flight that 99 % of the time stays at or below, if stays don't depend on each other [request].

    Arrivals without memory that stay independently are Poisson in number, whatever the stays' law (M/G/∞).

    >>> most_in_flight(12.49)
    21
    """
    return int(poisson.ppf(_MOST, mean))


def with_prefills(case: Case, stream: Stream) -> float | None:
    """Return how many are in flight when each prompt's prefill also slows the others [request]; None without a steady state.

    The mean-field model of planner.queueing, on a sample of the workload's own lengths.
    """
    requests = stream_requests(case, stream, _MEAN_FIELD_ROWS, case.seed)
    arrival_cv2 = arrival_cv2_of(case.workload.arrivals, np.random.default_rng([case.seed, 8]))
    limits = ReplicaLimits(
        max_num_seqs=case.limits.max_num_seqs,
        max_num_batched_tokens=case.limits.max_num_batched_tokens,
        kv_tokens=float(case.kv_tokens),
        block_size=case.limits.block_size,
        async_scheduling=case.limits.async_scheduling,
    )
    found = mean_field(stream.rate_rps, Traffic.from_requests(requests, arrival_cv2), limits, case.coefficients)
    return found.running + found.waiting if found.stable and found.waiting is not None else None


class OutputPoint(NamedTuple):
    """The fixed point at one mean output [token]; in_flight : None where there is none [request]."""

    output_tokens: float
    in_flight: float | None
    held: float


@dataclass(frozen=True, slots=True)
class LongerOutputs:
    """What the length of outputs does to the number in flight.

    points : by rising output; held : sequences of that length that the KV cache holds [seq]
    growth : in flight at twice the output over now [1]; above 2, as each request also slows the others; None without a steady state
    ends_tokens : mean output beyond which no steady state exists [token]; None where none is found up to 2²⁰
    holds_tokens : mean output up to which the KV cache holds a steady state [token]; None where not even one token's
    """

    points: tuple[OutputPoint, ...]
    growth: float | None
    ends_tokens: float | None
    holds_tokens: float | None


def longer_outputs(case: Case, stream: Stream, found: InFlight, points: int = 48) -> LongerOutputs:
    """Return the fixed point by mean output, from a quarter of the stream's to where it ends, eight times at most."""

    def settles(output_tokens: float) -> bool:
        return _at_output(case, stream, output_tokens).exists

    def holds(output_tokens: float) -> bool:
        number = _at_output(case, stream, output_tokens).in_flight
        return number is not None and number <= _held(case, stream, output_tokens)

    doubled = _at_output(case, stream, 2.0 * stream.output_tokens).in_flight
    growth = doubled / found.in_flight if doubled and found.in_flight else None
    ends = _longest(settles)
    first = max(stream.output_tokens / 4.0, 1.0)
    last = min(stream.output_tokens * _MOST_OUTPUT, ends or 0.0)
    outputs = np.geomspace(first, last, points) if last > first else ()
    curve = tuple(
        OutputPoint(float(output), _at_output(case, stream, float(output)).in_flight, _held(case, stream, float(output)))
        for output in outputs
    )
    return LongerOutputs(curve, growth, None if ends is not None and ends >= _LONGEST else ends, _longest(holds))


def _longest(holds: Callable[[float], bool]) -> float | None:
    """Return the longest mean output at which something holds, by bisection to 0.1 % [token]; None where one token is too many."""
    low, high = 1.0, 2.0
    if not holds(low):
        return None
    while holds(high):
        if high >= _LONGEST:
            return high
        low, high = high, 2.0 * high
    while high > low * _CLOSE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def flight_of(case: Case, stream: Stream) -> InFlight:
    """Return the fixed point of a stream on the case's engine and within its KV cache."""
    each = case.kv_bytes_per_token_at(stream.running_context_tokens)
    return in_flight(stream, each, case.coefficients, case.kv_tokens * each)


def _at_output(case: Case, stream: Stream, output_tokens: float) -> InFlight:
    return flight_of(case, stream._replace(output_tokens=output_tokens))


def _held(case: Case, stream: Stream, output_tokens: float) -> float:
    return case.kv_tokens / stream._replace(output_tokens=output_tokens).running_context_tokens


def flight_explanation(case: Case, found: InFlight, longer: LongerOutputs, run: SimulatedFlight | None = None) -> Explanation:
    """Return the fixed point in words, with what the engine's limits make of it; run : simulated, where it is there."""
    number, share = found.in_flight, found.kv_share
    if number is None or share is None or found.kv_bytes is None:
        return found.explanation
    limit = case.limits.max_num_seqs
    if run is not None and run.stable:
        return Explanation(_simulated_answer(case, found, run), found.explanation.formula, _room(number, limit, run))
    if run is not None and found.duration_s is not None:
        rate_rps = number / found.duration_s
        answer = (
            f"The queue grows without end: this replica doesn't serve {rate_rps:.4g} requests a second. If prefills "
            f"slowed no one else, {_requests(number)} would be in flight."
        )
        return Explanation(answer, found.explanation.formula, _room(number, limit, run))
    if number > limit:
        tail = f"; max_num_seqs lets {limit} of them run, the rest wait"
    elif share > 1.0:
        tail = "; the cache doesn't hold them, so that requests wait or are preempted"
    elif longer.growth is None:
        tail = "; with twice the output there would be no steady state"
    else:
        tail = f"; twice the output would make them {longer.growth:.2g} times as many"
    return Explanation(
        f"{_requests(number)} requests are in flight and hold {_bytes(found.kv_bytes)} of keys and values, "
        f"{_share(share)} of the cache{tail}.",
        found.explanation.formula,
        _room(number, limit, run),
    )


def _simulated_answer(case: Case, found: InFlight, run: SimulatedFlight) -> str:
    """Return what simulation says, with the fixed point beside it, whose prefills slow no one."""
    number = run.in_flight.value
    share = _share(float(np.mean([each.kv_share for each in run.runs])))
    by_formula = f"{_requests(found.in_flight or 0.0)} and {_bytes(found.kv_bytes or 0.0)} if prefills slowed no one"
    growth = _simulated_growth(run)
    if number > case.limits.max_num_seqs:
        tail = f"max_num_seqs lets {case.limits.max_num_seqs} of them run, the rest wait"
    elif growth is None:
        tail = "with twice the output the queue would grow without end"
    else:
        tail = f"twice the output would make them {growth:.2g} times as many"
    held = f"{_requests(number)} requests are in flight and hold {_bytes(run.kv_bytes)} of keys and values"
    return f"{held}, {share} of the cache ({by_formula}); {tail}."


def _requests(number: float) -> str:
    """Return a number in flight.

    >>> _requests(0.00081), _requests(12.486), _requests(1234.5)
    ('0.00081', '12.49', '1,234')
    """
    if number < 1.0:
        return f"{number:.3g}"
    return f"{number:.2f}" if number < _TWO_DECIMALS_BELOW else f"{number:,.0f}"


def _bytes(count: float) -> str:
    """Return the size of keys and values.

    >>> _bytes(1.023e9), _bytes(97_700.0)
    ('1.02 GB', '0.0977 MB')
    """
    return f"{count / GB:.3g} GB" if count >= 0.01 * GB else f"{count / MB:.3g} MB"


def _share(of_cache: float) -> str:
    r"""Return what part of the cache is held.

    >>> _share(0.0224), _share(1e-6)
    ('2.2\xa0%', 'under 0.1\xa0%')
    """
    return percentage(of_cache, 1) if of_cache >= _SMALLEST_SHARE else f"under {percentage(_SMALLEST_SHARE, 1)}"


def _simulated_growth(run: SimulatedFlight) -> float | None:
    """Return how many times as many are in flight at twice the output [1]; None where the queue then grows."""
    own, own_run = next((output, each) for output, each in run.by_output if each is run.runs[0])
    twice = next((each for output, each in run.by_output if math.isclose(output, 2.0 * own)), None)
    return twice.in_flight / own_run.in_flight if twice is not None and twice.stable else None


def _room(number: float, limit: int, run: SimulatedFlight | None) -> str:
    """Return what max_num_seqs has to leave room for."""
    if run is not None and not run.stable:
        return "Lower the rate per replica: in simulation the queue grows. Add replicas, or use a faster GPU."
    most = most_in_flight(number) if run is None else peak_of(run)
    how = "if stays don't depend on each other" if run is None else "in simulation"
    enough = "which is enough" if most <= limit else "which is too few"
    return f"Let max_num_seqs be at least {most}: in 99 % of the time no more are in flight, {how}. Yours is {limit:,}, {enough}."


def peak_of(run: SimulatedFlight) -> int:
    """Return the number that is not exceeded in 99 % of the time, largest over the runs [request]."""
    return max(each.count.most for each in run.runs)
