"""From a Hugging Face config.json to a ModelSpec: one reader and one table entry for each family, and no guess beyond them."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from planner.errors import InputError
from planner.models import readers_dense as dense
from planner.models import readers_hybrid as hybrid
from planner.models import readers_latent as latent
from planner.models import readers_moe as moe
from planner.models.config_fields import Fields, checked_name, parse_config
from planner.models.hf_quantization import read_quantization, with_fp4_experts
from planner.models.layout import Layout, grouped
from planner.models.quantization import Quantization, WeightDtype
from planner.models.readers_dense import GatedStyle, Reader, styled
from planner.models.spec import ModelSpec
from planner.provenance import Source

_TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
_BASE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_DENSE = (*_BASE, "intermediate_size")
_TOP_K = "num_experts_per_tok|num_experts_per_token|top_k_experts|experts_per_token|moe_top_k"
_ROUTED = (*_BASE, "num_local_experts|num_experts|n_routed_experts|moe_num_experts", _TOP_K)
_NARROW = (*_ROUTED, "moe_intermediate_size")
_LATENT = (*_NARROW, "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_INDEXED = (*_LATENT, "q_lora_rank", "index_topk", "index_n_heads", "index_head_dim")
_DELTA = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
_COMPRESSED = (*_NARROW, "head_dim", "q_lora_rank", "o_groups", "o_lora_rank", "sliding_window", "compress_ratios", "hc_mult")
_DTYPES: dict[str, WeightDtype] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16"}


@dataclass(frozen=True, slots=True)
class Family:
    """How one model_type is read.

    read : its reader
    needs : keys without which it cannot be read; "a|b" are spellings of one
    tied : what an absent tie_word_embeddings means
    defaults : what an absent key means inside a text_config, where the format leaves out values equal to its class's own
    """

    read: Reader
    needs: tuple[str, ...] = _DENSE
    tied: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)


_LLAMA = Family(styled(GatedStyle()))
_MISTRAL = Family(
    styled(GatedStyle(bias_key="-")),
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
    },
)  # fmt: skip
_GEMMA3 = Family(
    styled(GatedStyle(mixer_norms=2, mlp_norms=2, qk_norm="head", every=6)),
    (*_DENSE, "head_dim"),
    tied=True,
    defaults={
        "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 4096,
    },
)  # fmt: skip
_GEMMA4 = Family(
    moe.read_gemma4,
    (*_DENSE, "head_dim"),
    tied=True,
    defaults={
        "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 512,
        "hidden_size_per_layer_input": 256, "global_head_dim": 512,
    },
)  # fmt: skip
_LLAMA4 = Family(
    moe.read_llama4,
    (*_ROUTED, "intermediate_size"),
    defaults={
        "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 1,
        "num_local_experts": 16, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192, "max_position_embeddings": 131072,
    },
)  # fmt: skip
_DELTA_DEFAULTS = {
    "vocab_size": 248320, "num_attention_heads": 16, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "max_position_embeddings": 32768,
}  # fmt: skip
_QWEN3_5 = Family(
    hybrid.read_qwen3_5,
    (*_DENSE, "head_dim", *_DELTA),
    defaults=_DELTA_DEFAULTS | {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_key_value_heads": 4},
)
_QWEN3_5_MOE = Family(
    hybrid.read_qwen3_next,
    (*_NARROW, "head_dim", *_DELTA),
    defaults=_DELTA_DEFAULTS
    | {
        "hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8, "num_experts": 256,
    },
)  # fmt: skip
_DEEPSEEK = Family(latent.read_deepseek, _LATENT)
_DEEPSEEK_SPARSE = Family(latent.read_deepseek_sparse, _INDEXED)
_MINIMAX = Family(hybrid.read_minimax_m1, (*_ROUTED, "intermediate_size", "attn_type_list"))

FAMILIES: dict[str, Family] = {
    "bloom": Family(
        dense.read_bloom,
        ("hidden_size|n_embed|n_embd", "n_layer|num_hidden_layers", "num_attention_heads|n_head", "vocab_size"),
        tied=True,
    ),
    "cohere": Family(dense.read_cohere, tied=True),
    "cohere2": Family(styled(GatedStyle(mlp_norms=0, every=4)), tied=True),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK_SPARSE,
    "deepseek_v4": Family(latent.read_deepseek_v4, _COMPRESSED),
    "exaone4": Family(styled(GatedStyle(qk_norm="head", every=4)), (*_DENSE, "head_dim")),
    "falcon": Family(
        dense.read_falcon,
        ("hidden_size", "num_hidden_layers|n_layer", "num_attention_heads|n_head", "vocab_size"),
        tied=True,
    ),
    "gemma": Family(styled(GatedStyle()), (*_DENSE, "head_dim"), tied=True),
    "gemma2": Family(dense.read_gemma2, (*_DENSE, "head_dim", "sliding_window"), tied=True),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "glm4_moe": Family(moe.read_glm4_moe, (*_NARROW, "head_dim")),
    "glm4_moe_lite": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK_SPARSE,
    "gpt_oss": Family(moe.read_gpt_oss, (*_ROUTED, "intermediate_size", "head_dim", "sliding_window")),
    "granite": _LLAMA,
    "internlm2": Family(styled(GatedStyle(bias_key="bias"))),
    "kimi_k2": _DEEPSEEK,
    "kimi_k25": _DEEPSEEK,
    "kimi_linear": Family(latent.read_kimi_linear, (*_LATENT, "intermediate_size", "linear_attn_config")),
    "llama": _LLAMA,
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "mimo_v2_flash": Family(moe.read_mimo_v2, (*_NARROW, "head_dim", "v_head_dim", "sliding_window")),
    "minimax": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "minimax_m2": Family(moe.read_minimax_m2, (*_ROUTED, "intermediate_size", "head_dim")),
    "minimax_m3": Family(moe.read_minimax_m3, (*_NARROW, "head_dim", "sparse_attention_config", "dense_intermediate_size")),
    "minimax_text_01": _MINIMAX,
    "mistral": _MISTRAL,
    "mistral3": _MISTRAL,
    "mixtral": Family(moe.read_mixtral, (*_ROUTED, "intermediate_size")),
    "nemotron-nas": Family(dense.read_nemotron_nas, (*_BASE, "block_configs")),
    "nemotron_h": Family(
        hybrid.read_nemotron_h,
        ("hidden_size", "vocab_size", "hybrid_override_pattern|layers_block_type|layer_types", "mamba_num_heads", "mamba_head_dim"),
    ),
    "olmo2": Family(styled(GatedStyle(qk_norm="full"))),
    "opt": Family(dense.read_opt, (*_BASE, "ffn_dim|intermediate_size", "max_position_embeddings"), tied=True),
    "phi": Family(dense.read_phi),
    "phi3": Family(styled(GatedStyle(bias_key="-"))),
    "phimoe": Family(moe.read_phimoe, (*_ROUTED, "intermediate_size")),
    "qwen2": Family(dense.read_qwen2),
    "qwen2_moe": Family(moe.read_qwen2_moe, _NARROW),
    "qwen3": Family(dense.read_qwen3, (*_DENSE, "head_dim")),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5_MOE,
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_moe": Family(moe.read_qwen3_moe, (*_NARROW, "head_dim")),
    "qwen3_next": Family(hybrid.read_qwen3_next, (*_NARROW, "head_dim", *_DELTA)),
    "seed_oss": Family(styled(GatedStyle(query_bias=True, output_bias=False)), (*_DENSE, "head_dim")),
    "smollm3": Family(styled(GatedStyle()), tied=True),
    "starcoder2": Family(dense.read_starcoder2, tied=True),
    "step3p7": Family(moe.read_step3p7, (*_NARROW, "head_dim", "intermediate_size", "share_expert_dim")),
}


def model_from_config(config: Mapping[str, object] | str | bytes, name: str) -> ModelSpec:
    """Return the model that a Hugging Face config.json describes.

    config : the file's text, bytes or parsed object, at most 2 MiB
    name : what to call the model; its id is made from it

    A plan knows the model once the file lies in PLANNER_HOME/models/<its id>/config.json.

    Raises InputError for text that is too long, not JSON or too deeply nested, for a model_type without a reader, and for keys that
    are missing, of the wrong type or out of bounds.
    """
    checked_name(name, "name")
    outer = parse_config(config)
    model_type, fields, nested = _language_model(outer)
    family = _family(model_type, fields)
    missing = fields.missing(family.needs)
    if missing:
        bound = f"lacks {', '.join(missing)}"
        raise InputError("config", f"{model_type} config", bound, "Add the missing keys from the model's own config.json")
    try:
        return _spec(name, model_type, fields, family.read(fields), note=_defaults_note(fields) if nested else None)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"config.{where}", first["input"], first["msg"], "Check the values in config.json") from None


def _language_model(outer: Mapping[str, object]) -> tuple[str, Fields, bool]:
    """Return the language model's own model_type and keys, from a nested section where there is one."""
    section = next((outer[name] for name in _TEXT_SECTIONS if isinstance(outer.get(name), Mapping)), None)
    raw: Mapping[str, object] = section if isinstance(section, Mapping) else outer
    stated = raw.get("model_type") or outer.get("model_type")
    if stated is None:
        raise InputError("config.model_type", None, "is missing", "Add the model_type of the model's own config.json")
    model_type = checked_name(stated, "config.model_type")
    nested = raw is not outer
    family = FAMILIES.get(model_type)
    return model_type, Fields(raw, outer, family.defaults if nested and family else {}), nested


