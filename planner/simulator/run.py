"""Simulates one engine over a list of requests."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.simulator import layout as n
from planner.simulator.inputs import Intake, RequestArrays, take_in
from planner.simulator.kernel import OUT_OF_STEPS, STUCK, run_kernel
from planner.simulator.kernel_log import GAP_BINS_PER_OCTAVE, GAP_FIRST_OCTAVE
from planner.simulator.layout import State
from planner.simulator.limits import EngineLimits, Stop, check_coefficients, check_limits
from planner.simulator.result import (
    Averages,
    GapHistogram,
    LogRow,
    LogStep,
    SimulationResult,
    TimeSeries,
    Totals,
)
from planner.simulator.state import LogSize, build_state
from planner.simulator.verdict import Judgement, judge
from planner.step_model import StepCoefficients

T = TypeVar("T", bound=np.generic)

_FIRST_LOG = LogSize(rows=1 << 16, steps=1 << 13)
_LOG_GROWTH = 4
_ALL_STEPS = 2**62
_MOST_LOG_ROWS = 1 << 28


@dataclass(frozen=True, slots=True, eq=False)
class SimulationOptions:
    """What else a simulation needs to know.

    stop : "length" when outputs end at max_tokens, which the scheduler foresees; "eos" at a stop token, which it does not
    priorities : priority of each request, lower first, for the priority policy; None: all alike
    log_steps : keep the steps' rows, for a replay or a timeline
    log_from_s : keep those decided then or later [s]
    log_most_steps : keep at most so many; None: all of a short run
    over_time : give the series over time and the gaps between tokens; a search that asks for requests' latencies only leaves them
        empty, which saves a third of a short run
    """

    stop: Stop = "length"
    priorities: npt.NDArray[np.int64] | None = None
    log_steps: bool = False
    log_from_s: float = 0.0
    log_most_steps: int | None = None
    over_time: bool = True


class Run(NamedTuple):
    """A run of the loop: its arrays, whom it accepted, and whether it served them all."""

    state: State
    intake: Intake
    finished: bool


DEFAULT_OPTIONS = SimulationOptions()
_NOTHING = np.zeros(0)
_NO_SERIES = TimeSeries(
    start_s=_NOTHING,
    width_s=0.0,
    running=np.zeros(0, np.int64),
    waiting=np.zeros(0, np.int64),
    kv_share=_NOTHING,
    step_s=_NOTHING,
    tokens_per_s=_NOTHING,
    bound_s=np.zeros((0, n.REASONS, n.RESOURCES)),
)
_NO_GAPS = GapHistogram(_NOTHING, np.zeros(0, np.int64), 0.0)


def simulate(
    requests: RequestArrays, limits: EngineLimits, coefficients: StepCoefficients, options: SimulationOptions = DEFAULT_OPTIONS
) -> SimulationResult:
    """Serve requests with one engine, step by step as vLLM's scheduler decides, and return what became of each.

    requests : `planner.workloads.Requests`, or a `RequestTable` for requests in any order
    coefficients : of the engine's deployment; a step must take time

    Deterministic: the same input gives the same bytes.
    """
    check_limits(limits)
    coefficients = check_coefficients(coefficients)
    if options.stop not in ("length", "eos"):
        raise InputError("stop", options.stop, 'must be "length" or "eos"', "Choose one of the two")
    run = _run(take_in(requests, limits, options.priorities), limits, coefficients, options)
    return result_of_run(run, requests, limits, options)


def _run(intake: Intake, limits: EngineLimits, coefficients: StepCoefficients, options: SimulationOptions) -> Run:
    """Run the loop; with a step log, again with more room as long as the log overflows."""
    log = _first_log(options)
    while True:
        state = build_state(intake.queue, limits, options.stop, int(coefficients.window_tokens), log)
        status = run_kernel(state, coefficients)
        if status == STUCK:
            raise RuntimeError("The simulated engine has requests and nothing in flight, yet schedules nothing")
        if not state.g[n.LOG_FULL]:
            return Run(state, intake, finished=status != OUT_OF_STEPS)
        log = log._replace(rows=log.rows * _LOG_GROWTH, steps=log.steps * _LOG_GROWTH)
        if log.rows > _MOST_LOG_ROWS:
            raise InputError("log_steps", log.rows, f"must stay below {_MOST_LOG_ROWS} rows", "Log a shorter run")


def _first_log(options: SimulationOptions) -> LogSize:
    if not options.log_steps:
        return LogSize()
    most = options.log_most_steps
    if most is not None and most < 1:
        raise InputError("log_most_steps", most, "must be at least 1", "Leave it unset to keep all steps")
    if not 0.0 <= options.log_from_s < np.inf:
        raise InputError("log_from_s", options.log_from_s, "must be finite and at least 0", "Give seconds from the start")
    return _FIRST_LOG._replace(most_steps=_ALL_STEPS if most is None else most, from_s=options.log_from_s)


def result_of_run(run: Run, requests: RequestArrays, limits: EngineLimits, options: SimulationOptions) -> SimulationResult:
    """Return what became of each request, in the caller's order."""
    state = run.state
    order = run.intake.order
    whole = len(order) == len(requests) and bool((order == np.arange(len(order))).all())

    def spread(values: npt.NDArray[T], missing: float) -> npt.NDArray[T]:
        if whole:
            return values
        full = np.full(len(requests), missing, values.dtype)
        full[order] = values
        return full

    rejected = np.ones(len(requests), np.bool_)
    rejected[order] = False
    judgement = _judge(run)
    totals = _totals(state)
    return SimulationResult(
        limits=limits,
        arrival_s=requests.arrival_s,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens if limits.max_model_len is None else spread(state.asked[n.OUTPUT], 0).astype(np.int64),
        first_scheduled_s=spread(state.times[n.SCHEDULED], np.nan),
        first_token_s=spread(state.times[n.FIRST_TOKEN], np.nan),
        finish_s=spread(state.times[n.FINISH], np.nan),
        preemptions=spread(state.asked[n.PREEMPTED], 0),
        cached_tokens=np.maximum(spread(state.asked[n.CACHED], 0), 0),
        rejected=rejected,
        totals=totals,
        averages=_averages(state, totals),
        series=_series(state) if options.over_time else _NO_SERIES,
        gaps=_gaps(state) if options.over_time else _NO_GAPS,
        bound_s=_bound_s(state),
        verdict=judgement.verdict,
        verdict_reason=judgement.reason,
        finished=run.finished,
        steps=_log(state, order) if options.log_steps else None,
    )


