"""Scenarios that read well and can't be meant: each is refused with its field, or answered with the true reason."""

from typing import Any

import pytest

from planner.errors import InputError
from planner.plans import Plan, plan
from planner.scenario import scenario_from_dict

H100: dict[str, Any] = {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "budget below the sequences": (
        {"engine": {"max_num_seqs": 4096, "max_num_batched_tokens": 512}},
        "engine.max_num_batched_tokens",
    ),
    "no headroom to speak of": ({"fleet": {"headroom": 0.9999999999999}}, "fleet.headroom"),
    "a request in a thousand years": ({"workload": {"load": {"kind": "rate", "requests_per_s": 1e-12}}}, "workload.load"),
    "a rate that overflows": ({"workload": {"load": {"kind": "rate", "requests_per_s": 1e-308}}}, "workload.load"),
    "a token a day": ({"workload": {"load": {"kind": "tokens_per_day", "tokens_per_day": 1}}}, "workload.load"),
    "unknown provider": ({"hardware": {**H100, "provider": "awz"}}, "hardware.provider"),
    "empty provider": ({"hardware": {**H100, "provider": ""}}, "hardware.provider"),
    "unknown region": ({"hardware": {**H100, "region": "mars-1"}}, "hardware.region"),
    "price of nothing": ({"hardware": {**H100, "usd_per_gpu_hour": {"h1000": 2.0}}}, "hardware.usd_per_gpu_hour.h1000"),
    "logged size of no block": ({"hardware": H100, "engine": {"logged_kv_tokens": 1}}, "engine.logged_kv_tokens"),
    "logged size of a room full": ({"hardware": H100, "engine": {"logged_kv_tokens": 10**12}}, "engine.logged_kv_tokens"),
}


def of(**parts: Any) -> Plan:
    return plan(scenario_from_dict(parts))


@pytest.mark.parametrize(("document", "field"), BAD.values(), ids=BAD)
def test_what_cannot_be_meant_is_refused_with_its_field(document: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        of(**document)
    assert caught.value.field == field


def test_near_names_are_given_for_a_provider() -> None:
    with pytest.raises(InputError, match="aws"):
        of(hardware={**H100, "provider": "awz"})


@pytest.mark.parametrize("engine", [{"max_num_batched_tokens": 2**20}, {"max_num_seqs": 65536}, {"logged_kv_tokens": 64}])
def test_a_cache_without_room_is_not_blamed_on_the_weights(engine: dict[str, int]) -> None:
    rejection = of(hardware=H100, engine=engine).candidates[0].rejection
    assert rejection is not None
    if "logged_kv_tokens" in engine:
        assert rejection.reason == "KV cache is too small"
    else:
        assert "activations" in rejection.detail
        assert "max_num_batched_tokens" in (rejection.remedy or "")


def test_a_low_utilisation_is_named_in_the_remedy() -> None:
    low = of(hardware=H100, engine={"gpu_memory_utilization": 0.01}).candidates[0].rejection
    full = of(hardware=H100, model={"id": "llama-3.1-70b-instruct"}).candidates[0].rejection
    assert low is not None
    assert full is not None
    assert "gpu_memory_utilization" in (low.remedy or "")
    assert "gpu_memory_utilization" not in (full.remedy or "")


def test_a_gpu_or_size_named_twice_is_one_candidate() -> None:
    answer = of(hardware={"gpu_ids": ["h100-80g-sxm"] * 2, "tensor_parallel": [1, 1]})
    assert [(candidate.gpu_id, candidate.tensor_parallel) for candidate in answer.candidates] == [("h100-80g-sxm", 1)]


def test_without_a_price_the_fewest_gpus_win() -> None:
    answer = of(hardware={"gpu_ids": ["trainium2"], "tensor_parallel": [1, 4]}, targets={"ttft_p99_s": 10, "tpot_p99_s": 0.1})
    feasible = [candidate for candidate in answer.candidates if candidate.feasible]
    assert len(feasible) == 2
    assert all(candidate.cost is None for candidate in feasible)
    gpus = [candidate.replicas.total * candidate.tensor_parallel for candidate in feasible if candidate.replicas]
    assert gpus[0] == min(gpus) < gpus[1]
    assert answer.chosen is not None
    assert answer.chosen.tensor_parallel == feasible[0].tensor_parallel
