"""Evaluates each way to serve a scenario: settings, capacity, replicas and cost, or the reason why not."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from planner.calibration.records import CalibrationRecord, load_record, record_for
from planner.deployment import Deployment
from planner.errors import InputError
from planner.fleet import replicas_for
from planner.memory import MemoryBudget, memory_budget
from planner.models import ModelSpec, Quantization
from planner.plan.candidates import Layout, cheapest_placement, deployment_for
from planner.plan.capacity import ANSWER_REQUESTS, COARSE_REQUESTS, Capacity, Demand, Replica, capacity_of, latency_at
from planner.plan.results import Candidate, KnobCell, Knobs, PlannedLoad, Reason, Rejection
from planner.plan.screen import Screen, screen_of
from planner.pricing import TokenVolume, fleet_cost
from planner.scenario import Scenario
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients
from planner.token_costs import token_costs_s
from planner.units import GIB, duration

BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
SEQUENCES = (32, 64, 128, 256, 512, 1024)
_SAME_CAPACITY = 0.01
_MOST_REFUSED = 0.001
_USUAL_UTILISATION = 0.89
_Item = TypeVar("_Item")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario with everything that all its candidates share."""

    scenario: Scenario
    model: ModelSpec
    quantization: Quantization
    demand: Demand
    load: PlannedLoad
    volume: TokenVolume
    prompt_mean_tokens: float
    output_mean_tokens: float
    context_mean_tokens: float


@dataclass(frozen=True, slots=True)
class Engine:
    """A deployment that starts, with its step times."""

    deployment: Deployment
    record: CalibrationRecord
    coefficients: StepCoefficients
    memory: MemoryBudget


def coarse(question: Question) -> Question:
    """Return the question on the smaller sample, on which settings and candidates are compared before the best is measured."""
    return replace(question, demand=replace(question.demand, count=COARSE_REQUESTS))


def in_parallel(function: Callable[[_Item], _Out], items: Iterable[_Item]) -> list[_Out]:
    """Return function(item) for each item, on all cores: the simulator's loop runs outside the interpreter's lock."""
    work = list(items)
    if len(work) < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(function, work))


def start(question: Question, layout: Layout, record: CalibrationRecord) -> Engine | Candidate:
    """Return the engine of a layout, or the candidate rejected before any simulation."""
    scenario = question.scenario
    if layout.refusal is not None:
        return rejected(question, layout, Rejection("layout is not legal", layout.refusal, "Choose another TP size", None))
    try:
        deployment = deployment_for(scenario, layout, question.model, question.demand.longest_tokens)
        coefficients = coefficients_for(deployment, record)
    except InputError as error:
        return rejected(question, layout, Rejection("precision is not supported", str(error), error.remedy, None))
    memory = memory_budget(deployment, scenario.engine.logged_kv_tokens)
    if not memory.fits or memory.shortfall is not None:
        return rejected(question, layout, _does_not_fit(memory), deployment=deployment, memory=memory, record=record)
    return Engine(deployment, record, coefficients, memory)


def record_of(scenario: Scenario, layout: Layout) -> CalibrationRecord:
    """Return the calibration that the scenario names, else the one that fits the GPU, the engine and its use best."""
    choice = scenario.engine
    if choice.calibration_id is not None:
        return load_record(choice.calibration_id)
    usage: Literal["server", "offline"] = "offline" if scenario.targets.offline else "server"
    return record_for(layout.gpu, choice.engine, choice.version, usage=usage)


def rejected(question: Question, layout: Layout, rejection: Rejection, **known: Any) -> Candidate:  # noqa: ANN401 - fields of Candidate
    """Return a candidate with its reason; known : what is known of it all the same."""
    return Candidate(
        gpu_id=layout.gpu.id,
        gpu_name=layout.gpu.name,
        tensor_parallel=layout.tensor_parallel,
        quantization_id=question.quantization.id,
        kv_dtype="auto",
        rejection=rejection,
        **known,
    )


def with_knobs(engine: Engine, knobs: Knobs, logged_kv_tokens: int | None) -> Engine:
    """Return the engine with other settings: the token budget changes the activations and with them the KV cache."""
    config = engine.deployment.engine
    if (config.max_num_seqs, config.max_num_batched_tokens) == (knobs.max_num_seqs, knobs.max_num_batched_tokens):
        return engine
    changed = config.replace(max_num_seqs=knobs.max_num_seqs, max_num_batched_tokens=knobs.max_num_batched_tokens)
    deployment = replace(engine.deployment, engine=changed)
    return replace(engine, deployment=deployment, memory=memory_budget(deployment, logged_kv_tokens))


def replica_of(engine: Engine, demand: Demand) -> Replica:
    """Return what the simulator needs of an engine."""
    config = engine.deployment.engine
    return Replica(
        coefficients=engine.coefficients,
        num_blocks=engine.memory.one_group_blocks(demand.longest_tokens),
        block_size=engine.memory.block_size,
        max_model_len=engine.memory.max_model_len,
        async_scheduling=config.async_scheduling,
        scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
        request_s=engine.record.host.request_s.value,
    )


