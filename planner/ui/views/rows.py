"""Tidy rows for the charts of the Plan page, each with the sentence that says what it shows."""

import itertools

from planner.analysis.steps import Decoders, decode_step
from planner.plans.results import Candidate, Latency, Plan
from planner.step_model import StepTime
from planner.ui.charts.base import Row
from planner.ui.charts.compare import MET, MISSED
from planner.ui.colours import GREY, HUES, STEPS, gpu_colour, gpu_shape, on_step, step_of
from planner.ui.views.answer import over
from planner.ui.words import DASH, figure, gib, percent, plural, rate, seconds, usd
from planner.units import GIB, MS

_AS_GOOD = 0.995
_MEMORY_COLOURS = {
    "weights": HUES[0],
    "activations": HUES[4],
    "sequence slots": HUES[3],
    "graphs": HUES[1],
    "other libraries": "#7A8692",
    "kv cache": HUES[2],
    "not used": "#B9C2CB",
}
_PART_NAMES = {"kv cache": "KV cache"}
_STEP_NAMES = {
    "layers": "layer launches",
    "linear": "linear layers",
    "head": "output head",
    "decode_attention": "decode attention",
    "prefill_attention": "prefill attention",
    "activation": "activations",
    "all_reduce": "all-reduce",
    "host": "host",
}


def comparison_rows(plan: Plan, ranks: dict[str, int]) -> tuple[list[Row], str]:
    """Return one row for each GPU: its cheapest layout that meets the targets, else the one that comes nearest.

    ranks : place of each GPU in the catalogue, for its colour
    """
    best: dict[str, Candidate] = {}
    for candidate in plan.candidates:
        if candidate.cost is None or candidate.latency is None:
            continue
        known = best.get(candidate.gpu_id)
        if known is None or _preference(candidate) < _preference(known):
            best[candidate.gpu_id] = candidate
    named = _frontier([candidate for candidate in best.values() if candidate.feasible])
    rows = [_comparison_row(candidate, plan, ranks, named) for candidate in best.values()]
    met = sum(candidate.feasible for candidate in best.values())
    one, many = (
        ("serves the load", "serve the load") if plan.scenario.targets.offline else ("meets the targets", "meet the targets")
    )
    if plan.chosen is None:
        title = f"None of {plural(len(best), 'GPU')} {one}"
    elif met == 1:
        title = f"{plan.chosen.label} is the only GPU that {one}"
    else:
        title = f"{plan.chosen.label} is the cheapest of {met} GPUs that {many}"
    return rows, title


def _preference(candidate: Candidate) -> tuple[bool, float]:
    if candidate.feasible and candidate.cost is not None:
        return False, candidate.cost.usd_per_day
    miss = candidate.rejection.miss if candidate.rejection else None
    return True, miss if miss is not None else float("inf")


def _frontier(candidates: list[Candidate]) -> set[str]:
    """Return the GPUs that no other beats in both money and TPOT; their labels are placed before others."""
    kept: set[str] = set()
    fastest_s = float("inf")
    for candidate in sorted(candidates, key=_preference):
        tpot_s = candidate.latency.tpot_p99_s if candidate.latency is not None else None
        if tpot_s is not None and tpot_s < fastest_s:
            fastest_s = tpot_s
            kept.add(candidate.gpu_id)
    return kept


def _comparison_row(candidate: Candidate, plan: Plan, ranks: dict[str, int], named: set[str]) -> Row:
    cost, latency, replicas, knobs = candidate.cost, candidate.latency, candidate.replicas, candidate.knobs
    rank = ranks.get(candidate.gpu_id, 0)
    chosen = candidate is plan.chosen
    return {
        "gpu": candidate.gpu_name,
        "label": candidate.label,
        "colour": gpu_colour(rank),
        "shape": gpu_shape(rank),
        "usd_per_day": cost.usd_per_day if cost else None,
        "tpot_p99_ms": _ms(latency.tpot_p99_s if latency else None),
        "status": MET if candidate.feasible else MISSED,
        "chosen": chosen,
        "named": chosen or candidate.gpu_id in named,
        "ttft": seconds(latency.ttft_p99_s if latency else None),
        "tpot": seconds(latency.tpot_p99_s if latency else None),
        "cost": f"{usd(cost.usd_per_day if cost else None)}/day",
        "per_million": usd(cost.usd_per_million_tokens if cost else None),
        "fleet": f"{plural(replicas.total, 'replica')} of {plural(candidate.tensor_parallel, 'GPU')}{over(candidate)}"
        if replicas
        else DASH,
        "knobs": f"max_num_seqs {knobs.max_num_seqs}, max_num_batched_tokens {knobs.max_num_batched_tokens}" if knobs else DASH,
    }


