"""Reads AIPerf's profile_export.jsonl, one record a request, as one run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.calibration.importers.aiperf import NAME
from planner.calibration.importers.documents import Document, at, number
from planner.calibration.importers.figures import RequestTimes, checked_run, times_of
from planner.calibration.importers.run import BenchmarkRun
from planner.errors import InputError

_NS = 1e-9
_MS = 1e-3
_STEADY = 0.75
"""Requests whose mean number in flight reaches this share of the most at once were sent in a closed loop."""


def claims(document: Document) -> bool:
    """Say whether a document is the record of one request."""
    return at(document, "metadata", "request_start_ns") is not None and at(document, "metrics") is not None


def read(documents: Sequence[Document], name: str) -> BenchmarkRun:
    """Return the run of a file's records; those of the warm-up are left out.

    The file doesn't state the load: a number in flight that stays near its maximum is a closed loop, else arrivals are replayed.
    """
    kept = [item for item in documents if at(item, "metadata", "benchmark_phase") in {None, "profiling"}]

    def column(field: str, factor: float) -> list[float | None]:
        return [number(at(item, "metrics", field, "value"), f"{name}: {field}", factor) for item in kept]

    prompts = _first(column("usage_prompt_tokens", 1.0), column("input_sequence_length", 1.0))
    outputs = _first(column("usage_completion_tokens", 1.0), column("output_sequence_length", 1.0))
    failed = [bool(item.get("error")) or at(item, "metadata", "was_cancelled") is True for item in kept]
    starts = [number(at(item, "metadata", "request_start_ns"), f"{name}: request_start_ns", _NS) for item in kept]
    times = times_of(
        {
            "prompt_tokens": prompts,
            "output_tokens": outputs,
            "ttft_s": column("time_to_first_token", _MS),
            "e2e_s": column("request_latency", _MS),
            "sent_s": starts,
        },
        failed,
        name,
    )
    if times is None:
        raise InputError(name, len(documents), "records hold no request that completed", "Give a run whose requests succeeded")
    load = _load(times, name)
    values = {"tool": NAME, "failed": sum(failed), **times.statistics(), **load, "remarks": (*load["remarks"], *times.remarks)}
    return checked_run(values, name)


def _first(one: list[float | None], other: list[float | None]) -> list[float | None]:
    return [b if a is None else a for a, b in zip(one, other, strict=True)]


def _load(times: RequestTimes, name: str) -> dict[str, Any]:
    if times.sent_s is None:
        raise InputError(f"{name}: request_start_ns", None, "must be stated of every request", "Export the records again")
    start, end = times.sent_s, times.sent_s + times.e2e_s
    order = np.argsort(np.concatenate([end, start]), kind="stable")
    in_flight = np.cumsum(np.concatenate([-np.ones(len(end)), np.ones(len(start))])[order])
    most = int(max(in_flight.max(), 1))
    span_s = float(end.max() - start.min())
    figures = {
        "duration_s": span_s,
        "requests_per_s": len(start) / span_s,
        "output_tokens_per_s": float(times.output_tokens.sum()) / span_s,
    }
    if float(times.e2e_s.sum()) / span_s >= _STEADY * most:
        remark = f"the records don't state the load: {most} in flight, as many as there were at once"
        return {"arrivals": "closed", "concurrency": most, "remarks": (remark,), **figures}
    remark = "the records don't state the load: the recorded times of sending are replayed"
    rate = len(start) / max(float(start.max() - start.min()), 1e-3)
    return {"arrivals": "poisson", "rate_rps": rate, "remarks": (remark,), **figures}
