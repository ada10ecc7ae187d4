"""Evaluates each way to serve a scenario: settings, capacity, replicas and cost, or the reason why not."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.deployment import Deployment
from planner.fleet import replicas_for
from planner.plans.candidates import Layout, cheapest_placement
from planner.plans.capacity import ANSWER_REQUESTS, Capacity, Demand, Replica, capacity_from, latency_at
from planner.plans.results import Candidate, KnobCell, Knobs, Reason, Rejection
from planner.plans.screen import Screen, screen_of
from planner.plans.starting import (
    BUDGETS,
    Engine,
    Question,
    default_knobs,
    does_not_fit,
    in_parallel,
    rejected,
    replica_of,
    with_knobs,
)
from planner.pricing import fleet_cost
from planner.scenario import Scenario
from planner.step_model import StepShape, step_s
from planner.token_costs import token_costs_s
from planner.units import duration

SEQUENCES = (32, 64, 128, 256, 512, 1024)
_SAME_CAPACITY = 0.01
_MOST_REFUSED = 0.001
_FIRST_DECODERS = 16
_FIRST_STEP_SHARE = 2.0
_LARGEST_UNPRICED_TP = 8


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


def measure(question: Question, engine: Engine, knobs: Knobs, guess_rps: float = 0.0) -> Capacity | None:
    """Return the capacity with some settings; None when the engine would not start with them.

    guess_rps : a rate near it, such as that of neighbouring settings [request/s]; 0 when there is none
    """
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    if not fitted.memory.fits:
        return None
    return capacity_from(question.demand, replica_of(fitted, question.demand), knobs, question.scenario.targets, guess_rps)


def first_knobs(question: Question, engine: Engine) -> Knobs:
    """Return settings to compare candidates with: the engine's own, with the token budget cut to what the TPOT target bears.

    The largest budget whose full step, beside a few decoding sequences, takes at most twice the TPOT target: every decoding
    sequence waits out such a step, yet not every step is one. A start for the search, not a choice.
    """
    start_at = default_knobs(question.scenario, engine.deployment)
    target_s = question.scenario.targets.tpot_p99_s
    if target_s is None or question.scenario.engine.max_num_batched_tokens is not None:
        return start_at
    fitting = [budget for budget in BUDGETS if _full_step_s(question, engine, budget) <= _FIRST_STEP_SHARE * target_s]
    budget = min(start_at.max_num_batched_tokens, max(fitting, default=BUDGETS[0]))
    cap = question.scenario.engine.max_num_seqs or min(start_at.max_num_seqs, budget)
    return Knobs(cap, max(budget, cap))


def _full_step_s(question: Question, engine: Engine, budget: int) -> float:
    context = question.context_mean_tokens
    shape = StepShape(
        scheduled_tokens=float(budget),
        sampled_tokens=float(_FIRST_DECODERS),
        sequences=_FIRST_DECODERS + 1.0,
        decode_sequences=float(_FIRST_DECODERS),
        decode_context_tokens=_FIRST_DECODERS * context,
        decode_window_tokens=_FIRST_DECODERS * min(context, engine.coefficients.window_tokens or context),
        prefill_pairs=budget * question.prompt_mean_tokens / 2.0,
    )
    return float(step_s(shape, engine.coefficients))


def improve(question: Question, engine: Engine, start_at: Knobs) -> Knobs:
    """Return settings near the best: first the token budget, then the sequence cap, each moved as long as the capacity grows."""
    sequences, budgets = knob_options(question.scenario, start_at)
    cap = start_at.max_num_seqs
    with_budgets = [Knobs(min(cap, budget), budget) for budget in budgets]
    best = _climb(question, engine, with_budgets, start_at)
    with_caps = [Knobs(cap, best.max_num_batched_tokens) for cap in sequences if cap <= best.max_num_batched_tokens]
    return _climb(question, engine, with_caps, best) if best in with_caps else best


def _climb(question: Question, engine: Engine, options: Sequence[Knobs], start_at: Knobs) -> Knobs:
    best, best_rps = start_at, _rate(measure(question, engine, start_at))
    position = options.index(start_at) if start_at in options else 0
    for step in (-1, 1):
        at = position + step
        while 0 <= at < len(options):
            rate = _rate(measure(question, engine, options[at], best_rps))
            if rate <= best_rps * (1.0 + _SAME_CAPACITY):
                break
            best, best_rps, at = options[at], rate, at + step
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
            above = measure(question, engine, knobs, _rate(above))
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


def answer(question: Question, layout: Layout, engine: Engine, knobs: Knobs, guess_rps: float = 0.0) -> Candidate:
    """Return the candidate with these settings: capacity, latencies at the planned rate, replicas and cost.

    guess_rps : a rate near its capacity [request/s]; 0 when there is none
    """
    scenario, demand = question.scenario, question.demand
    fitted = with_knobs(engine, knobs, scenario.engine.logged_kv_tokens)
    replica = replica_of(fitted, demand)
    known: dict[str, Any] = {
        "deployment": fitted.deployment,
        "record": fitted.record,
        "memory": fitted.memory,
        "coefficients": fitted.coefficients,
        "knobs": knobs,
    }
    refused = refused_share(demand, replica)
    if refused > _MOST_REFUSED:
        return rejected(question, layout, _too_long(question, fitted, refused), **known)
    capacity = capacity_from(demand, replica, knobs, scenario.targets, guess_rps)
    known["binds"] = capacity.binds
    if capacity.rate_rps is None:
        return rejected(question, layout, _misses(capacity, scenario), latency=capacity.latency, **known)
    replicas = replicas_for(question.load.peak_rps, capacity.rate_rps, scenario.fleet.headroom, scenario.fleet.spare_replicas)
    latency = latency_at(demand, replica, knobs, replicas.rate_per_replica_rps)
    known |= {"capacity_rps": capacity.rate_rps, "replicas": replicas, "latency": latency}
    found = cheapest_placement(layout, replicas.total)
    if found is None and (layout.tariffs or layout.tensor_parallel > _LARGEST_UNPRICED_TP):
        return rejected(question, layout, _no_machine(layout), **known)
    if found is None:
        return _possible(question, layout, known)
    tariff, placement = found
    known |= {"cost": fleet_cost(tariff, placement, question.volume, token_cost_ratio(question, fitted, latency.running_mean))}
    return _possible(question, layout, known | {"tariff": tariff})


def refused_share(demand: Demand, replica: Replica) -> float:
    """Share of the larger sample that the engine refuses: prompts as long as its context, or larger than its pool [1]."""
    requests = replace(demand, count=max(demand.count, ANSWER_REQUESTS)).requests()
    total = requests.prompt_tokens + requests.output_tokens
    if replica.max_model_len is not None:
        total = np.minimum(total, replica.max_model_len)
    refused = -(-total // replica.block_size) > replica.num_blocks
    if replica.max_model_len is not None:
        refused |= requests.prompt_tokens >= replica.max_model_len
    return float(refused.mean())


def _no_machine(layout: Layout) -> Rejection:
    largest = max((tariff.gpus_per_instance for tariff in layout.tariffs), default=_LARGEST_UNPRICED_TP)
    detail = f"no machine that is known holds {layout.tensor_parallel} GPUs of this kind; the largest holds {largest:g}"
    return Rejection("no machine to rent", detail, "Choose a smaller TP size", None)


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
        return rejected(question, layout, does_not_fit(fitted.memory), **(known | {"memory": fitted.memory}))
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


def _too_long(question: Question, engine: Engine, refused_share: float) -> Rejection:
    length = engine.memory.max_model_len
    longest = question.demand.longest_tokens
    detail = f"the engine would refuse {refused_share:.0%} of the requests: they exceed its context of {length or 0:,} tokens"
    remedy = f"Serve with max_model_len {longest:,} or more, on a GPU whose KV cache holds one such request"
    return Rejection("requests are too long", detail, remedy, longest / length if length else None)


def _misses(capacity: Capacity, scenario: Scenario) -> Rejection:
    latency, targets = capacity.latency, scenario.targets
    rate = f"{latency.rate_rps:.2g} req/s"
    misses: list[tuple[float, Reason, str, str]] = []
    if targets.ttft_p99_s:
        figures = f"p99 TTFT is {duration(latency.ttft_p99_s)} even at {rate}; the target is {duration(targets.ttft_p99_s)}"
        remedy = f"Allow {duration(latency.ttft_p99_s)}, a larger TP size or a GPU with more FLOP/s"
        misses.append((latency.ttft_p99_s / targets.ttft_p99_s, "TTFT target cannot be met", figures, remedy))
    if targets.tpot_p99_s:
        figures = f"p99 TPOT is {duration(latency.tpot_p99_s)} even at {rate}; the target is {duration(targets.tpot_p99_s)}"
        remedy = f"Allow {duration(latency.tpot_p99_s)}, a larger TP size, fewer bits a weight or a GPU with more bandwidth"
        misses.append((latency.tpot_p99_s / targets.tpot_p99_s, "TPOT target cannot be met", figures, remedy))
    if not misses:
        return Rejection("KV cache is too small", "the engine can't complete a request", "Use a larger TP size", None)
    miss, reason, figures, remedy = max(misses)
    return Rejection(reason, figures, remedy, miss)


def _rate(capacity: Capacity | None) -> float:
    return capacity.rate_rps or 0.0 if capacity is not None else 0.0
