"""Where the shipped profiles, workloads and the user's own files lie."""

import os
from pathlib import Path

ROOT_DIR = Path(__file__).resolve().parent.parent
PROFILES_DIR = ROOT_DIR / "hardware_profiles"
WORKLOADS_DIR = ROOT_DIR / "workloads"
MODELS_DIR = Path(__file__).resolve().parent / "models" / "catalogue"


def user_home() -> Path | None:
    """Return the user's planner folder from PLANNER_HOME, or None when it is unset.

    The folder mirrors the shipped one (hardware_profiles/, workloads/, models/); an entry there wins over a shipped one of
    the same id.
    """
    home = os.environ.get("PLANNER_HOME")
    return Path(home).expanduser() if home else None
