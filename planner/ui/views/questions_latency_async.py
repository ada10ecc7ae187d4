"""What "Async scheduling" shows: rows of its charts and tables, and its sentences."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from planner.analysis.async_scheduling import SWITCHED_OFF, Overlap, mean_ttft_s, overlap, timeline, wasted_rows
from planner.analysis.async_scheduling_simulated import Sides, SimulatedOverlap
from planner.analysis.case import Case
from planner.engines import ENGINE_TITLES
from planner.ui.charts.base import Row
from planner.ui.charts.curves import Curve, Mark
from planner.ui.charts.lanes import Lanes
from planner.ui.colours import ACCENT, GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent, seconds, sentence
from planner.units import MS

_STEPS = 5
_GAP = 0.04
_WRITTEN = 0.12
_SERIAL, _OVERLAPPED = "without", "with overlap"
_COLOURS = {"host": HUES[4], "GPU": ACCENT}
_REACH = 3.0
_POINTS = 80
_RIGHT = 0.3


def lane_rows(sides: Sides) -> list[Row]:
    """Return when host and GPU work, without and with overlap."""
    rows: list[Row] = []
    for name, overlapped in ((_SERIAL, False), (_OVERLAPPED, True)):
        for span in timeline(sides.gpu_s, sides.host_s, _STEPS, overlapped=overlapped):
            length_s = span.to_s - span.from_s
            rows.append(
                {
                    "lane": f"{span.side}, {name}",
                    "start": span.from_s / MS,
                    "end": (span.to_s - _GAP * length_s) / MS,
                    "work": span.side,
                    "label": str(span.step) if length_s > _WRITTEN * (sides.gpu_s + sides.host_s) else "",
                    "what": f"step {span.step}",
                    "when": seconds(span.from_s),
                    "took": seconds(length_s),
                }
            )
    return rows


def lanes_of(rows: Sequence[Row]) -> Lanes:
    """Return the frame of the lanes."""
    order = [f"{side}, {name}" for name in (_SERIAL, _OVERLAPPED) for side in ("host", "GPU")]
    return Lanes(order, _COLOURS, "Time (ms)", max(row["end"] for row in rows))


def lanes_title(found: Overlap) -> str:
    """Return the finding of the timeline."""
    return f"The host prepares a step while the GPU works on the one before, so that one starts every {seconds(found.overlapped_s)}"


def gain_curves(sides: Sides, own: Sequence[tuple[str, float]]) -> Sequence[Curve]:
    """Return the gain in throughput by GPU step [ms], [%], for the host's time; own : name and GPU time of a step [s]."""
    reached = [sides.host_s, sides.gpu_s, *(gpu_s for _, gpu_s in own)]
    steps_s = np.geomspace(min(reached) / _REACH, max(reached) * _REACH, _POINTS)
    points = [(step_s / MS, 100.0 * (overlap(step_s, sides.host_s).gain - 1.0)) for step_s in steps_s.tolist()]
    return (Curve(f"host {seconds(sides.host_s)}", points, ACCENT, name_at=0.08, name_place="above left"),)


def gain_marks(found: Overlap, sides: Sides, own: Sequence[tuple[str, float]]) -> Sequence[Mark]:
    """Return the engine's own steps and the asked one; own : name and GPU time of a step [s]."""
    marks = []
    for name, gpu_s in own:
        gain = overlap(gpu_s, sides.host_s).gain - 1.0
        marks.append(Mark(gpu_s / MS, 100.0 * gain, name, GREY, "above right"))
    return [*marks, Mark(sides.gpu_s / MS, 100.0 * (found.gain - 1.0), f"+{percent(found.gain - 1.0)}", place="below left")]


def gain_title(found: Overlap, sides: Sides) -> str:
    """Return the finding of the chart."""
    if sides.host_s == 0.0:
        return "A host that takes no time leaves nothing to overlap"
    return f"Overlap serves {percent(found.gain - 1.0)} more here, and at most twice as much: where host and GPU take the same time"


def waste_curves(drafts: int, simulated: SimulatedOverlap | None) -> Sequence[Curve]:
    """Return rows computed in vain for each request by the share that ends at a stop token [%], and the simulated ends."""
    line = [(100.0 * share, wasted_rows(share, drafts)) for share in np.linspace(0.0, 1.0, 21).tolist()]
    curves = [Curve(f"1 + {drafts} rows" if drafts else "1 row", line, ACCENT, name_at=0.6, name_place="above left")]
    if simulated is not None:
        dots = [(0.0, simulated.overlapped.wasted_rows), (100.0, simulated.stopping.wasted_rows)]
        curves.append(Curve("simulated", dots, HUES[1], dots=True, name_at=0.0, name_place="above right"))
    return curves


def waste_marks(share: float, drafts: int) -> Sequence[Mark]:
    """Return the share asked for."""
    rows = wasted_rows(share, drafts)
    return (
        Mark(100.0 * share, rows, f"{percent(share)}: {figure(rows)}", place="above left" if share > _RIGHT else "below right"),
    )


def waste_title(share: float, drafts: int, output_tokens: float) -> str:
    """Return the finding of the chart."""
    rows = wasted_rows(share, drafts)
    of_all = f"{percent(rows / output_tokens)} of {figure(output_tokens)} output tokens"
    return f"Rows computed in vain: {figure(rows)} a request, {of_all}"


