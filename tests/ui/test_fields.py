"""The form and the scenario say the same: every scenario goes into the widgets, into a link and back unchanged."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.scenario import Scenario, patched, scenario_from_dict
from planner.ui import fields, links
from planner.ui.fields import FIELDS, LOAD_KINDS, Values, changed, defaults, document, field_of, query_of, values_of

IDS = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)
POSITIVE = st.floats(min_value=1e-3, max_value=1e6)
LOADS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("rate"), "requests_per_s": POSITIVE}),
    st.fixed_dictionaries(
        {
            "kind": st.just("users"),
            "users": st.integers(1, 10**10),
            "active_share": st.floats(1e-6, 1.0),
            "requests_per_user_minute": st.floats(1e-3, 1e4),
        }
    ),
    st.fixed_dictionaries({"kind": st.just("tokens_per_day"), "tokens_per_day": st.floats(1.0, 1e16)}),
)
SCENARIOS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "workload": st.fixed_dictionaries({"id": IDS, "load": LOADS, "peak_factor": st.none() | st.floats(1.0, 1000.0)}),
        "model": st.fixed_dictionaries({"id": IDS, "quantization": IDS, "kv_dtype": st.sampled_from(["auto", "bf16", "fp8"])}),
        "hardware": st.fixed_dictionaries(
            {
                "gpu_ids": st.lists(IDS, max_size=3),
                "tensor_parallel": st.lists(st.integers(1, 64), max_size=3),
                "provider": st.none() | IDS,
                "price_basis": st.sampled_from(["on_demand", "spot"]),
                "usd_per_gpu_hour": st.dictionaries(IDS, st.floats(0.01, 1e5), max_size=3),
            }
        ),
        "targets": st.fixed_dictionaries(
            {"ttft_p99_s": st.none() | st.floats(1e-3, 3600.0), "tpot_p99_s": st.none() | st.floats(1e-4, 60.0)}
        ),
        "fleet": st.fixed_dictionaries({"headroom": st.floats(0.0, 0.99), "spare_replicas": st.integers(0, 1000)}),
        "engine": st.fixed_dictionaries(
            {
                "max_num_seqs": st.none() | st.integers(1, 1024),
                "max_num_batched_tokens": st.none() | st.integers(1024, 2**20),
                "gpu_memory_utilization": st.none() | st.floats(0.01, 1.0),
            }
        ),
        "seed": st.integers(0, 2**31 - 1),
    }
)


@settings(max_examples=60, deadline=None)
@given(SCENARIOS)
def test_widgets_hold_every_scenario_exactly(tree: dict[str, Any]) -> None:
    scenario = scenario_from_dict(tree)
    back, faults = document(values_of(scenario))
    assert faults == []
    assert scenario_from_dict(back) == scenario


@settings(max_examples=60, deadline=None)
@given(SCENARIOS)
def test_a_link_opens_the_same_scenario(tree: dict[str, Any]) -> None:
    scenario = scenario_from_dict(tree)
    link = links.link_to("http://127.0.0.1:8501/catalogue", scenario)
    values, complaints = links.read_query(parse_qs(urlsplit(link).query, keep_blank_values=True))
    back, faults = document(values)
    assert (complaints, faults) == ((), [])
    assert scenario_from_dict(back).to_json() == scenario.to_json()


def test_every_field_of_the_scenario_has_a_widget() -> None:
    paths = {field.path for field in FIELDS} | {"schema_version", "engine.engine"}

    def leaves(tree: dict[str, Any], prefix: str = "") -> set[str]:
        found: set[str] = set()
        for name, value in tree.items():
            path = f"{prefix}{name}"
            covered = path in paths or not isinstance(value, dict)
            found |= {path} if covered else leaves(value, f"{path}.")
        return found

    tree = json.loads(Scenario().to_json())
    assert leaves(tree) - paths == {"workload.load.kind"}


def test_keys_and_paths_are_unique() -> None:
    assert len({field.key for field in FIELDS}) == len({field.path for field in FIELDS}) == len(FIELDS)


def test_the_default_scenario_needs_no_query() -> None:
    assert query_of(defaults()) == []
    tree, faults = document({})
    assert (scenario_from_dict(tree), faults) == (Scenario(), [])


def test_each_way_of_stating_load_reads_only_its_own_fields() -> None:
    broken: Values = {"rps": "abc", "users": "abc", "tokens": "abc"}
    for label, kind in LOAD_KINDS.items():
        tree, faults = document({**broken, "load": label})
        assert tree["workload"]["load"]["kind"] == kind
        assert len(faults) == 1
        owner = field_of(faults[0].field)
        assert owner is not None
        assert owner.load == label


def test_several_faults_are_named_at_once() -> None:
    _, faults = document({"rps": "abc", "headroom": "much", "seqs": "1.5"})
    assert [fault.field for fault in faults] == ["workload.load.requests_per_s", "fleet.headroom", "engine.max_num_seqs"]


def test_offline_leaves_both_targets_open_and_keeps_their_text() -> None:
    tree, faults = document({"offline": True, "ttft": "nonsense"})
    assert faults == []
    assert tree["targets"] == {"ttft_p99_s": None, "tpot_p99_s": None}
    assert values_of(scenario_from_dict(tree))["ttft"] == "1 s"


def test_an_empty_target_is_no_target() -> None:
    tree, _ = document({"ttft": ""})
    assert tree["targets"]["ttft_p99_s"] is None
    assert tree["targets"]["tpot_p99_s"] == 0.03


def test_a_complaint_inside_a_field_belongs_to_it() -> None:
    owner = field_of("hardware.usd_per_gpu_hour.l40s")
    assert owner is not None
    assert owner.key == "prices"
    assert field_of("nowhere") is None


@pytest.mark.parametrize(("load", "key"), [("Requests", "rps"), ("Users", "users"), ("Tokens", "tokens")])
def test_a_complaint_about_the_load_belongs_to_the_way_it_is_stated(load: str, key: str) -> None:
    field = field_of("workload.load", load)
    assert field is not None
    assert field.key == key


def test_changed_names_what_differs_from_the_default() -> None:
    assert changed(["seed", "rps"], {"seed": "1", "rps": "11"}) == ("rps",)


def test_a_patch_sets_fields_by_dotted_name() -> None:
    scenario = patched(Scenario(), {"model.quantization": "fp8", "workload.load.requests_per_s": 13.2, "hardware.gpu_ids": ("l4",)})
    assert scenario.model.quantization == "fp8"
    assert scenario.workload.load.model_dump() == {"kind": "rate", "requests_per_s": 13.2}
    assert scenario.hardware.gpu_ids == ("l4",)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"load": ["Cows"]}, "none of Requests, Users, Tokens"),
        ({"offline": ["maybe"]}, "none of true, false"),
        ({"rsp": ["1"]}, "no field is called"),
    ],
)
def test_a_link_that_asks_for_what_does_not_exist_is_told_so(query: dict[str, list[str]], said: str) -> None:
    values, (complaint,) = links.read_query(query)
    assert values == {}
    assert said in complaint


def test_a_hostile_link_is_cut_short() -> None:
    _, (complaint,) = links.read_query({"x" * 10_000: ["y" * 10_000]})
    assert len(complaint) < 300


def test_frames_around_the_app_keep_their_own_parameters() -> None:
    assert links.read_query({"embed": ["true"]}) == ({}, ())


def test_link_keeps_host_and_drops_the_old_query() -> None:
    assert links.link_to("https://h.example:1/a/?rps=1#x", Scenario()) == "https://h.example:1/a/"
    assert fields.defaults()["rps"] == "10"
