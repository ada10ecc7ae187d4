"""What the form offers: the identifiers of the catalogues, with their names."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar, get_args

from planner.calibration.records import list_records
from planner.engines import ENGINE_VERSIONS
from planner.hardware import list_prices, survey_gpus
from planner.models import QUANTIZATIONS, list_models
from planner.paths import user_home
from planner.scenario import EngineChoice, ModelChoice
from planner.workloads import list_workloads

Out = TypeVar("Out")
NATIVE = "native"
_TENSOR_PARALLEL = ("1", "2", "4", "8", "16")


def workload_names() -> dict[str, str]:
    """Return the names of the listed workloads by id."""
    return dict(_kept(_workload_names))


def model_names() -> dict[str, str]:
    """Return the names of the models by id."""
    return dict(_kept(_model_names))


def gpu_names() -> dict[str, str]:
    """Return the names of the GPUs by id; a file with a fault is left out here and named on the Catalogue page."""
    return dict(_kept(_gpu_names))


def gpu_ranks() -> dict[str, int]:
    """Return each GPU's place in the catalogue, from which its colour and shape follow."""
    return {gpu_id: rank for rank, gpu_id in enumerate(gpu_names())}


def options(key: str, provider: str = "") -> list[str]:
    """Return what a select widget offers; key : of the field, provider : the chosen one, for its regions."""
    if key == "region":
        return sorted({price.region for price in list_prices() if provider in {"", price.provider}})
    return list(_kept(_OFFERED[key]))


def _kept(make: Callable[[], Out]) -> Out:
    """Return a list of the catalogue: the shipped one is read once, as each run of a page asks for it; with the user's own anew."""
    return _shipped(make) if user_home() is None else make()


@lru_cache(maxsize=64)
def _shipped(make: Callable[[], Out]) -> Out:
    return make()


def _workload_names() -> dict[str, str]:
    return {workload.id: workload.name for workload in list_workloads()}


def _model_names() -> dict[str, str]:
    return {model.id: model.name for model in list_models()}


def _gpu_names() -> dict[str, str]:
    return {gpu.id: gpu.name for gpu in survey_gpus().profiles}


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


_OFFERED: dict[str, Callable[[], Iterable[str]]] = {
    "workload": _workload_names,
    "model": _model_names,
    "quant": lambda: (NATIVE, *QUANTIZATIONS),
    "kv": lambda: get_args(ModelChoice.model_fields["kv_dtype"].annotation),
    "gpus": _gpu_names,
    "tp": lambda: _TENSOR_PARALLEL,
    "provider": lambda: sorted({price.provider for price in list_prices()}),
    "basis": lambda: ("on demand", "spot"),
    "version": lambda: sorted(ENGINE_VERSIONS[EngineChoice().engine], key=_release, reverse=True),
    "calibration": lambda: [record.id for record in list_records()],
}
