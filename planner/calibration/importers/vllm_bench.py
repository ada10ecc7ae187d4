"""Reads results of `vllm bench serve`: one JSON object a run, summaries in milliseconds, single requests in seconds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.calibration.importers.documents import Document, at, number, numbers, text_at
from planner.calibration.importers.figures import MS, checked_run, figure, positive, spread_of, stated_spread, times_of
from planner.calibration.importers.run import Arrivals, BenchmarkRun, Spread
from planner.errors import InputError

NAME = "vllm bench serve"
_ENGINES = {"vllm": "vllm", "vllm-chat": "vllm", "sglang": "sglang", "tensorrt-llm": "tensorrt-llm"}
_SETTINGS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
_SUMMARY_AGREES = 0.05
_MOST_DIGITS = 9
_AT_ONCE_SHARE = 0.1  # of a run; a burst of thousands leaves its client within seconds


def claims(document: Document) -> bool:
    """Say whether a document is a result of vllm bench serve."""
    return {"total_token_throughput", "request_rate"} <= set(document)


def is_other_vllm(document: Document) -> bool:
    """Say whether a document is a result of vllm bench latency or throughput, which lack the lengths."""
    return {"avg_latency", "percentiles"} <= set(document) or {"elapsed_time", "total_num_tokens"} <= set(document)


def read(document: Document, name: str) -> BenchmarkRun:
    """Return the run of one result."""
    completed = figure(document, "completed") or 0.0
    if completed < 1.0:
        raise InputError(f"{name}: completed", completed, "must be 1 or more", "Give a run whose requests succeeded")
    totals = {side: figure(document, f"total_{side}_tokens") for side in ("input", "output")}
    summary: dict[str, Any] = {
        "tool": NAME,
        "date": text_at(document, "date"),
        "label": text_at(document, "label"),
        "engine": _ENGINES.get(text_at(document, "backend") or ""),
        "model": text_at(document, "model_id"),
        "gpu": text_at(document, "gpu"),
        "tp": _whole(document, "tp"),
        "engine_version": text_at(document, "engine_version"),
        "settings": {
            **{name: text_at(document, name) for name in ("quantization", "kv_dtype")},
            **{setting: _whole(document, setting) for setting in _SETTINGS},
        },
        "requests": int(completed),
        "speculative": bool(at(document, "spec_decode_acceptance_length")),
        "failed": int(figure(document, "failed") or max(0.0, (figure(document, "num_prompts") or 0.0) - completed)),
        "prompt_tokens": positive((totals["input"] or 0.0) / completed),
        "output_tokens": positive((totals["output"] or 0.0) / completed),
        "duration_s": positive(figure(document, "duration")),
        "requests_per_s": positive(figure(document, "request_throughput")),
        "output_tokens_per_s": positive(figure(document, "output_throughput")),
        "ttft": _stated(document, "ttft"),
        "tpot": _stated(document, "tpot"),
        "itl": _stated(document, "itl").model_copy(update={"weight": "chunk"}),
        "e2e": _stated(document, "e2el") or _of_latencies(document, name),
        **load_of(document, name),
    }
    remarks = ["prompt and output lengths are means: single requests aren't in the file (--save-detailed)"]
    detail = _detail(document, name)
    if detail is not None:
        _compare(summary["ttft"], detail["ttft"], name)
        remarks = list(detail.pop("remarks"))
        summary |= detail
        summary |= _of_trace(summary)
    if at(document, "ramp_up_strategy") and (detail is None or detail["detail"].sent_s is None):
        raise InputError(
            f"{name}: ramp_up_strategy", document["ramp_up_strategy"], "changes the load during the run", "Hold one rate"
        )
    return checked_run({**summary, "remarks": tuple(remarks)}, name)


def load_of(document: Document, name: str) -> dict[str, Any]:
    """Return the fields of the load: a rate with its burstiness, a fixed number in flight, or all at once."""
    stated = at(document, "request_rate")
    rate = None if isinstance(stated, str) else positive(number(stated, f"{name}: request_rate"))
    cap = positive(figure(document, "max_concurrency"))
    concurrency = None if cap is None else int(cap)
    if rate is None:
        arrivals: Arrivals = "burst" if concurrency is None else "closed"
        return {"arrivals": arrivals, "concurrency": concurrency}
    shape = at(document, "burstiness")
    endless = isinstance(shape, str) and shape.casefold() in {"inf", "infinity"}
    burstiness = None if endless else positive(number(shape, f"{name}: burstiness"))
    arrivals = "constant" if endless else "gamma" if burstiness not in {None, 1.0} else "poisson"
    return {"arrivals": arrivals, "rate_rps": rate, "burstiness": burstiness, "concurrency": concurrency}


def _of_trace(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the load of a replayed trace: the tool states a rate without end, and sends the requests apart all the same."""
    sent_s, lasted_s = summary["detail"].sent_s, summary["duration_s"]
    if summary["arrivals"] != "burst" or sent_s is None or lasted_s is None:
        return {}
    offering_s = sent_s[-1] - sent_s[0]
    if offering_s < _AT_ONCE_SHARE * lasted_s:
        return {}
    return {"arrivals": "trace", "rate_rps": (len(sent_s) - 1) / offering_s}


