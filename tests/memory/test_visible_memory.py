"""What an engine sees of a GPU's memory."""

import pytest

from planner.hardware import list_gpus, load_gpu
from planner.memory import visible_memory_bytes, visible_memory_source
from planner.units import GIB


@pytest.mark.parametrize(
    ("gpu_id", "gib"), [("h100-80g-sxm", 79.19), ("l4", 22.03), ("t4", 14.56), ("h200-141g-sxm", 139.80), ("b200-sxm", 178.35)]
)
def test_known_cards_show_what_logs_show(gpu_id: str, gib: float) -> None:
    assert visible_memory_bytes(load_gpu(gpu_id)) == pytest.approx(gib * GIB)
    assert visible_memory_source(load_gpu(gpu_id)).kind == "published"


@pytest.mark.parametrize(
    ("gpu_id", "gib"), [("l4", 22.03), ("rtx-5090", 31.36), ("l40s", 44.39), ("a100-80g-sxm", 79.25), ("b300-sxm", 267.69)]
)
def test_the_fitted_reserve_holds_on_cards_it_was_not_fitted_on(gpu_id: str, gib: float) -> None:
    unknown = load_gpu(gpu_id).model_copy(update={"id": "some-other-card"})
    assert visible_memory_source(unknown).kind == "fitted"
    assert visible_memory_bytes(unknown) == pytest.approx(gib * GIB, rel=0.013)


def test_no_gpu_shows_more_than_its_driver_reports() -> None:
    for gpu in list_gpus():
        assert 0.9 * gpu.memory_reported_bytes < visible_memory_bytes(gpu) <= gpu.memory_reported_bytes


def test_a_slice_of_a_known_card_does_not_show_the_whole_card() -> None:
    card = load_gpu("h100-80g-sxm")
    half = card.model_copy(update={"memory_reported_bytes": card.memory_reported_bytes / 2})
    assert visible_memory_bytes(half) < card.memory_reported_bytes / 2
