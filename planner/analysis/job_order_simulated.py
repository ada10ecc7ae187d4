"""A rush under each order of service, simulated: the gain of small jobs first, starvation, ageing, errors of the predictor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.head_of_line_simulated import FEEDBACK, FIRST_COME, SHORTEST_PROMPT, Enforced
from planner.analysis.job_order import rank_agreement
from planner.analysis.served import all_at_once, flow
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.simulator import SimulationOptions, SimulationResult, simulate
from planner.simulator.cluster import ClusterResult, EngineSpec, run_engine
from planner.simulator.job import Traits, predict_outputs
from planner.simulator.policies import Discipline
from planner.token_costs import token_costs_s
from planner.workloads import Requests

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.bool_]
Say = Callable[[str, float], None]

LOADS = (0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5)
SIGMAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
PATIENCE_FACTORS = (1.0, 2.0)
_LEAST_AGEING_S = 1e-3
_WORK_STEPS = 1000.0
_PAIRED = 1500


@dataclass(frozen=True, slots=True)
class Rush:
    """A rush of jobs.

    count : jobs [request]; load : arrivals over capacity [1]
    cv2 : squared CV of prompts and outputs, each a gamma law of the workload's mean; None: the workload's own rows [1]
    sigma : error of the predictor, see `predict_outputs` [1]
    patience : wait after which a job goes first, over the longest wait under first come, first served [1]
    """

    count: int
    load: float
    cv2: float | None
    sigma: float
    patience: float


class Jobs(NamedTuple):
    """The jobs of a rush.

    requests : one a second; capacity_rps : the rate at which the engine works through them when all are there [request/s]
    output_weight : cost of an output token over that of a prompt token, by the step model [1]
    too_long : requests of the workload that are left out, as the engine never takes them [request]
    """

    requests: Requests
    capacity_rps: float
    output_weight: float
    too_long: int = 0

    @property
    def work(self) -> Floats:
        """Work of each job, in prompt tokens [token]."""
        return self.requests.prompt_tokens + self.output_work

    @property
    def output_work(self) -> Floats:
        """The part of each job's work that lies in its output, in prompt tokens [token]."""
        work: Floats = self.output_weight * self.requests.output_tokens.astype(np.float64)
        return work

    def at(self, load: float) -> Requests:
        """Return the same jobs at a load: arrivals over capacity [1]."""
        return replace(self.requests, arrival_s=self.requests.arrival_s / (load * self.capacity_rps))


class OrderRun(NamedTuple):
    """One order's run.

    enforced : how vLLM does it
    ttft_mean_s, ttft_p50_s, ttft_p99_s, ttft_worst_s : of all jobs [s]; e2e_mean_s : to the last token [s]
    recomputed_tokens : lost to preemption and computed again [token]
    """

    name: str
    enforced: Enforced
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    ttft_worst_s: float
    e2e_mean_s: float
    recomputed_tokens: int


class LoadPoint(NamedTuple):
    """Mean TTFT at one load under three orders [s]."""

    load: float
    fcfs_s: float
    shortest_prompt_s: float
    smallest_job_s: float


class ErrorPoint(NamedTuple):
    """Mean TTFT with a predictor of one error [s]; agreement : Kendall's tau of predicted and true work."""

    sigma: float
    ttft_mean_s: float
    agreement: float | None


class AgeingPoint(NamedTuple):
    """Mean and worst TTFT with one bound on the wait [s]."""

    ageing_s: float
    ttft_mean_s: float
    ttft_worst_s: float


@dataclass(frozen=True, slots=True)
class SimulatedRush:
    """A rush under every order.

    bound_s : wait after which a job goes first where a bound is set [s]
    orders : runs, first come first; by_load, by_error, by_ageing : what each parameter does
    """

    jobs: Jobs
    bound_s: float
    orders: tuple[OrderRun, ...]
    by_load: tuple[LoadPoint, ...]
    by_error: tuple[ErrorPoint, ...]
    by_ageing: tuple[AgeingPoint, ...]

    def order(self, name: str) -> OrderRun:
        """Return the run of one order."""
        return next(run for run in self.orders if run.name == name)


SMALLEST_PREDICTED = "Smallest predicted job first"
SMALLEST_KNOWN = "Smallest job first, lengths known"
AGED = "Smallest predicted, with a bound"
ENFORCED: dict[str, Enforced] = {
    FIRST_COME: "by itself",
    SHORTEST_PROMPT: "as a priority",
    SMALLEST_PREDICTED: "as a priority",
    SMALLEST_KNOWN: "not at all",
    AGED: "not at all",
    FEEDBACK: "not at all",
}


