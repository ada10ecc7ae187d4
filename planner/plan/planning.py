"""plan(scenario): the one call behind the page, the shell and the API."""

from collections.abc import Sequence
from dataclasses import replace

from planner.fleet import replicas_for
from planner.models import ModelSpec, Quantization, load_model
from planner.plan.candidates import Layout, cheapest_placement, layouts, quantization_for
from planner.plan.capacity import SEARCH_REQUESTS, Demand, demand_for
from planner.plan.evidence import details_of
from planner.plan.explain import Outcome, changes_of, nearest_feasible, summary_of, warnings_of
from planner.plan.load import planned_load
from planner.plan.results import Candidate, Details, Plan
from planner.plan.search import (
    Engine,
    Question,
    answer,
    best_cell,
    default_knobs,
    improve,
    in_parallel,
    knob_map,
    screen,
    screened_out,
    start,
    with_knobs,
)
from planner.pricing import TokenVolume
from planner.scenario import Scenario
from planner.workloads import LengthStats, Workload, load_workload

_SEARCHED = 6


def plan(scenario: Scenario) -> Plan:
    """Return the answer to a scenario; same scenario and catalogue, same answer.

    Every GPU and TP size that the scenario allows is checked for layout, precision and memory; those that start are ordered by a
    bound on their cost, simulated under the targets, and ranked by dollars. The cheapest gets its settings from the whole grid of
    max_num_seqs × max_num_batched_tokens. Wrong input raises InputError; a scenario that nothing serves is an answer.
    """
    workload = load_workload(scenario.workload.id)
    model = load_model(scenario.model.id)
    quantization = quantization_for(scenario, model)
    lengths = workload.length_stats()
    question = question_of(scenario, workload, model, quantization)
    candidates, chosen, details = _search(question)
    outcome = Outcome(question, candidates, chosen, None if chosen else nearest_feasible(candidates, scenario.targets), details)
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
        warnings=warnings_of(outcome, _length_warnings(question, lengths)),
        summary=summary_of(outcome),
    )


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
        output_mean_tokens=lengths.output_mean,
        context_mean_tokens=lengths.running_context_mean,
    )


def _search(question: Question) -> tuple[tuple[Candidate, ...], Candidate | None, Details | None]:
    ways = layouts(question.scenario, question.model, question.quantization)
    candidates = _evaluated(question, ways)
    order = sorted(range(len(ways)), key=lambda i: rank(candidates[i]))
    best = order[0]
    if not candidates[best].feasible:
        return tuple(candidates[i] for i in order), None, None
    engine = start(question, ways[best])
    assert isinstance(engine, Engine)  # a feasible candidate has started
    cells = knob_map(question, engine)
    cell = best_cell(cells, default_knobs(question.scenario, engine.deployment))
    if cell is not None:
        candidates[best] = answer(question, ways[best], engine, cell.knobs)
    chosen = candidates[best]
    assert chosen.knobs is not None  # feasible
    fitted = with_knobs(engine, chosen.knobs, question.scenario.engine.logged_kv_tokens)
    return tuple(candidates[i] for i in order), chosen, details_of(question, ways[best], fitted, chosen, cells)


def rank(candidate: Candidate) -> tuple[bool, bool, float, float, int, str]:
    """Return the order of candidates: feasible, priced, cheap, then low p99 TPOT, few GPUs, and the id."""
    usd = candidate.cost.usd_per_hour if candidate.cost else 0.0
    tpot_s = candidate.latency.tpot_p99_s if candidate.latency else 0.0
    return (not candidate.feasible, candidate.cost is None, usd, tpot_s, candidate.tensor_parallel, candidate.gpu_id)


def _evaluated(question: Question, ways: Sequence[Layout]) -> list[Candidate]:
    """Return a candidate for each layout.

    The mean-field model rules out what can't meet the targets and bounds the cost of the rest; those that may be cheapest are
    simulated with a search over the token budget, the others with the engine's own settings.
    """
    found: dict[int, Candidate] = {}
    open_ways: list[tuple[float, int, Engine]] = []
    for i, layout in enumerate(ways):
        engine = start(question, layout)
        if isinstance(engine, Candidate):
            found[i] = engine
            continue
        screened = screen(question, engine)
        if screened is None or screened.hopeless:
            found[i] = screened_out(question, layout, engine, screened)
        else:
            open_ways.append((_cost_floor(question, layout, screened.saturated_rps), i, engine))
    open_ways.sort(key=lambda entry: entry[:2])
    searched = {i for _, i, _ in open_ways[:_SEARCHED]}

    def candidate(entry: tuple[float, int, Engine]) -> Candidate:
        _, i, engine = entry
        default = default_knobs(question.scenario, engine.deployment)
        return answer(question, ways[i], engine, improve(question, engine, default) if i in searched else default)

    for (_, i, _), answered in zip(open_ways, in_parallel(candidate, open_ways), strict=True):
        found[i] = answered
    return [found[i] for i in range(len(ways))]


def _cost_floor(question: Question, layout: Layout, bound_rps: float) -> float:
    """Return a cost an hour that the layout can't undercut [USD/h]; without a price, the GPUs it can't do without."""
    fleet = question.scenario.fleet
    replicas = replicas_for(question.load.peak_rps, bound_rps, fleet.headroom, fleet.spare_replicas).total
    found = cheapest_placement(layout, replicas)
    return float(replicas * layout.tensor_parallel) if found is None else found[1].instances * found[0].usd_per_instance_hour


def _alternatives(question: Question, chosen: Candidate) -> list[tuple[str, dict[str, object], Candidate]]:
    """Plan the chosen GPU with FP8 weights and KV cache, where the scenario keeps 16 bit."""
    scenario = question.scenario
    if question.quantization.compute_dtype != "bf16" or question.quantization.weight_bits < 16:
        return []
    model = scenario.model.model_copy(update={"quantization": "fp8", "kv_dtype": "fp8"})
    hardware = scenario.hardware.model_copy(update={"gpu_ids": (chosen.gpu_id,)})
    changed = scenario.model_copy(update={"model": model, "hardware": hardware})
    quantization = quantization_for(changed, question.model)
    other = replace(question, scenario=changed, quantization=quantization)
    best = min(_evaluated(other, layouts(changed, question.model, quantization)), key=rank)
    patch: dict[str, object] = {"model.quantization": "fp8", "model.kv_dtype": "fp8"}
    return [("FP8 weights and KV cache", patch, best)] if best.feasible else []


def _length_warnings(question: Question, lengths: LengthStats) -> list[str]:
    warnings = []
    maximum = question.model.max_positions
    if maximum is not None and question.demand.longest_tokens > maximum:
        longest = f"{question.demand.longest_tokens:,}"
        warnings.append(f"The longest requests ({longest} tokens) exceed the model's {maximum:,}: the engine refuses them.")
    if lengths.method != "exact":
        warnings.append(f"Lengths are {lengths.method}, not rows of your own traffic: upload a trace to plan on it.")
    return warnings
