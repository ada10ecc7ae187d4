"""Money: conservation of the bill, and the published example of an owned node."""

import datetime as dt
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.fleet import place
from planner.pricing import OwnedNode, Tariff, TokenVolume, fleet_cost, owned_usd_per_gpu_hour

TARIFF = Tariff("acme", "box-8", "here", 8, 16.0, "on demand", "price list", dt.date(2026, 7, 20))


def test_cost_closed_form() -> None:
    placement = place(3, 2, 8)
    assert placement is not None
    cost = fleet_cost(TARIFF, placement, TokenVolume(prompt_tokens_per_s=1000, output_tokens_per_s=100), token_cost_ratio=5.0)
    assert cost.usd_per_hour == 16.0
    assert cost.usd_per_day == 384.0
    assert cost.usd_per_million_tokens == pytest.approx(384.0 / (1100 * 86400) * 1e6)
    assert cost.usd_per_million_output_tokens == pytest.approx(5 * cost.usd_per_million_prompt_tokens)
    assert cost.prompt_share == pytest.approx(1000 / 1500)


@given(prompt=st.floats(0.1, 1e7), output=st.floats(0.1, 1e7), ratio=st.floats(0.01, 1000), replicas=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_the_split_adds_up_to_the_bill(prompt: float, output: float, ratio: float, replicas: int) -> None:
    placement = place(replicas, 1, 8)
    assert placement is not None
    cost = fleet_cost(TARIFF, placement, TokenVolume(prompt, output), ratio)
    split = (cost.usd_per_million_prompt_tokens * prompt + cost.usd_per_million_output_tokens * output) * 86400 / 1e6
    assert split == pytest.approx(cost.usd_per_day, rel=1e-9)
    low, high = sorted([cost.usd_per_million_prompt_tokens, cost.usd_per_million_output_tokens])
    assert low * (1 - 1e-9) <= cost.usd_per_million_tokens <= high * (1 + 1e-9)


def test_no_tokens_is_an_error_not_a_division_by_zero() -> None:
    placement = place(1, 1, 8)
    assert placement is not None
    with pytest.raises(InputError, match="token volume"):
        fleet_cost(TARIFF, placement, TokenVolume(0.0, 0.0), 1.0)


def test_owned_node_matches_the_worked_example() -> None:
    # $325k, 30 % residual, 4 years, 7 kW at PUE 1.3 and $0.10, colocation $200 × 10.2 kW: $0.81 + $0.11 + $0.35.
    node = OwnedNode(325e3, 0.30, 4, 0.0, 0.0, 7000, 1.3, 0.10, 2040, 8, 1.0)
    assert owned_usd_per_gpu_hour(node) == pytest.approx(1.27, abs=0.01)


WORKED = OwnedNode(325e3, 0.30, 4, 0.0, 0.0, 7000, 1.3, 0.10, 2040, 8, 1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capex_usd", math.nan),
        ("residual_share", 1.5),
        ("years", 0.0),
        ("interest_per_year", -0.1),
        ("wall_power_w", math.inf),
        ("pue", 0.9),
        ("gpu_count", 0),
        ("availability", 0.0),
    ],
)
def test_a_machine_that_cannot_be_owned_is_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        owned_usd_per_gpu_hour(replace(WORKED, **{field: value}))


@given(share=st.floats(0.05, 1.0), years=st.floats(1.0, 20.0))
@settings(max_examples=40, deadline=None)
def test_a_machine_that_serves_less_or_shorter_costs_more_an_hour(share: float, years: float) -> None:
    usual = owned_usd_per_gpu_hour(WORKED)
    assert owned_usd_per_gpu_hour(replace(WORKED, availability=share)) == pytest.approx(usual / share)
    assert (owned_usd_per_gpu_hour(replace(WORKED, years=years)) >= usual) == (years <= 4.0)


def test_a_price_grows_stale_after_ninety_days() -> None:
    assert not TARIFF.is_stale(dt.date(2026, 10, 18))
    assert TARIFF.is_stale(dt.date(2026, 10, 19))
