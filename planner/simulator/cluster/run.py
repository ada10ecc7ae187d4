"""Runs a cluster over requests: by the compiled engine where routing can be computed beforehand, else by events."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.simulator.cluster.blind import routed_beforehand, run_blind
from planner.simulator.cluster.events import EventLoop
from planner.simulator.cluster.result import ClusterResult, Outcome, judge_cluster
from planner.simulator.cluster.spec import Cluster, EngineSpec, Pool, check_cluster
from planner.simulator.inputs import RequestArrays
from planner.simulator.job import NO_TRAITS, Job, Traits, jobs_of
from planner.simulator.steps import Step

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def run_cluster(
    cluster: Cluster, requests: RequestArrays, rng: np.random.Generator, traits: Traits = NO_TRAITS, *, by_events: bool = False
) -> ClusterResult:
    """Serve requests with a cluster and return what became of each.

    requests : `planner.workloads.Requests`, or a `RequestTable` for requests in any order
    rng : for routers that draw; the same generator state gives the same bytes
    traits : classes, tenants, priorities and predictions; None fields: all alike
    by_events : use the event loop even where the compiled engine could be used; both give the same times

    Raises InputError for cached_prompt_tokens with several replicas: what each of their caches holds depends on the router.
    """
    check_cluster(cluster)
    _check_cached(cluster, requests)
    if not by_events and routed_beforehand(cluster):
        return run_blind(cluster, requests, rng, traits)
    jobs = jobs_of(requests, cluster.pools[0].engine.limits, traits)
    loop = EventLoop(cluster, rng)
    loop.run(jobs)
    return _result(loop, requests, jobs)


def run_engine(engine: EngineSpec, requests: RequestArrays, traits: Traits = NO_TRAITS) -> ClusterResult:
    """Serve requests with one engine under its policy; deterministic."""
    cluster = Cluster((Pool("engine", engine),))
    return run_cluster(cluster, requests, np.random.default_rng(0), traits, by_events=True)


def engine_steps(engine: EngineSpec, requests: RequestArrays, traits: Traits = NO_TRAITS) -> tuple[ClusterResult, Sequence[Step]]:
    """Serve requests with one engine and return every step beside the result, for a timeline of a short run."""
    cluster = check_cluster(Cluster((Pool("engine", engine),)))
    jobs = jobs_of(requests, engine.limits, traits)
    loop = EventLoop(cluster, np.random.default_rng(0), keep_steps=True)
    loop.run(jobs)
    steps = loop.pools["engine"].replicas[0].engine.steps
    assert steps is not None
    return _result(loop, requests, jobs), steps


def _check_cached(cluster: Cluster, requests: RequestArrays) -> None:
    cached, replicas = requests.cached_prompt_tokens, sum(len(pool.replicas) for pool in cluster.pools)
    caching = any(pool.engine.limits.enable_prefix_caching for pool in cluster.pools)
    if cached is None or requests.block_hashes is not None or not caching or replicas == 1:
        return
    if cached.any():
        bound = f"are what one cache holds, and {replicas} replicas have as many caches, filled as the router sends"
        raise InputError("cached_prompt_tokens", int(cached.sum()), bound, "Give block_hashes, or one replica")


def _result(loop: EventLoop, requests: RequestArrays, jobs: list[Job]) -> ClusterResult:
    fates = [loop.fates[index] for index in range(len(requests))]
    asked = sorted(jobs, key=lambda job: job.index)
    finish_s = _times([fate.job.finish_s if fate.outcome == Outcome.SERVED else None for fate in fates])
    makespan_s = float(np.nanmax(finish_s)) if np.isfinite(finish_s).any() else 0.0
    served = np.isfinite(finish_s)
    waiting_share = _waiting_share(loop)
    return ClusterResult(
        arrival_s=requests.arrival_s,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=_ints([job.output_tokens for job in asked]),
        class_index=_ints([job.class_index for job in asked]),
        tenant=_ints([job.tenant for job in asked]),
        outcome=_ints([fate.outcome for fate in fates]),
        first_scheduled_s=_times([fate.job.first_scheduled_s for fate in fates]),
        first_token_s=_times([fate.job.first_token_s for fate in fates]),
        finish_s=finish_s,
        transfer_s=_times([fate.transfer_s for fate in fates]),
        pool=_ints([fate.replica.pool_position if fate.replica is not None else -1 for fate in fates]),
        replica=_ints([fate.replica.index if fate.replica is not None else -1 for fate in fates]),
        preemptions=_ints([fate.job.preemptions + (fate.prefill.preemptions if fate.prefill else 0) for fate in fates]),
        cached_tokens=_ints([(fate.prefill or fate.job).cached_tokens or 0 for fate in fates]),
        replicas=tuple(replica.result() for pool in loop.pools.values() for replica in pool.replicas),
        mean_in_system=loop.in_system_s / makespan_s if makespan_s > 0.0 else 0.0,
        makespan_s=makespan_s,
        judgement=judge_cluster(
            requests.arrival_s[served],
            finish_s[served],
            waiting_share,
            stopped=any(fate.outcome == Outcome.UNFINISHED for fate in fates),
        ),
    )


def _waiting_share(loop: EventLoop) -> float:
    """Return the share of the engines' busy time in which a job waited [1]."""
    totals = [replica.engine.totals for pool in loop.pools.values() for replica in pool.replicas]
    busy_s = sum(each.busy_s for each in totals)
    return sum(each.waiting_s for each in totals) / busy_s if busy_s > 0.0 else 0.0


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _times(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)
