"""Prefill under load: how long steps vary, how long a prompt waits, and how prefill echoes in the decode that follows it.

Two views of the same queue, and the slower one holds. In the gated view a step takes all prompts that arrived during the step
before it: right while prompts fit the token budget. In the chunked view prompts are served first come, first served, at the rate of
full steps: right when the budget cuts them, and it is M/G/1.
"""

from dataclasses import dataclass

import numpy as np

from planner.queueing.arrival_counts import none_within, others_within
from planner.queueing.occupancy import Occupancy
from planner.queueing.step_grid import StepGrid, mean_steps
from planner.queueing.traffic import Floats

_BELOW_ONE = 0.999
_LEAST = 1e-30
_ROUNDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class PrefillWork:
    """Time that prompts add to steps, whatever the rate; arrays over the grid, or over the grid and the prompt bins.

    own_s : a prompt's own prefill steps when it shares them with decode alone [s]; own_mean_s : its mean [s]
    stall_s : how much a prompt lengthens steps that carry prefill anyway [s]
    work_s, work_s2, work_s3 : raw moments of that; chunk_s2, chunk_s3 : the same summed chunk by chunk [s], [s²], [s³]
    lone : how much less a prompt adds to a step without other prefill, where weights hide some of it, mean and mean square [1]
    ceiling_s, ceiling_ratio_s : full steps as time sees them, and the ratio of their third to second moment [s]
    chunk_work_s : time of one more prompt token when every step is full [s/token]
    """

    own_s: Floats
    own_mean_s: Floats
    stall_s: Floats
    work_s: Floats
    work_s2: Floats
    work_s3: Floats
    chunk_s2: Floats
    chunk_s3: Floats
    lone: Floats
    lone_square: Floats
    ceiling_s: Floats
    ceiling_ratio_s: Floats
    chunk_work_s: Floats


def prefill_work(grid: StepGrid) -> PrefillWork:
    """Return the work of prompts at each grid point."""
    prompts, work, pair_s, token_s = grid.traffic.prompts, grid.traffic.work, grid.pair_s, grid.token_s
    column, decode = token_s[:, None], grid.decode[:, None]
    last_s = np.where(grid.rest > 0.0, grid.step_s(decode, np.maximum(grid.rest, 1.0), 0.0, 1.0), 0.0)
    full_s = np.asarray(grid.step_s(grid.decode, grid.left, 0.0, 1.0))[:, None]
    own_s = grid.full_chunks * full_s + last_s + pair_s * prompts.pairs
    stall_s = column * prompts.tokens + pair_s * prompts.pairs
    chunks = grid.full_chunks + (grid.rest > 0.0)
    alone_s = np.maximum(own_s - chunks * grid.base_s[:, None], 0.0)
    chunk_s2, chunk_s3 = _chunk_moments(grid)
    ceiling_s, ceiling_ratio_s = _ceiling(grid)
    pairs_per_token = work.r / work.q
    full_base_s = np.maximum(grid.full_s - grid.left * (token_s + pair_s * pairs_per_token), 0.0)
    return PrefillWork(
        own_s=own_s,
        own_mean_s=prompts.mean_of(own_s),
        stall_s=stall_s,
        work_s=work.first(token_s, pair_s),
        work_s2=work.second(token_s, pair_s),
        work_s3=work.third(token_s, pair_s),
        chunk_s2=chunk_s2,
        chunk_s3=chunk_s3,
        lone=np.minimum(prompts.mean_of(alone_s) / prompts.mean_of(stall_s), 1.0),
        lone_square=np.minimum(prompts.mean_of(alone_s**2) / prompts.mean_of(stall_s**2), 1.0),
        ceiling_s=ceiling_s,
        ceiling_ratio_s=ceiling_ratio_s,
        chunk_work_s=token_s + full_base_s / grid.left,
    )


