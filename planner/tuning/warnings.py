"""What a user should know before trusting a fit to benchmarks, in sentences."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from planner.calibration.schema import EFFICIENCIES, bounds_of
from planner.tuning.observations import Observed
from planner.tuning.results import FitPoint, FittedValue

_FEW_REQUESTS = 100
_POOR_PCT = 10.0
_WORSE = 2.0
_FAILED_SHARE = 0.02
_NEAR_BOUND = 1.005
_FAR_SDS = 2.5
_SPAN = 4.0
_LEAST_WIDTH = 0.2
_RATES = {*EFFICIENCIES, "attention_efficiency", "kv_read_efficiency", "activation_bandwidth_fraction"}
_End = Literal["fastest", "slowest"]


def warnings_of(items: Sequence[Observed], points: Sequence[FitPoint], values: Sequence[FittedValue]) -> tuple[str, ...]:
    """Return what deserves a look: the loads, the requests, the fit and its parameters."""
    return (*_of_loads(items), *_of_errors(points), *of_parameters(values))


def _of_loads(items: Sequence[Observed]) -> list[str]:
    found = []
    in_flight = [item.sequences for item in items]
    if max(in_flight) < _SPAN * max(min(in_flight), 1e-9):
        found.append("All loads are alike: a second one, four times as high or more, tells weights, cache and constants apart.")
    few = [item.run.label for item in items if item.run.requests < _FEW_REQUESTS]
    if few:
        found.append(f"Fewer than {_FEW_REQUESTS} requests at {_named(few)}: chance moves such figures by several percent.")
    means = [item.run.label for item in items if item.run.detail is None]
    if means:
        found.append(f"Only mean lengths are known at {_named(means)}: tails depend on how lengths vary, which isn't in the file.")
    failed = [item.run.label for item in items if item.run.failed > _FAILED_SHARE * (item.run.requests + item.run.failed)]
    if failed:
        found.append(f"Requests failed at {_named(failed)}: the load was lower than stated.")
    full = [item.run.label for item in items if item.run.saturated]
    if full:
        found.append(f"More was offered than served at {_named(full)}: first tokens there depend on the length of the run.")
    return found


def _of_errors(points: Sequence[FitPoint]) -> list[str]:
    after = [100.0 * abs(point.after / point.measured - 1.0) for point in points if point.statistic != "p99"]
    held = [
        100.0 * abs(point.held_out / point.measured - 1.0)
        for point in points
        if point.held_out is not None and point.statistic != "p99"
    ]
    found = []
    if after and float(np.median(after)) > _POOR_PCT:
        found.append(f"The fit misses its own figures by {np.median(after):.0f} % (median): check GPU, model and engine settings.")
    if held and float(np.median(held)) > max(_WORSE * float(np.median(after)), _POOR_PCT):
        found.append(f"Loads that the fit hasn't seen are missed by {np.median(held):.0f} % (median): measure loads in between.")
    return found


def of_parameters(values: Sequence[FittedValue]) -> list[str]:
    """Return what deserves a look in the parameters: those at a bound, and those far from the prior's interval."""
    ends: dict[_End | None, list[str]] = {"fastest": [], "slowest": [], None: []}
    for value in values:
        end = _end(value)
        if end is not None or _distance(value) > _FAR_SDS:
            ends[end].append(value.path)
    return [_ENDS[end].format(_named(paths)) for end, paths in ends.items() if paths]


_ENDS: dict[_End | None, str] = {
    "fastest": "At a physical bound: {}. The data ask for more than the hardware can do: check what was measured.",
    "slowest": (
        "At the slowest that a fit allows: {}. The measured times are longer than this hardware explains: check clocks, what else "
        "ran on it, and that GPU, model and layout are the measured ones."
    ),
    None: "Far outside what other measurements of such a GPU say: {}. Check clocks, model and engine settings.",
}


def _end(value: FittedValue) -> _End | None:
    """Return at which end of its range a parameter stands; None for one inside, or at an end where nothing is amiss.

    A larger rate is faster and a larger constant is slower. Reads no dearer beside prefill (mix_factor 1), uniform routing and no
    overlap are ordinary.
    """
    lowest, highest = bounds_of(value.path)
    low, high = lowest > 0.0 and value.value <= lowest * _NEAR_BOUND, value.value >= highest / _NEAR_BOUND
    if value.path in {"expert_spread", "smoothness"} or not (low or high):
        return None
    if value.path.partition(".")[0] in _RATES or value.path.endswith("bytes_per_s"):
        return "fastest" if high else "slowest"
    return "slowest" if high else None


def _distance(value: FittedValue) -> float:
    """Return how many half-widths of the prior's interval a value lies from the prior's [1]."""
    if min(value.value, value.prior_low, value.prior_value) <= 0.0:
        return 0.0
    end = value.prior_high if value.value > value.prior_value else value.prior_low
    width = abs(math.log(end / value.prior_value))
    return abs(math.log(value.value / value.prior_value)) / max(width, _LEAST_WIDTH)


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
