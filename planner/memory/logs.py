"""Read an engine's start-up log: the memory it found and the KV cache it made."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from planner.errors import InputError
from planner.units import GIB

MAX_LOG_BYTES = 32 * 1024 * 1024

_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)"
_COUNT = r"(\d{1,3}(?:,\d{3}){1,5}|\d{1,15})"
_PATTERNS: dict[str, re.Pattern[str]] = {
    "kv_tokens": re.compile(rf"KV cache size: {_COUNT} tokens"),
    "concurrency_tokens": re.compile(rf"Maximum concurrency for {_COUNT} tokens per request"),
    "max_concurrency": re.compile(rf"tokens per request: {_NUMBER}x"),
    "available_kv_gib": re.compile(rf"Available KV cache memory: {_NUMBER} GiB"),
    "weights_gib": re.compile(rf"Model loading took {_NUMBER} GiB"),
    "total_gib": re.compile(rf"Free memory on device \([\d.]{{1,12}}/{_NUMBER} GiB\)"),
    "utilization": re.compile(rf"Desired GPU memory utilization is \({_NUMBER}, "),
    "requested_gib": re.compile(rf"Desired GPU memory utilization is \([\d.]{{1,12}}, {_NUMBER} GiB\)"),
    "activation_gib": re.compile(rf"{_NUMBER} GiB for peak activation"),
    "non_torch_gib": re.compile(rf"{_NUMBER} GiB for non-torch memory"),
    "graphs_gib": re.compile(rf"Graph capturing finished in \d{{1,6}} secs, took {_NUMBER} GiB"),
    "graphs_estimated_gib": re.compile(rf"CUDA graph pool memory: [\d.]{{1,12}} GiB \(actual\), {_NUMBER} GiB \(estimated\)"),
    "max_num_batched_tokens": re.compile(rf"enabled with max_num_batched_tokens={_COUNT}"),
    "num_gpu_blocks": re.compile(rf"num_gpu_blocks is: {_COUNT}"),
    "block_size": re.compile(rf"Setting (?:kv cache|attention) block size to {_COUNT}"),
    "version": re.compile(r"(?:LLM engine \(v|vLLM API server version |version )(\d{1,3}\.\d{1,3}\.\d{1,3})"),
}


@dataclass(frozen=True, slots=True)
class EngineLog:
    """What a start-up log says; None where it doesn't. Sizes in bytes.

    kv_tokens : "GPU KV cache size" [token]; the smallest where several engines log
    max_concurrency, concurrency_tokens : sequences of that many tokens that fit at once [seq], [token]
    available_kv_bytes : memory left for the cache on the GPU that has least
    """

    version: str | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    concurrency_tokens: int | None = None
    available_kv_bytes: float | None = None
    weights_bytes: float | None = None
    activation_bytes: float | None = None
    non_torch_bytes: float | None = None
    graphs_bytes: float | None = None
    graphs_estimated_bytes: float | None = None
    total_bytes: float | None = None
    requested_bytes: float | None = None
    gpu_memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None


def parse_engine_log(log: str | bytes) -> EngineLog:
    """Return what a vLLM start-up log says about memory; InputError when it says nothing or is too large.

    >>> parse_engine_log("GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x").kv_tokens
    460496
    """
    if len(log) > MAX_LOG_BYTES:
        bound = f"must be at most {MAX_LOG_BYTES // 2**20} MiB"
        raise InputError("log", len(log), bound, "Give the start-up part, up to the first request")
    text = log.decode(errors="replace") if isinstance(log, bytes) else log
    found = {name: pattern.findall(text) for name, pattern in _PATTERNS.items()}
    if not any(found[name] for name in _PATTERNS if name != "version"):
        remedy = "Paste vLLM's start-up log with its line 'GPU KV cache size: … tokens'"
        raise InputError("log", text[:200], "has none of the lines that tell memory", remedy)
    return EngineLog(
        version=found["version"][-1] if found["version"] else None,
        kv_tokens=_smallest(found["kv_tokens"]),
        max_concurrency=_last(found["max_concurrency"]),
        concurrency_tokens=_smallest(found["concurrency_tokens"]),
        available_kv_bytes=_bytes(found["available_kv_gib"], min),
        weights_bytes=_bytes(found["weights_gib"], max),
        activation_bytes=_bytes(found["activation_gib"], max),
        non_torch_bytes=_bytes(found["non_torch_gib"], max),
        graphs_bytes=_bytes(found["graphs_gib"], max),
        graphs_estimated_bytes=_bytes(found["graphs_estimated_gib"], max),
        total_bytes=_bytes(found["total_gib"], min),
        requested_bytes=_bytes(found["requested_gib"], min),
        gpu_memory_utilization=_last(found["utilization"]),
        max_num_batched_tokens=_smallest(found["max_num_batched_tokens"]),
        num_gpu_blocks=_smallest(found["num_gpu_blocks"]),
        block_size=_largest(found["block_size"]),
    )


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _smallest(counts: list[str]) -> int | None:
    return min(map(_count, counts)) if counts else None


def _largest(counts: list[str]) -> int | None:
    return max(map(_count, counts)) if counts else None


def _last(numbers: list[str]) -> float | None:
    return float(numbers[-1]) if numbers else None


def _bytes(gibs: list[str], choose: Callable[[Iterable[float]], float]) -> float | None:
    return choose(float(gib) for gib in gibs) * GIB if gibs else None
