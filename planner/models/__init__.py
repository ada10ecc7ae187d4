"""Language models as layer groups, and what follows from their shape."""

from planner.models.arithmetic import (
    KvBytes,
    TokenFlops,
    WeightBytes,
    attended_window,
    kv_bytes,
    kv_read_bytes,
    token_flops,
    weight_bytes,
)
from planner.models.hf_config import FAMILIES, Family, model_from_config
from planner.models.loading import list_models, load_model
from planner.models.quantization import QUANTIZATIONS, Quantization, grouped_bits, kv_value_bytes
from planner.models.sharding import legal_tp, stage_layers, tp_refusal
from planner.models.spec import ATTENTION_KINDS, MIXER_KINDS, LayerGroup, LayerShape, ModelSpec, Published

__all__ = [
    "ATTENTION_KINDS",
    "FAMILIES",
    "MIXER_KINDS",
    "QUANTIZATIONS",
    "Family",
    "KvBytes",
    "LayerGroup",
    "LayerShape",
    "ModelSpec",
    "Published",
    "Quantization",
    "TokenFlops",
    "WeightBytes",
    "attended_window",
    "grouped_bits",
    "kv_bytes",
    "kv_read_bytes",
    "kv_value_bytes",
    "legal_tp",
    "list_models",
    "load_model",
    "model_from_config",
    "stage_layers",
    "token_flops",
    "tp_refusal",
    "weight_bytes",
]
