"""What "Token budget" shows: points of its charts, rows of its table, and its sentences."""

from collections.abc import Sequence

import numpy as np

from planner.analysis.batching import PUBLISHED_BUDGETS
from planner.analysis.case import Case
from planner.analysis.steps import filled_step_s
from planner.analysis.token_budget import Beside as Load
from planner.analysis.token_budget import BudgetBounds, Frontier
from planner.ui.charts.curves import Axis, Rule
from planner.ui.charts.marked import Kind, Marked, MarkedCurve
from planner.ui.views.questions import Beside
from planner.ui.views.questions_batching import beside_plan
from planner.ui.words import figure, plural, rate, seconds
from planner.units import MS

_POINTS = 80
_LARGEST = 16_384
_OVER = 1.6
_SIGHT = 2.0  # a target up to twice the farthest point leaves the points half of the picture


def step_curve(case: Case, load: Load, bounds: BudgetBounds) -> MarkedCurve:
    """Return a full step's time over its budget, with the published budgets and those that formulas single out."""
    c, decoders = case.coefficients, load.decoders
    first = int(decoders.sequences) + 1

    def step_ms(budget: int) -> float:
        return filled_step_s(decoders, float(max(budget - int(decoders.sequences), 1)), load.prompt_tokens, c) / MS

    budgets = sorted({round(each) for each in np.geomspace(first, max(_LARGEST, 2 * first), _POINTS)})
    marked = [
        Marked(float(budget), step_ms(budget), label, kind, tip)
        for budget, (label, kind, tip) in _named(bounds, case.limits.max_num_batched_tokens).items()
        if budget >= first
    ]
    rules = [Rule("y", load.tpot_s / MS, f"TPOT target {seconds(load.tpot_s)}")]
    return MarkedCurve([(float(budget), step_ms(budget)) for budget in budgets], marked, rules)


def step_title(load: Load, bounds: BudgetBounds) -> str:
    """Return the finding of the chart of steps."""
    if bounds.cap == 0:
        return f"Decode alone takes {seconds(bounds.decode_s)} a step, over the TPOT target"
    return f"A full step beside {plural(int(load.decoders.sequences), 'decoder')} crosses the TPOT target at {bounds.cap:,} tokens"


def frontier_curve(case: Case, load: Load, bounds: BudgetBounds, found: Frontier) -> MarkedCurve:
    """Return simulated p99 TTFT over p99 TPOT, one point for each budget; far misses are left out of the picture."""
    named = _named(bounds, case.limits.max_num_batched_tokens)
    best = None if found.best is None else found.best.budget
    smallest = min(point.miss for point in found.points)
    shown = [point for point in found.points if point.miss <= max(_OVER, _OVER * smallest)]
    marked: list[Marked] = []
    for point in shown:
        label, kind, tip = named.get(point.budget, (f"{point.budget:,}", "other", "a budget between"))
        if point.budget == best:
            label, kind, tip = f"{point.budget:,}: most room", "best", f"{tip}; leaves both targets the most room"
        marked.append(Marked(point.run.tpot_p99_s / MS, point.run.ttft_p99_s / MS, label, kind, tip))
    line = [(each.x, each.y) for each in marked]
    rules = [Rule("x", load.tpot_s / MS, f"TPOT target {seconds(load.tpot_s)}")]
    rules.append(Rule("y", load.ttft_s / MS, f"TTFT target {seconds(load.ttft_s)}"))
    return MarkedCurve(line, marked, [rule for rule in rules if _in_sight(rule, line)])


def frontier_axes(load: Load, shown: MarkedCurve) -> tuple[Axis, Axis]:
    """Return the axes of p99 TPOT and p99 TTFT; each names a target that lies too far off to be drawn."""
    drawn = {rule.axis for rule in shown.rules}
    tpot = "" if "x" in drawn else f"; target {seconds(load.tpot_s)} far to the right"
    ttft = "" if "y" in drawn else f"; target {seconds(load.ttft_s)} far above"
    return Axis(f"p99 TPOT (ms){tpot}", zero=False), Axis(f"p99 TTFT (ms){ttft}", zero=False)


def _in_sight(rule: Rule, line: Sequence[tuple[float, float]]) -> bool:
    """Whether a target is near enough for the points to keep most of the picture."""
    values = [point[rule.axis == "y"] for point in line]
    return not values or rule.value <= _SIGHT * max(values)


def frontier_title(load: Load, found: Frontier) -> str:
    """Return the finding of the frontier."""
    if not found.holding:
        return f"At {figure(load.rate_rps)} requests/s no budget brings both p99s under their targets"
    first, last = found.points[0], found.points[-1]
    return (
        f"From budget {first.budget:,} to {last.budget:,} p99 TTFT goes from {seconds(first.run.ttft_p99_s)} to "
        f"{seconds(last.run.ttft_p99_s)}, p99 TPOT from {seconds(first.run.tpot_p99_s)} to {seconds(last.run.tpot_p99_s)}"
    )


