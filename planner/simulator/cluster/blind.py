"""The fast way: where the router doesn't look at the replicas, requests are split beforehand and each replica runs compiled."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.simulator.cluster.admission import admit_all
from planner.simulator.cluster.result import ClusterResult, Outcome, ReplicaResult, judge_cluster
from planner.simulator.cluster.routers import ROUTERS, RouterState
from planner.simulator.cluster.spec import Cluster, Pool
from planner.simulator.cluster.views import Offer
from planner.simulator.engine import EngineTotals
from planner.simulator.inputs import RequestArrays, RequestTable
from planner.simulator.job import Job, Traits, jobs_of, never_fits
from planner.simulator.result import SimulationResult
from planner.simulator.run import SimulationOptions, simulate

Ints = npt.NDArray[np.int64]

_COMPILED_POLICIES = ("fcfs", "priority")


def routed_beforehand(cluster: Cluster) -> bool:
    """Return whether a cluster can be run by the compiled engine: one pool, always ready, a blind router, vLLM's own decisions."""
    if len(cluster.pools) != 1 or cluster.handover is not None or cluster.deadline_s is not None:
        return False
    pool = cluster.pools[0]
    always_ready = all(times.ready_s == 0.0 and times.drained_s is None for times in pool.replicas)
    discipline = pool.engine.discipline
    plain = discipline.policy in _COMPILED_POLICIES and discipline.ageing_s is None and not discipline.class_limits
    plain = plain and cluster.admission is admit_all
    return always_ready and plain and pool.engine.scheduler is None and not ROUTERS[pool.router].looks_at_replicas


class _Blind:
    """A replica whose state nobody may look at: it doesn't exist yet."""

    def __init__(self, index: int) -> None:
        self.index = index

    @property
    def requests(self) -> int:
        raise RuntimeError("A router that is marked as not looking at replicas looked at one")

    waiting = tokens = prefill_tokens = requests

    @property
    def kv_share(self) -> float:
        raise RuntimeError("A router that is marked as not looking at replicas looked at one")


def assign(jobs: Sequence[Job], pool: Pool, rng: np.random.Generator) -> Ints:
    """Return the replica of each job; -1 for those that no engine could hold, which no router sees."""
    router = ROUTERS[pool.router]
    state = RouterState(rng.spawn(1)[0])
    replicas = [_Blind(index) for index in range(len(pool.replicas))]
    chosen = np.full(len(jobs), -1, np.int64)
    for position, job in enumerate(jobs):
        if never_fits(job, pool.engine.limits):
            continue
        offer = Offer(
            request=job.index,
            now_s=job.arrival_s,
            prompt_tokens=job.prompt_tokens,
            max_new_tokens=job.max_new_tokens,
            predicted_output_tokens=job.predicted_output_tokens,
            class_index=job.class_index,
            tenant=job.tenant,
            priority=job.priority,
            prefix=job.shared_keys[0] if job.shared_keys else None,
        )
        chosen[position] = router.choose(offer, replicas, state)
        state.routed += 1
    return chosen


def run_blind(cluster: Cluster, requests: RequestArrays, rng: np.random.Generator, traits: Traits) -> ClusterResult:
    """Serve requests with a cluster that `routed_beforehand` allows."""
    pool = cluster.pools[0]
    jobs = jobs_of(requests, pool.engine.limits, traits)
    chosen = assign(jobs, pool, rng)
    order = np.array([job.index for job in jobs], np.int64)
    replica = np.full(len(jobs), -1, np.int64)
    replica[order] = chosen
    runs = [_run_replica(pool, requests, traits, order[chosen == index]) for index in range(len(pool.replicas))]
    return _merge(pool, requests, jobs, replica, runs)


