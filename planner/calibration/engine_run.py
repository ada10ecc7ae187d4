"""A recording of a real vLLM engine: every step with its exact batch, and every request as its client saw it.

The document is JSON, gzipped or not, with `engine` (settings by vLLM's names), `steps` (phase, when the scheduler decided, when its
output was processed, new and cached tokens of each request in the batch) and `requests` by phase (sent, prompt, output, time to
first token, end to end). Phases whose names begin with "grid" are bursts of equal requests sent together: they are for
calibration, and `grid_as_collected` turns them into a collector's file. All other phases are for testing predictions.
"""

import argparse
import datetime as dt
import gzip
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from planner.calibration.collected_rows import Engine
from planner.errors import InputError, as_input_error, unique_fields

MAX_BYTES = 64_000_000
GRID = "grid"
BLOCK_SIZE = 16
"""The recordings' caches are never short, so that a block's size decides nothing."""

_GZIP = b"\x1f\x8b"
_REST_S = 0.005  # an engine with work decides anew within a millisecond

Moment = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=0, le=10**7, strict=True)]
Positive = Annotated[int, Field(ge=1, le=10**7, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=300)]


class RunStep(BaseModel):
    """One step: its phase, the decision and its processed output, and new and cached tokens of each request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: Name
    scheduled_at_s: Moment
    processed_at_s: Moment
    tokens: tuple[Positive, ...] = Field(min_length=1, max_length=4096)
    context: tuple[Count, ...] = Field(min_length=1, max_length=4096)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.processed_at_s <= self.scheduled_at_s:
            raise InputError("processed_at_s", self.processed_at_s, "must come after scheduled_at_s", "Record both by one clock")
        if len(self.tokens) != len(self.context):
            raise InputError(
                "context", len(self.context), f"must have an entry for each of {len(self.tokens)} tokens", "Record both"
            )
        return self


class RunRequest(BaseModel):
    """One request as the client saw it; arrival_s is when it was sent, planned_s when it should have been."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    arrival_s: Moment
    planned_s: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    prompt: Positive
    output: Positive
    ttft_s: Moment
    e2e_s: Moment

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0.0 < self.ttft_s <= self.e2e_s:
            raise InputError("ttft_s", self.ttft_s, "must lie above 0 and not above e2e_s", "Record both by one clock")
        return self


class RunEngine(BaseModel):
    """The engine's settings by vLLM's names; model and kv describe, further fields are kept as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    vllm: Name
    model: Name
    max_num_seqs: Positive
    max_num_batched_tokens: Positive
    max_model_len: Positive
    enable_prefix_caching: bool = False
    async_scheduling: bool = False


class EngineRun(BaseModel):
    """The whole recording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: RunEngine
    steps: tuple[RunStep, ...] = Field(max_length=1_000_000)
    requests: dict[Name, tuple[RunRequest, ...]] = Field(max_length=1000)

    @property
    def grid(self) -> tuple[str, ...]:
        """Names of the calibration's phases, in order of their steps."""
        return tuple(dict.fromkeys(step.phase for step in self.steps if step.phase.startswith(GRID)))

    @property
    def tested(self) -> tuple[str, ...]:
        """Names of the phases that predictions are tested on: those whose requests were sent over time, but for a warm-up."""
        return tuple(name for name, sent in self.requests.items() if not name.startswith((GRID, "warm")) and sent)


class Sent(NamedTuple):
    """The requests of a phase in order of sending: when sent, lengths, and what their client measured."""

    arrival_s: npt.NDArray[np.float64]
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    ttft_s: npt.NDArray[np.float64]
    e2e_s: npt.NDArray[np.float64]


def read_engine_run(data: bytes, name: str) -> EngineRun:
    """Return a recording, checked; data : JSON, gzipped or not, at most 64 MB unpacked; name : label for messages.

    Raises InputError that names the field and what is wrong with it.
    """
    raw = data
    if data.startswith(_GZIP):
        try:
            with gzip.open(io.BytesIO(data)) as file:
                raw = file.read(MAX_BYTES + 1)
        except (OSError, EOFError) as error:
            raise InputError(name, data[:20], f"is a broken gzip file ({error})", "Give the whole file") from error
    if len(raw) > MAX_BYTES:
        raise InputError(name, f"over {MAX_BYTES:,} bytes", f"must unpack to at most {MAX_BYTES:,} bytes", "Leave phases out")
    try:
        document = from_json(raw, allow_inf_nan=False)
        json.loads(raw, object_pairs_hook=unique_fields)  # of a field stated twice, from_json keeps the last and says nothing
        return EngineRun.model_validate(document)
    except InputError as fault:
        raise InputError(f"{name}: {fault.field}", fault.value, fault.bound, fault.remedy) from fault
    except ValidationError as error:
        raise as_input_error(error, "recording") from error
    except ValueError as error:
        raise InputError(name, raw[:40], f"is not valid JSON ({error})", "Give a complete document without NaN") from error


