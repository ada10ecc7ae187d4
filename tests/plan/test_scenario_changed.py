"""A scenario changed in a program: by dotted names, by pydantic's copy, as a key of a dictionary."""

from typing import Any

import pytest
from pydantic import ValidationError

from planner.errors import InputError
from planner.scenario import Scenario, patched, scenario_from_dict


def test_a_sweep_changes_one_field_by_its_dotted_name() -> None:
    base = scenario_from_dict({"hardware": {"gpu_ids": ["l40s"]}, "seed": 5})
    found = [patched(base, {"workload.load": {"kind": "rate", "requests_per_s": rate}}) for rate in (1, 2.5)]
    assert [each.workload.load.model_dump()["requests_per_s"] for each in found] == [1.0, 2.5]
    assert all((each.seed, each.hardware) == (base.seed, base.hardware) for each in found)
    assert base.workload == Scenario().workload


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"colour": "blue"}, "colour"),
        ({"modle.id": "x"}, "modle.id"),
        ({"model.id.name": "x"}, "model.id.name"),
        ({"hardware.gpu_ids.0": "x"}, "hardware.gpu_ids.0"),
        ({"fleet.headroom": 2}, "fleet.headroom"),
        ({"seed": True}, "seed"),
        ({"": 1}, ""),
    ],
)
def test_a_patch_of_what_is_no_field_or_out_of_bounds_is_refused(patch: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        patched(Scenario(), patch)
    assert caught.value.field == field


def test_a_copy_is_checked_as_the_constructor_checks() -> None:
    base = Scenario()
    workload = base.workload.model_copy(update={"load": {"kind": "rate", "requests_per_s": 3}})
    assert base.model_copy(update={"workload": workload}) == patched(base, {"workload.load.requests_per_s": 3})
    assert base.model_copy() == base
    for update in ({"seed": -1}, {"seed": True}, {"colour": "blue"}, {"workload": {"load": {"kind": "wishes"}}}):
        with pytest.raises(ValidationError):
            base.model_copy(update=update)


def test_equal_scenarios_are_one_key() -> None:
    prices = {"l40s": 1.0, "l4": 0.5}
    one = scenario_from_dict({"hardware": {"usd_per_gpu_hour": prices}})
    other = scenario_from_dict({"hardware": {"usd_per_gpu_hour": dict(reversed(prices.items()))}})
    assert {one: "kept"}[other] == "kept"
    assert len({one, other, Scenario()}) == 2
    assert len({one.hardware, other.hardware, Scenario().hardware}) == 2
