"""The engine's steady state at an arrival rate, without simulation: the screen before it, and its cross-check.

A replica runs decode and chunks of prefill together, so that the number of sequences, the length of a step and the work that
gathers meanwhile depend on each other. The model joins five closed forms: the mean step at a given number of decoding sequences
(step_grid), what a replica carries at most and the law of that number (occupancy), the spread of steps and the wait for prefill
(prefill_delay), and percentiles from means and variances (tails). Nothing in it is fitted.

Checked against step-by-step simulation of vLLM's scheduler on the Azure 2023 and Mooncake traces, LMSYS chat, long answers and
retrieval prompts, with H100, A100, L4, B200 and four-GPU coefficients, below 85 % of capacity:

- capacity: within 2 %, 6 % where the host is slower than the GPU
- means of TTFT and TPOT: within 5 % where prompts fit the token budget and answers are not of a few tokens, else within 15 %
- p99 of both: within 15 % as a rule

Known limits: near full slots or a full KV cache p99 TTFT is up to half too low; prompts many times the token budget put p99 TPOT up
to 40 % too low; bursts (squared CV 2 to 4) put TTFT 15 to 20 % too low. Left out: prefix-cache eviction, priorities, long-prefill
thresholds, and the time that a request spends outside the engine.
"""

from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.queueing.occupancy import Bound, DecodeFlow, Saturation, occupancy, saturation
from planner.queueing.prefill_delay import PrefillWork, decode_echo, peakedness, prefill_waits, prefill_work, step_spread
from planner.queueing.step_grid import ReplicaLimits, StepGrid, solve_steps, step_grid
from planner.queueing.tails import LoadedReplica, tpot_mean_s, tpot_quantile_s, ttft_mean_s, ttft_quantile_s
from planner.queueing.traffic import Traffic
from planner.step_model import StepCoefficients

