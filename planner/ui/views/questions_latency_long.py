"""What "A long prompt arrives" shows: rows of its charts and tables, and its sentences."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from planner.analysis.case import Case
from planner.analysis.long_prompt import LongPrompt
from planner.analysis.long_prompt_runs import Bar, Experiment, LongRun, SimulatedLongPrompt
from planner.ui.charts.base import Row
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.charts.lanes import Lanes
from planner.ui.colours import ACCENT, GREY, HUES, WARNING
from planner.ui.views.questions import Beside
from planner.ui.words import figure, plural, seconds
from planner.units import MS

BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)
THRESHOLDS = (128, 256, 512, 1024, 2048, 4096)
NO_THRESHOLD = "none"
TIMED = ("By formula (ms)", "Simulated (ms)")
_WORK_COLOURS = {"decode": ACCENT, "prefill chunk": HUES[4], "waiting": "#7A869266"}
_MOST_BARS = 160
_GAP = 0.06
_LINE = 50


def lane_rows(run: LongRun, decoders: int) -> list[Row]:
    """Return the bars of the lanes; neighbours of one kind are joined where there are too many to tell apart."""
    rows: list[Row] = []
    for lane, bars in groupby(sorted(run.bars, key=lambda bar: bar.lane), key=lambda bar: bar.lane):
        for bar, count in _joined(list(bars)):
            rows.append(_lane_row(_lane_name(lane, decoders), bar, count))
    return rows


def _joined(bars: list[Bar]) -> list[tuple[Bar, int]]:
    """Return bars with how many steps each stands for."""
    ordered = sorted(bars, key=lambda bar: bar.from_s)
    size = max(1, len(ordered) // _MOST_BARS)
    joined: list[tuple[Bar, int]] = []
    for _, group in groupby(ordered, key=lambda bar: bar.work):
        alike = list(group)
        for first in range(0, len(alike), size):
            part = alike[first : first + size]
            joined.append((part[0]._replace(to_s=part[-1].to_s), len(part)))
    return joined


def _lane_name(lane: str, decoders: int) -> str:
    return plural(decoders, "decoder") if lane == "decoders" else lane


def _lane_row(lane: str, bar: Bar, count: int) -> Row:
    waiting = bar.work == "waiting"
    steps = "" if count == 1 else f", {count} steps"
    trim = 0.0 if waiting else _GAP * (bar.to_s - bar.from_s)
    return {
        "lane": lane,
        "start": max(bar.from_s, 0.0),
        "end": bar.to_s - trim,
        "work": bar.work,
        "label": "",
        "what": "for its first step" if waiting else f"{figure(bar.tokens)} tokens{steps}",
        "when": seconds(bar.from_s),
        "took": seconds(bar.to_s - bar.from_s),
    }


def lanes_of(run: LongRun, decoders: int) -> Lanes:
    """Return the frame of the lanes."""
    arrivals = sorted({bar.lane for bar in run.bars if bar.lane.startswith("arrival")}, key=lambda lane: int(lane.split()[1]))
    order = [_lane_name("decoders", decoders), "long prompt", *arrivals]
    return Lanes(order, _WORK_COLOURS, "Time from the long prompt's first step (s)", max(bar.to_s for bar in run.bars))


def lanes_title(run: LongRun) -> str:
    """Return the finding of the timeline."""
    worst = run.worst_ttft_s
    first = f"{plural(len(run.chunks), 'step')} hold a chunk and take up to {seconds(run.itl_worst_s)}"
    return first if worst is None else f"{first}; new arrivals wait up to {seconds(worst)} for their first token"


def itl_curves(found: LongPrompt, run: SimulatedLongPrompt | None, asked: Experiment) -> Sequence[Curve]:
    """Return the step that each decoder waits for a token, over time, in ms: by formula, simulated, and under the other setting."""
    formula = [(row.end_s - row.step_s, row.step_s / MS) for row in found.steps]
    curves = [Curve("by formula", formula, GREY, dashed=True, name_at=0.4, name_place="below right")]
    if run is not None:
        for name, shown, colour in _both(run, asked):
            points = [(step.start_s, step.duration_s / MS) for step in shown.steps if step.start_s >= 0.0]
            last = max(shown.chunks[-1].start_s, 0.0)
            curves.append(
                Curve(name, [point for point in points if point[0] <= last], colour, name_at=0.6, name_place="above left")
            )
    return curves


def _both(run: SimulatedLongPrompt, asked: Experiment) -> Sequence[tuple[str, LongRun, str]]:
    whole = f"budget {asked.budget_tokens:,} alone"
    capped = f"threshold {run.threshold_tokens:,}"
    return ((whole, run.whole, WARNING), (capped, run.capped, HUES[2]))


def itl_rules(case: Case) -> Sequence[Rule]:
    """Return the TPOT target, which no single step has to meet but the mean of an answer's steps has."""
    return () if case.tpot_p99_s is None else (Rule("y", case.tpot_p99_s / MS, f"TPOT target {seconds(case.tpot_p99_s)}"),)


