"""Prefix caching beside a plan, and samples of a recorded order, whose first rows are like none of the rest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plans import Plan, plan
from planner.plans.capacity import ANSWER_REQUESTS, COARSE_REQUESTS, SEARCH_REQUESTS, Demand, demand_for
from planner.plans.results import Change
from planner.scenario import scenario_from_dict
from planner.workloads import load_workload

RECORDED = ["agent", "mooncake-conversation"]


@pytest.fixture(scope="module")
def agents() -> Plan:
    return plan(
        scenario_from_dict(
            {
                "workload": {"id": "agent", "load": {"kind": "rate", "requests_per_s": 12.0}},
                "model": {"id": "llama-3.2-3b-instruct", "quantization": "fp8", "kv_dtype": "fp8"},
                "hardware": {"gpu_ids": ["h200-141g-sxm"], "tensor_parallel": [1]},
                "targets": {"ttft_p99_s": 20.0, "tpot_p99_s": 0.1},
            }
        )
    )


def cached_share(demand: Demand) -> float:
    requests = demand.requests()
    assert requests.cached_prompt_tokens is not None
    return float(requests.cached_prompt_tokens.sum() / requests.prompt_tokens.sum())


def change_of(answer: Plan) -> Change | None:
    return next((change for change in answer.changes if change.title == "Prefix caching"), None)


@pytest.mark.parametrize("count", [COARSE_REQUESTS, SEARCH_REQUESTS])
@pytest.mark.parametrize("workload_id", RECORDED)
def test_a_small_sample_of_a_recorded_order_is_like_the_largest(workload_id: str, count: int) -> None:
    small, large = (demand_for(load_workload(workload_id), each, 1).requests() for each in (count, ANSWER_REQUESTS))
    assert len(small) == count
    assert small.prompt_tokens.mean() == pytest.approx(large.prompt_tokens.mean(), rel=0.05)
    assert small.output_tokens.mean() == pytest.approx(large.output_tokens.mean(), rel=0.05)
    assert np.quantile(small.prompt_tokens, 0.99) == pytest.approx(np.quantile(large.prompt_tokens, 0.99), rel=0.15)


def test_other_samples_stay_the_workload_s_own() -> None:
    workload = load_workload("azure-conversation-2023")
    own = workload.sample_requests(COARSE_REQUESTS, 1.0, 3)
    requests = demand_for(workload, COARSE_REQUESTS, 3).requests()
    assert np.array_equal(requests.prompt_tokens, own.prompt_tokens)
    assert requests.cached_prompt_tokens is None


@pytest.mark.parametrize("workload_id", RECORDED)
def test_what_a_cache_holds_is_what_the_workload_s_own_curve_says(workload_id: str) -> None:
    workload = load_workload(workload_id)
    assert workload.prefix_hits is not None
    for cache_tokens in (512_000, 2_560_000):
        demand = replace(demand_for(workload, ANSWER_REQUESTS, 1), cache_tokens=cache_tokens)
        assert cached_share(demand) == pytest.approx(workload.prefix_hits.at(cache_tokens), rel=0.06)


@given(sizes=st.tuples(st.integers(1, 5_000_000), st.integers(1, 5_000_000)))
@settings(max_examples=4, deadline=None)
def test_a_larger_cache_holds_no_less_of_any_prompt(sizes: tuple[int, int]) -> None:
    base = demand_for(load_workload("agent"), SEARCH_REQUESTS, 1)
    few, many = (replace(base, cache_tokens=size).requests() for size in sorted(sizes))
    assert few.cached_prompt_tokens is not None
    assert many.cached_prompt_tokens is not None
    assert bool((few.cached_prompt_tokens <= many.cached_prompt_tokens).all())
    assert bool((many.cached_prompt_tokens < many.prompt_tokens).all())


def test_a_plan_for_agents_says_what_reuse_would_save(agents: Plan) -> None:
    change = change_of(agents)
    assert change is not None
    assert change.patch is None
    assert change.usd_per_day is not None
    assert change.usd_per_day <= 0.0
    assert "a replica carries +" in change.detail
    warning = next(each for each in agents.warnings if each.startswith("Prefix caching is not counted: 65\xa0%"))
    assert agents.chosen is not None
    assert agents.chosen.memory is not None
    assert f"{agents.chosen.memory.kv_tokens:,} tokens" in warning


def test_a_workload_that_shares_nothing_has_no_such_change() -> None:
    answer = plan(scenario_from_dict({"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}))
    assert change_of(answer) is None
    assert not any("Prefix caching" in warning for warning in answer.warnings)
