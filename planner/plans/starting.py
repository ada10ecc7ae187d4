"""A scenario ready to search, and the engines that start under it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from planner.calibration.priors import completed
from planner.calibration.records import CalibrationRecord, host_for, load_record, record_finder
from planner.deployment import Deployment
from planner.errors import InputError
from planner.hardware import GpuProfile
from planner.memory import MemoryBudget, memory_budget
from planner.models import ModelSpec, Quantization
from planner.plans.candidates import Layout, deployment_for, kv_dtype_for
from planner.plans.capacity import ANSWER_REQUESTS, COARSE_REQUESTS, Demand, Replica
from planner.plans.machines import record_over
from planner.plans.progress import Check, unchecked
from planner.plans.results import Candidate, Knobs, PlannedLoad, Reason, Rejection
from planner.pricing import TokenVolume
from planner.scenario import Scenario
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients
from planner.units import GIB

BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
_SMALL_CAP = 256
_USUAL_UTILISATION = 0.89  # below vLLM's defaults of 0.90 and 0.92: only then is raising it a remedy


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario with everything that all its candidates share.

    check : called before each look at a replica; it raises when the answer isn't wanted any more
    """

    scenario: Scenario
    model: ModelSpec
    quantization: Quantization
    demand: Demand
    load: PlannedLoad
    volume: TokenVolume
    prompt_mean_tokens: float
    context_mean_tokens: float
    check: Check = field(default=unchecked, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Engine:
    """A deployment that starts, with its step times.

    own : the engine's own settings on this GPU; those of the deployment are smaller where it would not start with these
    variants : the same engine with other settings, as far as they have been asked for
    """

    deployment: Deployment
    record: CalibrationRecord
    coefficients: StepCoefficients
    memory: MemoryBudget
    own: Knobs
    variants: dict[Knobs, "Engine"] = field(default_factory=dict, compare=False, repr=False)


def coarse(question: Question) -> Question:
    """Return the question on the smaller sample, on which settings and candidates are compared before the best is measured."""
    return replace(question, demand=replace(question.demand, count=COARSE_REQUESTS))


def final(question: Question) -> Question:
    """Return the question on the largest sample, on which the plan's own figures are measured."""
    return replace(question, demand=replace(question.demand, count=ANSWER_REQUESTS))


def start(question: Question, layout: Layout, record: CalibrationRecord) -> Engine | Candidate:
    """Return the engine of a layout, or the candidate rejected before any simulation; record : of its GPU, whatever the link.

    An engine that would not start with its own settings is tried with smaller token budgets, whose activations leave more memory.
    """
    scenario, record = question.scenario, record_over(record, layout.gpu, layout.link)
    if layout.refusal is not None:
        return rejected(question, layout, Rejection("layout is not legal", layout.refusal, "Choose another TP size", None))
    try:
        deployment = deployment_for(scenario, layout, question.model, question.demand.longest_tokens)
        coefficients = coefficients_for(deployment, record)
    except InputError as error:
        return rejected(question, layout, Rejection("precision is not supported", str(error), error.remedy, None))
    logged = scenario.engine.logged_kv_tokens
    own = Knobs(deployment.engine.max_num_seqs, deployment.engine.max_num_batched_tokens)
    engine = Engine(deployment, record, coefficients, memory_budget(deployment, logged), own)
    for knobs in _smaller(scenario, own):
        if engine.memory.fits:
            break
        engine = with_knobs(engine, knobs, logged)
    if not engine.memory.fits:
        memory = memory_budget(deployment, logged)
        return rejected(question, layout, does_not_fit(memory), deployment=deployment, memory=memory, record=record)
    return engine


def _smaller(scenario: Scenario, own: Knobs) -> list[Knobs]:
    """Return settings with smaller token budgets and sequence caps, largest first; none where the user holds them fixed."""
    choice = scenario.engine
    if choice.max_num_batched_tokens is not None:
        return []
    budgets = [budget for budget in reversed(BUDGETS) if budget < own.max_num_batched_tokens]
    caps = [choice.max_num_seqs or min(own.max_num_seqs, budget, _SMALL_CAP) for budget in budgets]
    return [Knobs(cap, budget) for cap, budget in zip(caps, budgets, strict=True) if cap <= budget]


def records_for(question: Question, gpus: Iterable[GpuProfile]) -> dict[str, CalibrationRecord]:
    """Return the calibration of each GPU by id: the one that the scenario names, else that which fits GPU, engine and use best.

    A named record that was measured on another GPU leaves this one its own.
    """
    scenario, choice = question.scenario, question.scenario.engine
    usage: Literal["server", "offline"] = "offline" if scenario.targets.offline else "server"
    find = record_finder(choice.engine, choice.version, question.quantization.compute_dtype, usage)
    named = None if choice.calibration_id is None else load_record(choice.calibration_id)

    def of(gpu: GpuProfile) -> CalibrationRecord:
        if named is None or named.gpu_id not in (None, gpu.id):
            return find(gpu)
        record = named.with_host(host_for(choice.engine, usage)) if usage == "offline" and named.gpu_id else named
        return completed(record, gpu) if named.gpu_id else record

    return {gpu.id: of(gpu) for gpu in gpus}


def rejected(question: Question, layout: Layout, rejection: Rejection, **known: Any) -> Candidate:  # noqa: ANN401 - fields of Candidate
    """Return a candidate with its reason; known : what is known of it all the same."""
    return Candidate(
        gpu_id=layout.gpu.id,
        gpu_name=layout.gpu.name,
        tensor_parallel=layout.tensor_parallel,
        quantization_id=question.quantization.id,
        kv_dtype=kv_dtype_for(question.scenario, question.quantization),
        rejection=rejection,
        link=layout.link,
        several_links=layout.several_links,
        **known,
    )


def with_knobs(engine: Engine, knobs: Knobs, logged_kv_tokens: int | None) -> Engine:
    """Return the engine with other settings: the token budget changes the activations and with them the KV cache."""
    config = engine.deployment.engine
    if (config.max_num_seqs, config.max_num_batched_tokens) == (knobs.max_num_seqs, knobs.max_num_batched_tokens):
        return engine
    if knobs not in engine.variants:
        changed = config.replace(max_num_seqs=knobs.max_num_seqs, max_num_batched_tokens=knobs.max_num_batched_tokens)
        deployment = replace(engine.deployment, engine=changed)
        engine.variants[knobs] = replace(
            engine, deployment=deployment, memory=memory_budget(deployment, logged_kv_tokens), variants={}
        )
    return engine.variants[knobs]


def replica_of(engine: Engine, demand: Demand) -> Replica:
    """Return what the simulator needs of an engine."""
    config = engine.deployment.engine
    return Replica(
        coefficients=engine.coefficients,
        num_blocks=plain_blocks(engine.memory, demand),
        block_size=engine.memory.block_size,
        max_model_len=engine.memory.max_model_len,
        async_scheduling=config.async_scheduling,
        scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
        request_s=engine.record.host.request_s.value,
        prefix_caching=demand.cache_tokens is not None,
    )


def plain_blocks(memory: MemoryBudget, demand: Demand) -> int:
    """Return the pool as blocks of one full-attention group [block].

    Exact for a model whose layers cache alike. Windows and recurrent states hold other amounts than one plain block for
    `block_size` tokens: the pool is scaled by plain ÷ held blocks over what the workload's sequences hold while they run, so that
    it holds as many of them at once as the engine's does.
    """
    return memory.num_blocks if memory.layout.uniform else memory.one_group_blocks(*demand.running_tokens())


def default_knobs(scenario: Scenario, deployment: Deployment) -> Knobs:
    """Return the settings that a deployment starts with, with those that the user holds fixed."""
    config, choice = deployment.engine, scenario.engine
    budget = choice.max_num_batched_tokens or config.max_num_batched_tokens
    sequences = choice.max_num_seqs or min(config.max_num_seqs, budget)
    return Knobs(sequences, max(budget, sequences))


def does_not_fit(memory: MemoryBudget) -> Rejection:
    """Return why an engine can't start, with what one GPU lacks."""
    shortfall = memory.shortfall
    if shortfall is None:
        return Rejection("weights do not fit", "the engine would not start", None, None)
    miss = (memory.requested_bytes + shortfall.missing_bytes) / memory.requested_bytes
    missing = f"{shortfall.missing_bytes / GIB:.3g} GiB"
    ways = ["a larger TP size", "fewer bits a weight", "a smaller max_num_batched_tokens", "a shorter max_model_len"]
    if memory.requested_bytes < _USUAL_UTILISATION * memory.total_bytes:
        ways.append("a higher gpu_memory_utilization")
    remedy = f"Free {missing} on each GPU: {', '.join(ways[:-1])} or {ways[-1]}"
    reason: Reason = "weights do not fit" if shortfall.kind == "weights" else "KV cache is too small"
    return Rejection(reason, shortfall.reason, remedy, miss)
