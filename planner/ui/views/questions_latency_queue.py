"""What "Why does TTFT shoot up?" shows: rows of its chart and table, and its sentences."""

from collections.abc import Mapping, Sequence

from planner.analysis.case import Case
from planner.analysis.queue_departures import Departure, Departures, Step, same_tail, shown_points
from planner.analysis.queue_model import PlannedUtilisation, TailCurve
from planner.exporters.alerts import prefill_alert, rules_file
from planner.ui.charts.curves import Curve, Mark, Place, Rule
from planner.ui.colours import ACCENT, GREY, HUES, WARNING
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent, seconds

SHOWN_TARGETS = 12.0
_NAMES: Mapping[Step, str] = {
    "queue": "one prompt at a time",
    "batched service": "+ batched service",
    "decode interference": "+ decode",
    "KV admission": "+ KV admission",
    "arrivals and caching": "+ arrivals, caching",
}
_COLOURS: Mapping[Step, str] = {
    "queue": HUES[5],
    "batched service": HUES[2],
    "decode interference": WARNING,
    "KV admission": HUES[3],
    "arrivals and caching": HUES[4],
}
_NAME_ENDS = ("decode interference", "KV admission", "arrivals and caching")
_RIGHT_EDGE = 75.0


def tail_curves(formula: TailCurve, found: Departures | None, case: Case) -> Sequence[Curve]:
    """Return p99 TTFT by utilisation: both formulas, and the engine with each departure that changes anything."""
    most_s = SHOWN_TARGETS * float(case.ttft_p99_s or 0.0)

    def shown(values_s: Sequence[float]) -> list[tuple[float, float]]:
        pairs = zip(formula.utilisation.tolist(), values_s, strict=True)
        return [(100.0 * rho, value + case.request_s) for rho, value in pairs if value + case.request_s <= most_s]

    curves = [
        Curve("M/M/1", shown(formula.exponential_s.tolist()), GREY, dashed=True, name_at=0.98, name_place="above left"),
        Curve("M/G/1", shown(formula.general_s.tolist()), ACCENT, dashed=True, name_at=0.72, name_place="below right"),
    ]
    for departure in () if found is None else _changing(found):
        points = [(100.0 * rho, value) for rho, value in shown_points(departure.points, most_s)]
        at, place = _name_place(departure.step, points)
        curves.append(Curve(_NAMES[departure.step], points, _COLOURS[departure.step], name_at=at, name_place=place))
    return curves


def _name_place(step: Step, points: Sequence[tuple[float, float]]) -> tuple[float, Place]:
    """Return where a curve's name stands: at its end where it ends early, where the curves lie apart, else along it."""
    if step in _NAME_ENDS:
        return 1.0, "above right" if points and points[-1][0] < _RIGHT_EDGE else "above left"
    return (0.05, "below right") if step == "queue" else (0.6, "above left")


def _changing(found: Departures) -> Sequence[Departure]:
    """Return the departures whose tail differs from that of the one before."""
    kept = [found.departures[0]]
    kept += [after for before, after in zip(found.departures, found.departures[1:], strict=False) if not same_tail(before, after)]
    return kept


def tail_rules(target_s: float) -> Sequence[Rule]:
    """Return the target."""
    return (Rule("y", target_s, f"target {seconds(target_s)}"),)


def tail_marks(found: Departures | None, formula: PlannedUtilisation) -> Sequence[Mark]:
    """Return the utilisation to plan for."""
    if found is None:
        if formula.general is None:
            return ()
        return (Mark(100.0 * formula.general, formula.target_s, f"M/G/1: {percent(formula.general)}"),)
    planned = found.whole.planned
    if planned is None:
        return ()
    return (Mark(100.0 * planned, found.target_s, f"plan for {percent(planned)}", place="below right"),)


def tail_title(found: Departures | None, formula: PlannedUtilisation) -> str:
    """Return the finding of the chart."""
    if found is None:
        alone = "no load meets the target" if formula.general is None else f"the target is met up to {percent(formula.general)}"
        return f"By the queue's formula {alone}"
    if found.whole.planned is None:
        return "No load meets the target on this engine"
    costs = _largest_cost(found)
    return f"The engine meets the target up to {percent(found.whole.planned)} utilisation of prefill; {costs}"


def _largest_cost(found: Departures) -> str:
    """Return which departure costs the most utilisation."""
    losses = [
        (before.planned - after.planned, after.step)
        for before, after in zip(found.departures, found.departures[1:], strict=False)
        if before.planned is not None and after.planned is not None
    ]
    worst = max(losses, default=(0.0, "queue"))
    return f"{worst[1]} costs {figure(100.0 * worst[0])} points of it" if worst[0] > 0.01 else "no departure costs much of it"


