"""Reads inference-perf's stage reports (stage_N_lifecycle_metrics.json, summary_lifecycle_metrics.json), all times in seconds."""

from typing import Any

from planner.calibration.importers.documents import Document, at, number
from planner.calibration.importers.figures import checked_run, positive, stated_spread
from planner.calibration.importers.run import BenchmarkRun, Spread, Weight
from planner.errors import InputError

NAME = "inference-perf"


def claims(document: Document) -> bool:
    """Say whether a document is a report of a stage."""
    return at(document, "successes", "latency", "request_latency") is not None and "load_summary" in document


def is_server_side(document: Document) -> bool:
    """Say whether a document is the server's part of a report, whose lengths are sums of counters."""
    return "load_summary" in document and at(document, "successes", "queue_len") is not None


def read(document: Document, name: str) -> BenchmarkRun:
    """Return the run of one stage."""
    done, load = at(document, "successes"), at(document, "load_summary")
    count = number(at(done, "count"), f"{name}: count") or 0.0
    rate = positive(number(at(load, "requested_rate"), f"{name}: requested_rate"))
    rate = rate or positive(number(at(load, "achieved_rate"), f"{name}: achieved_rate"))
    concurrency = positive(number(at(load, "concurrency"), f"{name}: concurrency"))
    if rate is None and concurrency is None:
        raise InputError(f"{name}: load_summary", sorted(load)[:5], "must state a rate", "Give the report of one stage, not of all")
    served = positive(number(at(done, "throughput", "requests_per_sec"), f"{name}: requests_per_sec"))
    values: dict[str, Any] = {
        "tool": NAME,
        "requests": int(count),
        "failed": int(number(at(document, "failures", "count"), f"{name}: failures") or 0),
        "prompt_tokens": _mean(done, ("prompt_len", "prompt_tokens")),
        "output_tokens": _mean(done, ("output_len", "output_tokens")),
        "duration_s": positive(number(at(document, "benchmark_time_seconds"), name)) or (count / served if served else None),
        "ttft": _spread(done, "time_to_first_token"),
        "tpot": _spread(done, "time_per_output_token"),
        "itl": _spread(done, "inter_token_latency", "chunk"),
        "e2e": _spread(done, "request_latency"),
        "requests_per_s": served,
        "output_tokens_per_s": positive(number(at(done, "throughput", "output_tokens_per_sec"), f"{name}: output_tokens_per_sec")),
    }
    if rate is None:
        return checked_run(values | {"arrivals": "closed", "concurrency": int(concurrency or 0)}, name)
    remark = "the report doesn't say how arrivals are spaced: evenly, inference-perf's default, is assumed"
    return checked_run(values | {"arrivals": "constant", "rate_rps": rate, "remarks": (remark,)}, name)


def _mean(done: object, names: tuple[str, ...]) -> float | None:
    return next((value for name in names if (value := positive(number(at(done, name, "mean"), name)))), None)


def _spread(done: object, metric: str, weight: Weight = "request") -> Spread:
    found = at(done, "latency", metric)
    return stated_spread(found.get if isinstance(found, dict) else {}.get, ("mean", "median", "p90", "p99"), 1.0, weight)
