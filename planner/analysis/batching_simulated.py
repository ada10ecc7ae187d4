"""Static against continuous batching on the same requests: waste by batch from any law of outputs, and both engines simulated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from planner.analysis.batching import BatchingGain, batching_gain, exponential_gain
from planner.analysis.case import Case
from planner.analysis.served import all_at_once
from planner.parallel import in_parallel
from planner.simulator import simulate
from planner.simulator.static_batching import StaticBatching, simulate_static
from planner.workloads import Requests, TokenLaw, Workload, load_workload

Outputs = Literal["as recorded", "exponential", "constant"]

SHOWN_WORKLOADS = ("azure-code-2023", "summarisation", "translation", "azure-conversation-2023", "lmsys-chat")
_SHOWN = 4
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIMULATED_BATCHES = (8, 16, 32, 64, 128)
_STREAM = 11


def gain_of(workload: Workload, outputs: Outputs, batch: int) -> BatchingGain:
    """Return the gain at one batch, with the workload's own outputs or with others of the same mean.

    batch : requests that start together [request]
    """
    law = workload.pair_law().output
    if outputs == "exponential":
        return exponential_gain(batch)
    if outputs == "constant":
        law = TokenLaw.from_weights([max(round(law.mean), 1)], [1.0])
    return batching_gain(law, batch)


class GainCurve(NamedTuple):
    """Gain by batch of one workload's outputs; points : batch [request], gain [1]."""

    name: str
    points: tuple[tuple[int, float], ...]


def gain_curve(name: str, workload: Workload, outputs: Outputs = "as recorded") -> GainCurve:
    """Return the gain over `BATCHES`."""
    return GainCurve(name, tuple((batch, gain_of(workload, outputs, batch).gain) for batch in BATCHES))


def real_traces(leave_out: str) -> tuple[GainCurve, ...]:
    """Return the gain by batch of four real services' outputs, from the shipped traces; leave_out : id of one not to repeat."""
    found = [load_workload(each) for each in SHOWN_WORKLOADS if each != leave_out][:_SHOWN]
    return tuple(gain_curve(workload.name, workload) for workload in found)


class BothEngines(NamedTuple):
    """The same requests, all waiting from the start, through static batches and through an engine that refills.

    row_gain : decode rows that the static engine computes ÷ those that bring a token [1]
    step_gain : its steps ÷ those of the engine that refills [1]
    static_tokens_per_s, continuous_tokens_per_s : output tokens over the whole run [token/s]
    """

    batch: int
    row_gain: float
    step_gain: float
    static_tokens_per_s: float
    continuous_tokens_per_s: float

    @property
    def throughput_gain(self) -> float:
        """Tokens a second of continuous over static batching [1]."""
        return self.continuous_tokens_per_s / self.static_tokens_per_s


@dataclass(frozen=True, slots=True)
class SimulatedBatching:
    """Both engines by batch; asked : at the batch that was asked; requests : served in each run; dropped : too long to serve."""

    by_batch: tuple[BothEngines, ...]
    asked: BothEngines
    requests: int
    dropped: int


def simulated_batching(case: Case, outputs: Outputs, batch: int, count: int) -> SimulatedBatching:
    """Serve `count` requests of the workload with both engines, at several batches; same case, same requests.

    The static engine pads each batch to its longest prompt and computes every row until its longest output ends. Both hold the same
    KV cache; a static batch is smaller where its rectangle would not fit.
    """
    drawn = with_outputs(case, outputs, case.requests(count))
    batches: Sequence[int] = sorted({batch, *SIMULATED_BATCHES})
    found = tuple(in_parallel(lambda size: both_engines(case, drawn, size), batches))
    return SimulatedBatching(found, found[batches.index(batch)], len(drawn), count - len(drawn))


def with_outputs(case: Case, outputs: Outputs, requests: Requests) -> Requests:
    """Return the requests that the engine would serve, with their own outputs or others of the same mean, all waiting at time 0."""
    tokens = requests.output_tokens
    mean = case.lengths.output_mean_tokens
    if outputs == "exponential":
        rng = np.random.default_rng([case.seed, _STREAM])
        tokens = np.ceil(rng.exponential(mean, len(tokens))).astype(np.int64)
    elif outputs == "constant":
        tokens = np.full(len(tokens), max(round(mean), 1), np.int64)
    if case.limits.max_model_len is not None:
        tokens = np.minimum(tokens, case.limits.max_model_len - requests.prompt_tokens)
    kept = (tokens >= 1) & (requests.prompt_tokens + tokens <= case.kv_tokens)
    return Requests(np.zeros(int(kept.sum())), requests.prompt_tokens[kept], tokens[kept], requests.class_index[kept], None, None)


def both_engines(case: Case, requests: Requests, batch: int) -> BothEngines:
    """Serve requests with static batches of `batch` and with max_num_seqs = `batch`."""
    waiting = all_at_once(requests)
    static = simulate_static(waiting, StaticBatching(batch, kv_tokens=case.kv_tokens), case.coefficients)
    limits = case.limits._replace(max_num_seqs=batch, max_num_batched_tokens=max(batch, case.limits.max_num_batched_tokens))
    continuous = simulate(replace(waiting, cached_prompt_tokens=None), limits, case.coefficients)
    tokens = float(requests.output_tokens.sum())
    return BothEngines(
        batch=batch,
        row_gain=static.computed_rows / static.useful_rows if static.useful_rows else 1.0,
        step_gain=static.steps / continuous.totals.steps,
        static_tokens_per_s=tokens / static.makespan_s,
        continuous_tokens_per_s=tokens / continuous.totals.makespan_s,
    )
