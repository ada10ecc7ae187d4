"""Throughput and goodput in simulated runs: against the batch with so many clients, and against the rate with a setting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.goodput import BestBatch, best_batch
from planner.analysis.served import SAME, Served, all_at_once, flow, serve, served, stretch_prompts, targets_of
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.simulator import SimulationOptions
from planner.units import percentage
from planner.workloads import Requests, running_context_mean

_OPTIONS = SimulationOptions(over_time=False)
_ALL_BUT = 0.995
_GENERATIONS = 8
_FEWEST = 1200
_RATE_SHARES = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.25)
_LARGEST_BATCH = 2048
_SETTING_FACTORS = (1.0, 1.5, 2.0, 3.0)
_ALIKE = 0.01


class Promise(NamedTuple):
    """What is promised: TTFT and TPOT [s] of requests whose sequences hold context_tokens on average [token]."""

    ttft_s: float
    tpot_s: float
    context_tokens: float


def largest_batch(case: Case, context_tokens: float) -> int:
    """Return how many sequences of that context the KV cache holds, 2,048 at most [seq]; at least 1."""
    return max(1, min(_LARGEST_BATCH, int(case.kv_tokens / context_tokens)))


def formula_batch(case: Case, promise: Promise) -> BestBatch:
    """Return the best batch of decode alone, within what the KV cache holds."""
    return best_batch(promise.context_tokens, promise.tpot_s, case.coefficients, largest_batch(case, promise.context_tokens))


def at_context(case: Case, requests: Requests, context_tokens: float) -> Requests:
    """Return the requests with prompts stretched until running sequences hold `context_tokens` on average [token].

    The mean running context is E[O(P + O/2)] / E[O]; the factor on P that moves it follows from the case's own mean. Raises
    InputError where outputs alone hold more.
    """
    if abs(context_tokens / case.context_tokens - 1.0) < SAME:
        return requests
    own = running_context_mean(np.zeros(len(requests)), requests.output_tokens)
    prompts = running_context_mean(requests.prompt_tokens, requests.output_tokens) - own
    if context_tokens <= own + 1.0:
        raise InputError(
            "context_tokens", context_tokens, f"must be above {own:.0f}", "The workload's outputs alone hold that much"
        )
    return stretch_prompts(requests, (context_tokens - own) / prompts)


class BatchPoint(NamedTuple):
    """One batch [seq] with its run; TTFT counts from when the client sends, which is when a place is free."""

    batch: int
    run: Served
    good_tokens_per_s: float


class RatePoint(NamedTuple):
    """One rate [request/s] with its run."""

    rate_rps: float
    run: Served


@dataclass(frozen=True, slots=True)
class RateCurve:
    """Runs over rates at one setting."""

    max_num_seqs: int
    points: tuple[RatePoint, ...]

    @property
    def best(self) -> RatePoint:
        """The rate with the largest goodput."""
        return max(self.points, key=lambda point: point.run.good_rps)


@dataclass(frozen=True, slots=True)
class SimulatedGoodput:
    """Goodput by batch and by rate.

    by_batch : as many clients as the batch, each of which sends its next request when it has its answer; best : of them by goodput
    by_rate : requests that come by themselves, at several settings of max_num_seqs
    own_max_num_seqs : the case's own setting, one of those [seq]
    """

    by_batch: tuple[BatchPoint, ...]
    best: BatchPoint
    by_rate: tuple[RateCurve, ...]
    own_max_num_seqs: int

    @property
    def fastest(self) -> BatchPoint:
        """The batch with the most tokens a second."""
        return max(self.by_batch, key=lambda point: point.run.tokens_per_s)

    @property
    def best_setting(self) -> RateCurve:
        """The max_num_seqs with the largest goodput at any rate; the case's own where that is within 1 % of it."""
        most = max(self.by_rate, key=lambda curve: curve.best.run.good_rps)
        own = self.setting(self.own_max_num_seqs)
        alike = own is not None and own.best.run.good_rps >= (1.0 - _ALIKE) * most.best.run.good_rps
        return own if own is not None and alike else most

    def setting(self, max_num_seqs: int) -> RateCurve | None:
        """Return one setting's runs."""
        return next((curve for curve in self.by_rate if curve.max_num_seqs == max_num_seqs), None)


def batches_up_to(largest: int, chosen: int) -> tuple[int, ...]:
    """Return batches to simulate: 1.4-fold steps up to the largest, and those about the chosen one."""
    steps = np.unique(np.rint(np.geomspace(1.0, largest, max(2, int(np.log(largest) / np.log(1.4)) + 1))).astype(int))
    near = (round(chosen * share) for share in (0.9, 1.0, 1.1))
    return tuple(sorted({*map(int, steps), *(each for each in near if 1 <= each <= largest)}))


