"""Serves the requests of a benchmark's run in the simulator, and takes from it the figures that the tool reports."""

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.accuracy import ClosedLoopLoad, Policy, serve_closed_loop
from planner.calibration.importers import BenchmarkRun
from planner.calibration.records import CalibrationRecord
from planner.deployment import Deployment
from planner.errors import InputError
from planner.memory import MemoryBudget
from planner.simulator import EngineLimits, RequestTable, simulate
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients, scaled
from planner.tuning.results import Metric

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_REQUESTS = 3_000
DRAWN_REQUESTS = 2_000
MOST_DRAWS = 6
_CAP_BINDS = 0.9
_STEADY_WAIT = 1.4


class Statistic(NamedTuple):
    """One figure of a run: of which latency, and which statistic of it; throughput has none."""

    metric: Metric
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What serves the runs: a deployment with its memory, and how many engines of it share the load."""

    deployment: Deployment
    memory: MemoryBudget
    replicas: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class RunLoad:
    """The requests of one draw of a run, as one engine gets them.

    arrival_s : of each in an open loop [s]; in a closed one the clients decide
    clients : requests in flight in a closed loop; None in an open one
    spread : place of each request's delay between 0 and twice the mean, in a closed loop [1]
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    clients: int | None
    spread: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Times:
    """Of each request [s], and its output [token]; span_s : from the first sending to the last token."""

    ttft_s: Floats
    e2e_s: Floats
    output_tokens: Ints
    span_s: float


def in_flight(run: BenchmarkRun) -> int | None:
    """Return the clients of a run that is a closed loop in effect; None for an open one.

    An open loop is closed in effect when the tool's own cap was reached nearly all the time; or when more was offered than served
    and first tokens still came after much the same wait: without a cap on connections that wait grows as long as the run lasts, so
    that its 99th percentile is twice its median.
    """
    if run.arrivals == "closed":
        return run.concurrency
    e2e_s = run.e2e.mean_s
    if run.arrivals == "burst" or e2e_s is None or run.requests_per_s is None:
        return None
    mean = run.requests_per_s * e2e_s
    if run.concurrency is not None and mean >= _CAP_BINDS * run.concurrency:
        return run.concurrency
    steady = run.ttft.p50_s is not None and run.ttft.p99_s is not None and run.ttft.p99_s < _STEADY_WAIT * run.ttft.p50_s
    return max(1, round(mean)) if run.saturated and steady else None


