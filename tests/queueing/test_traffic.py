"""Moments that the mean-field model reads: exact sums, bins that keep means, bad rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.queueing import Traffic, arrival_cv2_of
from planner.workloads import Requests
from planner.workloads.arrivals import ConstantArrivals, GammaArrivals, PoissonArrivals, ProfileArrivals, WeibullArrivals

PROMPTS, OUTPUTS = [100, 200, 600], [10, 40, 1]


def test_moments_by_hand() -> None:
    traffic = Traffic.from_rows(PROMPTS, OUTPUTS)
    assert traffic.work.q == pytest.approx(300.0)
    assert traffic.work.r == pytest.approx((100**2 + 200**2 + 600**2) / 6)
    assert traffic.work.qr == pytest.approx((100**3 + 200**3 + 600**3) / 6)
    assert traffic.work.rrr == pytest.approx((100**6 + 200**6 + 600**6) / 24)
    assert traffic.decode.output_mean == pytest.approx(17.0)
    assert traffic.decode.steps_mean == pytest.approx(16.0)
    assert traffic.decode.share == pytest.approx(2 / 3)
    # Running context: (10·105 + 40·220 + 1·600.5) / 51.
    assert traffic.decode.context_mean == pytest.approx((10 * 105 + 40 * 220 + 600.5) / 51)
    # Shorter of two outputs, all nine pairs: 5 × 1, 3 × 10, 1 × 40.
    assert traffic.decode.shorter_of_two == pytest.approx((5 * 1 + 3 * 10 + 40) / 9 / 17)


def test_cached_prompts_are_not_computed() -> None:
    traffic = Traffic.from_rows([1000, 1000], [10, 10], cached_prompt_tokens=[400, 400])
    assert traffic.work.q == pytest.approx(600.0)
    assert traffic.work.r == pytest.approx(600 * (400 + 300))
    assert traffic.decode.context_mean == pytest.approx(1005.0)


def test_work_of_a_prompt_by_its_moments() -> None:
    traffic = Traffic.from_rows(PROMPTS, OUTPUTS)
    a, b = np.array([2e-5]), 1e-9
    each = np.array([a[0] * p + b * p * p / 2 for p in PROMPTS])
    assert traffic.work.first(a, b)[0] == pytest.approx(each.mean())
    assert traffic.work.second(a, b)[0] == pytest.approx((each**2).mean())
    assert traffic.work.third(a, b)[0] == pytest.approx((each**3).mean())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 5_000)), min_size=1, max_size=300))
def test_bins_keep_the_means(rows: list[tuple[int, int]]) -> None:
    prompts, outputs = (np.array(side, dtype=float) for side in zip(*rows, strict=True))
    traffic = Traffic.from_rows(prompts, outputs)
    for bins in (traffic.prompts, traffic.decode.outputs, traffic.decode.contexts):
        assert bins.weights.sum() == pytest.approx(1.0)
        assert (bins.weights > 0).all()
        assert (np.diff(bins.tokens) >= -1e-9 * bins.tokens[1:]).all()
    assert traffic.prompts.mean_of(traffic.prompts.tokens) == pytest.approx(prompts.mean())
    assert traffic.prompts.mean_of(traffic.prompts.pairs) == pytest.approx((prompts**2 / 2).mean())
    decode = traffic.decode
    assert decode.contexts.mean_of(decode.contexts.tokens) == pytest.approx(decode.context_mean)
    if decode.share:
        assert decode.outputs.mean_of(decode.outputs.tokens) == pytest.approx(outputs[outputs > 1].mean())
    assert 0.0 < decode.shorter_of_two <= 1.0 + 1e-12


def test_requests_carry_their_cached_tokens() -> None:
    requests = Requests(
        arrival_s=np.array([0.0, 1.0]),
        prompt_tokens=np.array([1000, 500]),
        output_tokens=np.array([10, 10]),
        class_index=np.zeros(2, dtype=np.int64),
        cached_prompt_tokens=np.array([600, 0]),
    )
    assert Traffic.from_requests(requests, 1.0).work.q == pytest.approx((400 + 500) / 2)


def test_squared_cv_of_arrival_laws() -> None:
    rng = np.random.default_rng(0)
    assert arrival_cv2_of(PoissonArrivals(), rng) == 1.0
    assert arrival_cv2_of(ConstantArrivals(), rng) == 0.0
    assert arrival_cv2_of(GammaArrivals(cv=2.0), rng) == 4.0
    assert arrival_cv2_of(WeibullArrivals(cv=1.5), rng) == 2.25
    hours = ProfileArrivals(factors=(0.5,) * 12 + (1.5,) * 12, base=GammaArrivals(cv=3.0))
    assert arrival_cv2_of(hours, rng) == 9.0


@pytest.mark.parametrize(
    ("prompts", "outputs", "cached", "field"),
    [
        ([], [], None, "prompt_tokens"),
        ([1, 2], [1], None, "output_tokens"),
        ([0, 2], [1, 1], None, "prompt_tokens"),
        ([1, 2], [1, float("nan")], None, "output_tokens"),
        ([float("inf"), 2], [1, 1], None, "prompt_tokens"),
        ([[1, 2]], [1, 1], None, "prompt_tokens"),
        ([5, 5], [1, 1], [5, 0], "cached_prompt_tokens"),
        ([5, 5], [1, 1], [-1, 0], "cached_prompt_tokens"),
    ],
)
def test_bad_rows_are_refused(prompts: list[float], outputs: list[float], cached: list[float] | None, field: str) -> None:
    with pytest.raises(InputError, match=field):
        Traffic.from_rows(prompts, outputs, cached_prompt_tokens=cached)