def jobs_of_rush(case: Case, rush: Rush) -> Jobs:
    """Return the jobs of a rush on the case's engine, and its capacity for them.

    Capacity is the rate of completions in the middle of a run in which all are there at once, by arrival. Requests that the engine
    never takes are left out and counted; raises InputError where it takes none.
    """
    requests = case.requests(rush.count, 1.0)
    if rush.cv2 is not None:
        requests = _spread(case, requests, rush.cv2)
    result = case.serve(replace(all_at_once(requests), cached_prompt_tokens=None))
    too_long = int(result.rejected.sum())
    if too_long == len(requests):
        most = min(case.kv_tokens, case.limits.max_model_len or case.kv_tokens)
        whose = "the KV cache" if most == case.kv_tokens else "max_model_len"
        bound = f"must fit {whose} of {most} tokens with its output"
        raise InputError("Lengths", int(requests.prompt_tokens[0]), bound, "Choose lengths that are shorter")
    if too_long:
        requests = _only(requests, ~result.rejected)
        result = case.serve(replace(all_at_once(requests), cached_prompt_tokens=None))
    leaving = flow(result)
    if leaving is None:
        raise InputError("Requests", rush.count, "must be enough to keep the engine full for a while", "Send more")
    running = max(result.averages.running, 1.0)
    prompt_s, output_s = token_costs_s(case.coefficients, running, case.context_tokens, case.lengths.prompt_mean_tokens)
    return Jobs(requests, leaving.requests_per_s, output_s / prompt_s, too_long)


def _only(requests: Requests, kept: Masks) -> Requests:
    """Return some of the requests, arriving when as many did, so that their rate stays."""
    return replace(requests.take(np.flatnonzero(kept)), arrival_s=requests.arrival_s[: int(kept.sum())])


def simulated_rush(case: Case, rush: Rush, jobs: Jobs, say: Say) -> SimulatedRush:
    """Return the rush under every order; say : told what is being done, and how much of it is done."""
    say("Simulating every load and every error of the predictor", 0.05)
    by_load = tuple(in_parallel(lambda load: _load_point(case, jobs, load), sorted({*LOADS, rush.load})))
    by_error = tuple(in_parallel(lambda sigma: _error_point(case, rush, jobs, sigma), sorted({*SIGMAS, rush.sigma})))
    requests = jobs.at(rush.load)
    predicted = _predicted(case, jobs, rush.sigma)
    orders = [
        _of_engine(FIRST_COME, case, _ranked(case, requests, None)),
        _of_engine(SHORTEST_PROMPT, case, _ranked(case, requests, requests.prompt_tokens)),
        _of_engine(SMALLEST_PREDICTED, case, _ranked(case, requests, _rank(jobs, predicted))),
        _of_engine(SMALLEST_KNOWN, case, _ranked(case, requests, _rank(jobs, requests.output_tokens))),
    ]
    first, small = orders[0], orders[2]
    by_ageing = [AgeingPoint(0.0, first.ttft_mean_s, first.ttft_worst_s)]
    bound_s = max(rush.patience * (first.ttft_worst_s - case.request_s), _LEAST_AGEING_S)
    for index, factor in enumerate(PATIENCE_FACTORS):
        say("Simulating the bound on the wait", 0.15 + 0.3 * index)
        aged = small._replace(name=AGED, enforced=ENFORCED[AGED])  # where nobody waits for so long
        if factor * bound_s < small.ttft_worst_s:
            aged = _aged(case, jobs, predicted, (rush.load, factor * bound_s))
        by_ageing.append(AgeingPoint(factor * bound_s, aged.ttft_mean_s, aged.ttft_worst_s))
        if factor == 1.0:
            orders.append(aged)
    if by_ageing[-1].ageing_s < small.ttft_worst_s:
        by_ageing.append(AgeingPoint(small.ttft_worst_s, small.ttft_mean_s, small.ttft_worst_s))
    say("Simulating multi-level feedback", 0.75)
    orders.append(_feedback(case, jobs, requests))
    return SimulatedRush(jobs, bound_s, tuple(orders), by_load, by_error, tuple(by_ageing))


