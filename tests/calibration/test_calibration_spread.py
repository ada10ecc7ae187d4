"""The spread between deployments: sized so that 80 % intervals hold 80 %, and drawn from as stated."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy.intervals import Point, held_out_spread, log_interval, ranges, spread_from
from planner.calibration.records import load_record
from planner.calibration.spread import Z80, ServingSpread, class_of, figure_factors, spread_of, step_factors
from planner.errors import InputError

H100 = "h100-80g-sxm/vllm-0.24.0"


def points(step: float, ttft: float, groups: int = 200, rows: int = 25, seed: int = 3) -> list[Point]:
    """Figures of deployments whose step times are off by one factor each; TTFT by one more a row."""
    rng = np.random.default_rng(seed)
    found = []
    for group in range(groups):
        name, factor = ("gpu", "engine", f"model {group}"), rng.normal(0, step)
        for _ in range(rows):
            found.append(Point(name, "measured", "tpot", factor, (-1.0, 1.0)))
            found.append(Point(name, "measured", "ttft", 2.0 * factor + rng.normal(0, ttft), (-2.0, 2.0)))
    return found


def test_known_spreads_are_recovered() -> None:
    spread = spread_from(points(0.15, 0.4), "a test")
    assert spread.step_log_sd == pytest.approx(0.15, rel=0.15)
    assert spread.ttft_log_sd == pytest.approx(0.4, rel=0.15)
    assert spread.throughput_log_sd == 0.0
    assert (spread.groups, spread.points) == (200, 10_000)


def test_a_large_group_counts_by_the_square_root_of_its_points() -> None:
    """400 rows of one deployment that is off by e weigh 20 against 100 deployments of a row each: a sixth, not four fifths."""
    rng = np.random.default_rng(6)
    large = [Point(("gpu", "engine", "large"), "measured", "tpot", 1.0, (-1.0, 1.0))] * 400
    small = [Point(("gpu", "engine", f"model {n}"), "measured", "tpot", rng.normal(0, 0.1), (-1.0, 1.0)) for n in range(100)]
    assert spread_from([*large, *small], "a test").step_log_sd == pytest.approx(0.16, abs=0.06)


def test_intervals_hold_four_fifths_of_groups_that_they_have_not_seen() -> None:
    seen, unseen = points(0.15, 0.4, seed=4), points(0.15, 0.4, seed=5)
    spread = spread_from(seen, "a test")
    for metric in ("tpot", "ttft"):
        chosen = [point for point in unseen if point.metric == metric]
        ends = [log_interval(spread, metric, point.response) for point in chosen]
        held = np.mean([low <= point.departure <= high for point, (low, high) in zip(chosen, ends, strict=True)])
        assert 0.73 < held < 0.87, metric


def test_a_group_is_left_out_of_its_own_interval() -> None:
    odd = Point(("gpu", "engine", "odd"), "measured", "tpot", 3.0, (-1.0, 1.0))
    usual = points(0.1, 0.3, groups=30, rows=4)
    assert held_out_spread([*usual, odd], odd.group, "measured") == spread_from(usual, "other groups")
    assert held_out_spread([odd], odd.group, "measured") is None


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(-5, 5), st.floats(-5, 5))
@settings(max_examples=50, deadline=None)
def test_every_interval_holds_the_prediction_itself(step: float, extra: float, faster: float, slower: float) -> None:
    spread = ServingSpread(step_log_sd=step, ttft_log_sd=extra, throughput_log_sd=extra, groups=1, points=1, source="x")
    for metric, (low, high) in ranges(spread, dict.fromkeys(("tpot", "ttft", "throughput"), (faster, slower))).items():
        assert low <= 1.0 <= high, metric


def test_a_steeper_response_widens_the_interval() -> None:
    spread = spread_of(load_record(H100))
    assert log_interval(spread, "tpot", (-3.0, 3.0))[1] > log_interval(spread, "tpot", (-1.0, 1.0))[1]


def test_no_tpot_is_refused() -> None:
    with pytest.raises(InputError, match="TPOT"):
        spread_from([point for point in points(0.1, 0.2, groups=2, rows=1) if point.metric == "ttft"], "a test")


def test_records_without_measurements_of_their_own_spread_more() -> None:
    measured, prior = load_record(H100), load_record(H100).model_copy(update={"basis": "prior"})
    assert (class_of(measured), class_of(prior)) == ("measured", "prior")
    assert spread_of(measured).step_log_sd < spread_of(prior).step_log_sd


def test_factors_are_drawn_with_the_spread_and_the_same_from_one_seed() -> None:
    record = load_record(H100)
    factors = step_factors(record, 4000, 7)
    assert factors == step_factors(record, 4000, 7)
    assert np.std(np.log(factors)) == pytest.approx(spread_of(record).step_log_sd, rel=0.05)
    assert step_factors(load_record("textbook"), 3, 7) == [1.0, 1.0, 1.0]


def test_a_dozen_draws_reach_the_ends_of_the_interval_whatever_the_seed() -> None:
    record = load_record(H100)
    spread = spread_of(record)
    ends = {seed: np.quantile(np.log(step_factors(record, 12, seed)), (0.1, 0.9), method="hazen") for seed in range(20)}
    for found in ends.values():
        assert found == pytest.approx([-Z80 * spread.step_log_sd, Z80 * spread.step_log_sd], rel=0.05)


def test_ttft_and_throughput_have_factors_of_their_own() -> None:
    record = load_record(H100)
    spread = spread_of(record)
    drawn = np.log(figure_factors(record, 2000, 7))
    assert np.std(drawn, axis=0) == pytest.approx([spread.ttft_log_sd, spread.throughput_log_sd], rel=0.02)
    steps = np.log(step_factors(record, 2000, 7))
    assert np.abs(np.corrcoef([*drawn.T, steps]) - np.eye(3)).max() < 0.08
    assert figure_factors(load_record("textbook"), 3, 7) == [(1.0, 1.0)] * 3


def test_a_deployment_that_a_record_was_served_with_departs_by_its_residuals() -> None:
    record = load_record("h100-94g-nvl/vllm-0.19.0")
    assert record.evidence is not None
    assert spread_of(record, "llama-3.1-8b-instruct fp8 tp1").step_log_sd == record.evidence.residual_log_sd
    assert spread_of(record).step_log_sd > 2 * (record.evidence.residual_log_sd or math.inf)
    operators = load_record(H100)
    assert spread_of(operators, "llama-3.1-8b-instruct bf16 tp1") == spread_of(operators)


def test_a_rate_below_saturation_keeps_an_interval_of_its_own() -> None:
    """Throughput there is the rate of arrivals: what it departs by shows on such points alone, not among those that steps move."""
    rng = np.random.default_rng(8)
    name = ("gpu", "engine", "model")
    moved = [Point(name, "prior", "throughput", rng.normal(0.0, 0.1), (1.0, -1.0)) for _ in range(400)]
    at_rate = [Point(name, "prior", "throughput", rng.normal(0.0, 0.04), (0.0, -0.05)) for _ in range(100)]
    tpot = [Point(name, "prior", "tpot", rng.normal(0.0, 0.25), (-1.0, 1.0)) for _ in range(400)]
    assert spread_from([*tpot, *moved], "a test").throughput_log_sd == pytest.approx(0.0, abs=1e-6)
    spread = spread_from([*tpot, *moved, *at_rate], "a test")
    assert spread.throughput_log_sd == pytest.approx(0.04, rel=0.2)
    ends = [log_interval(spread, "throughput", point.response) for point in at_rate]
    held = np.mean([low <= point.departure <= high for point, (low, high) in zip(at_rate, ends, strict=True)])
    assert 0.75 < held < 0.87
