"""A layout's settings and figures, confirmed on the largest sample.

Settings are searched on a smaller sample. It may be an unlucky one, such as when a rare long prompt decides its p99: then the
settings that do best on it are not those that do best on the largest, and the grid is searched there.
"""

from dataclasses import dataclass

from planner.parallel import in_parallel
from planner.plans.candidates import Layout
from planner.plans.capacity import Demand
from planner.plans.knobs import BestKnobs, Seen, best_knobs, knob_options, misses_more_of_tpot, probe_with, recommended
from planner.plans.rates import Probe
from planner.plans.results import Candidate, Knobs
from planner.plans.search import Hint, answer
from planner.plans.starting import Engine, Question, default_knobs, final

_USELESS_SHARE = 1 / 32
_CLEARLY_MORE = 1.03
_CLEARLY_LESS = 0.93
_MOST_OTHER_BUDGETS = 2


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
    candidate = answer(large, layout, engine, best.knobs, Hint(best.near[best.knobs].rate_rps))
    beyond_rps = (candidate.capacity_rps or best.rate_rps * _USELESS_SHARE) * _CLEARLY_MORE
    better = _first_holding(large, engine, best, beyond_rps)
    anew = best_knobs(large, engine, better, beyond_rps) if better is not None else None
    if anew is None:
        return Measured(candidate, best, question.demand)
    return Measured(answer(large, layout, engine, anew.knobs, Hint(anew.near[anew.knobs].rate_rps)), anew, large.demand)


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


def _first_holding(large: Question, engine: Engine, best: BestKnobs, rate_rps: float) -> Knobs | None:
    """Return settings that carry, on the largest sample, a rate beyond what the best carry; None when no rival does."""
    own = probe_with(large, engine, best.knobs, rate_rps)
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
    return [knobs for knobs in dict.fromkeys(found) if knobs != best.knobs]


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
