"""Decides which candidates are worth a simulation, and puts them in order."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.calibration.records import CalibrationRecord
from planner.errors import InputError
from planner.fleet import replicas_for
from planner.plans.candidates import Layout, cheapest_placement
from planner.plans.results import Candidate, Rejection
from planner.plans.search import answer, first_knobs, improve, screen, screened_out
from planner.plans.starting import Engine, Question, coarse, in_parallel, record_of, rejected, start
from planner.units import HOURS_PER_DAY

_SEARCHED = 4
_FLOOR_MARGIN = 0.8
_USUAL_SHARE = 0.7


def rank(candidate: Candidate) -> tuple[bool, bool, float, float, int, str]:
    """Return the order of candidates: feasible, priced, cheap (few GPUs where no price is known), low p99 TPOT, small TP, id."""
    gpus = candidate.replicas.total * candidate.tensor_parallel if candidate.replicas else 0
    dear = candidate.cost.usd_per_hour if candidate.cost else float(gpus)
    tpot_s = candidate.latency.tpot_p99_s if candidate.latency else 0.0
    return (not candidate.feasible, candidate.cost is None, dear, tpot_s, candidate.tensor_parallel, candidate.gpu_id)


def records_of(question: Question, ways: Sequence[Layout]) -> dict[str, CalibrationRecord]:
    """Return the calibration of each GPU in play, by id; InputError when the scenario names one that none of them can use."""
    found = {gpu_id: record_of(question, layout) for gpu_id, layout in {layout.gpu.id: layout for layout in ways}.items()}
    named = question.scenario.engine.calibration_id
    if named is not None and all(record.id != named for record in found.values()):
        raise InputError(
            "engine.calibration_id",
            named,
            "was measured on none of the GPUs in play",
            "Name its GPU in hardware.gpu_ids, or leave it out",
        )
    return found


class _Open(NamedTuple):
    """A layout that may be an answer: about what it costs at least an hour [USD/h], its place in the list, its rate without targets
    [request/s], and its engine.
    """

    floor: float
    place: int
    saturated_rps: float
    engine: Engine


class Compared(NamedTuple):
    """Layouts compared with first settings on the smaller sample: a candidate for each, and the engines of those that may win."""

    candidates: list[Candidate]
    engines: dict[int, Engine]


def compared(question: Question, ways: Sequence[Layout], records: Mapping[str, CalibrationRecord]) -> Compared:
    """Return a candidate for each layout.

    The mean-field model rules out what can't meet the targets and estimates what the rest cost at least: their saturated rate with
    the engine's own settings, less a margin of 20 % for better ones. Each GPU's layouts are then simulated in that order until none
    left can be cheaper.
    """
    found: dict[int, Candidate] = {}
    by_gpu: dict[str, list[_Open]] = {}
    for i, layout in enumerate(ways):
        engine = start(question, layout, records[layout.gpu.id])
        if isinstance(engine, Candidate):
            found[i] = engine
            continue
        screened = screen(question, engine)
        if screened is None or screened.hopeless:
            found[i] = screened_out(question, layout, engine, screened)
        else:
            floor = _cost_floor(question, layout, screened.saturated_rps)
            by_gpu.setdefault(layout.gpu.id, []).append(_Open(floor, i, screened.saturated_rps, engine))
    small = coarse(question)
    for answers in in_parallel(lambda group: _best_of_gpu(small, ways, group), by_gpu.values()):
        found.update(answers)
    engines = {entry.place: entry.engine for group in by_gpu.values() for entry in group}
    return Compared([found[i] for i in range(len(ways))], engines)


def evaluated(question: Question, ways: Sequence[Layout], records: Mapping[str, CalibrationRecord]) -> list[Candidate]:
    """Return a candidate for each layout; the few cheapest are simulated again with the settings found by a search over both."""
    small = coarse(question)
    found, engines = compared(question, ways, records)
    leaders = [i for i in sorted(range(len(ways)), key=lambda i: rank(found[i]))[:_SEARCHED] if found[i].feasible]

    def refined(i: int) -> Candidate:
        knobs = improve(small, engines[i], first_knobs(question, engines[i]))
        return answer(question, ways[i], engines[i], knobs, found[i].capacity_rps or 0.0)

    for i, candidate in zip(leaders, in_parallel(refined, leaders), strict=True):
        found[i] = candidate
    return found


def _best_of_gpu(question: Question, ways: Sequence[Layout], group: Sequence[_Open]) -> dict[int, Candidate]:
    """Simulate the layouts of one GPU with first settings, cheapest bound first, until none left can win."""
    answers: dict[int, Candidate] = {}
    best: Candidate | None = None
    for entry in sorted(group, key=lambda entry: (entry.floor, entry.place)):
        layout = ways[entry.place]
        if best is not None and best.cost is not None and entry.floor >= best.cost.usd_per_hour:
            answers[entry.place] = _dominated(question, layout, entry, best)
            continue
        candidate = answer(question, layout, entry.engine, first_knobs(question, entry.engine), entry.saturated_rps * _USUAL_SHARE)
        answers[entry.place] = candidate
        if candidate.feasible and (best is None or rank(candidate) < rank(best)):
            best = candidate
    return answers


def _dominated(question: Question, layout: Layout, entry: _Open, best: Candidate) -> Candidate:
    least = entry.floor * HOURS_PER_DAY
    cost = best.cost.usd_per_day if best.cost else 0.0
    detail = f"costs about ${least:,.0f}/day or more; {best.label} does it for ${cost:,.0f}/day"
    rejection = Rejection("costs more than another layout", detail, None, None)
    known = {"deployment": entry.engine.deployment, "record": entry.engine.record, "memory": entry.engine.memory}
    return rejected(question, layout, rejection, **known)


def _cost_floor(question: Question, layout: Layout, saturated_rps: float) -> float:
    """Return about what the layout costs at least an hour [USD/h]; without a price, the GPUs it needs at least."""
    fleet = question.scenario.fleet
    bound_rps = saturated_rps / _FLOOR_MARGIN
    replicas = replicas_for(question.load.peak_rps, bound_rps, fleet.headroom, fleet.spare_replicas).total
    found = cheapest_placement(layout, replicas)
    return float(replicas * layout.tensor_parallel) if found is None else found[1].instances * found[0].usd_per_instance_hour
