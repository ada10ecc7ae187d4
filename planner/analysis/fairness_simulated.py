"""Two tenants on one engine, simulated: who gets how much of it, and who waits, under each way to count service."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.fairness import Request, TokenWeights, jain_index
from planner.analysis.head_of_line_simulated import FIRST_COME
from planner.analysis.steps import prefill_s
from planner.errors import InputError
from planner.simulator.cluster import Cluster, ClusterResult, EngineSpec, Pool, run_cluster
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits
from planner.simulator.policies import Discipline

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.bool_]
Say = Callable[[str, float], None]
Behaviour = Literal["both wait", "second returns", "first floods"]

BY_REQUESTS = "Requests counted"
BY_TOKENS = "Tokens counted, all alike"
COUNTER = "Virtual token counter"
NO_LIFT = "The same without the lift"
_SPAN_REQUESTS = 80.0
_MOST_REQUESTS = 2500.0
_SETTLED = 0.25
_ARRIVE_WITHIN = 0.01
_RETURNS_AT = 0.5
_MODEST_LOAD = 0.25
_OVERFULL = 1.1
_CURVE_POINTS = 80


@dataclass(frozen=True, slots=True)
class Tenants:
    """Two tenants.

    requests : each one's typical request; owed : the share of each, in any unit
    behaviour : both always have requests waiting; the second is idle until half-time and then has; the second asks for a quarter
        of the engine while the first always has requests waiting
    """

    requests: tuple[Request, Request]
    owed: tuple[float, float]
    behaviour: Behaviour


class Wait(NamedTuple):
    """TTFT of one tenant's requests [s]; what still waits at the end counts with its wait so far.

    unserved : requests that still waited [request]
    """

    median_s: float
    worst_s: float
    unserved: int


@dataclass(frozen=True, slots=True, eq=False)
class TenantRun:
    """One way to count service.

    shares : of both tenants' service since both have had requests waiting, tokens at their weights [1]
    jain : Jain's index of service over each one's fair share, over the same time [1]
    waits : of each tenant over the whole run
    gap_s : largest difference of service over fair share, gathered over the same time [s]
    times_s, service_s : points in time, and service of each tenant up to then, a column each [s]
    """

    name: str
    shares: tuple[float, float]
    jain: float
    waits: tuple[Wait, Wait]
    gap_s: float
    times_s: Floats
    service_s: Floats


@dataclass(frozen=True, slots=True)
class SimulatedTenants:
    """Every way to count service; the one without the lift only where a tenant returns, as it changes nothing else.

    span_s : of the run; contended_s : from when on both have requests waiting [s]; sent : requests of each tenant
    """

    runs: tuple[TenantRun, ...]
    span_s: float
    contended_s: float
    sent: tuple[int, int]

    def run(self, name: str) -> TenantRun:
        """Return one way's run."""
        return next(run for run in self.runs if run.name == name)


class _Queue(NamedTuple):
    """The requests of both tenants over a span; contended_s : from when on both wait, by design [s]."""

    requests: RequestTable
    tenant: Ints
    span_s: float
    contended_s: float


def disciplines(weights: TokenWeights, owed: tuple[float, float]) -> dict[str, Discipline]:
    """Return each way to count service, by name."""

    def counter(prompt: float, output: float, request: float = 0.0, *, lift: bool = True) -> Discipline:
        return Discipline("virtual-token-counter", prompt, output, request, tenant_weights=owed, lift=lift)

    return {
        FIRST_COME: Discipline(),
        BY_REQUESTS: counter(0.0, 0.0, 1.0),
        BY_TOKENS: counter(1.0, 1.0),
        COUNTER: counter(1.0, weights.weight),
        NO_LIFT: counter(1.0, weights.weight, lift=False),
    }


def simulated_tenants(case: Case, tenants: Tenants, weights: TokenWeights, say: Say) -> SimulatedTenants:
    """Return who gets how much of the case's engine under each way; say : told what is being done, and how much of it is done."""
    queue = _queue(case, tenants, weights)
    runs: list[TenantRun] = []
    ways = disciplines(weights, tenants.owed)
    if tenants.behaviour != "second returns":
        del ways[NO_LIFT]
    for index, (name, discipline) in enumerate(ways.items()):
        say(f"Simulating: {name.lower()}", index / len(ways))
        runs.append(_tenant_run(name, _serve(case, queue, discipline), queue, tenants, weights))
    sent = int((queue.tenant == 0).sum()), int((queue.tenant == 1).sum())
    return SimulatedTenants(tuple(runs), queue.span_s, queue.contended_s, sent)


def service_bound_s(case: Case, tenants: Tenants, weights: TokenWeights) -> float:
    """Return the bound on how far the virtual token counter lets two waiting tenants' service differ [s].

    Twice the larger of the longest prompt's cost and the cost of a cache full of output tokens: Sheng et al., Fairness in Serving
    Large Language Models, OSDI 2024, for tenants that are owed alike.
    """
    prompt_s = max(request.prompt_tokens for request in tenants.requests) * weights.prefill_token_s
    return 2.0 * max(prompt_s, case.kv_tokens * weights.decode_token_s)


