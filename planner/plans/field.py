"""The figures of the layouts that lost: what each carries and costs, or why it is no answer."""

from dataclasses import replace

from planner.fleet import replicas_for
from planner.parallel import in_parallel
from planner.plans.progress import Tell
from planner.plans.race import Entrant, Race, sketched
from planner.plans.ranking import Dearness, dearness, rank
from planner.plans.results import Candidate, Rejection
from planner.plans.search import Hint, answer, screen, screened_out
from planner.plans.starting import Question, rejected
from planner.units import HOURS_PER_DAY

_AT_ONCE = 2


def completed(race: Race, tell: Tell) -> list[Candidate]:
    """Return a candidate for each layout, in the order of the layouts.

    Each GPU's layouts are simulated, cheapest bound first, until none left can be cheaper. A layout that was tried in the race and
    didn't carry its rate is searched below that rate, on the sample on which it was tried, so that no figure here contradicts the
    choice.
    """
    by_gpu: dict[str, list[Entrant]] = {}
    for entrant in race.entrants.values():
        by_gpu.setdefault(entrant.layout.gpu.id, []).append(entrant)
    found = dict(race.rejected)
    groups = list(by_gpu.values())
    for at in range(0, len(groups), _AT_ONCE):
        tell(f"Simulating {groups[at][0].layout.gpu.name}", at / len(groups))
        for answers in in_parallel(lambda group: _of_gpu(race, group), groups[at : at + _AT_ONCE]):
            found |= answers
    return [found[place] for place in range(len(race.ways))]


def _of_gpu(race: Race, group: list[Entrant]) -> dict[int, Candidate]:
    known = {place: each.candidate for place, each in race.measured.items()}
    answers: dict[int, Candidate] = {}
    best: Candidate | None = None
    floors = {entrant.place: _floor(race.question, entrant) for entrant in group}
    for entrant in sorted(group, key=lambda e: (e.place not in known, floors[e.place], e.place)):
        floor = floors[entrant.place]
        if entrant.place in known:
            candidate = known[entrant.place]
        elif best is not None and best.cost is not None and entrant.most_rps > 0.0 and floor.amount >= best.cost.usd_per_hour:
            candidate = _dominated(race.question, entrant, floor, best)
        else:
            candidate = _answered(race, entrant)
        answers[entrant.place] = candidate
        if candidate.feasible and (best is None or rank(candidate) < rank(best)):
            best = candidate
    return answers


def _answered(race: Race, entrant: Entrant) -> Candidate:
    question = race.question
    if entrant.slow:
        screened = screen(question, entrant.engine)
        if screened is None or screened.hopeless:
            return screened_out(question, entrant.layout, entrant.engine, screened)
    trial = race.trials.get(entrant.place)
    if trial is not None:
        tried = replace(question, demand=trial.demand)
        return answer(tried, entrant.layout, entrant.engine, trial.knobs, Hint(missed_rps=trial.rate_rps))
    return race.sketches.get(entrant.place) or sketched(question, entrant)


def _floor(question: Question, entrant: Entrant) -> Dearness:
    """Return about what a layout costs at least."""
    if entrant.most_rps <= 0.0:
        return Dearness(unpriced=True, amount=0.0)
    fleet = question.scenario.fleet
    replicas = replicas_for(question.load.peak_rps, entrant.most_rps, fleet.headroom, fleet.spare_replicas)
    return dearness(entrant.layout, replicas.total)


def _dominated(question: Question, entrant: Entrant, floor: Dearness, best: Candidate) -> Candidate:
    least = floor.amount * HOURS_PER_DAY
    cost = best.cost.usd_per_day if best.cost else 0.0
    detail = f"costs about ${least:,.0f}/day or more; {best.label} does it for ${cost:,.0f}/day"
    rejection = Rejection("costs more than another layout", detail, None, None)
    engine = entrant.engine
    known = {"deployment": engine.deployment, "record": engine.record, "memory": engine.memory}
    return rejected(question, entrant.layout, rejection, **known)
