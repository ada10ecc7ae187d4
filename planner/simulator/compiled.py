"""Compiles the simulator's loop and keeps the machine code where it can't go stale.

Numba's cache looks only at the file of the function that it compiled. The loop's parts lie in several files and in the step model,
so the folder of the cache carries a digest of all of them; a changed line makes a new folder.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numba.extending import register_jitable

from planner import step_model

numba_config: Any = config
F = TypeVar("F", bound=Callable[..., object])

_PACKAGE_DIR = Path(__file__).resolve().parent
_SOURCES = (
    _PACKAGE_DIR / "chunks.py",
    _PACKAGE_DIR / "compiled.py",
    _PACKAGE_DIR / "layout.py",
    *sorted(_PACKAGE_DIR.glob("kernel*.py")),
    Path(step_model.__file__),
)
_FORMULAS = (
    step_model.smooth_max,
    step_model.experts_hit,
    step_model.linear_s,
    step_model.head_s,
    step_model.host_s,
    step_model.exposed_host_s,
    step_model.weights_s,
    step_model.decode_attention_s,
    step_model.prefill_attention_s,
)

for _formula in _FORMULAS:
    register_jitable(_formula)


def cache_dir() -> Path:
    """Return the folder for this version's machine code: NUMBA_CACHE_DIR, the package's own, or one in the temporary folder."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    name = f"simulator-{digest.hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / name
    own = _PACKAGE_DIR / "__pycache__"
    if os.access(own if own.exists() else _PACKAGE_DIR, os.W_OK):
        return own / name
    return Path(tempfile.gettempdir()) / f"headroom-{os.getuid() if hasattr(os, 'getuid') else 'user'}" / name


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Options of all compiled parts. Without `_nrt` each access to an array would count references, at twenty times the cost; the loop
allocates nothing, so there is nothing to count."""


def part(function: F) -> F:
    """Mark a function as part of the compiled loop; it is compiled with the entry that calls it."""
    compiled: F = numba.njit(**_OPTIONS)(function)
    return compiled


def hot(function: F) -> F:
    """The same, copied into its caller: for what every step runs."""
    compiled: F = numba.njit(**_OPTIONS, forceinline=True)(function)
    return compiled


def entry(function: F) -> F:
    """Mark a function that Python calls: compiled once, kept on disk, and free of the interpreter's lock while it runs."""
    before = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = str(cache_dir())
    try:
        compiled: F = numba.njit(**_OPTIONS, cache=True)(function)
    finally:
        numba_config.CACHE_DIR = before
    return compiled