def _run_replica(pool: Pool, requests: RequestArrays, traits: Traits, rows: Ints) -> tuple[Ints, SimulationResult]:
    hashes, cached = requests.block_hashes, requests.cached_prompt_tokens
    share = RequestTable(
        requests.arrival_s[rows],
        requests.prompt_tokens[rows],
        requests.output_tokens[rows],
        hashes.take(rows) if hashes is not None else None,
        cached[rows] if cached is not None else None,
    )
    engine = pool.engine
    limits = engine.limits._replace(policy="priority" if engine.discipline.policy == "priority" else "fcfs")
    priorities = traits.priority[rows] if traits.priority is not None else None
    options = SimulationOptions(stop=engine.stop, priorities=priorities)
    return rows, simulate(share, limits, engine.coefficients, options)


def _merge(
    pool: Pool, requests: RequestArrays, jobs: Sequence[Job], replica: Ints, runs: Sequence[tuple[Ints, SimulationResult]]
) -> ClusterResult:
    count = len(requests)
    scheduled_s, first_token_s, finish_s = (np.full(count, np.nan) for _ in range(3))
    preemptions, cached_tokens = (np.zeros(count, np.int64) for _ in range(2))
    for rows, run in runs:
        scheduled_s[rows] = run.first_scheduled_s
        first_token_s[rows] = run.first_token_s
        finish_s[rows] = run.finish_s
        preemptions[rows] = run.preemptions
        cached_tokens[rows] = run.cached_tokens
    asked = sorted(jobs, key=lambda job: job.index)
    stopped = np.zeros(count, np.bool_)
    for rows, run in runs:
        stopped[rows] = not run.finished
    finish_s[stopped] = np.nan
    outcome = np.where(replica < 0, Outcome.REFUSED, np.where(stopped, Outcome.UNFINISHED, Outcome.SERVED)).astype(np.int64)
    served = outcome == Outcome.SERVED
    makespan_s = float(finish_s[served].max()) if served.any() else 0.0
    spent_s = float((finish_s[served] - requests.arrival_s[served]).sum())
    waiting_s = sum(float(run.bound_s[1:].sum()) for _, run in runs)
    busy_s = sum(run.totals.busy_s for _, run in runs)
    return ClusterResult(
        arrival_s=requests.arrival_s,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=np.array([job.output_tokens for job in asked], np.int64),
        class_index=np.array([job.class_index for job in asked], np.int64),
        tenant=np.array([job.tenant for job in asked], np.int64),
        outcome=outcome,
        first_scheduled_s=scheduled_s,
        first_token_s=first_token_s,
        finish_s=finish_s,
        transfer_s=np.zeros(count),
        pool=np.where(served, 0, -1).astype(np.int64),
        replica=np.where(served, replica, -1).astype(np.int64),
        preemptions=preemptions,
        cached_tokens=cached_tokens,
        replicas=tuple(_replica_result(pool, index, run) for index, (_, run) in enumerate(runs)),
        mean_in_system=spent_s / makespan_s if makespan_s > 0.0 else 0.0,
        makespan_s=makespan_s,
        judgement=judge_cluster(
            requests.arrival_s[served],
            finish_s[served],
            waiting_s / busy_s if busy_s > 0.0 else 0.0,
            stopped=bool(stopped.any()),
        ),
    )


def _replica_result(pool: Pool, index: int, run: SimulationResult) -> ReplicaResult:
    peak_blocks = round(run.averages.peak_kv_share * pool.engine.limits.num_blocks)
    totals = EngineTotals(
        steps=run.totals.steps,
        busy_s=run.totals.busy_s,
        waiting_s=float(run.bound_s[1:].sum()),
        computed_tokens=run.totals.computed_tokens,
        prefill_tokens=run.totals.computed_tokens - run.totals.output_tokens - run.totals.wasted_rows,
        preemptions=run.totals.preemptions,
        peak_running=run.averages.peak_running,
        peak_blocks=peak_blocks,
    )
    return ReplicaResult(pool.name, index, totals, run.totals.recomputed_tokens, run.totals.wasted_rows, {})
