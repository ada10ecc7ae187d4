"""A layout's settings and figures, confirmed on the largest sample.

Settings are searched on a smaller sample. It may be an unlucky one, such as when a rare long prompt decides its p99: then the
settings that do best on it are not those that do best on the largest, and the grid is searched there.
"""

import math
from dataclasses import dataclass, replace

from planner.fleet import Replicas
from planner.parallel import in_parallel, together
from planner.plans.candidates import Layout
from planner.plans.capacity import Demand
from planner.plans.knobs import (
    BestKnobs,
    Seen,
    best_knobs,
    holding,
    knob_options,
    measure,
    misses_more_of_tpot,
    probe_with,
    recommended,
)
from planner.plans.rates import Probe
from planner.plans.results import Candidate, Knobs
from planner.plans.search import Hint, answer, capacity_with
from planner.plans.starting import Engine, Question, default_knobs, final

_USELESS_SHARE = 1 / 32
_CLEARLY_MORE = 1.03
_CLEARLY_LESS = 0.93
_MOST_OTHER_BUDGETS = 2
_PRECISION = 1.012
_WITHIN_REACH = 1.08  # what others than the settings tried may carry more, such as those of another cap


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate with its figures from the largest sample, and the settings that it was chosen from; None where none served.

    demand : the sample on which the settings were searched
    """

    candidate: Candidate
    best: BestKnobs | None
    demand: Demand


def measured(question: Question, layout: Layout, engine: Engine, sketch: Candidate) -> Measured:
    """Return the candidate with the best settings of the grid, and its figures from the largest sample.

    sketch : the layout with settings near the best, on a smaller sample

    Where others carry 3 % more on the largest sample, which is more than the search's precision, the grid is searched on it.
    """
    large = final(question)
    best = best_knobs(question, engine, sketch.knobs, sketch.capacity_rps or 0.0) if sketch.knobs is not None else None
    if best is None:
        knobs = default_knobs(question.scenario, engine.deployment)
        return Measured(answer(large, layout, engine, knobs), None, question.demand)
    capacity = capacity_with(large, engine, best.knobs, Hint(best.near[best.knobs].rate_rps))
    beyond_rps = (capacity.rate_rps or best.rate_rps * _USELESS_SHARE) * _CLEARLY_MORE
    candidate, own = together(
        lambda: answer(large, layout, engine, best.knobs, Hint(found=capacity)),
        lambda: probe_with(large, engine, best.knobs, beyond_rps),
    )
    better = _first_holding(large, engine, best, own, beyond_rps)
    anew = best_knobs(large, engine, better, beyond_rps) if better is not None else None
    if anew is None:
        return _with_fewer(question, layout, engine, Measured(candidate, best, question.demand))
    candidate = answer(large, layout, engine, anew.knobs, Hint(anew.near[anew.knobs].rate_rps))
    return _with_fewer(large, layout, engine, Measured(candidate, anew, large.demand))


def _with_fewer(searched: Question, layout: Layout, engine: Engine, found: Measured) -> Measured:
    """Return the candidate with fewer replicas where some settings carry, on the largest sample, what each of these would have to.

    searched : with the sample on which the settings were searched

    A search is right to 1 %, and its settings are a smaller sample's. Asking all settings that come near at this one rate keeps
    looser targets, for which the same runs hold, from needing more replicas than tighter ones.
    """
    candidate, best, large = found.candidate, found.best, final(searched)
    replicas, capacity_rps = candidate.replicas, candidate.capacity_rps
    if best is None or replicas is None or capacity_rps is None or searched.scenario.targets.offline:
        return found
    rate_rps = _rate_of_fewer(replicas, capacity_rps)
    if rate_rps is None:
        return found
    held = holding(large, engine, best.close, rate_rps)
    if not held:
        return found
    knobs = recommended({each: seen for each, seen in held.items() if each in best.near} or held, engine.own)
    fewer = answer(large, layout, engine, knobs, Hint(held_rps=rate_rps))
    if knobs in best.near:
        return replace(found, candidate=fewer, best=replace(best, knobs=knobs))
    again = measure(searched, engine, knobs, best.rate_rps)
    if again is None or again.rate_rps is None:
        return found
    near = best.near | {knobs: Seen(again.rate_rps, 0.0, again.running_peak)}
    return replace(found, candidate=fewer, best=replace(best, knobs=knobs, near=near))


def _rate_of_fewer(replicas: Replicas, capacity_rps: float) -> float | None:
    """Return the rate that each of one replica less must carry [request/s], or of as many less as lie within a search's precision.

    None where that is out of reach.
    """
    usable = replicas.rate_rps / (1.0 - replicas.headroom)
    fewer = min(replicas.needed - 1, math.ceil(usable / (capacity_rps * _PRECISION)))
    if fewer < 1 or usable / fewer > capacity_rps * _WITHIN_REACH:
        return None
    return usable / fewer


def holds_on_largest(question: Question, engine: Engine, sketch: Candidate) -> bool:
    """Whether a candidate's replicas hold the targets with their headroom on the largest sample; offline work has none.

    Simulated only where the smaller sample's capacity leaves less room than such a capacity is off by.
    """
    replicas, knobs, capacity_rps = sketch.replicas, sketch.knobs, sketch.capacity_rps
    if replicas is None or knobs is None or capacity_rps is None or question.scenario.targets.offline:
        return True
    rate_rps = replicas.rate_rps / (replicas.needed * (1.0 - replicas.headroom))
    if rate_rps <= capacity_rps * _CLEARLY_LESS:
        return True
    seen = probe_with(final(question), engine, knobs, rate_rps)
    return seen is not None and seen.held


def _first_holding(large: Question, engine: Engine, best: BestKnobs, own: Probe | None, rate_rps: float) -> Knobs | None:
    """Return settings that carry, on the largest sample, a rate beyond what the best carry; None when no rival does.

    own : what the best ones did there at that rate
    """
    rivals = _rivals(large, engine, best, own)
    probes = in_parallel(lambda knobs: probe_with(large, engine, knobs, rate_rps), rivals)
    held = {knobs: found.miss for knobs, found in zip(rivals, probes, strict=True) if found is not None and found.held}
    return min(held, key=lambda knobs: held[knobs], default=None)


def _rivals(large: Question, engine: Engine, best: BestKnobs, own: Probe | None) -> list[Knobs]:
    """Return other settings that may do better on the largest sample than the best of the smaller.

    own : what the best ones did there at the rate that a rival must carry

    These are the top ones of the smaller sample, one of each other token budget that did as well there, and the neighbours on
    the side where the largest sample's run says that a better one lies.
    """
    budget, top = best.knobs.max_num_batched_tokens, best.top.max_num_batched_tokens
    by_budget: dict[int, dict[Knobs, Seen]] = {}
    for knobs, seen in best.near.items():
        by_budget.setdefault(knobs.max_num_batched_tokens, {})[knobs] = seen
    others = [recommended(near, engine.own) for other, near in by_budget.items() if other not in (budget, top)]
    others.sort(key=lambda knobs: (best.near[knobs].miss, knobs.max_num_batched_tokens))
    found = (best.top, *others[:_MOST_OTHER_BUDGETS], *(_neighbours(large, engine, best.knobs, own) if own is not None else ()))
    rivals = [knobs for knobs in dict.fromkeys(found) if knobs != best.knobs]
    return [knobs for knobs in rivals if own is None or not _like(knobs, best.knobs, own)]


def _like(rival: Knobs, knobs: Knobs, own: Probe) -> bool:
    """Whether a rival that differs in its cap alone does what these settings did, or worse: the batch reached neither cap, and a
    larger one leaves the KV cache less memory.
    """
    peak = own.latency.running_peak
    idle = own.latency.kv_free is True and peak is not None and peak < min(rival.max_num_seqs, knobs.max_num_seqs)
    return idle and rival.max_num_batched_tokens == knobs.max_num_batched_tokens


def _neighbours(large: Question, engine: Engine, knobs: Knobs, own: Probe) -> list[Knobs]:
    """Return the next settings on the side where a better one can lie, given what these did.

    A larger cap changes nothing unless the batch reached this one; a smaller one helps only where the batch is too large for TPOT
    or for the KV cache. A smaller budget helps TPOT, a larger one TTFT.
    """
    sequences, budgets = knob_options(large.scenario, default_knobs(large.scenario, engine.deployment))
    cap, budget = knobs.max_num_seqs, knobs.max_num_batched_tokens
    slow_tpot = misses_more_of_tpot(own.latency, large.scenario.targets)
    found: list[Knobs] = []
    if own.latency.running_peak is not None and own.latency.running_peak >= cap:
        found += [Knobs(each, budget) for each in sorted(sequences) if cap < each <= budget][:1]
    if slow_tpot or not own.latency.kv_free:
        found += [Knobs(each, budget) for each in sorted(sequences, reverse=True) if each < cap][:1]
    beside = [each for each in budgets if each < budget][-1:] if slow_tpot else [each for each in budgets if each > budget][:1]
    return found + [Knobs(min(cap, each), each) for each in beside]
