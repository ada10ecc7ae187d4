"""Which scheduler an engine's configuration names, and how well that scheduler is known."""

from collections.abc import Callable

from planner.engines import EngineConfig
from planner.errors import InputError
from planner.simulator.cluster.spec import EngineSpec
from planner.simulator.steps import Scheduler
from planner.simulator.variants.sglang import sglang
from planner.simulator.variants.tensorrt_llm import CapacityPolicy, TensorrtLlmSettings, tensorrt_llm

EVIDENCE = "read from source, not recorded"
_RECORDED = "equal to vLLM's own scheduler, step by step, on recorded schedules"


def evidence_of(config: EngineConfig) -> str:
    """Return how well the scheduler of an engine is known, in words for a result's footing."""
    return _RECORDED if config.engine == "vllm" else EVIDENCE


def scheduler_for(config: EngineConfig) -> Callable[[EngineSpec], Scheduler] | None:
    """Return what EngineSpec.scheduler takes for an engine; None for vLLM, whose scheduler is the default."""
    if config.engine == "vllm":
        return None
    if config.engine == "sglang":
        if config.policy != "fcfs":
            raise InputError("engine.policy", config.policy, "must be fcfs: SGLang's other orders aren't simulated", "Choose fcfs")
        return sglang()
    policy: CapacityPolicy = "max_utilization" if config.policy == "max_utilization" else "guaranteed_no_evict"
    return tensorrt_llm(TensorrtLlmSettings(policy, config.enable_chunked_prefill))
