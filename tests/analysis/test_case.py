"""The case that questions are asked of: the plan's own replica, the textbook's, and what they serve."""

import dataclasses

import numpy as np
import pytest

from planner.analysis.case import Case
from planner.cases import planned_case, textbook_case
from planner.errors import InputError
from planner.models import load_model
from planner.plans import plan
from planner.plans.results import Plan
from planner.scenario import Scenario, scenario_from_dict
from planner.workloads import load_workload

ONE_GPU = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(scenario_from_dict(ONE_GPU))


@pytest.fixture(scope="module")
def case(planned: Plan) -> Case:
    return planned_case(planned)


def test_a_planned_case_is_the_plans_own_replica(planned: Plan, case: Case) -> None:
    chosen = planned.chosen
    assert chosen is not None
    assert chosen.knobs is not None
    assert chosen.latency is not None
    assert case.coefficients == chosen.coefficients
    assert case.limits.max_num_seqs == chosen.knobs.max_num_seqs
    assert case.limits.max_num_batched_tokens == chosen.knobs.max_num_batched_tokens
    assert case.rate_rps == chosen.latency.rate_rps
    assert case.seed == planned.scenario.seed


def test_its_run_is_the_one_that_the_plan_reports(planned: Plan, case: Case) -> None:
    assert planned.chosen is not None
    assert planned.chosen.latency is not None
    result = case.serve(case.requests(20_000))
    ttft_s = (result.first_token_s - result.arrival_s)[2_000:]
    assert np.percentile(ttft_s, 99) == pytest.approx(planned.chosen.latency.ttft_p99_s, rel=0.01)


def test_requests_at_another_rate_are_the_same_requests(case: Case) -> None:
    slow, fast = case.requests(500, 1.0), case.requests(500, 4.0)
    np.testing.assert_allclose(slow.arrival_s, 4.0 * fast.arrival_s)
    np.testing.assert_array_equal(slow.prompt_tokens, fast.prompt_tokens)
    np.testing.assert_array_equal(slow.output_tokens, fast.output_tokens)


def test_the_price_is_that_of_all_its_gpus(planned: Plan, case: Case) -> None:
    assert planned.chosen is not None
    assert planned.chosen.tariff is not None
    assert case.usd_per_hour == pytest.approx(planned.chosen.tariff.usd_per_gpu_hour)


def test_in_flight_at_its_rate_is_littles_law_within_the_settings() -> None:
    textbook = textbook_case()
    assert textbook.in_flight(64) == 12
    assert textbook.in_flight(8) == 8
    assert textbook.in_flight(0) == 1
    assert dataclasses.replace(textbook, rate_rps=1e4).in_flight(64) == 64, "nothing settles: as many as may"


def test_a_full_batch_is_what_the_settings_or_the_cache_allow() -> None:
    textbook = textbook_case()
    assert textbook.full_batch == pytest.approx(textbook.kv_tokens / 625.0)
    assert textbook.with_limits(max_num_seqs=64).full_batch == 64.0
    assert textbook.with_limits(num_blocks=1).full_batch == 1.0


def test_offline_work_has_no_targets() -> None:
    offline = plan(scenario_from_dict({**ONE_GPU, "targets": {"ttft_p99_s": None, "tpot_p99_s": None}}))
    assert planned_case(offline).targets == ()


def test_the_textbook_case_has_the_published_figures() -> None:
    case = textbook_case()
    assert case.kv_bytes_per_token == 131_072
    assert case.kv_tokens == pytest.approx(411_525, rel=1e-4)
    assert case.context_tokens == 625.0
    assert case.textbook


def test_a_scenario_whose_engines_never_start_has_no_case() -> None:
    tight = {"hardware": {"gpu_ids": ["l4"], "tensor_parallel": [1]}, "model": {"id": "llama-3.1-70b-instruct"}}
    with pytest.raises(InputError, match="has no engine that starts"):
        planned_case(plan(scenario_from_dict(tight)))


def test_cases_of_different_scenarios_have_different_keys(case: Case) -> None:
    other = planned_case(plan(scenario_from_dict({**ONE_GPU, "seed": 2})))
    assert other.key != case.key
    assert case.key == scenario_from_dict(ONE_GPU).to_json() != Scenario().to_json()


def test_layers_with_a_window_hold_no_more_than_it() -> None:
    """Gemma 3 12B: 48 layers, one in six sees everything, the others 1,024 tokens; 8 KV heads of 256 in 16 bit."""
    textbook = textbook_case()
    gemma = dataclasses.replace(textbook, deployment=dataclasses.replace(textbook.deployment, model=load_model("gemma-3-12b-it")))
    layer_bytes = 2 * 8 * 256 * 2
    assert gemma.kv_bytes_per_token_at(1024.0) == pytest.approx(48 * layer_bytes)
    assert gemma.kv_bytes_per_token_at(10_240.0) == pytest.approx((8 + 40 / 10) * layer_bytes)
    assert gemma.kv_bytes_per_token == gemma.kv_bytes_per_token_at(gemma.context_tokens)
    with pytest.raises(InputError):
        gemma.kv_bytes_per_token_at(0.0)


def test_running_sequences_of_a_stream_hold_what_uneven_lengths_make_them() -> None:
    recorded = load_workload("lmsys-chat")
    case = dataclasses.replace(textbook_case(), workload=recorded, lengths=recorded.length_stats())
    assert case.stream.running_context_tokens == pytest.approx(case.context_tokens)
    assert case.context_tokens > 1.3 * (case.lengths.prompt_mean_tokens + case.lengths.output_mean_tokens / 2.0)
    drawn = case.requests(4000)
    prompts, outputs = 2.0 * drawn.prompt_tokens, 3.0 * drawn.output_tokens
    held = float((outputs * (prompts + outputs / 2.0)).sum() / outputs.sum())
    longer = case.stream_at(1.0, 2.0 * case.lengths.prompt_mean_tokens, 3.0 * case.lengths.output_mean_tokens)
    assert longer.running_context_tokens == pytest.approx(held, rel=0.05)
    equal = textbook_case().stream
    assert (equal.prompt_weight, equal.output_weight) == (pytest.approx(1.0), pytest.approx(1.0))
