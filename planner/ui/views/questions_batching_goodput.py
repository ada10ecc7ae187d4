"""What "Goodput" shows: rows of its charts and table, and its sentences."""

from collections.abc import Sequence

import numpy as np

from planner.analysis.case import Case
from planner.analysis.goodput import BestBatch, compare_batches, goodput_curve
from planner.analysis.goodput_simulated import Promise, RateCurve, SimulatedGoodput
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.colours import ACCENT, GREY, HUES, WARNING
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent, rate, seconds
from planner.units import MS, percentage

_POINTS = 70
_REACH = 2.0
_LEAST_REACH = 64
_SMALL = 0.01


def formula_curves(case: Case, promise: Promise, best: BestBatch) -> list[Curve]:
    """Return tokens a second of decode alone by batch, and what of it counts."""
    last = max(_REACH * best.batch, _LEAST_REACH)
    batches = sorted({*map(float, np.unique(np.rint(np.linspace(1.0, last, _POINTS)))), float(max(best.batch, 1))})
    found = goodput_curve(batches, promise.context_tokens, promise.tpot_s, case.coefficients)
    everything = list(zip(batches, found.tokens_per_s.tolist(), strict=True))
    good = list(zip(batches, found.goodput_tokens_per_s.tolist(), strict=True))
    return [
        Curve("tokens/s", everything, GREY, name_at=0.85, name_place="below right"),
        Curve("goodput", good, ACCENT, name_at=0.3, name_place="above left"),
    ]


def formula_marks(best: BestBatch) -> list[Mark]:
    """Return the best batch."""
    return (
        [Mark(float(best.batch), best.batch / best.step_s, f"{best.batch}: the best batch", place="above left")]
        if best.batch
        else []
    )


def formula_title(promise: Promise, best: BestBatch) -> str:
    """Return the finding of the formula's chart."""
    if not best.batch:
        return f"By decode alone one sequence already misses {seconds(promise.tpot_s)}"
    if not best.binds:
        return f"By decode alone every batch that the KV cache holds meets {seconds(promise.tpot_s)}"
    return f"By decode alone goodput drops to zero past {best.batch} sequences, while tokens/s go on rising"


def batch_curves(found: SimulatedGoodput) -> list[Curve]:
    """Return simulated tokens a second and goodput by batch."""
    everything = [(float(point.batch), point.run.tokens_per_s) for point in found.by_batch]
    good = [(float(point.batch), point.good_tokens_per_s) for point in found.by_batch]
    return [
        Curve("tokens/s", everything, GREY, name_at=0.9, name_place="above left"),
        Curve("goodput", good, ACCENT, name_at=0.25, name_place="above left"),
    ]


def batch_marks(found: SimulatedGoodput) -> list[Mark]:
    """Return the best batch."""
    best = found.best
    return [Mark(float(best.batch), best.good_tokens_per_s, f"{best.batch}: the best batch", place="below left")]


def batch_title(found: SimulatedGoodput) -> str:
    """Return the finding of the simulated batches."""
    best, fastest = found.best, found.fastest
    if fastest.batch <= best.batch:
        return f"Simulated, goodput rises with the batch up to {best.batch}"
    kept = fastest.good_tokens_per_s / fastest.run.tokens_per_s
    share = f"only {percent(kept)}" if kept >= _SMALL else "next to none"
    return f"Simulated, goodput falls past {best.batch} sequences: at {fastest.batch} {share} of the tokens count"


def tpot_curves(case: Case, promise: Promise, found: SimulatedGoodput) -> list[Curve]:
    """Return p99 TPOT by batch, simulated and by decode alone."""
    batches = [float(point.batch) for point in found.by_batch]
    steps = goodput_curve(batches, promise.context_tokens, promise.tpot_s, case.coefficients).step_s / MS
    return [
        Curve("p99 TPOT, simulated", [(float(p.batch), p.run.tpot_p99_s / MS) for p in found.by_batch], ACCENT, name_at=0.8),
        Curve(
            "decode alone",
            list(zip(batches, steps.tolist(), strict=True)),
            GREY,
            dashed=True,
            name_at=0.62,
            name_place="below right",
        ),
    ]


def tpot_rules(promise: Promise) -> list[Rule]:
    """Return the TPOT target."""
    return [Rule("y", promise.tpot_s / MS, f"TPOT target {seconds(promise.tpot_s)}")]


def tpot_title(promise: Promise, formula: BestBatch, found: SimulatedGoodput) -> str:
    """Return the finding of the chart of TPOT; formula : decode alone."""
    over = next((point.batch for point in found.by_batch if point.run.tpot_p99_s > promise.tpot_s), None)
    if over is None:
        return "p99 TPOT stays within its target at every batch"
    why = "Prefills share the steps: s" if not formula.binds or over <= formula.batch else "S"
    return f"{why}imulated p99 TPOT crosses its target by {over:,} sequences"


