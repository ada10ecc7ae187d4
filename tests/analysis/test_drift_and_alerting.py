"""Drift of the traffic and the alerts: none between samples of one traffic, effects that follow the change, few false alarms."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.alerting import firing, firing_over, queue_threshold
from planner.analysis.case import Case
from planner.analysis.drift import TrafficSample, sample_of, shifts, work_shift
from planner.cases import planned_case, textbook_case
from planner.drift_check import fleet_effect
from planner.errors import InputError
from planner.plans import plan
from planner.plans.results import Plan
from planner.scenario import scenario_from_dict
from planner.step_model import scaled
from planner.workloads import RowFilter, RowsLengths, load_workload

ONE_GPU = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(scenario_from_dict(ONE_GPU))


@pytest.fixture(scope="module")
def case(planned: Plan) -> Case:
    return planned_case(planned)


def equal(prompt: int, output: int, count: int = 200) -> TrafficSample:
    return TrafficSample("equal", np.full(count, float(prompt)), np.full(count, float(output)), None, None)


def test_two_samples_of_one_traffic_have_not_drifted(case: Case) -> None:
    found = shifts(sample_of(case.workload, 1, 4000), sample_of(case.workload, 2, 4000))
    assert {shift.verdict for shift in found} <= {"same", "small"}
    assert sum(shift.verdict == "same" for shift in found) >= 4


def test_another_service_has_drifted(case: Case) -> None:
    found = shifts(sample_of(case.workload, 1, 4000), sample_of(load_workload("azure-code-2023"), 1, 4000))
    verdicts = {shift.figure: shift.verdict for shift in found}
    assert verdicts["Output tokens, mean"] == "drifted"
    assert verdicts["Prompt tokens, mean"] == "drifted"


def test_a_notable_change_needs_both_the_test_and_the_effect() -> None:
    rng = np.random.default_rng(3)
    base = rng.gamma(2.0, 500.0, 20_000)
    then = TrafficSample("then", base, base, None, None)
    near = TrafficSample("near", 1.03 * rng.gamma(2.0, 500.0, 20_000), base, None, None)
    shift = shifts(then, near)[0]
    assert shift.p_value is not None
    assert shift.p_value < 0.01
    assert shift.verdict == "small"


def test_a_figure_that_is_0_then_and_now_has_not_drifted() -> None:
    then = dataclasses.replace(equal(10, 10), reuse=0.0)
    reuse = shifts(then, then)[-1]
    assert (reuse.planned, reuse.change, reuse.verdict) == (0.0, None, "same")
    assert shifts(then, dataclasses.replace(then, reuse=0.3))[-1].verdict == "drifted"


def test_a_sample_holds_no_more_requests_than_were_recorded() -> None:
    recorded = load_workload("azure-code-2023")
    few = recorded.model_copy(update={"lengths": RowsLengths(trace="azure-code-2023", keep=RowFilter(min_output_tokens=200))})
    rows = len(few.lengths.rows()[0])
    assert 50 < rows < 500
    samples = [sample_of(few, seed, 20_000) for seed in range(8)]
    assert {len(sample.prompt_tokens) for sample in samples} == {rows}
    verdicts = [shift.verdict for other in samples[1:] for shift in shifts(samples[0], other)]
    assert verdicts.count("drifted") <= 1


def test_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="at least 50 requests"):
        shifts(equal(10, 10), equal(10, 10, count=49))


@settings(max_examples=30, deadline=None)
@given(prompt=st.integers(1, 20_000), output=st.integers(1, 4000), factor=st.integers(2, 5))
def test_more_tokens_never_take_less_time(prompt: int, output: int, factor: int) -> None:
    textbook = textbook_case()
    longer_prompt = work_shift(textbook, equal(prompt, output), equal(factor * prompt, output), 16.0)
    longer_output = work_shift(textbook, equal(prompt, output), equal(prompt, factor * output), 16.0)
    assert longer_prompt.ratio > 1.0
    assert longer_output.ratio > 1.0


def test_output_twice_as_long_takes_twice_the_time_where_decode_is_all() -> None:
    work = work_shift(textbook_case(), equal(1, 1000), equal(1, 2000), 8.0)
    assert work.ratio == pytest.approx(2.0, rel=0.05)


def test_the_planned_traffic_needs_the_planned_fleet(planned: Plan) -> None:
    effect = fleet_effect(planned, planned.workload.id)
    assert effect.more == 0
    assert effect.as_set == effect.before


def test_three_times_the_rate_needs_about_three_times_the_replicas(planned: Plan) -> None:
    effect = fleet_effect(planned, planned.workload.id, 3.0 * planned.load.peak_rps)
    assert planned.chosen is not None
    assert planned.chosen.replicas is not None
    assert planned.chosen.capacity_rps is not None
    usable = planned.chosen.capacity_rps * 0.85
    assert effect.needed == pytest.approx(3.0 * planned.load.peak_rps / usable, abs=1.0)


def test_settings_chosen_anew_are_never_worse_than_the_planned_ones(planned: Plan) -> None:
    effect = fleet_effect(planned, "sharegpt")
    assert effect.as_set is not None
    assert effect.tuned is not None
    assert effect.tuned <= effect.as_set


def test_no_false_alarm_at_the_planned_rate_and_all_rules_in_overload(planned: Plan, case: Case) -> None:
    assert planned.chosen is not None
    assert planned.chosen.capacity_rps is not None
    assert case.ttft_p99_s is not None
    limit = queue_threshold(planned.chosen.capacity_rps, case.ttft_p99_s)
    calm, storm = firing(case, case.rate_rps, limit), firing(case, 3.0 * planned.chosen.capacity_rps, limit)
    assert (calm.ttft, calm.queue) == (0.0, 0.0)
    assert calm.tpot is not None
    assert calm.tpot < 0.05
    assert storm.ttft is not None
    assert storm.queue is not None
    assert min(storm.ttft, storm.queue) > 0.9


def test_alerts_grow_with_the_load(case: Case) -> None:
    said: list[float] = []
    runs = firing_over(case, 3.0, 5, lambda _, share: said.append(share))
    assert said == sorted(said)
    assert runs[0].rate_rps == pytest.approx(case.rate_rps)
    assert runs[-1].rate_rps == pytest.approx(3.0 * case.rate_rps)
    assert (runs[-1].ttft or 0.0) >= (runs[0].ttft or 0.0)


def test_a_fast_replica_is_watched_for_more_than_one_window(case: Case) -> None:
    quick = dataclasses.replace(case, coefficients=scaled(case.coefficients, 0.05))
    slow = dataclasses.replace(case, tpot_p99_s=1e-6)
    busy = dataclasses.replace(quick, tpot_p99_s=1e-6)
    assert firing(busy, 250.0, None).minutes == 10
    assert firing(busy, 250.0, None).tpot == 1.0
    assert firing(slow, case.rate_rps, None).minutes == 60


def test_rules_without_targets_are_left_out(case: Case) -> None:
    run = firing(dataclasses.replace(case, ttft_p99_s=None, tpot_p99_s=None), case.rate_rps, None)
    assert (run.ttft, run.tpot, run.queue) == (None, None, None)


def test_the_queue_threshold_is_littles_law() -> None:
    assert queue_threshold(8.0, 2.0) == 16
    assert queue_threshold(0.2, 1.0) == 1
    with pytest.raises(InputError, match="capacity_rps"):
        queue_threshold(float("nan"), 1.0)
