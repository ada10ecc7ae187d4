"""What a request costs outside the engine, from the first token of requests that had the engine to themselves."""

import datetime as dt
from typing import NamedTuple

import numpy as np

from planner.calibration.collected import Collected
from planner.calibration.collected_rows import Point, Step, Ttft
from planner.calibration.records import Parameter
from planner.provenance import Source


class RequestTime(NamedTuple):
    """Median, smallest and largest time outside the engine [s], and the requests that it was seen on."""

    median_s: float
    low_s: float
    high_s: float
    requests: int


def request_time_of(collected: Collected) -> RequestTime | None:
    """Return what lone requests spent outside the engine before their first token; None where the file has none.

    A lone request's TTFT less the time from the first decision of its burst to the result that ended its prompt.
    """
    lone = {row.prompt_tokens: row.key for row in collected.of(Point) if row.sequences == 1}
    steps = collected.of(Step)
    outside = []
    for row in collected.of(Ttft):
        burst = [step for step in steps if step.point == lone.get(int(row.prompt_tokens))]
        ended = [step.output_at_s for step in burst if any(run.ends for run in step.prefill)]
        if ended:
            outside.append(row.median_s - (min(ended) - burst[0].scheduled_at_s))
    outside = [seconds for seconds in outside if seconds > 0.0]
    if not outside:
        return None
    return RequestTime(float(np.median(outside)), min(outside), max(outside), len(outside))


def request_parameter(measured: RequestTime, source: str, day: dt.date) -> Parameter:
    """Return the time outside the engine as a parameter of a record; source : the measurements, in words; day : of the fit."""
    ref = f"TTFT of {measured.requests} lone requests less their steps: {source}"
    origin = Source(kind="measured", ref=ref[:1000], retrieved=day, confidence="high" if measured.requests > 2 else "medium")
    value, low, high = (float(f"{seconds:.4g}") for seconds in (measured.median_s, measured.low_s, measured.high_s))
    return Parameter(value=value, low=low, high=high, informed_by="data", source=origin)