def default_knobs(scenario: Scenario, deployment: Deployment) -> Knobs:
    """Return the engine's own settings on this GPU, with those that the user holds fixed."""
    config, choice = deployment.engine, scenario.engine
    budget = choice.max_num_batched_tokens or config.max_num_batched_tokens
    sequences = choice.max_num_seqs or min(config.max_num_seqs, budget)
    return Knobs(sequences, max(budget, sequences))


def knob_options(scenario: Scenario, default: Knobs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sequence caps and the token budgets to try; one each where the user holds it fixed."""
    choice = scenario.engine
    sequences = (choice.max_num_seqs,) if choice.max_num_seqs else tuple(sorted({*SEQUENCES, default.max_num_seqs}))
    budgets = (
        (choice.max_num_batched_tokens,)
        if choice.max_num_batched_tokens
        else tuple(sorted({*BUDGETS, default.max_num_batched_tokens}))
    )
    return sequences, budgets


def measure(question: Question, engine: Engine, knobs: Knobs) -> Capacity | None:
    """Return the capacity with some settings; None when the engine would not start with them."""
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    if not fitted.memory.fits:
        return None
    return capacity_of(question.demand, replica_of(fitted, question.demand), knobs, question.scenario.targets)


def improve(question: Question, engine: Engine, start_at: Knobs) -> Knobs:
    """Return settings near the best: from the engine's own budget to its neighbours as long as the capacity grows."""
    _, budgets = knob_options(question.scenario, start_at)
    best, best_rps = start_at, _rate(measure(question, engine, start_at))
    position = budgets.index(start_at.max_num_batched_tokens)
    for step in (-1, 1):
        at = position + step
        while 0 <= at < len(budgets):
            knobs = Knobs(min(start_at.max_num_seqs, budgets[at]), budgets[at])
            rate = _rate(measure(question, engine, knobs))
            if rate <= best_rps * (1.0 + _SAME_CAPACITY):
                break
            best, best_rps, at = knobs, rate, at + step
    return best


def knob_map(question: Question, engine: Engine) -> tuple[KnobCell, ...]:
    """Return the capacity of every pair of settings, by token budget and then by sequence cap."""
    sequences, budgets = knob_options(question.scenario, default_knobs(question.scenario, engine.deployment))
    rows = in_parallel(lambda budget: _row(question, engine, budget, [cap for cap in sequences if cap <= budget]), budgets)
    return tuple(cell for row in rows for cell in row)


def _row(question: Question, engine: Engine, budget: int, caps: Sequence[int]) -> list[KnobCell]:
    """Return the cells of one token budget.

    A cap that is never reached changes no decision: where a larger cap's run stayed below a smaller one, both have its capacity.
    """
    cells: list[KnobCell] = []
    above: Capacity | None = None
    for cap in sorted(caps, reverse=True):
        knobs = Knobs(cap, budget)
        if above is None or above.running_peak is None or above.running_peak >= cap:
            above = measure(question, engine, knobs)
        cells.append(
            KnobCell(knobs, above.rate_rps, above.binds, above.running_peak) if above else KnobCell(knobs, None, "memory", None)
        )
    return cells[::-1]


def best_cell(cells: Sequence[KnobCell], default: Knobs) -> KnobCell | None:
    """Return the cell to recommend: of those within 1 % of the largest capacity, the one nearest to the engine's own budget.

    Of the sequence caps that do as well, the smallest that the batch doesn't reach at capacity: it costs nothing there, and bounds
    the batch, and with it TPOT, when traffic surges. Where every cap is reached, the smallest.
    """
    possible = [cell for cell in cells if cell.capacity_rps is not None]
    if not possible:
        return None
    largest = max(cell.capacity_rps or 0.0 for cell in possible)
    near = [cell for cell in possible if (cell.capacity_rps or 0.0) >= largest * (1.0 - _SAME_CAPACITY)]

    def distance(cell: KnobCell) -> tuple[float, bool, int]:
        doublings = abs(math.log2(cell.knobs.max_num_batched_tokens / default.max_num_batched_tokens))
        reached = cell.running_peak is not None and cell.running_peak >= cell.knobs.max_num_seqs
        return (doublings, reached, cell.knobs.max_num_seqs)

    return min(near, key=distance)


def answer(question: Question, layout: Layout, engine: Engine, knobs: Knobs, *, final: bool = False) -> Candidate:
    """Return the candidate with these settings: capacity, latencies at the planned rate, replicas and cost.

    final : take the latencies from the larger sample, for the plan's own figures
    """
    scenario = question.scenario
    fitted = with_knobs(engine, knobs, scenario.engine.logged_kv_tokens)
    replica = replica_of(fitted, question.demand)
    capacity = capacity_of(question.demand, replica, knobs, scenario.targets)
    known: dict[str, Any] = {
        "deployment": fitted.deployment,
        "record": fitted.record,
        "memory": fitted.memory,
        "coefficients": fitted.coefficients,
        "knobs": knobs,
        "binds": capacity.binds,
    }
    if capacity.latency.refused_share > _MOST_REFUSED:
        return rejected(question, layout, _too_long(question, fitted, capacity.latency.refused_share), **known)
    if capacity.rate_rps is None:
        return rejected(question, layout, _misses(capacity, scenario), latency=capacity.latency, **known)
    replicas = replicas_for(question.load.peak_rps, capacity.rate_rps, scenario.fleet.headroom, scenario.fleet.spare_replicas)
    demand = replace(question.demand, count=ANSWER_REQUESTS) if final else question.demand
    latency = latency_at(demand, replica, knobs, replicas.rate_per_replica_rps)
    known |= {"capacity_rps": capacity.rate_rps, "replicas": replicas, "latency": latency}
    if not layout.tariffs:
        return _possible(question, layout, known)
    found = cheapest_placement(layout, replicas.total)
    if found is None:
        largest = max(tariff.gpus_per_instance for tariff in layout.tariffs)
        detail = f"no machine at a known price holds {layout.tensor_parallel} GPUs of this kind; the largest holds {largest:g}"
        return rejected(question, layout, Rejection("no machine to rent", detail, "Choose a smaller TP size", None), **known)
    tariff, placement = found
    known |= {"cost": fleet_cost(tariff, placement, question.volume, token_cost_ratio(question, fitted, latency.running_mean))}
    return _possible(question, layout, known | {"tariff": tariff})


def token_cost_ratio(question: Question, engine: Engine, running: float) -> float:
    """Return the GPU time of an output token ÷ that of a prompt token at the planned batch [1]."""
    prompt_s, output_s = token_costs_s(
        engine.coefficients, max(running, 1.0), question.context_mean_tokens, question.prompt_mean_tokens
    )
    return output_s / prompt_s


def screen(question: Question, engine: Engine) -> Screen | None:
    """Return what the mean-field model says of the engine's own settings; None when the engine would not start with them."""
    knobs = default_knobs(question.scenario, engine.deployment)
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    if not fitted.memory.fits:
        return None
    return screen_of(question.demand, replica_of(fitted, question.demand), knobs, question.scenario.targets)


def screened_out(question: Question, layout: Layout, engine: Engine, found: Screen | None) -> Candidate:
    """Return the candidate that the mean-field model rules out, with the figures."""
    known: dict[str, Any] = {"deployment": engine.deployment, "record": engine.record, "memory": engine.memory}
    if found is None:
        knobs = default_knobs(question.scenario, engine.deployment)
        fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
        return rejected(question, layout, _does_not_fit(fitted.memory), **(known | {"memory": fitted.memory}))
    if found.idle is None:
        detail = "the KV cache can't hold one request of the workload"
        return rejected(question, layout, Rejection("KV cache is too small", detail, "Use a larger TP size", None), **known)
    capacity = Capacity(None, found.idle.binds, found.idle)
    return rejected(question, layout, _misses(capacity, question.scenario), latency=found.idle, **known)


def _possible(question: Question, layout: Layout, known: dict[str, Any]) -> Candidate:
    deployment: Deployment = known["deployment"]
    return Candidate(
        gpu_id=layout.gpu.id,
        gpu_name=layout.gpu.name,
        tensor_parallel=layout.tensor_parallel,
        quantization_id=question.quantization.id,
        kv_dtype=deployment.kv_dtype,
        rejection=None,
        **known,
    )


def _does_not_fit(memory: MemoryBudget) -> Rejection:
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


def _too_long(question: Question, engine: Engine, refused_share: float) -> Rejection:
    length = engine.memory.max_model_len
    longest = question.demand.longest_tokens
    detail = f"the engine would refuse {refused_share:.0%} of the requests: they exceed its context of {length or 0:,} tokens"
    remedy = f"Serve with max_model_len {longest:,} or more, on a GPU whose KV cache holds one such request"
    return Rejection("requests are too long", detail, remedy, longest / length if length else None)


def _misses(capacity: Capacity, scenario: Scenario) -> Rejection:
    latency, targets = capacity.latency, scenario.targets
    misses: list[tuple[float, Reason, str, str]] = []
    if targets.ttft_p99_s:
        figures = f"p99 TTFT is {duration(latency.ttft_p99_s)} with almost no load; the target is {duration(targets.ttft_p99_s)}"
        remedy = f"Allow {duration(latency.ttft_p99_s)}, a larger TP size or a GPU with more FLOP/s"
        misses.append((latency.ttft_p99_s / targets.ttft_p99_s, "TTFT target cannot be met", figures, remedy))
    if targets.tpot_p99_s:
        figures = f"p99 TPOT is {duration(latency.tpot_p99_s)} with almost no load; the target is {duration(targets.tpot_p99_s)}"
        remedy = f"Allow {duration(latency.tpot_p99_s)}, a larger TP size, fewer bits a weight or a GPU with more bandwidth"
        misses.append((latency.tpot_p99_s / targets.tpot_p99_s, "TPOT target cannot be met", figures, remedy))
    miss, reason, figures, remedy = max(misses)
    return Rejection(reason, figures, remedy, miss)


def _rate(capacity: Capacity | None) -> float:
    return capacity.rate_rps or 0.0 if capacity is not None else 0.0
