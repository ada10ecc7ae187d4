"""What prefix caching would save, for a workload whose requests say which blocks of their prompts they share.

A plan doesn't count it: reuse lasts only while requests go to the replica that holds their prefix, and while its KV cache isn't
needed for others. It is simulated beside the plan instead.
"""

from dataclasses import replace

from planner.fleet import replicas_for
from planner.plans.candidates import Layout, cheapest_placement
from planner.plans.knobs import measure
from planner.plans.results import Candidate, Change
from planner.plans.search import percent
from planner.plans.starting import Engine, Question
from planner.pricing import fleet_usd_per_day
from planner.units import percentage
from planner.workloads import PrefixHitCurve


def capacity_with_reuse(question: Question, engine: Engine, chosen: Candidate) -> float | None:
    """Return what the chosen replica would carry with its prefix cache [request/s]; None where no request says what it shares.

    Each request skips what an LRU cache as large as the replica's KV cache would hold of its prompt, were the requests served in
    their recorded order. Compared with the same requests without the cache, whose ratio applies to the plan's own capacity. One
    replica sees the whole stream: among several, each holds the prefixes of fewer conversations, and so more of them.
    """
    knobs, capacity_rps, memory = chosen.knobs, chosen.capacity_rps, chosen.memory
    if knobs is None or capacity_rps is None or memory is None or memory.kv_tokens is None:
        return None
    shared = replace(question, demand=replace(question.demand, cache_tokens=memory.kv_tokens))
    if shared.demand.requests().cached_prompt_tokens is None:
        return None
    without = measure(question, engine, knobs, capacity_rps)
    counted = measure(shared, engine, knobs, capacity_rps)
    if without is None or counted is None or not without.rate_rps or not counted.rate_rps:
        return None
    return capacity_rps * counted.rate_rps / without.rate_rps


def reuse_change(question: Question, layout: Layout, chosen: Candidate, reused_rps: float) -> Change:
    """Return in words what counting the reuse would change on the chosen GPUs; it is no input of a plan, so nothing can be set.

    reused_rps : what a replica carries then [request/s]
    """
    fleet = question.scenario.fleet
    replicas = replicas_for(question.load.peak_rps, reused_rps, fleet.headroom, fleet.spare_replicas).total
    found, extra = cheapest_placement(layout, replicas), None
    if found is not None and chosen.cost is not None:
        extra = fleet_usd_per_day(*found) - chosen.cost.usd_per_day
    gain = reused_rps / chosen.capacity_rps - 1.0 if chosen.capacity_rps else 0.0
    money = f", ${abs(extra):,.0f}/day {'less' if extra < 0.0 else 'more'}" if extra else ""
    gpus = replicas * chosen.tensor_parallel
    detail = (
        f"a replica carries {percentage(gain, signed=True)} with what its KV cache still holds of earlier prompts: "
        f"{gpus:,} × {chosen.gpu_name}{money}, as long as requests go to the replica that holds their prefix"
    )
    return Change("Prefix caching", detail, None, extra)


def reuse_warning(curve: PrefixHitCurve, chosen: Candidate | None) -> str:
    """Return how much of the prompts a plan computes though a cache could hold them."""
    most = percent(curve.unbounded_hit_rate)
    text = f"Prefix caching is not counted: {most} of this workload's prompt tokens repeat earlier ones"
    cache_tokens = chosen.memory.kv_tokens if chosen is not None and chosen.memory is not None else None
    if cache_tokens is None:
        return f"{text}, so that prefill may cost less than planned."
    held = percent(curve.at(cache_tokens))
    return f"{text}, though a KV cache of {cache_tokens:,} tokens, as one replica has, still holds only {held} when they come."
