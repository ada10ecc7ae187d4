"""A look at some steps of a run: which requests each step held, with how many tokens."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.errors import InputError
from planner.replay.run import Outcome, Replay
from planner.simulator import LogRow, LogStep, SimulationOptions, simulate

MAX_STEPS = 60
MAX_SHOWN = 40
LONGEST_STEP: Literal["longest step"] = "longest step"
_LEAD_STEPS = 20
_SEARCHED_STEPS = 400
Work = Literal["prefill chunk", "recomputed chunk", "decode", "wasted row"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one step did for one request."""

    request: int
    step: int
    start_s: float
    end_s: float
    tokens: int
    context: int
    work: Work


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Steps in a row, and the requests in them.

    steps : at most MAX_STEPS
    requests : positions of those shown, by arrival; `left_out` more were in these steps
    cells : rows of the shown requests
    waits : stretches within the window in which a shown request waited for tokens, new or preempted: request, from, to [s]
    preempted : request and time of each preemption [s]
    """

    steps: tuple[LogStep, ...]
    requests: tuple[int, ...]
    left_out: int
    cells: tuple[Cell, ...]
    waits: tuple[tuple[int, float, float], ...]
    preempted: tuple[tuple[int, float], ...]

    @property
    def longest(self) -> int:
        """Position of the longest step."""
        return int(np.argmax([step.duration_s for step in self.steps]))


def step_window(replay: Replay, run: Outcome, at: float | Literal["longest step"] = LONGEST_STEP) -> StepWindow:
    """Return the steps of a run from a time on [s], or around its longest one; they are those of the run itself.

    Raises InputError for a time at which the run is over.
    """
    makespan_s = run.result.totals.makespan_s
    if at == LONGEST_STEP:
        found = _logged(replay, run, max(0.0, run.result.averages.longest_step_at_s - _LEAD_STEPS * run.result.averages.step_s))
        steps = _around_longest(found)
    elif not 0.0 <= at <= makespan_s:
        raise InputError("at", at, f"must lie in the run, from 0 to {makespan_s:.4g} s", "Give seconds from the run's start")
    else:
        steps = _logged(replay, run, at)[:MAX_STEPS]
    return _window(replay, run, steps)


def _logged(replay: Replay, run: Outcome, from_s: float) -> tuple[LogStep, ...]:
    """Return up to a few hundred steps from a time on, by serving again all requests that had arrived by then.

    A decision depends on nothing that arrives later, so that later requests are left out; steps decided after the last request that
    was kept are dropped.
    """
    arrival_s = replay.requests.arrival_s
    until_s = from_s + _SEARCHED_STEPS * run.result.averages.longest_step_s
    kept = min(len(arrival_s), int(np.searchsorted(arrival_s, until_s, side="right")) + 1)
    options = SimulationOptions(stop=replay.settings.stop, log_steps=True, log_from_s=from_s, log_most_steps=_SEARCHED_STEPS)
    steps = simulate(replay.requests.take(np.arange(kept)), run.setup.limits, run.setup.coefficients, options).steps or []
    certain_s = np.inf if kept == len(arrival_s) else arrival_s[kept - 1]
    return tuple(step for step in steps if step.scheduled_at_s < certain_s)


def _around_longest(steps: tuple[LogStep, ...]) -> tuple[LogStep, ...]:
    if not steps:
        return ()
    longest = int(np.argmax([step.duration_s for step in steps]))
    first = max(0, min(longest - _LEAD_STEPS, len(steps) - MAX_STEPS))
    return steps[first : first + MAX_STEPS]


def _window(replay: Replay, run: Outcome, steps: tuple[LogStep, ...]) -> StepWindow:
    if not steps:
        return StepWindow((), (), 0, (), (), ())
    seen, busy = _requests_in(steps)
    shown = set(sorted(seen, key=lambda request: (request not in busy, request))[:MAX_SHOWN])
    cells = tuple(_cell(run, index, step, row) for index, step in enumerate(steps) for row in step.rows if row.request in shown)
    preempted = tuple((request, step.start_s) for step in steps for request in step.preempted if request in shown)
    return StepWindow(
        steps=steps,
        requests=tuple(sorted(shown)),
        left_out=len(seen) - len(shown),
        cells=cells,
        waits=_waits(replay, run, steps, shown),
        preempted=preempted,
    )


def _requests_in(steps: tuple[LogStep, ...]) -> tuple[set[int], set[int]]:
    """Return all requests of the steps, and those that did more than decode one token after another."""
    seen: set[int] = set()
    busy: set[int] = set()
    for step in steps:
        seen.update(row.request for row in step.rows)
        seen.update(step.preempted)
        busy.update(row.request for row in step.rows if row.tokens > 1)
        busy.update(step.preempted)
    return seen, busy


def _cell(run: Outcome, index: int, step: LogStep, row: LogRow) -> Cell:
    return Cell(row.request, index, step.start_s, step.start_s + step.duration_s, row.tokens, row.context, _work(run, step, row))


def _work(run: Outcome, step: LogStep, row: LogRow) -> Work:
    """Tell what a row is: decoding goes on past the prompt, one token at a time; what an earlier token preceded is recomputed."""
    result = run.result
    if step.start_s >= result.finish_s[row.request]:
        return "wasted row"
    if row.tokens == 1 and row.context >= result.prompt_tokens[row.request]:
        return "decode"
    if step.start_s > result.first_token_s[row.request]:
        return "recomputed chunk"
    return "prefill chunk"


def _waits(replay: Replay, run: Outcome, steps: tuple[LogStep, ...], shown: set[int]) -> tuple[tuple[int, float, float], ...]:
    """Return when shown requests wait: from their arrival to their first tokens, and from a preemption to their next ones."""
    first_s, last_s = steps[0].start_s, steps[-1].start_s + steps[-1].duration_s
    spans = [
        (request, float(replay.requests.arrival_s[request]), float(run.result.first_scheduled_s[request])) for request in shown
    ]
    for index, step in enumerate(steps):
        spans += [
            (request, step.start_s, _next_start_s(request, steps[index + 1 :])) for request in step.preempted if request in shown
        ]
    inside = [(request, max(first_s, from_s), min(last_s, to_s)) for request, from_s, to_s in spans]
    return tuple(sorted(span for span in inside if span[2] > span[1]))


def _next_start_s(request: int, steps: tuple[LogStep, ...]) -> float:
    return next((step.start_s for step in steps if any(row.request == request for row in step.rows)), np.inf)
