"""An engine whose token budget a controller moves while it runs: what an operator's loop could do if the engine let it.

vLLM reads max_num_batched_tokens once, at start; no release lets it change later. The simulated engine takes the new budget with
its next decision, all else stays vLLM's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.simulator import layout as n
from planner.simulator.inputs import RequestArrays, take_in
from planner.simulator.kernel import OUT_OF_STEPS, PAUSED, STUCK, run_kernel
from planner.simulator.layout import State
from planner.simulator.limits import EngineLimits, check_coefficients, check_limits
from planner.simulator.result import SimulationResult
from planner.simulator.run import Run, SimulationOptions, result_of_run
from planner.simulator.state import LogSize, build_state
from planner.step_model import StepCoefficients

Floats = npt.NDArray[np.float64]


class Observation(NamedTuple):
    """What a controller sees at the end of an interval, all of it known by then.

    now_s : time of the next decision [s]
    budget_tokens : token budget of the interval [token]
    waiting : requests that wait for a place [request]; running : sequences in the batch [seq]
    ttft_s : of each request whose first token came in the interval [s]
    tpot_s : of each request whose last token came in it, requests of one token left out [s]
    """

    now_s: float
    budget_tokens: int
    waiting: int
    running: int
    ttft_s: Floats
    tpot_s: Floats


Controller = Callable[[Observation], int]
"""Returns the token budget of the next interval [token]."""


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveResult:
    """What became of the requests, and what the controller did.

    at_s : when each budget began to hold, the first at 0 [s]; budget_tokens : those budgets [token]
    """

    result: SimulationResult
    at_s: Floats
    budget_tokens: npt.NDArray[np.int64]


class Range(NamedTuple):
    """What a controller may do: budgets from `least` to the engine's max_num_batched_tokens [token], each held for interval_s [s].

    first : budget of the first interval [token]
    """

    least: int
    first: int
    interval_s: float


def simulate_adaptive(
    requests: RequestArrays, limits: EngineLimits, coefficients: StepCoefficients, allowed: Range, controller: Controller
) -> AdaptiveResult:
    """Serve requests with one engine whose budget a controller sets anew at the first decision of each interval.

    limits : max_num_batched_tokens is the largest budget, which the engine's memory is sized for

    Deterministic if the controller is. Raises InputError where the controller leaves its range.
    """
    check_limits(limits)
    _check(allowed, limits)
    c = check_coefficients(coefficients)
    intake = take_in(requests, limits, None)
    state = build_state(intake.queue, limits, "length", int(c.window_tokens), LogSize())
    at_s, budgets = [0.0], [allowed.first]
    state.g[n.MAX_TOKENS] = allowed.first
    window = _Window()
    state.f[n.PAUSE_AT] = allowed.interval_s
    while (status := run_kernel(state, c)) == PAUSED:
        now_s = float(state.f[n.CLOCK])
        budget = controller(_observed(state, window, now_s))
        _check_budget(budget, allowed, limits)
        if budget != budgets[-1]:
            at_s.append(now_s)
            budgets.append(budget)
            state.g[n.MAX_TOKENS] = budget
        state.f[n.PAUSE_AT] = (np.floor(now_s / allowed.interval_s) + 1.0) * allowed.interval_s
    if status == STUCK:
        raise RuntimeError("The simulated engine has requests and nothing in flight, yet schedules nothing")
    run = Run(state, intake, finished=status != OUT_OF_STEPS)
    result = result_of_run(run, requests, limits, SimulationOptions(over_time=False))
    return AdaptiveResult(result, np.array(at_s), np.array(budgets, np.int64))


@dataclass(slots=True)
class _Window:
    """What a controller has seen so far.

    until_s : time of its last observation [s]
    ended : so many requests, first by arrival, had all ended by then: no later interval sees them again
    """

    until_s: float = 0.0
    ended: int = 0


def _observed(state: State, window: _Window, now_s: float) -> Observation:
    """Return what happened since the window's end and up to now_s, and move the window on.

    The step in flight may already have later times, which stay unseen.
    """
    arrived = int(np.searchsorted(state.times[n.ARRIVAL], now_s, side="right"))
    open_ = slice(window.ended, arrived)
    arrival_s, first_s, finish_s = (state.times[row, open_] for row in (n.ARRIVAL, n.FIRST_TOKEN, n.FINISH))
    outputs = state.asked[n.OUTPUT, open_]
    begun = (first_s > window.until_s) & (first_s <= now_s)
    over = finish_s <= now_s
    if state.g[n.PREEMPTIONS] > 0:
        over[_begun_again(state, window.ended, arrived)] = False
    ended = over & (finish_s > window.until_s) & (outputs > 1)
    seen = Observation(
        now_s=now_s,
        budget_tokens=int(state.g[n.MAX_TOKENS]),
        waiting=_waiting(state, arrived),
        running=int(state.g[n.RUNNING]),
        ttft_s=(first_s - arrival_s)[begun],
        tpot_s=(finish_s - first_s)[ended] / (outputs[ended] - 1),
    )
    window.until_s = now_s
    window.ended += len(over) if over.all() else int(over.argmin())
    return seen


def _begun_again(state: State, first: int, end: int) -> npt.NDArray[np.int64]:
    """Return which requests from `first` up to `end` were preempted and go on, counted from `first`.

    Their time of finish is that of the last token before, until the next one comes.
    """
    held = np.ones(len(state.slots), np.bool_)
    held[state.lists[n.FREE_LIST, : state.g[n.FREE_SLOTS]]] = False
    waits = state.heap[: state.g[n.HEAPED]] if state.g[n.PRIORITY] else state.lists[n.STACK_LIST, : state.g[n.STACKED]]
    found = np.concatenate([state.slots[held, n.REQUEST], waits])
    return np.asarray(found[(found >= first) & (found < end)] - first, dtype=np.int64)


def _waiting(state: State, arrived: int) -> int:
    """Return the requests that wait: those preempted, and those that have arrived and were never admitted."""
    if state.g[n.PRIORITY]:
        return int(state.g[n.HEAPED]) + arrived - int(state.g[n.ARRIVED])
    return int(state.g[n.STACKED]) + arrived - int(state.g[n.ADMITTED])


def _check(allowed: Range, limits: EngineLimits) -> None:
    if not 0.0 < allowed.interval_s < np.inf:
        raise InputError("interval_s", allowed.interval_s, "must be above 0 and finite", "Give seconds, for example 1")
    if allowed.least < limits.max_num_seqs:
        raise InputError(
            "least", allowed.least, f"must be at least max_num_seqs ({limits.max_num_seqs})", "Raise it or lower max_num_seqs"
        )
    _check_budget(allowed.first, allowed, limits)


def _check_budget(budget: int, allowed: Range, limits: EngineLimits) -> None:
    if not allowed.least <= budget <= limits.max_num_batched_tokens:
        bound = f"must be from {allowed.least} to max_num_batched_tokens ({limits.max_num_batched_tokens})"
        raise InputError("budget_tokens", budget, bound, "Correct the controller's range")