def _ms(time_s: float | None) -> float | None:
    return None if time_s is None else time_s / MS


def curve_rows(plan: Plan, quantity: str) -> tuple[list[Row], str]:
    """Return latency of one replica over the arrival rate; quantity : "TTFT" or "TPOT"."""
    details, chosen = plan.details, plan.chosen
    if details is None or chosen is None or chosen.latency is None:
        return [], ""
    if quantity == "TPOT" and chosen.latency.tpot_p99_s is None:
        return [], ""
    points = {point.rate_rps: (point, False) for point in details.curve if point.stable}
    points[chosen.latency.rate_rps] = (chosen.latency, True)
    rows = [_curve_row(point, quantity, planned=planned) for _, (point, planned) in sorted(points.items())]
    target_s = plan.scenario.targets.ttft_p99_s if quantity == "TTFT" else plan.scenario.targets.tpot_p99_s
    return rows, _curve_title([point for _, (point, _) in sorted(points.items())], quantity, target_s)


def _curve_row(point: Latency, quantity: str, *, planned: bool) -> Row:
    ttft = quantity == "TTFT"
    mean_s, p99_s = (point.ttft_mean_s, point.ttft_p99_s) if ttft else (point.tpot_mean_s, point.tpot_p99_s)
    return {
        "rate_rps": point.rate_rps,
        "mean_ms": _ms(mean_s),
        "p99_ms": _ms(p99_s),
        "planned": planned,
        "rate": rate(point.rate_rps),
        "mean": seconds(mean_s),
        "p99": seconds(p99_s),
        "running": figure(point.running_mean),
        "kv": percent(point.kv_utilisation),
        "binds": point.binds,
    }


def _curve_title(points: list[Latency], quantity: str, target_s: float | None) -> str:
    def p99_s(point: Latency) -> float:
        return (point.ttft_p99_s if quantity == "TTFT" else point.tpot_p99_s) or 0.0

    last = points[-1]
    if target_s is None:
        return f"p99 {quantity} reaches {seconds(p99_s(last))} at {rate(last.rate_rps)}"
    for before, after in itertools.pairwise(points):
        if p99_s(before) <= target_s < p99_s(after):
            share = (target_s - p99_s(before)) / (p99_s(after) - p99_s(before))
            crossed = before.rate_rps + share * (after.rate_rps - before.rate_rps)
            return f"p99 {quantity} crosses its target at {rate(crossed)} a replica"
    if p99_s(points[0]) > target_s:
        return f"p99 {quantity} misses its target at every rate"
    return f"p99 {quantity} stays within its target up to {rate(last.rate_rps)}, where the replica saturates"


def memory_rows(candidate: Candidate) -> tuple[list[Row], str]:
    """Return the parts of one GPU's memory, in the order of the bar."""
    memory = candidate.memory
    if memory is None:
        return [], ""
    rows: list[Row] = [
        {
            "part": f"{_PART_NAMES.get(part.name, part.name)} {gib(part.bytes)}",
            "gib": part.bytes / GIB,
            "colour": _MEMORY_COLOURS.get(part.name, GREY),
            "order": order,
            "share": percent(part.bytes / memory.total_bytes),
            "source": f"{part.source.kind}: {part.source.ref}",
        }
        for order, part in enumerate(parts for parts in memory.parts() if parts.bytes > 0.0)
    ]
    title = (
        f"{percent(memory.kv_bytes / memory.total_bytes)} of {'each' if candidate.tensor_parallel > 1 else 'the'} GPU "
        f"is left for the KV cache: {figure(memory.kv_tokens)} tokens"
    )
    return rows, title


def planned_step(plan: Plan) -> StepTime | None:
    """Return the step that the chosen replica runs most at the planned load: its mean number of sequences decode, mean context."""
    chosen = plan.chosen
    if chosen is None or chosen.latency is None or chosen.coefficients is None or chosen.latency.running_mean <= 0.0:
        return None
    decoders = Decoders(max(1.0, chosen.latency.running_mean), plan.lengths.running_context_mean_tokens)
    return decode_step(decoders, chosen.coefficients)


