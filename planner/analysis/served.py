"""What the case's engine makes of requests at given settings, as the few figures that questions compare."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.analysis.case import Case
from planner.errors import InputError
from planner.memory import memory_budget
from planner.simulator import (
    MeasureOptions,
    SimulationOptions,
    SimulationResult,
    Target,
    Verdict,
    goodput,
    leaving_rps,
    summarise,
)
from planner.workloads import Requests
from planner.workloads.laws import MAX_TOKENS

_OPTIONS = SimulationOptions(over_time=False)
_MEASURE = MeasureOptions(percentiles=(95.0, 99.0), batches=1)
_SATURATION_REQUESTS = 2000
# Share of the requests left out at each end [1]. With a fifth, 2,000 requests give the rate of 20,000 within 3 %, for equal and for
# recorded lengths in batches of 128 to 1,024; with a tenth, equal ones that start in waves are 25 % off.
_RAMP_SHARE = 0.2
SAME = 1e-3
"""Relative difference below which two figures are the same one: those that people type carry four digits [1]."""


class Served(NamedTuple):
    """One run, its first tenth of requests left out of latencies and rates.

    tokens_per_s, requests_per_s : output tokens and requests, from the first arrival to the last token [token/s], [request/s]
    good_share : requests that met every target, each taken as a bound on every request [1]; good_rps : a second [request/s]
    running : mean sequences in the batch over the whole run [seq]; preemptions : of the whole run
    """

    tokens_per_s: float
    requests_per_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tpot_p95_s: float
    tpot_p99_s: float
    e2e_mean_s: float
    e2e_p95_s: float
    good_share: float
    good_rps: float
    running: float
    preemptions: int
    verdict: Verdict


def served(result: SimulationResult, targets: Sequence[Target]) -> Served | None:
    """Return a run's figures; None when it was stopped or the engine refused nearly all, so that there is nothing to measure."""
    found = summarise(result, _MEASURE)
    if not result.finished or found.ttft.count == 0 or found.tpot.count == 0:
        return None
    good = goodput(result, targets)
    return Served(
        tokens_per_s=found.output_tokens_per_s,
        requests_per_s=found.requests_per_s,
        ttft_p95_s=found.ttft.percentiles[95.0].value,
        ttft_p99_s=found.ttft.percentiles[99.0].value,
        tpot_p95_s=found.tpot.percentiles[95.0].value,
        tpot_p99_s=found.tpot.percentiles[99.0].value,
        e2e_mean_s=found.e2e.mean.value,
        e2e_p95_s=found.e2e.percentiles[95.0].value,
        good_share=good.share,
        good_rps=good.requests_per_s,
        running=result.averages.running,
        preemptions=result.totals.preemptions,
        verdict=result.verdict,
    )


def serve(case: Case, requests: Requests, targets: Sequence[Target]) -> Served | None:
    """Serve requests and return the figures as the clients see them; see `served`."""
    return served(case.serve(requests, _OPTIONS), targets)


def targets_of(ttft_s: float, tpot_s: float) -> tuple[Target, ...]:
    """Return a bound on each request's TTFT and on its TPOT [s]."""
    return (Target("ttft", ttft_s), Target("tpot", tpot_s))


def with_knobs(case: Case, max_num_seqs: int, max_num_batched_tokens: int) -> Case | None:
    """Return the case with other settings and the KV cache that they leave; None when its engine would not start with them.

    max_num_seqs above the budget is lowered to it, as the engine does with its defaults. The textbook's memory doesn't depend on
    the settings.
    """
    seqs = min(max_num_seqs, max_num_batched_tokens)
    blocks = case.limits.num_blocks
    if not case.textbook:
        own = _blocks(case, case.limits.max_num_seqs, case.limits.max_num_batched_tokens)
        other = _blocks(case, seqs, max_num_batched_tokens)
        blocks = blocks * other // own if own else 0
        if blocks < 1:
            return None
    return case.with_limits(max_num_seqs=seqs, max_num_batched_tokens=max_num_batched_tokens, num_blocks=blocks)


def _blocks(case: Case, max_num_seqs: int, max_num_batched_tokens: int) -> int:
    config = case.deployment.engine.replace(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    budget = memory_budget(replace(case.deployment, engine=config))
    return budget.num_blocks if budget.fits else 0


def stretched(requests: Requests, prompt_factor: float, output_factor: float) -> Requests:
    """Return the requests with longer or shorter prompts and outputs, each rounded and of at least one token.

    prompt_factor, output_factor : on every length [1]; within 0.1 % of 1 they leave lengths as they are
    """
    sides = (requests.prompt_tokens, prompt_factor), (requests.output_tokens, output_factor)
    if all(abs(factor - 1.0) < SAME for _, factor in sides):
        return requests
    _check_stretch(requests, prompt_factor)
    prompts, outputs = (
        tokens if abs(factor - 1.0) < SAME else np.maximum(np.rint(tokens * factor), 1.0).astype(np.int64)
        for tokens, factor in sides
    )
    return replace(requests, prompt_tokens=prompts, output_tokens=outputs, cached_prompt_tokens=None)


def _check_stretch(requests: Requests, prompt_factor: float) -> None:
    """Raise InputError, with the largest mean that can be asked, when a stretched prompt would pass what a workload may hold."""
    longest, mean = float(requests.prompt_tokens.max(initial=1)), float(requests.prompt_tokens.mean())
    if longest * prompt_factor > MAX_TOKENS:
        bound = f"must be at most {mean * MAX_TOKENS / longest:,.0f} on average, as the longest has {MAX_TOKENS:,} then"
        raise InputError("prompt_tokens", round(mean * prompt_factor), bound, "Give a smaller mean or a shorter context")


def stretch_prompts(requests: Requests, factor: float) -> Requests:
    """Return the requests with longer or shorter prompts; see `stretched`."""
    return stretched(requests, factor, 1.0)


def all_at_once(requests: Requests) -> Requests:
    """Return the requests, all waiting at time 0."""
    return replace(requests, arrival_s=np.zeros(len(requests)))


class Flow(NamedTuple):
    """What leaves an engine: requests [request/s] and their output tokens [token/s]."""

    requests_per_s: float
    tokens_per_s: float


def flow(result: SimulationResult, ends: tuple[int, int] | None = None) -> Flow | None:
    """Return what leaves an engine between the ends of two requests; None where the run was stopped or has no such two.

    ends : which two, counted from 0 by when they end; None takes the middle of the run, without its ramp and its drain
    """
    order = np.argsort(result.finish_s, kind="stable")[: int(np.isfinite(result.finish_s).sum())]
    last = len(order) - 1
    low, high = ends or (int(_RAMP_SHARE * last), int((1.0 - _RAMP_SHARE) * last))
    if not result.finished or not 0 <= low < high <= last:
        return None
    span_s = float(result.finish_s[order[high]] - result.finish_s[order[low]])
    if span_s <= 0.0:
        return None
    return Flow((high - low) / span_s, float(result.output_tokens[order[low + 1 : high + 1]].sum()) / span_s)


def saturated_rps(case: Case, count: int = _SATURATION_REQUESTS) -> float | None:
    """Return the rate at which requests leave an engine whose queue never empties [request/s]; None when none gets through.

    Taken over the middle of a run in which all requests wait from the start.
    """
    result = case.serve(all_at_once(case.requests(count)), _OPTIONS)
    return leaving_rps(result.finish_s, _RAMP_SHARE) if result.finished else None
