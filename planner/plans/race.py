"""Finds the cheapest way to serve a scenario without simulating all of them.

The cheapest fleet known so far leaves every other layout a rate that each of its replicas would have to carry to cost less. One or
two simulations at that rate decide whether it does; only a layout that does is searched. So the choice is the one that searching
all of them would give, for a tenth of the simulations; the figures of the others are filled in afterwards (`planner.plans.field`).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from planner.calibration.records import CalibrationRecord
from planner.fleet import replicas_for
from planner.parallel import in_parallel
from planner.plans.candidates import Layout
from planner.plans.capacity import ANSWER_REQUESTS, Replica
from planner.plans.confirm import Measured, measured
from planner.plans.knobs import Trial, first_knobs, knob_options, probe_with, settled, tried_at
from planner.plans.progress import Tell, silent
from planner.plans.ranking import Dearness, dearness, dearness_of, needed_rps, rank
from planner.plans.results import Candidate, Knobs
from planner.plans.screen import traffic_of
from planner.plans.search import Hint, answer, has_no_machine
from planner.plans.starting import Engine, Question, coarse, default_knobs, final, plain_blocks, replica_of, start, with_knobs
from planner.queueing import Floor, FluidLimit, ReplicaLimits, Traffic, fluid_limit, lone_floor
from planner.step_model import StepCoefficients

_BOUND_MARGIN = 0.7
_LIKELY_SHARE = 0.68
_FLOOR_MARGIN = 0.9
_USELESS_SHARE = 1 / 32
_FIRST_WAVE = 2
_WAVE = 8
_LEFT_AFTER_TURN = 0.8
_NEAR_MISS = 0.2
_ROOMY_SEQUENCES = 128.0  # a cache for more grows by less than the bound's margin when settings are made smaller


@dataclass(frozen=True, slots=True)
class Entrant:
    """A layout whose engine starts.

    place : position among the layouts
    most_rps, likely_rps : about the most that a replica carries, and a guess of what it does [request/s]
    slow : even a lone request misses a target, or nearly so; left to the mean-field model
    """

    place: int
    layout: Layout
    engine: Engine
    most_rps: float
    likely_rps: float
    slow: bool


@dataclass(slots=True)
class Race:
    """What is known so far.

    rejected : layouts that don't start, by place
    sketches : candidates from a smaller sample and first settings, by place
    trials : rates that a layout would have had to carry and didn't, by place
    measured : candidates in the plan's own figures, by place
    """

    question: Question
    ways: Sequence[Layout]
    entrants: dict[int, Entrant]
    rejected: dict[int, Candidate]
    sketches: dict[int, Candidate] = field(default_factory=dict)
    trials: dict[int, Trial] = field(default_factory=dict)
    measured: dict[int, Measured] = field(default_factory=dict)

    def known(self) -> dict[int, Candidate]:
        """Return the best knowledge of each layout that has any, by place."""
        return self.rejected | self.sketches | {place: each.candidate for place, each in self.measured.items()}


def entered(question: Question, ways: Sequence[Layout], records: Mapping[str, CalibrationRecord]) -> Race:
    """Return the race before its start: every layout with its engine and bounds, or the reason why it doesn't start."""
    entrants: dict[int, Entrant] = {}
    rejected: dict[int, Candidate] = {}
    for place, layout in enumerate(ways):
        engine = start(question, layout, records[layout.gpu.id])
        if isinstance(engine, Candidate):
            rejected[place] = engine
        else:
            entrants[place] = _entrant(question, place, layout, engine)
    return Race(question, ways, entrants, rejected)


def _entrant(question: Question, place: int, layout: Layout, engine: Engine) -> Entrant:
    targets, traffic = question.scenario.targets, traffic_of(question.demand)
    knobs = default_knobs(question.scenario, engine.deployment)
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    if not fitted.memory.fits or has_no_machine(layout):
        return Entrant(place, layout, engine, 0.0, 0.0, slow=True)
    replica = replica_of(_roomiest(question, fitted), question.demand)
    flow, floor = _bounds(traffic, _limits(replica, knobs), replica.coefficients, targets.tpot_p99_s)
    ttft_s = floor.ttft_s + replica.request_s
    slow = (
        flow.within_rps <= flow.rate_rps * _USELESS_SHARE
        or (targets.ttft_p99_s is not None and ttft_s * _FLOOR_MARGIN > targets.ttft_p99_s)
        or (targets.tpot_p99_s is not None and floor.tpot_s * _FLOOR_MARGIN > targets.tpot_p99_s)
    )
    share = 1.0 if targets.offline else _LIKELY_SHARE
    return Entrant(place, layout, engine, flow.rate_rps / _BOUND_MARGIN, flow.within_rps * share, slow=slow)