def _queue(case: Case, tenants: Tenants, weights: TokenWeights) -> _Queue:
    """Return the requests; a tenant that always waits sends more than the whole engine could serve, all in the first moments."""
    costs_s = [_cost_s(case, request, weights) for request in tenants.requests]
    span_s = min(_SPAN_REQUESTS * max(costs_s), _MOST_REQUESTS * min(costs_s))
    rng = np.random.default_rng(case.seed)
    piles = [_OVERFULL * span_s / cost for cost in costs_s]
    arrivals = [_pile(rng, piles[0], 0.0, span_s), _pile(rng, piles[1], 0.0, span_s)]
    contended_s = _SETTLED * span_s
    if tenants.behaviour == "second returns":
        arrivals[1] = _pile(rng, piles[1] * (1.0 - _RETURNS_AT), _RETURNS_AT * span_s, span_s)
        contended_s = _RETURNS_AT * span_s
    elif tenants.behaviour == "first floods":
        arrivals[1] = np.sort(rng.uniform(0.0, span_s, max(int(_MODEST_LOAD * span_s / costs_s[1]), 1)))
    lengths = [(int(request.prompt_tokens), max(int(request.output_tokens), 1)) for request in tenants.requests]
    for prompt, output in lengths:
        if prompt + output > min(case.kv_tokens, case.limits.max_model_len or case.kv_tokens):
            raise InputError(
                "Tokens of a request",
                prompt + output,
                f"must fit the KV cache of {case.kv_tokens} tokens and max_model_len",
                "Shorten the prompt",
            )
    counts = [len(each) for each in arrivals]
    prompts, outputs = (np.repeat([pair[side] for pair in lengths], counts).astype(np.int64) for side in (0, 1))
    return _Queue(RequestTable(np.concatenate(arrivals), prompts, outputs), np.repeat([0, 1], counts), span_s, contended_s)


def _cost_s(case: Case, request: Request, weights: TokenWeights) -> float:
    """Return the GPU time of one request: its prefill with attention, its output tokens at their share of a step [s]."""
    return prefill_s(request.prompt_tokens, case.coefficients) + request.output_tokens * weights.decode_token_s


def _pile(rng: np.random.Generator, count: float, from_s: float, span_s: float) -> Floats:
    """Return arrivals that are all there soon after `from_s` [s]."""
    arrivals: Floats = from_s + np.sort(rng.uniform(0.0, _ARRIVE_WITHIN * span_s, max(int(count), 2)))
    return arrivals


def _serve(case: Case, queue: _Queue, discipline: Discipline) -> ClusterResult:
    """Serve the requests; those that have not begun one span after they came are dropped, past the end of what is looked at."""
    cluster = Cluster((Pool("engine", EngineSpec(case.limits, case.coefficients, discipline)),), deadline_s=queue.span_s)
    return run_cluster(cluster, queue.requests, np.random.default_rng(case.seed), Traits(tenant=queue.tenant), by_events=True)


def _tenant_run(name: str, run: ClusterResult, queue: _Queue, tenants: Tenants, weights: TokenWeights) -> TenantRun:
    times_s = np.linspace(0.0, queue.span_s, _CURVE_POINTS + 1)
    service_s = np.column_stack([_service_s(run, queue.tenant == each, times_s, weights) for each in (0, 1)])
    start = int(np.searchsorted(times_s, queue.contended_s))
    since_s = service_s[start:] - service_s[start]
    got_s = since_s[-1]
    total_s = float(got_s.sum())
    fair = _fair_shares(queue, tenants, weights, total_s)
    apart_s = since_s / (fair * len(fair))
    return TenantRun(
        name=name,
        shares=(float(got_s[0]) / total_s, float(got_s[1]) / total_s),
        jain=jain_index((got_s / fair).tolist()),
        waits=(_wait(run, queue, 0), _wait(run, queue, 1)),
        gap_s=float(np.abs(apart_s[:, 0] - apart_s[:, 1]).max()),
        times_s=times_s,
        service_s=service_s,
    )


def _fair_shares(queue: _Queue, tenants: Tenants, weights: TokenWeights, total_s: float) -> Floats:
    """Return each tenant's fair share of the service given [1]: what it is owed, or asks for if that is less."""
    fair = np.array(tenants.owed) / sum(tenants.owed)
    if tenants.behaviour == "first floods":
        request = tenants.requests[1]
        cost_s = request.prompt_tokens * weights.prefill_token_s + request.output_tokens * weights.decode_token_s
        later = (queue.tenant == 1) & (queue.requests.arrival_s >= queue.contended_s)
        asked = max(float(later.sum()), 1.0) * cost_s / total_s
        fair[1] = min(fair[1], asked)
        fair[0] = 1.0 - fair[1]
    return fair


def _service_s(run: ClusterResult, chosen: Masks, times_s: Floats, weights: TokenWeights) -> Floats:
    """Return the service that requests have had up to each time [s], a prompt's cost over its prefill, an output's over decode."""
    total = np.zeros(len(times_s))
    prompt_s = run.prompt_tokens * weights.prefill_token_s
    output_s = run.output_tokens * weights.decode_token_s
    for from_s, to_s, cost_s in (
        (run.first_scheduled_s, run.first_token_s, prompt_s),
        (run.first_token_s, run.finish_s, output_s),
    ):
        known = chosen & np.isfinite(to_s)
        lasted_s = np.maximum(to_s - from_s, 1e-9)[known]
        done = np.clip((times_s[:, None] - from_s[known]) / lasted_s, 0.0, 1.0)
        total += done @ cost_s[known]
    return total


def _wait(run: ClusterResult, queue: _Queue, tenant: int) -> Wait:
    chosen = queue.tenant == tenant
    at_s = run.arrival_s[chosen]
    first_s = run.first_token_s[chosen]
    unserved = ~np.isfinite(first_s) | (first_s > queue.span_s)
    waits_s = np.where(unserved, queue.span_s - at_s, first_s - at_s)
    return Wait(float(np.median(waits_s)), float(waits_s.max()), int(unserved.sum()))
