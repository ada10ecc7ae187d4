"""The outcome of a replay in one sentence, with the verdict first."""

import math
from collections.abc import Callable

from planner.replay.run import Outcome, Replay
from planner.units import duration, per_second

_KEEPS_UP = {"stable": "keeps up with", "backlogged": "is full at", "overloaded": "doesn't keep up with"}


def sentence_of(replay: Replay, write: Callable[[float], str] = duration) -> str:
    """Return what happened, with the figures, for a page or a terminal; write : a time in seconds as text."""
    run = replay.shown
    unchanged = "the planned" if replay.plan.chosen is not None else "the engine's own"
    engine = f"{replay.candidate.label} with {unchanged if run.name == 'planned' else 'changed'} settings"
    opening = f"One replica of {engine} {_KEEPS_UP[run.result.verdict]} {per_second(replay.rate_rps)}"
    if int(run.result.rejected.sum()) == len(run.result.rejected):
        return f"{opening}: it rejected every request, as none fits in the engine."
    latencies = _latencies(run, write)
    if run.result.verdict == "overloaded":
        reason = run.result.verdict_reason.partition(":")[0]
        return f"{opening}: {reason}. Latencies grow with the run: {latencies} over these {len(replay.requests):,} requests."
    return f"{opening}: {latencies}{_goodput(run)}. {_capital(run.result.verdict)}: {run.result.verdict_reason}."


def _latencies(run: Outcome, write: Callable[[float], str]) -> str:
    ttft_s, tpot_s = run.summary.ttft.percentiles[99.0].value, run.summary.tpot.percentiles[99.0].value
    return " and ".join([f"p99 TTFT {write(ttft_s)}", *([f"p99 TPOT {write(tpot_s)}"] if math.isfinite(tpot_s) else [])])


def _goodput(run: Outcome) -> str:
    if run.goodput is None:
        return f", {run.summary.output_tokens_per_s:,.0f} output tokens/s"
    (first, *others) = run.checks
    targets = "both targets" if others else f"the {first.target.metric.upper()} target"
    return f"; {_share(run.goodput.share)} of requests meet {targets}"


def _share(share: float) -> str:
    """Return a share so that 100 % is said only of all.

    >>> _share(0.98765), _share(0.99997), _share(1.0)
    ('98.8 %', '99.99 %', '100 %')
    """
    percent = 100.0 * share
    if share < 1.0 and percent > 99.9:
        return f"{min(percent, 99.99):.2f} %"
    return f"{percent:.3g} %"


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]
