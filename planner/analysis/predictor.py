"""What a door can predict of a request before it is let in: its first token and its time per output token."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.admission import largest_chunk
from planner.analysis.case import Case
from planner.analysis.goodput import largest_within
from planner.analysis.steps import Chunk, Decoders, mixed_step_s, require_positive
from planner.errors import InputError
from planner.simulator import Target, latency_targets
from planner.simulator.forecast import Forecast

Floats = npt.NDArray[np.float64]
_TABLE = 24
QUEUE_SHARE = 0.5
"""Share of the TTFT target that a full queue may take [1].

In overload the queue stands at its bound, so that everyone waits it out, and places come free in bunches. A half is assumed;
simulation finds it near the best.
"""


class Aims(NamedTuple):
    """Targets of every request, as its client sees them.

    ttft_s : until the first token [s]; tpot_s : per output token [s], None where nobody cares
    margin : by which predictions must stay below the targets, as prompts come in bunches [1]; a tenth is assumed, not measured
    """

    ttft_s: float
    tpot_s: float | None
    margin: float = 0.1

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets as the simulator checks them."""
        return latency_targets(self.ttft_s, self.tpot_s)

    @property
    def planned_tpot_s(self) -> float | None:
        """What the prediction of the time per output token may be at most [s]."""
        return None if self.tpot_s is None else self.tpot_s / (1.0 + self.margin)


class SteadyBatch(NamedTuple):
    """The largest batch that holds the time per output token while prompts flow in as fast as outputs end.

    sequences : decoding [seq], 0 where even one is too slow; step_s : of such a step [s]
    rate_rps : requests that pass through [request/s]
    """

    sequences: int
    step_s: float
    rate_rps: float


def slots_of(case: Case) -> int:
    """Return how many sequences run at once: max_num_seqs, or what the KV cache holds of them at their end [seq], at least 1."""
    held = case.kv_tokens / (case.lengths.prompt_mean_tokens + case.lengths.output_mean_tokens)
    return max(1, min(case.limits.max_num_seqs, int(held)))


def steady_batch(case: Case, tpot_s: float | None) -> SteadyBatch:
    """Return the batch n of n = rate × output × step(n), with the prompts of n ÷ output requests in each step.

    tpot_s : target that no such step exceeds [s]; None: the engine's own limits alone
    """
    slots = slots_of(case)
    sequences = slots if tpot_s is None else largest_within(lambda count: _flow_step_s(case, float(count)), tpot_s, slots)
    if sequences == 0:
        return SteadyBatch(0, _flow_step_s(case, 1.0), 0.0)
    step_s = _flow_step_s(case, float(sequences))
    return SteadyBatch(sequences, step_s, sequences / (case.lengths.output_mean_tokens * step_s))


def _flow_step_s(case: Case, sequences: float) -> float:
    prompt = case.lengths.prompt_mean_tokens
    chunk = Chunk(sequences / case.lengths.output_mean_tokens * prompt, prompt / 2.0)
    return mixed_step_s(case.decoders(sequences), chunk, case.coefficients)


class DoorBounds(NamedTuple):
    """How much may be inside or wait while the targets hold.

    batch : that holds the time per output token, the margin kept
    waiting : requests that may wait for a place, where the engine lets no more run than the batch holds [request]
    unfinished : what --max-num-queued-reqs counts, running and waiting [request]
    waiting_prompt_tokens : what --max-num-queued-tokens counts [token]
    """

    batch: SteadyBatch
    waiting: int
    unfinished: int
    waiting_prompt_tokens: int


def door_bounds(case: Case, aims: Aims) -> DoorBounds:
    """Return the bounds: the steady batch runs, and as many wait as leave within half the TTFT target (Little's law on the queue).

    Where max_num_seqs lets more run than the batch holds, whoever is let in runs at once: nobody may wait.
    """
    batch = steady_batch(case, aims.planned_tpot_s)
    passing = max(1, round(QUEUE_SHARE * batch.rate_rps * engine_ttft_s(case, aims)))
    waiting = passing if batch.sequences >= slots_of(case) else 0
    tokens = max(1, round(passing * case.lengths.prompt_mean_tokens))
    return DoorBounds(batch, waiting, max(batch.sequences + waiting, 1), tokens)


def engine_ttft_s(case: Case, aims: Aims) -> float:
    """Return what the TTFT target leaves to the engine [s]."""
    require_positive("ttft_s", aims.ttft_s, "seconds")
    left_s = aims.ttft_s - case.request_s
    if left_s <= 0.0:
        bound = f"must be above the {case.request_s:.3g} s that a request spends outside the engine"
        raise InputError("TTFT target", aims.ttft_s, bound, "Loosen the target")
    return left_s


def forecast_of(case: Case, aims: Aims) -> Forecast:
    """Return what a door goes by: the rule of planner.analysis.admission, and the queue for a place in the batch.

    TPOT caps the chunk, the chunk caps prefill, and the prompts that wait go at that rate; where the batch is full, places come
    free as fast as requests leave a full batch.
    """
    slots = slots_of(case)
    counts = np.concatenate([[0.0], np.unique(np.round(np.geomspace(1.0, slots + 1.0, _TABLE)))])
    rates = [_prefill_rate(case, float(count), aims.tpot_s) for count in counts]
    steps_s = [_flow_step_s(case, max(float(count), 1.0)) for count in counts]
    every = np.arange(slots + 1)
    return Forecast(
        slots=slots,
        leaving_rps=steady_batch(case, None).rate_rps,
        outside_s=case.request_s,
        ttft_s=aims.ttft_s,
        most_tpot_s=math.inf if aims.planned_tpot_s is None else aims.planned_tpot_s,
        margin=aims.margin,
        rates=np.interp(every, counts, rates),
        steps_s=np.interp(every, counts, steps_s),
    )


def _prefill_rate(case: Case, decoding: float, tpot_s: float | None) -> float:
    """Return the prompt tokens a second beside decoders: the chunk that TPOT and the budget allow, over its step [token/s]."""
    c, past = case.coefficients, case.lengths.prompt_mean_tokens / 2.0
    decoders = Decoders(decoding, case.context_tokens)
    room = max(case.limits.max_num_batched_tokens - decoding, 1.0)
    if tpot_s is not None:
        limit = largest_chunk(decoders, tpot_s, c, past)
        if limit.chunk_tokens <= room:
            return limit.prefill_tokens_per_s
    return room / mixed_step_s(decoders, Chunk(room, past), c)
