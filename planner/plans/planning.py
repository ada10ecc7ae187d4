"""plan(scenario): the one call behind the page, the shell and the API."""

from dataclasses import replace

from planner.engines import check_version
from planner.models import ModelSpec, Quantization, load_model
from planner.plans.candidates import Layout, check_context, layouts, quantization_for
from planner.plans.capacity import SEARCH_REQUESTS, demand_for
from planner.plans.evidence import details_of
from planner.plans.explain import Outcome, changes_of, summary_of, warnings_of
from planner.plans.load import planned_load
from planner.plans.nearest import nearest_feasible
from planner.plans.ranking import compared, evaluated, rank, records_of
from planner.plans.results import Candidate, Details, KnobCell, Plan
from planner.plans.search import answer, best_cell, knob_map
from planner.plans.starting import Engine, Question, default_knobs, final, start, with_knobs
from planner.pricing import TokenVolume
from planner.scenario import Scenario
from planner.workloads import LengthStats, Workload, load_workload

_MOST_MEASURED = 4


def plan(scenario: Scenario) -> Plan:
    """Return the answer to a scenario; same scenario and catalogue, same answer.

    Every GPU and TP size that the scenario allows is checked for layout, precision and memory; those that start are ordered by a
    bound on their cost, simulated under the targets, and ranked by dollars. The cheapest gets its settings from the whole grid of
    max_num_seqs × max_num_batched_tokens. Wrong input raises InputError; a scenario that nothing serves is an answer.
    """
    workload, question = _prepared(scenario)
    lengths = workload.length_stats()
    candidates, chosen, details = _search(question)
    outcome = Outcome(question, candidates, chosen, None if chosen else nearest_feasible(question, candidates), details)
    return Plan(
        scenario=scenario,
        workload=workload,
        lengths=lengths,
        load=question.load,
        candidates=candidates,
        chosen=chosen,
        nearest=outcome.nearest,
        details=details,
        changes=changes_of(outcome, _alternatives(question, chosen) if chosen else ()),
        warnings=warnings_of(outcome, _workload_warnings(question, workload, lengths)),
        summary=summary_of(outcome),
    )


def first_answer(scenario: Scenario) -> str | None:
    """Return the answer in one sentence before its settings are searched; None when no first settings serve the scenario.

    The cheapest candidate with first settings, on the smaller sample. `plan` starts from the same simulations, so that nothing is
    done twice. Raises InputError as `plan` does.
    """
    _, question = _prepared(scenario)
    ways = layouts(scenario, question.model, question.quantization)
    candidates = sorted(compared(question, ways, records_of(question, ways)).candidates, key=rank)
    if not candidates[0].feasible:
        return None
    return summary_of(Outcome(question, tuple(candidates), candidates[0], None, None))


def _prepared(scenario: Scenario) -> tuple[Workload, Question]:
    check_version(scenario.engine.engine, scenario.engine.version)
    workload = load_workload(scenario.workload.id)
    model = load_model(scenario.model.id)
    check_context(scenario, model)
    return workload, question_of(scenario, workload, model, quantization_for(scenario, model))


def question_of(scenario: Scenario, workload: Workload, model: ModelSpec, quantization: Quantization) -> Question:
    """Return the scenario with its sampled requests, its load and its token volume."""
    lengths = workload.length_stats()
    load = planned_load(scenario, workload, lengths)
    return Question(
        scenario=scenario,
        model=model,
        quantization=quantization,
        demand=demand_for(workload, SEARCH_REQUESTS, scenario.seed),
        load=load,
        volume=TokenVolume(load.mean_rps * lengths.prompt_mean, load.mean_rps * lengths.output_mean),
        prompt_mean_tokens=lengths.prompt_mean,
        context_mean_tokens=lengths.running_context_mean,
    )


def _search(question: Question) -> tuple[tuple[Candidate, ...], Candidate | None, Details | None]:
    """Return the candidates in order, the chosen one and its evidence.

    The cheapest gets its settings from the whole grid and its figures from the largest sample; if these make it dearer than another
    or let it miss a target, the next is measured too.
    """
    ways = layouts(question.scenario, question.model, question.quantization)
    records = records_of(question, ways)
    candidates = evaluated(question, ways, records)
    measured: dict[int, tuple[Engine, tuple[KnobCell, ...]]] = {}
    for _ in range(_MOST_MEASURED):
        best = min(range(len(ways)), key=lambda i: rank(candidates[i]))
        if best in measured or not candidates[best].feasible:
            break
        engine = start(question, ways[best], records[ways[best].gpu.id])
        if isinstance(engine, Candidate):
            candidates[best] = engine
            continue
        candidates[best], cells = _measured(question, ways[best], engine)
        measured[best] = (engine, cells)
    order = sorted(range(len(ways)), key=lambda i: rank(candidates[i]))
    ranked = tuple(candidates[i] for i in order)
    chosen = candidates[order[0]]
    if order[0] not in measured or not chosen.feasible or chosen.knobs is None:
        return ranked, None, None
    engine, cells = measured[order[0]]
    fitted = with_knobs(engine, chosen.knobs, question.scenario.engine.logged_kv_tokens)
    return ranked, chosen, details_of(question, ways[order[0]], fitted, chosen, cells)


def _measured(question: Question, layout: Layout, engine: Engine) -> tuple[Candidate, tuple[KnobCell, ...]]:
    """Return the candidate with the best settings of the grid, measured on the largest sample, and the grid in its units.

    The grid is simulated on a smaller sample, the same for every cell, and scaled so that the chosen cell has the measured
    capacity.
    """
    cells = knob_map(question, engine)
    cell = best_cell(cells, engine.own)
    if cell is None or cell.capacity_rps is None:
        return answer(final(question), layout, engine, default_knobs(question.scenario, engine.deployment)), cells
    candidate = answer(final(question), layout, engine, cell.knobs, cell.capacity_rps)
    ratio = (candidate.capacity_rps or cell.capacity_rps) / cell.capacity_rps
    return candidate, tuple(
        replace(each, capacity_rps=None if each.capacity_rps is None else each.capacity_rps * ratio) for each in cells
    )


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
    best = min(evaluated(other, ways, records_of(other, ways)), key=rank)
    patch: dict[str, object] = {
        "model.quantization": "fp8",
        "model.kv_dtype": "fp8",
        "hardware.gpu_ids": [chosen.gpu_id],
        "engine.logged_kv_tokens": None,
    }
    return [(f"FP8 weights and KV cache on {chosen.gpu_name}", patch, best)] if best.feasible else []


def _workload_warnings(question: Question, workload: Workload, lengths: LengthStats) -> list[str]:
    warnings = []
    maximum = question.model.max_positions
    if maximum is not None and question.demand.longest_tokens > maximum:
        longest = f"{question.demand.longest_tokens:,}"
        warnings.append(f"The longest requests ({longest} tokens) exceed the model's {maximum:,}: the engine refuses them.")
    if workload.prefix_hits is not None:
        hit = max(workload.prefix_hits.hit_rate)
        warnings.append(
            f"Prefix caching is not counted: up to {hit:.0%} of this workload's prompt tokens repeat earlier ones, "
            "so that prefill may cost less than planned."
        )
    if lengths.method != "exact":
        warnings.append(f"Lengths are {lengths.method}, not rows of your own traffic: upload a trace to plan on it.")
    return warnings
