"""What a simulation returns."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from planner.simulator.limits import EngineLimits

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]
Verdict = Literal["stable", "backlogged", "overloaded"]
WaitReason = Literal["none", "max_num_seqs", "max_num_batched_tokens", "KV blocks"]
Resource = Literal["bandwidth", "compute", "communication", "launch overhead", "host"]
T = TypeVar("T")
WAIT_REASONS: tuple[WaitReason, ...] = ("none", "max_num_seqs", "max_num_batched_tokens", "KV blocks")
RESOURCES: tuple[Resource, ...] = ("bandwidth", "compute", "communication", "launch overhead", "host")


class LogRow(NamedTuple):
    """What one step did for one request: `tokens` new ones after `context` computed ones; request is a position in the input."""

    request: int
    tokens: int
    context: int


class LogStep(NamedTuple):
    """One step: when the scheduler decided it, when it ran, what was in it, and the state after the decision."""

    scheduled_at_s: float
    start_s: float
    duration_s: float
    rows: list[LogRow]
    preempted: list[int]
    used_blocks: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the whole run.

    steps : batches that ran
    makespan_s : from time 0 to the last token [s]
    busy_s : time in which a batch ran [s]
    prompt_tokens, output_tokens : of the requests that ended [token]
    computed_tokens : tokens scheduled, recomputed and wasted ones among them [token]
    recomputed_tokens : tokens whose keys and values were lost to preemption and not found in the prefix cache [token]
    wasted_rows : rows computed for a sequence that had already stopped (asynchronous scheduling) [token]
    prefix_query_tokens, prefix_hit_tokens : looked up and found at first admission [token]
    """

    steps: int
    makespan_s: float
    busy_s: float
    prompt_tokens: int
    output_tokens: int
    computed_tokens: int
    preemptions: int
    recomputed_tokens: int
    wasted_rows: int
    prefix_query_tokens: int
    prefix_hit_tokens: int


@dataclass(frozen=True, slots=True)
class Averages:
    """Averages over time from 0 to the last token, and peaks.

    running, waiting : requests [request]
    kv_share, peak_kv_share : share of the KV blocks that requests hold [1]
    step_s : mean step [s]
    peak_running : most sequences at once [request]
    longest_step_s, longest_step_at_s : how long the longest step took, and when the first such started [s]
    """

    running: float
    waiting: float
    kv_share: float
    step_s: float
    peak_running: int
    peak_kv_share: float
    longest_step_s: float
    longest_step_at_s: float


@dataclass(frozen=True, slots=True, eq=False)
class TimeSeries:
    """The run in equal bins of time; arrays of one length. Bins without a step hold NaN where a mean needs one.

    start_s : start of each bin [s]; width_s : length of a bin [s]
    running, waiting : requests at the bin's start [request]
    kv_share : share of the KV blocks held, mean over the busy time of the bin [1]
    step_s : mean step [s]
    tokens_per_s : tokens computed [token/s]
    bound_s : time by bin, by why the head of the queue waits (WAIT_REASONS) and by what most of a step's time is spent on
        (RESOURCES) [s]
    """

    start_s: Floats
    width_s: float
    running: npt.NDArray[np.int64]
    waiting: npt.NDArray[np.int64]
    kv_share: Floats
    step_s: Floats
    tokens_per_s: Floats
    bound_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class GapHistogram:
    """Output tokens by the time since the token before (inter-token latency), in logarithmic bins 0.1 % wide.

    middle_s : middle of each bin that holds a token, rising [s]
    tokens : how many [token]
    sum_s : exact sum of all gaps [s]
    """

    middle_s: Floats
    tokens: npt.NDArray[np.int64]
    sum_s: float


@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """One engine's run over a list of requests; arrays follow the caller's order, NaN where a request was rejected.

    arrival_s, prompt_tokens, output_tokens : as asked; outputs cut at max_model_len
    first_scheduled_s, first_token_s, finish_s : absolute times [s]
    preemptions, cached_tokens : of each request; tokens found in the prefix cache at first admission
    rejected : refused by the engine
    bound_s : time by why the head of the queue waits (rows, WAIT_REASONS) and what the step's time is mostly spent on (columns,
        RESOURCES) [s]
    finished : False when the engine thrashed past the bound on steps; nothing then holds but the verdict
    """

    limits: EngineLimits
    arrival_s: Floats
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    first_scheduled_s: Floats
    first_token_s: Floats
    finish_s: Floats
    preemptions: Counts
    cached_tokens: Counts
    rejected: npt.NDArray[np.bool_]
    totals: Totals
    averages: Averages
    series: TimeSeries
    gaps: GapHistogram
    bound_s: Floats
    verdict: Verdict
    verdict_reason: str
    finished: bool
    steps: list[LogStep] | None = None

    def bound_shares(self) -> dict[WaitReason, float]:
        """Return the share of the busy time in which each limit kept the head of the queue waiting [1]."""
        return _shares(WAIT_REASONS, self.bound_s.sum(axis=1))

    def resource_shares(self) -> dict[Resource, float]:
        """Return the share of the busy time in which each resource took the largest part of the step [1]."""
        return _shares(RESOURCES, self.bound_s.sum(axis=0))


def seen_by_clients(result: SimulationResult, request_s: float) -> SimulationResult:
    """Return an engine's run with tokens later by what each request spends outside the engine before the first one [s]."""
    if not request_s:
        return result
    return replace(result, first_token_s=result.first_token_s + request_s, finish_s=result.finish_s + request_s)


def _shares(names: tuple[T, ...], times_s: Floats) -> dict[T, float]:
    total_s = float(times_s.sum())
    return {name: (float(time_s) / total_s if total_s > 0.0 else 0.0) for name, time_s in zip(names, times_s, strict=True)}