def _family(model_type: str, fields: Fields) -> Family:
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    near = difflib.get_close_matches(model_type, FAMILIES, n=4)
    hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(sorted(FAMILIES))}"
    missing = fields.missing(_DENSE)
    lacks = f"; it also lacks {', '.join(missing)}" if missing else ""
    remedy = (
        "Its layers may differ from any known family, so nothing is guessed. If they are the same as a known family's, set "
        f"model_type to that; any reader needs at least {', '.join(_DENSE)}"
    )
    raise InputError("config.model_type", model_type, f"has no reader ({hint}{lacks})", remedy)


def _defaults_note(fields: Fields) -> str | None:
    used = sorted(key for key in fields.defaults if fields.raw.get(key) is None)
    return f"left out of text_config, so the family's own: {', '.join(used)}" if used else None


def _spec(name: str, model_type: str, fields: Fields, layout: Layout, note: str | None) -> ModelSpec:
    tied = _tied(fields, FAMILIES[model_type])
    table = layout.vocab * layout.hidden
    dtype, dtype_note = _weight_dtype(fields)
    notes = [text for text in (note, dtype_note) if text]
    source = Source(kind="published", ref=f"config.json of {name}", note="; ".join(notes) or None)
    return ModelSpec(
        id=model_id(name),
        name=name,
        family=model_type,
        layers=len(layout.layers),
        hidden=layout.hidden,
        vocab=layout.vocab,
        max_positions=layout.max_positions,
        groups=grouped(layout.layers),
        embedding_params=table,
        head_params=table,
        tied_embeddings=tied,
        position_params=layout.position_params,
        other_params=layout.other_params,
        weight_dtype=dtype,
        native_quantization=_native_quantization(fields, len(layout.layers)),
        sources={"*": source},
    )


