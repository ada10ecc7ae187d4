"""A replica inside a running cluster, as the event loop and the routers see it."""

from planner.simulator.cluster.result import ReplicaResult
from planner.simulator.cluster.spec import Pool
from planner.simulator.engine import Engine
from planner.simulator.job import Job
from planner.simulator.policy_scheduler import PolicyScheduler
from planner.simulator.steps import Scheduler


class LiveReplica:
    """An engine with the jobs that it has, and a view of them for routers.

    version : grows when the time of its next event changes, so that an event that was foreseen can be told stale
    link_free_s : when its link can start the next KV transfer [s]
    """

    def __init__(self, pool: Pool, pool_position: int, index: int, *, keep_steps: bool) -> None:
        self.scheduler: Scheduler = pool.engine.build()
        self.engine = Engine(self.scheduler, pool.engine.coefficients, keep_steps=keep_steps)
        self.pool = pool
        self.pool_position = pool_position
        self.times = pool.replicas[index]
        self.jobs: dict[int, Job] = {}
        self.version = 0
        self.wake_due_s: float | None = None
        self.link_free_s = 0.0
        self._index = index
        self._seen_s = 0.0

    def at(self, now_s: float) -> "LiveReplica":
        """Let the views below be those of `now_s`."""
        self._seen_s = now_s
        return self

    def takes_requests(self, now_s: float) -> bool:
        """Return whether it is ready and not yet drained."""
        drained_s = self.times.drained_s
        return self.times.ready_s <= now_s and (drained_s is None or now_s < drained_s)

    @property
    def index(self) -> int:
        """Number of the replica in its pool, from 0."""
        return self._index

    @property
    def requests(self) -> int:
        """Requests that it has and has not finished [request]."""
        return len(self.jobs)

    @property
    def waiting(self) -> int:
        """Requests in its waiting queue [request]."""
        return self.scheduler.num_waiting

    @property
    def tokens(self) -> int:
        """Prompt tokens of its unfinished requests, and their output tokens so far [token]."""
        self.engine.catch_up(self._seen_s)
        return sum(job.known_tokens for job in self.jobs.values())

    @property
    def prefill_tokens(self) -> int:
        """Tokens that its unfinished requests have yet to prefill [token]."""
        return sum(
            max(job.known_tokens - max(job.computed, job.preloaded_tokens), 0) for job in self.jobs.values() if not job.decoding
        )

    @property
    def kv_share(self) -> float:
        """Share of its KV blocks that requests hold [1]."""
        self.engine.catch_up(self._seen_s)
        held = sum(len(job.blocks) for job in self.jobs.values())
        return held / self.pool.engine.limits.num_blocks

    def result(self) -> ReplicaResult:
        """Return what it did."""
        counts = self.scheduler if isinstance(self.scheduler, PolicyScheduler) else None
        return ReplicaResult(
            pool=self.pool.name,
            index=self._index,
            totals=self.engine.totals,
            recomputed_tokens=counts.recomputed_tokens if counts else 0,
            wasted_rows=counts.wasted_rows if counts else 0,
            peak_class_blocks=dict(counts.shares.peak) if counts else {},
        )
