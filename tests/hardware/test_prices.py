"""Prices: dated rows of instances, cheapest first, and the ranges of the market."""

import datetime as dt
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.hardware import Price, list_prices, load_market, prices_for, prices_from_csv
from planner.paths import PROFILES_DIR

HEADER = "provider,instance,gpu_id,gpu_count,region,on_demand_usd_per_hour,spot_usd_per_hour,as_of,source,licence,note\n"
ROW = "acme,box-8,h100-80g-sxm,8,mars-1,16,8,2026-10-01,price list,own,\n"


@pytest.fixture
def user_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hardware_profiles" / "prices"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return folder


def row(**changes: str) -> str:
    names = HEADER.strip().split(",")
    cells = dict(zip(names, ROW.strip().split(","), strict=True)) | changes
    return HEADER + ",".join(cells[name] for name in names) + "\n"


def test_shipped_rows_are_all_dated_sourced_and_free_to_ship() -> None:
    prices = list_prices()
    assert len(prices) == 232
    assert {price.licence for price in prices} == {"Apache-2.0"}
    assert all("karpenter-provider" in price.source for price in prices)
    assert {price.as_of.year for price in prices} == {2026}


# USD a GPU-hour on demand in the United States, as the providers' own lists had them in mid-2026.
@pytest.mark.parametrize(
    ("gpu_id", "provider", "usd"),
    [
        ("h100-80g-sxm", "aws", 6.88),
        ("h100-80g-sxm", "gcp", 11.06),
        ("h100-80g-sxm", "azure", 12.29),
        ("a100-80g-sxm", "aws", 3.43),
        ("a100-80g-sxm", "azure", 4.10),
        ("a100-80g-sxm", "gcp", 5.07),
        ("b200-sxm", "aws", 14.24),
        ("b300-sxm", "aws", 17.80),
        ("gb200", "azure", 27.04),
        ("mi300x", "azure", 6.00),
        ("l4", "aws", 0.80),
        ("l4", "gcp", 0.70),
    ],
)
def test_cheapest_on_demand_gpu_hour(gpu_id: str, provider: str, usd: float) -> None:
    assert prices_for(gpu_id, provider=provider)[0].usd_per_gpu_hour() == pytest.approx(usd, abs=0.006)


def test_the_host_is_part_of_the_price() -> None:
    by_instance = {price.instance: price.usd_per_gpu_hour() for price in prices_for("a10g", "aws", "us-east-1")}
    assert by_instance["g5.xlarge"] == pytest.approx(1.006)
    assert by_instance["g5.48xlarge"] == pytest.approx(2.036)


def test_stale_figures_of_2024_are_not_here() -> None:
    assert {price.on_demand_usd_per_hour for price in prices_for("h100-80g-sxm", "aws")} == {6.88, 55.04}


def test_rows_come_cheapest_first_and_spot_only_last(user_prices: Path) -> None:
    (user_prices / "acme.csv").write_text(
        HEADER
        + "acme,spot-only,h100-80g-sxm,8,mars-1,,1,2026-10-01,list,own,\n"
        + "acme,eighth,h100-80g-sxm,0.125,mars-1,0.2,,2026-10-01,list,own,\n"
    )
    prices = prices_for("h100-80g-sxm")
    on_demand = [usd for price in prices if (usd := price.usd_per_gpu_hour()) is not None]
    assert on_demand == sorted(on_demand)
    assert prices[0].instance == "eighth"
    assert prices[0].usd_per_gpu_hour() == pytest.approx(1.6)
    assert prices[-1].instance == "spot-only"
    assert prices[-1].usd_per_gpu_hour() is None
    assert prices[-1].spot_usd_per_gpu_hour() == pytest.approx(0.125)
    assert [price.provider for price in prices_for("h100-80g-sxm", "acme", "mars-1")] == ["acme", "acme"]


def test_a_users_row_replaces_the_shipped_one_of_the_same_instance_and_region(user_prices: Path) -> None:
    count = len(list_prices())
    (user_prices / "mine.csv").write_text(
        row(provider="aws", instance="p5.48xlarge", region="us-east-1", on_demand_usd_per_hour="30", note='"agreed, 3 years"')
    )
    assert len(list_prices()) == count
    assert min(price.usd_per_gpu_hour() or 99 for price in prices_for("h100-80g-sxm", "aws")) == pytest.approx(30 / 8)


def test_no_known_price_is_an_empty_answer_and_an_unknown_id_an_error() -> None:
    assert prices_for("rtx-4090") == ()
    assert prices_for("t4", provider="nobody") == ()
    with pytest.raises(InputError, match="gpu_id"):
        prices_for("rtx-40900")


