"""The calibration records that are known: shipped files, and the user's own, which win by id."""

import os
import re
import stat
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from planner import paths
from planner.calibration.reading import host_from_json, read_bounded, record_from_json
from planner.calibration.schema import RECORD_ID, CalibrationRecord, HostTerms
from planner.errors import InputError

FOLDER = "calibrations"
HOSTS = "hosts"
MAX_FILES = 2_000
SUFFIX = ".json"
_ID = re.compile(RECORD_ID)


class Stamp(NamedTuple):
    """One version of one file."""

    path: Path
    mtime_ns: int
    size: int


def record_paths() -> dict[str, Path]:
    """Return the file of each record by id, host terms apart; the user's files win."""
    return {record_id: stamp.path for record_id, stamp in _records().items()}


def shipped_ids() -> frozenset[str]:
    """Return the ids of the records that ship with the planner, whether or not a file of the user's stands in for them."""
    return frozenset(_ids(folders()[0]))


def own_record_ids() -> frozenset[str]:
    """Return the ids of the records in the user's folder."""
    return frozenset(record_id for folder in folders()[1:] for record_id in _ids(folder))


def host_paths() -> dict[str, Path]:
    """Return the file of each set of host terms by id; the user's files win."""
    return {host_id: stamp.path for host_id, stamp in _hosts().items()}


def folders() -> tuple[Path, ...]:
    """Return the folders that hold records, the shipped one first."""
    home = paths.user_home()
    own = () if home is None else (home / "hardware_profiles" / FOLDER,)
    return (paths.PROFILES_DIR / FOLDER, *own)


def stamps() -> tuple[Stamp, ...]:
    """Return the version of every file of records and host terms: equal when nothing has changed."""
    return tuple(stamp for known in (_records(), _hosts()) for _, stamp in sorted(known.items()))


def load_record(record_id: str) -> CalibrationRecord:
    """Return one record.

    record_id : such as "h100-80g-sxm/vllm-0.24.0" or "textbook"

    Raises InputError listing what is known when there is none, or naming the fault of its file.
    """
    record = _record(_stamp(_path_of(record_id, record_paths(), "record")))
    if record.id != record_id:
        bound = f"must be the path of its file, {record_id}"
        raise InputError(f"{record_id}: id", record.id, bound, "Rename the file or correct the id")
    return record


def list_records() -> tuple[CalibrationRecord, ...]:
    """Return all records, sorted by id. Raises InputError on the first file with a fault."""
    return tuple(load_record(record_id) for record_id in sorted(record_paths()))


def load_host(host_id: str) -> HostTerms:
    """Return one set of host terms; host_id : such as "vllm" (an engine's default) or "vllm-tuned"."""
    return _host(_stamp(_path_of(host_id, host_paths(), "host terms")))


def list_hosts() -> tuple[HostTerms, ...]:
    """Return all sets of host terms, sorted by id."""
    return tuple(load_host(host_id) for host_id in sorted(host_paths()))


def save_record(record: CalibrationRecord, folder: Path) -> Path:
    """Write a record into a folder of records, in place of one of the same id, and return its path.

    folder : such as PLANNER_HOME/hardware_profiles/calibrations
    """
    path = folder / f"{record.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(record.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def _records() -> dict[str, Stamp]:
    return {record_id: stamp for folder in folders() for record_id, stamp in _ids(folder).items()}


def _hosts() -> dict[str, Stamp]:
    return {name: stamp for folder in folders() for name, stamp in _files(folder / HOSTS).items() if "/" not in name}


def _ids(folder: Path) -> dict[str, Stamp]:
    """Return the records' files of one folder by id, host terms apart."""
    return {name: stamp for name, stamp in _files(folder).items() if not name.startswith(f"{HOSTS}/")}


def _files(folder: Path) -> dict[str, Stamp]:
    """Return the files in a folder and one level below by their path without suffix, in its order.

    It is asked for every candidate of a plan, so names are compared as text and each file's state is read once.
    """
    found: dict[str, Stamp] = {}
    for entry in _listed(folder):
        state = paths.entry_state(entry)
        below = state is not None and stat.S_ISDIR(state.st_mode)
        inner = [(f"{entry.name}/", file) for file in _listed(entry.path)] if below else [("", entry)]
        for prefix, file in inner:
            status = paths.entry_state(file) if file.name.endswith(SUFFIX) else None
            if status is not None and stat.S_ISREG(status.st_mode):
                found[prefix + file.name.removesuffix(SUFFIX)] = Stamp(Path(file.path), status.st_mtime_ns, status.st_size)
    if len(found) > MAX_FILES:
        raise InputError("calibrations", len(found), f"must be at most {MAX_FILES} files", f"Clear out {folder.name}")
    return dict(sorted(found.items()))


def _listed(folder: Path | str) -> list[os.DirEntry[str]]:
    """Return what is in a folder; nothing when there is none."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as fault:
        raise InputError("calibrations", str(folder), "must be readable", "Give the right to read it, or move it away") from fault


def _path_of(name: str, known: dict[str, Path], kind: str) -> Path:
    if not isinstance(name, str) or not _ID.fullmatch(name) or name not in known:
        listed = ", ".join(sorted(known)[:40])
        raise InputError(kind, name, f"must be one of: {listed}", "Choose one of these, or add its file")
    return known[name]


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return Stamp(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=512)
def _record(stamp: Stamp) -> CalibrationRecord:
    return record_from_json(read_bounded(stamp.path), stamp.path.name)


@lru_cache(maxsize=64)
def _host(stamp: Stamp) -> HostTerms:
    return host_from_json(read_bounded(stamp.path), stamp.path.name)
