"""The view on preemption: compute a context again, or copy it to the host and back."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.preemption import Copies, swap_or_recompute
from planner.analysis.preemption_simulated import (
    TightRun,
    block_copy_bytes,
    layout_points,
    own_path,
    peak_kv_tokens,
    recompute_measured_s,
    restore_curve,
    tight_runs,
    tight_sizes,
)
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves, tall_curves
from planner.ui.charts.sharing import dots
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_overload_restore as words
from planner.ui.views.question_inputs import Asked, Input
from planner.units import GB, KIB, US

_REQUESTS = 3000
_TEXTBOOK_CONTEXT = 2048
_CONTEXT_AXES = Axis("Context (tokens)", log=True), Axis("Time (ms)", log=True)
_COPY_AXES = Axis("One copy (KiB)", log=True), Axis("Rate (GB/s)", log=True)
_TIGHT_AXES = Axis("KV cache (tokens)", log=False), Axis("Tokens computed twice (%)", log=False)


class Tight(NamedTuple):
    """Runs on small caches, and the time of one recompute on an idle engine [s]."""

    runs: list[TightRun]
    recompute_s: float | None


def _inputs(case: Case) -> Sequence[Input]:
    context = _TEXTBOOK_CONTEXT if case.textbook else round(max(case.context_tokens, 1.0))
    part, block = block_copy_bytes(case) / KIB, case.limits.block_size * case.kv_bytes_per_token / KIB
    copied = f"{part:.4g} KiB are one block's keys, or values, of one layer; {block:.4g} KiB are a block of all layers"
    size = part if case.textbook else block
    return (
        Input("context", "Context (tokens)", f"{context}", reading.whole, low=1, high=1e7),
        Input("cached", "In the prefix cache", "0 %", reading.share, low=0.0, high=0.99),
        Input("rate", "Host link, one way (GB/s)", f"{own_path(case).bytes_per_s / GB:.4g}", low=0.1, high=2000),
        Input("copy", "Size of a copy (KiB)", f"{size:.4g}", low=1, high=1e7, help=copied),
        Input("latency", "Latency of a copy (µs)", f"{words.LATENCY_US:g}", low=0, high=1e4),
        Input("kv", "KV cache, share of the need", "70 %", reading.share, low=0.4, high=1.0),
    )


def _draw(case: Case, asked: Asked) -> None:
    copies = Copies(asked.number("rate") * GB, asked.number("copy") * KIB, asked.number("latency") * US)
    context, cached, share = asked.number("context"), asked.number("cached"), asked.number("kv")
    each = case.kv_bytes_per_token_at(context)
    found = swap_or_recompute(context, each, copies, case.coefficients, cached * context)
    say(Explanation(words.restore_answer(found, context, copies), "", ""))
    points = restore_curve(case, copies, cached, max(8.0 * context, 32_768.0))
    marks = words.context_marks(found, context)
    chart = curves(words.context_title(points), _CONTEXT_AXES, words.context_curves(points, copies), marks=marks)
    show(chart, "chart-q-restore-context")
    title, drawn = words.copy_title(found, copies), words.copy_curves(copies)
    show(tall_curves(title, _COPY_AXES, drawn, words.copy_rules(found), words.copy_marks(copies)), "chart-q-restore-copy")
    layouts = layout_points(case)
    quantity = "Break-even, both ways (GB/s)"
    drawn_dots = words.layout_dots(layouts, copies)
    show(dots(words.layout_title(layouts), quantity, drawn_dots, words.layout_rule(copies)), "chart-q-restore-layouts")

    def work(tell: Tell) -> Tight:
        tell(f"Serving {_REQUESTS:,} requests on smaller caches", 0.2)
        sizes = tight_sizes(peak_kv_tokens(case, _REQUESTS, case.rate_rps))
        return Tight(tight_runs(case, _REQUESTS, case.rate_rps, sizes), recompute_measured_s(case, asked.whole("context")))

    tight = simulated("restore", case, asked, work)
    runs = None if tight is None else tight.runs
    if runs is not None:
        marks = words.tight_marks(runs, share)
        show(curves(words.tight_title(runs, share), _TIGHT_AXES, words.tight_curves(runs), marks=marks), "chart-q-restore-tight")
    measured_s = None if tight is None else tight.recompute_s
    beside(words.restore_rows(case, found, measured_s, runs, share), "A preemption by formula and simulated")
    whole = swap_or_recompute(context, each, Copies(copies.bytes_per_s), case.coefficients, cached * context)
    why(words.restore_formulas(each, found, whole, copies), words.restore_notes(case, own_path(case), runs, case.rate_rps))
    setting(words.restore_setting(found, runs, share), words.restore_code(found))


VIEW = View("restore", "Swap or recompute?", _inputs, _draw)
