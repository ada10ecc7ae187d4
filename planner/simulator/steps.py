"""One step as a scheduler decides it, with the sums that its time depends on, and what an engine needs of a scheduler."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from planner.attention_pairs import causal_pairs, window_pairs
from planner.simulator.job import Job
from planner.simulator.plain_loop import Row
from planner.step_model import StepShape


@dataclass(slots=True, eq=False)
class Step:
    """The rows of one step, and when it ran.

    chunks : prefill chunks, or recomputation; their rows' sequences are jobs
    decoders : jobs that decode one token
    decoders_before : for each chunk, how many decoders were scheduled before it
    context_tokens, window_tokens : what the decoders have cached, in all and within the sliding window [token]
    preempted : jobs that lost their blocks in this decision
    used_blocks, running, waiting : the state after the decision
    """

    chunks: list[Row] = field(default_factory=list)
    decoders: list[Job] = field(default_factory=list)
    decoders_before: list[int] = field(default_factory=list)
    context_tokens: int = 0
    window_tokens: int = 0
    preempted: list[Job] = field(default_factory=list)
    used_blocks: int = 0
    running: int = 0
    waiting: int = 0
    scheduled_at_s: float = 0.0
    start_s: float = 0.0
    duration_s: float = 0.0

    @property
    def end_s(self) -> float:
        """When the step's tokens come out [s]."""
        return self.start_s + self.duration_s

    def token_takers(self) -> Iterator[Job]:
        """Yield the jobs that the step brings a token, in the order in which they were scheduled."""
        first = 0
        for row, before in zip(self.chunks, self.decoders_before, strict=True):
            yield from self.decoders[first:before]
            first = before
            if row.samples:
                assert isinstance(row.sequence, Job)
                yield row.sequence
        yield from self.decoders[first:]

    def add_chunk(self, row: Row) -> None:
        """Put a prefill chunk in the step."""
        self.chunks.append(row)
        self.decoders_before.append(len(self.decoders))

    def withdraw(self, job: Job) -> int:
        """Take a job's row out of the step while it is being decided; return its tokens [token].

        A decoder's new token must still be counted as computed.
        """
        if job in self.decoders:
            position = self.decoders.index(job)
            del self.decoders[position]
            self.decoders_before = [before - (before > position) for before in self.decoders_before]
            self.context_tokens -= job.computed - 1
            return 1
        position = next(position for position, row in enumerate(self.chunks) if row.sequence is job)
        del self.decoders_before[position]
        return self.chunks.pop(position).tokens

    @property
    def tokens(self) -> int:
        """Tokens that the step computes [token]."""
        return len(self.decoders) + sum(row.tokens for row in self.chunks)

    def shape(self, model_window_tokens: int) -> StepShape:
        """Return the sums that the step model reads."""
        chunks = self.chunks
        decoding = len(self.decoders)
        return StepShape(
            scheduled_tokens=float(self.tokens),
            sampled_tokens=float(decoding + sum(row.samples for row in chunks)),
            sequences=float(decoding + len(chunks)),
            decode_sequences=float(decoding),
            decode_context_tokens=float(self.context_tokens),
            decode_window_tokens=float(self.window_tokens),
            prefill_pairs=float(sum(causal_pairs(row.context, row.tokens) for row in chunks)),
            prefill_window_pairs=float(sum(window_pairs(row.context, row.tokens, model_window_tokens) for row in chunks)),
            prefill_context_tokens=float(sum(row.context for row in chunks)),
        )


class Scheduler(Protocol):
    """What an engine needs of a scheduler: it adds, decides and takes in.

    running : jobs that hold KV blocks and take part; asynchronous : a step is decided while the one before it runs
    """

    running: list[Job]

    @property
    def asynchronous(self) -> bool:
        """A step is decided when the one before it starts."""
        ...

    @property
    def num_waiting(self) -> int:
        """Jobs that wait, preempted ones among them."""
        ...

    def accepts(self, job: Job) -> bool:
        """Return whether the engine could ever serve the job."""
        ...

    def add(self, job: Job) -> None:
        """Put a new job in the waiting queue."""
        ...

    def drop(self, job: Job) -> None:
        """Take a job out of the waiting queue."""
        ...

    def decide(self, now_s: float) -> Step:
        """Return the next step; without rows when nothing can run."""
        ...

    def take_in(self, step: Step) -> list[Job]:
        """Note the tokens that a step brought; return the jobs that ended with it."""
        ...

    def repeats(self, step: Step, following: Step | None) -> int:
        """Return how many step ends from now change nothing but the decoders' contexts, one token each; 0 when unknown."""
        ...

    def repeat(self, step: Step, times: int) -> int:
        """Do what `times` ends of steps like this do, at once, if `repeats` has allowed as many; return the blocks then in use."""
        ...
