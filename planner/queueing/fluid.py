"""Bounds on a replica in a tenth of a millisecond: what it completes at most, and what a request takes at least.

They stand before the mean-field model, whose fixed points cost twenty times as much, where many candidates are put in order.
"""

from typing import NamedTuple

import numpy as np

from planner.queueing.step_grid import Prefill, ReplicaLimits, check_limits, shape_of, slots_of
from planner.queueing.traffic import Traffic
from planner.step_model import StepCoefficients, StepShape, step_s

_POINTS = 160
_LEAST_DECODE = 0.05
_FEWEST_DECODE_STEPS = 1e-6
_TAIL = 0.99


class FluidLimit(NamedTuple):
    """What a replica completes when prefill is spread evenly over its steps [request/s].

    rate_rps : at most, whatever the latencies; 0 when it can't hold one mean sequence
    within_rps : at most while a step takes no longer than the target for the time per output token; 0 when none does
    """

    rate_rps: float
    within_rps: float


class Floor(NamedTuple):
    """What 99 % of the requests can't stay below even alone on the replica [s]."""

    ttft_s: float
    tpot_s: float


def fluid_limit(traffic: Traffic, limits: ReplicaLimits, c: StepCoefficients, tpot_s: float | None = None) -> FluidLimit:
    """Return the largest rates that the mean flow of tokens allows.

    tpot_s : target for the time per output token [s]; None for none

    n decoding sequences leave n/s requests in every step, s being the mean decode steps of a request, so that a step carries the
    prefill of n/s prompts and takes T(n); the rate is n/(s·T(n)). T is convex in the prefill tokens where weights and FLOPs
    overlap, hence real steps, some with prefill and some without, take as long or longer on average. Requests that all exceed the
    mean, or a run too short to reach the mean context, can beat it: give it a margin. Raises InputError for limits that no engine
    accepts.
    """
    slots, _ = slots_of(traffic, check_limits(limits))
    steps = max(traffic.decode.steps_mean, _FEWEST_DECODE_STEPS)
    if slots < 1.0:
        return FluidLimit(0.0, 0.0)
    decode = np.geomspace(_LEAST_DECODE, slots, _POINTS)
    prompts = decode / steps
    fits = decode + prompts * traffic.work.q <= limits.max_num_batched_tokens
    if not fits.any():
        decode, prompts, fits = decode[:1], decode[:1] / steps, np.ones(1, np.bool_)
    prefill = Prefill(prompts * traffic.work.q, prompts * traffic.work.r, np.minimum(prompts, 1.0))
    times_s = np.asarray(step_s(shape_of(traffic, c, decode, prefill), c))
    rates = prompts / times_s
    quick = fits if tpot_s is None else fits & (times_s <= tpot_s)
    return FluidLimit(float(rates[fits].max()), float(rates[quick].max(initial=0.0)))


def lone_floor(traffic: Traffic, c: StepCoefficients) -> Floor:
    """Return what one request in a hundred exceeds on an idle replica: a prompt of the 99th percentile in one step, then a decode
    step at that context. Sliding windows and chunks only lengthen the first; the second leaves windowed layers out.
    """
    prompts = traffic.prompts
    before = np.cumsum(prompts.weights) - prompts.weights
    tail = max(int(np.searchsorted(before, _TAIL * (1.0 - 1e-9), side="left")) - 1, 0)
    tokens, pairs = float(prompts.tokens[tail]), float(prompts.pairs[tail])
    prefill = StepShape(tokens, 1.0, 1.0, prefill_pairs=0.0 if c.window_tokens else pairs)
    decode = StepShape(1.0, 1.0, 1.0, 1.0, decode_context_tokens=tokens)
    return Floor(float(step_s(prefill, c)), float(step_s(decode, c)))
