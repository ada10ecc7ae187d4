"""Asynchronous scheduling: what it overlaps, what it wastes, and what switches it off."""

import datetime as dt
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.provenance import Source
from planner.units import duration

_VLLM = Source(
    kind="published",
    ref="vLLM 0.33.0, config/vllm.py and v1/engine/core.py",
    confidence="high",
    note="read from source",
)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A step with and without overlap of host and GPU.

    serial_s, overlapped_s : host after GPU, and beside it [s]; gain : throughput with overlap over without [1]
    extra_ttft_s : how much later an arrival's first step starts on average, one step [s]
    """

    serial_s: float
    overlapped_s: float
    gain: float
    extra_ttft_s: float
    explanation: Explanation


def overlap(gpu_s: float, host_s: float) -> Overlap:
    """Return what overlapping saves; gpu_s, host_s : time of a step on each [s]."""
    require_positive("gpu_s", gpu_s, "seconds")
    if not host_s >= 0.0:
        raise InputError("host_s", host_s, "must be at least 0", "Give seconds")
    serial, overlapped = gpu_s + host_s, max(gpu_s, host_s)
    gain = 100.0 * (serial / overlapped - 1.0)
    return Overlap(
        serial,
        overlapped,
        serial / overlapped,
        overlapped,
        Explanation(
            f"A step takes {duration(overlapped)} instead of {duration(serial)}: {gain:.3g}\N{NO-BREAK SPACE}% more throughput, "
            "for a first token that starts a step later.",
            f"max({gpu_s * 1e3:.4g}, {host_s * 1e3:.4g}) against {gpu_s * 1e3:.4g} + {host_s * 1e3:.4g} ms",
            "--async-scheduling is on by default from vLLM 0.14; check the log for the reason when it is off.",
        ),
    )


def wasted_rows(stop_token_share: float, draft_tokens: int = 0) -> float:
    """Return the rows that a request wastes on average [row].

    stop_token_share : requests that end at a stop token rather than at max_tokens [1]; draft_tokens : K of speculation, 0 without

    The step after a stop token is already decided and holds the request's 1 + K rows; an end at max_tokens is foreseen and wastes
    none.

    >>> wasted_rows(1.0), wasted_rows(0.0), wasted_rows(1.0, 4)
    (1.0, 0.0, 5.0)
    """
    if not 0.0 <= stop_token_share <= 1.0:
        raise InputError("stop_token_share", stop_token_share, "must be between 0 and 1", "Give a share")
    if draft_tokens < 0:
        raise InputError("draft_tokens", draft_tokens, "must be at least 0", "Give K, 0 without speculation")
    return stop_token_share * (1.0 + draft_tokens)


class Span(NamedTuple):
    """A stretch of work: on which side, for which step from 1 on, from when to when [s]."""

    side: Literal["host", "GPU"]
    step: int
    from_s: float
    to_s: float


def timeline(gpu_s: float, host_s: float, steps: int, *, overlapped: bool) -> tuple[Span, ...]:
    """Return when host and GPU work; gpu_s, host_s : time of a step on each [s]; steps : how many.

    Without overlap the host prepares a step when the one before it is done. With overlap it does so when the one before it starts,
    so that a step starts as soon as both the GPU and the host are ready.
    """
    overlap(gpu_s, host_s)
    spans: list[Span] = []
    host_from = gpu_free = 0.0
    for step in range(1, steps + 1):
        ready = host_from + host_s
        starts = max(ready, gpu_free)
        spans += [Span("host", step, host_from, ready), Span("GPU", step, starts, starts + gpu_s)]
        gpu_free = starts + gpu_s
        host_from = starts if overlapped else gpu_free
    return tuple(spans)


def mean_ttft_s(gpu_s: float, host_s: float, *, overlapped: bool) -> float:
    """Return the mean TTFT of a prompt that fits one step, on an engine that always has a step in progress [s].

    An arrival meets a step in progress, half of it left on average. Without overlap its own step is decided when that ends; with
    overlap the next step is decided already, so that its own comes one later.
    """
    found = overlap(gpu_s, host_s)
    return 2.5 * found.overlapped_s if overlapped else 1.5 * found.serial_s


class SwitchOff(NamedTuple):
    """A configuration without asynchronous scheduling.

    configuration : in words; versions : releases for which it is known; source : where it was read
    """

    configuration: str
    versions: str
    source: Source


_NOTES_0_14 = Source(
    kind="published", ref="vLLM v0.14.0 release notes: on by default, with what they exclude", retrieved=dt.date(2026, 11, 30)
)
_SGLANG = Source(
    kind="published",
    ref="SGLang 0.5.23, managers/scheduler.py and server_args",
    confidence="high",
    note="read from source",
)
_TENSORRT_LLM = Source(kind="published", ref="TensorRT-LLM 1.2, llmapi/llm_args.py (disable_overlap_scheduler)", confidence="high")


def _pull(number: int, title: str) -> Source:
    return Source(
        kind="published",
        ref=f"vllm-project/vllm pull request {number}: {title}",
        retrieved=dt.date(2026, 11, 30),
        confidence="high",
    )


SWITCHED_OFF: tuple[SwitchOff, ...] = (
    SwitchOff("any without --async-scheduling", "vLLM before 0.14", _NOTES_0_14),
    SwitchOff(
        "speculation, structured outputs or pipeline parallelism, even with the flag",
        "vLLM when the flag came (2025)",
        _pull(19970, "first version"),
    ),
    SwitchOff("pipeline parallelism", "vLLM 0.14", _NOTES_0_14),
    SwitchOff("pipeline parallelism on model runner V1", "vLLM 0.33", _VLLM),
    SwitchOff("CPU platform", "vLLM 0.14", _NOTES_0_14),
    SwitchOff("CPU platform", "vLLM 0.33", _VLLM),
    SwitchOff("speculation other than EAGLE and MTP", "vLLM 0.14", _NOTES_0_14),
    SwitchOff(
        "n-gram speculation on the CPU; the GPU's (ngram_gpu) keeps it on", "vLLM from 2026", _pull(29184, "n-gram on the GPU")
    ),
    SwitchOff("draft models by default, until then", "vLLM to July 2026", _pull(48341, "on for draft models")),
    SwitchOff("DFlash speculation, until then", "vLLM to September 2026", _pull(58065, "on for DFlash")),
    SwitchOff("n-gram, suffix or custom speculation on model runner V1", "vLLM 0.33", _VLLM),
    SwitchOff("disable_padded_drafter_batch", "vLLM from 0.14; model runner V1 only in 0.33", _pull(31998, "on for EAGLE and MTP")),
    SwitchOff("Ray executor of the first version", "vLLM to 0.33; RayExecutorV2 keeps it on", _pull(36836, "RayExecutorV2")),
    SwitchOff("other executors without support; uniproc, multiproc and Ray V2 have it", "vLLM 0.33", _VLLM),
    SwitchOff("pooling models (embedding, reward)", "vLLM 0.33", _VLLM),
    SwitchOff("ROCm with DeepEP high-throughput kernels and dual-batch overlap", "vLLM 0.33", _VLLM),
    SwitchOff("a custom scheduler that is not derived from AsyncScheduler", "vLLM 0.33", _VLLM),
    SwitchOff("--disable-overlap-schedule; its overlap scheduler is on by default", "SGLang 0.5.23", _SGLANG),
    SwitchOff("disable_overlap_scheduler; its overlap scheduler is on by default", "TensorRT-LLM 1.2", _TENSORRT_LLM),
)
