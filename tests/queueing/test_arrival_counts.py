"""Counts of clustered arrivals: Poisson in closed form, gamma gaps against sampling, limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.queueing import none_within, others_within
from planner.queueing.arrival_counts import check_cv2

STRETCHES = np.array([0.05, 0.3, 1.0, 5.0])


def test_poisson_in_closed_form() -> None:
    assert none_within(STRETCHES, 1.0) == pytest.approx(np.exp(-STRETCHES))
    assert others_within(STRETCHES, 1.0) == pytest.approx(STRETCHES)


def test_table_joins_poisson_smoothly() -> None:
    assert others_within(STRETCHES, 1.0 + 1e-9) == pytest.approx(STRETCHES, rel=1e-3)
    assert none_within(STRETCHES, 1.0 + 1e-9) == pytest.approx(np.exp(-STRETCHES), rel=1e-6)


def test_even_gaps_leave_no_room_for_chance() -> None:
    assert none_within(STRETCHES, 0.0) == pytest.approx([0.95, 0.7, 0.0, 0.0])
    # An arrival in a stretch of 5 gaps has 4 others in it; in one of less than a gap none.
    assert others_within(STRETCHES, 0.0) == pytest.approx([0.0, 0.0, 0.0, 4.0], abs=0.06)


@pytest.mark.parametrize("cv2", [0.25, 2.0, 4.0, 36.0])
def test_gamma_gaps_against_sampling(cv2: float) -> None:
    rng = np.random.default_rng(7)
    times = np.cumsum(rng.gamma(1.0 / cv2, cv2, 400_000))
    for stretch in (0.3, 1.0, 5.0):
        counts = np.bincount((times / stretch).astype(np.int64)).astype(float)
        others = (counts * (counts - 1.0)).sum() / counts.sum()
        assert others_within(np.array([stretch]), cv2)[0] == pytest.approx(others, rel=0.03, abs=0.015)
        assert none_within(np.array([stretch]), cv2)[0] == pytest.approx((counts == 0).mean(), rel=0.03, abs=0.015)


@pytest.mark.parametrize("cv2", [0.25, 2.0, 9.0])
def test_long_stretches_reach_the_renewal_asymptote(cv2: float) -> None:
    assert others_within(np.array([800.0]), cv2)[0] == pytest.approx(800.0 + cv2 - 1.0, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 30.0), st.floats(1.0, 9.0))
def test_bursts_bring_more_company_and_more_gaps(stretch: float, cv2: float) -> None:
    x = np.array([stretch])
    assert others_within(x, cv2)[0] >= others_within(x, 1.0)[0] * (1 - 1e-2)
    assert none_within(x, cv2)[0] >= none_within(x, 1.0)[0] - 1e-9


@pytest.mark.parametrize("bad", [-0.1, 901.0, float("nan"), float("inf")])
def test_squared_cv_out_of_bounds(bad: float) -> None:
    with pytest.raises(InputError, match="arrival_cv2"):
        check_cv2(bad)
