"""Runs the plain scheduler over a list of requests on a virtual clock."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

from planner.attention_pairs import causal_pairs, window_pairs
from planner.simulator.limits import EngineLimits, Stop
from planner.simulator.plain_loop import Batch, PlainScheduler, Sequence
from planner.step_model import StepCoefficients, StepShape, step_s

StepTime = Callable[[Batch], float]


def step_time_of(coefficients: StepCoefficients) -> StepTime:
    """Return the function that gives a batch its time by the step model."""

    def step_time(batch: Batch) -> float:
        return float(step_s(batch_shape(batch, int(coefficients.window_tokens)), coefficients))

    return step_time


def batch_shape(batch: Batch, window_tokens: int) -> StepShape:
    """Return the sums over a batch's rows that its time depends on."""
    decodes = [row for row in batch.rows if row.decodes]
    chunks = [row for row in batch.rows if not row.decodes]
    return StepShape(
        scheduled_tokens=float(sum(row.tokens for row in batch.rows)),
        sampled_tokens=float(sum(row.samples for row in batch.rows)),
        sequences=float(len(batch.rows)),
        decode_sequences=float(len(decodes)),
        decode_context_tokens=float(sum(row.context for row in decodes)),
        decode_window_tokens=float(sum(min(row.context, window_tokens) for row in decodes)),
        prefill_pairs=float(sum(causal_pairs(row.context, row.tokens) for row in chunks)),
        prefill_window_pairs=float(sum(window_pairs(row.context, row.tokens, window_tokens) for row in chunks)),
        prefill_context_tokens=float(sum(row.context for row in chunks)),
    )


@dataclass(frozen=True, slots=True)
class PlainResult:
    """What the plain loop did: each sequence with its times, each step that ran."""

    sequences: list[Sequence]
    steps: list[Batch]


def run_plain(
    sequences: Iterable[Sequence],
    limits: EngineLimits,
    step_time: StepTime,
    stop: Stop = "length",
    scheduler: PlainScheduler | None = None,
) -> PlainResult:
    """Serve all sequences and return their times and the steps.

    sequences : in any order; ties of arrival go by index
    step_time : seconds that a step lasts [s], above 0
    scheduler : one of the same limits in place of the plain one, such as one with drafts

    With asynchronous scheduling a step is decided when the one before it starts, on what is known then; without it, when the one
    before it has ended. Requests that arrive at the moment of a decision take part in it.
    """
    everyone = in_order(sequences)
    return PlainResult(everyone, list(plain_steps(everyone, scheduler or PlainScheduler(limits, stop), step_time)))


def in_order(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Return sequences by arrival, ties by index."""
    return sorted(sequences, key=lambda sequence: (sequence.arrival_s, sequence.index))


def plain_steps(everyone: Many[Sequence], scheduler: PlainScheduler, step_time: StepTime) -> Iterator[Batch]:
    """Serve sequences in order of arrival and give each step once it has run; see `run_plain`."""
    limits = scheduler.limits
    arrivals = [sequence for sequence in everyone if _accept(sequence, limits)]
    clock_s = 0.0
    batch: Batch | None = None
    arrived = 0
    while batch is not None or scheduler.running or scheduler.num_waiting or arrived < len(arrivals):
        start_s = clock_s
        if batch is None:
            if not scheduler.running and not scheduler.num_waiting:
                start_s = max(clock_s, arrivals[arrived].arrival_s)
            arrived = _add_arrived(scheduler, arrivals, arrived, start_s)
            batch = _decide_with_none_in_flight(scheduler, start_s)
        batch.start_s = start_s
        batch.duration_s = step_time(batch)
        following = None
        if limits.async_scheduling:
            arrived = _add_arrived(scheduler, arrivals, arrived, start_s)
            following = _decide(scheduler, start_s)
        scheduler.update(batch)
        clock_s = batch.end_s
        yield batch
        batch = following


def _accept(sequence: Sequence, limits: EngineLimits) -> bool:
    """Cut the output at max_model_len as the engine does; mark requests that it could never serve as rejected."""
    if limits.max_model_len is not None:
        sequence.output_tokens = min(sequence.output_tokens, limits.max_model_len - sequence.prompt_tokens)
    most_cached = sequence.prompt_tokens + sequence.output_tokens - 1
    fits = most_cached <= limits.num_blocks * limits.block_size
    sequence.rejected = sequence.prompt_tokens < 1 or sequence.output_tokens < 1 or not fits
    return not sequence.rejected


def _add_arrived(scheduler: PlainScheduler, arrivals: list[Sequence], arrived: int, now_s: float) -> int:
    while arrived < len(arrivals) and arrivals[arrived].arrival_s <= now_s:
        scheduler.add(arrivals[arrived])
        arrived += 1
    return arrived


def _decide_with_none_in_flight(scheduler: PlainScheduler, now_s: float) -> Batch:
    """Decide until there is a batch: a decision that only preempts is followed by another."""
    preempted = -1
    while True:
        before = preempted
        batch = _decide(scheduler, now_s)
        if batch is not None:
            return batch
        preempted = scheduler.num_waiting
        if preempted == before:
            raise RuntimeError("The scheduler has work and nothing in flight, yet schedules nothing")


def _decide(scheduler: PlainScheduler, now_s: float) -> Batch | None:
    batch = scheduler.schedule()
    batch.scheduled_at_s = now_s
    for row in batch.rows:
        if row.sequence.first_scheduled_s is None:
            row.sequence.first_scheduled_s = now_s
    return batch if batch.rows else None
