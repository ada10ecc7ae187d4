"""Token budgets against loads: tokens a second over a latency, and the knee by a stated rule."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.served import Served, saturated_rps, serve, with_knobs
from planner.parallel import in_parallel
from planner.units import duration, percentage

Metric = Literal["ttft", "e2e"]

BUDGETS = (256, 512, 1024, 2048, 4096, 8192)
LOADS = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
KNEE_SOURCE = "Kleinrock, “Power and deterministic rules of thumb for probabilistic problems in computer communications”, ICC 1979"


class SweepPoint(NamedTuple):
    """One budget [token] at one rate [request/s]; load : over the rate that saturates the case's own settings [1]."""

    budget: int
    load: float
    rate_rps: float
    run: Served

    def p95_s(self, metric: Metric) -> float:
        """Return the 95th percentile of a metric [s]."""
        return self.run.ttft_p95_s if metric == "ttft" else self.run.e2e_p95_s

    def power(self, metric: Metric) -> float:
        """Return output tokens a second over the 95th percentile, Kleinrock's power [token/s²]."""
        return self.run.tokens_per_s / self.p95_s(metric)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Budgets × loads on the same requests.

    points : by budget, then by load; refused : budgets with which the engine would not start
    saturated_rps : rate that saturates the case's own settings, which loads are shares of [request/s]
    requests : served in each run
    """

    points: tuple[SweepPoint, ...]
    refused: tuple[int, ...]
    saturated_rps: float
    requests: int

    def of(self, budget: int) -> tuple[SweepPoint, ...]:
        """Return the points of one budget, by load."""
        return tuple(point for point in self.points if point.budget == budget)

    @property
    def budgets(self) -> tuple[int, ...]:
        """Budgets that ran."""
        return tuple(sorted({point.budget for point in self.points}))


def sweep(case: Case, count: int, highest_load: float = 1.0) -> Sweep | None:
    """Serve the same requests under each budget at each load; None when nothing gets through the engine.

    count : requests of each run; highest_load : the last load, the others in proportion [1]
    """
    saturated = saturated_rps(case)
    if saturated is None:
        return None
    requests = case.requests(count, 1.0)
    engines = {budget: with_knobs(case, case.limits.max_num_seqs, budget) for budget in _budgets(case)}

    def one(cell: tuple[int, float]) -> SweepPoint | None:
        budget, load = cell
        engine = engines[budget]
        assert engine is not None
        rate = load * saturated
        run = serve(engine, replace(requests, arrival_s=requests.arrival_s / rate), case.targets)
        return None if run is None else SweepPoint(budget, load, rate, run)

    cells = [(budget, load * highest_load) for budget, engine in engines.items() if engine is not None for load in LOADS]
    points = tuple(point for point in in_parallel(one, cells) if point is not None)
    refused = tuple(budget for budget, engine in engines.items() if engine is None)
    return Sweep(points, refused, saturated, count) if points else None


def _budgets(case: Case) -> tuple[int, ...]:
    return tuple(sorted({*BUDGETS, case.limits.max_num_batched_tokens}))


@dataclass(frozen=True, slots=True)
class Knee:
    """Where the sweep bends, by the rule.

    point : the largest tokens/s ÷ p95 of all budgets and loads; within : the largest tokens/s whose p95 meets a bound, None where
    none does or no bound was given; beyond : the point has the highest load tried, so that the knee itself may lie further
    """

    point: SweepPoint
    within: SweepPoint | None
    beyond: bool
    explanation: Explanation


def knee_of(found: Sweep, metric: Metric, bound_s: float | None) -> Knee:
    """Return the knee: the point with the largest power, tokens/s ÷ p95.

    bound_s : on the p95 [s]. Below the knee a further request adds more throughput than delay, in proportion; past it, less. In an
    M/M/1 queue the power peaks at half load.
    """
    point = max(found.points, key=lambda each: each.power(metric))
    met = [each for each in found.points if bound_s is not None and each.p95_s(metric) <= bound_s]
    within = max(met, key=lambda each: each.run.tokens_per_s, default=None)
    name = "TTFT" if metric == "ttft" else "E2E"
    p95_s = point.p95_s(metric)
    beyond = min(each.load for each in found.points) < point.load == max(each.load for each in found.points)
    lies = "The knee lies beyond the highest load tried; best there is" if beyond else "The knee lies at"
    explanation = Explanation(
        f"{lies} budget {point.budget:,}{', at' if beyond else ' and'} {percentage(point.load)} of the saturating rate: "
        f"{point.run.tokens_per_s:,.0f} output tokens/s at p95 {name} {duration(p95_s)}",
        f"power = tokens/s ÷ p95 {name} = {point.run.tokens_per_s:,.0f} / {p95_s:.3g} s = {point.power(metric):,.0f} tokens/s²: "
        f"the largest of {len(found.points)} simulated points",
        f"--max-num-batched-tokens {point.budget}",
    )
    return Knee(point, within, beyond, explanation)


def bound_of(case: Case, metric: Metric) -> float | None:
    """Return what the targets allow a request's p95 [s]: TTFT's own; for E2E both, at the p95 output; None without targets."""
    if case.ttft_p99_s is None or metric == "ttft":
        return case.ttft_p99_s
    return None if case.tpot_p99_s is None else case.ttft_p99_s + case.tpot_p99_s * max(case.lengths.output_p95_tokens - 1.0, 0.0)
