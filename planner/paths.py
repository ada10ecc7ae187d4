"""Where the shipped profiles, workloads and the user's own files lie."""

import errno
import os
import stat
from pathlib import Path

from planner.errors import InputError

ROOT_DIR = Path(__file__).resolve().parent.parent
PROFILES_DIR = ROOT_DIR / "hardware_profiles"
WORKLOADS_DIR = ROOT_DIR / "workloads"
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


def missing_home() -> str | None:
    """Return a sentence on a PLANNER_HOME that names a folder which isn't there; None where it is, or is unset."""
    home = user_home()
    if home is None or home.is_dir():
        return None
    return (
        f"PLANNER_HOME names a folder that doesn't exist ({str(home)[:200]!r}): only what ships with the planner is used. "
        "Correct the name, or leave it to be made when you first save."
    )


def entry_state(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """Return the state of what a folder's entry leads to; None for a link to nowhere or to itself."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
