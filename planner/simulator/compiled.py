"""Compiles the simulator's loop and keeps the machine code where it can't go stale.

Numba's cache looks only at the file of the function that it compiled. The loop's parts lie in several files and in the step model,
so the folder of the cache carries a digest of all of them; a changed line makes a new folder.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numba.extending import register_jitable

from planner import attention_pairs, step_model
from planner.simulator import forecast

numba_config: Any = config
njit: Any = numba.njit
F = TypeVar("F", bound=Callable[..., object])

_PACKAGE_DIR = Path(__file__).resolve().parent
_SOURCES = (
    _PACKAGE_DIR / "compiled.py",
    _PACKAGE_DIR / "door_layout.py",
    _PACKAGE_DIR / "forecast.py",
    _PACKAGE_DIR / "layout.py",
    *sorted(_PACKAGE_DIR.glob("kernel*.py")),
    Path(attention_pairs.__file__),
    Path(step_model.__file__),
)
_FORMULAS = (
    attention_pairs.causal_pairs,
    attention_pairs.window_pairs,
    step_model.smooth_max,
    step_model.experts_hit,
    step_model.linear_s,
    step_model.head_s,
    step_model.host_s,
    step_model.exposed_host_s,
    step_model.weights_s,
    step_model.decode_attention_s,
    step_model.prefill_attention_s,
    *forecast.FORMULAS,
)

for _formula in _FORMULAS:
    register_jitable(_formula)


def cache_dir() -> Path | None:
    """Return the folder for this version's machine code; None where none can be written.

    In NUMBA_CACHE_DIR if that is set, else beside the package, else in the user's cache. Never a folder that others can write to:
    the files are code.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    name = f"simulator-{digest.hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / name
    for folder in (_PACKAGE_DIR / "__pycache__", Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headroom"):
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder / name, os.W_OK):
            return folder / name
    return None


def is_compiled() -> bool:
    """Say whether this version's machine code lies on disk."""
    folder = cache_dir()
    return folder is not None and any(folder.rglob("*.nbc"))


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
"""Options of all compiled functions. Without `_nrt` each access to an array would count references, at twenty times the cost; the
loop allocates nothing, so there is nothing to count."""


def part(function: F) -> F:
    """Mark a function as part of the compiled loop; it is compiled with the entry that calls it and can't be called from Python."""
    compiled: F = njit(**_OPTIONS, no_cpython_wrapper=True)(function)
    return compiled


def hot(function: F) -> F:
    """The same, copied into its caller: for what every step runs."""
    compiled: F = njit(**_OPTIONS, no_cpython_wrapper=True, forceinline=True)(function)
    return compiled


def entry(function: F) -> F:
    """Mark a function that Python calls: compiled once, kept on disk, and free of the interpreter's lock while it runs."""
    folder = cache_dir()
    before = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = "" if folder is None else str(folder)
    try:
        compiled: F = njit(**_OPTIONS, cache=folder is not None)(function)
    finally:
        numba_config.CACHE_DIR = before
    return compiled