def async_rows(found: Overlap, sides: Sides, simulated: SimulatedOverlap | None, share: float, drafts: int) -> tuple[Beside, ...]:
    """Return the formula beside the simulated runs."""
    serial = None if simulated is None else simulated.serial
    overlapped = None if simulated is None else simulated.overlapped
    stopping = None if simulated is None else f"{figure(simulated.stopping.wasted_rows)} where all stop so, without drafts"
    return (
        Beside("Step without overlap", seconds(found.serial_s), None if serial is None else seconds(serial.step_s)),
        Beside("Step with overlap", seconds(found.overlapped_s), None if overlapped is None else seconds(overlapped.step_s)),
        Beside(
            "TTFT without overlap, mean",
            seconds(mean_ttft_s(sides.gpu_s, sides.host_s, overlapped=False)),
            None if serial is None else seconds(serial.ttft_s),
            "An arrival waits for half a step on average and then takes its own; the prompt fits one step and a step is always in "
            "progress.",
        ),
        Beside(
            "TTFT with overlap, mean",
            seconds(mean_ttft_s(sides.gpu_s, sides.host_s, overlapped=True)),
            None if overlapped is None else seconds(overlapped.ttft_s),
            "The step after the one in progress is decided already, so that the arrival starts one step later. An idle engine has "
            "no such step.",
        ),
        Beside(
            "Rows wasted by a request",
            figure(wasted_rows(share, drafts)),
            stopping,
            "The step after a stop token is decided already and holds the request's row and its drafts; an end at max_tokens is "
            "foreseen. A stop string is found later still, by the front end, and wastes one or two rows more.",
        ),
    )


def own_rows(simulated: SimulatedOverlap | None, case: Case) -> pd.DataFrame | None:
    """Return the case's own engine without and with overlap; None before it is simulated."""
    if simulated is None:
        return None
    without, overlapped = simulated.own_serial, simulated.own_overlapped
    return pd.DataFrame(
        {
            f"{case.label} at {figure(case.rate_rps)} req/s": ["p99 TTFT", "p99 TPOT"],
            "Without overlap": [seconds(without.ttft_p99_s), seconds(without.tpot_p99_s)],
            "With overlap": [seconds(overlapped.ttft_p99_s), seconds(overlapped.tpot_p99_s)],
        }
    )


def own_note(case: Case, own: Sides) -> str:
    """Return what the step model says of the case's host."""
    if own.host_s == 0.0:
        return "The host takes no time in this calibration, so that overlap gains nothing here and costs a step of TTFT."
    exposed_s = case.coefficients.exposed_host_s_per_sequence
    beyond = f" and {seconds(exposed_s)} a sequence that no scheduling hides" if exposed_s else ""
    return f"By its calibration the host takes {seconds(own.host_s)} of a step beside {seconds(own.gpu_s)} on the GPU{beyond}."


def switched_off() -> pd.DataFrame:
    """Return what runs without overlap, with where it was read, as Markdown."""
    return pd.DataFrame(
        {
            "Without overlap": [sentence(row.configuration) for row in SWITCHED_OFF],
            "Releases": [sentence(row.versions) for row in SWITCHED_OFF],
            "Source": [sentence(row.source.ref) for row in SWITCHED_OFF],
        }
    )


def origins() -> str:
    """Return how the rows of the table were read."""
    return (
        "Read on 30 November 2026: rows of vLLM 0.33, SGLang and TensorRT-LLM in their source, the others in release notes and in "
        "merged pull requests. Where a release isn't named the month of the merge is."
    )


def setting_text(case: Case) -> str:
    """Return whether this engine overlaps, and how to see it."""
    engine = case.deployment.engine
    state = "is on" if case.limits.async_scheduling else "is off"
    if engine.engine != "vllm":
        return f"{ENGINE_TITLES[engine.engine]} {engine.version} has an overlap scheduler of its own; here it {state}. Leave it on."
    return (
        f"Asynchronous scheduling {state} here, with vLLM {engine.version}; it is on by default from 0.14. The log says so at "
        "start, and why when it isn't. Turn it off only to compare, or where one of the configurations above gives wrong outputs."
    )


def flags(case: Case) -> str:
    """Return the flag, or the line to look for in the log."""
    if case.deployment.engine.engine != "vllm":
        return "--disable-overlap-schedule" if case.deployment.engine.engine == "sglang" else "disable_overlap_scheduler: true"
    return "--async-scheduling"


def async_why(found: Overlap, sides: Sides, share: float, drafts: int) -> Sequence[str]:
    """Return the derivation with the numbers put in."""
    gpu, host, overlapped = seconds(sides.gpu_s), seconds(sides.host_s), seconds(found.overlapped_s)
    without, with_overlap = (seconds(mean_ttft_s(sides.gpu_s, sides.host_s, overlapped=each)) for each in (False, True))
    return (
        f"step = max(GPU, host) = max({gpu}, {host}), without overlap {gpu} + {host} = {seconds(found.serial_s)}",
        f"gain = {seconds(found.serial_s)} / {overlapped} = {figure(found.gain)}",
        f"TTFT: (1/2 + 1) × {seconds(found.serial_s)} = {without} without, (1/2 + 1 + 1) × {overlapped} = {with_overlap} with",
        f"wasted rows = {figure(share)} × (1 + {drafts}) = {figure(wasted_rows(share, drafts))}",
    )


def caption(simulated: SimulatedOverlap, seed: int) -> str:
    """Return what was simulated."""
    return (
        f"{simulated.requests:,} requests of the workload (seed {seed}) on steps of exactly these times, about "
        f"{figure(simulated.sequences)} of them decoding; every output ending at max_tokens, then every one at a stop token. "
        "Drafts are not simulated here."
    )
