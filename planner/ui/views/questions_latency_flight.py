"""What "How many are in flight?" shows: rows of its charts and table, and its sentences."""

from collections.abc import Callable, Sequence

from planner.analysis.case import Case
from planner.analysis.littles_law import InFlight, Stream, duration_s
from planner.analysis.littles_law_simulated import LongerOutputs, SimulatedFlight, most_in_flight, peak_of
from planner.simulator import Estimate
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.colours import ACCENT, GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent, seconds, span
from planner.units import GB

_POINTS = 60
_REACH = 2.2
_SHOWN_FACTOR = 1.6
_FEW = 8
_PAST_CACHE = 2.0
_NEARLY = 0.99


def flight_curves(case: Case, stream: Stream, found: InFlight) -> Sequence[Curve]:
    """Return the two sides of N = rate × duration(N) over N; they cross where the engine settles, or never."""
    last = _REACH * (found.in_flight or float(case.limits.max_num_seqs))
    numbers = [last * index / _POINTS for index in range(_POINTS + 1)]
    sides = [(n, stream.rate_rps * duration_s(max(n, 1e-3), stream, case.coefficients)) for n in numbers]
    return (
        Curve("N itself", [(n, n) for n in numbers], GREY, name_at=0.97, name_place="above left"),
        Curve("rate × time in the engine at N", sides, ACCENT, name_at=0.72, name_place="below right"),
    )


def flight_marks(found: InFlight) -> Sequence[Mark]:
    """Return the crossing."""
    if found.in_flight is None:
        return ()
    return (Mark(found.in_flight, found.in_flight, f"settles at {figure(found.in_flight)}", place="above left"),)


def flight_title(found: InFlight, run: SimulatedFlight | None = None) -> str:
    """Return the finding of the chart; run : simulated, where it is there."""
    if found.in_flight is None:
        return "The curves never cross: at this rate the engine can't keep up"
    crossing = f"The curves cross at {figure(found.in_flight)} requests in flight"
    if run is not None and not run.stable:
        return f"{crossing} if prefills slow no one else; with them the engine doesn't keep up, and the queue grows"
    return crossing


def longer_curves(longer: LongerOutputs, simulated: SimulatedFlight | None) -> Sequence[Curve]:
    """Return the number in flight by output, what the KV cache holds where that is near, and simulated runs."""
    numbers = [
        (point.output_tokens, point.in_flight)
        for point in longer.points
        if point.in_flight is not None and point.in_flight <= _PAST_CACHE * point.held
    ]
    most = _SHOWN_FACTOR * max([number for _, number in numbers], default=0.0)
    held = [(point.output_tokens, point.held) for point in longer.points if point.held <= most]
    curves = [Curve("in flight, by formula", numbers, ACCENT, name_at=0.75, name_place="below right")]
    if len(held) > _FEW:
        curves.append(Curve("the KV cache holds", held, GREY, name_at=0.0, name_place="below right"))
    if simulated is not None:
        dots = [(output, run.in_flight) for output, run in simulated.by_output if run.stable]
        curves.append(Curve("simulated", dots, HUES[1], dots=True, name_at=1.0, name_place="above right"))
    return curves


def longer_rules(case: Case, longer: LongerOutputs, stream: Stream) -> Sequence[Rule]:
    """Return the output now, and max_num_seqs where it is near."""
    rules = [Rule("x", stream.output_tokens, f"now: {figure(stream.output_tokens)} tokens")]
    highest = max([point.in_flight for point in longer.points if point.in_flight is not None], default=0.0)
    if case.limits.max_num_seqs <= _SHOWN_FACTOR * highest:
        rules.append(Rule("y", float(case.limits.max_num_seqs), f"max_num_seqs {case.limits.max_num_seqs:,}"))
    return rules


def longer_title(longer: LongerOutputs) -> str:
    """Return the finding of the chart."""
    if longer.ends_tokens is None and not longer.points:
        return "Even the shortest outputs have no steady state at this rate"
    ends, holds = longer.ends_tokens, longer.holds_tokens
    if holds is not None and (ends is None or holds < ends * _NEARLY):
        last = f"past {figure(holds)} tokens of output the KV cache doesn't hold them"
    elif ends is not None:
        last = f"past {figure(ends)} tokens of output nothing settles"
    else:
        last = "there is a steady state for every output"
    if longer.growth is None:
        return f"Longer outputs end the steady state: {last}"
    return f"By formula twice the output puts {figure(longer.growth)} times as many in flight; {last}"


