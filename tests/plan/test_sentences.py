"""What a plan says beside its figures: idle GPUs of rented machines, layouts left out, large numbers; and its curve's own point."""

import numpy as np
import pytest

from planner.models import load_model
from planner.plans import Plan, first_answer, plan
from planner.plans.caveats import caveats_of
from planner.plans.explain import _idle
from planner.scenario import Scenario, scenario_from_dict


@pytest.fixture(scope="module")
def impossible() -> Plan:
    return plan(
        scenario_from_dict({"hardware": {"gpu_ids": ["h100-80g-sxm"]}, "targets": {"ttft_p99_s": 0.001, "tpot_p99_s": 0.03}})
    )


def test_machines_with_idle_gpus_are_named_with_what_idles() -> None:
    document = {"hardware": {"gpu_ids": ["gb200"], "tensor_parallel": [1]}, "fleet": {"spare_replicas": 0}}
    chosen = first_answer(scenario_from_dict(document)).chosen
    assert chosen is not None
    assert chosen.cost is not None
    placement = chosen.cost.placement
    assert placement.idle_gpus == placement.instances * 4 - placement.gpus_used > 0
    (said,) = _idle(chosen)
    assert f"{placement.instances} machine of 4 GPUs" in said
    assert f"{placement.idle_gpus:.0f} of 4 GPUs idle" in said


def test_machines_that_are_full_are_not_mentioned() -> None:
    chosen = first_answer(scenario_from_dict({"hardware": {"gpu_ids": ["l40s"], "tensor_parallel": [1]}})).chosen
    assert chosen is not None
    assert chosen.cost is not None
    assert chosen.cost.placement.idle_gpus == 0.0
    assert _idle(chosen) == []


@pytest.mark.parametrize(("model_id", "said"), [("deepseek-v3", True), ("kimi-k2-instruct", True), ("qwen3-30b-a3b", False)])
def test_experts_with_latent_attention_have_a_layout_that_is_not_searched(model_id: str, said: bool) -> None:
    found = caveats_of(Scenario(), load_model(model_id), ())
    assert any("DP attention" in each and "about N times the sequences" in each for each in found) is said


def test_a_huge_load_is_written_without_an_exponent() -> None:
    document = {"workload": {"load": {"kind": "rate", "requests_per_s": 1e7}}, "hardware": {"gpu_ids": ["h100-80g-sxm"]}}
    answer = first_answer(scenario_from_dict(document))
    assert answer.summary is not None
    assert "10,000,000 req/s" in answer.summary
    assert "e+" not in answer.summary
    assert answer.chosen is not None
    assert answer.chosen.replicas is not None
    assert f"{answer.chosen.replicas.total:,} × H100" in answer.summary


def test_the_curve_goes_through_the_planned_point() -> None:
    answer = plan(scenario_from_dict({"hardware": {"gpu_ids": ["h100-80g-sxm"]}}))
    assert answer.chosen is not None
    assert answer.chosen.latency is not None
    assert answer.details is not None
    at, curve = answer.chosen.latency, answer.details.curve
    rates = [point.rate_rps for point in curve]
    for field in ("ttft_p99_s", "tpot_p99_s"):
        drawn = float(np.interp(at.rate_rps, rates, [getattr(point, field) for point in curve]))
        assert drawn == pytest.approx(getattr(at, field), rel=0.03)


def test_the_nearest_targets_are_what_a_replica_shows_at_the_load_they_name(impossible: Plan) -> None:
    near = impossible.nearest
    assert near is not None
    assert near.ttft_p99_s is not None
    assert "req/s a replica" in near.detail
    asked = {"hardware": {"gpu_ids": ["h100-80g-sxm"]}, "targets": {"ttft_p99_s": near.ttft_p99_s, "tpot_p99_s": near.tpot_p99_s}}
    chosen = first_answer(scenario_from_dict(asked)).chosen
    assert chosen is not None
    assert chosen.latency is not None
    assert chosen.latency.ttft_p99_s is not None
    assert 0.75 * near.ttft_p99_s <= chosen.latency.ttft_p99_s <= near.ttft_p99_s


def test_rivals_inside_the_noise_lie_within_the_cost_that_the_plan_states() -> None:
    answer = plan(Scenario())
    assert answer.details is not None
    assert answer.details.usd_per_day is not None
    said = next(each for each in answer.warnings if each.startswith("Inside the noise"))
    dearest_usd = answer.details.usd_per_day.high
    for rival in answer.candidates[1:]:
        if rival.cost is not None and rival.feasible and rival.cost.usd_per_day > dearest_usd:
            assert f"{rival.label}," not in said
            assert f"{rival.label} cost" not in said