def step_rows(plan: Plan) -> tuple[list[Row], str]:
    """Return the parts of that step, longest first."""
    step = planned_step(plan)
    if step is None or plan.chosen is None or plan.chosen.latency is None:
        return [], ""
    parts = sorted(((name, part_s) for name, part_s in step.parts().items() if part_s > 0.0), key=lambda item: -item[1])
    hidden = step.hidden_s > 0.0
    rows: list[Row] = [
        {
            "part": _STEP_NAMES.get(name, name),
            "ms": part_s / MS,
            "label": f"{seconds(part_s)} · {percent(part_s / step.total_s)}"
            + (" beside the GPU" if name == "host" and hidden else ""),
            "hidden": name == "host" and hidden,
        }
        for name, part_s in parts
    ]
    longest, longest_s = parts[0]
    title = (
        f"A decode step of {plural(max(1, round(plan.chosen.latency.running_mean)), 'sequence')} takes {seconds(step.total_s)}, "
        f"{percent(longest_s / step.total_s)} of it in {_STEP_NAMES.get(longest, longest)}; {step.binds} binds it"
    )
    return rows, title


def knob_rows(plan: Plan) -> tuple[list[Row], str]:
    """Return the knob map, with the chosen cell and the engine's own settings marked."""
    details, chosen = plan.details, plan.chosen
    if details is None or chosen is None or chosen.knobs is None or not details.knob_map:
        return [], ""
    reached = [cell.capacity_rps for cell in details.knob_map if cell.capacity_rps is not None]
    smallest, largest = min(reached, default=0.0), max(reached, default=0.0)
    rows: list[Row] = []
    for cell in details.knob_map:
        step = step_of((cell.capacity_rps or 0.0) - smallest, largest - smallest)
        marks = [name for name, knobs in (("default", details.default.knobs), ("chosen", chosen.knobs)) if knobs == cell.knobs]
        rows.append(
            {
                "seqs": cell.knobs.max_num_seqs,
                "budget": cell.knobs.max_num_batched_tokens,
                "seqs_text": figure(cell.knobs.max_num_seqs),
                "budget_text": figure(cell.knobs.max_num_batched_tokens),
                "label": figure(cell.capacity_rps) if cell.capacity_rps is not None else cell.binds,
                "colour": STEPS[step] if cell.capacity_rps is not None else GREY,
                "ink": on_step(step),
                "feasible": cell.capacity_rps is not None,
                "mark": " ".join(marks),
                "capacity": rate(cell.capacity_rps) if cell.capacity_rps is not None else "none within the targets",
                "binds": cell.binds,
            }
        )
    return rows, _knob_title(plan, largest)


def _knob_title(plan: Plan, largest: float) -> str:
    """Return the finding, in the figures that the cells show."""
    details, chosen = plan.details, plan.chosen
    if details is None or chosen is None or chosen.knobs is None:
        return ""
    cells = {cell.knobs: cell.capacity_rps for cell in details.knob_map}
    own_rps = cells.get(chosen.knobs) or chosen.capacity_rps or largest
    best = f", the best cell {rate(largest)}" if own_rps < _AS_GOOD * largest else ""
    said = f"The chosen settings serve up to {rate(own_rps)}{best}" if best else f"A replica serves up to {rate(own_rps)}"
    default = details.default
    if default.capacity_rps is None:
        return f"{said}; the engine's own settings miss the targets"
    default_rps = cells.get(default.knobs) or default.capacity_rps
    if default_rps >= _AS_GOOD * own_rps:
        return f"{said}; the engine's own settings do as well" if best else f"{said}, and the engine's own settings already do"
    extra = ""
    if default.extra_usd_per_day is not None and default.extra_usd_per_day > 0.0:
        extra = f" and cost {usd(default.extra_usd_per_day)}/day more"
    return f"{said}; the engine's own settings reach {rate(default_rps)}{extra}"


def target_label(target_s: float | None) -> tuple[float, str] | None:
    """Return a target as a place on a millisecond axis and its text."""
    return None if target_s is None else (target_s / MS, f"target {seconds(target_s)}")
