"""Reads GuideLLM's JSON report: one operating point a benchmark, from the times of its single requests where it holds them.

GuideLLM's time_per_output_token counts the time to the first token in (since 0.4), and its inter_token_latency weighs tokens, not
requests; the requests' own times give the usual figures.
"""

from typing import Any

from planner.calibration.importers.documents import Document, at, number, text_at
from planner.calibration.importers.figures import MS, checked_run, positive, stated_spread, times_of
from planner.calibration.importers.run import BenchmarkRun, Spread, Weight
from planner.errors import InputError

NAME = "GuideLLM"
_OPEN = {"poisson": "poisson", "constant": "constant", "async": "constant"}


def claims(document: Document) -> bool:
    """Say whether a document is a report of GuideLLM."""
    return at(document, "benchmarks", 0, "metrics") is not None


def read(document: Document, name: str) -> list[BenchmarkRun]:
    """Return the runs of a report."""
    benchmarks = at(document, "benchmarks")
    version = text_at(document, "metadata", "guidellm_version")
    model = text_at(document, "config", "spec", "backend", "model") or text_at(document, "args", "model")
    return [_run(item, f"{name}: benchmark {place}", (version, model)) for place, item in enumerate(benchmarks)]


def _run(benchmark: object, name: str, about: tuple[str | None, str | None]) -> BenchmarkRun:
    metrics = at(benchmark, "metrics")
    own = at(benchmark, "config", "backend", "model") or at(benchmark, "backend", "model")
    totals = at(metrics, "request_totals") or at(benchmark, "request_totals")
    prompts, outputs = _mean(metrics, "prompt_token_count"), _mean(metrics, "output_token_count")
    values: dict[str, Any] = {
        "tool": NAME,
        "tool_version": about[0],
        "model": own if isinstance(own, str) else about[1],
        "requests": int(number(at(totals, "successful"), f"{name}: requests") or 0),
        "failed": int(number(at(totals, "errored"), f"{name}: errored") or 0),
        "prompt_tokens": prompts,
        "output_tokens": outputs,
        "duration_s": positive(number(at(benchmark, "duration"), f"{name}: duration")),
        "ttft": _spread(metrics, "time_to_first_token_ms", MS),
        "tpot": _spread(metrics, "inter_token_latency_ms", MS, "token"),
        "e2e": _spread(metrics, "request_latency", 1.0),
        "requests_per_s": positive(_mean(metrics, "requests_per_second")),
        "output_tokens_per_s": positive(_mean(metrics, "output_tokens_per_second")),
        **_load(benchmark, name),
    }
    detail = _detail(benchmark, values["requests"], name)
    if detail is None:
        remark = "single requests aren't in the report, so that times per output token weigh tokens, not requests"
        return checked_run({**values, "remarks": (remark,)}, name)
    return checked_run(values | detail, name)


def _load(benchmark: object, name: str) -> dict[str, Any]:
    strategy = at(benchmark, "config", "strategy") or at(benchmark, "args", "strategy") or at(benchmark, "scheduler", "strategy")
    kind = text_at(strategy, "type_") or text_at(strategy, "kind") or "none"
    if kind == "synchronous":
        return {"arrivals": "closed", "concurrency": 1}
    if kind == "concurrent":
        streams = number(at(strategy, "streams"), f"{name}: streams")
        return {"arrivals": "closed", "concurrency": None if streams is None else int(streams)}
    if kind == "throughput":
        cap = number(at(strategy, "max_concurrency"), f"{name}: max_concurrency")
        return {"arrivals": "closed", "concurrency": int(cap)} if cap else {"arrivals": "burst"}
    if kind in _OPEN:
        return {"arrivals": _OPEN[kind], "rate_rps": positive(number(at(strategy, "rate"), f"{name}: rate"))}
    bound = "must be synchronous, concurrent, throughput, constant or poisson"
    raise InputError(f"{name}: strategy", kind, bound, "Run GuideLLM with one of these profiles")


def _mean(metrics: object, metric: str) -> float | None:
    return number(at(metrics, metric, "successful", "mean"), metric)


def _spread(metrics: object, metric: str, factor: float, weight: Weight = "request") -> Spread:
    found = at(metrics, metric, "successful")
    flat = {name: at(found, name) for name in ("mean", "median")} | {
        name: at(found, "percentiles", name) for name in ("p90", "p99")
    }
    return stated_spread(flat.get, ("mean", "median", "p90", "p99"), factor, weight)


def _detail(benchmark: object, completed: int, name: str) -> dict[str, Any] | None:
    """Return the figures of the successful requests; None when the report holds a sample of them only."""
    requests = at(benchmark, "requests", "successful")
    if not isinstance(requests, list) or len(requests) != completed or not completed:
        return None

    def column(field: str, factor: float = 1.0) -> list[float | None]:
        return [number(at(request, field), f"{name}: {field}", factor) for request in requests]

    sent = column("request_start_time")
    times = times_of(
        {
            "prompt_tokens": column("prompt_tokens"),
            "output_tokens": column("output_tokens"),
            "ttft_s": column("time_to_first_token_ms", MS),
            "e2e_s": column("request_latency"),
            "sent_s": None if any(value is None for value in sent) else sent,
        },
        [False] * len(requests),
        name,
    )
    return None if times is None else times.statistics()
