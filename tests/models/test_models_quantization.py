"""Bits of a weight with its scales, and quantization_config sections as checkpoints carry them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.models import QUANTIZATIONS, Quantization, grouped_bits, kv_value_bytes, load_model, model_from_config, weight_bytes

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def native(section: dict[str, object], **changes: object) -> Quantization:
    quantization = model_from_config({**LLAMA, **changes, "quantization_config": section}, "model").native_quantization
    assert quantization is not None
    return quantization


def test_published_bits_of_a_weight() -> None:
    bits = {name: quantization.weight_bits for name, quantization in QUANTIZATIONS.items()}
    assert bits["nvfp4"] == 4.5
    assert bits["mxfp4"] == 4.25
    assert 4.15 <= bits["int4-awq"] <= 4.25
    assert 4.12 <= bits["int4-gptq"] <= 4.25
    assert bits["fp8"] == bits["int8"] == 8
    assert bits["fp8-block"] == pytest.approx(8.002, abs=0.0005)
    assert (bits["bf16"], bits["fp16"], bits["fp32"]) == (16, 16, 32)


@given(st.floats(1, 16), st.integers(1, 1024), st.floats(0, 32), st.floats(0, 16))
@settings(max_examples=60, deadline=None)
def test_larger_groups_cost_less_and_never_less_than_the_weight(bits: float, group: int, scale: float, zero: float) -> None:
    assert bits <= grouped_bits(bits, 2 * group, scale, zero) <= grouped_bits(bits, group, scale, zero)


def test_every_quantization_names_its_source_and_its_matmul() -> None:
    for name, quantization in QUANTIZATIONS.items():
        assert quantization.id == name
        assert quantization.source.ref
    weight_only = ("int4-awq", "int4-gptq", "mxfp4")
    assert {QUANTIZATIONS[name].compute_dtype for name in weight_only} == {"bf16"}
    assert QUANTIZATIONS["nvfp4"].compute_dtype == "fp4"
    assert QUANTIZATIONS["fp8"].compute_dtype == "fp8"


def test_embedding_head_and_router_stay_in_16_bit() -> None:
    for name in ("fp8", "fp8-block", "int8", "int4-awq", "int4-gptq", "mxfp4", "nvfp4"):
        for module in ("embedding", "head", "router"):
            assert QUANTIZATIONS[name].bits_of(module) == 16


@pytest.mark.parametrize("bits", [0, -4, float("nan"), float("inf"), 65, "4"])
def test_bits_are_checked(bits: object) -> None:
    plain = QUANTIZATIONS["fp8"].model_dump()
    with pytest.raises(ValidationError):
        Quantization.model_validate({**plain, "weight_bits": bits}, strict=True)
    with pytest.raises(ValidationError):
        Quantization.model_validate({**plain, "surprise": 1})


def test_cache_values() -> None:
    assert [kv_value_bytes(dtype) for dtype in ("bf16", "fp16", "fp8", "fp32")] == [2, 2, 1, 4]


def test_no_section_means_no_native_quantization() -> None:
    spec = model_from_config(LLAMA, "model")
    assert spec.native_quantization is None
    assert spec.default_quantization == QUANTIZATIONS["bf16"]


def test_block_fp8() -> None:
    quantization = native({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})
    assert (quantization.id, quantization.block_size, quantization.compute_dtype) == ("fp8-block", 128, "fp8")
    assert quantization.excluded == ("embedding", "head", "router")


def test_fp8_that_leaves_modules_layer_by_layer() -> None:
    names = [f"model.layers.{number}.mlp.gate" for number in range(32)] + ["lm_head"]
    assert native({"quant_method": "fp8", "modules_to_not_convert": names}).excluded == ("embedding", "head", "router")
    names += [f"model.layers.{number}.self_attn.{p}_proj" for number in range(32) for p in "qkvo"]
    assert "attention" in native({"quant_method": "fp8", "modules_to_not_convert": names}).excluded
    few = [f"model.layers.{number}.self_attn.o_proj" for number in range(3)]
    assert "attention" not in native({"quant_method": "fp8", "modules_to_not_convert": few}).excluded


def test_awq_and_gptq() -> None:
    awq = native({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": None})
    assert (awq.id, awq.weight_bits, awq.compute_dtype, awq.group_size) == ("int4-awq", 4.15625, "bf16", 128)
    fine = native({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True})
    assert (fine.id, fine.weight_bits) == ("int4-gptq", 4.625)
    whole = native({"quant_method": "gptq", "bits": 8, "group_size": -1})
    assert (whole.id, whole.weight_bits, whole.group_size) == ("int8-gptq", 8, None)
    assert "head" not in native({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}).excluded


def compressed(bits: int, kind: str, group: int | None = None, activations: object = None, **more: object) -> dict[str, object]:
    weights = {"num_bits": bits, "type": kind, "group_size": group, "strategy": "group" if group else "channel", "symmetric": True}
    section = {"quant_method": "compressed-tensors", "ignore": ["lm_head"], **more}
    return section | {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations}}}


def test_compressed_tensors() -> None:
    eight = {"num_bits": 8, "type": "float"}
    assert native(compressed(8, "float", activations=eight)).id == "fp8"
    assert native(compressed(8, "int", activations=eight)).compute_dtype == "int8"
    four = native(compressed(4, "int", 128))
    assert (four.weight_bits, four.compute_dtype) == (4.125, "bf16")
    assert native(compressed(8, "float")).compute_dtype == "bf16", "weights alone are in fp8"
    assert native(compressed(8, "float")).id == "fp8-weight-only"
    nvfp4 = native(compressed(4, "float", 16, activations={"num_bits": 4, "type": "float"}))
    assert (nvfp4.id, nvfp4.weight_bits, nvfp4.compute_dtype) == ("nvfp4", 4.5, "fp4")
    cached = native(compressed(8, "float", activations=eight, kv_cache_scheme={"num_bits": 8, "type": "float"}))
    assert cached.kv_dtype == "fp8"
    assert native(compressed(8, "float", activations=eight)).kv_dtype == "bf16"


def test_an_experts_only_checkpoint_leaves_everything_else() -> None:
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
    quantization = native({**compressed(4, "int", 32), "ignore": ignore})
    assert quantization.excluded == ("embedding", "head", "attention", "mlp", "shared_experts", "router")
    assert quantization.bits_of("experts") == 4.5


def test_modelopt() -> None:
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*self_attn*", "*router*", "vision_model*"]}
    quantization = native({**section, "kv_cache_quant_algo": "FP8"})
    assert (quantization.id, quantization.kv_dtype) == ("nvfp4", "fp8")
    assert quantization.excluded == ("embedding", "head", "attention", "router")
    assert native({"quant_algo": "FP8", "exclude_modules": ["lm_head"]}).id == "fp8"


def test_mxfp4_as_gpt_oss_has_it() -> None:
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    assert native({"quant_method": "mxfp4", "modules_to_not_convert": names}).excluded == (
        "embedding",
        "head",
        "attention",
        "router",
    )


def test_bitsandbytes() -> None:
    assert native({"quant_method": "bitsandbytes", "load_in_4bit": True}).weight_bits == 4.5
    double = native({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True})
    assert double.weight_bits == pytest.approx(4.127, abs=0.001)
    assert native({"quant_method": "bitsandbytes", "load_in_8bit": True}).weight_bits == 8


def test_a_section_beside_the_text_config_is_found() -> None:
    spec = model_from_config({"model_type": "llava", "text_config": LLAMA, "quantization_config": {"quant_method": "fp8"}}, "model")
    assert spec.native_quantization is not None
    assert spec.default_quantization.id == "fp8"


def test_fp4_experts_of_deepseek_v4() -> None:
    spec = load_model("deepseek-v4-pro")
    assert spec.default_quantization.bits_of("experts") == 4.25
    assert weight_bytes(spec, spec.default_quantization).total == pytest.approx(850e9, rel=0.01), (
        "1.57 T parameters, nearly all in experts"
    )
