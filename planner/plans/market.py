"""Why a GPU has no price under a scenario's provider, region and price basis, where it has one, and what a commitment may save."""

from collections.abc import Iterable

from planner.hardware import Price, list_prices, load_market
from planner.pricing import Tariff
from planner.scenario import HardwareChoice
from planner.units import percentage

_MOST_PLACES = 3
_BASIS_WORDS = {"on_demand": "on-demand", "spot": "spot"}


def why_no_price(gpu_id: str, choice: HardwareChoice) -> str | None:
    """Return why a GPU has no price under the choice, and where it has one, as a clause; None where it has one.

    "Doesn't rent" goes by the price lists of the catalogue, the user's own included.
    """
    if gpu_id in choice.usd_per_gpu_hour:
        return None
    priced = [price for price in list_prices() if price.gpu_id == gpu_id and _usd_per_hour(price, choice.price_basis) is not None]
    if any(_matches(price, choice) for price in priced):
        return None
    basis = _BASIS_WORDS[choice.price_basis]
    listed = [price for price in list_prices() if price.gpu_id == gpu_id]
    if not listed:
        return "no price is known for this GPU"
    if any(_matches(price, choice) for price in listed):
        where = f" of {choice.provider}" if choice.provider else ""
        return f"no {basis} price{where} is known for this GPU, only {_BASIS_WORDS[_other(choice.price_basis)]} ones"
    who = f"{choice.provider} doesn't rent this GPU" if choice.provider else "nobody known rents this GPU"
    clause = who if choice.region is None else f"{who} in {choice.region}"
    if not priced:
        return f"{clause}, and no {basis} price is known elsewhere"
    return f"{clause}; {_places(priced, choice)}"


def commitment_text(tariff: Tariff) -> str | None:
    """Return what committing to a provider may save, as a clause; None where nothing is known, or for another basis."""
    if tariff.basis != "on demand":
        return None
    ranges = [
        f"{_range(each.low, each.high)} over {each.term_months} months"
        for each in load_market().commitment_discounts
        if each.provider == tariff.provider
    ]
    if not ranges:
        return None
    return (
        f"a commitment at {tariff.provider} takes off {' and '.join(ranges)}, averaged over its whole cloud; machines with GPUs "
        "often get less or none, so ask for a quote"
    )


def _range(low: float, high: float) -> str:
    return percentage(low) if low == high else f"{percentage(low)} to {percentage(high)}"


def _usd_per_hour(price: Price, basis: str) -> float | None:
    return price.on_demand_usd_per_hour if basis == "on_demand" else price.spot_usd_per_hour


def _other(basis: str) -> str:
    return "spot" if basis == "on_demand" else "on_demand"


def _matches(price: Price, choice: HardwareChoice) -> bool:
    return choice.provider in (None, price.provider) and choice.region in (None, price.region)


def _places(prices: Iterable[Price], choice: HardwareChoice) -> str:
    """Return who rents a GPU; with their regions, the chosen provider's first, where the scenario names a region."""
    regions: dict[str, set[str]] = {}
    for price in prices:
        regions.setdefault(price.provider, set()).add(price.region)
    names = sorted(regions, key=lambda name: (name != choice.provider, name))
    if choice.region is None:
        return f"{_listed(names)} {'does' if len(names) == 1 else 'do'}"
    return " and ".join(f"{name} does in {_listed(sorted(regions[name]))}" for name in names)


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_PLACES
    shown = [*names[:_MOST_PLACES], f"{more} more"] if more > 0 else names
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