def _judge(run: Run) -> Judgement:
    if not run.finished:
        return Judgement("overloaded", "the engine preempted again and again and was stopped")
    bound_s = _bound_s(run.state)
    busy_s = float(bound_s.sum())
    waiting_share = float(bound_s[1:].sum()) / busy_s if busy_s > 0.0 else 0.0
    return judge(run.state.times[n.ARRIVAL], run.state.times[n.FINISH], waiting_share)


def _totals(state: State) -> Totals:
    return Totals(
        steps=int(state.g[n.STEP]),
        makespan_s=float(state.f[n.END]),
        busy_s=float(state.f[n.BUSY]),
        prompt_tokens=int(state.asked[n.PROMPT].sum(dtype=np.int64)),
        output_tokens=int(state.g[n.TOKENS_OUT]),
        computed_tokens=int(state.g[n.COMPUTED_TOTAL]),
        preemptions=int(state.g[n.PREEMPTIONS]),
        recomputed_tokens=int(state.g[n.RECOMPUTED]),
        wasted_rows=int(state.g[n.WASTED]),
        prefix_query_tokens=int(state.g[n.QUERY_TOKENS]) if state.g[n.CACHING] else 0,
        prefix_hit_tokens=int(state.g[n.HIT_TOKENS]),
    )


def _averages(state: State, totals: Totals) -> Averages:
    span_s = totals.makespan_s
    if span_s <= 0.0:
        return Averages(0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)
    blocks = int(state.g[n.NUM_BLOCKS])
    waited_s = float(np.nansum(state.times[n.SCHEDULED] - state.times[n.ARRIVAL])) + float(state.f[n.REQUEUED])
    return Averages(
        running=float(state.f[n.RUNNING_INTEGRAL]) / span_s,
        waiting=waited_s / span_s,
        kv_share=float(state.f[n.KV_INTEGRAL]) / (span_s * blocks),
        step_s=totals.busy_s / max(totals.steps, 1),
        peak_running=int(state.g[n.MAX_RUNNING]),
        peak_kv_share=int(state.g[n.MAX_USED]) / blocks,
        longest_step_s=float(state.f[n.LONGEST]),
        longest_step_at_s=float(state.f[n.LONGEST_AT]),
    )


def _series(state: State) -> TimeSeries:
    used = int(state.g[n.BINS_USED]) + 1
    table = state.record.series[:used]
    width_s = float(state.f[n.BIN_WIDTH])
    start_s = np.arange(used, dtype=np.float64) * width_s
    arrived = np.searchsorted(state.times[n.ARRIVAL], start_s, side="right")
    scheduled = np.searchsorted(np.sort(state.times[n.SCHEDULED]), start_s, side="right")
    finished = np.searchsorted(np.sort(state.times[n.FINISH]), start_s, side="right")
    with np.errstate(invalid="ignore", divide="ignore"):
        busy_s = table[:, n.SERIES_TIME]
        return TimeSeries(
            start_s=start_s,
            width_s=width_s,
            running=scheduled - finished,
            waiting=arrived - scheduled,
            kv_share=table[:, n.SERIES_KV] / (busy_s * state.g[n.NUM_BLOCKS]),
            step_s=busy_s / table[:, n.SERIES_STEPS],
            tokens_per_s=table[:, n.SERIES_TOKENS] / width_s,
            bound_s=_by_bin(table),
        )


def _by_bin(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the time by bin, by why the head of the queue waits and by what a step's time is spent on [s]."""
    return table[:, n.SERIES_BOUND :].reshape(len(table), n.REASONS, n.RESOURCES)


def _bound_s(state: State) -> npt.NDArray[np.float64]:
    total_s: npt.NDArray[np.float64] = _by_bin(state.record.series).sum(axis=0)
    return total_s


def _gaps(state: State) -> GapHistogram:
    filled = np.flatnonzero(state.record.gaps)
    octave, within = np.divmod(filled, GAP_BINS_PER_OCTAVE)
    middle_s = np.ldexp(0.5 + (within + 0.5) / (2 * GAP_BINS_PER_OCTAVE), octave + GAP_FIRST_OCTAVE)
    return GapHistogram(middle_s, state.record.gaps[filled], float(state.f[n.GAP_SUM]))


def _log(state: State, order: npt.NDArray[np.int64]) -> list[LogStep]:
    ends = state.record.log_steps[: int(state.g[n.LOG_STEPS])]
    first = 0
    steps: list[LogStep] = []
    for (last, used, running, num_waiting), times in zip(ends.tolist(), state.record.log_times.tolist(), strict=False):
        rows = state.record.log_rows[first:last].tolist()
        given = [LogRow(int(order[request]), tokens, context) for _, request, tokens, context in rows if tokens >= 0]
        preempted = [int(order[request]) for _, request, tokens, _ in rows if tokens < 0]
        steps.append(LogStep(times[0], times[1], times[2], given, preempted, used, running, num_waiting))
        first = last
    return steps
