"""Keeps a fitted record in the user's own folder, where plans find it."""

import re
from pathlib import Path

from planner import paths
from planner.calibration.catalogue import FOLDER, HOSTS
from planner.calibration.records import CalibrationRecord, record_from_json, save_record
from planner.errors import InputError

_NAME = re.compile(r"[a-z0-9][a-z0-9.+_-]{0,62}")


def saved_id(record: CalibrationRecord, name: str) -> str:
    """Return the id that a record gets under a name: its GPU's id and the name.

    name : letters, digits, dots, plus, hyphens and underscores, such as "vllm-0.33-mine"

    Raises InputError for another name, or a record of no GPU.
    """
    plain = name.strip().lower() if isinstance(name, str) else ""
    if not _NAME.fullmatch(plain) or ".." in plain:
        bound = "must be 1 to 63 letters, digits, dots, hyphens or underscores, and begin with a letter or digit"
        raise InputError("name", name, bound, "Give a name such as vllm-0.33-mine")
    if record.gpu_id is None or record.gpu_id == HOSTS:
        raise InputError("record", record.id, "is of no GPU", "Fit it for a GPU of the catalogue")
    return f"{record.gpu_id}/{plain}"


def save_own_record(record: CalibrationRecord, name: str, *, replace: bool = False) -> Path:
    """Keep a record as PLANNER_HOME/hardware_profiles/calibrations/<gpu>/<name>.json and return its path.

    name : see saved_id; replace : whether an own record of this name may be replaced

    Raises InputError when PLANNER_HOME is unset, a shipped record or an own one has the name, or the folder can't be written.
    """
    record_id = saved_id(record, name)
    home = paths.user_home()
    if home is None:
        remedy = "Set the environment variable to a folder and start again"
        raise InputError("PLANNER_HOME", None, "must name a folder of yours", remedy)
    if (paths.PROFILES_DIR / FOLDER / f"{record_id}.json").exists():
        raise InputError("name", name, "is a record that ships with the planner", "Give it another name")
    folder = home / "hardware_profiles" / FOLDER
    if not replace and (folder / f"{record_id}.json").exists():
        raise InputError("name", name, "is already a record of yours", "Give it another name, or replace it on purpose")
    named = record.model_copy(update={"id": record_id})
    checked = record_from_json(named.model_dump_json(exclude_none=True), record_id)
    try:
        return save_record(checked, folder)
    except OSError as error:
        raise InputError("PLANNER_HOME", str(folder), f"can't be written ({error.strerror})", "Name another folder") from error
