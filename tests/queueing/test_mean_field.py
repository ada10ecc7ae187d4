"""The mean-field model: limits in closed form, laws over random inputs, figures recorded from simulation, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.queueing import (
    LatencyTargets,
    MeanField,
    OperatingPoint,
    ReplicaLimits,
    Traffic,
    largest_rate,
    mean_field,
    mg1_wait_quantile_s,
    mg1_wait_s,
)
from planner.step_model import StepShape, step_s
from tests.queueing.streams import ANSWER_ROWS, CHAT_ROWS, CODE_ROWS, H100

LIMITS = ReplicaLimits(256, 8192, 411_525.0)
CHAT, CODE, ANSWERS = (Traffic.from_rows(*pairs) for pairs in (CHAT_ROWS, CODE_ROWS, ANSWER_ROWS))
STREAMS = {"chat": CHAT, "code": CODE, "answers": ANSWERS}

# TTFT mean and p99, TPOT mean and p99 [s] from this project's simulator, 2026-11-30: the 30,000 pairs above in order, Poisson
# arrivals (generator seed 1, scaled to the rate), first tenth dropped, asynchronous scheduling, 16-token blocks.
SIMULATED = [
    ("chat", CHAT, LIMITS, 7.48, (0.04423, 0.15289, 0.00871, 0.01204)),
    ("chat", CHAT, LIMITS, 14.96, (0.06216, 0.21718, 0.01286, 0.02084)),
    ("chat", CHAT, LIMITS, 19.95, (0.08678, 0.28210, 0.01954, 0.03416)),
    ("code", CODE, LIMITS, 6.89, (0.07287, 0.30698, 0.01045, 0.05167)),
    ("code", CODE, LIMITS, 13.78, (0.12819, 0.53659, 0.02102, 0.12338)),
    ("code", CODE, LIMITS, 18.38, (0.23275, 0.92758, 0.04339, 0.16740)),
    ("answers", ANSWERS, LIMITS, 1.8, (0.03273, 0.06851, 0.01095, 0.01370)),
    ("answers", ANSWERS, LIMITS, 2.4, (0.04093, 0.07832, 0.01410, 0.01838)),
    ("small budget", CHAT, ReplicaLimits(256, 1024, 411_525.0), 14.57, (0.06834, 0.24745, 0.01184, 0.01776)),
    ("small budget", CHAT, ReplicaLimits(256, 1024, 411_525.0), 19.43, (0.10905, 0.43532, 0.01663, 0.02627)),
    ("few slots", CHAT, ReplicaLimits(64, 8192, 411_525.0), 11.15, (0.05143, 0.18211, 0.01032, 0.01547)),
    ("few slots", CHAT, ReplicaLimits(64, 8192, 411_525.0), 14.86, (0.06659, 0.26201, 0.01276, 0.02009)),
]


@pytest.mark.parametrize(("name", "traffic", "limits", "rate", "simulated"), SIMULATED, ids=[f"{s[0]}-{s[3]}" for s in SIMULATED])
def test_agrees_with_simulation(
    name: str, traffic: Traffic, limits: ReplicaLimits, rate: float, simulated: tuple[float, float, float, float]
) -> None:
    point = mean_field(rate, traffic, limits, H100)
    ttft_s, ttft_p99_s, tpot_s, tpot_p99_s = simulated
    tolerance = 0.15 if name == "code" else 0.06
    assert point.ttft_mean_s == pytest.approx(ttft_s, rel=tolerance)
    assert point.ttft_p99_s == pytest.approx(ttft_p99_s, rel=0.16)
    assert point.tpot_mean_s == pytest.approx(tpot_s, rel=tolerance)
    assert point.tpot_p99_s == pytest.approx(tpot_p99_s, rel=0.16)


@pytest.mark.parametrize(
    ("traffic", "limits", "simulated_rps", "binds"),
    [
        # Throughput of the middle of a run offered 1.6 times the capacity, same simulator and lengths.
        (CODE, ReplicaLimits(256, 8192, 411_525.0), 22.88, "token budget"),
        (CODE, ReplicaLimits(256, 2048, 411_525.0), 21.89, "token budget"),
        (CHAT, ReplicaLimits(256, 8192, 411_525.0), 24.75, "max_num_seqs"),
        (CHAT, ReplicaLimits(256, 2048, 411_525.0), 24.91, "max_num_seqs"),
    ],
)
def test_capacity_agrees_with_overloaded_simulation(
    traffic: Traffic, limits: ReplicaLimits, simulated_rps: float, binds: str
) -> None:
    saturated = MeanField(traffic, limits, H100).saturated
    assert saturated.rate_rps == pytest.approx(simulated_rps, rel=0.02)
    assert saturated.binds == binds


def test_idle_replica_serves_alone() -> None:
    traffic = Traffic.from_rows([1000], [100])
    point = mean_field(1e-4, traffic, LIMITS, H100)
    prefill_s = step_s(StepShape(1000.0, 1.0, 1.0, prefill_pairs=500_000.0), H100)
    decode_s = step_s(StepShape(1.0, 1.0, 1.0, 1.0, 1050.0), H100)
    assert point.ttft_mean_s == pytest.approx(float(prefill_s), rel=2e-3)
    assert point.tpot_mean_s == pytest.approx(float(decode_s), rel=2e-3)
    assert point.tpot_p99_s == pytest.approx(float(decode_s), rel=5e-3)
    assert point.running == pytest.approx(1e-4 * (float(prefill_s) + 99 * float(decode_s)), rel=1e-2)


@pytest.mark.parametrize("outputs", ["exponential", "constant"])
def test_one_slot_is_a_queue(outputs: str) -> None:
    # max_num_seqs 1 and one-chunk prompts: M/G/1 with service = prefill + decode steps. Constant lengths wait half as long.
    rng = np.random.default_rng(1)
    drawn = np.maximum(np.rint(rng.exponential(200, 20_000)), 1) if outputs == "exponential" else np.full(20_000, 200.0)
    model = MeanField(Traffic.from_rows(np.full(20_000, 500), drawn), ReplicaLimits(1, 8192, 1e6, async_scheduling=False), H100)
    service_s = 1.0 / model.saturated.rate_rps
    step = float(step_s(StepShape(1.0, 1.0, 1.0, 1.0, 600.0), H100))
    cv2 = float(drawn.var()) * step**2 / service_s**2
    for rho in (0.3, 0.5, 0.7):
        point = model.at(rho / service_s)
        mean_s, p99_s = mg1_wait_s(rho / service_s, service_s, cv2), mg1_wait_quantile_s(rho / service_s, service_s, cv2, 0.99)
        assert mean_s is not None
        assert p99_s is not None
        assert point.ttft_mean_s == pytest.approx(mean_s + 0.03, rel=0.05 if outputs == "exponential" else 0.18)
        assert point.ttft_p99_s == pytest.approx(p99_s + 0.03, rel=0.05)


def test_capacity_by_the_token_budget_in_closed_form() -> None:
    # With slots to spare every step is full: rate = budget / (step · (prompt + decode steps)).
    traffic = Traffic.from_rows([2000], [101])
    saturated = MeanField(traffic, ReplicaLimits(1000, 1024, 1e7), H100).saturated
    decode = 1024 * 100 / 2100
    left = 1024 - decode
    full = StepShape(1024.0, decode + 1, decode + 1, decode, decode * 2050.5, prefill_pairs=left * 1000.0)
    assert saturated.binds == "token budget"
    assert saturated.rate_rps == pytest.approx(1024 / (float(step_s(full, H100)) * 2100), rel=1e-6)


def test_recomputed_tokens_lower_the_capacity_of_a_small_cache() -> None:
    # As many sequences by KV as by max_num_seqs, but the cache's sequences evict each other.
    by_kv = MeanField(ANSWERS, ReplicaLimits(4096, 8192, 250_000.0), H100)
    by_slots = MeanField(ANSWERS, ReplicaLimits(int(by_kv.grid.slots), 8192, 1e8), H100)
    assert by_kv.saturated.binds == "KV cache"
    assert 0.75 < by_kv.saturated.rate_rps / by_slots.saturated.rate_rps < 0.97


def test_tpot_ends_at_a_full_step_and_single_tokens_have_none() -> None:
    near = mean_field(22.5, CODE, LIMITS, H100)
    full = float(MeanField(CODE, LIMITS, H100).grid.full_s[-1])
    assert near.tpot_p99_s is not None
    assert near.tpot_p99_s <= full
    classify = mean_field(5.0, Traffic.from_rows([300, 600], [1, 1]), LIMITS, H100)
    assert classify.tpot_mean_s is None
    assert classify.tpot_p99_s is None
    assert classify.decode_s == pytest.approx(0.0, abs=1e-6)
    assert classify.stable


def test_sliding_window_and_experts_are_read() -> None:
    windowed = H100._replace(
        decode_s_per_window_token=H100.decode_s_per_context_token / 2,
        decode_s_per_context_token=H100.decode_s_per_context_token / 2,
        prefill_s_per_window_pair=H100.prefill_s_per_pair / 2,
        prefill_s_per_pair=H100.prefill_s_per_pair / 2,
        window_tokens=512.0,
    )
    unbounded = windowed._replace(window_tokens=1e9)
    plain, cut = mean_field(15.0, CHAT, LIMITS, H100), mean_field(15.0, CHAT, LIMITS, windowed)
    assert mean_field(15.0, CHAT, LIMITS, unbounded).tpot_mean_s == pytest.approx(plain.tpot_mean_s, rel=1e-4)
    assert cut.tpot_mean_s is not None
    assert plain.tpot_mean_s is not None
    assert cut.tpot_mean_s < plain.tpot_mean_s
    sparse = H100._replace(expert_weights_s=4e-3, dense_weights_s=1e-3, expert_miss_ratio=1 - 8 / 128)
    assert mean_field(1.0, CHAT, LIMITS, sparse).step_s < mean_field(15.0, CHAT, LIMITS, sparse).step_s


def test_asynchronous_scheduling_waits_one_step_more() -> None:
    late, early = (mean_field(5.0, CHAT, LIMITS._replace(async_scheduling=mode), H100) for mode in (True, False))
    assert late.ttft_mean_s is not None
    assert early.ttft_mean_s is not None
    assert late.ttft_mean_s - early.ttft_mean_s == pytest.approx(late.step_s, rel=0.1)


def figures(point: OperatingPoint) -> list[float]:
    kept = (point.ttft_mean_s, point.ttft_p99_s, point.tpot_mean_s, point.running, point.kv_tokens_used)
    return [math.inf if figure is None else figure for figure in kept]


limits = st.builds(
    ReplicaLimits,
    max_num_seqs=st.integers(2, 512),
    max_num_batched_tokens=st.sampled_from([600, 2048, 8192, 16384]),
    kv_tokens=st.floats(8_000, 2e6),
    block_size=st.just(16),
    async_scheduling=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(limits, st.sampled_from(["chat", "code", "answers"]), st.floats(0.02, 0.98), st.floats(1.005, 1.5))
def test_everything_rises_with_the_rate(engine: ReplicaLimits, name: str, share: float, factor: float) -> None:
    model = MeanField(STREAMS[name], engine, H100)
    rate = model.saturated.rate_rps * share
    lower, higher = figures(model.at(rate)), figures(model.at(rate * factor))
    for low, high in zip(lower, higher, strict=True):
        assert high >= low * (1 - 5e-3)


@settings(max_examples=40, deadline=None)
@given(limits, st.sampled_from(["chat", "code", "answers"]), st.floats(0.01, 0.999))
def test_littles_law_and_the_limits_hold(engine: ReplicaLimits, name: str, share: float) -> None:
    model = MeanField(STREAMS[name], engine, H100)
    point = model.at(model.saturated.rate_rps * share)
    assert point.stable
    assert point.waiting is not None
    assert point.ttft_mean_s is not None
    in_system = point.running + point.waiting
    assert in_system == pytest.approx(point.rate_rps * (point.ttft_mean_s + point.decode_s), rel=1e-9)
    assert point.kv_tokens_used <= engine.kv_tokens
    assert 0.0 <= point.wait_share <= 1.0
    for use in (point.seqs_utilisation, point.kv_utilisation, point.budget_utilisation, point.prefill_share):
        assert 0.0 <= use <= 1.0
    assert point.ttft_p99_s is not None
    if point.wait_share > 0.02 or point.wait_share < 1e-6:  # a few very long waits may lie beyond p99 and still lift the mean
        assert point.ttft_p99_s >= point.ttft_mean_s
    assert point.tpot_p99_s is not None
    assert point.tpot_mean_s is not None
    assert point.tpot_p99_s >= point.tpot_mean_s


@settings(max_examples=25, deadline=None)
@given(limits, st.sampled_from(["chat", "code", "answers"]), st.floats(1.01, 4.0))
def test_more_room_never_lowers_the_capacity(engine: ReplicaLimits, name: str, factor: float) -> None:
    before = MeanField(STREAMS[name], engine, H100).saturated.rate_rps
    more_kv = engine._replace(kv_tokens=engine.kv_tokens * factor)
    assert MeanField(STREAMS[name], more_kv, H100).saturated.rate_rps >= before * (1 - 1e-3)
    more_seqs = MeanField(STREAMS[name], engine._replace(max_num_seqs=int(engine.max_num_seqs * factor) + 1), H100).saturated
    if more_seqs.binds != "KV cache":  # sequences that evict each other are slower than fewer that don't
        assert more_seqs.rate_rps >= before * (1 - 1e-3)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 0.9), st.floats(1.2, 9.0))
def test_bursts_lengthen_ttft(share: float, cv2: float) -> None:
    rate = MeanField(CHAT, LIMITS, H100).saturated.rate_rps * share
    bursty = Traffic(CHAT.prompts, CHAT.work, CHAT.decode, cv2)
    calm, rough = mean_field(rate, CHAT, LIMITS, H100), mean_field(rate, bursty, LIMITS, H100)
    assert calm.ttft_p99_s is not None
    assert rough.ttft_p99_s is not None
    assert rough.ttft_p99_s > calm.ttft_p99_s


def test_overload_is_an_answer() -> None:
    model = MeanField(CHAT, LIMITS, H100)
    point = model.at(model.saturated.rate_rps * 1.2)
    assert not point.stable
    assert point.ttft_mean_s is None
    assert point.ttft_p99_s is None
    assert point.waiting is None
    assert point.utilisation == pytest.approx(1.2)
    assert point.step_s == model.saturated.step_s
    assert point.tpot_p99_s is not None
    nothing = mean_field(1.0, CHAT, LIMITS._replace(kv_tokens=500.0), H100)
    assert not nothing.stable
    assert nothing.running == 0.0
    assert nothing.capacity_rps == 0.0
    assert nothing.utilisation is None


def test_largest_rate_is_the_edge_of_the_targets() -> None:
    model = MeanField(CHAT, LIMITS, H100)
    found = largest_rate(model, LatencyTargets(1.0, 0.030))
    assert found.rate_rps is not None
    assert found.binds == "TPOT target"
    below, above = model.at(found.rate_rps), model.at(found.rate_rps * 1.003)
    assert below.tpot_p99_s is not None
    assert above.tpot_p99_s is not None
    assert below.tpot_p99_s <= 0.030 < above.tpot_p99_s


def test_largest_rate_names_what_binds() -> None:
    model = MeanField(CHAT, LIMITS, H100)
    assert largest_rate(model, LatencyTargets(0.15, None)).binds == "TTFT target"
    offline = largest_rate(model, LatencyTargets(None, None))
    assert offline.binds == "max_num_seqs"
    assert offline.rate_rps == pytest.approx(model.saturated.rate_rps, rel=1e-5)
    never = largest_rate(model, LatencyTargets(None, 0.001))
    assert never.rate_rps is None
    assert never.binds == "TPOT target"
    assert never.point.tpot_p99_s is not None
    assert never.point.tpot_p99_s > 0.001


@settings(max_examples=15, deadline=None)
@given(st.floats(0.06, 2.0), st.floats(0.009, 0.08), st.floats(1.05, 2.0))
def test_looser_targets_never_lower_the_rate(ttft_s: float, tpot_s: float, factor: float) -> None:
    model = MeanField(CHAT, LIMITS, H100)
    tight = largest_rate(model, LatencyTargets(ttft_s, tpot_s)).rate_rps or 0.0
    loose = largest_rate(model, LatencyTargets(ttft_s * factor, tpot_s * factor)).rate_rps or 0.0
    assert loose >= tight - 2e-3 * model.saturated.rate_rps


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_bad_rates_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate_rps"):
        mean_field(rate, CHAT, LIMITS, H100)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_num_seqs": 0}, "engine.max_num_seqs"),
        ({"max_num_batched_tokens": 1}, "engine.max_num_batched_tokens"),
        ({"kv_tokens": math.nan}, "engine.kv_tokens"),
        ({"kv_tokens": -5.0}, "engine.kv_tokens"),
        ({"block_size": 0}, "engine.block_size"),
    ],
)
def test_bad_limits_are_refused(change: dict[str, float], field: str) -> None:
    with pytest.raises(InputError, match=field):
        MeanField(CHAT, LIMITS._replace(**change), H100)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_targets_are_refused(bad: float) -> None:
    model = MeanField(CHAT, LIMITS, H100)
    with pytest.raises(InputError, match=r"targets\.ttft_p99_s"):
        largest_rate(model, LatencyTargets(bad, None))
    with pytest.raises(InputError, match="kv_tokens"):
        largest_rate(MeanField(CHAT, LIMITS._replace(kv_tokens=100.0), H100), LatencyTargets(1.0, 0.03))