def _chunk_moments(grid: StepGrid) -> tuple[Floats, Floats]:
    """Return the sums over a prompt's chunks of the square and the cube of what each adds to its step [s²], [s³].

    Chunk j of C tokens on p cached ones adds A + u·(j + 1/2) with A = (token + pair·p)·C and u = pair·C².
    """
    prompts, pair_s = grid.traffic.prompts, grid.pair_s
    past = np.maximum(prompts.pairs / prompts.tokens - prompts.tokens / 2.0, 0.0)
    size, n = grid.left[:, None], grid.full_chunks
    a = (grid.token_s[:, None] + pair_s * past) * size
    u = pair_s * size**2
    first, second, third = n**2 / 2.0, n**3 / 3.0, n**4 / 4.0
    rest = grid.rest * (grid.token_s[:, None] + pair_s * (past + n * size + grid.rest / 2.0))
    squares = n * a**2 + 2.0 * a * u * first + u**2 * second + rest**2
    cubes = n * a**3 + 3.0 * a**2 * u * first + 3.0 * a * u**2 * second + u**3 * third + rest**3
    return prompts.mean_of(squares), prompts.mean_of(cubes)


def _ceiling(grid: StepGrid) -> tuple[Floats, Floats]:
    """Return how long full steps are as time sees them, and the ratio of their third to second moment [s]."""
    prompts, work = grid.traffic.prompts, grid.traffic.work
    past = np.maximum(prompts.pairs / prompts.tokens - prompts.tokens / 2.0, 0.0)
    square = prompts.mean_of((past + prompts.tokens) ** 3 - past**3) / (3.0 * work.q)
    spread = (grid.pair_s * grid.left) ** 2 * np.maximum(square - (work.r / work.q) ** 2, 0.0)
    seen_s = (grid.full_s**2 + spread) / grid.full_s
    cubed = grid.full_s**3 + 3.0 * grid.full_s * spread
    return seen_s, cubed / (seen_s * grid.full_s)


@dataclass(frozen=True, slots=True, eq=False)
class StepSpread:
    """How steps vary at a rate, by grid point.

    mean_s, variance_s2 : of a step [s], [s²]
    seen_s, seen_s2 : first and second moment of the step that an arrival falls into [s], [s²]
    others : other requests that arrive in that step [request]; clustered : variance ÷ mean of arrivals in a step [1]
    prefill_share : share of time that prefill adds [1]; full_share : the same when every prompt adds its full work [1]
    """

    mean_s: Floats
    variance_s2: Floats
    seen_s: Floats
    seen_s2: Floats
    others: Floats
    clustered: Floats
    prefill_share: Floats
    full_share: Floats


def step_spread(grid: StepGrid, work: PrefillWork, rate_rps: float, mean_s: Floats) -> StepSpread:
    """Return the spread of steps.

    A step that follows one of length t adds the work of rate·t prompts, so that variance obeys V = λ·T·E[work²] + e²·V with e the
    share of prefill (and the third cumulant likewise with e³). A step also lies between the plain and the full one, so that V is at
    most (T - plain)·(full - T); near that bound the two are joined as 1/sqrt(1/V² + 1/bound²), an order that
    agrees with simulation to 10 %.
    """
    cv2 = grid.traffic.arrival_cv2
    share = np.clip(1.0 - grid.base_s / mean_s, 0.0, _BELOW_ONE)
    ceiling_s = np.maximum(work.ceiling_s, mean_s * (1.0 + 1e-4))
    bound = np.maximum((mean_s - grid.base_s) * (ceiling_s - mean_s), _LEAST)
    seen_s = mean_s
    clustered = variance = np.zeros_like(mean_s)
    for _ in range(_ROUNDS):
        clustered = 1.0 + others_within(rate_rps * seen_s, cv2) - rate_rps * seen_s
        second = work.chunk_s2 * work.lone_square + (clustered - 1.0) * (work.work_s * work.lone) ** 2
        free = rate_rps * mean_s * np.maximum(second, 0.0) / (1.0 - share**2)
        variance = free / np.sqrt(1.0 + (free / bound) ** 2)
        seen_s = np.minimum((variance + mean_s**2) / mean_s, ceiling_s)
    second = work.work_s2 + (clustered - 1.0) * work.work_s**2
    third = rate_rps * (mean_s * work.chunk_s3 * work.lone_square**1.5 + 3.0 * share * second * work.lone_square * variance)
    raw_third = third / (1.0 - share**3) + 3.0 * mean_s * variance + mean_s**3
    seen_s2 = np.maximum(np.minimum(raw_third / mean_s, seen_s * np.maximum(work.ceiling_ratio_s, mean_s)), seen_s**2)
    return StepSpread(
        mean_s=mean_s,
        variance_s2=variance,
        seen_s=seen_s,
        seen_s2=seen_s2,
        others=others_within(rate_rps * seen_s, cv2),
        clustered=clustered,
        prefill_share=share,
        full_share=np.minimum(rate_rps * work.work_s, _BELOW_ONE),
    )