def model_id(name: str) -> str:
    """Return an id made from a name: letters, digits, dots, dashes and underscores, in lower case.

    >>> model_id("meta-llama/Llama-3.1 8B")
    'meta-llama-llama-3.1-8b'
    """
    slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:128]
    if not slug:
        raise InputError("name", name, "must hold a letter or a digit", "Give the model a name such as my-model-8b")
    return slug


def _tied(fields: Fields, family: Family) -> bool:
    own = fields.flag("tie_word_embeddings", default=family.tied)
    if fields.get("tie_word_embeddings") is None:
        return Fields(fields.outer).flag("tie_word_embeddings", default=own)
    return own


def _weight_dtype(fields: Fields) -> tuple[WeightDtype, str | None]:
    stated = fields.text("torch_dtype") or fields.text("dtype")
    stated = stated or Fields(fields.outer).text("torch_dtype") or Fields(fields.outer).text("dtype")
    if stated is None:
        return "bf16", "no dtype stated: bf16 assumed"
    dtype = _DTYPES.get(stated.removeprefix("torch."))
    if dtype is None:
        raise InputError(
            "config.torch_dtype", stated, f"must be one of {', '.join(_DTYPES)}", "Give the dtype of the unquantised weights"
        )
    return dtype, None


def _native_quantization(fields: Fields, layers: int) -> Quantization | None:
    for holder in (fields, Fields(fields.outer)):
        if holder.get("quantization_config", "compression_config") is not None:
            name = "quantization_config" if holder.get("quantization_config") is not None else "compression_config"
            read = read_quantization(holder.section(name), layers)
            return with_fp4_experts(read) if fields.text("expert_dtype") == "fp4" else read
    return None
