"""Schedulers of SGLang and TensorRT-LLM, read from their source, not recorded: good to compare policies, not to the millisecond."""

from planner.simulator.variants.choose import EVIDENCE, evidence_of, scheduler_for
from planner.simulator.variants.sglang import SglangScheduler, SglangSettings, sglang
from planner.simulator.variants.tensorrt_llm import CapacityPolicy, TensorrtLlmScheduler, TensorrtLlmSettings, tensorrt_llm

__all__ = [
    "EVIDENCE",
    "CapacityPolicy",
    "SglangScheduler",
    "SglangSettings",
    "TensorrtLlmScheduler",
    "TensorrtLlmSettings",
    "evidence_of",
    "scheduler_for",
    "sglang",
    "tensorrt_llm",
]
