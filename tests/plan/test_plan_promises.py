"""What a plan promises must hold when it is planned: patches, targets, pools, draws."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.records import list_records, load_record
from planner.calibration.schema import bounds_of
from planner.errors import InputError
from planner.memory import memory_budget
from planner.models import load_model
from planner.plans import Plan, plan
from planner.plans.candidates import deployment_for, layouts, quantization_for
from planner.plans.capacity import COARSE_REQUESTS, demand_for
from planner.plans.draws import DRAWS, draw_records
from planner.plans.starting import plain_blocks
from planner.scenario import scenario_from_dict
from planner.workloads import load_workload

H100 = {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}


def of(**changes: Any) -> Plan:
    return plan(scenario_from_dict(changes))


def patched(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario document with the fields of a change set."""
    whole = scenario_from_dict(document).model_dump(mode="json")
    for path, value in patch.items():
        *parents, field = path.split(".")
        place = whole
        for parent in parents:
            place = place[parent]
        place[field] = value
    return whole


@pytest.mark.parametrize("seed", [1, 3])
def test_the_planned_point_meets_the_targets_on_the_largest_sample(seed: int) -> None:
    answer = of(workload={"id": "azure-code-2023"}, hardware=H100, fleet={"headroom": 0.0}, seed=seed)
    assert answer.chosen is not None
    assert answer.chosen.latency is not None
    assert answer.chosen.latency.ttft_p99_s <= 1.0
    assert answer.chosen.latency.tpot_p99_s <= 0.030


@pytest.mark.parametrize("gpu_id", ["a10g", "l4"])
def test_the_nearest_targets_can_be_met_when_they_are_asked_for(gpu_id: str) -> None:
    document = {"hardware": {"gpu_ids": [gpu_id]}, "targets": {"ttft_p99_s": 1.0, "tpot_p99_s": 0.004}}
    answer = of(**document)
    assert answer.chosen is None
    assert answer.nearest is not None
    assert "/day" in answer.nearest.detail
    patch = answer.changes[0].patch
    assert patch is not None
    assert plan(scenario_from_dict(patched(document, patch))).chosen is not None


def test_the_next_replica_is_needed_where_the_plan_says() -> None:
    document = {"workload": {"load": {"kind": "tokens_per_day", "tokens_per_day": 1e9}}, "hardware": H100}
    before = of(**document)
    more = next(change for change in before.changes if change.title == "More traffic")
    assert more.patch is not None
    after = plan(scenario_from_dict(patched(document, more.patch)))
    assert before.chosen is not None
    assert before.chosen.replicas is not None
    assert after.chosen is not None
    assert after.chosen.replicas is not None
    assert after.load.peak_rps > before.load.peak_rps
    assert after.chosen.replicas.total == before.chosen.replicas.total + 1


def test_an_engine_that_starts_only_with_a_smaller_budget_is_started_with_it() -> None:
    answer = of(
        model={"id": "kimi-k2-instruct", "quantization": "native"},
        hardware={"gpu_ids": ["h200-141g-sxm"], "tensor_parallel": [8]},
        workload={"id": "lmsys-chat"},
        targets={"ttft_p99_s": 10.0, "tpot_p99_s": 0.5},
    )
    assert answer.chosen is not None, answer.candidates[0].rejection
    assert answer.chosen.knobs is not None
    assert answer.chosen.knobs.max_num_batched_tokens < 8192


def test_a_context_at_the_edge_of_the_sample_is_an_answer_not_a_crash() -> None:
    gpus = ["h100-80g-sxm", "a100-80g-sxm", "l40s"]
    answer = of(engine={"max_model_len": 6187}, hardware={"gpu_ids": gpus, "tensor_parallel": [1]})
    assert answer.summary


