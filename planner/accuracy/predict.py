"""Predicts what a benchmark would have measured: the row's load, simulated step by step."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.accuracy.closed_loop import ClosedLoopLoad, Policy, serve_closed_loop
from planner.accuracy.lengths import lengths
from planner.accuracy.setting import NotPredictedError, Setting
from planner.calibration.measurements import Measurement
from planner.errors import InputError
from planner.simulator import EngineLimits, RequestTable, simulate

Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]

WAVES = 10
_NO_ROOM = "a request does not fit in the computed KV cache"
MOST_REQUESTS = 20_000
OPEN_LOOP_REQUESTS = 1000
DRAWN_REQUESTS = 4000
MOST_DRAWS = 8
OFFLINE_WAVES = 4


class Figures(NamedTuple):
    """What a run shows; each at its mean, median, 90th and 99th percentile.

    TTFT and E2E are NaN where the engine doesn't keep up and the length of the run isn't stated: they grow as long as it lasts.
    """

    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p50_s: float
    tpot_p90_s: float
    tpot_p99_s: float
    e2e_mean_s: float
    output_tokens_per_s: float
    requests_per_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Requests for one replica; in_flight is None in an open loop."""

    requests: RequestTable
    in_flight: int | None


class Times(NamedTuple):
    """When each request was sent, had its first and its last token [s], and its output [token]."""

    sent_s: Floats
    first_token_s: Floats
    finish_s: Floats
    output_tokens: Tokens


