"""How many sequences run: what a replica can carry at most, and the law of their number below that."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.queueing.step_grid import StepGrid, mean_steps
from planner.queueing.traffic import Floats

Bound = Literal["max_num_seqs", "KV cache", "token budget"]

_ROUNDS = 8
_LEAST = 1e-12
_MOST = 700.0


@dataclass(frozen=True, slots=True)
class Saturation:
    """The most that a replica carries.

    rate_rps : requests a second that it completes with a queue that never empties [request/s]
    binds : what stops it; decode : sequences that decode then [seq]; step_s : mean step then [s]
    """

    rate_rps: float
    binds: Bound
    decode: float
    step_s: float


def saturation(grid: StepGrid) -> Saturation:
    """Return the capacity of a replica without any latency target.

    With the queue never empty, each step admits as many requests as it completes, decode / decode steps. When all slots are filled
    first, the rate is that at full slots; otherwise steps fill up to the token budget, whose tokens each request needs in
    proportion to its prompt and decode steps. Fewer slots carry at most what such full steps do. With a KV cache that binds,
    sequences grow into room that isn't there: each token that grows between two completions is taken from the youngest sequence
    and computed again (recompute preemption), so that prefill does so much more.
    """
    steps, work, limits = grid.decode_steps, grid.traffic.work, grid.limits
    by_budget = limits.max_num_batched_tokens * steps / (work.q + steps)
    admitted = grid.decode / steps
    prefilled = admitted * (1.0 + grown_tokens(grid.decode, steps) / work.q) if grid.kv_binds else admitted
    mean_s, mixed_s = mean_steps(grid, prefilled)
    for _ in range(_ROUNDS):
        mean_s, mixed_s = mean_steps(grid, prefilled, mean_s)
    in_service = grid.decode + admitted * grid.chunks_mean * mixed_s / mean_s
    by_slots = float(np.interp(grid.slots, in_service, grid.decode))
    left = limits.max_num_batched_tokens - by_budget
    full_s = float(grid.step_s(by_budget, left, left * work.r / work.q, 1.0))
    full_rps = left / (work.q * full_s)
    if by_budget < by_slots:
        return Saturation(full_rps, "token budget", by_budget, full_s)
    step_s = float(np.interp(by_slots, grid.decode, mean_s))
    rate_rps = min(by_slots / (steps * step_s), full_rps) if grid.slots >= 1.0 else 0.0
    return Saturation(rate_rps, "KV cache" if grid.kv_binds else "max_num_seqs", by_slots, step_s)


def grown_tokens(decode: Floats, decode_steps: float) -> Floats:
    """Return the tokens by which decoding sequences grow until one of them completes [token].

    decode : sequences that decode [seq]; decode_steps : mean decode steps of a request [step]

    A step completes one with chance 1 - exp(-decode / steps), so that (exp(decode/steps) - 1)^-1 steps pass first: about
    decode_steps tokens with few sequences, almost none with many.
    """
    return np.where(decode > 0.0, decode / np.expm1(np.clip(decode / decode_steps, _LEAST, _MOST)), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """The stationary law of the number of decoding sequences, on the grid.

    weights : as time sees it; arrival_weights : as a request sees it over its own decode, itself included [1]
    decode_mean : mean decoding sequences [seq]
    wait_share : share of arrivals that find every slot or all KV taken [1]; wait_s : how long those wait in the mean [s]
    """

    weights: Floats
    arrival_weights: Floats
    decode_mean: float
    wait_share: float
    wait_s: float

    def mean(self, values: Floats) -> float:
        """Return the time mean of a grid quantity."""
        return float(self.weights @ values)

    def variance(self, values: Floats) -> float:
        """Return the variance of a grid quantity over time."""
        return max(float(self.weights @ values**2) - self.mean(values) ** 2, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class DecodeFlow:
    """What the law of the occupancy depends on, by grid point.

    residence_s : mean time that a request decodes [s]; slots : decoding sequences at which arrivals start to wait [seq]
    peakedness : variance of the arrivals' effect on the occupancy against that of plain Poisson arrivals [1]
    """

    rate_rps: float
    residence_s: Floats
    slots: float
    peakedness: Floats


def occupancy(grid: StepGrid, flow: DecodeFlow, saturated: Saturation) -> Occupancy:
    """Return the law of the number of decoding sequences at a rate below saturation.

    All sequences share the engine, which completes n / residence(n) of them a second: a symmetric queue, whose law with Poisson
    arrivals is p(n) ~ product of rate·residence(i)/i whatever the law of the lengths (Kelly, Reversibility and Stochastic Networks,
    1979, chapter 3). Other noise than Poisson's scales the variance: each factor is taken to the power 1/peakedness, which is the
    diffusion limit. Beyond the slots the completions stay at the saturation rate, so that a queue with a geometric tail forms;
    its ratio z·ρ/(1-ρ+z·ρ), with z = (a²+c²)/2 and ρ = rate/saturation, gives those who wait Allen and Cunneen's mean wait. Where
    the KV cache binds, contexts of random size widen the law (a compound count) and what a request occupies is KV × time.
    """
    traffic = grid.traffic
    last = max(flow.slots, 1.0)
    states = np.arange(1, int(np.ceil(last)) + 1)
    part = last - np.ceil(last) + 1.0
    log_ratio = np.log(flow.rate_rps * np.interp(states, grid.decode, flow.residence_s) / states)
    spread = np.interp(states, grid.decode, flow.peakedness)
    service_cv2 = traffic.decode.kv_work_cv2 if grid.kv_binds else traffic.decode.output_cv2
    rho = flow.rate_rps / saturated.rate_rps
    queued = (traffic.arrival_cv2 + service_cv2) / 2.0 * rho
    ratio = 0.0 if saturated.binds == "token budget" else queued / (1.0 - rho + queued)
    law, beyond = _normalised(log_ratio / spread, ratio, part)
    wider = spread + (traffic.decode.context_cv2 if grid.kv_binds else 0.0)
    wait_share = _normalised(log_ratio / wider, ratio, part)[1] / ratio if ratio > 0.0 else 0.0
    wait_share = min(wait_share, 1.0)
    numbers = np.concatenate([[0.0], states])
    weights = _on_grid(grid, numbers, law)
    weights += beyond * _on_grid(grid, np.array([last]), np.ones(1))
    seen = numbers * law
    seen[-1] += beyond * last
    seen = seen / np.maximum(np.interp(numbers, grid.decode, flow.residence_s), _LEAST)
    seen = seen / seen.sum() if seen.sum() > 0.0 else law / law.sum()
    decode_mean = float(numbers @ law + beyond * last)
    wait_s = ratio / ((1.0 - ratio) * flow.rate_rps)
    return Occupancy(weights, _on_grid(grid, numbers, seen), decode_mean, wait_share, wait_s)


def _normalised(log_ratio: Floats, tail_ratio: float, part: float) -> tuple[Floats, float]:
    """Return the law whose successive ratios are given, and the weight of a geometric tail beyond its last state.

    part : how much of the last state exists [1], so that the law moves smoothly with a fractional number of slots
    """
    logs = np.concatenate([[0.0], np.cumsum(log_ratio)])
    law = np.exp(logs - logs.max())
    edge = float((1.0 - part) * law[-2] + part * law[-1])
    law[-1] *= part
    tail = edge * tail_ratio / (1.0 - tail_ratio)
    total = float(law.sum()) + tail
    return law / total, tail / total


def _on_grid(grid: StepGrid, numbers: Floats, law: Floats) -> Floats:
    """Spread weights of whole numbers over the neighbouring grid points, so that linear quantities keep their mean."""
    weights = np.zeros_like(grid.decode)
    if len(grid.decode) == 1:
        weights[0] = law.sum()
        return weights
    lower = np.clip(np.searchsorted(grid.decode, numbers, side="right") - 1, 0, len(grid.decode) - 2)
    share = np.clip((numbers - grid.decode[lower]) / (grid.decode[lower + 1] - grid.decode[lower]), 0.0, 1.0)
    np.add.at(weights, lower, law * (1.0 - share))
    np.add.at(weights, lower + 1, law * share)
    return weights
