"""Where the shipped profiles, workloads and the user's own files lie."""

import errno
import os
import stat
from pathlib import Path

from planner.errors import InputError

ROOT_DIR = Path(__file__).resolve().parent.parent
PROFILES_DIR = ROOT_DIR / "hardware_profiles"
WORKLOADS_DIR = ROOT_DIR / "workloads"
_FOLDERS = (
    "models",
    "workloads",
    "workloads/profiles",
    "workloads/traces",
    "hardware_profiles",
    "hardware_profiles/nodes",
    "hardware_profiles/prices",
    "hardware_profiles/calibrations",
)
MODELS_DIR = Path(__file__).resolve().parent / "models" / "catalogue"


def user_home() -> Path | None:
    """Return the user's planner folder from PLANNER_HOME, or None when it is unset.

    The folder mirrors the shipped one (hardware_profiles/, workloads/, models/); an entry there wins over a shipped one of
    the same id. It need not exist yet; InputError when it can't be a folder.
    """
    given = os.environ.get("PLANNER_HOME")
    if not given:
        return None
    remedy = "Name a folder of yours, or unset the environment variable"
    try:
        home = Path(given).expanduser()
        is_folder = stat.S_ISDIR(home.stat().st_mode)
    except FileNotFoundError:
        return home
    except RuntimeError as error:
        raise InputError("PLANNER_HOME", given, "begins with the home folder of nobody", remedy) from error
    except OSError as error:
        raise InputError("PLANNER_HOME", given, f"can't be read ({error.strerror})", remedy) from error
    if not is_folder:
        raise InputError("PLANNER_HOME", given, "must be a folder", remedy)
    return home


def home_fault() -> str | None:
    """Return a sentence on a PLANNER_HOME of which nothing can be read: it isn't there, or what must be a folder in it is none."""
    home = user_home()
    if home is None:
        return None
    if not home.is_dir():
        return (
            f"PLANNER_HOME names a folder that doesn't exist ({str(home)[:200]!r}): only what ships with the planner is used. "
            "Correct the name, or leave it to be made when you first save."
        )
    wrong = [name for name in _FOLDERS if (home / name).exists() and not (home / name).is_dir()]
    if not wrong:
        return None
    return f"{' and '.join(wrong)} in PLANNER_HOME must be a folder and isn't one: nothing of yours is read from it. Rename it."


def entry_state(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """Return the state of what a folder's entry leads to; None for a link to nowhere or to itself."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