def budget_rows(load: Load, bounds: BudgetBounds, found: Frontier | None) -> tuple[Beside, ...]:
    """Return what formulas say at each budget they single out, beside the run with that budget."""
    rows = [_knee_row(bounds, found)]
    at_cap = None if found is None or not bounds.cap else found.at(bounds.cap)
    if bounds.cap:
        rows.append(
            Beside(
                f"p99 TPOT at the cap, {bounds.cap:,} tokens",
                f"≤ {seconds(load.tpot_s)}",
                None if at_cap is None else seconds(at_cap.run.tpot_p99_s),
                f"The cap is a full step beside {plural(int(load.decoders.sequences), 'decoder')}. The run's "
                "batch is its own: few steps are full, which brings TPOT down; bursts hold more decoders, which brings it up.",
            )
        )
    if bounds.floor is not None:
        at_floor = None if found is None else found.at(bounds.floor)
        rows.append(
            Beside(
                f"p99 TTFT at the floor, {bounds.floor:,} tokens",
                f"≤ {seconds(load.ttft_s)}",
                None if at_floor is None else seconds(at_floor.run.ttft_p99_s),
                "The floor holds for a mean prompt that finds no queue and for a load that comes evenly. Prompts differ and come "
                "in bursts, so that a budget near the floor queues.",
            )
        )
    return tuple(rows)


def budget_caption(case: Case, found: Frontier) -> str:
    """Return what was simulated."""
    running = found.points[len(found.points) // 2].run.running
    refused = f" Budgets {', '.join(f'{each:,}' for each in found.refused)} leave no memory to start." if found.refused else ""
    return (
        f"Simulated: {found.requests:,} requests of {case.workload.name}, the same at each budget, seed {case.seed}; about "
        f"{figure(running)} sequences run. max_num_seqs is {case.limits.max_num_seqs:,}, lowered to the budget where that is "
        f"smaller, and the KV cache is what each budget leaves.{refused}"
    )


LEGEND = (
    "Circles: published budgets (256: SARATHI, Agrawal et al., 2023; 512 and 2,048: Sarathi-Serve for strict and relaxed targets, "
    "OSDI 2024; 2,048 and 8,192: vLLM's defaults by GPU). Diamonds: from formulas. Square: this replica's. Triangle: the most room."
)


def budget_why(bounds: BudgetBounds, load: Load, formula: str) -> list[str]:
    """Return the formulas with their numbers."""
    rows = int(load.decoders.sequences)
    knee, context = bounds.knee, load.decoders.context_tokens
    lines = [
        f"knee of the linear layers = {knee.linear_tokens:.1f} tokens: {knee.explanation.formula}",
        f"with {plural(rows, 'decoder')} at {context:,.0f} tokens FLOPs equal all reads at {knee.with_decoders_tokens} tokens",
        formula,
    ]
    if bounds.ttft_floor is not None:
        lines.append(
            f"TTFT floor = least budget whose chunks of budget − {rows} tokens bring a {load.prompt_tokens:,.0f}-token prompt to "
            f"its first token within {load.ttft_s:g} s = {bounds.ttft_floor:,}"
        )
    if bounds.load_floor is not None:
        lines.append(
            f"load floor = least budget with (budget − {rows}) / step ≥ {load.rate_rps:.3g}/s × {load.prompt_tokens:,.0f} tokens = "
            f"{bounds.load_floor:,}"
        )
    return lines


def _knee_row(bounds: BudgetBounds, found: Frontier | None) -> Beside:
    best = None if found is None or found.best is None else f"{found.best.budget:,} tokens leave the most room"
    return Beside("Knee of the linear layers", f"{bounds.knee.linear_tokens:.1f} tokens", best)


def _named(bounds: BudgetBounds, own: int) -> dict[int, tuple[str, Kind, str]]:
    """Return label, kind and description by budget; the later wins where two coincide."""
    knee = bounds.knee
    formulas: Sequence[tuple[int | None, str, str]] = (
        (round(knee.paper_tokens), "data-sheet knee", "knee by the data sheet's peak and bandwidth"),
        (round(knee.linear_tokens), "knee", "knee of the linear layers at achieved rates"),
        (knee.with_decoders_tokens, "knee with decoders", "where FLOPs equal weights and the decoders' keys and values"),
        (bounds.floor, "floor", "least budget by TTFT and load"),
        (bounds.cap or None, "cap", "largest budget within the TPOT target"),
    )
    named: dict[int, tuple[str, Kind, str]] = {}
    for budget, label, tip in formulas:
        if budget is not None:
            named[budget] = (f"{label} {budget:,}", "formula", tip)
    named |= {budget: (f"{budget:,}", "published", "published budget") for budget in PUBLISHED_BUDGETS}
    named[own] = (f"this replica's {own:,}", "own", "max_num_batched_tokens of this replica")
    return named


def budget_advice(case: Case, load: Load, bounds: BudgetBounds, found: Frontier | None) -> str:
    """Return what to set, and why the plan may say otherwise."""
    if found is not None and found.best is not None:
        if found.holding:
            other = beside_plan(case, found.best.budget, f"which budget leaves the most room at {rate(load.rate_rps)}")
            return (
                f"Set the budget that leaves both targets the most room, {found.best.budget:,}; measure again when prompts change. "
                f"{other}"
            )
        return "No budget is enough: lower the rate of each replica, or loosen the target that is missed"
    if bounds.cap:
        return f"Stay at or below the cap of {bounds.cap:,} tokens"
    return "Decode alone misses the TPOT target: fewer sequences, more tensor parallelism, or a looser target"


def budget_flag(case: Case, bounds: BudgetBounds, found: Frontier | None) -> str | None:
    """Return the flags; max_num_seqs may not exceed the budget."""
    budget = found.best.budget if found is not None and found.best is not None and found.holding else bounds.cap
    if not budget:
        return None
    seqs = min(case.limits.max_num_seqs, budget)
    return f"--max-num-batched-tokens {budget} --max-num-seqs {seqs}"
