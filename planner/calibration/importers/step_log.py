"""Reads engines' logs of single steps: vLLM's iteration details and TensorRT-LLM's iteration log.

vLLM writes them with --enable-logging-iteration-details, TensorRT-LLM with print_iter_log. Both state the batch of every step and
its time, and neither the contexts of single requests; `StepLog.missing` says what else can't be known.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from planner.calibration.importers.documents import text_of
from planner.errors import InputError

MAX_STEPS = 500_000
LEAST_STEPS = 20
_LONGEST_LINE = 4000
_LONGEST_STEP_S = 600.0
_MOST_TOKENS = 10**7

_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,3})?)"
_VLLM = re.compile(
    r"Iteration\((\d{1,12})\): (\d{1,9}) context requests, (\d{1,9}) context tokens, (\d{1,9}) generation requests, "
    r"(\d{1,9}) generation tokens, iteration elapsed time: " + _NUMBER + r" ms(?:, \w+ KV cache usage: " + _NUMBER + r"%)?"
)
_VLLM_BEGINS = "Iteration("
_ENGINE = re.compile(r"Engine (\d{1,6}): ")
_KV_SIZE = re.compile(r"KV cache size: ([\d,]{1,20}) tokens")
_BUDGET = re.compile(r"max_num_batched_tokens[=':\s]+(\d{1,9})")
_VERSION = re.compile(r"(?:vLLM API server version|LLM engine \(v|TensorRT-LLM version:?)\s*v?([\w.+-]{1,30})")
_MODEL = re.compile(r"""['"]model['"]: ['"]([^'"]{1,300})['"]""")
_SYNCHRONOUS = re.compile(r"""['"]?async_scheduling['"]?[=:]\s*(True|False)""")
_TRT_ITER = re.compile(r"\biter = (\d{1,12})\b")
_TRT_RANK = re.compile(r"\bglobal_rank = (\d{1,6})\b")
_TRT_DEVICE = re.compile(r"prev_device_step_time = " + _NUMBER + r"\s?ms")
_TRT_SCHEDULED = re.compile(r"num_scheduled_requests\s?[:=]\s?(\d{1,9})")
_TRT_STATE = re.compile(r"'(num_ctx_requests|num_ctx_tokens|num_generation_tokens|cached_kv_tokens)': (\d{1,12})")

Format = Literal["vllm", "tensorrt-llm"]
NAMES: dict[Format, str] = {"vllm": "vLLM iteration details", "tensorrt-llm": "TensorRT-LLM iteration log"}


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One step of an engine.

    line : in the file, from 1; iteration : the engine's own count
    context_requests, context_tokens : prefill chunks and their new tokens [request], [token]
    generation_requests, generation_tokens : decode rows and their new tokens [request], [token]
    seconds : what the engine states as the step's time [s]
    kv_share : share of the KV cache in use [1]; None where it isn't stated
    cached_tokens : tokens of all requests of the batch in the cache [token]; None where it isn't stated
    """

    line: int
    iteration: int
    context_requests: int
    context_tokens: int
    generation_requests: int
    generation_tokens: int
    seconds: float
    kv_share: float | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StepLog:
    """The steps of a log and what it says of the engine; None where it doesn't.

    format : whose log; measured : "step" for times from decision to result, "gpu" for device times
    left_out : reasons with the number of lines
    missing : what the log can't say, in words
    """

    format: Format
    measured: Literal["step", "gpu"]
    steps: tuple[LoggedStep, ...]
    version: str | None
    model: str | None
    kv_cache_tokens: int | None
    max_num_batched_tokens: int | None
    async_scheduling: bool | None
    left_out: dict[str, int]
    missing: tuple[str, ...]


@dataclass(slots=True)
class _Reading:
    steps: list[LoggedStep] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    facts: dict[str, str] = field(default_factory=dict)


def read_step_log(data: bytes, name: str = "log") -> StepLog:
    """Return the steps of a server's log; other lines are passed over.

    data : text, plain or compressed with gzip, at most 64 MiB; name : label for messages, never opened

    Steps of other engines than the first (data parallelism), of no request, cut lines and impossible figures are left out and
    counted. Raises InputError when fewer than 20 steps are left.
    """
    return step_log_of(text_of(data, name), name)


def is_step_log(text: str) -> bool:
    """Say whether a text holds lines of single steps."""
    return _VLLM.search(text) is not None or (_TRT_DEVICE.search(text) is not None and _TRT_ITER.search(text) is not None)


def step_log_of(text: str, name: str) -> StepLog:
    """Return the steps of a log's text; see read_step_log."""
    kind: Format = "vllm" if _VLLM.search(text) else "tensorrt-llm"
    reading = _Reading()
    for place, line in enumerate(text.splitlines(), 1):
        if len(line) > _LONGEST_LINE and not reading.steps:
            _note_facts(reading, line[:_LONGEST_LINE])
        elif kind == "vllm" and _VLLM_BEGINS in line:
            _take_vllm(reading, place, line)
        elif kind == "tensorrt-llm" and "prev_device_step_time" in line:
            _take_trt(reading, place, line)
        else:
            _note_facts(reading, line)
        if len(reading.steps) > MAX_STEPS:
            raise InputError(name, f"over {MAX_STEPS:,} steps", f"must hold at most {MAX_STEPS:,} steps", "Split the log")
    steps = tuple(reading.steps) if kind == "vllm" else _paired(reading)
    if len(steps) < LEAST_STEPS:
        remedy = "Serve under load with --enable-logging-iteration-details (vLLM) or print_iter_log (TensorRT-LLM)"
        raise InputError(name, f"{len(steps)} steps", f"must hold {LEAST_STEPS} steps or more", remedy)
    return _log(kind, steps, reading)


def _take_vllm(reading: _Reading, place: int, line: str) -> None:
    found = _VLLM.search(line)
    if found is None:
        reading.left_out["cut or of another release"] += 1
        return
    engine = _ENGINE.search(line)
    if reading.facts.setdefault("engine", engine[1] if engine else "0") != (engine[1] if engine else "0"):
        reading.left_out["of another engine of the deployment"] += 1
        return
    share = None if found[7] is None else float(found[7]) / 100.0
    counts = [int(found[i]) for i in range(2, 6)]
    a, b, c, d = counts
    step = LoggedStep(place, int(found[1]), a, b, c, d, float(found[6]) * 1e-3, kv_share=share)
    reason = _fault(step)
    if reason is None:
        reading.steps.append(step)
    else:
        reading.left_out[reason] += 1


def _take_trt(reading: _Reading, place: int, line: str) -> None:
    """A line states the batch of its own step and the device time of the step before."""
    iteration, scheduled = _TRT_ITER.search(line), _TRT_SCHEDULED.search(line)
    states = {found[1]: int(found[2]) for found in _TRT_STATE.finditer(line)}
    rank = _TRT_RANK.search(line)
    if rank is not None and rank[1] != "0":
        reading.left_out["of another rank"] += 1
        return
    if iteration is None or scheduled is None or not {"num_ctx_requests", "num_ctx_tokens", "num_generation_tokens"} <= set(states):
        reading.left_out["cut or of another release"] += 1
        return
    device = _TRT_DEVICE.search(line)
    reading.steps.append(
        LoggedStep(
            place,
            int(iteration[1]),
            states["num_ctx_requests"],
            states["num_ctx_tokens"],
            max(int(scheduled[1]) - states["num_ctx_requests"], 0),
            states["num_generation_tokens"],
            float(device[1]) * 1e-3 if device else 0.0,
            cached_tokens=states.get("cached_kv_tokens"),
        )
    )


def _paired(reading: _Reading) -> tuple[LoggedStep, ...]:
    """Give every step of TensorRT-LLM the device time that the next line states."""
    steps = []
    for step, after in zip(reading.steps, reading.steps[1:], strict=False):
        if after.iteration != step.iteration + 1 or not after.seconds:
            reading.left_out["without a device time in the next line"] += 1
            continue
        timed = LoggedStep(
            step.line, step.iteration, step.context_requests, step.context_tokens, step.generation_requests, step.generation_tokens,
            after.seconds, cached_tokens=step.cached_tokens,
        )  # fmt: skip
        reason = _fault(timed)
        if reason is None:
            steps.append(timed)
        else:
            reading.left_out[reason] += 1
    return tuple(steps)


def _fault(step: LoggedStep) -> str | None:
    if step.context_requests + step.generation_requests == 0:
        return "of no request"
    if step.generation_tokens > step.generation_requests:
        return "with draft tokens"
    if (step.context_tokens < step.context_requests) or step.context_tokens + step.generation_tokens > _MOST_TOKENS:
        return "with impossible counts"
    return None if 0.0 < step.seconds <= _LONGEST_STEP_S else "with impossible times"


def _note_facts(reading: _Reading, line: str) -> None:
    for key, pattern in _FACTS.items():
        if key not in reading.facts and (found := pattern.search(line)) is not None:
            reading.facts[key] = found[1]


_FACTS = {"kv": _KV_SIZE, "budget": _BUDGET, "version": _VERSION, "model": _MODEL, "async": _SYNCHRONOUS}


def _log(kind: Format, steps: tuple[LoggedStep, ...], reading: _Reading) -> StepLog:
    facts = reading.facts
    pool = facts.get("kv", "").replace(",", "")
    missing = []
    if all(step.cached_tokens is None for step in steps):
        anchored = pool.isdigit() and any(step.kv_share for step in steps)
        how = "reconstructed from the order of the steps" + (" and the KV cache in use" if anchored else "")
        missing.append(f"how many tokens each request has in the cache; they are {how}")
    if kind == "vllm":
        missing.append(
            "the time between steps: the elapsed time ends when the result is there, so that hidden host work isn't in it"
        )
    else:
        missing.append("host time: the times are the device's alone")
    missing.append("how long requests waited outside the engine; a benchmark's TTFT says that")
    asynchronous = facts.get("async")
    return StepLog(
        format=kind,
        measured="step" if kind == "vllm" else "gpu",
        steps=steps,
        version=facts.get("version"),
        model=facts.get("model"),
        kv_cache_tokens=int(pool) if pool.isdigit() and int(pool) > 0 else None,
        max_num_batched_tokens=int(facts["budget"]) or None if "budget" in facts else None,
        async_scheduling=None if asynchronous is None else asynchronous == "True",
        left_out=dict(reading.left_out),
        missing=tuple(missing),
    )