def sent(run: EngineRun, phase: str) -> Sent:
    """Return the requests of a phase in order of sending."""
    if phase not in run.requests:
        raise InputError("phase", phase, f"must be one of {', '.join(run.requests)}", "Choose one of these")
    requests = sorted(run.requests[phase], key=lambda request: request.arrival_s)
    return Sent(
        np.array([request.arrival_s for request in requests]),
        np.array([request.prompt for request in requests], dtype=np.int64),
        np.array([request.output for request in requests], dtype=np.int64),
        np.array([request.ttft_s for request in requests]),
        np.array([request.e2e_s for request in requests]),
    )


def ready_at_s(steps: Sequence[RunStep]) -> list[float]:
    """Return when each step of a phase made way for the next [s]: at the next decision, or with its output before a rest.

    Between output and decision the engine hands tokens on and takes requests in, which is a part of what a step costs.
    """
    decisions = [after.scheduled_at_s for after in steps[1:]] + [np.inf]
    return [
        decision_s if decision_s - step.processed_at_s < _REST_S else step.processed_at_s
        for step, decision_s in zip(steps, decisions, strict=True)
    ]


def engine_row(run: EngineRun, config: Mapping[str, Any], name: str, began: dt.datetime) -> Engine:
    """Return the engine as collect_vllm.py would describe it.

    config : the model's Hugging Face config, with its dtype as torch_dtype; name : of the model; began : UTC time of the recording
    """
    dtype = config.get("torch_dtype", config.get("dtype"))
    if not isinstance(dtype, str):
        raise InputError("config.torch_dtype", dtype, "must name the weights' dtype", "Add it, such as float32")
    engine = run.engine
    blocks = -(-engine.max_model_len // BLOCK_SIZE) * engine.max_num_seqs + 1
    return Engine.model_validate(
        {
            "record": "engine", "key": f"{name} tp1 {_mode(run)}", "model": name, "config": dict(config), "mode": _mode(run),
            "max_num_seqs": engine.max_num_seqs, "max_num_batched_tokens": engine.max_num_batched_tokens,
            "max_model_len": engine.max_model_len, "async_scheduling": engine.async_scheduling, "tensor_parallel_size": 1,
            "block_size": BLOCK_SIZE, "num_gpu_blocks": blocks, "cache_dtype": "auto", "dtype": f"torch.{dtype}",
            "enable_prefix_caching": engine.enable_prefix_caching, "enforce_eager": True, "at_utc": began,
        }
    )  # fmt: skip


def _mode(run: EngineRun) -> str:
    return "async" if run.engine.async_scheduling else "sync"


def grid_as_collected(run: EngineRun, config: Mapping[str, Any], name: str, began: dt.datetime) -> bytes:
    """Return the calibration's phases as a collector's file, so that they are fitted as any other.

    A step lasts until the scheduler decides anew; the last of a burst until its output was processed. TTFTs of requests that were
    alone in their burst are kept, since they tell what a request costs outside the engine. Arguments as engine_row.
    """
    engine = engine_row(run, config, name, began)
    key = engine.key or ""
    header = {
        "record": "header", "format": "headroom-collected", "format_version": 1, "collector": "vllm",
        "machine": {"device_kind": "cpu", "device_name": "two shared cores of an x86-64 machine"},
        "software": {"vllm": run.engine.vllm.split()[0]}, "settings": {"models": {name: dict(config)}},
        "command": "converted from a recording of steps and requests by planner.calibration.engine_run",
    }  # fmt: skip
    grid = run.grid
    start_s = min((step.scheduled_at_s for step in run.steps if step.phase in grid), default=0.0)
    rows: list[tuple[float, Mapping[str, Any]]] = [(0.0, header), (0.0, engine.model_dump(mode="json", exclude_none=True))]
    for phase in grid:
        rows += _burst(run, phase, key, start_s)
    rows.append((rows[-1][0], {"record": "end", "complete": True}))
    return "".join(_line(row, began + dt.timedelta(seconds=moment_s)) for moment_s, row in rows).encode()


def _line(row: Mapping[str, Any], moment: dt.datetime) -> str:
    return json.dumps({**row, "at_utc": moment.isoformat(timespec="milliseconds")}, separators=(",", ":")) + "\n"


def _burst(run: EngineRun, phase: str, engine: str, start_s: float) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield a burst's rows, each with the moment of its writing; start_s : from which moments count [s]."""
    steps = [step for step in run.steps if step.phase == phase]
    requests = run.requests.get(phase, ())
    if len({request.prompt for request in requests}) != 1:
        bound = "must hold equal requests"
        raise InputError(f"requests.{phase}", len(requests), bound, "Name a phase grid only if it is a burst of them")
    first, point = requests[0], f"{engine} {phase}"
    if len(requests) == 1:
        # first of its burst, since a reader expects that a time has passed since the row before
        times = dict.fromkeys(("median_s", "lower_quartile_s", "upper_quartile_s"), round(first.ttft_s, 9))
        row = {"record": "ttft", "key": f"{point} ttft", "prompt_tokens": float(first.prompt), "samples": 1, **times}
        yield steps[0].scheduled_at_s - start_s + first.ttft_s, row
    for step, ready_s in zip(steps, ready_at_s(steps), strict=True):
        decode, prefill = _runs(step, first.prompt)
        moments = {"scheduled_at_s": step.scheduled_at_s, "output_at_s": step.processed_at_s, "processed_at_s": ready_s}
        yield ready_s - start_s, {
            "record": "step", "engine": engine, "point": point, "decode": decode, "prefill": prefill, "schedule_s": 0.0,
            **{name: round(moment - start_s, 6) for name, moment in moments.items()},
            "step_s": round(ready_s - step.scheduled_at_s, 6),
        }  # fmt: skip
    yield steps[-1].processed_at_s - start_s, {
        "record": "point", "key": point, "engine": engine, "sequences": len(requests), "prompt_tokens": first.prompt,
        "output_tokens": first.output, "injected_tokens": 0, "steps": len(steps),
    }  # fmt: skip


def _runs(step: RunStep, prompt: int) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int, int]]]:
    """Return the batch as equal decode rows and equal chunks, in order."""
    decode: dict[tuple[int, int], int] = {}
    prefill: dict[tuple[int, int, int], int] = {}
    for new, cached in zip(step.tokens, step.context, strict=True):
        if cached >= prompt:
            decode[new, cached] = decode.get((new, cached), 0) + 1
        else:
            chunk = (new, cached, int(cached + new >= prompt))
            prefill[chunk] = prefill.get(chunk, 0) + 1
    return [(count, *row) for row, count in decode.items()], [(count, *row) for row, count in prefill.items()]


