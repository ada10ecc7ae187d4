"""One engine on a virtual clock: it runs a scheduler's steps, one by one or in stretches, as events of a larger simulation."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.simulator.job import Job
from planner.simulator.limits import check_coefficients
from planner.simulator.steps import Scheduler, Step
from planner.step_model import StepCoefficients, step_s

Floats = npt.NDArray[np.float64]

_LONGEST_STRETCH = 4096


@dataclass(slots=True)
class EngineTotals:
    """Sums over an engine's run.

    steps : batches that ran; busy_s : time in which one ran [s]
    waiting_s : of busy_s, the time in which a job waited for a place [s]
    computed_tokens, prefill_tokens : tokens scheduled, and those of them in prefill chunks (recomputation among them) [token]
    preemptions : jobs that lost their blocks; peak_running : most sequences at once; peak_blocks : most KV blocks held
    """

    steps: int = 0
    busy_s: float = 0.0
    waiting_s: float = 0.0
    computed_tokens: int = 0
    prefill_tokens: int = 0
    preemptions: int = 0
    peak_running: int = 0
    peak_blocks: int = 0


@dataclass(slots=True)
class _Stretch:
    """Steps that will follow if nothing arrives: only the decoders' contexts grow.

    ends_s : end of the step in flight and of all but the last that follow; durations_s : of the steps that follow [s]
    """

    ends_s: Floats
    durations_s: Floats


class Engine:
    """A scheduler, the step model, and the steps in flight.

    The one who drives it calls `add` and, once all that happens at that time has been added, `wake`; and `finish_step` at `next_s`,
    after everything else that happens then. Jobs that are added at the moment of a decision take part in it.

    keep_steps : keep every step for a timeline; stretches are then run one by one
    """

    def __init__(self, scheduler: Scheduler, coefficients: StepCoefficients, *, keep_steps: bool = False) -> None:
        self.scheduler = scheduler
        self.totals = EngineTotals()
        self.steps: list[Step] | None = [] if keep_steps else None
        self.coefficients = check_coefficients(coefficients)
        self._window_tokens = int(coefficients.window_tokens)
        self._in_flight: Step | None = None
        self._following: Step | None = None
        self._stretch: _Stretch | None = None

    @property
    def idle(self) -> bool:
        """No step is in flight."""
        return self._in_flight is None

    @property
    def next_s(self) -> float:
        """When `finish_step` is due [s]; only while a step is in flight."""
        if self._stretch is not None:
            return float(self._stretch.ends_s[-1])
        assert self._in_flight is not None
        return self._in_flight.end_s

    def add(self, job: Job, now_s: float) -> None:
        """Put a job in the waiting queue at `now_s`, not before the last `finish_step`; `next_s` may change."""
        self.catch_up(now_s)
        self._stretch = None
        self.scheduler.add(job)

    def drop(self, job: Job, now_s: float) -> bool:
        """Take a waiting job out at `now_s`; return whether `next_s` has changed."""
        self.catch_up(now_s)
        changed, self._stretch = self._stretch is not None, None
        self.scheduler.drop(job)
        return changed

    def catch_up(self, now_s: float) -> None:
        """Run the steps of a stretch that have ended before `now_s`, so that the state is that of `now_s`."""
        if self._stretch is not None:
            self._run_stretch(int(np.searchsorted(self._stretch.ends_s, now_s, side="left")))

    def wake(self, now_s: float) -> None:
        """Start a step if none is in flight and there is work."""
        if self._in_flight is None and (self.scheduler.running or self.scheduler.num_waiting):
            self._start(self._decide_something(now_s), now_s)

    def finish_step(self) -> list[Job]:
        """Take in the step that ends at `next_s`, start the next one; return the jobs that ended."""
        if self._stretch is not None:
            self._run_stretch(len(self._stretch.ends_s))
            self._stretch = None
            ended: list[Job] = []
        else:
            step = self._in_flight
            assert step is not None
            ended = self.scheduler.take_in(step)
            following, self._in_flight, self._following = self._following, None, None
            if following is not None:
                self._start(following, step.end_s)
            else:
                self.wake(step.end_s)
        self._look_ahead()
        return ended

    def _start(self, step: Step, start_s: float) -> None:
        """Start a step; with asynchronous scheduling, decide the one after it on what is known now."""
        step.start_s = start_s
        step.duration_s = float(step_s(step.shape(self._window_tokens), self.coefficients))
        self._in_flight = step
        self._count(step)
        if self.scheduler.asynchronous:
            following = self.scheduler.decide(start_s)
            self._count_decision(following)
            self._following = following if following.decoders or following.chunks else None

    def _decide_something(self, now_s: float) -> Step:
        """Decide until there is a row: a decision that only preempts is followed by another."""
        waiting = -1
        while True:
            step = self.scheduler.decide(now_s)
            self._count_decision(step)
            if step.decoders or step.chunks:
                return step
            if step.waiting == waiting:
                raise RuntimeError("The scheduler has work and nothing in flight, yet schedules nothing")
            waiting = step.waiting

    def _count(self, step: Step) -> None:
        totals = self.totals
        totals.steps += 1
        totals.busy_s += step.duration_s
        totals.waiting_s += step.duration_s if step.waiting else 0.0
        totals.computed_tokens += step.tokens
        totals.prefill_tokens += step.tokens - len(step.decoders)
        if self.steps is not None:
            self.steps.append(step)

    def _count_decision(self, step: Step) -> None:
        self.totals.preemptions += len(step.preempted)
        self.totals.peak_running = max(self.totals.peak_running, step.running)
        self.totals.peak_blocks = max(self.totals.peak_blocks, step.used_blocks)

    def _look_ahead(self) -> None:
        """See whether the next steps only repeat, and when they end."""
        step = self._in_flight
        if step is None or self.steps is not None or self._window_tokens:
            return
        times = min(self.scheduler.repeats(step, self._following), _LONGEST_STRETCH)
        if times == 0:
            return
        shape = step.shape(0)
        grown = shape.decode_context_tokens + len(step.decoders) * np.arange(1.0, times + 1.0)
        shapes = shape._replace(decode_context_tokens=grown)
        durations_s = np.broadcast_to(np.asarray(step_s(shapes, self.coefficients), np.float64), times)
        ends_s = np.add.accumulate(np.concatenate([[step.end_s], durations_s[:-1]]))
        self._stretch = _Stretch(ends_s, durations_s)

    def _run_stretch(self, times: int) -> None:
        """Run the first `times` step ends of the stretch."""
        stretch, step = self._stretch, self._in_flight
        assert stretch is not None
        assert step is not None
        if times == 0:
            return
        decoding = len(step.decoders)
        self.totals.peak_blocks = max(self.totals.peak_blocks, self.scheduler.repeat(step, times))
        for each in (step, self._following):
            if each is not None:
                each.context_tokens += times * decoding
        step.start_s = float(stretch.ends_s[times - 1])
        step.duration_s = float(stretch.durations_s[times - 1])
        self.totals.steps += times
        lasted_s = float(stretch.durations_s[:times].sum())
        self.totals.busy_s += lasted_s
        self.totals.waiting_s += lasted_s if step.waiting else 0.0
        self.totals.computed_tokens += times * decoding
        self._stretch = _Stretch(stretch.ends_s[times:], stretch.durations_s[times:])
