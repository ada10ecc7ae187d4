"""Hostile and broken configs: each is refused with field, value, bound and remedy, quickly, and nothing is interpreted."""

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.models import FAMILIES, model_from_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
}


def refused(config: object, name: str = "model") -> InputError:
    with pytest.raises(InputError) as caught:
        model_from_config(config, name)  # type: ignore[arg-type]
    error = caught.value
    assert error.field
    assert error.bound
    assert error.remedy
    assert len(str(error)) < 3000, "a hostile value does not flood the message"
    return error


def test_two_hundred_megabytes_are_refused_before_parsing() -> None:
    text = '{"model_type": "llama", "pad": "' + "x" * 200_000_000 + '"}'
    start = time.process_time()
    error = refused(text)
    assert time.process_time() - start < 0.5
    assert "2,097,152 bytes" in error.bound


@pytest.mark.parametrize("text", ["", "{", "not json", "<html></html>", "[1, 2]", "null", "17", b"\xff\xfe\x00", '{"a": 1}}'])
def test_text_that_is_not_a_json_object(text: object) -> None:
    assert refused(text).field == "config"


@pytest.mark.parametrize("config", [None, 17, ["model_type", "llama"], 3.5])
def test_things_that_are_not_a_config(config: object) -> None:
    assert refused(config).field == "config"


@pytest.mark.parametrize("text", ["[" * 900_000, '{"a":' * 300_000])
def test_deep_nesting_is_an_error_and_not_a_crash(text: str) -> None:
    assert "nested" in refused(text).bound


def test_digits_beyond_any_integer() -> None:
    text = json.dumps(LLAMA).replace(": 64", ": " + "9" * 5000)
    assert refused(text).field == "config"


@pytest.mark.parametrize(
    "value", [-1, 0, 10**12, 1.5, 64.0, "64", True, math.nan, math.inf, [], {}, [64], "<script>alert(1)</script>", "1e3"]
)
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"])
def test_sizes_must_be_whole_numbers_in_bounds(key: str, value: object) -> None:
    error = refused({**LLAMA, key: value})
    assert error.field == f"config.{key}"
    assert error.value is value


def test_nan_and_infinity_in_text() -> None:
    for word in ("NaN", "Infinity", "-Infinity"):
        assert refused(json.dumps(LLAMA).replace('"hidden_size": 64', f'"hidden_size": {word}')).field == "config.hidden_size"


def test_unused_keys_may_hold_anything() -> None:
    text = json.dumps(LLAMA)[:-1] + ', "time_step_limit": [0.0, Infinity], "x": {"y": [[null]]}}'
    assert model_from_config(text, "model").layers == 2


@pytest.mark.parametrize("value", [17, "yes", "true", 0, [True]])
def test_flags_must_be_true_or_false(value: object) -> None:
    assert refused({**LLAMA, "attention_bias": value}).field == "config.attention_bias"
    assert refused({**LLAMA, "tie_word_embeddings": value}).field == "config.tie_word_embeddings"


@pytest.mark.parametrize("value", [17, None, [], "", "a" * 300, "a\x00b", "line\nbreak", {"a": 1}])
def test_model_types_must_be_short_plain_text(value: object) -> None:
    assert refused({**LLAMA, "model_type": value}).field == "config.model_type"


@pytest.mark.parametrize("name", ["", "a" * 201, "tab\there", "null\x00", "\u202egnp.exe", "…", "---", None, 17])
def test_names_must_be_short_plain_text_with_a_letter(name: object) -> None:
    assert refused(LLAMA, name).field == "name"  # type: ignore[arg-type]


def test_markup_in_a_name_stays_data() -> None:
    name = "<img src=x onerror=alert(1)>"
    spec = model_from_config(LLAMA, name)
    assert spec.name == name
    assert spec.id == "img-src-x-onerror-alert-1"


def test_paths_in_a_name_make_no_path_in_an_id() -> None:
    assert model_from_config(LLAMA, "../../etc/passwd").id == "etc-passwd"


@pytest.mark.parametrize(
    "types", ["full_attention", [], ["full_attention"], ["full_attention", "<b>"], ["full_attention", 17], {"a": 1}]
)
def test_layer_lists_must_fit(types: object) -> None:
    assert refused({**LLAMA, "layer_types": types}).field == "config.layer_types"


def test_a_list_longer_than_any_model() -> None:
    assert refused({**LLAMA, "layer_types": ["full_attention"] * 100_000}).field == "config.layer_types"


def test_a_product_of_large_sizes_is_refused() -> None:
    error = refused({**LLAMA, "hidden_size": 10_000_000, "head_dim": 10_000_000, "intermediate_size": 10_000_000})
    assert "1000000000000000" in error.bound


def test_text_config_that_is_not_an_object_is_not_used() -> None:
    assert refused({"model_type": "llama", "text_config": "llama"}).bound.startswith("lacks")


@pytest.mark.parametrize("method", ["quark", "<b>", 17, None, "exl2"])
def test_unknown_quantization_methods_are_refused(method: object) -> None:
    error = refused({**LLAMA, "quantization_config": {"quant_method": method}})
    assert error.field == "config.quantization_config.quant_method"


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "awq"},
        {"quant_method": "awq", "bits": 0},
        {"quant_method": "gptq", "bits": 4, "group_size": "128"},
        {"quant_method": "gptq", "bits": 4, "group_size": -2},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": 128},
        {"quant_method": "fp8", "weight_block_size": [True, 128]},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": "fp8", "modules_to_not_convert": [17]},
        {"quant_method": "fp8", "modules_to_not_convert": ["x" * 1000]},
        {"quant_method": "fp8", "modules_to_not_convert": ["x"] * 100_000},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"a": 1}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 3, "type": "int"}}}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {}}, "b": {"weights": {}}}},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "modelopt"},
    ],
)
def test_broken_quantization_sections_are_refused(section: dict[str, object]) -> None:
    assert refused({**LLAMA, "quantization_config": section}).field.startswith("config.")


def test_quantization_that_is_not_an_object() -> None:
    assert refused({**LLAMA, "quantization_config": "fp8"}).field == "config.quantization_config"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = sorted(
    {key for family in FAMILIES.values() for need in family.needs for key in need.split("|")}
    | {"quantization_config", "layer_types"}
)


@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=len(KEYS)))
@settings(max_examples=60, deadline=None)
def test_junk_makes_a_model_or_an_input_error(family: str, junk: dict[str, object]) -> None:
    full = dict.fromkeys(FAMILIES[family].needs, 4)
    config = {need.split("|")[0]: value for need, value in full.items()} | junk | {"model_type": family}
    try:
        spec = model_from_config(config, "junk")
    except InputError:
        return
    assert spec.total_params > 0


def test_a_key_that_is_stated_twice_is_refused_and_named() -> None:
    with pytest.raises(InputError, match="twice") as caught:
        model_from_config('{"model_type": "llama", "hidden_size": 4096, "hidden_size": 8192}', "mine")
    assert (caught.value.field, caught.value.value) == ("config.hidden_size", 8192)


def test_what_is_not_json_is_shown_as_the_text_that_it_is() -> None:
    with pytest.raises(InputError, match=r"config is '\{oops': must be JSON"):
        model_from_config(b"{oops", "mine")
