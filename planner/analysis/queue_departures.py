"""Where an engine departs from a queue of prompts: p99 TTFT by utilisation, with its four departures switched on one at a time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.queue_model import PlannedUtilisation, PrefillService, prefill_service, scale_out
from planner.analysis.served import stretched
from planner.analysis.steps import prefill_s, require_tokens
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.queueing import mg1_wait_s
from planner.simulator import TARGET_PERCENTILE, EngineLimits, SimulationOptions, measured_s, percentile_s, simulate
from planner.units import percentage
from planner.workloads import Arrivals, PoissonArrivals, Requests

Floats = npt.NDArray[np.float64]
Step = Literal["queue", "batched service", "decode interference", "KV admission", "arrivals and caching"]
STEPS: tuple[Step, ...] = ("queue", "batched service", "decode interference", "KV admission", "arrivals and caching")
Tell = Callable[[str, float], None]

_OPTIONS = SimulationOptions(over_time=False)
_GRID = (0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_MOST_UTILISATION = 64.0
_BISECTIONS = 6
_DIGITS = 6
_PLENTY_BLOCKS = 2**24
_INVERSE_POINTS = 300
_LONGEST_PROMPT = 2**20
_SPREAD_SEED = 31
_FLOOR_MOVES = 0.01


@dataclass(frozen=True, slots=True)
class Prompts:
    """Whose prompts the queue serves.

    mean_tokens : mean prompt [token]
    service_cv2 : squared CV of the prefill times [1]; None keeps the workload's own rows, stretched to the mean. 0 makes all
        prompts equal, 1 makes prefill times exponential, anything else lognormal
    """

    mean_tokens: float
    service_cv2: float | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else the full engine meets.

    kv_tokens : tokens that the KV cache holds [token]
    arrivals : law of the arrivals in the last departure; the first three have Poisson arrivals
    cached_share : share of each prompt that the prefix cache holds in the last departure [1]
    """

    kv_tokens: int
    arrivals: Arrivals
    cached_share: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Requests of unit rate and the service that a queue sees in them; Poisson arrivals and those of the last departure [s]."""

    requests: Requests
    other_arrival_s: Floats
    service: PrefillService

    def at(self, rate_rps: float, *, own_arrivals: bool) -> Requests:
        """Return the same requests at a rate [request/s]."""
        times_s = self.other_arrival_s if own_arrivals else self.requests.arrival_s
        return replace(self.requests, arrival_s=times_s / rate_rps)


def stream_of(case: Case, prompts: Prompts, around: Surroundings, count: int) -> Stream:
    """Return so many requests with the service times that the formula is told of."""
    require_tokens("mean_tokens", prompts.mean_tokens)
    if not 0.0 <= around.cached_share < 1.0:
        raise InputError("cached_share", around.cached_share, "must be at least 0 and below 1", "Give a share such as 0.5")
    drawn = case.workload.sample_requests(count, 1.0, case.seed)
    rng = np.random.default_rng([case.seed, _SPREAD_SEED])
    if prompts.service_cv2 is None:
        drawn = stretched(drawn, prompts.mean_tokens / case.lengths.prompt_mean_tokens, 1.0)
        service = prefill_service(drawn.prompt_tokens, case.coefficients)
    else:
        drawn, service = _with_service(case, drawn, prompts.mean_tokens, prompts.service_cv2, rng)
    poisson = np.cumsum(rng.standard_exponential(count))
    other = poisson if isinstance(around.arrivals, PoissonArrivals) else around.arrivals.sample(count, 1.0, rng)
    cached = np.floor(drawn.prompt_tokens * around.cached_share).astype(np.int64)
    requests = replace(
        drawn, arrival_s=poisson, block_hashes=None, cached_prompt_tokens=np.minimum(cached, drawn.prompt_tokens - 1)
    )
    return Stream(requests, other, service)


def _with_service(
    case: Case, drawn: Requests, mean_tokens: float, cv2: float, rng: np.random.Generator
) -> tuple[Requests, PrefillService]:
    """Return the requests with prompts whose prefill times have the mean of one such prompt and a squared CV.

    No prompt takes less than one token does. Where that floor moves the mean by over 1 %, the service is that of the prompts drawn.
    """
    asked = PrefillService(prefill_s(mean_tokens, case.coefficients), cv2)
    prompts = _prompts_taking(_times(asked, len(drawn), rng), case)
    found = prefill_service(prompts, case.coefficients)
    service = asked if abs(found.mean_s - asked.mean_s) <= _FLOOR_MOVES * asked.mean_s else found
    return replace(drawn, prompt_tokens=prompts, cached_prompt_tokens=None), service


def _times(service: PrefillService, count: int, rng: np.random.Generator) -> Floats:
    """Return prefill times with a mean and squared CV, at equal steps of probability in random order [s]."""
    if service.cv2 == 0.0:
        return np.full(count, service.mean_s)
    places = rng.permutation((np.arange(count) + 0.5) / count)
    if service.cv2 == 1.0:
        return np.asarray(-np.log1p(-places) * service.mean_s)
    sigma = math.sqrt(math.log1p(service.cv2))
    return np.asarray(service.mean_s * np.exp(sigma * ndtri(places) - sigma**2 / 2.0))


def _prompts_taking(times_s: Floats, case: Case) -> npt.NDArray[np.int64]:
    """Return the prompts whose prefill takes these times; one token where even that takes longer [token]."""
    tokens = np.geomspace(1.0, _LONGEST_PROMPT, _INVERSE_POINTS)
    taking_s = np.array([prefill_s(float(each), case.coefficients) for each in tokens])
    found = np.interp(times_s, taking_s, tokens)
    return np.asarray(np.maximum(np.rint(found), 1.0).astype(np.int64))


class TailPoint(NamedTuple):
    """p99 TTFT at a utilisation [1], [s]; mean_wait_s : before the first step [s]; keeps_up : the queue doesn't grow.

    Both times are None where the engine took no request.
    """

    utilisation: float
    ttft_p99_s: float | None
    mean_wait_s: float | None
    keeps_up: bool

    def meets(self, ttft_s: float) -> bool:
        """Whether the engine keeps up with p99 TTFT within a target [s]."""
        return self.keeps_up and self.ttft_p99_s is not None and self.ttft_p99_s <= ttft_s


@dataclass(frozen=True, slots=True)
class Departure:
    """The engine with this departure and all before it.

    points : by rising utilisation; planned : largest utilisation that meets the target [1], None where none does
    at_reference_s : p99 TTFT at the reference utilisation [s]; None where the engine doesn't keep up there
    preemptions : of the run at the reference; rejected : requests that the KV cache could never hold
    peak_kv_share : of the KV cache in use at the reference, at most [1]
    """

    step: Step
    points: tuple[TailPoint, ...]
    planned: float | None
    at_reference_s: float | None
    preemptions: int
    rejected: int
    peak_kv_share: float


@dataclass(frozen=True, slots=True)
class Departures:
    """p99 TTFT by utilisation, simulated, with each departure on top of those before.

    target_s : p99 TTFT [s]; reference : the utilisation at which departures are compared [1]
    service : prefill as the queue sees it; prompt_tokens : of the prompts served, mean [token]
    mean_wait_s, formula_wait_s : of the queue at the reference, simulated and by Pollaczek and Khinchine [s]
    """

    target_s: float
    reference: float
    service: PrefillService
    prompt_tokens: float
    departures: tuple[Departure, ...]
    mean_wait_s: float | None
    formula_wait_s: float | None

    @property
    def whole(self) -> Departure:
        """The engine with all departures."""
        return self.departures[-1]

    def rate_rps(self, utilisation: float) -> float:
        """Return the requests a second at a utilisation [request/s]."""
        return utilisation / self.service.mean_s

    @property
    def planned_prompt_tokens_per_s(self) -> float | None:
        """Prompt tokens a second at the utilisation to plan for [token/s]; None where no load meets the target."""
        planned = self.whole.planned
        return None if planned is None else self.rate_rps(planned) * self.prompt_tokens


def departures(
    case: Case, stream: Stream, around: Surroundings, reference: float, tell: Tell = lambda _text, _share: None
) -> Departures:
    """Return the simulated tails; reference : utilisation above 0 at which departures are compared [1]; tell : gets progress.

    A departure that changes nothing here isn't simulated again: a KV cache with room for all that ran in one without bounds, and
    Poisson arrivals without a prefix cache.
    """
    if case.ttft_p99_s is None:
        raise InputError("ttft_p99_s", None, "is required", "Give a target for p99 TTFT")
    if not 0.0 < reference < _MOST_UTILISATION:
        raise InputError(
            "reference", reference, f"must be above 0 and below {_MOST_UTILISATION:g}", "Give a utilisation such as 0.6"
        )
    reference = round(reference, _DIGITS)
    done: list[str] = []

    def note(step: Step) -> None:
        done.append(step)
        tell(f"Simulated {', '.join(done)}", len(done) / len(STEPS))

    def one(step: Step, before: _Runs | None = None) -> tuple[Departure, _Runs]:
        found = _departure(_Asked(case, stream, around, reference), step, before)
        note(step)
        return found

    def engine() -> list[Departure]:
        decode, endless = one("decode interference")
        blocks = limits_at(case, stream, around, "KV admission").num_blocks
        longest = -(-int(stream.requests.prompt_tokens.max()) // case.limits.block_size)
        roomy = {at: run for at, run in endless.items() if run.used.peak_blocks + longest <= blocks}
        admission, _ = one("KV admission", {at: run.within(blocks) for at, run in roomy.items()})
        if around.cached_share == 0.0 and isinstance(around.arrivals, PoissonArrivals):
            note("arrivals and caching")
            return [decode, admission, replace(admission, step="arrivals and caching")]
        return [decode, admission, one("arrivals and caching")[0]]

    def prompts() -> list[Departure]:
        return [one("queue")[0], one("batched service")[0]]

    tell("Serving the prompts one at a time", 0.0)
    found = tuple(each for part in in_parallel(lambda work: work(), (prompts, engine)) for each in part)
    queue = next(point for point in found[0].points if point.utilisation == reference)
    rate_rps = reference / stream.service.mean_s
    wait_s = mg1_wait_s(rate_rps, stream.service.mean_s, stream.service.cv2)
    prompt_tokens = float(stream.requests.prompt_tokens.mean())
    return Departures(case.ttft_p99_s, reference, stream.service, prompt_tokens, found, queue.mean_wait_s, wait_s)


def limits_at(case: Case, stream: Stream, around: Surroundings, step: Step) -> EngineLimits:
    """Return the engine's settings with a departure and those before it."""
    longest = int(stream.requests.prompt_tokens.max())
    if step == "queue":
        return EngineLimits(1, longest + 1, case.limits.block_size, _PLENTY_BLOCKS, async_scheduling=False)
    limits = case.limits._replace(max_model_len=None, enable_prefix_caching=False)
    if step in ("batched service", "decode interference"):
        return limits._replace(num_blocks=_PLENTY_BLOCKS)
    limits = limits._replace(num_blocks=max(1, around.kv_tokens // limits.block_size))
    return limits._replace(enable_prefix_caching=step == "arrivals and caching" and around.cached_share > 0.0)


class _Asked(NamedTuple):
    case: Case
    stream: Stream
    around: Surroundings
    reference: float


class _Used(NamedTuple):
    """What a run took: preemptions and rejected requests; peak_blocks : KV blocks at most [block], and their share of all [1]."""

    preemptions: int
    rejected: int
    peak_blocks: int
    peak_kv_share: float


class _Run(NamedTuple):
    point: TailPoint
    used: _Used

    def within(self, blocks: int) -> "_Run":
        """Return the same run in a cache of so many blocks, which must hold it."""
        return self._replace(used=self.used._replace(peak_kv_share=self.used.peak_blocks / blocks))


_Runs = dict[float, _Run]


def _departure(asked: _Asked, step: Step, known: _Runs | None) -> tuple[Departure, _Runs]:
    """Return one departure and its runs by utilisation; known : runs that need no simulation."""
    case, stream, around, reference = asked
    limits = limits_at(case, stream, around, step)
    target_s = float(case.ttft_p99_s or 0.0)
    runs: _Runs = {}

    def at(utilisation: float) -> TailPoint:
        utilisation = round(utilisation, _DIGITS)
        if utilisation not in runs:
            found = (known or {}).get(utilisation)
            runs[utilisation] = found or _run(case, _served(stream, step, utilisation), limits, utilisation)
        return runs[utilisation].point

    for utilisation in _GRID:
        if not at(utilisation).keeps_up:
            break
    planned = _largest(lambda utilisation: at(utilisation).meets(target_s))
    last, used = at(reference), runs[reference].used
    departure = Departure(
        step,
        tuple(runs[utilisation].point for utilisation in sorted(runs)),
        planned,
        last.ttft_p99_s if last.keeps_up else None,
        used.preemptions,
        used.rejected,
        used.peak_kv_share,
    )
    return departure, runs


def _served(stream: Stream, step: Step, utilisation: float) -> Requests:
    """Return the requests at a utilisation; the queue and batched service have no decode: one output token each."""
    requests = stream.at(utilisation / stream.service.mean_s, own_arrivals=step == "arrivals and caching")
    if step in ("queue", "batched service"):
        return replace(requests, output_tokens=np.ones(len(requests), np.int64))
    return requests


def _run(case: Case, requests: Requests, limits: EngineLimits, utilisation: float) -> _Run:
    result = simulate(requests, limits, case.coefficients, _OPTIONS)
    ttft_s, wait_s = measured_s(result, "ttft"), measured_s(result, "queue")
    share = result.averages.peak_kv_share
    used = _Used(result.totals.preemptions, int(result.rejected.sum()), round(share * limits.num_blocks), share)
    if len(ttft_s) == 0:
        return _Run(TailPoint(utilisation, None, None, keeps_up=False), used)
    tail_s = percentile_s(ttft_s, TARGET_PERCENTILE) + case.request_s
    keeps_up = result.verdict != "overloaded" and result.finished
    return _Run(TailPoint(utilisation, tail_s, float(wait_s.mean()), keeps_up), used)


def _largest(meets: Callable[[float], bool]) -> float | None:
    """Return the largest utilisation that meets the target, to 1.5 % of the bracket; None when a twentieth already misses it."""
    low, high = 0.05, 0.4
    if not meets(low):
        return None
    while meets(high):
        if high >= _MOST_UTILISATION:
            return high
        low, high = high, high * 2.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def same_tail(one: Departure, other: Departure, tolerance: float = 0.03) -> bool:
    """Whether two departures have the same p99 TTFT wherever both were simulated; tolerance : relative [1]."""
    by_utilisation = {point.utilisation: point for point in one.points}
    pairs = [(by_utilisation[point.utilisation], point) for point in other.points if point.utilisation in by_utilisation]
    return all(a.keeps_up == b.keeps_up and _alike(a, b, tolerance) for a, b in pairs)


def _alike(a: TailPoint, b: TailPoint, tolerance: float) -> bool:
    if not a.keeps_up or a.ttft_p99_s is None or b.ttft_p99_s is None:
        return True
    return abs(a.ttft_p99_s - b.ttft_p99_s) <= tolerance * a.ttft_p99_s


def shown_points(points: Sequence[TailPoint], most_s: float) -> list[tuple[float, float]]:
    """Return utilisation and p99 TTFT where the engine keeps up and the tail is at most `most_s` [s]."""
    kept = [(point.utilisation, point.ttft_p99_s) for point in points if point.keeps_up]
    return [(utilisation, tail_s) for utilisation, tail_s in kept if tail_s is not None and tail_s <= most_s]


def planned_explanation(found: Departures, formula: PlannedUtilisation) -> Explanation:
    """Return the utilisation to plan for, in words; formula : what the queue alone says."""
    planned, target = found.whole.planned, f"{found.target_s:g} s"
    if planned is None:
        alone = "none does by" if formula.general is None else f"up to {percentage(formula.general, 1)} utilisation would by"
        answer = f"No load meets p99 TTFT of {target} on this engine; {alone} the queue's formula, M/G/1."
        return Explanation(answer, formula.explanation.formula, scale_out(None))
    alone = "that no load does" if formula.general is None else f"{percentage(formula.general, 1)}"
    rate_rps = found.rate_rps(planned)
    return Explanation(
        f"Plan for {percentage(planned, 1)} utilisation of prefill, {rate_rps:.3g} requests a second: there this engine's p99 TTFT "
        f"reaches {target}. The queue's formula, M/G/1, says {alone}.",
        formula.explanation.formula,
        scale_out(planned),
    )