def queue_rows(found: Departures | None, formula: PlannedUtilisation, case: Case) -> tuple[Beside, ...]:
    """Return the utilisations to plan for, by formula and simulated, departure by departure."""
    departures: Mapping[Step, Departure] = {} if found is None else {each.step: each for each in found.departures}

    def planned(step: Step) -> str | None:
        return None if step not in departures else share(departures[step].planned)

    wait = None if found is None else seconds(found.mean_wait_s)
    wait_formula = None if found is None else seconds(found.formula_wait_s)
    at = "" if found is None else f" at {percent(found.reference)}"
    return (
        Beside(f"Mean wait of the queue{at}", wait_formula, wait, "Pollaczek and Khinchine's mean is exact for Poisson arrivals."),
        Beside(
            "Utilisation, exponential prefill (M/M/1)",
            share(formula.exponential),
            None,
            "The tail of M/M/1 is exact, its service isn't.",
        ),
        Beside(
            "Utilisation, one prompt at a time (M/G/1)",
            share(formula.general),
            planned("queue"),
            "The formula has the right mean wait and an exponential tail: a single long prompt makes the tail longer where prompts "
            "are mixed, equal prompts make it shorter.",
        ),
        Beside("Utilisation, with batched service", None, planned("batched service"), _batched(case)),
        Beside("Utilisation, with decode", None, planned("decode interference"), _decode()),
        Beside("Utilisation, with KV admission", None, planned("KV admission"), _kv(departures.get("KV admission"))),
        Beside("Utilisation, with arrivals and caching", None, planned("arrivals and caching"), _arrivals(departures)),
    )


def _batched(case: Case) -> str:
    return (
        f"Prompts share steps of {case.limits.max_num_batched_tokens:,} tokens: a short one ends with the long one beside it, and "
        "every chunk pays for reading the weights."
    )


def _decode() -> str:
    return (
        "Every step also decodes what runs: a prompt's GPU time is not its own, so that the engine is full below 100 % of prefill."
    )


def _kv(found: Departure | None) -> str:
    if found is None:
        return "A prompt waits until the cache holds all of it."
    use = f"At most {percent(found.peak_kv_share)} of the cache is used"
    refused = f"; {found.rejected:,} requests never fit" if found.rejected else ""
    if found.preemptions:
        return f"{use}, with {found.preemptions:,} preemptions{refused}."
    return f"{use}, nothing is preempted{refused}."


def _arrivals(departures: Mapping[Step, Departure]) -> str:
    before, after = departures.get("KV admission"), departures.get("arrivals and caching")
    if before is not None and after is not None and same_tail(before, after):
        return "Nothing changes: arrivals are Poisson and no prompt is cached. Choose others above."
    return "Bursts lengthen the queue; a cached prefix shortens every prefill, while utilisation still counts the whole prompt."


def share(value: float | None) -> str:
    """Return a utilisation, or that none will do."""
    return "none" if value is None else percent(value)


def queue_why(formula: PlannedUtilisation, outside_s: float) -> Sequence[str]:
    """Return the derivation with the numbers put in; outside_s : of TTFT, spent outside the engine [s]."""
    mean, general = formula.service, formula.general
    outside = f" − {seconds(outside_s)} outside the engine" if outside_s else ""
    lines = [
        f"prefill alone: mean S = {seconds(mean.mean_s)}, squared CV c² = {figure(mean.cv2)}; utilisation = rate × S",
        f"p99 of M/G/1 = ln(100) × S × (1 + c²) / (2 × (1 - utilisation)) ≤ {seconds(formula.target_s)}{outside}",
        f"utilisation ≤ {formula.explanation.formula} = {share(general)}",
    ]
    if general is not None:
        lines.append(f"rate = {figure(general)} / {seconds(mean.mean_s)} = {figure(general / mean.mean_s)} requests/s")
    return lines


def alert(found: Departures) -> str | None:
    """Return the Prometheus rule that says when to scale out; None where no load meets the target."""
    tokens_per_s = found.planned_prompt_tokens_per_s
    return None if tokens_per_s is None else rules_file([prefill_alert(tokens_per_s, found.target_s)])


def caption(count: int, seed: int) -> str:
    """Return what was simulated."""
    return (
        f"Simulated with {count:,} requests at each utilisation, the same ones at each (seed {seed}), the first tenth left out. "
        "Curves end where the engine doesn't keep up. The first two have one output token a request, so that nothing decodes."
    )
