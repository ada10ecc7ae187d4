"""Money: the only place where a cost is computed.

A machine is priced, never a GPU: the host, the idle GPUs beside a replica and the spares are part of what a token costs.
"""

import datetime as dt
import math
from dataclasses import dataclass

from planner.errors import InputError
from planner.fleet import Placement
from planner.units import DAY_S, HOURS_PER_DAY, MILLION

STALE_AFTER_DAYS = 90


@dataclass(frozen=True, slots=True)
class Tariff:
    """What an hour of one machine costs, and who says so."""

    provider: str
    instance: str
    region: str
    gpus_per_instance: float
    usd_per_instance_hour: float
    basis: str
    source: str
    as_of: dt.date | None

    @property
    def usd_per_gpu_hour(self) -> float:
        """Price of the machine divided by its GPUs [USD/h]."""
        return self.usd_per_instance_hour / self.gpus_per_instance

    def is_stale(self, today: dt.date) -> bool:
        """Whether the price is older than 90 days; a price without a date (the user's own) never is."""
        return self.as_of is not None and (today - self.as_of).days > STALE_AFTER_DAYS


@dataclass(frozen=True, slots=True)
class TokenVolume:
    """Tokens of a mean second, which is what a day's bill is divided by."""

    prompt_tokens_per_s: float
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a fleet costs, and what its tokens cost at the mean load.

    usd_per_million_prompt_tokens, usd_per_million_output_tokens : the bill split by the GPU time that a token of each kind takes
    """

    usd_per_hour: float
    usd_per_day: float
    usd_per_million_tokens: float
    usd_per_million_prompt_tokens: float
    usd_per_million_output_tokens: float
    prompt_share: float
    tariff: Tariff
    placement: Placement


def fleet_usd_per_hour(tariff: Tariff, placement: Placement) -> float:
    """Return what an hour of a fleet costs [USD/h]: every machine, whether or not its GPUs are all used."""
    return placement.instances * tariff.usd_per_instance_hour


def fleet_usd_per_day(tariff: Tariff, placement: Placement) -> float:
    """Return what a fleet costs that runs all day [USD/day]."""
    return fleet_usd_per_hour(tariff, placement) * HOURS_PER_DAY


def fleet_cost(tariff: Tariff, placement: Placement, volume: TokenVolume, token_cost_ratio: float) -> Cost:
    """Return the cost of a fleet that runs all day.

    tariff : price of one machine
    placement : machines that hold the fleet
    volume : tokens of a mean second [token/s]; at least one kind above 0
    token_cost_ratio : GPU time of one output token ÷ that of one prompt token [1], above 0

    The bill is split so that cost per token is proportional to GPU time per token:
    usd_prompt · P + usd_output · O = bill, usd_output = ratio · usd_prompt.
    """
    _check_finite("token_cost_ratio", token_cost_ratio)
    usd_per_day = fleet_usd_per_day(tariff, placement)
    prompt_per_day = volume.prompt_tokens_per_s * DAY_S
    output_per_day = volume.output_tokens_per_s * DAY_S
    weighted = prompt_per_day + token_cost_ratio * output_per_day
    _check_finite("token volume", weighted)
    usd_per_prompt_token = usd_per_day / weighted
    return Cost(
        usd_per_hour=fleet_usd_per_hour(tariff, placement),
        usd_per_day=usd_per_day,
        usd_per_million_tokens=usd_per_day / (prompt_per_day + output_per_day) * MILLION,
        usd_per_million_prompt_tokens=usd_per_prompt_token * MILLION,
        usd_per_million_output_tokens=usd_per_prompt_token * token_cost_ratio * MILLION,
        prompt_share=prompt_per_day / weighted,
        tariff=tariff,
        placement=placement,
    )


@dataclass(frozen=True, slots=True)
class OwnedNode:
    """Inputs of the cost of a machine that one owns; every figure is the user's. `planner owned` reads them from the shell.

    capex_usd : price of the machine with its share of network
    residual_share : value left at the end ÷ capex [1]
    years : years in service
    interest_per_year : yearly interest on the mean capital bound [1]
    maintenance_usd_per_year : support and spare parts
    wall_power_w : mean power at the wall
    pue : power usage effectiveness, at least 1 [1]
    usd_per_kwh : price of electricity; 0 when colocation includes it
    colocation_usd_per_month : rack and cooling
    gpu_count : GPUs of the machine
    availability : share of hours in service [1]
    """

    capex_usd: float
    residual_share: float
    years: float
    interest_per_year: float
    maintenance_usd_per_year: float
    wall_power_w: float
    pue: float
    usd_per_kwh: float
    colocation_usd_per_month: float
    gpu_count: int
    availability: float


def owned_usd_per_gpu_hour(node: OwnedNode) -> float:
    """Return the cost of an hour of one GPU of an owned machine [USD/h].

    (capex · (1 − residual) / years + interest on the mean capital + maintenance + energy + colocation) over the hours of a year in
    service. Colocation fees often include power and cooling: then give usd_per_kwh = 0, or it is counted twice.

    >>> node = OwnedNode(325e3, 0.30, 4, 0.0, 0.0, 7000, 1.3, 0.10, 2040, 8, 1.0)
    >>> round(owned_usd_per_gpu_hour(node), 2)
    1.27
    """
    _check_owned(node)
    hours_per_year = 365 * HOURS_PER_DAY
    written_off = node.capex_usd * (1 - node.residual_share) / node.years
    interest = node.interest_per_year * node.capex_usd * (1 + node.residual_share) / 2
    energy = node.wall_power_w / 1000 * node.pue * node.usd_per_kwh * hours_per_year
    yearly = written_off + interest + node.maintenance_usd_per_year + energy + 12 * node.colocation_usd_per_month
    return yearly / (hours_per_year * node.availability * node.gpu_count)


def _check_finite(field: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(field, value, "must be a finite number above 0", "Check the workload's lengths and the load")


_OWNED_BOUNDS = {
    "capex_usd": (0.0, 1e9),
    "residual_share": (0.0, 1.0),
    "years": (0.1, 50.0),
    "interest_per_year": (0.0, 1.0),
    "maintenance_usd_per_year": (0.0, 1e9),
    "wall_power_w": (0.0, 1e7),
    "pue": (1.0, 10.0),
    "usd_per_kwh": (0.0, 100.0),
    "colocation_usd_per_month": (0.0, 1e9),
    "gpu_count": (1, 100_000),
    "availability": (0.01, 1.0),
}


def _check_owned(node: OwnedNode) -> None:
    for field, (lowest, highest) in _OWNED_BOUNDS.items():
        value = getattr(node, field)
        if not lowest <= value <= highest:
            raise InputError(f"owned.{field}", value, f"must be a number from {lowest:g} to {highest:g}", "Correct it")
