"""plan(scenario): the one call behind the page, the shell and the API, and its two halves: the answer, then the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.calibration.records import CalibrationRecord
from planner.engines import check_version
from planner.errors import InputError
from planner.models import ModelSpec, Quantization, load_model
from planner.plans.candidates import check_context, layouts, quantization_for
from planner.plans.capacity import SEARCH_REQUESTS, demand_for, length_stats_of
from planner.plans.caveats import caveats_of
from planner.plans.confirm import holds_on_largest, measured
from planner.plans.evidence import details_of
from planner.plans.explain import Outcome, changes_of, next_candidates, summary_of, warnings_of
from planner.plans.field import completed
from planner.plans.knobs import knob_map
from planner.plans.load import planned_load
from planner.plans.nearest import nearest_feasible
from planner.plans.progress import Tell, silent, with_check, within
from planner.plans.race import Race, entered, run, unmeasured
from planner.plans.ranking import check_named_record, rank, records_of
from planner.plans.results import Candidate, Change, Details, KnobCell, Plan, PlannedLoad
from planner.plans.reuse import capacity_with_reuse, reuse_change, reuse_warning
from planner.plans.starting import Question, with_knobs
from planner.pricing import TokenVolume
from planner.scenario import Scenario
from planner.workloads import LengthStats, Workload, load_workload


@dataclass(frozen=True, slots=True)
class Answer:
    """What is certain before the evidence is there: the choice with its figures; `complete` turns it into the plan.

    chosen : the plan's own choice; None when nothing serves the scenario, or when that is not certain yet
    summary : the answer in one sentence; None without a choice: the reasons come with the plan
    """

    scenario: Scenario
    workload: Workload
    lengths: LengthStats
    load: PlannedLoad
    chosen: Candidate | None
    summary: str | None
    race: Race
    records: Mapping[str, CalibrationRecord]


def plan(scenario: Scenario, tell: Tell = silent) -> Plan:
    """Return the answer to a scenario; same scenario and catalogue, same answer.

    tell : told how far it is; by raising, it gives the plan up

    Every GPU and TP size that the scenario allows is checked for layout, precision and memory; those that start are ordered by a
    bound on their cost, simulated under the targets, and ranked by dollars. The cheapest gets its settings from the whole grid of
    max_num_seqs × max_num_batched_tokens. Wrong input raises InputError; a scenario that nothing serves is an answer.
    """
    return complete(first_answer(scenario, within(tell, 0.0, 0.4)), within(tell, 0.4, 1.0))


def first_answer(scenario: Scenario, tell: Tell = silent) -> Answer:
    """Return the plan's choice with its figures, in a fraction of the time that the plan with all its evidence takes.

    Raises InputError as `plan` does.
    """
    tell, check = with_check(tell)
    tell("Reading the catalogue", 0.0)
    workload, asked = _prepared(scenario)
    question = replace(asked, check=check)
    ways = layouts(scenario, question.model, question.quantization)
    records = records_of(question, ways)
    check_named_record(question, records)
    race = entered(question, ways, records)
    place = run(race, tell)
    chosen = race.measured[place].candidate if place is not None else None
    return Answer(
        scenario=scenario,
        workload=workload,
        lengths=length_stats_of(question.demand.key),
        load=question.load,
        chosen=chosen,
        summary=summary_of(Outcome(question, (), chosen, None, None)) if chosen is not None else None,
        race=replace(race, question=asked),
        records=records,
    )


def complete(answer: Answer, tell: Tell = silent) -> Plan:
    """Return the plan: the answer with every candidate, the evidence, and what would change it."""
    tell, check = with_check(tell)
    question = replace(answer.race.question, check=check)
    race = replace(answer.race, question=question)
    candidates, chosen, details = _evidence(race, within(tell, 0.0, 0.8))
    nearest = None if chosen else nearest_feasible(question, candidates)
    outcome = Outcome(question, candidates, chosen, nearest, details)
    tell("Planning with FP8 weights and KV cache", 0.9)
    return Plan(
        scenario=answer.scenario,
        workload=answer.workload,
        lengths=answer.lengths,
        load=answer.load,
        candidates=candidates,
        chosen=chosen,
        nearest=nearest,
        details=details,
        changes=(*changes_of(outcome, _alternatives(question, chosen) if chosen else ()), *_reuse(race, chosen)),
        warnings=(
            *warnings_of(outcome, _workload_warnings(question, answer.workload, answer.lengths, chosen)),
            *caveats_of(question.scenario, question.model, candidates),
        ),
        summary=summary_of(outcome),
    )


def _prepared(scenario: Scenario) -> tuple[Workload, Question]:
    if not isinstance(scenario, Scenario):
        raise InputError("scenario", scenario, "must be a Scenario", "Make one of a mapping with scenario_from_dict")
    check_version(scenario.engine.engine, scenario.engine.version)
    workload = load_workload(scenario.workload.id)
    model = load_model(scenario.model.id, "model.id")
    check_context(scenario, model)
    return workload, question_of(scenario, workload, model, quantization_for(scenario, model))


def question_of(scenario: Scenario, workload: Workload, model: ModelSpec, quantization: Quantization) -> Question:
    """Return the scenario with its sampled requests, its load and its token volume."""
    demand = demand_for(workload, SEARCH_REQUESTS, scenario.seed)
    lengths = length_stats_of(demand.key)
    load = planned_load(scenario, workload, lengths)
    return Question(
        scenario=scenario,
        model=model,
        quantization=quantization,
        demand=demand,
        load=load,
        volume=TokenVolume(load.mean_rps * lengths.prompt_mean_tokens, load.mean_rps * lengths.output_mean_tokens),
        prompt_mean_tokens=lengths.prompt_mean_tokens,
        context_mean_tokens=lengths.running_context_mean_tokens,
    )


def _evidence(race: Race, tell: Tell) -> tuple[tuple[Candidate, ...], Candidate | None, Details | None]:
    """Return the candidates in order, the chosen one and its evidence.

    Should the figures of a layout that lost turn out cheaper than the choice, it is measured too. So are the next ones, to which a
    reader may turn, where they don't hold on the largest sample what they promise.
    """
    found = completed(race, within(tell, 0.0, 0.6))
    sure: set[int] = set()
    while True:
        order = sorted(range(len(found)), key=lambda place: rank(found[place]))
        best = order[0]
        doubtful = [] if best in race.measured or not found[best].feasible else [best]
        doubtful += [place for place in _next_places(order, found) if place not in race.measured and place not in sure]
        if not doubtful:
            break
        place = doubtful[0]
        entrant = race.entrants[place]
        if place != best and holds_on_largest(race.question, entrant.engine, found[place]):
            sure.add(place)
            continue
        race.measured[place] = measured(race.question, entrant.layout, entrant.engine, found[place])
        found[place] = race.measured[place].candidate
    ranked = tuple(found[place] for place in order)
    chosen = found[best]
    if not chosen.feasible or chosen.knobs is None:
        return ranked, None, None
    tell("Simulating the settings around the chosen ones", 0.6)
    engine = race.entrants[best].engine
    cells = _cells(race, best)
    fitted = with_knobs(engine, chosen.knobs, race.question.scenario.engine.logged_kv_tokens)
    tell("Simulating what the calibration's error does", 0.8)
    searched = replace(race.question, demand=race.measured[best].demand)
    return ranked, chosen, details_of(searched, race.ways[best], fitted, chosen, cells)


def _next_places(order: Sequence[int], found: Sequence[Candidate]) -> list[int]:
    """Return the places of the candidates that a plan names after its choice."""
    places = {id(found[place]): place for place in order}
    return [places[id(each)] for each in next_candidates([found[place] for place in order], found[order[0]])]


def _cells(race: Race, place: int) -> tuple[KnobCell, ...]:
    """Return the grid of settings in the chosen one's units: simulated on the sample on which it was searched, the same for every
    cell, and scaled so that the chosen cell has the measured capacity.
    """
    candidate, best = race.measured[place].candidate, race.measured[place].best
    if best is None:
        return ()
    cells = knob_map(replace(race.question, demand=race.measured[place].demand), race.entrants[place].engine, best)
    reached = best.near[best.knobs].rate_rps
    ratio = (candidate.capacity_rps or reached) / reached
    return tuple(replace(each, capacity_rps=None if each.capacity_rps is None else each.capacity_rps * ratio) for each in cells)


def _alternatives(question: Question, chosen: Candidate) -> list[tuple[str, dict[str, object], Candidate]]:
    """Plan the chosen GPU with FP8 weights and KV cache, where the scenario keeps 16 bit."""
    scenario = question.scenario
    if question.quantization.compute_dtype != "bf16" or question.quantization.weight_bits < 16:
        return []
    model = scenario.model.model_copy(update={"quantization": "fp8", "kv_dtype": "fp8"})
    hardware = scenario.hardware.model_copy(update={"gpu_ids": (chosen.gpu_id,)})
    engine = scenario.engine.model_copy(update={"logged_kv_tokens": None})
    changed = scenario.model_copy(update={"model": model, "hardware": hardware, "engine": engine})
    quantization = quantization_for(changed, question.model)
    other = replace(question, scenario=changed, quantization=quantization)
    ways = layouts(changed, question.model, quantization)
    best = unmeasured(entered(other, ways, records_of(other, ways)))
    patch: dict[str, object] = {
        "model.quantization": "fp8",
        "model.kv_dtype": "fp8",
        "hardware.gpu_ids": [chosen.gpu_id],
        "engine.logged_kv_tokens": None,
    }
    return [(f"FP8 weights and KV cache on {chosen.gpu_name}", patch, best)] if best is not None else []


def _reuse(race: Race, chosen: Candidate | None) -> list[Change]:
    """Return what the chosen GPUs save by prefix caching, where the workload says what its requests share."""
    place = next((place for place, each in race.measured.items() if each.candidate is chosen), None)
    if place is None or chosen is None:
        return []
    reused_rps = capacity_with_reuse(race.question, race.entrants[place].engine, chosen)
    return [reuse_change(race.question, race.ways[place], chosen, reused_rps)] if reused_rps is not None else []


def _workload_warnings(question: Question, workload: Workload, lengths: LengthStats, chosen: Candidate | None) -> list[str]:
    warnings = []
    maximum = question.model.max_positions
    if maximum is not None and question.demand.longest_tokens > maximum:
        longest = f"{question.demand.longest_tokens:,}"
        warnings.append(f"The longest requests ({longest} tokens) exceed the model's {maximum:,}: the engine refuses them.")
    if workload.prefix_hits is not None:
        warnings.append(reuse_warning(workload.prefix_hits, chosen))
    if lengths.method != "exact":
        warnings.append(f"Lengths are {lengths.method}, not rows of your own traffic: upload a trace to plan on it.")
    return warnings