def _spread(case: Case, requests: Requests, cv2: float) -> Requests:
    """Return the requests with gamma lengths of the workload's means, cut at what the engine takes."""
    rng = np.random.default_rng(case.seed)
    most = min(case.kv_tokens, case.limits.max_model_len or case.kv_tokens)

    def lengths(mean: float, longest: int) -> Ints:
        drawn = np.rint(rng.gamma(1.0 / cv2, cv2 * mean, len(requests)))
        return np.clip(drawn, 1, longest).astype(np.int64)

    prompts = lengths(case.lengths.prompt_mean_tokens, most * 3 // 4)
    return replace(requests, prompt_tokens=prompts, output_tokens=lengths(case.lengths.output_mean_tokens, most // 8))


def _ranked(case: Case, requests: Requests, ranks: Ints | None) -> SimulationResult:
    """Serve by a rank that is fixed on arrival, lowest first: the engine's own priority policy, so that compiled code does it."""
    if ranks is None:
        return simulate(requests, case.limits, case.coefficients)
    return simulate(requests, case.limits._replace(policy="priority"), case.coefficients, SimulationOptions(priorities=ranks))


def _rank(jobs: Jobs, output_tokens: Floats | Ints) -> Ints:
    """Return the rank of each job with these outputs: its work, in thousandths of a prompt token."""
    work = jobs.requests.prompt_tokens + jobs.output_weight * output_tokens
    return np.rint(_WORK_STEPS * np.minimum(work, 2.0**40)).astype(np.int64)


def _predicted(case: Case, jobs: Jobs, sigma: float) -> Floats:
    """Return predicted outputs [token]; every sigma stretches the same errors."""
    return predict_outputs(jobs.requests.output_tokens, sigma, np.random.default_rng(case.seed))


def _load_point(case: Case, jobs: Jobs, load: float) -> LoadPoint:
    requests = jobs.at(load)
    known = _rank(jobs, requests.output_tokens)
    runs = [_ranked(case, requests, ranks) for ranks in (None, requests.prompt_tokens, known)]
    return LoadPoint(load, *(_ttft_mean_s(case, run) for run in runs))


def _error_point(case: Case, rush: Rush, jobs: Jobs, sigma: float) -> ErrorPoint:
    predicted = _rank(jobs, _predicted(case, jobs, sigma))
    run = _ranked(case, jobs.at(rush.load), predicted)
    agreement = rank_agreement(predicted[:_PAIRED], jobs.work[:_PAIRED])
    return ErrorPoint(sigma, _ttft_mean_s(case, run), agreement)


def _aged(case: Case, jobs: Jobs, predicted: Floats, load_and_bound: tuple[float, float]) -> OrderRun:
    """Return the run of predicted work with a bound on the wait [s], so that a job's rank moves while it waits."""
    load, ageing_s = load_and_bound
    discipline = Discipline("shortest-predicted", 1.0, jobs.output_weight, ageing_s=ageing_s)
    engine = EngineSpec(case.limits, case.coefficients, discipline)
    run = run_engine(engine, jobs.at(load), Traits(predicted_output_tokens=predicted))
    return _of_cluster(AGED, case, run)


def _feedback(case: Case, jobs: Jobs, requests: Requests) -> OrderRun:
    """Return the run of multi-level feedback, whose levels end at the work of half, four fifths and 95 % of the jobs."""
    levels = np.unique(np.quantile(jobs.work, (0.5, 0.8, 0.95)))
    discipline = Discipline("multi-level-feedback", 1.0, jobs.output_weight, level_costs=tuple(levels.tolist()))
    return _of_cluster(FEEDBACK, case, run_engine(EngineSpec(case.limits, case.coefficients, discipline), requests))


def _ttft_mean_s(case: Case, run: SimulationResult) -> float:
    return float((run.first_token_s - run.arrival_s).mean()) + case.request_s


def _of_engine(name: str, case: Case, run: SimulationResult) -> OrderRun:
    ttft_s = run.first_token_s - run.arrival_s + case.request_s
    return _order_run(name, ttft_s, run.finish_s - run.arrival_s + case.request_s, run.totals.recomputed_tokens)


def _of_cluster(name: str, case: Case, run: ClusterResult) -> OrderRun:
    return _order_run(name, run.ttft_s + case.request_s, run.e2e_s + case.request_s, run.replicas[0].recomputed_tokens)


def _order_run(name: str, ttft_s: Floats, e2e_s: Floats, recomputed: int) -> OrderRun:
    p50, p99 = np.percentile(ttft_s, (50.0, 99.0))
    worst = float(ttft_s.max())
    return OrderRun(name, ENFORCED[name], float(ttft_s.mean()), float(p50), float(p99), worst, float(e2e_s.mean()), recomputed)
