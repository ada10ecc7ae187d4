"""Asynchronous scheduling: what it overlaps, what it wastes, and what switches it off."""

from dataclasses import dataclass
from typing import NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.provenance import Source

_VLLM = Source(
    kind="published",
    ref="vLLM 0.33.0, vllm/config/vllm.py (conditions on async scheduling) and vllm/v1/engine/core.py (step_with_batch_queue)",
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
    return Overlap(
        serial,
        overlapped,
        serial / overlapped,
        overlapped,
        Explanation(
            f"A step takes {overlapped * 1e3:g} ms instead of {serial * 1e3:g} ms.",
            f"max({gpu_s * 1e3:g}, {host_s * 1e3:g}) against {gpu_s * 1e3:g} + {host_s * 1e3:g} ms",
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


class SwitchOff(NamedTuple):
    """A configuration without asynchronous scheduling.

    configuration : in words; versions : vLLM releases for which it is known; source : where it was read
    """

    configuration: str
    versions: str
    source: Source


SWITCHED_OFF: tuple[SwitchOff, ...] = (
    SwitchOff("any without --async-scheduling", "before 0.14", _VLLM),
    SwitchOff("pooling models (embedding, reward)", "0.33", _VLLM),
    SwitchOff("executors without support; uniproc, multiproc and Ray V2 have it", "0.33", _VLLM),
    SwitchOff("CPU platform", "0.33", _VLLM),
    SwitchOff("ROCm with DeepEP high-throughput kernels and dual-batch overlap", "0.33", _VLLM),
    SwitchOff("model runner V1 with n-gram, suffix or custom speculation", "0.33", _VLLM),
    SwitchOff("model runner V1 with disable_padded_drafter_batch", "0.33", _VLLM),
    SwitchOff("model runner V1 with pipeline parallelism", "0.33", _VLLM),
    SwitchOff("a custom scheduler that is not derived from AsyncScheduler", "0.33", _VLLM),
)
