"""Inference engines: their settings, defaults by release and GPU, and what each release does differently."""

from planner.engines.config import (
    POLICIES,
    USER_SOURCE,
    EngineConfig,
    FieldSource,
    OutputReservation,
    Policy,
    Usage,
)
from planner.engines.defaults import (
    batch_defaults,
    engine_defaults,
    graph_ceiling_tokens,
    graph_sizes,
    limit_to_model_length,
    sglang_mem_fraction,
)
from planner.engines.versions import (
    ENGINE_TITLES,
    ENGINE_VERSIONS,
    VLLM_KNOB_SINCE,
    EngineName,
    VllmFacts,
    check_block_size,
    check_version,
    engine_source,
    vllm_facts,
)

__all__ = [
    "ENGINE_TITLES",
    "ENGINE_VERSIONS",
    "POLICIES",
    "USER_SOURCE",
    "VLLM_KNOB_SINCE",
    "EngineConfig",
    "EngineName",
    "FieldSource",
    "OutputReservation",
    "Policy",
    "Usage",
    "VllmFacts",
    "batch_defaults",
    "check_block_size",
    "check_version",
    "engine_defaults",
    "engine_source",
    "graph_ceiling_tokens",
    "graph_sizes",
    "limit_to_model_length",
    "sglang_mem_fraction",
    "vllm_facts",
]
