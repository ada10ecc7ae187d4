"""Prompts that are said to be cached: one engine computes the rest alone, several replicas ask for the content."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from planner.errors import InputError
from planner.simulator import EngineLimits, simulate
from planner.simulator.cluster import Cluster, EngineSpec, Pool, ReplicaTimes, run_cluster, run_engine
from planner.simulator.inputs import RequestTable
from planner.simulator.variants import sglang, tensorrt_llm
from planner.step_model import StepCoefficients

Poisson = Callable[..., RequestTable]
LIMITS = EngineLimits(8, 256, 16, 400, enable_prefix_caching=True)


@pytest.fixture
def cached(poisson: Poisson) -> RequestTable:
    """Requests of whose prompts about half is cached."""
    drawn = poisson(60, 40.0, 7)
    return replace(drawn, cached_prompt_tokens=drawn.prompt_tokens // 2)


@pytest.mark.parametrize("by_events", [True, False])
def test_one_replica_serves_as_the_engine_does(cached: RequestTable, usual: StepCoefficients, by_events: bool) -> None:
    cluster = Cluster((Pool("engine", EngineSpec(LIMITS, usual)),))
    found = run_cluster(cluster, cached, np.random.default_rng(0), by_events=by_events)
    expected = simulate(cached, LIMITS, usual)
    assert np.array_equal(found.first_token_s, expected.first_token_s)
    assert np.array_equal(found.finish_s, expected.finish_s)
    assert np.array_equal(found.cached_tokens, cached.prompt_tokens // 2 // 16 * 16)
    assert found.cached_tokens.sum() > 0


@pytest.mark.parametrize("variant", [sglang(), tensorrt_llm()])
def test_other_engines_compute_the_rest_alone(cached: RequestTable, usual: StepCoefficients, variant: object) -> None:
    engine = EngineSpec(LIMITS, usual, scheduler=variant)  # type: ignore[arg-type]
    some = run_engine(engine, cached)
    none = run_engine(engine, replace(cached, cached_prompt_tokens=None))
    saved = none.replicas[0].totals.prefill_tokens - some.replicas[0].totals.prefill_tokens
    assert saved == some.cached_tokens.sum() > 0
    assert np.nansum(some.first_token_s) < np.nansum(none.first_token_s)


def test_what_several_replicas_hold_depends_on_the_router(cached: RequestTable, usual: StepCoefficients) -> None:
    two = (ReplicaTimes(), ReplicaTimes())
    pool = Pool("engine", EngineSpec(LIMITS, usual), two)
    with pytest.raises(InputError, match="block_hashes"):
        run_cluster(Cluster((pool,)), cached, np.random.default_rng(0))
    off = replace(pool, engine=EngineSpec(LIMITS._replace(enable_prefix_caching=False), usual))
    assert run_cluster(Cluster((off,)), cached, np.random.default_rng(0)).cached_tokens.sum() == 0
