"""The plan as its user sees it: an answer with reasons, whatever is asked."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.exporters.flags import serve_command
from planner.exporters.plan_document import plan_document, plan_text
from planner.models import QUANTIZATIONS, load_model
from planner.plans import Plan, plan
from planner.plans.candidates import layouts, quantization_for
from planner.plans.capacity import ANSWER_REQUESTS, demand_for, latency_at
from planner.plans.planning import question_of
from planner.plans.ranking import rank, records_of
from planner.plans.rates import meets
from planner.plans.starting import Engine, replica_of, start, with_knobs
from planner.scenario import Scenario, scenario_from_dict
from planner.units import duration, per_second
from planner.workloads import load_workload


@pytest.fixture(scope="module")
def default() -> Plan:
    return plan(Scenario())


def of(**changes: Any) -> Plan:
    return plan(scenario_from_dict(changes))


H100 = {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}
SLOW = {"ttft_p99_s": 10.0, "tpot_p99_s": 0.05}


def test_the_default_question_is_answered_with_figures(default: Plan) -> None:
    chosen = default.chosen
    assert chosen is not None
    assert chosen.feasible
    assert chosen.latency is not None
    assert chosen.replicas is not None
    assert chosen.cost is not None
    assert chosen.latency.method == "simulated"
    assert chosen.latency.ttft_p99_s <= 1.0
    assert chosen.latency.tpot_p99_s <= 0.030
    assert chosen.replicas.spares == 1
    assert f"{chosen.replicas.total * chosen.tensor_parallel} × {chosen.gpu_name}" in default.summary
    assert "/day" in default.summary
    assert chosen.binds is not None
    assert chosen.binds.split(" (")[0].lower() in default.summary.lower()


def test_candidates_are_ranked_and_each_rejection_says_why(default: Plan) -> None:
    assert list(default.candidates) == sorted(default.candidates, key=rank)
    assert default.candidates[0] is default.chosen
    for candidate in default.candidates:
        if candidate.feasible:
            assert candidate.cost is not None
            assert candidate.replicas is not None
        else:
            assert candidate.rejection is not None
            assert len(candidate.rejection.detail) > 20


def test_the_chosen_settings_are_the_best_of_the_map(default: Plan) -> None:
    assert default.details is not None
    assert default.chosen is not None
    assert default.chosen.knobs is not None
    cells = {cell.knobs: cell.capacity_rps or 0.0 for cell in default.details.knob_map}
    assert len(cells) >= 20
    assert cells[default.chosen.knobs] >= 0.99 * max(cells.values())
    default_rps = default.details.default.capacity_rps
    assert default_rps is None or default_rps <= (default.chosen.capacity_rps or 0.0) * 1.02


def test_intervals_hold_the_likely_figure(default: Plan) -> None:
    assert default.details is not None
    for interval in (
        default.details.replicas,
        default.details.capacity_rps,
        default.details.ttft_p99_s,
        default.details.tpot_p99_s,
    ):
        assert 0 < interval.low <= interval.likely <= interval.high
    assert default.details.capacity_rps.high > default.details.capacity_rps.low


def test_mean_field_and_simulation_agree_on_the_chosen_point(default: Plan) -> None:
    assert default.details is not None
    assert default.chosen is not None
    other, simulated = default.details.mean_field, default.chosen.latency
    assert other is not None
    assert simulated is not None
    assert other.tpot_mean_s == pytest.approx(simulated.tpot_mean_s, rel=0.15)
    assert other.ttft_mean_s == pytest.approx(simulated.ttft_mean_s, rel=0.20)
    assert other.tpot_p99_s == pytest.approx(simulated.tpot_p99_s, rel=0.30)


def test_capacity_meets_the_targets_and_a_little_more_does_not() -> None:
    scenario = scenario_from_dict({"hardware": H100})
    model = load_model(scenario.model.id)
    workload = load_workload(scenario.workload.id)
    question = question_of(scenario, workload, model, quantization_for(scenario, model))
    layout = layouts(scenario, model, question.quantization)[0]
    engine = start(question, layout, records_of(question, [layout])[layout.gpu.id])
    chosen = plan(scenario).chosen
    assert isinstance(engine, Engine)
    assert chosen is not None
    assert chosen.knobs is not None
    assert chosen.capacity_rps is not None
    demand = demand_for(workload, ANSWER_REQUESTS, scenario.seed)
    replica = replica_of(with_knobs(engine, chosen.knobs, None), demand)
    assert meets(latency_at(demand, replica, chosen.knobs, chosen.capacity_rps), scenario.targets)
    assert not meets(latency_at(demand, replica, chosen.knobs, chosen.capacity_rps * 1.03), scenario.targets)


def test_the_command_carries_the_chosen_settings(default: Plan) -> None:
    assert default.chosen is not None
    assert default.chosen.deployment is not None
    assert default.chosen.knobs is not None
    line = serve_command(default.chosen.deployment).line
    assert f"--max-num-seqs {default.chosen.knobs.max_num_seqs}" in line
    assert f"--max-num-batched-tokens {default.chosen.knobs.max_num_batched_tokens}" in line


def test_same_scenario_same_answer(default: Plan) -> None:
    assert json.dumps(plan_document(plan(Scenario()))) == json.dumps(plan_document(default))


def test_the_document_is_plain_json_and_the_text_starts_with_the_answer(default: Plan) -> None:
    document = json.loads(json.dumps(plan_document(default), allow_nan=False))
    assert document["feasible"] is True
    assert document["scenario_digest"] == default.scenario.digest()
    assert document["chosen"]["max_num_seqs"] == default.chosen.knobs.max_num_seqs  # type: ignore[union-attr]
    assert document["lengths"]["prompt_mean"] == default.lengths.prompt_mean_tokens
    assert document["lengths"]["running_context_mean"] == default.lengths.running_context_mean_tokens
    assert {each["tensor_parallel"]: each["link"] for each in document["candidates"]}[1] is None
    wide = next(each for each in document["candidates"] if each["tensor_parallel"] == 8 and each["gpu"] == "h100-80g-sxm")
    assert (wide["link"]["kind"], wide["link"]["in_fast_domain"]) == ("NVLink4", True)
    text = plan_text(default, dt.date(2026, 8, 1))
    assert text.startswith(default.summary)
    details, chosen = default.details, default.chosen
    assert details is not None
    assert chosen is not None
    assert chosen.latency is not None
    assert details.tpot_p99_s is not None
    assert details.usd_per_day is not None
    for figure, interval in ((chosen.latency.ttft_p99_s, details.ttft_p99_s), (chosen.latency.tpot_p99_s, details.tpot_p99_s)):
        assert f"p99 {duration(figure or 0.0)} ({duration(interval.low)} to {duration(interval.high)}), simulated" in text
    assert f"/day (${details.usd_per_day.low:,.0f} to ${details.usd_per_day.high:,.0f})" in text
    assert f"({per_second(details.capacity_rps.low)} to {per_second(details.capacity_rps.high)})" in text
    assert "days old" not in text
    assert "The price is" in plan_text(default, dt.date(2027, 8, 1))


def test_more_load_never_needs_fewer_gpus() -> None:
    totals = []
    for rate in (5.0, 20.0, 80.0):
        chosen = of(workload={"load": {"kind": "rate", "requests_per_s": rate}}, hardware=H100).chosen
        assert chosen is not None
        assert chosen.replicas is not None
        totals.append(chosen.replicas.total)
    assert totals == sorted(totals)
    assert totals[-1] > totals[0]


def test_tighter_targets_never_raise_capacity() -> None:
    capacities = []
    for tpot_s in (0.050, 0.025, 0.015):
        chosen = of(targets={"ttft_p99_s": 1.0, "tpot_p99_s": tpot_s}, hardware=H100).candidates[0]
        capacities.append(chosen.capacity_rps or 0.0)
    assert capacities == sorted(capacities, reverse=True)


def test_users_and_tokens_a_day_are_planned_for_their_busiest_hour() -> None:
    by_tokens = of(workload={"load": {"kind": "tokens_per_day", "tokens_per_day": 1e9}}, hardware=H100)
    assert by_tokens.load.peak_factor > 1.3
    assert by_tokens.load.mean_rps == pytest.approx(
        1e9 / 86400 / (by_tokens.lengths.prompt_mean_tokens + by_tokens.lengths.output_mean_tokens)
    )
    by_users = of(
        workload={"load": {"kind": "users", "users": 1000, "active_share": 0.2, "requests_per_user_minute": 0.4}}, hardware=H100
    )
    assert by_users.load.mean_rps == pytest.approx(1000 * 0.2 * 0.4 / 60)


def test_offline_work_is_planned_for_throughput() -> None:
    answer = of(
        workload={"load": {"kind": "tokens_per_day", "tokens_per_day": 1e9}},
        targets={"ttft_p99_s": None, "tpot_p99_s": None},
        hardware=H100,
    )
    online = of(workload={"load": {"kind": "tokens_per_day", "tokens_per_day": 1e9}}, hardware=H100)
    assert answer.load.peak_factor == 1.0
    assert answer.chosen is not None
    assert online.chosen is not None
    assert (answer.chosen.capacity_rps or 0) > (online.chosen.capacity_rps or 0)
    assert "TTFT" not in answer.summary


def test_an_impossible_target_is_an_answer_with_the_nearest_one() -> None:
    answer = of(targets={"ttft_p99_s": 1.0, "tpot_p99_s": 0.0005})
    assert answer.chosen is None
    assert answer.nearest is not None
    assert answer.nearest.tpot_p99_s is not None
    assert answer.nearest.tpot_p99_s > 0.0005
    assert answer.summary.startswith("No configuration")
    patch = answer.changes[0].patch
    assert patch is not None
    loosened = of(targets={"ttft_p99_s": patch["targets.ttft_p99_s"], "tpot_p99_s": patch["targets.tpot_p99_s"]})
    assert loosened.chosen is not None


def test_a_model_too_large_for_a_gpu_says_what_is_missing() -> None:
    answer = of(model={"id": "llama-3.1-70b-instruct"}, hardware={"gpu_ids": ["l4"], "tensor_parallel": [1]})
    rejection = answer.candidates[0].rejection
    assert answer.chosen is None
    assert rejection is not None
    assert rejection.reason == "weights do not fit"
    assert "GiB" in (rejection.remedy or "")


def test_a_context_shorter_than_the_requests_is_a_reason_with_its_share() -> None:
    answer = of(engine={"max_model_len": 512}, hardware=H100)
    rejection = answer.candidates[0].rejection
    assert answer.chosen is None
    assert rejection is not None
    assert rejection.reason == "requests are too long"
    assert "max_model_len" in (rejection.remedy or "")
    assert answer.nearest is None
    assert answer.changes[0].patch == {"engine.max_model_len": None}


def test_prompts_beyond_the_model_bar_no_layout_while_the_99th_percentile_is_silent_on_them() -> None:
    answer = of(workload={"id": "agent"}, model={"id": "gpt-oss-20b", "quantization": "native"}, hardware=H100, targets=SLOW)
    assert answer.chosen is not None
    assert answer.chosen.latency is not None
    assert 0.001 < answer.chosen.latency.refused_share < 0.01
    assert any("refuses 0.25\xa0% of the requests" in warning for warning in answer.warnings)


def test_a_model_that_cannot_read_the_prompts_is_the_reason_on_every_layout() -> None:
    answer = of(workload={"id": "agent"}, model={"id": "mistral-7b-instruct-v0.3"}, hardware=H100, targets=SLOW)
    rejection = answer.candidates[0].rejection
    assert answer.chosen is None
    assert rejection is not None
    assert rejection.reason == "requests are too long"
    assert "Mistral-7B-Instruct-v0.3 reads (32,768 tokens)" in rejection.detail
    assert "16\xa0% of the prompts" in rejection.detail
    assert "max_model_len" not in (rejection.remedy or "")


def test_nothing_serves_it_for_the_reason_of_those_that_come_furthest() -> None:
    gpus = {"gpu_ids": ["l4", "a10", "h100-80g-sxm"], "tensor_parallel": [1]}
    summary = of(model={"id": "qwen3-32b"}, hardware=gpus, targets={"ttft_p99_s": 1.0, "tpot_p99_s": 0.004}).summary
    assert "the TPOT target cannot be met on the 1 layout that comes furthest; the weights do not fit on 2" in summary


def test_a_tp_size_that_does_not_divide_is_a_reason_not_a_crash() -> None:
    answer = of(hardware={"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [3]})
    assert answer.candidates[0].rejection is not None
    assert answer.candidates[0].rejection.reason == "layout is not legal"


def test_settings_held_by_the_user_are_kept() -> None:
    chosen = of(hardware=H100, engine={"max_num_seqs": 48, "max_num_batched_tokens": 1024}).chosen
    assert chosen is not None
    assert chosen.knobs is not None
    assert (chosen.knobs.max_num_seqs, chosen.knobs.max_num_batched_tokens) == (48, 1024)


def test_the_logged_kv_size_replaces_the_computed_one() -> None:
    chosen = of(hardware=H100, engine={"logged_kv_tokens": 123_456}).chosen
    assert chosen is not None
    assert chosen.memory is not None
    assert chosen.memory.kv_tokens == pytest.approx(123_456, rel=0.01)


def test_an_own_price_wins_and_needs_no_date() -> None:
    chosen = of(hardware={**H100, "usd_per_gpu_hour": {"h100-80g-sxm": 2.0}}).chosen
    assert chosen is not None
    assert chosen.cost is not None
    assert chosen.replicas is not None
    assert chosen.cost.tariff.as_of is None
    assert chosen.cost.usd_per_hour == pytest.approx(2.0 * chosen.replicas.total)


def test_a_gpu_without_a_price_is_planned_without_dollars() -> None:
    answer = of(hardware={"gpu_ids": ["rtx-4090"], "tensor_parallel": [1]}, targets={"ttft_p99_s": 3.0, "tpot_p99_s": 0.08})
    assert answer.chosen is not None
    assert answer.chosen.cost is None
    assert "no price is known" in answer.summary


def test_fp8_is_offered_with_its_effect(default: Plan) -> None:
    change = next(change for change in default.changes if "FP8" in change.title)
    assert change.patch is not None
    assert change.patch["model.quantization"] == "fp8"
    assert change.patch["hardware.gpu_ids"] == [default.chosen.gpu_id]  # type: ignore[union-attr]
    assert change.usd_per_day is not None


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"workload": {"id": "no-such-workload"}}, "workload"),
        ({"model": {"id": "no-such-model"}}, "model"),
        ({"model": {"quantization": "int3"}}, "model.quantization"),
        ({"hardware": {"gpu_ids": ["no-such-gpu"]}}, "gpu"),
        ({"hardware": {"provider": "nobody"}}, "hardware"),
        ({"engine": {"version": "9.9.9"}}, "version"),
    ],
)
def test_unknown_names_are_errors_that_say_what_to_do(document: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(scenario_from_dict(document))
    assert field in f"{caught.value.field} {caught.value}"
    assert caught.value.remedy


def test_a_gpu_from_the_users_folder_touches_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hardware_profiles"
    folder.mkdir()
    (folder / "half-h100.toml").write_text(
        'extends = "h100-80g-sxm"\nid = "half-h100"\nname = "H100 at half power"\ntdp_w = 350\n', encoding="utf-8"
    )
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    answer = of(hardware={"gpu_ids": ["half-h100"], "tensor_parallel": [1]})
    assert answer.chosen is not None
    assert answer.chosen.gpu_name == "H100 at half power"


def test_ten_to_the_twelve_tokens_a_day_is_a_fleet_not_a_crash() -> None:
    answer = of(workload={"load": {"kind": "tokens_per_day", "tokens_per_day": 1e12}}, hardware=H100)
    assert answer.chosen is not None
    assert answer.chosen.replicas is not None
    assert answer.chosen.replicas.total > 500


def test_a_layout_that_is_left_out_names_the_kv_dtype_that_it_would_use() -> None:
    for kv_dtype, used in (("auto", QUANTIZATIONS["fp8"].kv_dtype), ("fp8", "fp8"), ("bf16", "bf16")):
        model = {"id": "llama-3.1-405b-instruct", "quantization": "fp8", "kv_dtype": kv_dtype}
        found = plan(scenario_from_dict({"model": model, "hardware": {"gpu_ids": ["l4"]}}))
        assert {each.kv_dtype for each in found.candidates if not each.feasible} == {used}
