"""Workloads by id: uploaded in this process, from the user's folder, or shipped."""

import difflib
import functools
import tomllib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from pydantic import ValidationError

from planner.errors import InputError, as_input_error
from planner.paths import WORKLOADS_DIR, user_home
from planner.workloads.lengths import RowsLengths
from planner.workloads.trace import load_trace, read_document, read_json, save_trace
from planner.workloads.workload import Workload

_KEPT_IN_MEMORY = 16


class _Memory:
    """Uploaded workloads of this process; they are found by id but never listed, as sessions share the process."""

    def __init__(self) -> None:
        self._workloads: OrderedDict[str, Workload] = OrderedDict()
        self._lock = Lock()

    def put(self, workload: Workload) -> None:
        with self._lock:
            self._workloads[workload.id] = workload
            self._workloads.move_to_end(workload.id)
            while len(self._workloads) > _KEPT_IN_MEMORY:
                self._workloads.popitem(last=False)

    def get(self, workload_id: str) -> Workload | None:
        with self._lock:
            return self._workloads.get(workload_id)


_memory = _Memory()


def register_workload(workload: Workload) -> None:
    """Keep a workload in this process so that a scenario can name it; `save_workload` keeps it on disk."""
    _memory.put(workload)


def load_workload(workload_id: str) -> Workload:
    """Return a workload by id; the user's folder wins over the shipped one.

    Raises InputError with the closest ids when it is unknown, and one that names the field when a document is wrong.
    """
    uploaded = _memory.get(workload_id)
    if uploaded is not None:
        return uploaded
    paths = _paths()
    if workload_id not in paths:
        close = difflib.get_close_matches(workload_id[:200], paths, n=3, cutoff=0.4) or sorted(paths)
        raise InputError(
            "workload.id",
            workload_id,
            f"must be a known workload, such as {', '.join(close)}",
            "Choose one, or upload the rows again",
        )
    path = paths[workload_id]
    return _read(path, path.stat().st_mtime_ns)


def list_workloads() -> tuple[Workload, ...]:
    """Return the shipped workloads and those of the user's folder, by id."""
    paths = _paths()
    return tuple(_read(paths[key], paths[key].stat().st_mtime_ns) for key in sorted(paths))


def save_workload(workload: Workload) -> Path:
    """Write the workload, and the rows it names, into the folder PLANNER_HOME; returns the document's path.

    Raises InputError when PLANNER_HOME is unset. Only token counts, times and block identities are written, never text.
    """
    home = user_home()
    if home is None:
        raise InputError(
            "PLANNER_HOME", None, "must name a folder to keep workloads in", "Set the environment variable PLANNER_HOME"
        )
    directory = home / "workloads"
    path = directory / f"{workload.id}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if isinstance(workload.lengths, RowsLengths):
            trace = load_trace(workload.lengths.trace)
            if not (WORKLOADS_DIR / "traces" / f"{trace.meta.id}.parquet").exists():
                save_trace(trace, directory / "traces")
        path.write_text(workload.model_dump_json(indent=1), encoding="utf-8")
    except OSError as error:
        raise InputError("PLANNER_HOME", str(directory), f"can't be written ({error.strerror})", "Name another folder") from error
    return path


def _paths() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for directory in _directories():
        for path in (*sorted(directory.glob("*.toml")), *sorted(directory.glob("*.json"))):
            if path.is_file():
                found.setdefault(path.stem, path)
    return found


def _directories() -> Iterator[Path]:
    home = user_home()
    if home is not None:
        yield home / "workloads"
    yield WORKLOADS_DIR


@functools.lru_cache(maxsize=256)
def _read(path: Path, _mtime_ns: int) -> Workload:
    document = read_document(path, tomllib.loads if path.suffix == ".toml" else read_json)
    try:
        workload = Workload.model_validate(document)
    except ValidationError as error:
        raise as_input_error(error, path.name) from error
    if workload.id != path.stem:
        raise InputError(f"{path.name}.id", workload.id, f"must be {path.stem}, as the file is named", "Rename one of them")
    return workload