_PROBABILITY = 0.99
_NEARLY_FULL = 1.0 - 1e-6


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A replica's steady state at an arrival rate.

    rate_rps, capacity_rps : arrivals, and the most that the replica completes [request/s]
    utilisation : their ratio [1]; None where the replica completes nothing
    stable : a steady state exists; without one, waits grow without bound, TTFT is None and TPOT is that of full slots
    binds : what stops the replica at its capacity
    running, waiting : mean sequences in the batch and outside it [seq]
    decode_sequences : mean sequences that decode [seq]; step_s : mean step [s]
    ttft_mean_s, ttft_p99_s, tpot_mean_s, tpot_p99_s : latencies over requests [s]; TPOT is None when no request decodes
    decode_s : mean time from first to last token [s]
    wait_share : share of arrivals that find every slot or all KV taken [1]
    kv_tokens_used : mean tokens in the KV cache [token]
    seqs_utilisation, kv_utilisation, budget_utilisation : mean use of max_num_seqs, KV cache and token budget [1]
    prefill_share : share of time that prefill adds to decode [1]
    """

    rate_rps: float
    capacity_rps: float
    utilisation: float | None
    stable: bool
    binds: Bound
    running: float
    waiting: float | None
    decode_sequences: float
    step_s: float
    ttft_mean_s: float | None
    ttft_p99_s: float | None
    tpot_mean_s: float | None
    tpot_p99_s: float | None
    decode_s: float
    wait_share: float
    kv_tokens_used: float
    seqs_utilisation: float
    kv_utilisation: float
    budget_utilisation: float
    prefill_share: float


class MeanField:
    """The mean-field model of one replica under one kind of traffic; build once, ask for many rates.

    traffic : lengths and burstiness; limits : what bounds the replica; coefficients : what its steps cost

    Raises InputError for limits that no engine accepts.
    """

    def __init__(self, traffic: Traffic, limits: ReplicaLimits, coefficients: StepCoefficients) -> None:
        self.traffic = traffic
        self.limits = limits
        self.grid: StepGrid = step_grid(traffic, limits, coefficients)
        self.work: PrefillWork = prefill_work(self.grid)
        self.saturated: Saturation = saturation(self.grid)

    def at(self, rate_rps: float) -> OperatingPoint:
        """Return the operating point at an arrival rate above 0 [request/s]."""
        if not np.isfinite(rate_rps) or rate_rps <= 0.0:
            raise InputError("rate_rps", rate_rps, "must be finite and above 0", "Give requests a second")
        if rate_rps >= self.saturated.rate_rps:
            return self._overloaded(rate_rps)
        state = self._state(rate_rps)
        occupied = state.occupied
        own_s = occupied.mean(self.work.own_mean_s)
        first_s = ttft_mean_s(state)
        running = occupied.decode_mean + rate_rps * own_s
        decodes = self.traffic.decode.share > 0.0
        step_s = 1.0 / occupied.mean(1.0 / state.spread.mean_s)
        return self._point(
            rate_rps,
            stable=True,
            running=running,
            waiting=rate_rps * (first_s - own_s),
            decode_sequences=occupied.decode_mean,
            step_s=step_s,
            ttft_mean_s=first_s,
            ttft_p99_s=ttft_quantile_s(state, _PROBABILITY),
            tpot_mean_s=tpot_mean_s(state) if decodes else None,
            tpot_p99_s=tpot_quantile_s(state, _PROBABILITY) if decodes else None,
            decode_s=occupied.decode_mean / rate_rps,
            wait_share=occupied.wait_share,
            prefill_share=occupied.mean(state.spread.prefill_share),
        )

    def _state(self, rate_rps: float) -> LoadedReplica:
        grid, work = self.grid, self.work
        mean_s, mixed_s = solve_steps(grid, rate_rps)
        spread = step_spread(grid, work, rate_rps, mean_s)
        echo = decode_echo(grid, work, rate_rps, spread)
        in_service = grid.decode + rate_rps * grid.chunks_mean * mixed_s
        decoding = self.traffic.decode
        flow = DecodeFlow(
            rate_rps=rate_rps,
            residence_s=grid.decode_steps * mean_s + decoding.share * decoding.outputs.mean_of(echo.mean_s),
            slots=float(np.interp(grid.slots, in_service, grid.decode)),
            peakedness=peakedness(grid, work, rate_rps, spread),
        )
        occupied = occupancy(grid, flow, self.saturated)
        waits = prefill_waits(grid, work, rate_rps, spread, occupied)
        return LoadedReplica(grid, work, rate_rps, spread, echo, occupied, waits)

    def _overloaded(self, rate_rps: float) -> OperatingPoint:
        """Every slot is taken for good: decode as just below saturation or slower, waits without bound."""
        saturated = self.saturated
        if saturated.rate_rps <= 0.0:
            return self._nothing_fits(rate_rps)
        near = self.at(saturated.rate_rps * _NEARLY_FULL)
        own_s = self.grid.at(self.work.own_mean_s, saturated.decode)
        base_s = self.grid.at(self.grid.base_s, saturated.decode)
        slowest = None if near.tpot_mean_s is None else max(near.tpot_mean_s, saturated.step_s)
        return self._point(
            rate_rps,
            stable=False,
            running=max(near.running, min(saturated.decode + saturated.rate_rps * own_s, float(self.limits.max_num_seqs))),
            waiting=None,
            decode_sequences=max(near.decode_sequences, saturated.decode),
            step_s=max(near.step_s, saturated.step_s),
            ttft_mean_s=None,
            ttft_p99_s=None,
            tpot_mean_s=slowest,
            tpot_p99_s=near.tpot_p99_s,
            decode_s=max(near.decode_s, self.grid.decode_steps * saturated.step_s),
            wait_share=1.0,
            prefill_share=max(1.0 - base_s / saturated.step_s, 0.0),
        )

    def _nothing_fits(self, rate_rps: float) -> OperatingPoint:
        """Not one mean sequence fits the KV cache."""
        return self._point(
            rate_rps,
            stable=False,
            running=0.0,
            waiting=None,
            decode_sequences=0.0,
            step_s=float(self.grid.base_s[0]),
            ttft_mean_s=None,
            ttft_p99_s=None,
            tpot_mean_s=None,
            tpot_p99_s=None,
            decode_s=0.0,
            wait_share=1.0,
            prefill_share=0.0,
        )

    def _point(self, rate_rps: float, **figures: float | bool | None) -> OperatingPoint:
        """Add what follows from the other figures."""
        decode, running = float(figures["decode_sequences"] or 0.0), float(figures["running"] or 0.0)
        traffic, limits = self.traffic, self.limits
        carried = min(rate_rps, self.saturated.rate_rps)
        half_block = limits.block_size / 2.0
        prefilling = max(running - decode, 0.0) * (traffic.work.q / 2.0 + half_block)
        kv_tokens = min(decode * (traffic.decode.context_mean + half_block) + prefilling, limits.kv_tokens)
        step_tokens = decode + carried * float(figures["step_s"] or 0.0) * traffic.work.q
        capacity = self.saturated.rate_rps
        return OperatingPoint(
            rate_rps=rate_rps,
            capacity_rps=capacity,
            utilisation=rate_rps / capacity if capacity > 0.0 else None,
            binds=self.saturated.binds,
            kv_tokens_used=kv_tokens,
            seqs_utilisation=min(running / limits.max_num_seqs, 1.0),
            kv_utilisation=kv_tokens / limits.kv_tokens,
            budget_utilisation=min(step_tokens / limits.max_num_batched_tokens, 1.0),
            **figures,  # type: ignore[arg-type]
        )


def mean_field(rate_rps: float, traffic: Traffic, limits: ReplicaLimits, coefficients: StepCoefficients) -> OperatingPoint:
    """Return the operating point of one replica at one arrival rate; see MeanField.at."""
    return MeanField(traffic, limits, coefficients).at(rate_rps)
