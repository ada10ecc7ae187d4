"""Clusters: replicas behind a router, admission, pools for prefill and decode, classes and tenants, scheduling policies."""

from planner.simulator.cluster.admission import (
    ADMIT,
    REJECT,
    Admission,
    Decision,
    admit_all,
    bounded_queue,
    by_class,
    predicted_ttft,
)
from planner.simulator.cluster.result import ClusterResult, Outcome, ReplicaResult
from planner.simulator.cluster.routers import ROUTERS, Router, RouterState
from planner.simulator.cluster.run import engine_steps, run_cluster, run_engine
from planner.simulator.cluster.spec import Cluster, EngineSpec, Handover, Pool, ReplicaTimes
from planner.simulator.cluster.views import Offer, PoolViews, ReplicaView

__all__ = [
    "ADMIT",
    "REJECT",
    "ROUTERS",
    "Admission",
    "Cluster",
    "ClusterResult",
    "Decision",
    "EngineSpec",
    "Handover",
    "Offer",
    "Outcome",
    "Pool",
    "PoolViews",
    "ReplicaResult",
    "ReplicaTimes",
    "ReplicaView",
    "Router",
    "RouterState",
    "admit_all",
    "bounded_queue",
    "by_class",
    "engine_steps",
    "predicted_ttft",
    "run_cluster",
    "run_engine",
]
