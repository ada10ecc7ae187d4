"""What draws of a calibration are made of and what becomes of them: ends of intervals, sides of a parameter, quantiles."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import plan
from planner.calibration.records import load_record
from planner.calibration.schema import Parameter
from planner.calibration.spread import Z80, spread_of
from planner.plans.draws import Draws, _drawn, _tighter
from planner.plans.evidence import _count_interval, _interval, interval_source
from planner.plans.results import Interval
from planner.provenance import Source
from planner.scenario import LONGEST_TTFT_S, HardwareChoice, Scenario, Targets


def parameter(value: float, low: float, high: float) -> Parameter:
    return Parameter(value=value, low=low, high=high, informed_by="data", source=Source(kind="fitted", ref="a test"))


def test_a_draw_of_one_z_is_the_end_of_the_interval_on_its_side() -> None:
    uneven = parameter(2.0, 1.5, 4.0)
    assert _drawn(uneven, Z80) == pytest.approx(4.0)
    assert _drawn(uneven, -Z80) == pytest.approx(1.5)
    assert _drawn(uneven, 0.0) == 2.0
    assert _drawn(uneven, 2 * Z80) == pytest.approx(8.0), "each side is log-normal"


def test_a_figure_of_zero_is_drawn_linearly_and_never_below() -> None:
    from_zero = parameter(0.0, 0.0, 3e-6)
    assert _drawn(from_zero, Z80) == pytest.approx(3e-6)
    assert _drawn(from_zero, -Z80) == 0.0
    assert _drawn(parameter(1e-6, 0.0, 2e-6), -2 * Z80) == 0.0


def test_an_interval_leaves_a_tenth_of_the_draws_on_either_side() -> None:
    tens = [float(value) for value in range(1, 11)]
    assert _interval(tens, 6.0) == Interval(1.5, 6.0, 9.5), "one draw of ten on either side, halfway to the next"
    assert _count_interval(range(1, 12), 6) == Interval(2.0, 6.0, 10.0)
    assert _count_interval([9], 6) == _interval([9.0], 6.0) == Interval(6.0, 6.0, 6.0), "one draw is no interval"


def test_a_ttft_that_comes_out_longer_needs_steps_that_meet_a_tighter_target() -> None:
    assert _tighter(Targets(ttft_p99_s=1.0, tpot_p99_s=0.03), 2.0) == Targets(ttft_p99_s=0.5, tpot_p99_s=0.03)
    assert _tighter(Targets(ttft_p99_s=None, tpot_p99_s=0.03), 2.0) == Targets(ttft_p99_s=None, tpot_p99_s=0.03)
    longest = Targets(ttft_p99_s=LONGEST_TTFT_S, tpot_p99_s=None)
    assert _tighter(longest, 0.5) == longest


def test_a_plans_ttft_interval_is_as_wide_as_published_ttfts_are() -> None:
    answer = plan(Scenario(hardware=HardwareChoice(gpu_ids=("h100-80g-sxm",))))
    assert answer.details is not None
    found = answer.details.ttft_p99_s
    spread = spread_of(load_record("h100-80g-sxm/vllm-0.24.0"))
    least = math.exp(0.7 * Z80 * spread.ttft_log_sd)
    assert found.high / found.likely > least
    assert found.likely / found.low > least


@given(st.lists(st.floats(1e-6, 1e6), max_size=12), st.floats(1e-6, 1e6))
@settings(max_examples=60, deadline=None)
def test_an_interval_holds_its_figure_and_stays_within_the_draws(draws: list[float], likely: float) -> None:
    found = _interval([*draws, math.inf, math.nan, 0.0], likely)
    assert found.low <= found.likely == likely <= found.high
    assert min([*draws, likely]) <= found.low
    assert found.high <= max([*draws, likely])


@pytest.mark.parametrize(
    ("draws", "said"),
    [
        (Draws((3.0,) * 12, 0, (0.4,) * 12, (0.02,) * 12), "80 % interval from 12 draws"),
        (Draws((3.0,) * 8, 4, (0.4,) * 12, (0.02,) * 12), "capacity, replicas and cost from the 8 that can meet the targets"),
        (Draws((3.0,), 11, (0.4,) * 12, (0.02,) * 12), "none for capacity, replicas and cost, since 1 of the draws"),
        (Draws((), 0, (), ()), "No interval: 0 of 12 draws"),
    ],
)
def test_a_plan_says_how_many_draws_stand_behind_its_intervals(draws: Draws, said: str) -> None:
    assert said in interval_source(draws, load_record("textbook"))
