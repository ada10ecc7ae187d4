"""Where the shipped profiles, workloads and the user's own files lie."""

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
