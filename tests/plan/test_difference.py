"""What moved between two plans, and why."""

from planner.plans import plan
from planner.plans.difference import difference
from planner.scenario import scenario_from_dict

H100 = {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}


def test_nothing_moved_between_equal_plans() -> None:
    one = plan(scenario_from_dict({"hardware": H100}))
    same = difference(one, one)
    assert same.inputs == ()
    assert same.figures == ()
    assert same.reason.endswith("binds as before.")


def test_more_traffic_moves_replicas_and_says_that_the_rate_did_it() -> None:
    before = plan(scenario_from_dict({"hardware": H100}))
    after = plan(scenario_from_dict({"hardware": H100, "workload": {"load": {"kind": "rate", "requests_per_s": 40}}}))
    moved = difference(before, after)
    assert [entry.name for entry in moved.inputs] == ["workload.load.requests_per_s"]
    assert (moved.inputs[0].before, moved.inputs[0].after) == ("10", "40")
    assert {"GPUs", "cost"} <= {entry.name for entry in moved.figures}
    assert "the planned rate went from 10 to 40 req/s" in moved.reason


def test_a_tighter_target_says_that_a_replica_carries_less() -> None:
    load = {"load": {"kind": "rate", "requests_per_s": 40}}
    before = plan(scenario_from_dict({"hardware": H100, "workload": load}))
    after = plan(scenario_from_dict({"hardware": H100, "workload": load, "targets": {"tpot_p99_s": 0.016}}))
    assert "a replica carries" in difference(before, after).reason


def test_an_answer_that_vanishes_or_appears_is_said() -> None:
    before = plan(scenario_from_dict({"hardware": H100}))
    after = plan(scenario_from_dict({"hardware": H100, "targets": {"tpot_p99_s": 0.0001}}))
    assert difference(before, after).reason.startswith("Nothing serves")
    assert difference(after, before).reason.startswith("Now it can be served")
    assert all(entry.after is None for entry in difference(before, after).figures)