def closed_run(case: Case, batch: int, promise: Promise) -> BatchPoint | None:
    """Return `batch` clients, each sending its next request when it has its answer; None where nothing could be measured.

    A queue that never empties with max_num_seqs = batch starts a request whenever one ends, which is what such clients do; their
    clock starts when they send, so that TTFT counts from the first decision that gives the request tokens.
    """
    generations = max(-(-_FEWEST // batch), _GENERATIONS)
    count = generations * batch
    requests = at_context(case, case.requests(count), promise.context_tokens)
    engine = case.with_limits(max_num_seqs=batch, max_num_batched_tokens=max(batch, case.limits.max_num_batched_tokens))
    result = engine.serve(all_at_once(requests), _OPTIONS)
    sent = replace(result, arrival_s=np.where(np.isnan(result.first_scheduled_s), 0.0, result.first_scheduled_s))
    found = served(sent, targets_of(promise.ttft_s, promise.tpot_s))
    if found is None:
        return None
    # Whole generations, as clients that began together still end nearly together.
    leaving = flow(result, (batch * max(generations // 5, 1) - 1, batch * (generations * 4 // 5) - 1))
    if leaving is None:
        return None
    settled = found._replace(tokens_per_s=leaving.tokens_per_s, requests_per_s=leaving.requests_per_s)
    return BatchPoint(batch, settled, settled.tokens_per_s * settled.good_share)


def simulated_goodput(case: Case, promise: Promise, chosen: int, count: int) -> SimulatedGoodput | None:
    """Return goodput by batch, then by rate at several settings; None where nothing could be measured.

    chosen : the formula's batch, near which batches lie closer; count : requests of each run by rate
    """
    largest = largest_batch(case, promise.context_tokens)
    found = in_parallel(lambda batch: closed_run(case, batch, promise), batches_up_to(largest, max(chosen, 1)))
    points = tuple(point for point in found if point is not None)
    if not points:
        return None
    best = max(points, key=lambda point: point.good_tokens_per_s)
    top_rps = max(point.run.requests_per_s for point in points)
    rates = tuple(top_rps * share for share in _RATE_SHARES)
    settings = {min(round(best.batch * factor), largest) for factor in _SETTING_FACTORS} | {case.limits.max_num_seqs, largest}
    curves = (_over_rates(case, promise, seqs, (rates, count)) for seqs in sorted(settings))
    by_rate = tuple(curve for curve in curves if curve.points)
    return SimulatedGoodput(points, best, by_rate, case.limits.max_num_seqs) if by_rate else None


def _over_rates(case: Case, promise: Promise, seqs: int, runs: tuple[Sequence[float], int]) -> RateCurve:
    rates, count = runs
    engine = case.with_limits(max_num_seqs=seqs, max_num_batched_tokens=max(seqs, case.limits.max_num_batched_tokens))
    requests = at_context(case, case.requests(count, 1.0), promise.context_tokens)
    targets = targets_of(promise.ttft_s, promise.tpot_s)

    def at(rate_rps: float) -> RatePoint | None:
        run = serve(engine, replace(requests, arrival_s=requests.arrival_s / rate_rps), targets)
        return None if run is None else RatePoint(rate_rps, run)

    return RateCurve(seqs, tuple(point for point in in_parallel(at, rates) if point is not None))


def goodput_explanation(found: SimulatedGoodput, promise: Promise) -> Explanation:
    """Return what simulation says of the best max_num_seqs, and what is lost past it."""
    best, fastest, setting = found.best, found.fastest, found.best_setting
    peak = setting.best
    more = fastest.run.tokens_per_s / best.run.tokens_per_s - 1.0
    lost = 1.0 - fastest.good_tokens_per_s / best.good_tokens_per_s if best.good_tokens_per_s else 0.0
    if best.good_tokens_per_s <= 0.0:
        answer = "No batch serves a request within both targets"
    elif fastest.batch > best.batch:
        answer = (
            f"Goodput is largest with {best.batch} sequences; {fastest.batch} make {percentage(more)} more tokens a second and "
            f"{'hardly any' if lost >= _ALL_BUT else f'{percentage(lost)} less'} goodput"
        )
    else:
        answer = f"Goodput and throughput are both largest with {best.batch} sequences: no larger batch makes more tokens a second"
    reach = "reaches the most" if setting.max_num_seqs != found.own_max_num_seqs else "is as good as any tried"
    beside = (
        f"; {fastest.batch}: {fastest.run.tokens_per_s:,.0f} tokens/s, {percentage(fastest.run.good_share, 1)}"
        if fastest.batch != best.batch
        else ""
    )
    return Explanation(
        answer,
        f"{best.batch} in the batch: {best.run.tokens_per_s:,.0f} tokens/s, {percentage(best.run.good_share, 1)} of requests "
        f"within TTFT {promise.ttft_s:g} s and TPOT {promise.tpot_s * 1e3:g} ms{beside}",
        f"With requests that come by themselves max_num_seqs {setting.max_num_seqs} {reach}: {peak.run.good_rps:.3g} good "
        f"requests/s where {peak.rate_rps:.3g} come",
    )
