"""The waiting queue of a policy: a heap for each class and, where a policy ranks tenants, for each tenant."""

import heapq
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.simulator.job import Job
from planner.simulator.policies import Ledger, Policy


class _Entry(NamedTuple):
    rank: float
    arrival_s: float
    request: int
    entry: int
    job: Job

    @property
    def stale(self) -> bool:
        """The job has left the queue since, or has entered it again."""
        return not self.job.waiting or self.job.entry != self.entry


@dataclass(slots=True)
class _Lane:
    """Jobs of one class (and tenant) by rank, and by arrival for those that have waited too long."""

    tenant: int
    ranked: list[_Entry] = field(default_factory=list)
    aged: list[_Entry] = field(default_factory=list)


class WaitingRoom:
    """Jobs that wait, and which of them is next."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy = policy
        self._ledger = ledger
        self._ageing_s = ledger.discipline.ageing_s
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, job: Job) -> None:
        """Let a job wait."""
        self._ledger.enter(job.tenant, back=job.preemptions > 0)
        by_tenant = self._policy.by_tenant
        place = (job.class_index, job.tenant if by_tenant else 0)
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(job.tenant)
        job.waiting = True
        job.entry += 1
        self._count += 1
        rank = 0.0 if by_tenant else self._policy.rank(job, self._ledger)
        entry = _Entry(rank, job.arrival_s, job.index, job.entry, job)
        heapq.heappush(lane.ranked, entry)
        if self._ageing_s is not None:
            heapq.heappush(lane.aged, entry._replace(rank=0.0))

    def take(self, job: Job) -> None:
        """Let a job leave: it was admitted, or has ended while it waited."""
        job.waiting = False
        self._count -= 1
        self._ledger.leave(job.tenant)

    def best(self, now_s: float, barred: Collection[int]) -> Job | None:
        """Return the job that is next among those of classes not barred, or None."""
        if self._count == 0:
            return None
        candidates = [
            candidate
            for (class_index, _), lane in self._lanes.items()
            if class_index not in barred and (candidate := self._head(lane, now_s)) is not None
        ]
        return min(candidates)[-1] if candidates else None

    def _head(self, lane: _Lane, now_s: float) -> tuple[bool, float, float, int, Job] | None:
        """Return a lane's next job behind what it is compared by: not overdue, rank, arrival, index."""
        ranked = lane.ranked
        while ranked and ranked[0].stale:
            heapq.heappop(ranked)
        if not ranked:
            return None
        if self._ageing_s is not None:
            aged = lane.aged
            while aged[0].stale:
                heapq.heappop(aged)
            oldest = aged[0]
            if now_s - oldest.arrival_s >= self._ageing_s:
                return (False, 0.0, oldest.arrival_s, oldest.request, oldest.job)
        head = ranked[0]
        rank = self._ledger.counter(lane.tenant) if self._policy.by_tenant else head.rank
        return (True, rank, head.arrival_s, head.request, head.job)
