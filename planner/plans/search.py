"""Evaluates each way to serve a scenario: settings, capacity, replicas and cost, or the reason why not."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from planner.deployment import Deployment
from planner.fleet import replicas_for
from planner.plans.candidates import Layout, cheapest_placement
from planner.plans.capacity import ANSWER_REQUESTS, Demand, Replica, latency_at
from planner.plans.rates import Capacity, capacity_from, capacity_near, capacity_under
from planner.plans.results import Candidate, Knobs, Reason, Rejection
from planner.plans.screen import Screen, screen_of
from planner.plans.starting import (
    Engine,
    Question,
    default_knobs,
    does_not_fit,
    rejected,
    replica_of,
    with_knobs,
)
from planner.pricing import fleet_cost
from planner.scenario import Scenario, Targets
from planner.token_costs import token_costs_s
from planner.units import duration, per_second, percentage

_MOST_REFUSED = 0.001
_MOST_BEYOND_MODEL = 0.01  # a 99th percentile is silent on what the worst hundredth gets
_LARGEST_UNPRICED_TP = 8
_WHOLE_PERCENTS = 0.1


class Hint(NamedTuple):
    """What is known of a capacity before it is searched.

    guess_rps : a rate near it [request/s]; 0 when there is none
    missed_rps : a rate at which the targets are known to be missed on the same sample [request/s]; None when there is none
    held_rps : a rate at which they are known to hold on it [request/s]; None when there is none
    found : the capacity itself, where it has been searched on the same sample already
    """

    guess_rps: float = 0.0
    missed_rps: float | None = None
    held_rps: float | None = None
    found: Capacity | None = None


NO_HINT = Hint()


def answer(question: Question, layout: Layout, engine: Engine, knobs: Knobs, hint: Hint = NO_HINT) -> Candidate:
    """Return the candidate with these settings: capacity, latencies at the planned rate, replicas and cost."""
    question.check()
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
    too_long = _too_long(question, fitted, refused_share(demand, replica))
    if too_long is not None:
        return rejected(question, layout, too_long, **known)
    capacity = _capacity_of(demand, replica, knobs, scenario.targets, hint)
    known["binds"] = capacity.binds
    if capacity.rate_rps is None:
        return rejected(question, layout, _misses(capacity, scenario), latency=capacity.latency, **known)
    replicas = replicas_for(question.load.peak_rps, capacity.rate_rps, scenario.fleet.headroom, scenario.fleet.spare_replicas)
    latency = latency_at(demand, replica, knobs, replicas.rate_per_replica_rps)
    known |= {"capacity_rps": capacity.rate_rps, "replicas": replicas, "latency": latency}
    found = cheapest_placement(layout, replicas.total)
    if found is None and has_no_machine(layout):
        return rejected(question, layout, _no_machine(layout), **known)
    if found is None:
        return _possible(question, layout, known)
    tariff, placement = found
    known |= {"cost": fleet_cost(tariff, placement, question.volume, token_cost_ratio(question, fitted, latency.running_mean))}
    return _possible(question, layout, known | {"tariff": tariff})


def capacity_with(question: Question, engine: Engine, knobs: Knobs, hint: Hint = NO_HINT) -> Capacity:
    """Return the capacity that `answer` finds with these settings, with which the engine starts."""
    question.check()
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    return _capacity_of(question.demand, replica_of(fitted, question.demand), knobs, question.scenario.targets, hint)


def _capacity_of(demand: Demand, replica: Replica, knobs: Knobs, targets: Targets, hint: Hint) -> Capacity:
    if hint.found is not None:
        return hint.found
    if hint.missed_rps is not None:
        return capacity_under(demand, replica, knobs, targets, hint.missed_rps)
    if hint.held_rps is not None:
        return capacity_from(demand, replica, knobs, targets, hint.held_rps)
    search = capacity_near if demand.count >= ANSWER_REQUESTS else capacity_from
    return search(demand, replica, knobs, targets, hint.guess_rps)


def has_no_machine(layout: Layout) -> bool:
    """Whether no machine that is known holds one replica of the layout."""
    if not layout.tariffs:
        return layout.tensor_parallel > _LARGEST_UNPRICED_TP
    return all(tariff.gpus_per_instance < layout.tensor_parallel for tariff in layout.tariffs)


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


def percent(share: float) -> str:
    r"""Return a share for a sentence: whole percents, two figures below ten.

    >>> percent(0.4), percent(0.0025)
    ('40\xa0%', '0.25\xa0%')
    """
    return percentage(share) if share >= _WHOLE_PERCENTS else f"{share * 100:.2g}\N{NO-BREAK SPACE}%"


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
        link=layout.link,
        several_links=layout.several_links,
        **known,
    )


def _too_long(question: Question, engine: Engine, refused: float) -> Rejection | None:
    """Return that too many requests are too long, or None: what the model can't read bars no layout, as no layout would help.

    refused : share of the requests that the engine refuses [1]
    """
    longest, most = question.demand.longest_tokens, question.model.max_positions
    beyond = beyond_model_share(question)
    if most is not None and beyond > _MOST_BEYOND_MODEL:
        detail = f"{percent(beyond)} of the prompts are longer than {question.model.name} reads ({most:,} tokens)"
        remedy = f"Choose a model that reads {longest:,} tokens, or cut the prompts"
        return Rejection("requests are too long", detail, remedy, longest / most)
    if refused - beyond <= _MOST_REFUSED:
        return None
    length = engine.memory.max_model_len
    detail = f"the engine would refuse {percent(refused)} of the requests: they exceed its context of {length or 0:,} tokens"
    needed = longest if most is None else min(longest, most)
    remedy = f"Serve with max_model_len {needed:,} or more, on a GPU whose KV cache holds one such request"
    return Rejection("requests are too long", detail, remedy, needed / length if length else None)


def beyond_model_share(question: Question) -> float:
    """Share of the larger sample whose prompts no engine serves with the model, as they fill all of its context [1]."""
    most = question.model.max_positions
    if most is None:
        return 0.0
    prompts = replace(question.demand, count=ANSWER_REQUESTS).requests().prompt_tokens
    return float((prompts >= most).mean())


def _misses(capacity: Capacity, scenario: Scenario) -> Rejection:
    latency, targets = capacity.latency, scenario.targets
    rate = per_second(float(f"{latency.rate_rps:.2g}"))
    misses: list[tuple[float, Reason, str, str]] = []
    if targets.ttft_p99_s and latency.ttft_p99_s is not None:
        figures = f"p99 TTFT is {duration(latency.ttft_p99_s)} even at {rate}; the target is {duration(targets.ttft_p99_s)}"
        remedy = f"Allow {duration(latency.ttft_p99_s)}, a larger TP size or a GPU with more FLOP/s"
        misses.append((latency.ttft_p99_s / targets.ttft_p99_s, "TTFT target cannot be met", figures, remedy))
    if targets.tpot_p99_s and latency.tpot_p99_s is not None:
        figures = f"p99 TPOT is {duration(latency.tpot_p99_s)} even at {rate}; the target is {duration(targets.tpot_p99_s)}"
        remedy = f"Allow {duration(latency.tpot_p99_s)}, a larger TP size, fewer bits a weight or a GPU with more bandwidth"
        misses.append((latency.tpot_p99_s / targets.tpot_p99_s, "TPOT target cannot be met", figures, remedy))
    if not misses:
        return Rejection("KV cache is too small", "the engine can't complete a request", "Use a larger TP size", None)
    miss, reason, figures, remedy = max(misses)
    return Rejection(reason, figures, remedy, miss)
