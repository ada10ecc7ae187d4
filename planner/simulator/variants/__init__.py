"""Schedulers of SGLang and TensorRT-LLM, read from their source, not recorded: good to compare policies, not to the millisecond."""

from planner.simulator.variants.sglang import SglangScheduler, SglangSettings, sglang
from planner.simulator.variants.tensorrt_llm import CapacityPolicy, TensorrtLlmScheduler, TensorrtLlmSettings, tensorrt_llm

EVIDENCE = "read from source, not recorded"

__all__ = [
    "EVIDENCE",
    "CapacityPolicy",
    "SglangScheduler",
    "SglangSettings",
    "TensorrtLlmScheduler",
    "TensorrtLlmSettings",
    "sglang",
    "tensorrt_llm",
]