@lru_cache(maxsize=4096)
def _bounds(traffic: Traffic, limits: ReplicaLimits, c: StepCoefficients, tpot_s: float | None) -> tuple[FluidLimit, Floor]:
    return fluid_limit(traffic, limits, c, tpot_s), lone_floor(traffic, c)


def _roomiest(question: Question, fitted: Engine) -> Engine:
    """Return the engine with the settings that leave most memory to its KV cache, where that bounds what a replica carries."""
    held = plain_blocks(fitted.memory, question.demand) * fitted.memory.block_size / question.context_mean_tokens
    if held > _ROOMY_SEQUENCES:
        return fitted
    sequences, budgets = knob_options(question.scenario, default_knobs(question.scenario, fitted.deployment))
    smallest = Knobs(min(*sequences, *budgets), min(budgets))
    return with_knobs(fitted, smallest, question.scenario.engine.logged_kv_tokens)


def _limits(replica: Replica, knobs: Knobs) -> ReplicaLimits:
    return ReplicaLimits(
        max_num_seqs=knobs.max_num_seqs,
        max_num_batched_tokens=knobs.max_num_batched_tokens,
        kv_tokens=float(replica.num_blocks * replica.block_size),
        block_size=replica.block_size,
        async_scheduling=replica.async_scheduling,
    )


def run(race: Race, tell: Tell = silent) -> int | None:
    """Run until one layout is measured that no other can undercut; return its place, or None when nothing serves the scenario.

    The candidate that ranks first so far sets the limit. All others are tried at the rate that the limit leaves them, cheapest
    bound first; one that carries it becomes a candidate. When none is left to try, the first one is measured: its settings from the
    whole grid, its figures from the largest sample. If these make it dearer, the limit rises and others get another try. Those that
    only just failed on a smaller sample, by whose luck it may be, are tried on the largest.
    """
    for turn in itertools.count(1):
        best = _first(race)
        if best is None:
            tell("Looking for a layout that meets the targets", 1.0 - _LEFT_AFTER_TURN**turn)
            if not _explore(race):
                return None
            continue
        tell(f"Comparing {race.ways[best].gpu.name} with the others", 1.0 - _LEFT_AFTER_TURN**turn)
        if _challenged(race, best):
            continue
        if best in race.measured:
            if _looked_at_again(race, best):
                continue
            return best
        tell(f"Searching the settings of {race.ways[best].gpu.name}", 1.0 - _LEFT_AFTER_TURN**turn)
        entrant = race.entrants[best]
        race.measured[best] = measured(race.question, entrant.layout, entrant.engine, race.sketches[best])
    return None


def unmeasured(race: Race) -> Candidate | None:
    """Return the candidate that ranks first on the smaller sample; None when nothing serves the scenario."""
    while True:
        best = _first(race)
        if best is None:
            if not _explore(race):
                return None
        elif not _challenged(race, best):
            return race.known()[best]


def _first(race: Race) -> int | None:
    feasible = {place: each for place, each in race.known().items() if each.feasible}
    return min(feasible, key=lambda place: rank(feasible[place]), default=None)


def _explore(race: Race) -> bool:
    """Search the layouts that are likely to be cheapest; False when all have been."""
    left = [e for e in race.entrants.values() if not e.slow and e.place not in race.sketches and e.place not in race.measured]
    if not left:
        return False
    wave = sorted(left, key=lambda e: (_likely(race.question, e), e.place))[:_FIRST_WAVE]
    for entrant, sketch in zip(wave, in_parallel(lambda e: sketched(race.question, e), wave), strict=True):
        race.sketches[entrant.place] = sketch
    return True


