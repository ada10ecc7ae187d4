"""From the capacity of one replica to a fleet: replicas, spares, and the machines that hold them."""

import math
from dataclasses import dataclass

from planner.errors import InputError

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas carry a load, and how loaded each is.

    needed : replicas that carry the planned rate within the headroom
    spares : replicas beyond them that may be down
    utilisation : planned rate ÷ capacity of the needed replicas, spares down [1]
    utilisation_all_up : the same with every replica up [1]
    next_replica_at_rps : planned rate above which one more replica is needed [request/s]
    """

    needed: int
    spares: int
    rate_rps: float
    capacity_rps: float
    headroom: float
    utilisation: float
    utilisation_all_up: float
    next_replica_at_rps: float

    @property
    def total(self) -> int:
        """All replicas, spares included."""
        return self.needed + self.spares

    @property
    def rate_per_replica_rps(self) -> float:
        """Rate that each replica sees when the spares are down [request/s]: the point at which the targets must hold."""
        return self.rate_rps / self.needed


def replicas_for(rate_rps: float, capacity_rps: float, headroom: float, spares: int) -> Replicas:
    """Return the fewest replicas whose capacity, less the headroom, carries a rate.

    rate_rps : rate to plan for [request/s], above 0
    capacity_rps : largest rate at which one replica meets its targets [request/s], above 0
    headroom : share of the capacity kept free [1], 0 ≤ headroom < 1
    spares : replicas added on top

    >>> replicas_for(10.0, 7.0, 0.15, 1).total
    3
    """
    _positive("rate_rps", rate_rps)
    _positive("capacity_rps", capacity_rps)
    if not 0.0 <= headroom < 1.0:
        raise InputError("fleet.headroom", headroom, "must be at least 0 and below 1", "Give the share kept free, for example 0.15")
    usable_rps = capacity_rps * (1.0 - headroom)
    needed = max(1, math.ceil(rate_rps / usable_rps - _ROUNDING))
    return Replicas(
        needed=needed,
        spares=spares,
        rate_rps=rate_rps,
        capacity_rps=capacity_rps,
        headroom=headroom,
        utilisation=rate_rps / (needed * capacity_rps),
        utilisation_all_up=rate_rps / ((needed + spares) * capacity_rps),
        next_replica_at_rps=needed * usable_rps,
    )


@dataclass(frozen=True, slots=True)
class Placement:
    """Machines that hold a fleet. A replica never spans machines; GPUs left over on a machine are paid all the same."""

    instances: int
    replicas_per_instance: int
    gpus_used: int
    gpus_paid: float

    @property
    def idle_gpus(self) -> float:
        """GPUs paid for and used by no replica."""
        return self.gpus_paid - self.gpus_used


def place(replicas: int, gpus_per_replica: int, gpus_per_instance: float) -> Placement | None:
    """Return how many machines hold the replicas; None when one machine can't hold one replica.

    gpus_per_instance : GPUs of a rented machine; a fraction (a shared GPU) holds no replica

    >>> place(3, 2, 8).instances, place(5, 2, 8).instances, place(1, 8, 4)
    (1, 2, None)
    """
    per_instance = int(gpus_per_instance // gpus_per_replica)
    if per_instance < 1:
        return None
    instances = math.ceil(replicas / per_instance)
    return Placement(
        instances=instances,
        replicas_per_instance=per_instance,
        gpus_used=replicas * gpus_per_replica,
        gpus_paid=instances * gpus_per_instance,
    )


def _positive(field: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise InputError(field, value, "must be a finite number above 0", "Give requests a second, for example 10")
