"""Engine settings: bounds, the rules between them, and changes that are checked again."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.engines import USER_SOURCE, EngineConfig, check_block_size
from planner.errors import InputError
from planner.scenario import scenario_from_dict

VALUES = {"version": "0.33.0", "max_num_seqs": 256, "max_num_batched_tokens": 2048, "gpu_memory_utilization": 0.9}


def config(**changes: object) -> EngineConfig:
    return EngineConfig.parse(VALUES | changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_num_seqs", 0),
        ("max_num_seqs", -1),
        ("max_num_seqs", 10**12),
        ("max_num_seqs", "many"),
        ("max_num_seqs", 1.5),
        ("max_num_batched_tokens", 10**12),
        ("max_model_len", 1),
        ("gpu_memory_utilization", 0.0),
        ("gpu_memory_utilization", 1.01),
        ("gpu_memory_utilization", math.nan),
        ("gpu_memory_utilization", math.inf),
        ("watermark", 1.0),
        ("block_size", 0),
        ("kv_cache_memory_bytes", -1.0),
        ("policy", "<b>fcfs</b>"),
        ("engine", "llama.cpp"),
        ("version", "0.99.0"),
        ("long_prefill_token_threshold", 0),
        ("no_such_setting", 1),
    ],
)
def test_a_bad_value_names_its_setting(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        config(**{field: value})
    assert caught.value.field == f"engine.{field}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"max_num_seqs": 4096}, "engine.max_num_batched_tokens"),
        ({"enable_chunked_prefill": False, "max_model_len": 4096}, "engine.max_num_batched_tokens"),
        ({"max_num_active_seqs": 257}, "engine.max_num_active_seqs"),
        ({"max_num_scheduled_tokens": 4096}, "engine.max_num_scheduled_tokens"),
        ({"long_prefill_token_threshold": 1024, "max_model_len": 512}, "engine.long_prefill_token_threshold"),
        ({"version": "0.23.0", "watermark": 0.01}, "engine.watermark"),
        ({"version": "0.30.0", "max_num_active_seqs": 8}, "engine.max_num_active_seqs"),
        ({"policy": "lpm"}, "engine.policy"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        config(**changes)
    assert caught.value.field == field


def test_rules_of_vllm_do_not_bind_other_engines() -> None:
    assert config(engine="sglang", version="0.5.23", max_num_seqs=4096).max_num_seqs == 4096
    assert not config(
        engine="tensorrt-llm", version="1.2.1", policy="max_utilization", enable_chunked_prefill=False
    ).enable_chunked_prefill


@given(st.integers(1, 2048), st.integers(1, 2048))
@settings(max_examples=40, deadline=None)
def test_a_budget_below_the_sequences_is_always_refused(seqs: int, tokens: int) -> None:
    if tokens < seqs:
        with pytest.raises(InputError):
            config(max_num_seqs=seqs, max_num_batched_tokens=tokens)
    else:
        assert config(max_num_seqs=seqs, max_num_batched_tokens=tokens).max_num_seqs == seqs


def test_the_budget_may_equal_the_sequences_but_not_fall_below() -> None:
    assert config(max_num_batched_tokens=256).max_num_batched_tokens == 256
    with pytest.raises(InputError, match="at least max_num_seqs"):
        config(max_num_batched_tokens=255)


def test_replace_checks_and_marks_what_changed() -> None:
    changed = config().replace(max_num_seqs=64)
    assert changed.max_num_seqs == 64
    assert changed.source_for("max_num_seqs") == USER_SOURCE
    with pytest.raises(InputError, match="max_num_seqs"):
        config().replace(max_num_batched_tokens=8)


def test_equal_settings_are_one_cache_key_and_survive_json() -> None:
    assert hash(config()) == hash(config())
    assert EngineConfig.model_validate_json(config().model_dump_json()) == config()


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [({}, 512), ({"max_num_seqs": 64}, 128), ({"cuda_graphs": False}, 0), ({"max_graph_tokens": None}, None)],
)
def test_graphs_reach_twice_the_sequences(changes: dict[str, object], tokens: int | None) -> None:
    assert config(**changes).largest_graph_tokens == tokens


@pytest.mark.parametrize(
    ("version", "size", "says"),
    [
        ("0.33.0", 1, "multiple of 16"),
        ("0.33.0", 8, "multiple of 16"),
        ("0.33.0", 17, "multiple of 16"),
        ("0.16.0", 48, "16, 32, 64"),
    ],
)
def test_a_block_size_without_a_kernel_is_refused(version: str, size: int, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check_block_size(version, size)
    assert (caught.value.field, caught.value.value) == ("engine.block_size", size)


@pytest.mark.parametrize(("version", "size"), [("0.16.0", 256), ("0.26.0", 48), ("0.33.0", 16), ("0.33.0", 1072)])
def test_a_block_size_with_a_kernel_is_taken(version: str, size: int) -> None:
    assert check_block_size(version, size) == size
    assert scenario_from_dict({"engine": {"version": version, "block_size": size}}).engine.block_size == size


def test_a_scenario_refuses_the_block_size_that_its_engine_refuses() -> None:
    with pytest.raises(InputError, match=r"engine\.block_size is 24.*Take 16, or leave it to the engine"):
        scenario_from_dict({"engine": {"block_size": 24}})
