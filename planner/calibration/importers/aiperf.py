"""Reads AIPerf's profile_export_aiperf.json and genai-perf's profile_export_genai_perf.json: a table of metrics with units.

Both count tokens with a tokenizer of their own unless told otherwise; where the server's counts are in the file, these are used.
"""

import re
from typing import Any

from planner.calibration.importers.documents import Document, at, number, text_at
from planner.calibration.importers.figures import checked_run, positive
from planner.calibration.importers.run import Arrivals, BenchmarkRun, Spread, Weight
from planner.errors import InputError

NAME = "AIPerf"
GENAI_PERF = "genai-perf"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_PATTERNS = ("poisson", "constant", "gamma")
_FLAGS = {
    "concurrency": re.compile(r"--concurrency[ =]'?(\d{1,7})"),
    "rate": re.compile(r"--request-rate[ =]'?([\d.]{1,12})"),
    "pattern": re.compile(r"--(?:arrival-pattern|request-rate-mode)[ =]'?(\w{1,20})"),
    "smoothness": re.compile(r"--arrival-smoothness[ =]'?([\d.]{1,12})"),
}


def claims(document: Document) -> bool:
    """Say whether a document is a summary of AIPerf or genai-perf."""
    return at(document, "request_throughput", "unit") is not None and at(document, "request_latency", "unit") is not None


def read(document: Document, name: str) -> BenchmarkRun:
    """Return the run of one summary."""
    ours = "schema_version" in document or "aiperf_version" in document
    prompts = _average(document, "usage_prompt_tokens") or _average(document, "input_sequence_length")
    counted, served = _average(document, "output_sequence_length"), _average(document, "usage_completion_tokens")
    requests = _average(document, "completed_request_count") or _average(document, "request_count") or _count(document)
    tpot, remarks = _spread(document, "inter_token_latency"), []
    if counted and served and abs(counted / served - 1.0) > 0.01:
        remarks.append(f"the client counted {counted:.4g} output tokens a request and the server {served:.4g}, which are used")
        tpot = Spread()
    if at(document, "is_complete") is False or at(document, "was_cancelled") is True:
        remarks.append("the run was cancelled before its end")
    load, spacing_stated = _load(document, name)
    if not (ours or spacing_stated):
        remarks.append("the file doesn't say how requests were spaced: Poisson arrivals are assumed")
    values: dict[str, Any] = {
        "tool": NAME if ours else GENAI_PERF,
        "tool_version": text_at(document, "aiperf_version"),
        "date": text_at(document, "start_time"),
        "model": text_at(document, "input_config", "models", "items", 0, "name") or _model(document),
        "requests": int(requests or 0),
        "failed": int(_average(document, "error_request_count") or 0),
        "prompt_tokens": positive(prompts),
        "output_tokens": positive(served or counted),
        "duration_s": positive(_seconds(document, "benchmark_duration", "avg")),
        "ttft": _spread(document, "time_to_first_token"),
        "tpot": tpot,
        "itl": _spread(document, "inter_chunk_latency", "chunk"),
        "e2e": _spread(document, "request_latency"),
        "requests_per_s": positive(_average(document, "request_throughput")),
        "output_tokens_per_s": positive(_output_rate(document, counted, served)),
        "remarks": tuple(remarks),
        **load,
    }
    return checked_run(values, name)


def _output_rate(document: Document, counted: float | None, served: float | None) -> float | None:
    rate = _average(document, "output_token_throughput")
    return rate * served / counted if rate and counted and served else rate


def _average(document: Document, tag: str) -> float | None:
    return number(at(document, tag, "avg"), tag)


def _count(document: Document) -> float | None:
    return number(at(document, "request_latency", "count"), "request_latency.count")


def _model(document: Document) -> str | None:
    found = (
        at(document, "input_config", "model_names")
        or at(document, "input_config", "model")
        or at(document, "input_config", "endpoint")
    )
    names = found.get("model_names") if isinstance(found, dict) else found
    first = names[0] if isinstance(names, list) and names else names
    return first[:300] if isinstance(first, str) else None


