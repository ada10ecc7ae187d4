"""The load to plan for: from what the user states to requests a second, at the mean and at the peak."""

from planner.errors import InputError
from planner.plans.results import PlannedLoad
from planner.scenario import RateLoad, Scenario, UsersLoad
from planner.units import percentage
from planner.workloads import LengthStats, Workload, rate_from_tokens_per_day, rate_from_users

LEAST_RPS = 1e-6
"""One request in twelve days. Below it a day has no request to plan for, and times since the first one lose their microseconds."""


def planned_load(scenario: Scenario, workload: Workload, lengths: LengthStats) -> PlannedLoad:
    """Return the load that a scenario states.

    A stated rate is planned as it is, and offline work has no peak; users and tokens a day are means over the day, so that the
    workload's busiest hour is planned unless the user gives a factor of their own.
    """
    factor, source = _peak(scenario, workload)
    load = scenario.workload.load
    if isinstance(load, RateLoad):
        mean_rps = load.requests_per_s
        stated = f"{mean_rps:g} requests a second"
    elif isinstance(load, UsersLoad):
        mean_rps = rate_from_users(load.users, load.active_share, load.requests_per_user_minute, 1.0).mean_rps
        active = percentage(load.active_share)
        stated = f"{load.users:,} users, {active} active, {load.requests_per_user_minute:g} requests a minute each"
    else:
        mean_rps = rate_from_tokens_per_day(
            load.tokens_per_day, lengths.prompt_mean_tokens, lengths.output_mean_tokens, 1.0
        ).mean_rps
        stated = f"{load.tokens_per_day:,.0f} tokens a day"
    if not mean_rps >= LEAST_RPS:
        bound = f"comes to {mean_rps:.3g} requests a second; the least that is planned is {LEAST_RPS:g}, one in twelve days"
        raise InputError("workload.load", stated, bound, "Give a larger load")
    return PlannedLoad(mean_rps, mean_rps * factor, factor, source, stated)


def _peak(scenario: Scenario, workload: Workload) -> tuple[float, str]:
    own = scenario.workload.peak_factor
    if own is not None:
        return own, "given by you"
    if scenario.targets.offline:
        return 1.0, "offline work is spread over the day"
    if isinstance(scenario.workload.load, RateLoad):
        return 1.0, "a stated rate is planned as it is"
    if workload.peak_factor is None:
        raise InputError(
            "workload.peak_factor",
            None,
            f"is needed: {workload.name} has no known busiest hour",
            "Give busiest hour ÷ mean, for example 1.7 for global chat or 3 for a code assistant",
        )
    return workload.peak_factor, workload.source_for("peak_factor").ref