def loads_of(run: BenchmarkRun, replicas: int = 1) -> tuple[RunLoad, ...]:
    """Return the requests of a run: as recorded where it lists them, else several draws of its arrivals at its mean lengths.

    The draws depend on the run alone, so that every record is tried on the same requests.
    """
    exact = run.detail is not None and (run.detail.sent_s is not None or run.arrivals in {"closed", "burst"})
    kept = min(max(1, run.requests // replicas), MOST_REQUESTS)
    still = in_flight(run) is not None or run.arrivals == "burst"
    draws = 1 if exact or still else min(max(-(-DRAWN_REQUESTS // kept), 1), MOST_DRAWS)
    return tuple(_draw(run, kept, replicas, draw) for draw in range(draws))


def _draw(run: BenchmarkRun, count: int, replicas: int, draw: int) -> RunLoad:
    key = (run.label, run.arrivals, run.rate_rps, run.concurrency, run.requests, run.prompt_tokens, run.output_tokens, draw)
    rng = np.random.default_rng(zlib.crc32(repr(key).encode()))
    chosen = slice(0, count * replicas, replicas)
    if run.detail is not None:
        prompt = np.array(run.detail.prompt_tokens[chosen], dtype=np.int64)
        output = np.array(run.detail.output_tokens[chosen], dtype=np.int64)
    else:
        prompt, output = _about(run.prompt_tokens, count, rng), _about(run.output_tokens, count, rng)
    clients = in_flight(run)
    arrival = np.zeros(len(prompt))
    if clients is None and run.arrivals != "burst":
        recorded = None if run.detail is None else run.detail.sent_s
        arrival = np.array(recorded[chosen]) if recorded is not None else _arrivals(run, len(prompt), replicas, rng)
    return RunLoad(
        arrival, prompt, output, None if clients is None else max(1, clients // replicas), rng.uniform(0.0, 2.0, len(prompt))
    )


def _about(mean: float, count: int, rng: np.random.Generator) -> Ints:
    """Return whole lengths with a given mean: the two nearest ones, mixed at random."""
    low = np.floor(mean)
    return np.asarray(np.maximum(low + (rng.uniform(size=count) < mean - low), 1.0), dtype=np.int64)


def _arrivals(run: BenchmarkRun, count: int, replicas: int, rng: np.random.Generator) -> Floats:
    """Return arrivals at the run's rate: even, or gamma gaps stretched so that the last one comes when the rate says.

    The stretching is vLLM's and SGLang's own (vllm 0.33, benchmarks/serve.py).
    """
    rate_rps = (run.rate_rps or np.nan) / replicas
    if run.arrivals == "constant":
        return np.asarray(np.arange(count) / rate_rps, dtype=np.float64)
    shape = run.burstiness or 1.0
    arrival = np.cumsum(rng.gamma(shape, 1.0 / (rate_rps * shape), count))
    return np.asarray(arrival * (count / rate_rps) / arrival[-1], dtype=np.float64)


def predicted(
    loads: tuple[RunLoad, ...], wanted: tuple[Statistic, ...], bench: Bench, record: CalibrationRecord, slower: float = 1.0
) -> Floats:
    """Return what a record predicts for some figures of a run [s] or [token/s], averaged over its draws.

    slower : factor on the time of every step [1], to see how a figure depends on the engine's speed

    Raises InputError when a request is larger than the KV cache.
    """
    coefficients = scaled(coefficients_for(bench.deployment, record), slower)
    before_s = record.host.request_s.value
    served = [_serve(load, bench, coefficients, before_s) for load in loads]
    return np.asarray(np.mean([[_figure(times, item, bench.replicas) for item in wanted] for times in served], axis=0))


def _serve(load: RunLoad, bench: Bench, coefficients: StepCoefficients, before_s: float) -> _Times:
    limits = _limits(load, bench)
    if load.clients is None:
        run = simulate(RequestTable(load.arrival_s, load.prompt_tokens, load.output_tokens), limits, coefficients)
        if not run.finished or bool(run.rejected.any()):
            raise _no_room(limits)
        ttft_s, e2e_s = run.first_token_s - run.arrival_s + before_s, run.finish_s - run.arrival_s + before_s
        return _Times(ttft_s, e2e_s, run.output_tokens, float(run.finish_s.max()) + before_s)
    config = bench.deployment.engine
    policy = Policy(mixed=config.mixed_batches, reserves_output=config.output_reservation != "none")
    closed = ClosedLoopLoad(load.prompt_tokens, load.output_tokens, before_s * load.spread, load.clients)
    loop = serve_closed_loop(closed, limits, policy, coefficients)
    if not loop.finished:
        raise _no_room(limits)
    return _Times(loop.first_token_s - loop.sent_s, loop.finish_s - loop.sent_s, loop.output_tokens, float(loop.finish_s.max()))


def _no_room(limits: EngineLimits) -> InputError:
    remedy = "Give the KV cache size that the engine logged, or check model and GPU"
    return InputError("kv_cache_tokens", limits.num_blocks * limits.block_size, "doesn't hold the benchmark's requests", remedy)


def _limits(load: RunLoad, bench: Bench) -> EngineLimits:
    config = bench.deployment.engine
    seqs = config.max_num_seqs if load.clients is None else min(config.max_num_seqs, load.clients)
    return EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=max(config.max_num_batched_tokens, seqs),
        block_size=bench.memory.block_size,
        num_blocks=bench.memory.one_group_blocks(int((load.prompt_tokens + load.output_tokens).max())),
        async_scheduling=config.async_scheduling,
        scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
    )


def _figure(times: _Times, wanted: Statistic, replicas: int) -> float:
    if wanted.metric == "throughput":
        return replicas * float(times.output_tokens.sum()) / times.span_s
    several = times.output_tokens > 1
    decode_s, gaps = (times.e2e_s - times.ttft_s)[several], times.output_tokens[several] - 1.0
    if wanted.metric == "itl":
        return float(decode_s.sum() / max(gaps.sum(), 1.0))
    values = {"ttft": times.ttft_s, "e2e": times.e2e_s, "tpot": decode_s / gaps}[wanted.metric]
    if not len(values):
        return float("nan")
    return float(values.mean()) if wanted.name == "mean" else float(np.percentile(values, _PERCENTILES[wanted.name]))


_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}