def peakedness(grid: StepGrid, work: PrefillWork, rate_rps: float, spread: StepSpread) -> Floats:
    """Return how much more the number of decoding sequences varies than with plain Poisson arrivals [1], by grid point.

    A prompt adds one sequence, and by stalling decode for its prefill of S it also keeps n·(1 - exp(-S / decode time)) sequences
    from completing. An arrival thus counts for 1 + ξ, and the noise of arrivals is A = Var ξ + a²·(1 + E ξ)² against 1 for Poisson.
    Of that noise the share E[shorter of two]/E[output] lasts (1/2 for exponential lengths: 1 + (A-1)/2), as in an infinite-server
    queue with general service times (Whitt, 1984, doi:10.1002/j.1538-7305.1984.tb00100.x).
    """
    traffic = grid.traffic
    decode_s = grid.decode_steps * grid.base_s
    present = np.minimum(rate_rps * grid.decode_steps * spread.mean_s, max(float(grid.decode[-1]), 1.0))
    kept = present[:, None] * -np.expm1(-work.stall_s / decode_s[:, None])
    mean, square = traffic.prompts.mean_of(kept), traffic.prompts.mean_of(kept**2)
    noise = square - mean**2 + traffic.arrival_cv2 * (1.0 + mean) ** 2
    # Constant lengths and even arrivals would leave no noise at all; a hundredth keeps the law a law.
    return np.maximum(1.0 + traffic.decode.shorter_of_two * (noise - 1.0), 0.01)


@dataclass(frozen=True, slots=True, eq=False)
class PrefillWait:
    """Time between getting a slot and the first token, without the prompt's own prefill steps, by grid point and in one view.

    mean_s, variance_s2 : of that wait [s], [s²]
    """

    mean_s: Floats
    variance_s2: Floats


def prefill_waits(
    grid: StepGrid, work: PrefillWork, rate_rps: float, spread: StepSpread, occupied: Occupancy
) -> tuple[PrefillWait, PrefillWait]:
    """Return the wait for the running step to end and for prompts that come first or share the step, gated and chunked.

    Gated: half of the step arrived in, plus the others that arrived in it. Chunked: M/G/1's mean wait with Kingman's factor for
    clustered arrivals, plus half a step; its service times are those of full steps, meaned over the occupancy, whose own
    fluctuation lengthens the wait by Var(utilisation)/(1 - utilisation)², the first term of its convexity, at most by 1.
    """
    traffic = grid.traffic
    fraction = spread.full_share
    others_s = spread.others * work.work_s
    alike = rate_rps * spread.seen_s
    count_variance = spread.others + np.maximum(spread.others**2 - alike**2, 0.0) / 2.0
    others_s2 = spread.others * np.maximum(work.work_s2 - work.work_s**2, 0.0) + count_variance * work.work_s**2
    gated = spread.seen_s / 2.0 + others_s
    centre = (0.5 + fraction) * spread.seen_s
    gated_s2 = (1.0 / 3.0 + fraction + fraction**2) * spread.seen_s2 - centre**2 + others_s2
    mean_work_s = np.array([occupied.mean(work.chunk_work_s)])
    first, second, third = (
        float(f(mean_work_s, grid.pair_s)[0]) for f in (traffic.work.first, traffic.work.second, traffic.work.third)
    )
    busy = min(rate_rps * first, 1.0 - 1e-4)
    loads = rate_rps * traffic.work.first(work.chunk_work_s, grid.pair_s)
    convexity = 1.0 + min(occupied.variance(loads) / (1.0 - busy) ** 2, 1.0)
    queue_s = convexity * rate_rps * (second + (traffic.arrival_cv2 - 1.0) * first**2) / (2.0 * (1.0 - busy))
    queue_s = max(queue_s, 0.0)
    queue_s2 = queue_s**2 + rate_rps * third / (3.0 * (1.0 - busy))
    chunked = (1.0 - busy) * grid.base_s / 2.0 + busy * spread.seen_s / 2.0 + queue_s
    chunked_s2 = (1.0 - busy) * grid.base_s**2 / 12.0 + busy * (spread.seen_s2 / 3.0 - spread.seen_s**2 / 4.0) + queue_s2
    lag = 1.0 if grid.limits.async_scheduling else 0.0
    idle = grid.decode == 0.0
    one, other = (
        PrefillWait(
            np.where(idle, others_s, mean_s + lag * spread.mean_s),
            np.maximum(variance_s2 + lag * spread.variance_s2, _LEAST),
        )
        for mean_s, variance_s2 in ((gated, gated_s2), (chunked, chunked_s2))
    )
    return one, other