def test_age_counts_days_to_a_given_date() -> None:
    price = prices_from_csv(row(as_of="2026-07-20"), "x.csv")[0]
    assert price.age_days(dt.date(2026, 7, 20)) == 0
    assert price.age_days(dt.date(2026, 10, 18)) == 90
    assert not price.is_stale(dt.date(2026, 10, 18))
    assert price.is_stale(dt.date(2026, 10, 19))
    assert price.is_stale(dt.date(2026, 8, 1), fresh_days=7)
    with pytest.raises(InputError, match="before the price's date"):
        price.age_days(dt.date(2026, 7, 19))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"on_demand_usd_per_hour": "-1"}, "on_demand_usd_per_hour is '-1'"),
        ({"on_demand_usd_per_hour": "0"}, "on_demand_usd_per_hour is '0'"),
        ({"on_demand_usd_per_hour": "nan"}, "on_demand_usd_per_hour is 'nan'"),
        ({"on_demand_usd_per_hour": "1e12"}, "on_demand_usd_per_hour is '1e12'"),
        ({"on_demand_usd_per_hour": "$16"}, "on_demand_usd_per_hour is '$16'"),
        ({"on_demand_usd_per_hour": "", "spot_usd_per_hour": ""}, "must be set, or spot_usd_per_hour"),
        ({"spot_usd_per_hour": "17"}, "at most on_demand_usd_per_hour"),
        ({"gpu_count": "0"}, "gpu_count is '0'"),
        ({"gpu_count": "inf"}, "gpu_count is 'inf'"),
        ({"as_of": "yesterday"}, "as_of is 'yesterday'"),
        ({"as_of": "1999-01-01"}, "must be 2015-01-01 or later"),
        ({"as_of": ""}, "as_of is None: is missing"),
        ({"source": ""}, "source is None: is missing"),
        ({"licence": ""}, "licence is None: is missing"),
        ({"provider": "../acme"}, "provider is '../acme'"),
        ({"instance": "<img>"}, "instance is '<img>'"),
        ({"note": "a,b"}, "more cells than the header"),
        ({"note": '"open'}, "not valid CSV"),
    ],
)
def test_a_bad_row_is_named_with_its_line(changes: dict[str, str], says: str) -> None:
    with pytest.raises(InputError) as caught:
        prices_from_csv(row(**changes), "mine.csv")
    assert says in str(caught.value)
    assert caught.value.field.startswith("mine.csv, line 2")


@pytest.mark.parametrize(
    "text", ["", HEADER, "a,b\n1,2\n", HEADER.replace("gpu_id", "gpu") + ROW, "\x00", HEADER + "x" * (5 * 2**20)]
)
def test_a_bad_document_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError, match=r"mine\.csv"):
        prices_from_csv(text, "mine.csv")


def test_a_price_of_an_unknown_accelerator_names_near_ones(user_prices: Path) -> None:
    (user_prices / "mine.csv").write_text(row(gpu_id="h100-80gb-sxm"))
    with pytest.raises(InputError, match=r"mine.csv: gpu_id is 'h100-80gb-sxm'.*h100-80g-sxm"):
        list_prices()


def test_a_price_list_that_is_not_utf8_is_refused(user_prices: Path) -> None:
    (user_prices / "mine.csv").write_bytes(row(source="Prix août").encode("latin-1"))
    with pytest.raises(InputError, match="UTF-8"):
        list_prices()


def test_prices_are_frozen_and_hashable() -> None:
    price = list_prices()[0]
    assert isinstance(hash(price), int)
    with pytest.raises(ValueError, match="frozen"):
        price.gpu_count = 2.0  # type: ignore[misc]
    assert Price.model_validate_json(price.model_dump_json()) == price


def test_market_ranges_cover_what_the_shipped_rows_show() -> None:
    market = load_market()
    gcp = next(spot for spot in market.spot_discounts if spot.provider == "gcp")
    assert gcp.low is not None
    assert gcp.high is not None
    discounts = [
        1 - price.spot_usd_per_hour / price.on_demand_usd_per_hour
        for price in list_prices()
        if price.provider == "gcp" and price.spot_usd_per_hour and price.on_demand_usd_per_hour
    ]
    assert min(discounts) >= gcp.low - 0.01
    assert max(discounts) <= gcp.high + 0.01


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("low = 0.04", "low = 0.80", "rise from low to high"),
        ("low = 0.04", "low = -1", "low is -1"),
        ("median = 0.73", "median = 73", "median is 73"),
        ("[sources.commitment_discounts]", "[sources.commitment]", "must name commitment_discounts"),
    ],
)
def test_a_users_market_file_is_checked(user_prices: Path, old: str, new: str, says: str) -> None:
    text = (PROFILES_DIR / "prices" / "market.toml").read_text()
    assert old in text
    (user_prices / "market.toml").write_text(text)
    assert load_market().commitment_discounts[0].term_months == 12
    (user_prices / "market.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_market()
    assert says in str(caught.value)
    assert "market.toml" in caught.value.field
