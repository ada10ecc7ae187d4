"""Reads results of SGLang's bench_serving: JSON lines, one a run, summaries in milliseconds, single requests in seconds."""

from typing import Any

from planner.calibration.importers.documents import Document, at, numbers, text_at
from planner.calibration.importers.figures import MS, checked_run, figure, positive, stated_spread, times_of
from planner.calibration.importers.run import BenchmarkRun, Spread
from planner.calibration.importers.vllm_bench import load_of, summed
from planner.errors import InputError

NAME = "SGLang bench_serving"
_ENGINES = {"sglang": "sglang", "vllm": "vllm", "trt": "tensorrt-llm"}


def claims(document: Document) -> bool:
    """Say whether a document is a result of bench_serving."""
    return {"total_throughput", "input_throughput", "request_rate"} <= set(document)


def read(document: Document, name: str) -> BenchmarkRun:
    """Return the run of one result."""
    completed = figure(document, "completed") or 0.0
    if completed < 1.0:
        raise InputError(f"{name}: completed", completed, "must be 1 or more", "Give a run whose requests succeeded")
    if document.get("request_rate") == "trace":
        raise InputError(
            f"{name}: request_rate", "trace", "doesn't say when requests were sent", "Run it at a rate or a concurrency"
        )
    backend = (text_at(document, "backend") or "").partition("-")[0]
    summary: dict[str, Any] = {
        "tool": NAME,
        "label": text_at(document, "tag"),
        "engine": _ENGINES.get(backend),
        "engine_version": text_at(document, "server_info", "version"),
        "model": text_at(document, "server_info", "model_path"),
        "tp": at(document, "server_info", "tp_size"),
        "requests": int(completed),
        "speculative": (figure(document, "accept_length") or 1.0) > 1.0,
        "prompt_tokens": positive((figure(document, "total_input_tokens") or 0.0) / completed),
        "output_tokens": positive((figure(document, "total_output_tokens") or 0.0) / completed),
        "duration_s": positive(figure(document, "duration")),
        "requests_per_s": positive(figure(document, "request_throughput")),
        "output_tokens_per_s": positive(figure(document, "output_throughput")),
        "ttft": _stated(document, "ttft"),
        "tpot": _stated(document, "tpot"),
        "itl": _stated(document, "itl").model_copy(update={"weight": "chunk"}),
        "e2e": _stated(document, "e2e_latency"),
        **load_of(document, name),
    }
    remarks: list[str] = []
    detail = _detail(document, name)
    if detail is None:
        remarks.append("prompt and output lengths are means: single requests aren't in the file (--output-details)")
    else:
        remarks += detail.pop("remarks")
        summary |= {field: value for field, value in detail.items() if not summary.get(field)}
    return checked_run({**summary, "remarks": tuple(remarks)}, name)


def _stated(document: Document, metric: str) -> Spread:
    names = (f"mean_{metric}_ms", f"median_{metric}_ms", f"p90_{metric}_ms", f"p99_{metric}_ms")
    return stated_spread(document.get, names, MS)


def _detail(document: Document, name: str) -> dict[str, Any] | None:
    ttfts = numbers(document.get("ttfts"), f"{name}: ttfts")
    if ttfts is None:
        return None
    errors = document.get("errors")
    times = times_of(
        {
            "prompt_tokens": numbers(document.get("input_lens"), f"{name}: input_lens"),
            "output_tokens": numbers(document.get("output_lens"), f"{name}: output_lens"),
            "ttft_s": ttfts,
            "e2e_s": summed(ttfts, document.get("itls"), name),
        },
        [bool(error) for error in errors] if isinstance(errors, list) else [False] * len(ttfts),
        name,
    )
    return None if times is None else times.statistics()
