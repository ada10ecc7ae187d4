"""The cluster's event loop.

Events have one order: by (time, kind, sequence). At one instant replicas first become ready, then requests arrive in the order of
the trace, then KV transfers end, then steps end, then idle engines wake, so that all that has arrived takes part in what they
decide, and last what still waits at its deadline is dropped. Events of one kind at one instant go in the order in which they were
foreseen. The clock never goes back.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from itertools import count
from typing import NamedTuple

import numpy as np

from planner.errors import InputError
from planner.simulator.cluster.admission import ADMIT, Decision, admit_all
from planner.simulator.cluster.replica import LiveReplica
from planner.simulator.cluster.result import Outcome
from planner.simulator.cluster.routers import ROUTERS, RouterState
from planner.simulator.cluster.spec import Cluster, Handover, Pool
from planner.simulator.cluster.views import Offer
from planner.simulator.job import Job

STEPS_PER_TOKEN = 16


class Kind(IntEnum):
    """Kinds of event, in the order in which they happen at one instant."""

    READY = 0
    ARRIVAL = 1
    TRANSFER = 2
    STEP_END = 3
    WAKE = 4
    DEADLINE = 5


class Event(NamedTuple):
    """Something foreseen; of equal time and kind, the one foreseen first comes first."""

    at_s: float
    kind: Kind
    sequence: int
    replica: LiveReplica | None = None
    version: int = 0
    job: Job | None = None


class Fate(NamedTuple):
    """What became of one request: the job that finished it, and where; the job that prefilled it when that was another."""

    outcome: Outcome
    job: Job
    replica: LiveReplica | None = None
    prefill: Job | None = None
    transfer_s: float = 0.0


class LivePool:
    """A pool's replicas, its router's memory, and the requests that came before any replica was ready."""

    def __init__(self, pool: Pool, position: int, rng: np.random.Generator, *, keep_steps: bool) -> None:
        self.spec = pool
        self.replicas = [LiveReplica(pool, position, index, keep_steps=keep_steps) for index in range(len(pool.replicas))]
        self.held: deque[Job] = deque()
        self._router = ROUTERS[pool.router]
        self._state = RouterState(rng)

    def ready(self, now_s: float) -> list[LiveReplica]:
        """Return the replicas that take requests, as of now."""
        return [replica.at(now_s) for replica in self.replicas if replica.takes_requests(now_s)]

    def choose(self, offer: Offer, ready: Sequence[LiveReplica]) -> LiveReplica:
        """Let the router pick one of the replicas that are ready."""
        chosen = ready[self._router.choose(offer, ready, self._state)]
        self._state.routed += 1
        return chosen


class EventLoop:
    """Runs a cluster over jobs; `fates` then says what became of each request."""

    def __init__(self, cluster: Cluster, rng: np.random.Generator, *, keep_steps: bool = False) -> None:
        self.cluster = cluster
        streams = rng.spawn(len(cluster.pools))
        self.pools = {
            pool.name: LivePool(pool, position, streams[position], keep_steps=keep_steps)
            for position, pool in enumerate(cluster.pools)
        }
        self.fates: dict[int, Fate] = {}
        self.in_system_s = 0.0
        self.now_s = 0.0
        self._first = cluster.pools[0].name
        self._inside: dict[int, Job] = {}
        self._prefilled: dict[int, tuple[Job, float]] = {}
        self._events: list[Event] = []
        self._sequence = count()
        for pool in self.pools.values():
            for replica in pool.replicas:
                self._foresee(replica.times.ready_s, Kind.READY, replica)

    def run(self, jobs: Sequence[Job]) -> None:
        """Serve jobs, given by arrival, to the last token."""
        left = STEPS_PER_TOKEN * (sum(max(job.prompt_tokens, 0) + max(job.output_tokens, 0) for job in jobs) + len(jobs) + 1)
        arrived = 0
        while arrived < len(jobs) or self._events:
            if arrived < len(jobs) and (not self._events or (jobs[arrived].arrival_s, Kind.ARRIVAL) < self._events[0][:2]):
                self._pass_time(jobs[arrived].arrival_s)
                self._arrive(jobs[arrived])
                arrived += 1
                continue
            event = heapq.heappop(self._events)
            if event.kind == Kind.STEP_END:
                assert event.replica is not None
                if event.version != event.replica.version:
                    continue
                left -= 1
                if left < 0:
                    break
            self._pass_time(event.at_s)
            self._happen(event)
        for job in [*self._inside.values(), *jobs[arrived:]]:
            self.fates[job.index] = Fate(Outcome.UNFINISHED, job)

    def _pass_time(self, now_s: float) -> None:
        if self._inside:
            self.in_system_s += len(self._inside) * (now_s - self.now_s)
            self.now_s = now_s
        else:
            self.now_s = max(now_s, self.now_s)

    def _foresee(self, at_s: float, kind: Kind, replica: LiveReplica | None = None, job: Job | None = None) -> None:
        version = replica.version if replica is not None else 0
        heapq.heappush(self._events, Event(at_s, kind, next(self._sequence), replica, version, job))

    def _happen(self, event: Event) -> None:
        replica = event.replica
        if event.job is not None:
            if event.kind == Kind.DEADLINE:
                self._expire(event.job)
            elif self.cluster.handover is not None:
                self._route(event.job, self.pools[self.cluster.handover.decode])
            return
        assert replica is not None
        if event.kind == Kind.READY:
            pool = self.pools[replica.pool.name]
            while pool.held:
                self._route(pool.held.popleft(), pool)
        elif event.kind == Kind.STEP_END:
            ended = replica.engine.finish_step()
            for job in ended:
                del replica.jobs[job.index]
                self._end(job, replica)
            self._foresee_step_end(replica)
        else:
            replica.wake_due_s = None
            replica.engine.wake(self.now_s)
            self._foresee_step_end(replica)

    def _arrive(self, job: Job) -> None:
        """Offer a request to the admission hook, then to the router of its pool."""
        decision = ADMIT
        if self.cluster.admission is not admit_all:
            views = {name: pool.ready(self.now_s) for name, pool in self.pools.items()}
            decision = self.cluster.admission(self._offer(job), views)
        pool = self._pool_of(decision)
        if pool is None:
            self.fates[job.index] = Fate(Outcome.REJECTED, job)
        elif not self._accepts(pool, job):
            self.fates[job.index] = Fate(Outcome.REFUSED, job)
        else:
            self._inside[job.index] = job
            handover = self.cluster.handover
            if handover is not None and pool.spec.name == handover.prefill:
                job = _prefill_job(job)
            if self.cluster.deadline_s is not None:
                self._foresee(job.arrival_s + self.cluster.deadline_s, Kind.DEADLINE, None, job)
            self._route(job, pool)

    def _expire(self, job: Job) -> None:
        """Drop a job that has waited to its deadline, wherever it waits."""
        if job.first_scheduled_s is not None:
            return
        for pool in self.pools.values():
            if job in pool.held:
                pool.held.remove(job)
            for replica in pool.replicas:
                if replica.jobs.get(job.index) is job:
                    del replica.jobs[job.index]
                    if replica.engine.drop(job, self.now_s):
                        self._foresee_step_end(replica)
        self.fates[job.index] = Fate(Outcome.EXPIRED, self._inside.pop(job.index))

    def _pool_of(self, decision: Decision) -> LivePool | None:
        if decision.verb == "reject":
            return None
        if decision.verb == "admit":
            return self.pools[self._first]
        if decision.verb != "divert" or decision.pool not in self.pools:
            raise InputError(
                "admission", decision, f"must admit, reject or divert to one of {', '.join(self.pools)}", "Correct the hook"
            )
        return self.pools[decision.pool]

    def _accepts(self, pool: LivePool, job: Job) -> bool:
        handover = self.cluster.handover
        if handover is not None and pool.spec.name == handover.prefill:
            decoder = self.pools[handover.decode].replicas[0].scheduler
            return decoder.accepts(job) and pool.replicas[0].scheduler.accepts(_prefill_job(job))
        return pool.replicas[0].scheduler.accepts(job)

    def _offer(self, job: Job) -> Offer:
        return Offer(
            request=job.index,
            now_s=self.now_s,
            prompt_tokens=job.prompt_tokens,
            max_new_tokens=job.max_new_tokens,
            predicted_output_tokens=job.predicted_output_tokens,
            class_index=job.class_index,
            tenant=job.tenant,
            priority=job.priority,
            prefix=job.shared_keys[0] if job.shared_keys else None,
        )

    def _route(self, job: Job, pool: LivePool) -> None:
        """Give a job to the replica that the router picks; it is held while none is ready."""
        ready = pool.ready(self.now_s)
        if not ready:
            pool.held.append(job)
            return
        replica = pool.choose(self._offer(job), ready)
        replica.jobs[job.index] = job
        foreseen_s = None if replica.engine.idle else replica.engine.next_s
        replica.engine.add(job, self.now_s)
        if replica.engine.idle:
            if replica.wake_due_s is None:
                replica.wake_due_s = self.now_s
                self._foresee(self.now_s, Kind.WAKE, replica)
        elif replica.engine.next_s != foreseen_s:
            self._foresee_step_end(replica)

    def _foresee_step_end(self, replica: LiveReplica) -> None:
        replica.version += 1
        if not replica.engine.idle:
            self._foresee(replica.engine.next_s, Kind.STEP_END, replica)

    def _end(self, job: Job, replica: LiveReplica) -> None:
        """Hand a prefilled job over to the decode pool, or let a finished one leave."""
        handover = self.cluster.handover
        if handover is not None and replica.pool.name == handover.prefill and not self._ends_at_prefill(job, handover):
            original = self._inside[job.index]
            start_s = max(self.now_s, replica.link_free_s)
            sent = _sent_tokens(job, handover)
            replica.link_free_s = start_s + handover.transfer_s(sent)
            self._prefilled[job.index] = (job, replica.link_free_s - self.now_s)
            self._foresee(replica.link_free_s, Kind.TRANSFER, None, _decode_job(original, job, handover))
            return
        prefill, transfer_s = self._prefilled.pop(job.index, (None, 0.0))
        del self._inside[job.index]
        self.fates[job.index] = Fate(Outcome.SERVED, job, replica, prefill, transfer_s)

    def _ends_at_prefill(self, job: Job, handover: Handover) -> bool:
        return handover.first_output_from == "prefill" and self._inside[job.index].output_tokens == 1


def _sent_tokens(job: Job, handover: Handover) -> int:
    """Return the tokens whose keys and values the decoder gets: all of the prompt, or all but the one that it computes again."""
    return job.prompt_tokens if handover.first_output_from == "prefill" else job.prompt_tokens - 1


def _copy(job: Job) -> Job:
    return Job(
        index=job.index,
        arrival_s=job.arrival_s,
        prompt_tokens=job.prompt_tokens,
        output_tokens=job.output_tokens,
        priority=job.priority,
        shared_keys=job.shared_keys,
        class_index=job.class_index,
        tenant=job.tenant,
        max_new_tokens=job.max_new_tokens,
        predicted_output_tokens=job.predicted_output_tokens,
    )


def _prefill_job(job: Job) -> Job:
    """Return the part of a request that the prefill pool does: the prompt, and one token."""
    part = _copy(job)
    part.output_tokens = part.max_new_tokens = 1
    part.predicted_output_tokens = 1.0
    return part


def _decode_job(job: Job, prefilled: Job, handover: Handover) -> Job:
    """Return the rest of a request, for the decode pool."""
    part = _copy(job)
    part.preloaded_tokens = _sent_tokens(job, handover)
    part.first_scheduled_s = prefilled.first_scheduled_s
    if handover.first_output_from == "prefill":
        part.outputs = 1
        part.first_token_s = prefilled.first_token_s
    return part
