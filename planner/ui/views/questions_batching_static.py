"""What "Why continuous?" shows: rows of its charts and table, and its sentences."""

from collections.abc import Sequence

from planner.analysis.batching import BatchingGain
from planner.analysis.batching_simulated import BATCHES, BothEngines, GainCurve, Outputs, SimulatedBatching
from planner.analysis.case import Case
from planner.ui.charts.curves import Curve, Mark, Place, Rule
from planner.ui.colours import ACCENT, GREY, HUES, WARNING
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent

_LARGE = BATCHES[-1]
_PLACES: dict[int, Place] = {3: "below left"}  # the last trace ends just under the exponential law


def static_setting(batch: int) -> str:
    """Return how to batch by length where an engine can't refill."""
    return (
        "waiting.sort(key=expected_output_tokens)  # like lengths together\n"
        f"batches = [waiting[i : i + {batch}] for i in range(0, len(waiting), {batch})]"
    )


def own_name(case: Case, outputs: Outputs) -> str:
    """Return what the case's curve is called."""
    return case.workload.name if outputs == "as recorded" else f"{outputs} outputs"


def gain_curves(own: GainCurve, traces: Sequence[GainCurve], exponential: GainCurve, run: SimulatedBatching | None) -> list[Curve]:
    """Return the gain by batch: the case's own first, real services beside it, the exponential law, simulated dots."""
    hues = [hue for hue in HUES if hue not in {ACCENT, WARNING}]
    curves = [
        Curve(trace.name, _floats(trace), hues[index % len(hues)], name_at=1.0, name_place=_PLACES.get(index, "above left"))
        for index, trace in enumerate(traces)
    ]
    if own.points != exponential.points:
        curves.append(Curve("exponential law", _floats(exponential), GREY, dashed=True, name_at=0.78, name_place="above left"))
    curves.append(Curve(own.name, _floats(own), ACCENT, name_at=1.0, name_place="below left"))
    if run is not None:
        dots = [(float(each.batch), each.row_gain) for each in run.by_batch]
        curves.append(Curve("", dots, WARNING, dots=True))
    return curves


def gain_title(own: GainCurve, traces: Sequence[GainCurve]) -> str:
    """Return the finding of the chart of gains."""
    most = max(traces, key=lambda trace: trace.points[-1][1])
    least = min(traces, key=lambda trace: trace.points[-1][1])
    return (
        f"In batches of {_LARGE} static batching computes {figure(least.points[-1][1])} ({least.name}) to "
        f"{figure(most.points[-1][1])} rows ({most.name}) for each that brings a token; {own.name}: {figure(own.points[-1][1])}"
    )


def gain_marks(batch: int, gain: BatchingGain) -> list[Mark]:
    """Return the chosen batch."""
    return [Mark(float(batch), gain.gain, f"{batch} in a batch: {gain.gain:.3f}×", place="below right")]


def throughput_curves(run: SimulatedBatching) -> list[Curve]:
    """Return tokens a second by batch of both engines."""
    static = [(float(each.batch), each.static_tokens_per_s) for each in run.by_batch]
    continuous = [(float(each.batch), each.continuous_tokens_per_s) for each in run.by_batch]
    return [
        Curve("continuous", continuous, ACCENT, name_at=0.7, name_place="above left"),
        Curve("static", static, WARNING, name_at=0.7, name_place="below right"),
    ]


def throughput_title(asked: BothEngines) -> str:
    """Return the finding of the chart of throughput."""
    return (
        f"On the same requests continuous batching makes {figure(asked.throughput_gain)} times the tokens a second at "
        f"{asked.batch} in a batch"
    )


def batch_rules(batch: int) -> list[Rule]:
    """Return the chosen batch as a rule."""
    return [Rule("x", float(batch), f"{batch} in a batch")]


def static_rows(gain: BatchingGain, run: SimulatedBatching | None) -> tuple[Beside, ...]:
    """Return the closed form beside the simulated engines."""
    asked = None if run is None else run.asked
    computed = None if asked is None else f"{asked.row_gain:.3f}×"
    idle = None if asked is None else percent(1.0 - 1.0 / asked.row_gain)
    steps = None if asked is None else f"{asked.step_gain:.3f}×"
    throughput = None if asked is None else f"{asked.throughput_gain:.3f}×"
    return (
        Beside(
            "Rows computed ÷ rows that bring a token",
            f"{gain.gain:.3f}×",
            computed,
            "The formula draws batches at random from the law; the run has one sample of it, so they differ by chance, and a batch "
            "that the KV cache can't hold as a rectangle is smaller.",
        ),
        Beside("Static rows that idle", percent(gain.wasted_share), idle),
        Beside(
            "Decode steps, static ÷ continuous",
            f"{gain.gain:.3f}×",
            steps,
            "A run ends: its last requests decode in a batch that isn't refilled, and each prompt's prefill takes steps in both "
            "engines, which the formula leaves out.",
        ),
        Beside(
            "Tokens/s, continuous ÷ static",
            f"{gain.gain:.3f}×",
            throughput,
            "The formula holds every step equally long. Here a step grows with its rows and their contexts; padded prompts make "
            "static prefill dearer, which adds to the gain, and full batches make continuous steps longer, which takes from it.",
        ),
    )


def static_why(gain: BatchingGain, outputs: Outputs, case: Case) -> tuple[list[str], list[str]]:
    """Return the formula with its numbers, and what it rests on."""
    formulas = [gain.explanation.formula, f"idle rows = 1 − 1/{gain.gain:.4g} = {percent(gain.wasted_share)}"]
    law = {
        "as recorded": f"Outputs as recorded: {case.workload.name}, mean {case.lengths.output_mean_tokens:,.0f} tokens; E[longest "
        "of B] is exact from the law, P(longest ≤ v) = F(v)^B.",
        "exponential": "Exponential outputs: the longest of B waits for B, then B − 1, … to end: the harmonic number, whatever the "
        "mean.",
        "constant": "Constant outputs: all end together, so that nothing idles and nothing is gained.",
    }[outputs]
    curves = "The curves of real services are exact over the rows, or over the published histogram, of the shipped traces."
    return formulas, [law, curves]


def static_caption(case: Case, run: SimulatedBatching) -> str:
    """Return what was simulated."""
    dropped = f"; {run.dropped:,} too long for the engine left out" if run.dropped else ""
    return (
        f"Simulated: {run.requests:,} requests, all waiting at the start, seed {case.seed}{dropped}. The static engine pads to the "
        "longest prompt and computes every row until its batch ends. Orange dots: rows computed ÷ useful rows in these runs."
    )


def _floats(curve: GainCurve) -> list[tuple[float, float]]:
    return [(float(batch), gain) for batch, gain in curve.points]