def predict(setting: Setting) -> Figures:
    """Return what the benchmark of a row would show.

    An open loop is drawn several times and its figures are averaged, since a short run near saturation depends on how its arrivals
    happen to bunch. Offline runs that are known to last are simulated again with as many requests as fill that time.

    Raises NotPredictedError where the engine can't take the load.
    """
    measured = setting.measured
    if measured.scenario == "closed-loop":
        load = load_of(setting)
        return _closed_loop(setting, load, limits_of(setting, load))
    count = _counts(setting)[0]
    first = _simulated(setting, load_of(setting))
    if measured.scenario == "open-loop":
        draws = min(max(-(-DRAWN_REQUESTS // count), 1), MOST_DRAWS)
        return _averaged(setting, [first, *(_simulated(setting, load_of(setting, draw)) for draw in range(1, draws))])
    longer = _lasting(setting, first.figures)
    return first.figures if longer <= count else _simulated(setting, load_of(setting, count=longer)).figures


def predict_recorded(setting: Setting, requests: RequestTable) -> Figures:
    """Return what a run with recorded arrivals and lengths would show; raises NotPredictedError as `predict` does."""
    return _simulated(setting, Load(requests, None)).figures


class _Run(NamedTuple):
    figures: Figures
    overloaded: bool


def _simulated(setting: Setting, load: Load) -> _Run:
    run = simulate(load.requests, limits_of(setting, load), setting.coefficients)
    if not run.finished or bool(run.rejected.any()):
        raise NotPredictedError(_NO_ROOM)
    times = Times(run.arrival_s, run.first_token_s, run.finish_s, run.output_tokens)
    return _Run(_figures(setting, times, setting.record.host.request_s.value), run.verdict == "overloaded")


def _averaged(setting: Setting, runs: Sequence[_Run]) -> Figures:
    figures = Figures(*np.mean([run.figures for run in runs], axis=0).tolist())
    if setting.requests is not None or 2 * sum(run.overloaded for run in runs) < len(runs):
        return figures
    endless = (name for name in Figures._fields if name.startswith(("ttft", "e2e")))
    return figures._replace(**dict.fromkeys(endless, math.nan))


def _lasting(setting: Setting, figures: Figures) -> int:
    """Return the requests of one replica that fill the least time of an offline run [request]; 0 where none is known."""
    if setting.measured.scenario != "offline" or setting.requests is not None or setting.sending_s is None:
        return 0
    return min(int(setting.sending_s * figures.requests_per_s / setting.replicas), MOST_REQUESTS)


def _closed_loop(setting: Setting, load: Load, limits: EngineLimits) -> Figures:
    requests = load.requests
    delay_s = setting.record.host.request_s.value * rng_of(setting.measured).uniform(0.0, 2.0, len(requests))
    closed = ClosedLoopLoad(requests.prompt_tokens, requests.output_tokens, delay_s, load.in_flight or 1)
    try:
        run = serve_closed_loop(closed, limits, policy_of(setting), setting.coefficients)
    except InputError as error:
        raise NotPredictedError(_NO_ROOM) from error
    if not run.finished:
        raise NotPredictedError(_NO_ROOM)
    return _figures(setting, Times(run.sent_s, run.first_token_s, run.finish_s, run.output_tokens), 0.0)


def policy_of(setting: Setting) -> Policy:
    """Return how the engine of a row treats waiting prompts."""
    config = setting.deployment.engine
    return Policy(
        mixed=config.mixed_batches,
        reserves_output=config.output_reservation != "none",
        wait_steps=setting.wait_steps,
    )


def load_of(setting: Setting, draw: int = 0, count: int | None = None) -> Load:
    """Return the requests of a row that one replica gets.

    draw : number of the draw; count : requests in place of the row's own number

    Replicas take the arrivals in turn: each n-th of a Poisson stream is one replica's, which is near to what a balancer by
    requests in flight gives.
    """
    measured = setting.measured
    rng = rng_of(measured, draw)
    own, in_flight = _counts(setting)
    count = count or own
    prompt, output = lengths(measured, count, rng)
    arrival = np.zeros(count)
    if measured.scenario == "open-loop":
        rate_rps = (measured.rate_rps or math.nan) / setting.replicas
        turns = float(setting.replicas)
        gaps = np.full(count, 1.0) if measured.evenly_paced else rng.gamma(turns, 1.0 / turns, count)
        arrival = np.cumsum(gaps) / rate_rps
        if measured.arrivals_rescaled:
            arrival *= count / rate_rps / arrival[-1]
    return Load(RequestTable(arrival, prompt, output), in_flight)


def rng_of(measured: Measurement, draw: int = 0) -> np.random.Generator:
    """Return the generator of a row and draw: the same row draws the same load wherever it stands in its table."""
    load = (measured.prompt_tokens, measured.output_tokens, measured.concurrency, measured.rate_rps, draw)
    return np.random.default_rng(zlib.crc32(repr(load).encode()))


def _counts(setting: Setting) -> tuple[int, int | None]:
    measured, replicas = setting.measured, setting.replicas
    given = None if setting.requests is None else max(1, setting.requests // replicas)
    if measured.scenario == "open-loop":
        lasting = int((setting.sending_s or 0.0) * (measured.rate_rps or 0.0) / replicas)
        return min(given or lasting or OPEN_LOOP_REQUESTS, MOST_REQUESTS), None
    if measured.scenario == "offline":
        fits = setting.memory.sequences_that_fit(int(measured.prompt_tokens + measured.output_tokens))
        slots = setting.deployment.engine.max_num_seqs
        running = slots if fits is None else min(slots, max(fits, 1.0))
        return min(given or int(OFFLINE_WAVES * running) + 1, MOST_REQUESTS), None
    in_flight = max(1, (measured.concurrency or 1) // replicas)
    if measured.scenario == "static-batch":
        return in_flight, in_flight
    return max(min(given or WAVES * in_flight, MOST_REQUESTS), in_flight), in_flight


def limits_of(setting: Setting, load: Load) -> EngineLimits:
    """Return the scheduler's limits; in a closed loop no more run at once than are in flight."""
    config, memory = setting.deployment.engine, setting.memory
    longest = int((load.requests.prompt_tokens + load.requests.output_tokens).max())
    seqs = config.max_num_seqs if load.in_flight is None else min(config.max_num_seqs, load.in_flight)
    return EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=max(config.max_num_batched_tokens, seqs),
        block_size=memory.block_size,
        num_blocks=memory.one_group_blocks(longest),
        async_scheduling=config.async_scheduling,
        scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
    )


def _figures(setting: Setting, times: Times, before_s: float) -> Figures:
    ttft_s = times.first_token_s - times.sent_s + before_s
    tpot_s = (times.finish_s - times.first_token_s) / np.maximum(times.output_tokens - 1, 1)
    span_s = float(times.finish_s.max()) + before_s
    return Figures(
        *_spread(ttft_s),
        *_spread(tpot_s),
        e2e_mean_s=float((times.finish_s - times.sent_s).mean()) + before_s,
        output_tokens_per_s=setting.replicas * float(times.output_tokens.sum()) / span_s,
        requests_per_s=setting.replicas * len(times.finish_s) / span_s,
    )


def _spread(values: Floats) -> tuple[float, float, float, float]:
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    return float(values.mean()), float(p50), float(p90), float(p99)
