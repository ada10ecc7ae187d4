"""More is never cheaper: looser targets, less traffic and more GPUs to choose from never raise the bill."""

from itertools import pairwise
from typing import Any

import pytest

from planner.models import load_model
from planner.plans import first_answer
from planner.plans.candidates import layouts, quantization_for
from planner.plans.planning import question_of
from planner.plans.ranking import dearness, needed_rps
from planner.scenario import scenario_from_dict
from planner.workloads import load_workload

INT4 = {"id": "llama-3.1-70b-instruct", "quantization": "int4-awq"}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "long prompts": {
        "model": {"id": "gpt-oss-120b", "quantization": "native"},
        "hardware": {"gpu_ids": ["a100-80g-sxm"], "tensor_parallel": [2, 4]},
        "workload": {"id": "rag", "load": {"kind": "rate", "requests_per_s": 20.0}},
    },
    "int4": {"model": INT4, "hardware": {"gpu_ids": ["h100-80g-sxm"]}, "workload": {"id": "lmsys-chat"}},
    "small": {"hardware": {"gpu_ids": ["l40s"]}, "workload": {"id": "lmsys-chat"}},
}


def with_targets(document: dict[str, Any], ttft_s: float, tpot_s: float) -> dict[str, Any]:
    return {**document, "targets": {"ttft_p99_s": ttft_s, "tpot_p99_s": tpot_s}}


def with_rate(document: dict[str, Any], rate_rps: float) -> dict[str, Any]:
    load = {"kind": "rate", "requests_per_s": rate_rps}
    return {**document, "workload": {**document["workload"], "load": load}}


def usd_per_day(document: dict[str, Any]) -> float:
    chosen = first_answer(scenario_from_dict(document)).chosen
    assert chosen is not None
    assert chosen.cost is not None
    return chosen.cost.usd_per_day


def falling(costs: list[float]) -> bool:
    return all(later <= earlier * (1.0 + 1e-9) for earlier, later in pairwise(costs))


@pytest.mark.parametrize("name", ["int4", "small"])
def test_a_looser_tpot_target_never_costs_more(name: str) -> None:
    costs = [usd_per_day(with_targets(DOCUMENTS[name], 1.0, tpot_s)) for tpot_s in (0.025, 0.05, 0.07, 0.1, 0.2)[name == "int4" :]]
    assert falling(costs), costs
    assert costs[-1] < costs[0]


@pytest.mark.parametrize("rate_rps", [12.03, 12.06, 12.09])
def test_targets_that_bind_no_more_leave_the_replicas_as_they_are(rate_rps: float) -> None:
    """At this load two replicas must carry within 0.5 % of what a search, right to 1.2 %, finds of one."""
    layout = {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [4]}
    document = {"model": INT4, "hardware": layout, "workload": {"load": {"kind": "rate", "requests_per_s": rate_rps}}}
    costs = [usd_per_day(with_targets(document, 1.0, tpot_s)) for tpot_s in (0.05, 0.1, 0.15, 0.2, 0.3)]
    assert falling(costs), costs


@pytest.mark.parametrize("name", ["long prompts", "small"])
def test_a_looser_ttft_target_never_costs_more(name: str) -> None:
    costs = [usd_per_day(with_targets(DOCUMENTS[name], ttft_s, 0.03)) for ttft_s in (0.3, 1.0, 2.0)[name == "long prompts" :]]
    assert falling(costs), costs


@pytest.mark.parametrize("name", ["int4", "small"])
def test_less_traffic_never_costs_more(name: str) -> None:
    document = with_targets(DOCUMENTS[name], 1.0, 0.1 if name == "int4" else 0.03)
    costs = [usd_per_day(with_rate(document, rate_rps)) for rate_rps in (22.0, 20.0, 12.0, 11.0, 10.5, 10.0, 9.0, 5.0)]
    assert falling(costs), costs
    assert costs[-1] < costs[0]


def test_more_gpus_to_choose_from_never_cost_more() -> None:
    gpus = ["a100-80g-sxm", "l40s", "h100-80g-sxm", "rtx-pro-6000-bw-server"]
    costs = [usd_per_day({"hardware": {"gpu_ids": gpus[:count]}}) for count in range(1, len(gpus) + 1)]
    assert falling(costs), costs
    assert costs[-1] < costs[0]


def test_a_layout_as_dear_as_the_best_is_tried_at_the_rate_at_which_it_costs_less() -> None:
    scenario = scenario_from_dict({"hardware": {"gpu_ids": ["a100-80g-sxm"], "tensor_parallel": [2]}})
    model = load_model(scenario.model.id)
    question = question_of(scenario, load_workload(scenario.workload.id), model, quantization_for(scenario, model))
    (layout,) = layouts(scenario, model, question.quantization)
    limit = dearness(layout, 5)
    no_more, less = needed_rps(question, layout, limit), needed_rps(question, layout, limit, less=True)
    assert no_more is not None
    assert less is not None
    assert less > no_more
    peak_rps, headroom = question.load.peak_rps, scenario.fleet.headroom
    replicas = round(peak_rps / (less * (1.0 - headroom))) + scenario.fleet.spare_replicas
    assert dearness(layout, replicas) < limit <= dearness(layout, replicas + 1)
