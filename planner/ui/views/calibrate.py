"""What the Calibrate page is about: the record that a plan uses, where it was measured, and what a record changes in a scenario."""

from typing import Any, NamedTuple

from planner.calibration.records import CalibrationRecord, record_for
from planner.hardware import load_gpu
from planner.plans.results import Candidate, Plan
from planner.scenario import Scenario
from planner.step_coefficients import compute_dtype_on, weight_class
from planner.ui.views.calibrate_collect import Place, place_of

GPU_ID = "h100-80g-sxm"
"""Stands in where neither the plan nor the scenario names a GPU: most published measurements are of it."""

_TABLES = frozenset({"memory_efficiency", "compute_efficiency", "expert_compute_efficiency", "all_reduce"})


class InUse(NamedTuple):
    """The record that a plan's step times come from.

    place : what to measure for it
    paths : the record's parameters that the plan uses; None for all, where there is no answer to ask
    """

    record: CalibrationRecord
    place: Place
    paths: frozenset[str] | None


def in_use(scenario: Scenario, plan: Plan | None) -> InUse:
    """Return the record behind a plan's answer, or behind the first GPU that a scenario names where there is no answer."""
    candidates = () if plan is None else (plan.chosen, *plan.candidates)
    for candidate in candidates:
        if candidate is not None and candidate.record is not None and candidate.deployment is not None:
            place = place_of(scenario, candidate.gpu_id, candidate.tensor_parallel)
            return InUse(candidate.record, place, _used(candidate))
    gpu = load_gpu(next(iter(scenario.hardware.gpu_ids), GPU_ID))
    sizes = scenario.hardware.tensor_parallel or (1,)
    record = record_for(gpu, scenario.engine.engine, scenario.engine.version)
    return InUse(record, place_of(scenario, gpu.id, sizes[0]), None)


def _used(candidate: Candidate) -> frozenset[str] | None:
    """Return the paths of the parameters that a candidate's step times come from: its own dtypes and TP size."""
    record, deployment = candidate.record, candidate.deployment
    if record is None or deployment is None:
        return None
    weights = weight_class(deployment.quantization.weight_bits)
    compute = compute_dtype_on(deployment.gpu, deployment.quantization, deployment.engine.engine)
    keys = {
        f"memory_efficiency.{weights}",
        f"compute_efficiency.{compute}",
        f"all_reduce.{candidate.tensor_parallel}",
    }
    if deployment.model.is_moe:
        keys.add(f"expert_compute_efficiency.{compute}")
    moe_only = frozenset() if deployment.model.is_moe else frozenset({"expert_layer_s", "expert_spread"})
    return frozenset(path for path, _ in record.parameters() if _belongs(path, keys) and path not in moe_only)


def _belongs(path: str, keys: set[str]) -> bool:
    table, _, rest = path.partition(".")
    return table not in _TABLES or f"{table}.{rest.partition('.')[0]}" in keys


def patch_for(record: CalibrationRecord, scenario: Scenario) -> dict[str, Any]:
    """Return what a scenario must change to plan with a record: its id, and its GPU alone unless that is among those named."""
    patch: dict[str, Any] = {"engine.calibration_id": record.id}
    if record.gpu_id is not None and record.gpu_id not in scenario.hardware.gpu_ids:
        patch["hardware.gpu_ids"] = [record.gpu_id]
    return patch
