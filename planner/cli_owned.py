"""The flags of the shell's `owned`: what an hour of a GPU of a machine of one's own costs."""

import argparse

from planner.pricing import OwnedNode


def add_owned_arguments(verb: argparse.ArgumentParser) -> None:
    """Add the flags of `owned` to its parser."""
    for flag, kind, metavar, text in (
        ("--capex", float, "USD", "price of the machine with its share of network"),
        ("--gpus", int, "N", "GPUs of the machine"),
        ("--years", float, "Y", "years in service"),
        ("--wall-power", float, "W", "mean power at the wall in watts"),
        ("--usd-per-kwh", float, "USD", "price of electricity; 0 where colocation includes it"),
    ):
        verb.add_argument(flag, type=kind, metavar=metavar, required=True, help=text)
    for flag, usual, metavar, text in (
        ("--residual", 0.0, "SHARE", "value left at the end, of the price"),
        ("--interest", 0.0, "SHARE", "yearly interest on the mean capital bound"),
        ("--maintenance", 0.0, "USD", "support and spare parts a year"),
        ("--pue", 1.0, "RATIO", "power usage effectiveness of the room"),
        ("--colocation", 0.0, "USD", "rack and cooling a month"),
        ("--availability", 1.0, "SHARE", "share of hours in service"),
    ):
        verb.add_argument(flag, type=float, default=usual, metavar=metavar, help=f"{text} ({usual:g} unless given)")
    verb.add_argument("--json", action="store_true", help="print JSON")


def owned_node(arguments: argparse.Namespace) -> OwnedNode:
    """Return the machine that the flags describe; InputError where it can't be one."""
    return OwnedNode(
        capex_usd=arguments.capex,
        residual_share=arguments.residual,
        years=arguments.years,
        interest_per_year=arguments.interest,
        maintenance_usd_per_year=arguments.maintenance,
        wall_power_w=arguments.wall_power,
        pue=arguments.pue,
        usd_per_kwh=arguments.usd_per_kwh,
        colocation_usd_per_month=arguments.colocation,
        gpu_count=arguments.gpus,
        availability=arguments.availability,
    )
