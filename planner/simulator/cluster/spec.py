"""What a cluster is made of: pools of like replicas behind a router, and the hand-over of KV from one pool to another."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from planner.errors import InputError
from planner.simulator.cluster.admission import Admission, admit_all
from planner.simulator.cluster.routers import router_named
from planner.simulator.limits import EngineLimits, Stop, check_coefficients, check_limits
from planner.simulator.policies import Discipline, check_discipline
from planner.simulator.policy_scheduler import PolicyScheduler
from planner.simulator.steps import Scheduler
from planner.step_model import StepCoefficients

FirstToken = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine: its scheduler's bounds, its step times, its policy.

    stop : "length" when outputs end at max_tokens, which the scheduler foresees; "eos" at a stop token, which it does not
    scheduler : makes the scheduler; a variant's for SGLang or TensorRT-LLM
    """

    limits: EngineLimits
    coefficients: StepCoefficients
    discipline: Discipline = field(default_factory=Discipline)
    stop: Stop = "length"
    scheduler: "Callable[[EngineSpec], Scheduler] | None" = None

    def build(self) -> Scheduler:
        """Return a scheduler without requests."""
        if self.scheduler is not None:
            return self.scheduler(self)
        return PolicyScheduler(self.limits, self.discipline, self.stop, int(self.coefficients.window_tokens))


@dataclass(frozen=True, slots=True)
class ReplicaTimes:
    """When a replica takes requests: from launched_s + startup_s until drained_s (None: to the end), since the trace began [s].

    startup_s : from the order to the first request: machine, image, weights, graphs
    """

    launched_s: float = 0.0
    startup_s: float = 0.0
    drained_s: float | None = None

    @property
    def ready_s(self) -> float:
        """When it takes its first request [s]."""
        return self.launched_s + self.startup_s


@dataclass(frozen=True, slots=True)
class Pool:
    """Like replicas behind one router.

    replicas : one entry for each; router : a name in ROUTERS
    """

    name: str
    engine: EngineSpec
    replicas: tuple[ReplicaTimes, ...] = (ReplicaTimes(),)
    router: str = "round-robin"


@dataclass(frozen=True, slots=True)
class Handover:
    """Prefill in one pool, decode in another, with the keys and values sent between them.

    prefill, decode : names of the pools
    kv_bytes_per_token : of the whole model, over all GPUs of a replica [B/token]
    link_bytes_per_s : what leaves one prefill replica, one transfer after the other [B/s]; latency_s : before each [s]
    first_output_from : which pool's token the client sees first. "decode" is vLLM, whose decoder computes the prompt's last token
        again; "prefill" is SGLang, which sends the first token along (both read from source, not recorded)
    """

    prefill: str
    decode: str
    kv_bytes_per_token: float
    link_bytes_per_s: float
    latency_s: float = 0.0
    first_output_from: FirstToken = "decode"

    def transfer_s(self, tokens: int) -> float:
        """Return the time to send the KV of so many tokens over an idle link [s]."""
        return self.latency_s + tokens * self.kv_bytes_per_token / self.link_bytes_per_s


@dataclass(frozen=True, slots=True)
class Cluster:
    """Pools, the hook at the door, and the hand-over between pools; requests that are admitted go to the first pool.

    deadline_s : a request that has waited so long with no token computed is dropped; None: it waits on [s]
    """

    pools: tuple[Pool, ...]
    admission: Admission = admit_all
    handover: Handover | None = None
    deadline_s: float | None = None


def check_cluster(cluster: Cluster) -> Cluster:
    """Return the cluster, or raise InputError for one that can't run."""
    names = [pool.name for pool in cluster.pools]
    if not names or len(set(names)) != len(names):
        raise InputError("pools", names, "must hold at least one pool, with different names", "Name each pool once")
    for pool in cluster.pools:
        router_named(pool.router)
        check_limits(pool.engine.limits)
        check_coefficients(pool.engine.coefficients)
        check_discipline(pool.engine.discipline, pool.engine.limits)
        if pool.engine.stop not in ("length", "eos"):
            raise InputError("stop", pool.engine.stop, 'must be "length" or "eos"', "Choose one of the two")
        _check_replicas(pool)
    if cluster.handover is not None:
        _check_handover(cluster.handover, names)
    if cluster.deadline_s is not None and not (isfinite(cluster.deadline_s) and cluster.deadline_s > 0.0):
        raise InputError("deadline_s", cluster.deadline_s, "must be finite and above 0", "Give seconds, or None for no deadline")
    return cluster


def _check_replicas(pool: Pool) -> None:
    if all(times.drained_s is not None for times in pool.replicas):
        raise InputError(
            f"pools.{pool.name}.replicas",
            len(pool.replicas),
            "must hold at least one replica that isn't drained",
            "Leave drained_s unset on one, so that every request finds a place",
        )
    for index, times in enumerate(pool.replicas):
        values = (times.launched_s, times.startup_s, 0.0 if times.drained_s is None else times.drained_s)
        if any(not (isfinite(value) and value >= 0.0) for value in values):
            raise InputError(f"pools.{pool.name}.replicas[{index}]", values, "times must be finite and at least 0", "Give seconds")
        if times.drained_s is not None and times.drained_s < times.ready_s:
            raise InputError(
                f"pools.{pool.name}.replicas[{index}].drained_s", times.drained_s, "must not be before it is ready", "Move it later"
            )


def _check_handover(handover: Handover, names: list[str]) -> None:
    if handover.prefill not in names or handover.decode not in names or handover.prefill == handover.decode:
        raise InputError(
            "handover", (handover.prefill, handover.decode), f"must name two of the pools {', '.join(names)}", "Correct the names"
        )
    for name, value, may_be_zero in (
        ("kv_bytes_per_token", handover.kv_bytes_per_token, False),
        ("link_bytes_per_s", handover.link_bytes_per_s, False),
        ("latency_s", handover.latency_s, True),
    ):
        if not isfinite(value) or value < 0.0 or (value == 0.0 and not may_be_zero):
            bound = "must be finite and at least 0" if may_be_zero else "must be finite and above 0"
            raise InputError(f"handover.{name}", value, bound, "Correct it")
    if handover.first_output_from not in ("prefill", "decode"):
        raise InputError(
            "handover.first_output_from", handover.first_output_from, 'must be "prefill" or "decode"', "Choose one of the two"
        )
