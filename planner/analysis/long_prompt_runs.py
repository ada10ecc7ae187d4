"""What a simulated long prompt leaves behind: its steps, the arrivals that wait for it, lanes over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from planner.analysis.steps import Decoders

Work = Literal["decode", "prefill chunk", "waiting"]


class Experiment(NamedTuple):
    """What arrives.

    prompt_tokens : the long prompt [token]; decoders : whole sequences that decode when it comes
    budget_tokens : max_num_batched_tokens [token]; threshold_tokens : long_prefill_token_threshold, None for none [token]
    rate_rps : other arrivals from then on, with the workload's own lengths [request/s]
    """

    prompt_tokens: int
    decoders: Decoders
    budget_tokens: int
    threshold_tokens: int | None
    rate_rps: float


class SimulatedStep(NamedTuple):
    """One step of the run: when it starts, counted from the long prompt's first one, and how long it takes [s].

    chunk_tokens, past_tokens : of the long prompt, 0 tokens where it has no row [token]
    other_prefill_tokens : of new arrivals [token]; decode_rows : sequences that decode; waiting : requests that wait
    """

    start_s: float
    duration_s: float
    chunk_tokens: int
    past_tokens: int
    other_prefill_tokens: int
    decode_rows: int
    waiting: int


class Arrival(NamedTuple):
    """A request that comes after the long prompt: when, with what prompt, and its TTFT [s], [token], [s]."""

    at_s: float
    prompt_tokens: int
    ttft_s: float


class Bar(NamedTuple):
    """A stretch of one lane; lane : "decoders", "long prompt" or the number of an arrival; tokens : per step [token]."""

    lane: str
    from_s: float
    to_s: float
    work: Work
    tokens: int


@dataclass(frozen=True, slots=True)
class LongRun:
    """One run.

    steps : from the step before the long prompt's first one on
    arrivals : by time; of several runs with other arrivals, the steps being those of the first
    ttft_s : of the long prompt from the start of its first step [s]; None when it never ended its prefill
    bars : decoders, long prompt and a few arrivals over time
    """

    steps: tuple[SimulatedStep, ...]
    arrivals: tuple[Arrival, ...]
    ttft_s: float | None
    bars: tuple[Bar, ...]

    @property
    def chunks(self) -> tuple[SimulatedStep, ...]:
        """The steps that hold a chunk of the long prompt."""
        return tuple(step for step in self.steps if step.chunk_tokens)

    @property
    def itl_before_s(self) -> float:
        """Inter-token latency before the long prompt [s]."""
        return self.steps[0].duration_s

    @property
    def itl_worst_s(self) -> float:
        """The longest step that holds a chunk of the long prompt [s]."""
        return max(step.duration_s for step in self.chunks)

    @property
    def itl_after_s(self) -> float | None:
        """The first step that only decodes after the long prompt's last chunk [s]."""
        last = self.chunks[-1].start_s
        after = [step for step in self.steps if step.start_s > last and step.chunk_tokens == 0 and step.other_prefill_tokens == 0]
        return after[0].duration_s if after else None

    @property
    def worst_ttft_s(self) -> float | None:
        """The longest TTFT among new arrivals [s]."""
        return max((arrival.ttft_s for arrival in self.arrivals), default=None)


@dataclass(frozen=True, slots=True)
class SimulatedLongPrompt:
    """The long prompt under two settings, and the same arrivals without it.

    alone : the asked setting without other arrivals, as the formula has it
    whole, capped : with arrivals, the chunk taking all of the budget and held to `threshold_tokens`
    without : the same arrivals without the long prompt
    draws : how many runs the arrivals are of
    """

    threshold_tokens: int
    alone: LongRun
    whole: LongRun
    capped: LongRun
    without: tuple[Arrival, ...]
    capped_is_asked: bool
    draws: int

    @property
    def asked(self) -> LongRun:
        """The run under the asked setting."""
        return self.capped if self.capped_is_asked else self.whole

    def median_ttft_s(self, arrivals: Sequence[Arrival]) -> float | None:
        """Return the median TTFT of those arrivals that come while an uncapped long prompt prefills [s]."""
        until_s = self.whole.ttft_s or 0.0
        during = [arrival.ttft_s for arrival in arrivals if arrival.at_s <= until_s]
        return float(np.median(during)) if during else None
