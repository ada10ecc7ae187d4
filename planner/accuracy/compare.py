"""Sets a predicted figure beside each measured one, by metric."""

import math
from collections.abc import Mapping

from planner.accuracy.predict import Figures
from planner.calibration.measurements import Measurement

METRICS = ("tpot", "ttft", "throughput")
"""Metrics that every report has a place for, at the statistic that a row states: median before mean."""

TAILS = ("tpot_p99", "ttft_p99", "tpot_tail", "ttft_tail")
"""99th percentiles, and the same over the median: what a run adds to its own middle."""

# what a row states, in order of preference, and the predicted figure of the same kind; an unstated statistic counts as the mean
_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "tpot": (("tpot_p50_s", "tpot_p50_s"), ("tpot_mean_s", "tpot_mean_s"), ("tpot_s", "tpot_mean_s")),
    "ttft": (("ttft_p50_s", "ttft_p50_s"), ("ttft_mean_s", "ttft_mean_s"), ("ttft_s", "ttft_mean_s")),
    "throughput": (("output_tokens_per_s", "output_tokens_per_s"), ("requests_per_s", "requests_per_s")),
    "tpot_p99": (("tpot_p99_s", "tpot_p99_s"),),
    "ttft_p99": (("ttft_p99_s", "ttft_p99_s"),),
}
STALL = 4.0
"""p99 ÷ p90 of TTFT beyond which a few requests stalled: requests of equal lengths in one queue lie nearer together."""

ENDLESS = "TTFT: the predicted engine doesn't keep up, and the length of the run isn't stated"
STALLED = "p99 of TTFT: over four times the p90 of equal requests, as when a few meet a cold start"

PEER = {"tpot": "peer_tpot_s", "ttft": "peer_ttft_s"}


def stated(row: Measurement) -> dict[str, float]:
    """Return what a row measured by metric, in SI units; ratios of percentiles without unit."""
    figures: dict[str, float] = {}
    for metric, pairs in _PAIRS.items():
        value = next((value for name, _ in pairs if (value := getattr(row, name)) is not None), None)
        if value is not None:
            figures[metric] = value
    for metric in ("tpot", "ttft"):
        tail, middle = getattr(row, f"{metric}_p99_s"), getattr(row, f"{metric}_p50_s")
        if tail is not None and middle is not None:
            figures[f"{metric}_tail"] = tail / middle
    return figures


def foretold(row: Measurement, figures: Figures) -> dict[str, float]:
    """Return what is predicted for each figure that a row states, at the same statistic; figures without a value are left out."""
    found: dict[str, float] = {}
    for metric, pairs in _PAIRS.items():
        name = next((predicted for measured, predicted in pairs if getattr(row, measured) is not None), None)
        if name is not None:
            found[metric] = float(getattr(figures, name))
    for metric in ("tpot", "ttft"):
        if getattr(row, f"{metric}_p99_s") is not None and getattr(row, f"{metric}_p50_s") is not None:
            middle = float(getattr(figures, f"{metric}_p50_s"))
            found[f"{metric}_tail"] = float(getattr(figures, f"{metric}_p99_s")) / middle if middle != 0.0 else 1.0
    return {metric: value for metric, value in found.items() if not math.isnan(value)}


def stalled(row: Measurement) -> bool:
    """Say whether the p99 of a row's TTFT is that of a few requests which met something else than the others."""
    if row.scenario != "open-loop" or row.length_kind != "fixed" or row.ttft_p90_s is None or row.ttft_p99_s is None:
        return False
    return row.ttft_p99_s > STALL * row.ttft_p90_s


def errors_of(row: Measurement, figures: Figures) -> dict[str, float]:
    """Return predicted ÷ measured - 1 by metric [1]; what `not_compared` names is left out."""
    measured, predicted = stated(row), foretold(row, figures)
    left_out = {"ttft_p99", "ttft_tail"} if stalled(row) else set()
    return {metric: predicted[metric] / value - 1.0 for metric, value in measured.items() if metric in predicted.keys() - left_out}


def not_compared(row: Measurement, errors: Mapping[str, float]) -> tuple[str, ...]:
    """Return why figures that a predicted row states have no error."""
    endless = "ttft" in stated(row) and "ttft" not in errors
    return tuple(reason for reason, holds in ((ENDLESS, endless), (STALLED, stalled(row))) if holds)


def peer_errors_of(row: Measurement) -> dict[str, float]:
    """Return the same of another planner whose predictions a table holds [1]."""
    measured = stated(row)
    values = {metric: getattr(row, name) for metric, name in PEER.items()}
    return {metric: value / measured[metric] - 1.0 for metric, value in values.items() if value is not None and metric in measured}
