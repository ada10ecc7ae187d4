"""Priors: every accelerator has a record whose figures lie within physics, carry a source and widen where little is known."""

import pytest

from planner.calibration.families import DTYPE_RATIOS, FAMILIES, dtype_ratio, family_of
from planner.calibration.priors import BAND, SMOOTHNESS, completed, prior_record
from planner.calibration.records import CalibrationRecord, host_for, load_record, record_for
from planner.calibration.schema import bounds_of
from planner.hardware import GpuProfile, list_gpus, load_gpu

GPUS = list_gpus()


@pytest.mark.parametrize("gpu", GPUS, ids=[gpu.id for gpu in GPUS])
def test_every_accelerator_has_a_complete_record(gpu: GpuProfile) -> None:
    record = record_for(gpu, "vllm", "0.33.0")
    assert CalibrationRecord.model_validate(record.model_dump()) == record
    assert record.basis in {"fitted", "published", "prior"}
    assert set(record.compute_efficiency) == set(gpu.dense_flops_per_s)
    assert set(record.memory_efficiency) == {"bf16", "fp8", "fp4"}
    for path, parameter in record.parameters():
        low, high = bounds_of(path)
        assert low <= parameter.low <= parameter.value <= parameter.high <= high, path
        assert len(parameter.source.ref) > 10, path
    assert record.smoothness.value == SMOOTHNESS


@pytest.mark.parametrize("gpu", GPUS, ids=[gpu.id for gpu in GPUS])
def test_a_prior_is_marked_and_as_wide_as_its_evidence(gpu: GpuProfile) -> None:
    record = prior_record(gpu, "vllm", "0.33.0", host_for("vllm"))
    assert record.basis == "prior"
    for path, parameter in record.parameters():
        if path.startswith("host.") or path == "smoothness":
            continue
        assert parameter.informed_by in {"prior", "assumed"}, path
        if path.startswith(("memory_efficiency", "compute_efficiency")):
            assert parameter.low <= (1 - BAND) * parameter.value * 1.0001, path
            assert parameter.high >= min(1.0, (1 + BAND) * parameter.value) * 0.9999, path
        if path.startswith("all_reduce"):
            assert parameter.low <= 0.81 * parameter.value, path


def test_medians_of_all_engines_hold_where_no_family_was_measured() -> None:
    record = prior_record(load_gpu("mi300x"), "vllm", "0.33.0", host_for("vllm"))
    assert record.memory_efficiency["bf16"].value == 0.80
    assert record.memory_efficiency["fp4"].value == 0.58
    assert record.layer_s.value == pytest.approx(70e-6)
    assert record.compute_efficiency["fp8"].value < record.compute_efficiency["bf16"].value
    medians = (*record.memory_efficiency.values(), record.layer_s)
    assert {parameter.source.kind for parameter in medians} == {"published"}, "nobody fitted them here"
    assert record.smoothness.source.kind == "fitted"


def test_a_sibling_of_a_measured_chip_takes_its_share() -> None:
    sibling = record_for(load_gpu("h800-80g-sxm"), "vllm", "0.24.0")
    measured = load_record("h100-80g-sxm/vllm-0.24.0")
    assert sibling.basis == "prior"
    for table in ("memory_efficiency", "compute_efficiency"):
        ratio = getattr(sibling, table)["bf16"].value / getattr(measured, table)["bf16"].value
        assert ratio == pytest.approx(1.0, abs=0.03)


def test_links_decide_the_cost_of_an_all_reduce() -> None:
    def beta(gpu_id: str, size: int) -> float:
        return record_for(load_gpu(gpu_id), "vllm", "0.24.0").all_reduce[size].beta_bytes_per_s.value

    assert beta("h800-80g-sxm", 8) < beta("h100-80g-sxm", 8)
    assert beta("l4", 8) < beta("l4", 4) < beta("l4", 2) < beta("a100-40g-sxm", 2)
    assert beta("h100-94g-nvl", 4) < 0.2 * beta("h100-94g-nvl", 2)
    mesh = load_gpu("mi300x")
    assert mesh.link is not None
    assert beta("mi300x", 2) < mesh.link.unidirectional_bytes_per_s / 7
    assert beta("mi300x", 8) == pytest.approx(beta("mi300x", 2) * 7 * 0.70 / 0.57)


def test_a_device_without_links_has_no_all_reduce() -> None:
    assert record_for(load_gpu("jetson-thor"), "vllm", "0.24.0").all_reduce == {}


def test_families_end_with_one_that_fits_all() -> None:
    assert FAMILIES[-1][:3] == ("", "", "")
    assert family_of(load_gpu("h100-80g-sxm")).arch == "Hopper"
    assert family_of(load_gpu("h100-80g-pcie")).form == "PCIe"
    assert family_of(load_gpu("trainium2")) == FAMILIES[-1]
    assert all(0 < family.compute_efficiency <= 1 and family.reason for family in FAMILIES)


def test_a_gpus_own_kernels_go_before_the_general_ratio() -> None:
    assert dtype_ratio("h100-80g-sxm", "fp8").ratio == 0.73
    assert dtype_ratio("mi300x", "fp8") == DTYPE_RATIOS["fp8"]


def test_a_figure_of_the_record_is_never_replaced() -> None:
    gpu, record = load_gpu("l40s"), load_record("l40s/vllm-0.24.0")
    whole = dict(completed(record, gpu).parameters())
    for path, parameter in record.parameters():
        assert whole[path] == parameter, path
    assert "compute_efficiency.fp8" in whole


@pytest.mark.parametrize("share", [0.01, 0.0137, 0.02, 1.0])
def test_a_record_that_reaches_next_to_nothing_of_its_gpu_is_completed_within_bounds(share: float) -> None:
    # A fit to the wrong model is a record all the same, and must not end every plan for its GPU.
    gpu = load_gpu("h100-80g-sxm")
    record = load_record("h100-80g-sxm/vllm-0.24.0")
    base = record.compute_efficiency["bf16"]
    low = base.model_copy(update={"value": share, "low": 0.9 * share if share > 0.02 else 0.01, "high": min(1.0, 1.2 * share)})
    poor = record.model_copy(update={"compute_efficiency": {"bf16": low}, "expert_compute_efficiency": {}})
    for path, parameter in completed(poor, gpu).parameters():
        lowest, highest = bounds_of(path)
        assert lowest <= parameter.low <= parameter.value <= parameter.high <= highest, path
