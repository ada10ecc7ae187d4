"""Token prices of others' APIs: the shipped figures, the user's own in their place, and bad files."""

import datetime as dt
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.hardware.api_prices import batch_discounts, token_prices, token_prices_from_csv
from planner.models import list_models

HEADER = "model_id,provider,input_usd_per_million_tokens,output_usd_per_million_tokens,as_of,source,licence"
ROW = "llama-3.1-8b-instruct,mine,0.1,0.2,2026-11-01,our contract,ours"


def test_a_known_price() -> None:
    """From litellm 1.110.2: Together asks 0.88 USD a million tokens of Llama 3.1 70B, both ways."""
    price = next(each for each in token_prices("llama-3.1-70b-instruct") if each.provider == "together")
    assert (price.input_usd_per_million_tokens, price.output_usd_per_million_tokens) == (0.88, 0.88)
    assert price.usd(8e9, 2e9) == pytest.approx(8800.0)


def test_every_shipped_price_is_dated_and_of_a_known_model() -> None:
    known = {model.id for model in list_models()}
    found = [price for model_id in known for price in token_prices(model_id)]
    assert len(found) > 200
    assert all(price.as_of >= dt.date(2026, 10, 1) and "litellm" in price.source for price in found)
    assert all(price.output_usd_per_million_tokens < 50.0 for price in found)


def test_prices_come_cheapest_first_and_none_for_an_unknown_model() -> None:
    costs = [price.usd(4.0, 1.0) for price in token_prices("llama-3.1-8b-instruct")]
    assert costs == sorted(costs)
    assert token_prices("no-such-model") == ()


def test_a_batch_api_takes_half_off() -> None:
    assert batch_discounts()["together"].share == 0.5
    assert batch_discounts()["together"].window_hours == 24.0


def test_the_users_own_file_takes_the_shipped_ones_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hardware_profiles" / "api_prices"
    folder.mkdir(parents=True)
    (folder / "tokens.csv").write_text(f"{HEADER}\n{ROW}\n")
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    assert [price.provider for price in token_prices("llama-3.1-8b-instruct")] == ["mine"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{HEADER}\n{ROW.replace('0.1', '-1')}", "input_usd_per_million_tokens"),
        (f"{HEADER}\n{ROW.replace('0.1', 'nan')}", "input_usd_per_million_tokens"),
        (f"{HEADER}\n{ROW.replace('0.2', 'inf')}", "output_usd_per_million_tokens"),
        (f"{HEADER}\n{ROW.replace('mine', '../mine')}", "provider"),
        (f"{HEADER}\n{ROW.replace('mine', '<b>')}", "provider"),
        (f"{HEADER}\n{ROW.replace('2026-11-01', 'soon')}", "as_of"),
        (f"{HEADER},price\n{ROW},1", "price"),
        (f"{HEADER}\n{ROW},1", "more cells"),
        (f"{HEADER}\nllama-3.1-8b-instruct,mine", "input_usd_per_million_tokens"),
    ],
)
def test_bad_rows_are_named(text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        token_prices_from_csv(text, "tokens.csv")