def test_windows_hold_as_many_sequences_as_the_engine_does() -> None:
    scenario = scenario_from_dict({"model": {"id": "gemma-3-27b-it"}, "hardware": H100})
    model = load_model("gemma-3-27b-it")
    layout = layouts(scenario, model, quantization_for(scenario, model))[0]
    demand = demand_for(load_workload(scenario.workload.id), COARSE_REQUESTS, 1)
    memory = memory_budget(deployment_for(scenario, layout, model, demand.longest_tokens))
    held = demand.running_tokens()
    true_sequences = memory.num_blocks / (sum(memory.blocks_per_sequence(tokens) for tokens in held) / len(held))
    planned = plain_blocks(memory, demand) / (sum(-(-tokens // memory.block_size) for tokens in held) / len(held))
    assert planned == pytest.approx(true_sequences, rel=0.02)


@given(seed=st.integers(0, 2**31 - 1), record_id=st.sampled_from([record.id for record in list_records()]))
@settings(max_examples=40, deadline=None)
def test_draws_stay_within_physics_and_on_the_open_side_of_an_interval(seed: int, record_id: str) -> None:
    record = load_record(record_id)
    for drawn in draw_records(record, DRAWS, seed):
        for name, parameter in drawn.parameters():
            low, high = bounds_of(name)
            assert low <= parameter.value <= high
        assert drawn.mix_factor.value >= record.mix_factor.low * (1 - 1e-9) or record.mix_factor.low < record.mix_factor.value


def test_a_calibration_of_another_gpu_is_refused() -> None:
    with pytest.raises(InputError, match="calibration_id"):
        of(hardware={"gpu_ids": ["a100-80g-sxm"], "tensor_parallel": [1]}, engine={"calibration_id": "h100-80g-sxm/vllm-0.24.0"})
    chosen = of(hardware=H100, engine={"calibration_id": "h100-80g-sxm/vllm-0.24.0"}).chosen
    assert chosen is not None
    assert chosen.record is not None
    assert chosen.record.id == "h100-80g-sxm/vllm-0.24.0"


def test_a_calibration_of_one_of_two_gpus_plans_both() -> None:
    both = {"gpu_ids": ["h100-80g-sxm", "l40s"], "tensor_parallel": [1]}
    answer = of(hardware=both, engine={"calibration_id": "l40s/vllm-0.24.0"})
    records = {candidate.gpu_id: candidate.record.id for candidate in answer.candidates if candidate.record is not None}
    assert records["l40s"] == "l40s/vllm-0.24.0"
    assert records["h100-80g-sxm"] != "l40s/vllm-0.24.0"
    assert answer.chosen is not None


def test_a_context_beyond_the_model_is_refused() -> None:
    with pytest.raises(InputError, match="max_model_len"):
        of(hardware=H100, engine={"max_model_len": 200_000})


def test_a_calibration_near_its_limit_says_how_often_the_targets_fail() -> None:
    answer = of(hardware={"gpu_ids": ["l4"], "tensor_parallel": [1]}, targets={"ttft_p99_s": 3.0, "tpot_p99_s": 0.1})
    assert answer.details is not None
    assert 0 < answer.details.impossible_draws < DRAWS
    said = f"In {answer.details.impossible_draws} draws of the calibration no rate meets the targets"
    assert any(warning.startswith(said) for warning in answer.warnings)
    assert answer.details.capacity_rps.high / answer.details.capacity_rps.low > 1.3


def test_the_next_gpu_is_no_cheaper_in_a_plan_than_on_its_own() -> None:
    """On the smaller sample seven of the rival carry what takes eight on the largest."""
    document = {
        "workload": {"id": "chat", "load": {"kind": "rate", "requests_per_s": 200.0}},
        "model": {"id": "llama-3.2-1b-instruct"},
        "hardware": {"gpu_ids": ["l40s", "rtx-pro-6000-bw-server"], "tensor_parallel": [1]},
        "targets": {"ttft_p99_s": 0.5, "tpot_p99_s": 0.02},
    }
    beside = next(change for change in of(**document).changes if change.title.startswith("Next: RTX PRO"))
    assert beside.patch is not None
    alone = plan(scenario_from_dict(patched(document, beside.patch))).chosen
    assert alone is not None
    assert alone.replicas is not None
    assert f"{alone.replicas.total} replicas" in beside.detail


def test_replicas_without_room_for_more_say_so_in_words() -> None:
    found = plan(scenario_from_dict({"workload": {"id": "rag"}}))
    assert found.chosen is not None
    assert found.chosen.replicas is not None
    assert found.chosen.replicas.next_replica_at_rps / found.load.peak_rps == pytest.approx(1.0, abs=0.004), "else the test is idle"
    more = next(change for change in found.changes if change.title == "More traffic")
    assert "+0" not in more.detail
    assert more.detail.endswith("any more needs another")
