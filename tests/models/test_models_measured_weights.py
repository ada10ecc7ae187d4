"""Weight bytes of one GPU against what an engine logged when it loaded the model.

Source of every figure: vLLM 0.19 start-up logs on H100-80GB, llm-d-incubation/llm-d-planner@3c876c8, accuracy/results/v0.19.0
(Apache-2.0), "model weights take" in GiB. The engine adds about 0.03 GiB of rotary tables, which weight_bytes leaves out.
"""

import pytest

from planner.models import QUANTIZATIONS, load_model, model_from_config, weight_bytes
from planner.units import GIB

# id, quantisation, tp, pp, GiB
LOGGED = [
    ("llama-3.1-8b-instruct", "bf16", 1, 1, 14.99),
    ("llama-3.1-8b-instruct", "fp16", 1, 1, 14.99),
    ("llama-3.1-8b-instruct", "fp32", 1, 1, 29.98),
    ("llama-3.1-8b-instruct", "fp8", 1, 1, 8.49),
    ("llama-3.1-8b-instruct", "int4-gptq", 1, 1, 5.38),
    ("llama-3.1-8b-instruct", "bf16", 2, 1, 7.51),
    ("llama-3.1-8b-instruct", "bf16", 4, 1, 3.77),
    ("llama-3.1-8b-instruct", "bf16", 1, 2, 7.51),
    ("llama-3.1-8b-instruct", "bf16", 1, 4, 4.26),
    ("llama-3.3-70b-instruct", "fp8", 2, 1, 33.88),
    ("llama-3.3-70b-instruct", "fp8", 4, 1, 16.96),
    ("llama-3.3-70b-instruct", "int8", 2, 1, 33.88),
    ("qwen2.5-7b-instruct", "fp8", 1, 1, 8.14),
    ("qwen2.5-7b-instruct", "int8", 1, 1, 8.14),
    ("qwen2.5-72b-instruct", "bf16", 2, 1, 67.80),
    ("qwen3-8b", "bf16", 1, 1, 15.27),
    ("qwen3-30b-a3b", "bf16", 1, 1, 56.88),
    ("gemma-2-9b", "bf16", 1, 1, 17.22),
    ("gemma-2-27b", "bf16", 1, 1, 50.72),
    ("phi-4", "bf16", 1, 1, 27.39),
    ("mixtral-8x7b-instruct-v0.1", "bf16", 2, 1, 43.51),
]


@pytest.mark.parametrize(("model_id", "quantization", "tp", "pp", "gib"), LOGGED)
def test_weights_match_the_engine_within_two_percent(model_id: str, quantization: str, tp: int, pp: int, gib: float) -> None:
    held = weight_bytes(load_model(model_id), QUANTIZATIONS[quantization], tp=tp, pp=pp).total
    assert held == pytest.approx(gib * GIB, rel=0.02)
    assert held < gib * GIB, "the rotary tables come on top"


# Models outside the catalogue whose sizes follow from their config alone.
LLAMA_7B = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
OWN_CONFIGS = [
    ("codellama/CodeLlama-7b-hf", LLAMA_7B | {"model_type": "llama", "intermediate_size": 11008, "vocab_size": 32016}, 12.56),
    (
        "google/gemma-7b",
        {
            "model_type": "gemma",
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "vocab_size": 256000,
        },
        15.91,
    ),
    (
        "ibm-granite/granite-3.1-2b-instruct",
        {
            "model_type": "granite",
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 49155,
            "tie_word_embeddings": True,
        },
        4.74,
    ),
    (
        "microsoft/phi-2",
        {
            "model_type": "phi",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 51200,
        },
        5.19,
    ),
    (
        "Qwen/Qwen1.5-MoE-A2.7B",
        {
            "model_type": "qwen2_moe",
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "vocab_size": 151936,
        },
        26.67,
    ),
]


@pytest.mark.parametrize(("name", "config", "gib"), OWN_CONFIGS)
def test_weights_of_a_config_match_the_engine(name: str, config: dict[str, object], gib: float) -> None:
    held = weight_bytes(model_from_config(config, name), QUANTIZATIONS["bf16"]).total
    assert held == pytest.approx(gib * GIB, rel=0.01)


def test_llama_3_1_8b_is_the_textbook_model() -> None:
    spec = load_model("llama-3.1-8b-instruct")
    assert spec.total_params == 8_030_261_248
    assert spec.embedding_params == spec.head_params == 525_336_576
    assert not spec.tied_embeddings
