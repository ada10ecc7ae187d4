"""A GPU without a price says why: nobody rents it, this provider or region doesn't, or not on this basis; and who does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.hardware import list_prices
from planner.plans import plan
from planner.plans.candidates import prices_by_gpu, tariffs_for
from planner.plans.market import commitment_text, why_no_price
from planner.pricing import Tariff
from planner.scenario import HardwareChoice, scenario_from_dict

NBSP = "\N{NO-BREAK SPACE}"
PRICES = list_prices()
MI300X_ON_AZURE = [price for price in PRICES if price.gpu_id == "mi300x" and price.provider == "azure"]


@pytest.mark.parametrize(
    ("gpu_id", "choice", "said"),
    [
        ("mi300x", {"provider": "aws"}, "aws doesn't rent this GPU; azure does"),
        ("h200-141g-sxm", {"provider": "gcp"}, "gcp doesn't rent this GPU; aws and azure do"),
        ("rtx-4090", {}, "no price is known for this GPU"),
        ("rtx-4090", {"provider": "aws", "price_basis": "spot"}, "no price is known for this GPU"),
        ("mi300x", {"region": "us-east-1"}, "nobody known rents this GPU in us-east-1; azure does in "),
        ("mi300x", {"provider": "aws", "region": "us-east-1"}, "aws doesn't rent this GPU in us-east-1; azure does in "),
    ],
)
def test_the_reason_names_what_lacks_and_who_has_it(gpu_id: str, choice: dict[str, Any], said: str) -> None:
    clause = why_no_price(gpu_id, HardwareChoice(**choice))
    assert clause is not None
    assert clause.startswith(said)


def test_regions_that_rent_it_are_named() -> None:
    clause = why_no_price("mi300x", HardwareChoice(region="us-east-1"))
    assert clause is not None
    assert any(price.region in clause for price in MI300X_ON_AZURE)


def test_an_own_price_is_a_price() -> None:
    assert why_no_price("rtx-4090", HardwareChoice(usd_per_gpu_hour={"rtx-4090": 0.4})) is None


@given(
    gpu_id=st.sampled_from([*sorted({price.gpu_id for price in PRICES}), "rtx-4090"]),
    provider=st.sampled_from([None, *sorted({price.provider for price in PRICES})]),
    region=st.sampled_from([None, *sorted({price.region for price in PRICES})]),
    basis=st.sampled_from(["on_demand", "spot"]),
)
@settings(max_examples=60, deadline=None)
def test_there_is_a_reason_exactly_where_no_machine_has_a_price(
    gpu_id: str, provider: str | None, region: str | None, basis: str
) -> None:
    choice = HardwareChoice.model_validate({"provider": provider, "region": region, "price_basis": basis})
    machines = tariffs_for(gpu_id, choice, prices_by_gpu(choice).get(gpu_id, ()))
    assert (why_no_price(gpu_id, choice) is None) == bool(machines)


def test_the_plan_says_so_of_its_choice_and_of_a_gpu_that_lost() -> None:
    alone = {"gpu_ids": ["mi300x"], "tensor_parallel": [1], "provider": "aws"}
    chosen = plan(scenario_from_dict({"hardware": alone}))
    assert chosen.chosen is not None
    assert chosen.chosen.cost is None
    assert "aws doesn't rent this GPU; azure does. Give your own price" in chosen.summary
    beside = plan(scenario_from_dict({"hardware": {**alone, "gpu_ids": ["mi300x", "h100-80g-sxm"]}}))
    assert beside.chosen is not None
    assert beside.chosen.gpu_id == "h100-80g-sxm"
    assert any("MI300X" in warning and "aws doesn't rent" in warning for warning in beside.warnings)


def tariff(provider: str, basis: str = "on demand") -> Tariff:
    return Tariff(provider, "box", "here", 8, 16.0, basis, "a test", None)


def test_what_a_commitment_may_save_is_said_where_it_is_known() -> None:
    said = commitment_text(tariff("azure"))
    assert said is not None
    ranges = f"30{NBSP}% to 36{NBSP}% over 12 months and 50{NBSP}% to 62{NBSP}% over 36 months"
    assert said.startswith(f"a commitment at azure takes off {ranges}")
    gcp = commitment_text(tariff("gcp"))
    assert gcp is not None
    assert gcp.startswith(f"a commitment at gcp takes off 30{NBSP}% over 12 months")
    assert commitment_text(tariff("azure", "spot")) is None
    assert commitment_text(tariff("yours", "per GPU-hour")) is None
    assert commitment_text(tariff("nobody known")) is None
