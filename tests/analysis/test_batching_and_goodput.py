"""Batching gain, token-budget knees, goodput, Little's law: closed forms, laws, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.batching import (
    batching_gain,
    budget_knee,
    exponential_gain,
    harmonic_number,
    knee_tokens,
    knee_tokens_with_decoders,
    ridge_tokens,
)
from planner.analysis.goodput import best_batch, compare_batches, goodput_curve, largest_within
from planner.analysis.littles_law import Stream, fixed_point, in_flight
from planner.analysis.steps import Decoders, decode_step_s
from planner.errors import InputError
from tests.analysis.round_engine import C


def test_exponential_gain_is_the_harmonic_number_and_matches_samples() -> None:
    assert harmonic_number(4) == pytest.approx(25 / 12)
    rng = np.random.default_rng(0)
    rows = np.maximum(rng.exponential(400.0, 200_000).astype(np.int64), 1)
    assert batching_gain(rows, 16).gain == pytest.approx(exponential_gain(16).gain, rel=0.02)
    longest = rng.choice(rows, (4000, 16)).max(axis=1).mean() / rows.mean()
    assert batching_gain(rows, 16).gain == pytest.approx(longest, rel=0.02)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.integers(1, 300), st.integers(1, 300))
def test_gain_grows_with_the_batch_and_starts_at_one(rows: list[int], one: int, other: int) -> None:
    outputs = np.array(rows)
    small, large = sorted((one, other))
    assert batching_gain(outputs, 1).gain == pytest.approx(1.0)
    gains = [batching_gain(outputs, size).gain for size in (small, large)]
    assert 1.0 - 1e-9 <= gains[0] <= gains[1] * (1 + 1e-12)
    assert gains[1] <= max(rows) / outputs.mean() * (1 + 1e-9)
    waste = batching_gain(outputs, large).wasted_share
    assert waste == pytest.approx(1 - 1 / gains[1])


def test_knees_by_hand() -> None:
    assert ridge_tokens(1000e12, 2e12) == pytest.approx(500.0)
    assert ridge_tokens(1000e12, 2e12, bytes_per_weight=1.0) == pytest.approx(250.0)
    assert knee_tokens(C) == pytest.approx(200.0)
    # 64 decoders at 1,000 tokens read 2.56 ms more: 128 tokens.
    assert knee_tokens_with_decoders(Decoders(64.0, 1000.0), C) == 328
    assert knee_tokens_with_decoders(Decoders(64.0, 1001.0), C) == 329


def test_knee_of_experts_balances_what_is_hit() -> None:
    sparse = C._replace(expert_weights_s=8e-3, expert_miss_ratio=1 - 8 / 128)
    knee = knee_tokens(sparse)
    hit = 1 - (1 - 8 / 128) ** knee
    assert 4e-3 + 8e-3 * hit == pytest.approx(20e-6 * knee, rel=1e-9)


def test_published_budgets_are_placed() -> None:
    knee = budget_knee(295.2, Decoders(64.0, 1000.0), C)
    assert [place.side for place in knee.published] == ["at the knee", "past the knee", "past the knee", "past the knee"]
    assert "200.0 tokens" in knee.explanation.answer


def test_goodput_collapses_past_the_best_batch() -> None:
    # 4.3 ms + n · 40 µs ≤ 8 ms: n ≤ 92.5
    best = best_batch(1000.0, 8e-3, C)
    assert best.batch == 92
    curve = goodput_curve([92, 93], 1000.0, 8e-3, C)
    assert curve.tokens_per_s[1] > curve.tokens_per_s[0]
    assert curve.goodput_tokens_per_s[0] == pytest.approx(curve.tokens_per_s[0])
    assert curve.goodput_tokens_per_s[1] == 0.0
    trade = compare_batches(92, 184, 1000.0, 8e-3, C)
    assert trade.throughput_gain > 0.0
    assert trade.larger_goodput_tokens_per_s == 0.0


def test_best_batch_at_its_ends() -> None:
    assert best_batch(1000.0, 4e-3, C).batch == 0
    assert not best_batch(0.0, 1.0, C, largest=77).binds
    assert best_batch(0.0, 1.0, C, largest=77).batch == 77


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 4000))
def test_largest_within_finds_the_edge(edge: int, largest: int) -> None:
    assert largest_within(float, edge + 0.5, largest) == min(edge, largest)


@settings(max_examples=40, deadline=None)
@given(st.floats(1, 20_000), st.floats(1e-3, 0.1))
def test_best_batch_meets_and_the_next_misses(context: float, target: float) -> None:
    batch = best_batch(context, target, C).batch
    if batch:
        assert float(decode_step_s(float(batch), context, C)) <= target
    assert float(decode_step_s(float(batch + 1), context, C)) > target


def test_littles_law_by_hand() -> None:
    # Decode-bound: step = 4.3 ms + n·(600·40 ns); prefill 500·20 µs + 125,000 ns + 0.3 ms = 10.425 ms.
    found = in_flight(Stream(10.0, 500.0, 200.0), 131_072, C, kv_capacity_bytes=1e9)
    n = (10 * (0.010425 + 200 * 4.3e-3)) / (1 - 10 * 200 * 600 * 40e-9)
    assert found.in_flight == pytest.approx(n)
    assert found.duration_s == pytest.approx(n / 10)
    assert found.kv_bytes == pytest.approx(n * 600 * 131_072)
    assert found.fits is True
    assert in_flight(Stream(10.0, 500.0, 200.0), 131_072, C, kv_capacity_bytes=1e6).fits is False


def test_no_fixed_point_is_an_answer() -> None:
    found = in_flight(Stream(100.0, 500.0, 2000.0), 131_072, C)
    assert not found.exists
    assert found.in_flight is None
    assert "no steady state" in found.explanation.answer
    assert fixed_point(lambda n: n + 1.0) is None


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 15.0), st.floats(1.01, 2.0))
def test_more_arrivals_more_in_flight(rate: float, factor: float) -> None:
    fewer = in_flight(Stream(rate, 500.0, 200.0), 131_072, C)
    more = in_flight(Stream(rate * factor, 500.0, 200.0), 131_072, C)
    assert fewer.exists
    assert not more.exists or (more.in_flight or 0.0) > (fewer.in_flight or 0.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_input_is_refused(bad: float) -> None:
    for call in (
        lambda: ridge_tokens(bad, 1e12),
        lambda: best_batch(1000.0, bad, C),
        lambda: goodput_curve([bad], 1000.0, 0.01, C),
        lambda: in_flight(Stream(bad, 500.0, 200.0), 131_072, C),
        lambda: in_flight(Stream(1.0, bad, 200.0), 131_072, C),
        lambda: in_flight(Stream(1.0, 500.0, 200.0), bad, C),
    ):
        with pytest.raises(InputError):
            call()
    with pytest.raises(InputError):
        harmonic_number(0)
    with pytest.raises(InputError):
        best_batch(1.0, 1.0, C, largest=0)
