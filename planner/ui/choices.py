"""What the form offers: the identifiers of the catalogues, with their names."""

from collections.abc import Callable, Iterable
from typing import get_args

from planner.calibration.records import list_records
from planner.engines import ENGINE_VERSIONS
from planner.hardware import list_prices, survey_gpus
from planner.models import QUANTIZATIONS, list_models
from planner.scenario import EngineChoice, ModelChoice
from planner.workloads import list_workloads

NATIVE = "native"
_TENSOR_PARALLEL = ("1", "2", "4", "8", "16")


def workload_names() -> dict[str, str]:
    """Return the names of the listed workloads by id."""
    return {workload.id: workload.name for workload in list_workloads()}


def model_names() -> dict[str, str]:
    """Return the names of the models by id."""
    return {model.id: model.name for model in list_models()}


def gpu_names() -> dict[str, str]:
    """Return the names of the GPUs by id; a file with a fault is left out here and named on the Catalogue page."""
    return {gpu.id: gpu.name for gpu in survey_gpus().profiles}


def gpu_ranks() -> dict[str, int]:
    """Return each GPU's place in the catalogue, from which its colour and shape follow."""
    return {gpu_id: rank for rank, gpu_id in enumerate(gpu_names())}


def options(key: str, provider: str = "") -> list[str]:
    """Return what a select widget offers; key : of the field, provider : the chosen one, for its regions."""
    if key == "region":
        return sorted({price.region for price in list_prices() if provider in {"", price.provider}})
    return list(_OFFERED[key]())


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


_OFFERED: dict[str, Callable[[], Iterable[str]]] = {
    "workload": workload_names,
    "model": model_names,
    "quant": lambda: (NATIVE, *QUANTIZATIONS),
    "kv": lambda: get_args(ModelChoice.model_fields["kv_dtype"].annotation),
    "gpus": gpu_names,
    "tp": lambda: _TENSOR_PARALLEL,
    "provider": lambda: sorted({price.provider for price in list_prices()}),
    "basis": lambda: ("on demand", "spot"),
    "version": lambda: sorted(ENGINE_VERSIONS[EngineChoice().engine], key=_release, reverse=True),
    "calibration": lambda: (record.id for record in list_records()),
}