def itl_title(run: SimulatedLongPrompt | None, found: LongPrompt) -> str:
    """Return the finding of the chart."""
    if run is None:
        return f"By formula every decoder waits up to {seconds(found.itl_worst_s)} for a token"
    moves = "falls" if run.capped.itl_worst_s < run.whole.itl_worst_s else "goes"
    return (
        f"The worst step {moves} from {seconds(run.whole.itl_worst_s)} to {seconds(run.capped.itl_worst_s)} with a threshold of "
        f"{run.threshold_tokens:,} tokens"
    )


def ttft_curves(found: LongPrompt, run: SimulatedLongPrompt, asked: Experiment) -> Sequence[Curve]:
    """Return TTFT of new arrivals by when they come [s]; a line by formula: until the long prompt's prefill ends."""
    shown = [(name, each.arrivals, colour) for name, each, colour in _both(run, asked)]
    shown.append(("no long prompt", run.without, ACCENT))
    curves = [
        Curve(name, [(one.at_s, one.ttft_s) for one in arrivals], colour, dots=True, name_at=0.0, name_place="above right")
        for name, arrivals, colour in shown
    ]
    if found.lockout_s:
        line = [(found.lockout_s * share, found.lockout_s * (1.0 - share)) for share in (index / _LINE for index in range(_LINE))]
        curves.append(Curve("by formula", line, GREY, dashed=True, name_at=0.75, name_place="above right"))
    return curves


def ttft_rules(case: Case) -> Sequence[Rule]:
    """Return the TTFT target."""
    return () if case.ttft_p99_s is None else (Rule("y", case.ttft_p99_s, f"TTFT target {seconds(case.ttft_p99_s)}"),)


def ttft_title(run: SimulatedLongPrompt) -> str:
    """Return the finding of the chart."""
    whole, capped = (run.median_ttft_s(each.arrivals) for each in (run.whole, run.capped))
    return (
        f"Half of those who come meanwhile wait over {seconds(whole)}; with a threshold of {run.threshold_tokens:,} tokens over "
        f"{seconds(capped)}"
    )


def budget_curves(points: Sequence[tuple[int, LongPrompt]]) -> Sequence[Curve]:
    """Return worst step [ms] against the long prompt's TTFT [s] over budgets."""
    line = [(found.ttft_s, found.itl_worst_s / MS) for _, found in sorted(points, key=lambda pair: pair[1].ttft_s)]
    return (Curve("", line, ACCENT),)


def budget_marks(points: Sequence[tuple[int, LongPrompt]], found: LongPrompt, asked: Experiment) -> Sequence[Mark]:
    """Return the budgets with their numbers, and the asked setting in the colour of warnings."""
    capped = asked.threshold_tokens is not None
    marks = [
        Mark(each.ttft_s, each.itl_worst_s / MS, f"{budget:,}", WARNING if budget == asked.budget_tokens and not capped else ACCENT)
        for budget, each in points
    ]
    if capped:
        label = f"threshold {asked.threshold_tokens:,}"
        marks.append(Mark(found.ttft_s, found.itl_worst_s / MS, label, WARNING, "below left"))
    return marks


def budget_title(points: Sequence[tuple[int, LongPrompt]]) -> str:
    """Return the finding of the chart."""
    (low, small), (high, large) = points[0], points[-1]
    shorter, longer = figure(large.itl_worst_s / small.itl_worst_s), figure(small.ttft_s / large.ttft_s)
    ends = f"the long prompt takes {longer} times as long"
    return f"A budget of {low:,} instead of {high:,} tokens cuts the worst step {shorter} times; {ends}"


