"""What changed settings do to the same requests: figures side by side, with the interval of their paired difference."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from planner.replay.run import Outcome, Replay
from planner.simulator import WARM_UP_SHARE, Estimate, over_replications, values_s
from planner.simulator.metrics import METRICS, Metric

Unit = Literal["s", "1", "count", "token", "request/s", "token/s"]
_BATCHES = 20
_FEWEST_BATCHES = 5
_LEAST_IN_TAIL = 2.0
_LEAST_CHANGE = 0.005


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both runs.

    difference : changed less planned, with a 95 % interval where the requests allow one
    better : whether the change is for the better; None where neither way is, where the interval holds zero, and below 0.5 %
    """

    name: str
    unit: Unit
    planned: float
    changed: float
    difference: Estimate
    better: bool | None

    @property
    def small(self) -> bool:
        """Whether the figures differ by at most 0.5 %."""
        return abs(self.changed - self.planned) <= _LEAST_CHANGE * max(abs(self.planned), abs(self.changed))


def differences(replay: Replay) -> tuple[Difference, ...]:
    """Return every figure of the planned and the changed run; empty where nothing was changed."""
    if replay.changed is None:
        return ()
    before, after = replay.planned, replay.changed
    latencies = [_latency(before, after, metric, q) for metric in METRICS for q in (50.0, 99.0)]
    a, b = before.summary, after.summary
    plain = [
        _plain("output rate", "token/s", a.output_tokens_per_s, b.output_tokens_per_s, more_is_better=True),
        _plain("running, mean", "count", before.result.averages.running, after.result.averages.running),
        _plain("KV cache in use, mean", "1", before.result.averages.kv_share, after.result.averages.kv_share),
        _plain("step, mean", "s", before.result.averages.step_s, after.result.averages.step_s),
        *(
            _plain(name, unit, _total(before, field), _total(after, field), more_is_better=good)
            for name, unit, field, good in _TOTALS
        ),
        _plain("rejected requests", "count", *(float(run.result.rejected.sum()) for run in (before, after)), more_is_better=False),
    ]
    if before.goodput is not None and after.goodput is not None:
        plain.insert(0, _plain("requests within all targets", "1", before.goodput.share, after.goodput.share, more_is_better=True))
    return (*latencies, *plain)


_TOTALS: tuple[tuple[str, Unit, str, bool | None], ...] = (
    ("preemptions", "count", "preemptions", False),
    ("recomputed tokens", "token", "recomputed_tokens", False),
    ("wasted rows", "count", "wasted_rows", False),
    ("prefix hits", "token", "prefix_hit_tokens", True),
)


def paired_difference(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64], percentile: float) -> Estimate:
    """Return the difference of a percentile over the same requests, after less before, in the values' unit.

    before, after : one value for each request, by arrival; requests with NaN in either are left out

    The interval is Student's t over the differences of consecutive batches: what the requests do to both runs alike cancels. None
    where fewer than five batches hold two values above the percentile.
    """
    both = np.isfinite(before) & np.isfinite(after)
    before, after = before[both], after[both]
    if len(before) == 0:
        return Estimate(float("nan"))
    value = float(np.percentile(after, percentile) - np.percentile(before, percentile))
    least = max(10, int(np.ceil(100.0 * _LEAST_IN_TAIL / (100.0 - percentile))))
    count = min(_BATCHES, len(before) // least)
    if count < _FEWEST_BATCHES:
        return Estimate(value)
    size = len(before) // count
    rows = [values[len(values) - count * size :].reshape(count, size) for values in (before, after)]
    scatter = over_replications((np.percentile(rows[1], percentile, axis=1) - np.percentile(rows[0], percentile, axis=1)).tolist())
    if scatter.low is None or scatter.high is None:
        return Estimate(value)
    half = 0.5 * (scatter.high - scatter.low)
    return Estimate(value, value - half, value + half)


def _latency(before: Outcome, after: Outcome, metric: Metric, percentile: float) -> Difference:
    first = int(WARM_UP_SHARE * len(before.client.arrival_s))
    difference = paired_difference(values_s(before.client, metric)[first:], values_s(after.client, metric)[first:], percentile)
    known = [run.summary.distribution(metric).percentiles[percentile].value for run in (before, after)]
    name = f"p{percentile:g} {'queue time' if metric == 'queue' else metric.upper()}"
    return _judged(Difference(name, "s", known[0], known[1], difference, None), more_is_better=False)


def _plain(name: str, unit: Unit, before: float, after: float, *, more_is_better: bool | None = None) -> Difference:
    return _judged(Difference(name, unit, before, after, Estimate(after - before), None), more_is_better=more_is_better)


def _judged(found: Difference, *, more_is_better: bool | None) -> Difference:
    if more_is_better is None or found.small:
        return found
    return replace(found, better=_is_better(found.difference, more_is_better=more_is_better))


def _is_better(difference: Estimate, *, more_is_better: bool) -> bool | None:
    low = difference.value if difference.low is None else difference.low
    high = difference.value if difference.high is None else difference.high
    if not low * high > 0.0:
        return None
    return (difference.value > 0.0) == more_is_better


def _total(run: Outcome, field: str) -> float:
    return float(getattr(run.result.totals, field))
