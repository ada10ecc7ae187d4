"""The outcome of a replay in one sentence, with the verdict first."""

import math

from planner.replay.run import Outcome, Replay
from planner.units import duration

_KEEPS_UP = {"stable": "keeps up with", "backlogged": "is full at", "overloaded": "doesn't keep up with"}


def sentence_of(replay: Replay) -> str:
    """Return what happened, with the figures, for a page or a terminal."""
    run = replay.shown
    unchanged = "the planned" if replay.plan.chosen is not None else "the engine's own"
    engine = f"{replay.candidate.label} with {unchanged if run.name == 'planned' else 'changed'} settings"
    opening = f"One replica of {engine} {_KEEPS_UP[run.result.verdict]} {replay.rate_rps:.3g} req/s"
    if int(run.result.rejected.sum()) == len(run.result.rejected):
        return f"{opening}: it rejected every request, as none fits in the engine."
    if run.result.verdict == "overloaded":
        reason = run.result.verdict_reason.partition(":")[0]
        latencies = f"{_latencies(run)} over these {len(replay.requests):,} requests, and more over more"
        return f"{opening}: {reason}. Latencies depend on how long the run is: {latencies}."
    return f"{opening}: {_latencies(run)}{_goodput(run)}. {_capital(run.result.verdict)}: {run.result.verdict_reason}."


def _latencies(run: Outcome) -> str:
    ttft, tpot = run.summary.ttft.percentiles[99.0].value, run.summary.tpot.percentiles[99.0].value
    parts = [f"p99 TTFT {duration(ttft)}"]
    if math.isfinite(tpot):
        parts.append(f"p99 TPOT {duration(tpot)}")
    return " and ".join(parts)


def _goodput(run: Outcome) -> str:
    if run.goodput is None:
        return f", {run.summary.output_tokens_per_s:,.0f} output tokens/s"
    targets = " and ".join(f"{check.target.metric.upper()} ≤ {duration(check.target.limit_s)}" for check in run.checks)
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