def long_rows(found: LongPrompt, run: SimulatedLongPrompt | None) -> tuple[Beside, ...]:
    """Return the formula beside the run without other arrivals, which is what the formula describes."""
    alone = None if run is None else run.alone
    asked = None if run is None else run.asked
    wait = None if asked is None else seconds(asked.worst_ttft_s)
    return (
        Beside(
            "Inter-token latency before",
            seconds(found.itl_before_s),
            _of(alone, "itl_before_s"),
            "The formula holds the decoders' contexts still; in the run they grow by a token a step.",
        ),
        Beside("Worst while it prefills", seconds(found.itl_worst_s), _of(alone, "itl_worst_s")),
        Beside("Steps with a chunk", f"{len(found.steps):,}", None if alone is None else f"{len(alone.chunks):,}"),
        Beside(
            "TTFT of the long prompt, from its first step",
            seconds(found.ttft_s),
            _of(alone, "ttft_s"),
            "An arrival first waits for the step in progress, and with asynchronous scheduling for the one decided after it.",
        ),
        Beside(
            "Longest wait of a new arrival",
            seconds(found.lockout_s) if found.lockout_s else "shares each step",
            wait,
            "The formula counts until the long prompt's last chunk. In the run those that gathered meanwhile also take steps, and "
            "the first of them share the last chunk's step.",
        ),
        Beside("Inter-token latency after", seconds(found.itl_after_s), _of(alone, "itl_after_s")),
    )


def _of(run: LongRun | None, figure_name: str) -> str | None:
    return None if run is None else seconds(getattr(run, figure_name))


def step_table(found: LongPrompt, run: SimulatedLongPrompt | None) -> pd.DataFrame:
    """Return each step of the prefill, by formula and simulated."""
    simulated = () if run is None else run.alone.chunks
    rows: list[dict[str, Any]] = []
    for index, row in enumerate(found.steps):
        step = simulated[index] if index < len(simulated) else None
        rows.append(
            {
                "Step": row.number,
                "Starts": seconds(row.end_s - row.step_s),
                "Chunk (tokens)": row.chunk_tokens,
                "Cached before (tokens)": row.past_tokens,
                "Decode rows": None if step is None else step.decode_rows,
                TIMED[0]: row.step_s / MS,
                TIMED[1]: None if step is None else step.duration_s / MS,
            }
        )
    return pd.DataFrame(rows)


def long_why(found: LongPrompt, asked: Experiment) -> Sequence[str]:
    """Return the derivation with the numbers put in."""
    worst = max(found.steps, key=lambda row: row.step_s)
    parts = "linear layers and attention of its chunk over the cached part"
    return (
        found.explanation.formula,
        f"step {worst.number}: decode {seconds(found.itl_before_s)} + {parts} = {seconds(worst.step_s)}",
        f"{len(found.steps):,} steps together = {seconds(found.ttft_s)}",
        f"the last one leaves {asked.budget_tokens:,} - decode rows - chunk = {figure(found.leftover_tokens)} tokens to an arrival",
    )


def flags(asked: Experiment, threshold: int, run: SimulatedLongPrompt | None) -> str:
    """Return the flags to copy, without a threshold that makes those who come meanwhile wait longer."""
    budget = f"--max-num-batched-tokens {asked.budget_tokens}"
    return budget if _threshold_delays(run) else f"{budget} --long-prefill-token-threshold {threshold}"


def setting_note(run: SimulatedLongPrompt | None) -> str:
    """Return what a threshold does, and that it doesn't help here where simulation says so."""
    if run is None:
        return SETTING_NOTE
    if not _threshold_delays(run):
        return f"Here: {ttft_title(run)[:1].lower()}{ttft_title(run)[1:]}. {SETTING_NOTE}"
    return f"Here leave the threshold out: with it half of those who come meanwhile wait longer. {SETTING_NOTE}"


def _threshold_delays(run: SimulatedLongPrompt | None) -> bool:
    if run is None:
        return False
    capped, whole = (run.median_ttft_s(each.arrivals) for each in (run.capped, run.whole))
    return capped is not None and whole is not None and capped > whole


def caption(run: SimulatedLongPrompt, asked: Experiment, seed: int) -> str:
    """Return what was simulated."""
    return (
        f"{len(run.whole.arrivals)} arrivals of the workload at {figure(asked.rate_rps)} a second after the long prompt, in "
        f"{plural(run.draws, 'draw')} (seeds from {seed}), the same ones under each setting; decoders start with contexts "
        "cached. The table of steps is without arrivals."
    )


SETTING_NOTE = (
    "vLLM gives a prefilling prompt all of the budget that decode leaves, and admits nobody behind it. A threshold caps each "
    "prompt's chunk so that others start beside it; since pull request 57951 (September 2026) a request that is alone ignores it. "
    "One deployment measured 18.0 s against 1.09 s for short prompts under a 60,000-token prefill, which took 6 % longer with a "
    "threshold of 2,048 (noonghunna/club-3090, issue 712)."
)