def main(arguments: list[str] | None = None) -> int:
    """Write the grid of a recording as a collector's file; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m planner.calibration.engine_run", description=main.__doc__)
    parser.add_argument("run", type=Path, help="recording, JSON or JSON.gz")
    parser.add_argument("--config", type=Path, required=True, help="config.json of the model that ran, with torch_dtype")
    parser.add_argument("--name", required=True, help="name of the model")
    parser.add_argument(
        "--began", type=dt.datetime.fromisoformat, required=True, help="when it was recorded, such as 2026-11-30T12:00:00Z"
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write, .jsonl or .jsonl.gz")
    options = parser.parse_args(arguments)
    try:
        run = read_engine_run(options.run.read_bytes(), options.run.name)
        lines = grid_as_collected(run, config_from_json(options.config), options.name, options.began)
    except (InputError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    options.out.write_bytes(gzip.compress(lines, 9, mtime=0) if options.out.suffix == ".gz" else lines)
    return 0


def config_from_json(path: Path) -> Mapping[str, Any]:
    """Return a model's config.json; InputError when it can't be read."""
    try:
        document = from_json(path.read_bytes(), allow_inf_nan=False)
    except (OSError, ValueError) as error:
        raise InputError(path.name, str(error), "must be a readable JSON file", "Give the model's config.json") from error
    if not isinstance(document, dict):
        raise InputError(path.name, document, "must be a JSON object", "Give the model's config.json")
    return document


if __name__ == "__main__":
    sys.exit(main())