def _seconds(document: Document, tag: str, statistic: str) -> float | None:
    unit = text_at(document, tag, "unit")
    value = at(document, tag, statistic)
    if value is None:
        return None
    if unit not in _SECONDS:
        raise InputError(f"{tag}.unit", unit, f"must be one of {', '.join(_SECONDS)}", "Export the summary again")
    return number(value, tag, _SECONDS[unit])


def _spread(document: Document, tag: str, weight: Weight = "request") -> Spread:
    mean, p50, p90, p99 = (_seconds(document, tag, statistic) for statistic in ("avg", "p50", "p90", "p99"))
    return Spread(mean_s=mean, p50_s=p50, p90_s=p90, p99_s=p99, weight=weight)


def _load(document: Document, name: str) -> tuple[dict[str, Any], bool]:
    """Return the load, and whether the file states how requests were spaced, which closed loops need not.

    The profiling phase states the load; older files state it in the load generator's settings or the command alone.
    """
    config = at(document, "input_config")
    phases = at(config, "phases")
    listed = [phase for phase in phases if isinstance(phase, dict)] if isinstance(phases, list) else []
    phase = next((item for item in listed if (item.get("kind") or item.get("name")) == "profiling"), None)
    settings = phase or at(config, "loadgen") or at(config, "perf_analyzer", "stimulus") or config or {}
    command = text_at(document, "run_info", "cli_command") or text_at(config, "cli_command") or ""
    whole = at(document, "run_info", "cli_command") or at(config, "cli_command") or ""
    flags = {key: found[1] for key, pattern in _FLAGS.items() if (found := pattern.search(str(whole)[:10_000] or command))}
    rate = number(at(settings, "rate") or at(settings, "request_rate"), f"{name}: request_rate")
    rate = positive(rate) or (float(flags["rate"]) if _is_number(flags.get("rate")) else None)
    concurrency = positive(number(at(settings, "concurrency"), f"{name}: concurrency"))
    concurrency = concurrency or (float(flags["concurrency"]) if "concurrency" in flags else None)
    if rate:
        stated = text_at(settings, "arrival_pattern") or text_at(settings, "request_rate_mode") or text_at(settings, "type")
        smoothness = flags.get("smoothness") or at(settings, "smoothness") or at(settings, "arrival_smoothness")
        pattern = (flags.get("pattern") or stated or "").casefold()
        gaps = _gaps(pattern, smoothness, name)
        return {**gaps, "rate_rps": rate, "concurrency": int(concurrency) if concurrency else None}, pattern in _PATTERNS
    if concurrency:
        return {"arrivals": "closed", "concurrency": int(concurrency)}, True
    raise InputError(f"{name}: input_config", "none", "must state a concurrency or a request rate", "Run AIPerf with one of them")


def _gaps(pattern: str, smoothness: object, name: str) -> dict[str, Any]:
    """Return how gaps between requests are drawn, Poisson's where no pattern is known, which is AIPerf's default.

    smoothness : shape of a gamma law, 1 for Poisson's
    """
    if pattern == "concurrency_burst":
        raise InputError(f"{name}: arrival pattern", pattern, "is no steady load", "Run AIPerf at a rate or a concurrency")
    if pattern != "gamma":
        arrivals: Arrivals = "constant" if pattern == "constant" else "poisson"
        return {"arrivals": arrivals}
    shape = float(smoothness) if isinstance(smoothness, str) and _is_number(smoothness) else smoothness
    burstiness = positive(number(shape, f"{name}: arrival smoothness"))
    if burstiness is None:
        raise InputError(f"{name}: arrival smoothness", None, "must be stated of gamma arrivals", "Set --arrival-smoothness")
    return {"arrivals": "gamma", "burstiness": burstiness}


def _is_number(text: str | None) -> bool:
    return text is not None and text.count(".") < 2 and text.strip(".") != ""
