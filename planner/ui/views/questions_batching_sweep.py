"""What "Budget by load" shows: rows of its chart and table, and its sentences."""

from planner.analysis.budget_sweep import KNEE_SOURCE, Knee, Metric, Sweep, SweepPoint, bound_of
from planner.analysis.case import Case
from planner.ui import reading
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.colours import GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.views.questions_batching import beside_plan
from planner.ui.words import figure, percent, seconds

NAMES: dict[Metric, str] = {"ttft": "TTFT", "e2e": "E2E"}
BY_TARGETS = "by the targets"
BOUND_HELP = "By the targets: TTFT's own; for E2E what both targets allow a request of the p95 output"
_FAR = 20.0
_READ = reading.duration("s")


def bound(field: str, text: str) -> float | None:
    """Read a bound on the p95 [s]; None where the targets give it.

    >>> bound("p95", "by the targets"), bound("p95", "800 ms")
    (None, 0.8)
    """
    return None if text == BY_TARGETS else _READ(field, text)


def sweep_curves(found: Sweep, metric: Metric, knee: Knee) -> list[Curve]:
    """Return one curve for each budget: tokens a second over the p95, up to where the p95 runs off."""
    hues = (*HUES, GREY)
    curves = []
    for index, budget in enumerate(found.budgets):
        points = sorted((p.p95_s(metric), p.run.tokens_per_s) for p in found.of(budget) if _drawn(p, metric, knee))
        first_half = index < len(found.budgets) / 2
        curves.append(
            Curve(
                f"{budget:,}",
                points,
                hues[index % len(hues)],
                name_at=_name_at(index, len(found.budgets)),
                name_place="above left" if first_half else "below right",
            )
        )
    return curves


def sweep_marks(knee: Knee, metric: Metric) -> list[Mark]:
    """Return the knee, and the most tokens within the bound."""
    point = knee.point
    label = f"{'best' if knee.beyond else 'knee'}: {point.budget:,} at {percent(point.load)}"
    marks = [Mark(point.p95_s(metric), point.run.tokens_per_s, label, place="above left")]
    if knee.within is not None and knee.within != point:
        within = knee.within
        label = f"most within: {within.budget:,} at {percent(within.load)}"
        marks.append(Mark(within.p95_s(metric), within.run.tokens_per_s, label, GREY, "below right"))
    return marks


def sweep_rules(bound_s: float | None, metric: Metric) -> list[Rule]:
    """Return the bound on the p95, where there is one."""
    if bound_s is None:
        return []
    return [Rule("x", bound_s, f"p95 {NAMES[metric]} bound {seconds(bound_s)}")]


def sweep_title(found: Sweep, metric: Metric, knee: Knee) -> str:
    """Return the finding of the chart."""
    alike = [each for each in found.points if each.load == knee.point.load]
    least, most = min(alike, key=lambda p: p.p95_s(metric)), max(alike, key=lambda p: p.p95_s(metric))
    return (
        f"At {percent(knee.point.load)} of the saturating rate p95 {NAMES[metric]} is {seconds(least.p95_s(metric))} with budget "
        f"{least.budget:,} and {seconds(most.p95_s(metric))} with {most.budget:,}"
    )


def sweep_rows(found: Sweep, metric: Metric, knee: Knee) -> tuple[Beside, ...]:
    """Return the rule of thumb of a single-server queue beside the run."""
    within = knee.within
    return (
        Beside(
            "Load at the knee",
            percent(0.5),
            f"{'beyond ' if knee.beyond else ''}{percent(knee.point.load)}",
            "The formula is that of an M/M/1 queue, where power peaks at half load. An engine serves a batch: more load fills "
            "steps that run anyway, so that the knee comes later, and later still for TTFT, which doesn't see longer steps.",
        ),
        Beside(
            f"Most tokens/s with p95 {NAMES[metric]} within the bound",
            None,
            None
            if within is None
            else f"{figure(within.run.tokens_per_s)} at budget {within.budget:,}, {percent(within.load)} load",
        ),
        Beside("Rate that saturates this replica's own settings", None, f"{figure(found.saturated_rps)} req/s"),
    )


def sweep_caption(case: Case, found: Sweep) -> str:
    """Return what was simulated."""
    refused = f" Budgets {', '.join(f'{each:,}' for each in found.refused)} leave no memory to start." if found.refused else ""
    return (
        f"Simulated: {len(found.points)} runs of {found.requests:,} requests of {case.workload.name}, the same in each, seed "
        f"{case.seed}; load is the share of the rate that saturates this replica's own settings. max_num_seqs "
        f"{case.limits.max_num_seqs:,}, lowered to the budget where that is smaller.{refused}"
    )


def sweep_notes(knee: Knee, metric: Metric) -> list[str]:
    """Return what the rule means and where it comes from."""
    blind = (
        "TTFT alone doesn't see what a budget does to the tokens after the first: look at E2E too."
        if metric == "ttft"
        else "E2E holds TTFT and every step after it; one number for both."
    )
    good = percent(knee.point.run.good_share)
    return [
        f"Rule: the knee is the point with the largest power, throughput ÷ delay ({KNEE_SOURCE})",
        f"At the knee {good} of requests meet the scenario's own targets",
        blind,
        "Run the sweep again when the prompt lengths or the model change: both move the knee.",
    ]


def bound_note(case: Case, metric: Metric) -> list[str]:
    """Return how the bound on E2E follows from the targets; nothing for TTFT, which has a target of its own."""
    if metric == "ttft" or case.ttft_p99_s is None or case.tpot_p99_s is None:
        return []
    sides = f"TTFT {seconds(case.ttft_p99_s)} + TPOT {seconds(case.tpot_p99_s)} × ({figure(case.lengths.output_p95_tokens)} − 1)"
    return [f"Bound by the targets: {sides}, at the p95 of output tokens, = {seconds(bound_of(case, metric))}"]


def sweep_command(knee: Knee) -> str:
    """Return the flag, and the sweep on a real engine with vLLM's own tool."""
    budgets = ", ".join(f'{{"max_num_batched_tokens": {budget}}}' for budget in (512, 2048, 8192))
    return (
        f"--max-num-batched-tokens {knee.point.budget}\n"
        f"# the same sweep on the engine itself\necho '[{budgets}]' > serve.json\n"
        "vllm bench sweep serve_workload --serve-cmd 'vllm serve MODEL' --bench-cmd 'vllm bench serve' --serve-params serve.json "
        "--workload-var request_rate"
    )


def _drawn(point: SweepPoint, metric: Metric, knee: Knee) -> bool:
    return point.p95_s(metric) <= _FAR * knee.point.p95_s(metric)


def _name_at(index: int, count: int) -> float:
    return 1.0 - 0.8 * index / max(count - 1, 1)


def sweep_advice(case: Case, knee: Knee) -> str:
    """Return what to set, and why the plan may say otherwise."""
    point = knee.point
    if knee.beyond:
        return "Raise the highest load until the curves bend: at the loads tried more load still gains more than it delays"
    return (
        f"Set the budget of the knee and size the fleet so that a replica runs at about {percent(point.load)} of its saturating "
        f"rate, {figure(point.rate_rps)} requests/s. {beside_plan(case, point.budget, 'where throughput over delay is largest')}"
    )
