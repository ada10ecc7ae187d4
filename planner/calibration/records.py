"""Calibration records: which one holds for a GPU under an engine, and the names that other modules use.

>>> from planner.calibration.records import load_record
>>> load_record("textbook").basis
'textbook'
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from planner.calibration.catalogue import (
    Stamp,
    list_hosts,
    list_records,
    load_host,
    load_record,
    own_record_ids,
    record_paths,
    save_record,
    shipped_ids,
    stamps,
)
from planner.calibration.priors import completed, prior_record, separate_mix_factor, widened
from planner.calibration.reading import host_from_json, record_from_json
from planner.calibration.schema import (
    AllReduce,
    CalibrationRecord,
    Evidence,
    GroupError,
    HostTerms,
    LogCovariance,
    Parameter,
    Reference,
)
from planner.hardware import GpuProfile

TEXTBOOK = "textbook"
Usage = Literal["server", "offline"]
_AGED, _PRESENT_VLLM = "vllm-before-0.8", "0.8"
_OTHER_ENGINE_FACTOR = 2.0
_SEPARATE_ATTENTION = "tensorrt-llm"
_NUMBERS = re.compile(r"\d+")

__all__ = [
    "TEXTBOOK",
    "AllReduce",
    "CalibrationRecord",
    "Evidence",
    "GroupError",
    "HostTerms",
    "LogCovariance",
    "Parameter",
    "Reference",
    "host_for",
    "host_from_json",
    "is_aged",
    "list_hosts",
    "list_records",
    "load_host",
    "load_record",
    "own_record_ids",
    "record_finder",
    "record_for",
    "record_from_json",
    "save_record",
]


def record_for(gpu: GpuProfile, engine: str, version: str, dtype: str = "bf16", usage: Usage = "server") -> CalibrationRecord:
    """Return the record that predictions for a GPU under an engine should use; its `basis` says what it rests on.

    gpu : the accelerator
    engine : "vllm", "sglang" or "tensorrt-llm"
    version : release of the engine; the nearest older record is taken, else the nearest newer one; its age decides the host terms
    dtype : compute dtype; a record that measured it goes before one that didn't
    usage : "server" behind HTTP, or "offline" over a file, which changes the host terms alone

    A record of the user's that stands in for a shipped one, by its id, is taken as that one would be. One of another id must be
    named to be used, unless nothing of this GPU and engine is shipped. A record of the same GPU under another engine gives the
    GPU's figures with intervals twice as wide, and this engine's host terms. Without any, a prior scaled from other GPUs. What a
    record doesn't hold (other dtypes, other tensor-parallel sizes) is filled in from priors, each parameter saying so.
    """
    return record_finder(engine, version, dtype, usage)(gpu)


def record_finder(
    engine: str, version: str, dtype: str = "bf16", usage: Usage = "server"
) -> Callable[[GpuProfile], CalibrationRecord]:
    """Return `record_for` for many GPUs: the folders of records are looked through once."""
    files = stamps()
    return lambda gpu: _record_for(gpu, (engine, version), dtype, usage, files)


@lru_cache(maxsize=1024)
def _record_for(
    gpu: GpuProfile, release: tuple[str, str], dtype: str, usage: Usage, _files: tuple[Stamp, ...]
) -> CalibrationRecord:
    engine, version = release
    of_gpu = _of_gpu(gpu.id)
    own = _shipped_first([record for record in of_gpu if record.engine == engine])
    host = host_for(engine, usage, version)
    if own:
        record = _nearest(own, version, dtype)
        measured_host = usage == "server" and not is_aged(engine, version)
        return completed(record if measured_host else record.with_host(host), gpu)
    others = _shipped_first(of_gpu)
    if others:
        return completed(_carried_over(_nearest(others, version, dtype), engine, version, host), gpu)
    return prior_record(gpu, engine, version, host)


def host_for(engine: str, usage: Usage = "server", version: str | None = None) -> HostTerms:
    """Return an engine's host terms.

    engine : "vllm", "sglang" or "tensorrt-llm"
    usage : as in record_for
    version : release; vLLM's of before 0.8 spent three to five milliseconds of CPU time on each step. None: a present one
    """
    name = _AGED if engine == "vllm" and is_aged(engine, version) else engine
    return load_host(name if usage == "server" else f"{name}-offline")


def is_aged(engine: str, version: str | None) -> bool:
    """Say whether a release's host terms differ from those of present ones."""
    return engine == "vllm" and version is not None and () < version_key(version) < version_key(_PRESENT_VLLM)


def version_key(version: str | None) -> tuple[int, ...]:
    """Return a version's numbers for comparison; none sorts first.

    >>> version_key("0.33.0") > version_key("0.9.2")
    True
    """
    return tuple(int(number) for number in _NUMBERS.findall(version or "")[:6])


def _of_gpu(gpu_id: str) -> list[CalibrationRecord]:
    return [load_record(record_id) for record_id in sorted(record_paths()) if record_id.partition("/")[0] == gpu_id]


def _shipped_first(records: list[CalibrationRecord]) -> list[CalibrationRecord]:
    """Return the records whose ids are shipped; all where none is."""
    known = shipped_ids()
    return [record for record in records if record.id in known] or records


def _nearest(records: list[CalibrationRecord], version: str, dtype: str) -> CalibrationRecord:
    wanted = version_key(version)
    with_dtype = [record for record in records if dtype in record.compute_efficiency] or records
    older = [record for record in with_dtype if version_key(record.engine_version) <= wanted]
    if older:
        return max(older, key=lambda record: (version_key(record.engine_version), record.id))
    return min(with_dtype, key=lambda record: (version_key(record.engine_version), record.id))


def _carried_over(record: CalibrationRecord, engine: str, version: str, host: HostTerms) -> CalibrationRecord:
    """Return a record of another engine as a prior for this one."""
    reason = f"taken from {record.engine} {record.engine_version} on the same GPU, interval twice as wide"
    wider = {
        path: widened(parameter, path, _OTHER_ENGINE_FACTOR, reason)
        for path, parameter in record.parameters()
        if not path.startswith("host.")
    }
    if engine == _SEPARATE_ATTENTION:
        wider["mix_factor"] = separate_mix_factor()
    return record.with_parameters(wider).model_copy(
        update={
            "id": f"{record.gpu_id}/{engine}-{version}-prior",
            "engine": engine,
            "engine_version": version,
            "basis": "prior",
            "description": f"{record.description} Taken over for {engine} {version}.",
            "host": host,
            "covariance": None,
        }
    )
