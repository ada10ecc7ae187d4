"""The scenario document: round trip, digest, and every kind of wrong input."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.errors import InputError
from planner.scenario import MAX_PLAN_BYTES, MAX_SCENARIO_BYTES, FleetChoice, Scenario, scenario_from_dict, scenario_from_json


def test_the_default_is_the_question_the_app_opens_with() -> None:
    scenario = Scenario()
    assert scenario.workload.id == "azure-conversation-2023"
    assert scenario.model.id == "llama-3.1-8b-instruct"
    assert (scenario.targets.ttft_p99_s, scenario.targets.tpot_p99_s) == (1.0, 0.030)
    assert not scenario.targets.offline


@given(rate=st.floats(1e-3, 1e6), ttft=st.one_of(st.none(), st.floats(1e-3, 100)), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_json_round_trip_keeps_everything(rate: float, ttft: float | None, seed: int) -> None:
    document = {"workload": {"load": {"kind": "rate", "requests_per_s": rate}}, "targets": {"ttft_p99_s": ttft}, "seed": seed}
    scenario = scenario_from_dict(document)
    again = scenario_from_json(scenario.to_json())
    assert again == scenario
    assert again.digest() == scenario.digest()


def test_digest_changes_with_any_input() -> None:
    assert Scenario(seed=2).digest() != Scenario(seed=1).digest()


BAD = [
    ({"targets": {"ttft_p99_s": -1}}, "targets.ttft_p99_s"),
    ({"targets": {"tpot_p99_s": 0}}, "targets.tpot_p99_s"),
    ({"workload": {"load": {"kind": "rate", "requests_per_s": 0}}}, "workload.load.requests_per_s"),
    ({"workload": {"load": {"kind": "rate", "requests_per_s": "many"}}}, "workload.load.requests_per_s"),
    ({"workload": {"load": {"kind": "tokens_per_day", "tokens_per_day": 1e17}}}, "workload.load.tokens_per_day"),
    ({"workload": {"load": {"kind": "wishes"}}}, "workload.load"),
    ({"workload": {"id": "../../etc/passwd"}}, "workload.id"),
    ({"model": {"id": "<script>alert(1)</script>"}}, "model.id"),
    ({"hardware": {"usd_per_gpu_hour": {"l40s": -2}}}, "hardware.usd_per_gpu_hour.l40s"),
    ({"hardware": {"tensor_parallel": [0]}}, "hardware.tensor_parallel.0"),
    ({"hardware": {"provider": ""}}, "hardware.provider"),
    ({"hardware": {"region": ""}}, "hardware.region"),
    ({"engine": {"calibration_id": ""}}, "engine.calibration_id"),
    ({"fleet": {"headroom": 1.0}}, "fleet.headroom"),
    ({"fleet": {"spare_replicas": -1}}, "fleet.spare_replicas"),
    ({"engine": {"max_num_seqs": 10**12}}, "engine.max_num_seqs"),
    ({"engine": {"logged_kv_tokens": 1000}}, "engine.logged_kv_tokens"),
    ({"colour": "blue"}, "colour"),
    ({"schema_version": 2}, "schema_version"),
    ({"seed": 1.5}, "seed"),
]


@pytest.mark.parametrize(("document", "field"), BAD, ids=[field for _, field in BAD])
def test_wrong_input_names_the_field(document: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario_from_dict(document)
    assert caught.value.field == field
    assert caught.value.bound
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '{"seed": NaN}', '{"seed": Infinity}', "[" * 100_000, "\ud800", f'{{"seed": {"1" * 5000}}}'],
)
def test_what_is_not_a_scenario_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        scenario_from_json(text)


@pytest.mark.parametrize("text", ['{"seed": 1, "seed": 2}', '{"fleet": {"headroom": 0.1, "headroom": 0.2}}'])
def test_a_field_stated_twice_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="twice"):
        scenario_from_json(text)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"seed": True}, "seed"),
        ({"fleet": {"headroom": False}}, "fleet.headroom"),
        ({"hardware": {"tensor_parallel": [1, True]}}, "hardware.tensor_parallel[1]"),
    ],
)
def test_true_and_false_are_no_numbers(document: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match="true or false") as caught:
        scenario_from_dict(document)
    assert caught.value.field == field


def test_the_constructor_takes_no_truth_value_for_a_number_either() -> None:
    with pytest.raises(ValidationError, match="true or false"):
        Scenario(seed=True)
    with pytest.raises(ValidationError, match="true or false"):
        FleetChoice(headroom=False)


@pytest.mark.parametrize("filling", [0, MAX_SCENARIO_BYTES])
def test_a_plans_document_is_read_as_its_scenario(filling: int) -> None:
    document = {"document_version": 1, "summary": "s" * filling, "scenario": {"seed": 7}, "feasible": True}
    assert scenario_from_json(json.dumps(document, indent=1)) == scenario_from_dict(document) == Scenario(seed=7)


def test_a_plans_document_is_held_to_the_same_bounds() -> None:
    with pytest.raises(InputError, match="headroom"):
        scenario_from_dict({"document_version": 1, "scenario": {"fleet": {"headroom": 2}}})
    with pytest.raises(InputError, match="object of fields"):
        scenario_from_dict({"document_version": 1, "scenario": []})
    with pytest.raises(InputError, match="document_version is 1: is not a field"):
        scenario_from_dict({"document_version": 1, "seed": 7})
    with pytest.raises(InputError, match=str(MAX_PLAN_BYTES)):
        scenario_from_json(json.dumps({"document_version": 1, "summary": "s" * MAX_PLAN_BYTES}))


def test_wrong_encoding_is_refused() -> None:
    with pytest.raises(InputError, match="must be JSON"):
        scenario_from_json(b'\xff\xfe{"seed": 1}\x00\x80')


def test_a_document_that_is_no_json_is_shown_as_it_begins() -> None:
    for text in ('{"seed": 1', b'{"seed": 1'):
        with pytest.raises(InputError, match=r"scenario is '\{\"seed\": 1': must be JSON \(Expecting"):
            scenario_from_json(text)


def test_a_huge_document_is_refused_before_parsing() -> None:
    with pytest.raises(InputError, match=str(MAX_SCENARIO_BYTES)):
        scenario_from_json(json.dumps({"colour": "b" * MAX_SCENARIO_BYTES}))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"hardware": {"gpu_ids": "l4"}}, "hardware.gpu_ids is 'l4': must be a list."),
        ({"workload": 3}, "workload is 3: must be an object of fields."),
        ({"workload": {"load": {"kind": "x"}}}, "must be of a kind out of 'rate', 'users', 'tokens_per_day'."),
        ({"workload": {"load": {}}}, "must state its kind."),
        ({"model": {"id": "a b"}}, "has a form or a character that isn't allowed."),
    ],
)
def test_a_bound_is_said_in_words(document: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario_from_dict(document)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"seed": "12"}, "seed"),
        ({"seed": b"12"}, "seed"),
        ({"targets": {"ttft_p99_s": "1.0"}}, "targets.ttft_p99_s"),
        ({"hardware": {"tensor_parallel": [2, "4"]}}, "hardware.tensor_parallel.1"),
        ({"hardware": {"usd_per_gpu_hour": {"l4": "0.8"}}}, "hardware.usd_per_gpu_hour.l4"),
        ({"workload": {"load": {"kind": "users", "users": "9", "active_share": 0.1, "requests_per_user_minute": 1}}}, "users"),
    ],
)
def test_a_number_in_quotes_is_no_number(document: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=r"must be a number, not text") as caught:
        scenario_from_dict(document)
    assert caught.value.field.endswith(field)


def test_a_whole_number_with_a_point_is_whole() -> None:
    assert scenario_from_dict({"seed": 12.0}).seed == 12
    with pytest.raises(InputError, match="seed"):
        scenario_from_dict({"seed": 12.5})