def _stated(document: Document, metric: str) -> Spread:
    names = (f"mean_{metric}_ms", f"median_{metric}_ms", f"p90_{metric}_ms", f"p99_{metric}_ms")
    return stated_spread(document.get, names, MS)


def _of_latencies(document: Document, name: str) -> Spread:
    """Recent releases keep each request's latency even without details."""
    latencies = numbers(document.get("latencies"), f"{name}: latencies") or []
    return spread_of(np.array([value for value in latencies if value]))


def _detail(document: Document, name: str) -> dict[str, Any] | None:
    ttfts, gaps = numbers(document.get("ttfts"), f"{name}: ttfts"), document.get("itls")
    if ttfts is None:
        return None
    errors = document.get("errors")
    failed = [bool(error) for error in errors] if isinstance(errors, list) else [False] * len(ttfts)
    latencies = numbers(document.get("latencies"), f"{name}: latencies")
    times = times_of(
        {
            "prompt_tokens": numbers(document.get("input_lens"), f"{name}: input_lens"),
            "output_tokens": numbers(document.get("output_lens"), f"{name}: output_lens"),
            "ttft_s": ttfts,
            "e2e_s": latencies if latencies is not None else summed(ttfts, gaps, name),
            "sent_s": numbers(document.get("start_times"), f"{name}: start_times"),
        },
        failed,
        name,
    )
    return None if times is None else times.statistics()


def summed(ttfts: list[float | None], gaps: object, name: str) -> list[float | None] | None:
    """Return each request's time to its last chunk: to the first one, and all gaps after it [s]; None without gaps."""
    if not isinstance(gaps, list) or len(gaps) != len(ttfts):
        return None
    sums: list[float | None] = []
    for place, (first, between) in enumerate(zip(ttfts, gaps, strict=True)):
        steps = numbers(between, f"{name}: itls[{place}]") or []
        sums.append(None if first is None else first + sum(step or 0.0 for step in steps))
    return sums


def _compare(stated: Spread, found: Spread, name: str) -> None:
    """The summary is in milliseconds and the requests in seconds: they must say the same."""
    if not stated.mean_s or not found.mean_s:
        return
    ratio = stated.mean_s / found.mean_s
    if abs(ratio - 1.0) > _SUMMARY_AGREES:
        bound = f"is {ratio:.3g} times the mean of the requests' own times ({found.mean_s:.4g} s)"
        raise InputError(f"{name}: mean_ttft_ms", stated.mean_s / MS, bound, "Check the units; don't edit results by hand")


def _whole(document: Document, field: str) -> int | None:
    """Return a whole number that the tool was given as metadata, which it keeps as text; None where it is none."""
    value = document.get(field)
    if isinstance(value, str) and value.strip().isdigit() and len(value.strip()) < _MOST_DIGITS:
        return int(value) or None
    return None
