"""Part of the compiled loop: a step's time, whose costly parts are remembered."""

import math
from typing import NamedTuple

from planner.simulator import layout as n
from planner.simulator.compiled import hot
from planner.simulator.layout import State
from planner.step_model import StepCoefficients, StepShape, exposed_host_s, head_s, host_s, linear_s, weights_s


@hot
def _linear(k: State, c: StepCoefficients, tokens: int) -> float:
    """Return the linear layers' time, computed once for each number of tokens [s]; and note which side of it is longer."""
    if math.isnan(k.memo[n.LINEAR, tokens]):
        k.memo[n.LINEAR, tokens] = linear_s(float(tokens), c)
        k.memo[n.COMPUTE_BOUND, tokens] = 1.0 if weights_s(float(tokens), c) < c.linear_s_per_token * tokens else 0.0
    time_s: float = k.memo[n.LINEAR, tokens]
    return time_s


@hot
def _head(k: State, c: StepCoefficients, sampled: int) -> float:
    if math.isnan(k.memo[n.HEAD, sampled]):
        k.memo[n.HEAD, sampled] = head_s(float(sampled), c)
    time_s: float = k.memo[n.HEAD, sampled]
    return time_s


@hot
def shape_of(k: State) -> StepShape:
    """Return the step being decided as the sums that its time depends on."""
    rows = k.g[n.DECODING]
    context = k.g[n.SUM_BASE] + rows * k.g[n.STEP]
    return StepShape(
        float(rows + k.g[n.CHUNK_TOKENS]),
        float(rows + k.g[n.COMPLETED]),
        float(rows + k.g[n.CHUNK_ROWS]),
        float(rows),
        float(context),
        float(k.g[n.WINDOW_SUM]),
        k.f[n.PAIRS],
        k.f[n.WINDOW_PAIRS],
        float(k.g[n.CHUNK_CONTEXT]),
    )


class Fixed(NamedTuple):
    """The parts of a step's time that its attention leaves alone [s].

    before, per_token : what is added before attention, and after it beside the all-reduces' latency
    reads, compute : of these, what bandwidth and FLOP/s take; communication : all-reduces
    host, exposed : CPU time that overlaps, and that doesn't
    """

    before: float
    per_token: float
    reads: float
    compute: float
    communication: float
    host: float
    exposed: float


@hot
def fixed_parts(k: State, c: StepCoefficients, shape: StepShape) -> Fixed:
    """Return the parts of a step, or of many that schedule as many tokens for as many sequences."""
    tokens = int(shape.scheduled_tokens)
    linear = _linear(k, c, tokens)
    head = _head(k, c, int(shape.sampled_tokens))
    reads = head + c.activation_s_per_token * tokens
    computes = k.memo[n.COMPUTE_BOUND, tokens] > 0.0
    return Fixed(
        c.layers_s + linear + head,
        (c.activation_s_per_token + c.all_reduce_s_per_token) * tokens,
        reads if computes else reads + linear,
        linear if computes else 0.0,
        c.all_reduce_s + c.all_reduce_s_per_token * tokens,
        float(host_s(shape.sequences, c)),
        float(exposed_host_s(shape.sequences, c)),
    )


@hot
def step_duration(c: StepCoefficients, fixed: Fixed, decode: float, prefill: float) -> tuple[float, int]:
    """Return a step's time [s] and what binds it, as `step_model.step_time` does; decode, prefill : attention [s]."""
    gpu = fixed.before + decode + prefill + fixed.per_token + c.all_reduce_s
    resource = n.BANDWIDTH
    most = fixed.reads + decode
    if fixed.compute + prefill > most:
        resource, most = n.COMPUTE, fixed.compute + prefill
    if fixed.communication > most:
        resource, most = n.COMMUNICATION, fixed.communication
    if c.layers_s > most:
        resource, most = n.LAUNCH, c.layers_s
    if c.host_overlap == 1.0:
        if fixed.host > gpu:
            return float(fixed.host + fixed.exposed), n.HOST
        return float(gpu + fixed.exposed), (n.HOST if fixed.exposed > most else resource)
    return float(gpu + fixed.host + fixed.exposed), (n.HOST if fixed.host + fixed.exposed > most else resource)