def rate_curves(case: Case, found: SimulatedGoodput) -> list[Curve]:
    """Return good requests a second by rate, for the best setting, the largest and the case's own."""
    shown = _shown(case, found)
    hues = (ACCENT, WARNING, HUES[2])
    curves = [
        Curve(
            f"max_num_seqs {curve.max_num_seqs:,}",
            [(point.rate_rps, point.run.good_rps) for point in curve.points],
            hues[index],
            name_at=(0.45, 0.3, 0.6)[index],
            name_place=("above left", "below right", "below left")[index],
        )
        for index, curve in enumerate(shown)
    ]
    all_served = [(point.rate_rps, point.run.requests_per_s) for point in found.best_setting.points]
    return [Curve("served", all_served, GREY, dashed=True, name_at=0.95, name_place="above left"), *curves]


def rate_marks(found: SimulatedGoodput) -> list[Mark]:
    """Return the largest goodput."""
    best = found.best_setting.best
    return [Mark(best.rate_rps, best.run.good_rps, f"{figure(best.run.good_rps)} good req/s", place="above left")]


def rate_title(found: SimulatedGoodput) -> str:
    """Return the finding of the chart over rates."""
    setting = found.best_setting
    best, last = setting.best, setting.points[-1]
    return (
        f"With max_num_seqs {setting.max_num_seqs:,} goodput peaks at {rate(best.run.good_rps)} and falls to "
        f"{rate(last.run.good_rps)} when {rate(last.rate_rps)} come"
    )


def goodput_rows(case: Case, promise: Promise, best: BestBatch, found: SimulatedGoodput | None) -> tuple[Beside, ...]:
    """Return decode alone beside the simulated engine."""
    at = None if found is None else found.best
    chosen = max(best.batch, 1)
    near = None if found is None else min(found.by_batch, key=lambda point: abs(point.batch - chosen))
    simulated_tokens = None if near is None else f"{figure(near.run.tokens_per_s)} tokens/s, {percent(near.run.good_share)} good"
    double = compare_batches(chosen, 2 * chosen, promise.context_tokens, promise.tpot_s, case.coefficients)
    return (
        Beside(
            "Best batch",
            f"{best.batch}",
            None if at is None else f"{at.batch}",
            "The formula's batch only decodes, at one context. In the run each sequence that ends is replaced by a prompt whose "
            "prefill shares the steps, which TPOT pays; both targets must hold for each request.",
        ),
        Beside(
            f"TPOT at {chosen}",
            seconds(best.step_s),
            None if near is None else f"p99 {seconds(near.run.tpot_p99_s)}",
        ),
        Beside(f"Throughput at {chosen}", f"{figure(chosen / best.step_s)} tokens/s", simulated_tokens),
        Beside(
            f"Throughput from {chosen} to {2 * chosen}", percentage(double.throughput_gain, 1, signed=True), _gain(found, chosen)
        ),
    )


def goodput_caption(case: Case, found: SimulatedGoodput, count: int) -> str:
    """Return what was simulated."""
    return (
        f"Simulated, seed {case.seed}. By batch: so many clients, each of which sends its next request when it has its answer; "
        "TTFT counts from when it sends. By rate: "
        f"{count:,} requests of {case.workload.name} that come by themselves, at {len(found.by_rate)} settings of max_num_seqs. "
        "Both drop the first tenth."
    )


DEFINITION = (
    "Goodput counts requests that met both targets, each taken as a bound on every request, as vLLM's own benchmark does; a "
    "request that missed one counts nothing, however many tokens it got."
)


def goodput_code(found: SimulatedGoodput | None, best: BestBatch, promise: Promise) -> str | None:
    """Return the flag, and vLLM's own measurement of goodput with the same targets, whose unit is ms."""
    seqs = best.batch if found is None else found.best_setting.max_num_seqs
    if not seqs:
        return None
    bench = f"vllm bench serve --goodput ttft:{promise.ttft_s / MS:.0f} tpot:{promise.tpot_s / MS:.0f}"
    return f"--max-num-seqs {seqs}\n{bench}"


def _shown(case: Case, found: SimulatedGoodput) -> Sequence[RateCurve]:
    """Return the best setting, then the case's own and the largest where they differ."""
    shown = [found.best_setting]
    for curve in (found.setting(case.limits.max_num_seqs), found.by_rate[-1]):
        if curve is not None and curve.max_num_seqs not in {each.max_num_seqs for each in shown}:
            shown.append(curve)
    return shown


def _gain(found: SimulatedGoodput | None, chosen: int) -> str | None:
    if found is None:
        return None
    one, two = (min(found.by_batch, key=lambda point: abs(point.batch - size)) for size in (chosen, 2 * chosen))
    if one.batch == two.batch:
        return None
    return f"{percentage(two.run.tokens_per_s / one.run.tokens_per_s - 1.0, 1, signed=True)} ({one.batch} to {two.batch})"
