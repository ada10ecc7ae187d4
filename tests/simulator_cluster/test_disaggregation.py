"""Prefill in one pool, decode in another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.simulator.cluster import Cluster, ClusterResult, EngineSpec, Handover, Outcome, Pool, ReplicaTimes, run_cluster
from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits
from planner.step_model import StepCoefficients

KV_BYTES = 131072.0


@pytest.fixture(scope="module")
def split(limits: EngineLimits, usual: StepCoefficients) -> Callable[..., Cluster]:
    def build(link_bytes_per_s: float = 1e10, first: Any = "decode", prefill: int = 2, decode: int = 2, **changed: Any) -> Cluster:
        spec = EngineSpec(limits._replace(**changed), usual)
        return Cluster(
            (
                Pool("prefill", spec, (ReplicaTimes(),) * prefill, "least-tokens"),
                Pool("decode", spec, (ReplicaTimes(),) * decode, "least-requests"),
            ),
            handover=Handover("prefill", "decode", KV_BYTES, link_bytes_per_s, 1e-4, first),
        )

    return build


def run(cluster: Cluster, requests: RequestTable) -> ClusterResult:
    return run_cluster(cluster, requests, np.random.default_rng(0))


@pytest.mark.parametrize("first", ["prefill", "decode"])
def test_nothing_is_lost_and_the_decode_pool_prefills_nothing(
    first: Any, split: Callable[..., Cluster], poisson: Callable[..., RequestTable]
) -> None:
    requests = poisson(300, 30.0, 1)
    requests.prompt_tokens[requests.prompt_tokens == 1] = 2
    result = run(split(first=first), requests)
    assert result.count(Outcome.SERVED) == 300
    decoders = [replica for replica in result.replicas if replica.pool == "decode"]
    prefillers = [replica for replica in result.replicas if replica.pool == "prefill"]
    assert sum(replica.totals.prefill_tokens for replica in decoders) == 0
    assert sum(replica.totals.prefill_tokens for replica in prefillers) == requests.prompt_tokens.sum()
    decoded = requests.output_tokens.sum() - (300 if first == "prefill" else 0)
    assert sum(replica.totals.computed_tokens for replica in decoders) == decoded
    assert result.mean_in_system * result.makespan_s == pytest.approx(result.e2e_s.sum(), rel=1e-9)
    alone = (result.output_tokens == 1) & (first == "prefill")
    assert (result.pool == np.where(alone, 0, 1)).all()
    tokens = requests.prompt_tokens - (first == "decode")
    assert (result.transfer_s[~alone] >= (1e-4 + tokens * KV_BYTES / 1e10)[~alone] - 1e-12).all()


def test_transfer_delays_the_second_token_or_the_first(split: Callable[..., Cluster], table: Callable[..., RequestTable]) -> None:
    """One request alone: its times are the prefill step, the transfer and the decode steps, one after the other."""
    requests = table([0.0], 1001, 3)
    prefill_s = 2 * 1e-3 + 1001 * 3e-5 + 2e-10 * 1001**2 / 2
    decode_s = [6e-3 + 4e-8 * context for context in (1000, 1001, 1002)]
    for first in ("prefill", "decode"):
        result = run(split(first=first, link_bytes_per_s=1e9), requests)
        sent_s = 1e-4 + (1001 if first == "prefill" else 1000) * KV_BYTES / 1e9
        before_s = prefill_s + sent_s
        steps_s = decode_s[1:] if first == "prefill" else decode_s
        assert result.transfer_s[0] == pytest.approx(sent_s)
        assert result.ttft_s[0] == pytest.approx(prefill_s if first == "prefill" else before_s + decode_s[0], rel=1e-6)
        assert result.e2e_s[0] == pytest.approx(before_s + sum(steps_s), rel=1e-6)


def test_a_link_sends_one_after_the_other(split: Callable[..., Cluster], table: Callable[..., RequestTable]) -> None:
    result = run(split(prefill=1, link_bytes_per_s=1e9), table([0.0] * 4, 101, 5))
    one_s = 1e-4 + 100 * KV_BYTES / 1e9
    assert np.sort(result.transfer_s) == pytest.approx(one_s * np.arange(1, 5))


def test_separate_pools_take_prefill_out_of_the_tokens_way(
    split: Callable[..., Cluster], limits: EngineLimits, usual: StepCoefficients, poisson: Callable[..., RequestTable]
) -> None:
    """On as many replicas, the tail of TPOT falls, and queueing for prefill grows."""
    requests = poisson(300, 16.0, 2, 2000, 40)
    together = run(Cluster((Pool("pool", EngineSpec(limits, usual), (ReplicaTimes(),) * 4, "least-requests"),)), requests)
    apart = run(split(link_bytes_per_s=5e10), requests)
    several = requests.output_tokens > 10
    assert np.percentile(apart.tpot_s[several], 99) < 0.8 * np.percentile(together.tpot_s[several], 99)


def test_preempted_in_the_decode_pool_means_prefill_there(
    split: Callable[..., Cluster], table: Callable[..., RequestTable]
) -> None:
    result = run(split(decode=1, prefill=2, num_blocks=40), table(np.arange(12) * 0.001, 100, 120))
    decoder = result.replicas[-1]
    assert result.count(Outcome.SERVED) == 12
    assert decoder.totals.preemptions > 0
    assert decoder.totals.prefill_tokens > 0
    assert decoder.totals.prefill_tokens >= decoder.recomputed_tokens > 0


def test_what_the_decode_pool_could_never_hold_is_refused_at_the_door(
    split: Callable[..., Cluster], table: Callable[..., RequestTable]
) -> None:
    result = run(split(num_blocks=20), table([0.0, 0.0], [100, 100], [300, 30]))
    assert result.outcome.tolist() == [Outcome.REFUSED, Outcome.SERVED]
