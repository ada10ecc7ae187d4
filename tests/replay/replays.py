"""A plan on one GPU, so that replays start fast."""

from functools import cache

from planner.plans import Plan, plan
from planner.replay import Replay, replay, settings_from_dict
from planner.scenario import scenario_from_dict

ONE_GPU = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}


@cache
def one_gpu_plan() -> Plan:
    """Return the plan of the default scenario on one H100."""
    return plan(scenario_from_dict(ONE_GPU))


def replayed(**settings: object) -> Replay:
    """Return a replay of 3,000 requests, if nothing else is said."""
    return replay(one_gpu_plan(), settings_from_dict({"requests": 3000, **settings}))
