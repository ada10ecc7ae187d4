"""The largest arrival rate at which a replica meets its latency targets, by the mean-field model."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.errors import InputError
from planner.queueing.mean_field import MeanField, OperatingPoint
from planner.queueing.occupancy import Bound

LightBound = Literal["TTFT target", "TPOT target"]

_IDLE_SHARE = 1e-3
_NEARLY_FULL = 1.0 - 1e-6
_PRECISION = 1e-3
_ROUNDS = 40
_WORST_MISS = 1.0


class LatencyTargets(NamedTuple):
    """Targets at the 99th percentile; None leaves one open.

    ttft_p99_s : time to first token [s]; tpot_p99_s : time per output token after the first [s]
    """

    ttft_p99_s: float | None
    tpot_p99_s: float | None


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The largest rate that meets the targets.

    rate_rps : that rate [request/s]; None when not even a nearly idle replica meets them
    binds : the target or the engine's limit that stops it
    point : the operating point there; where no rate will do, that of the nearly idle replica
    """

    rate_rps: float | None
    binds: Bound | LightBound
    point: OperatingPoint


def largest_rate(model: MeanField, targets: LatencyTargets) -> RateLimit:
    """Return the largest arrival rate whose 99th percentiles meet the targets, to a thousandth of the capacity.

    Percentiles rise with the rate, so one crossing exists; false position with Illinois' rule finds it on the logarithm of the
    worse miss. Raises InputError for targets that are not above 0, and for a replica that can't hold one mean sequence.
    """
    for field, value in zip(LatencyTargets._fields, targets, strict=True):
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise InputError(f"targets.{field}", value, "must be finite and above 0", "Give seconds, or leave the target open")
    capacity = model.saturated.rate_rps
    if capacity <= 0.0:
        bound = f"must hold one mean sequence ({model.traffic.decode.context_mean:.0f} tokens)"
        raise InputError("engine.kv_tokens", model.limits.kv_tokens, bound, "Use more GPUs, fewer weight bits or a shorter context")
    low, high = capacity * _IDLE_SHARE, capacity * _NEARLY_FULL
    point = model.at(low)
    miss_low, binds = _miss(point, targets)
    if miss_low > 0.0:
        return RateLimit(None, binds, point)
    full = model.at(high)
    miss_high, binds = _miss(full, targets)
    if miss_high <= 0.0:
        return RateLimit(high, model.saturated.binds, full)
    side = 0
    for _ in range(_ROUNDS):
        if high - low <= _PRECISION * capacity:
            break
        middle = (low * miss_high - high * miss_low) / (miss_high - miss_low)
        middle = min(max(middle, low + 0.05 * (high - low)), high - 0.05 * (high - low))
        tried = model.at(middle)
        miss, bound = _miss(tried, targets)
        if miss > 0.0:
            high, miss_high, binds = middle, miss, bound
            miss_low, side = (miss_low / 2.0 if side > 0 else miss_low), 1
        else:
            low, miss_low, point = middle, miss, tried
            miss_high, side = (miss_high / 2.0 if side < 0 else miss_high), -1
    return RateLimit(low, binds, point)


def _miss(point: OperatingPoint, targets: LatencyTargets) -> tuple[float, LightBound]:
    """Return the logarithm of the worse ratio of percentile to target, at most 1, and the target it belongs to."""
    ratios: list[tuple[float, LightBound]] = [(-math.inf, "TTFT target")]
    if targets.ttft_p99_s is not None and point.ttft_p99_s is not None:
        ratios.append((math.log(point.ttft_p99_s / targets.ttft_p99_s), "TTFT target"))
    if targets.tpot_p99_s is not None and point.tpot_p99_s is not None:
        ratios.append((math.log(point.tpot_p99_s / targets.tpot_p99_s), "TPOT target"))
    worst, name = max(ratios, key=lambda pair: pair[0])
    return max(min(worst, _WORST_MISS), -_WORST_MISS), name
