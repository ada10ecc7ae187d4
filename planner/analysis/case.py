"""The replica that a question is asked of: its engine, its step times, its share of the load and the targets."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from planner.analysis.littles_law import Stream, in_flight
from planner.analysis.steps import Decoders, require_positive
from planner.deployment import Deployment, shard
from planner.simulator import EngineLimits, SimulationOptions, SimulationResult, Target, latency_targets, seen_by_clients, simulate
from planner.step_model import StepCoefficients
from planner.workloads import LengthStats, Requests, Workload

_SAMPLED = 4000


@dataclass(frozen=True, slots=True)
class Case:
    """One replica under its own load.

    key : names the case; same key, same answers
    label : what it is, in a few words
    textbook : it is the setting of the published figures, not the user's own scenario
    limits, coefficients, request_s : its engine; request_s is spent outside the engine before the first token [s]
    rate_rps : requests a second that it is planned for [request/s]
    usd_per_hour : of the whole replica [USD/h]; None where nobody rents it
    ttft_p99_s, tpot_p99_s : targets [s]; None where the scenario leaves one open
    """

    key: str
    label: str
    textbook: bool
    deployment: Deployment
    limits: EngineLimits
    coefficients: StepCoefficients
    request_s: float
    workload: Workload
    lengths: LengthStats
    rate_rps: float
    usd_per_hour: float | None
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    seed: int

    @property
    def kv_tokens(self) -> int:
        """Tokens that the replica's KV cache holds [token]."""
        return self.limits.num_blocks * self.limits.block_size

    @property
    def context_tokens(self) -> float:
        """Mean tokens that a running sequence has cached [token]."""
        return float(self.lengths.running_context_mean_tokens)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets as the simulator checks them; empty for offline work."""
        return latency_targets(self.ttft_p99_s, self.tpot_p99_s)

    @property
    def stream(self) -> Stream:
        """The workload's requests at the case's rate."""
        return self.stream_at(self.rate_rps, float(self.lengths.prompt_mean_tokens), float(self.lengths.output_mean_tokens))

    @property
    def full_batch(self) -> float:
        """Sequences that run at once at most: max_num_seqs, or what the KV cache holds at their mean context; at least 1 [seq]."""
        return max(1.0, min(float(self.limits.max_num_seqs), self.kv_tokens / max(self.context_tokens, 1.0)))

    def stream_at(self, rate_rps: float, prompt_tokens: float, output_tokens: float) -> Stream:
        """Return the workload's requests at a rate [request/s], their lengths stretched to these means [token].

        How unlike they are is taken from a sample, and put on the scale of the workload's own mean running context.
        """
        drawn = self.requests(_SAMPLED)
        prompts, outputs = drawn.prompt_tokens.astype(np.float64), drawn.output_tokens.astype(np.float64)
        by_prompt = float((outputs * prompts).mean() / (outputs.mean() * prompts.mean()))
        by_output = float((outputs**2).mean() / outputs.mean() ** 2)
        sampled = Stream(
            rate_rps, float(self.lengths.prompt_mean_tokens), float(self.lengths.output_mean_tokens), by_prompt, by_output
        )
        scale = self.context_tokens / sampled.running_context_tokens
        return Stream(rate_rps, prompt_tokens, output_tokens, scale * by_prompt, scale * by_output)

    def kv_bytes_per_token_at(self, context_tokens: float) -> float:
        """Return keys, values and states of a sequence of so many tokens on one GPU, over its tokens [B/token].

        Layers with a window hold no more than it, so that longer sequences take less for each token.
        """
        require_positive("context_tokens", context_tokens, "tokens")
        return shard(self.deployment).kv.sequence_bytes(context_tokens) / context_tokens

    @property
    def kv_bytes_per_token(self) -> float:
        """The same at the mean context of running sequences [B/token]."""
        return self.kv_bytes_per_token_at(self.context_tokens)

    def in_flight(self, most: int) -> int:
        """Return how many sequences run at the case's rate by Little's law, at least one; `most` where none settles [seq]."""
        found = in_flight(self.stream, self.kv_bytes_per_token, self.coefficients).in_flight
        return max(1, most if found is None else min(round(found), most))

    def decoders(self, sequences: float) -> Decoders:
        """Return so many sequences at the workload's mean running context."""
        return Decoders(sequences, self.context_tokens)

    def with_limits(self, **changed: Any) -> Self:  # noqa: ANN401 - values of EngineLimits' own fields
        """Return the case with other engine settings, by field of EngineLimits."""
        return replace(self, limits=self.limits._replace(**changed))

    def requests(self, count: int, rate_rps: float | None = None) -> Requests:
        """Return requests of the workload; the same ones at every rate, further apart or closer together [request/s]."""
        drawn = self.workload.sample_requests(count, 1.0, self.seed)
        return replace(drawn, arrival_s=drawn.arrival_s / (rate_rps or self.rate_rps), block_hashes=None)

    def serve(self, requests: Requests, options: SimulationOptions | None = None) -> SimulationResult:
        """Return what the replica makes of requests, as its clients see it."""
        return self.seen_by_clients(simulate(requests, self.limits, self.coefficients, options or SimulationOptions()))

    def seen_by_clients(self, result: SimulationResult) -> SimulationResult:
        """Return an engine's run with the time that each request spends outside the engine."""
        return seen_by_clients(result, self.request_s)