@dataclass(frozen=True, slots=True, eq=False)
class DecodeEcho:
    """Extra time in a request's decode from the prompts that gathered while it prefilled; by grid point and output bin.

    mean_s, square_s2 : mean and mean square [s], [s²]
    exposed_s : how long prompts gathered, by grid point [s]; none : chance that none did [1]
    """

    mean_s: Floats
    square_s2: Floats
    exposed_s: Floats
    none: Floats


def decode_echo(grid: StepGrid, work: PrefillWork, rate_rps: float, spread: StepSpread) -> DecodeEcho:
    """Return the echo.

    A prompt in one chunk: prompts gather during its own step of length L; the next step is longer by r·(L - T), the next but one by
    r²·(L - T), with r the slope of mean_steps between T and L. Asynchronous scheduling decides a step while the one before it runs,
    so that all this comes every second step.

    A prompt in several chunks: while it waits and prefills, others queue behind it. With the chance e (the share of prefill) and an
    exponential amount of them they fill the first steps of its decode, less what fits beside its last chunk; an output that ends
    before the queue does sees only part of it.
    """
    prompts, steps = grid.traffic.prompts, np.maximum(grid.traffic.decode.outputs.tokens - 1.0, 1.0)
    share, mean_s = spread.prefill_share, spread.mean_s
    cut = grid.full_chunks + (grid.rest > 0.0) > 1.0
    busy = np.minimum(rate_rps * grid.traffic.work.first(work.chunk_work_s, grid.pair_s), 0.95)
    queue_s = rate_rps * grid.traffic.work.second(work.chunk_work_s, grid.pair_s) / (2.0 * (1.0 - busy)) + spread.seen_s / 2.0
    gathered_s = work.own_s + np.where(cut, queue_s[:, None], (spread.others * work.work_s)[:, None])
    exposed_s = prompts.mean_of(gathered_s)
    longer = exposed_s > mean_s * 1.001
    next_s = mean_steps(grid, rate_rps * np.maximum(exposed_s, mean_s))[0]
    slope = np.where(longer, (next_s - mean_s) / np.where(longer, exposed_s - mean_s, 1.0), share)
    slope = np.clip(slope, 0.0, 0.99)
    top_s = steps * (np.maximum(np.maximum(work.ceiling_s, spread.seen_s), mean_s) - mean_s)[:, None]
    total = np.maximum(gathered_s - mean_s[:, None], 0.0) * (slope / (1.0 - slope))[:, None]
    rounds = np.floor(steps / (2.0 if grid.limits.async_scheduling else 1.0))
    one = np.minimum(total[:, :, None] * (1.0 - slope[:, None] ** rounds)[:, None, :], top_s[:, None, :])
    scale = (gathered_s / (1.0 - share)[:, None])[:, :, None]
    beside = np.exp(-np.minimum((grid.full_s - grid.base_s)[:, None] / 2.0 / gathered_s, 50.0))
    chance = (share[:, None] * beside)[:, :, None]
    lasting = np.exp(-top_s[:, None, :] / scale)
    many = chance * scale * (1.0 - lasting)
    many_square = 2.0 * chance * scale**2 * (1.0 - lasting * (1.0 + top_s[:, None, :] / scale))
    weights = prompts.weights[:, None]
    mean = (np.where(cut[:, :, None], many, one) * weights).sum(axis=1)
    square = (np.where(cut[:, :, None], many_square, one**2) * weights).sum(axis=1)
    none = prompts.mean_of(none_within(rate_rps * gathered_s, grid.traffic.arrival_cv2))
    return DecodeEcho(mean, square, exposed_s, none)