def _likely(question: Question, entrant: Entrant) -> Dearness:
    fleet = question.scenario.fleet
    replicas = replicas_for(question.load.peak_rps, entrant.likely_rps, fleet.headroom, fleet.spare_replicas)
    return dearness(entrant.layout, replicas.total)


def sketched(question: Question, entrant: Entrant) -> Candidate:
    """Return the candidate of a layout with settings near the best, on the smaller sample."""
    small = coarse(question)
    knobs, capacity = settled(small, entrant.engine, first_knobs(question, entrant.engine), entrant.likely_rps)
    return answer(small, entrant.layout, entrant.engine, knobs, Hint(found=capacity))


def _challenged(race: Race, best: int) -> bool:
    """Try the layouts that could undercut the best; whether one of them carries what it would have to, and is a candidate now."""
    limit = dearness_of(race.known()[best])
    rivals = [
        (needed, entrant)
        for entrant in race.entrants.values()
        if entrant.place != best and (needed := _open_at(race, entrant, limit)) is not None
    ]
    rivals.sort(key=lambda rival: (rival[0] / rival[1].likely_rps, rival[1].place))
    for at in range(0, len(rivals), _WAVE):
        wave = rivals[at : at + _WAVE]
        trials = in_parallel(lambda rival: tried_at(race.question, rival[1].engine, rival[0]), wave)
        held = [(entrant, trial) for (_, entrant), trial in zip(wave, trials, strict=True) if trial.held]
        race.trials |= {entrant.place: trial for (_, entrant), trial in zip(wave, trials, strict=True) if not trial.held}
        for (entrant, _), sketch in zip(held, in_parallel(lambda each: _sketch_of(race.question, *each), held), strict=True):
            race.trials.pop(entrant.place, None)
            race.sketches[entrant.place] = sketch
        if held:
            return True
    return False


def _sketch_of(question: Question, entrant: Entrant, trial: Trial) -> Candidate:
    return answer(question, entrant.layout, entrant.engine, trial.knobs, Hint(trial.rate_rps))


def _looked_at_again(race: Race, best: int) -> bool:
    """Try on the largest sample the layouts that a smaller one only just ruled out; whether one is a candidate after all."""
    limit = dearness_of(race.known()[best])
    close = [
        (race.entrants[place], trial, needed)
        for place, trial in race.trials.items()
        if place != best and place not in race.measured and trial.miss <= _NEAR_MISS and trial.demand.count < ANSWER_REQUESTS
        if (needed := _needed_rps(race, race.entrants[place], limit)) is not None
    ]
    large = final(race.question)
    found = in_parallel(lambda each: probe_with(large, each[0].engine, each[1].knobs, each[2]), close)
    held = False
    for (entrant, trial, needed), seen in zip(close, found, strict=True):
        if seen is not None and seen.held:
            del race.trials[entrant.place]
            race.sketches[entrant.place] = answer(large, entrant.layout, entrant.engine, trial.knobs, Hint(held_rps=needed))
            held = True
        else:
            race.trials[entrant.place] = Trial(large.demand, needed, trial.knobs, 1.0 if seen is None else seen.miss)
    return held


def _open_at(race: Race, entrant: Entrant, limit: Dearness) -> float | None:
    """Return the rate at which a layout must still be tried [request/s]; None when it can't undercut the limit, or is known to."""
    if entrant.slow or entrant.place in race.measured:
        return None
    trial, sketch = race.trials.get(entrant.place), race.sketches.get(entrant.place)
    if sketch is not None and (not sketch.feasible or dearness_of(sketch) < limit):
        return None
    needed = _needed_rps(race, entrant, limit)
    if needed is None or needed > entrant.most_rps:
        return None
    rate_rps = max(needed, entrant.likely_rps * _USELESS_SHARE)
    beaten = trial is not None and rate_rps >= trial.rate_rps
    return None if beaten else rate_rps


def _needed_rps(race: Race, entrant: Entrant, limit: Dearness) -> float | None:
    """Return the rate at which a replica must be tried [request/s]; of a layout known to be as dear as the limit, to cost less."""
    sketch = race.sketches.get(entrant.place)
    return needed_rps(race.question, entrant.layout, limit, less=sketch is not None and dearness_of(sketch) == limit)