def flight_rows(found: InFlight, prefills: float | None, simulated: SimulatedFlight | None) -> tuple[Beside, ...]:
    """Return the fixed point beside the simulated runs; prefills : in flight with the others' prefills counted."""
    run = None if simulated is None or not simulated.stable else simulated
    number = None if run is None else with_interval(run.in_flight)
    if simulated is not None and run is None:
        number = "grows with the run"
    law = None if run is None else f"within {percent(max(run.law_gap, 1e-6))}"
    dispersion = "" if run is None else f" Here the variance is {figure(run.dispersion)} × the mean."
    return (
        Beside(
            "In flight",
            written(found.in_flight),
            number,
            "The formula lets a prefill slow no one else, so that it is too low under load.",
        ),
        Beside(
            "In flight, prefills counted",
            written(prefills),
            number,
            "The mean-field model of the engine lengthens everyone's steps by the prompts that join them.",
        ),
        Beside(
            "Time in the engine",
            None if found.duration_s is None else seconds(found.duration_s),
            None if run is None else with_interval(run.duration_s, seconds),
        ),
        Beside(
            "In flight = rate × time",
            "exact",
            law,
            "Little's law holds in every run, whatever the lengths, the arrivals or the order of service.",
        ),
        Beside(
            "In flight in 99 % of the time, at most",
            None if found.in_flight is None else figure(most_in_flight(found.in_flight)),
            None if run is None else figure(run.most),
            "Stays that don't depend on each other are Poisson in number, with variance equal to the mean. On an engine more in "
            f"flight slow each other.{dispersion}",
        ),
        Beside(
            "Keys and values",
            None if found.kv_bytes is None else f"{figure(found.kv_bytes / GB)} GB",
            None if run is None else f"{figure(run.kv_bytes / GB)} GB",
        ),
    )


def flight_why(case: Case, stream: Stream, found: InFlight) -> Sequence[str]:
    """Return the derivation with the numbers put in."""
    formulas = [f"N = rate × (prefill + output × step(N)) = {found.explanation.formula}"]
    if found.in_flight is not None and found.kv_bytes is not None:
        context = stream.running_context_tokens
        formulas.append(
            f"KV = N × E[output × (prompt + output / 2)] / E[output] × bytes a token = {figure(found.in_flight)} × "
            f"{figure(context)} × {case.kv_bytes_per_token_at(context):,.0f} B = {figure(found.kv_bytes / GB)} GB"
        )
    return formulas


def flight_setting(case: Case, found: InFlight, simulated: SimulatedFlight | None) -> str | None:
    """Return the flag to copy: the case's own where it has room for the swings, which are simulated where that is known."""
    if found.in_flight is None or (simulated is not None and not simulated.stable):
        return None
    most = most_in_flight(found.in_flight) if simulated is None else peak_of(simulated)
    return f"--max-num-seqs {max(most, case.limits.max_num_seqs)}"


def written(value: float | None) -> str | None:
    """Return a figure, None for none."""
    return None if value is None else figure(value)


def with_interval(estimate: Estimate, form: Callable[[float], str] = figure) -> str:
    """Return an estimate with its interval, each end written by `form`."""
    if estimate.low is None or estimate.high is None:
        return form(estimate.value)
    return f"{form(estimate.value)} ({span(form(estimate.low), form(estimate.high))})"


def flight_caption(run: SimulatedFlight, count: int, seed: int) -> str:
    """Return what was simulated."""
    refused = sum(one.rejected for one in run.runs)
    left_out = f" {refused:,} requests never fit the KV cache and were refused." if refused else ""
    return (
        f"{len(run.runs)} runs of {count:,} requests, seeds {seed} to {seed + len(run.runs) - 1}, the workload's own lengths "
        f"stretched to these means; intervals are of 95 %. Other outputs: one run each.{left_out}"
    )
