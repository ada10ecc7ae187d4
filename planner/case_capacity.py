"""What a case's replica carries at given settings, by the plan's own search, and what the engine's defaults would cost."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from planner.analysis.case import Case
from planner.analysis.served import with_knobs
from planner.engines import ENGINE_TITLES, EngineConfig, engine_defaults, limit_to_model_length
from planner.parallel import in_parallel
from planner.plans.capacity import SEARCH_REQUESTS, Replica, demand_for
from planner.plans.rates import capacity_of
from planner.plans.results import Knobs
from planner.provenance import Source
from planner.scenario import Targets
from planner.units import HOUR_S, MILLION


class Setting(NamedTuple):
    """One pair of settings: what it is, and its two knobs."""

    name: str
    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True)
class Carried:
    """What a replica carries at one setting.

    rate_rps : largest rate that holds both p99 targets [request/s]; None where none does
    binds : what stops it; ttft_p99_s, tpot_p99_s : at that rate, or at the lowest tried [s]
    usd_per_million_tokens : of prompt and output at that rate [USD/Mtoken]; None where nobody rents the replica or nothing holds
    starts : the engine starts with these settings
    """

    setting: Setting
    rate_rps: float | None
    binds: str
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    usd_per_million_tokens: float | None
    starts: bool = True


def default_setting(case: Case) -> Setting:
    """Return what the engine's own version takes on this GPU when nothing is set."""
    own = _defaults(case)
    return Setting(
        f"Default of {ENGINE_TITLES[own.engine]} {own.version}",
        min(own.max_num_seqs, own.max_num_batched_tokens),
        own.max_num_batched_tokens,
    )


def default_source(case: Case) -> Source:
    """Return where the engine's default comes from."""
    return _defaults(case).source_for("max_num_seqs")


def _defaults(case: Case) -> EngineConfig:
    config = case.deployment.engine
    own = engine_defaults(config.engine, config.version, case.deployment.gpu, case.deployment.parallelism.tp, config.usage)
    return own if case.limits.max_model_len is None else limit_to_model_length(own, case.limits.max_model_len)


def with_ceilings(case: Case, kv_tokens: float, tpot_s: float) -> Case:
    """Return the case with another KV cache [token] and TPOT target [s]."""
    blocks = case.limits.num_blocks if int(kv_tokens) == case.kv_tokens else max(int(kv_tokens) // case.limits.block_size, 1)
    return replace(case.with_limits(num_blocks=blocks), tpot_p99_s=tpot_s)


def carried(case: Case, settings: tuple[Setting, ...]) -> tuple[Carried, ...]:
    """Return what the replica carries at each setting, on the requests that a plan searches with."""
    return tuple(in_parallel(lambda setting: _carried(case, setting), settings))


def _carried(case: Case, setting: Setting) -> Carried:
    engine = with_knobs(case, setting.max_num_seqs, setting.max_num_batched_tokens)
    if engine is None:
        return Carried(setting, None, "memory: the engine would not start", None, None, None, starts=False)
    limits = engine.limits
    replica = Replica(
        coefficients=case.coefficients,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        max_model_len=limits.max_model_len,
        async_scheduling=limits.async_scheduling,
        scheduler_reserve_full_isl=limits.scheduler_reserve_full_isl,
        request_s=case.request_s,
    )
    knobs = Knobs(limits.max_num_seqs, limits.max_num_batched_tokens)
    demand = demand_for(case.workload, SEARCH_REQUESTS, case.seed)
    found = capacity_of(demand, replica, knobs, Targets(ttft_p99_s=case.ttft_p99_s, tpot_p99_s=case.tpot_p99_s))
    usd = None
    if case.usd_per_hour is not None and found.rate_rps:
        tokens_per_s = found.rate_rps * (case.lengths.prompt_mean_tokens + case.lengths.output_mean_tokens)
        usd = case.usd_per_hour / HOUR_S / tokens_per_s * MILLION
    return Carried(setting, found.rate_rps, found.binds, found.latency.ttft_p99_s, found.latency.tpot_p99_s, usd)
