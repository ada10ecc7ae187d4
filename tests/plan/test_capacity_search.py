"""The search for a replica's capacity by pairs of rates: from whatever guess, the edge between rates that hold and that don't."""

import math
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plans import first_answer, rates
from planner.plans.capacity import Demand, Replica, latency_at
from planner.plans.rates import capacity_from, capacity_near, meets
from planner.plans.results import Knobs, Latency
from planner.plans.starting import coarse, replica_of, with_knobs
from planner.scenario import Targets, scenario_from_dict

PRECISION = 1.0121
SLACK = 1.035  # false position and pairs may stop at different teeth of a sample's curve


@lru_cache(maxsize=4)
def asked(workload_id: str) -> tuple[Demand, Replica, Knobs, Targets]:
    document = {"workload": {"id": workload_id}, "hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}
    answer = first_answer(scenario_from_dict(document))
    ((place, found),) = answer.race.measured.items()
    knobs = found.candidate.knobs
    assert knobs is not None
    demand = coarse(answer.race.question).demand
    engine = with_knobs(answer.race.entrants[place].engine, knobs, None)
    return demand, replica_of(engine, demand), knobs, answer.scenario.targets


@pytest.mark.parametrize("workload_id", ["azure-conversation-2023", "azure-code-2023"])
@given(error=st.floats(math.log(1 / 6), math.log(6)))
@settings(max_examples=25, deadline=None)
def test_any_guess_leads_to_the_edge(workload_id: str, error: float) -> None:
    demand, replica, knobs, targets = asked(workload_id)
    plain = capacity_from(demand, replica, knobs, targets, 0.0)
    assert plain.rate_rps is not None
    found = capacity_near(demand, replica, knobs, targets, plain.rate_rps * math.exp(error))
    assert found.rate_rps is not None
    assert meets(found.latency, targets)
    assert found.latency.rate_rps == found.rate_rps
    assert plain.rate_rps / SLACK <= found.rate_rps <= plain.rate_rps * SLACK


def test_a_rate_that_misses_lies_just_above() -> None:
    demand, replica, knobs, targets = asked("azure-conversation-2023")
    found = capacity_near(demand, replica, knobs, targets, 9.0)
    assert found.rate_rps is not None
    tried = [latency_at(demand, replica, knobs, found.rate_rps * share) for share in (1.004, 1.008, PRECISION)]
    assert not all(meets(each, targets) for each in tried)


@pytest.mark.parametrize(("share", "most"), [(1.0, 2), (1.06, 4), (0.94, 3), (1.5, 5), (2.0, 7), (0.6, 5), (0.4, 6)])
def test_rounds_grow_slowly_with_the_error_of_the_guess(share: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    demand, replica, knobs, targets = asked("azure-conversation-2023")
    plain = capacity_from(demand, replica, knobs, targets, 0.0)
    assert plain.rate_rps is not None
    rounds: list[tuple[float, float]] = []
    both = rates._both

    def counted(demand: Demand, replica: Replica, knobs: Knobs, pair: tuple[float, float]) -> list[Latency]:
        rounds.append(pair)
        return both(demand, replica, knobs, pair)

    monkeypatch.setattr(rates, "_both", counted)
    capacity_near.__wrapped__(demand, replica, knobs, targets, plain.rate_rps * share)
    assert 1 <= len(rounds) <= most
    assert all(lower < upper for lower, upper in rounds)


def test_targets_that_nothing_meets_have_no_capacity() -> None:
    demand, replica, knobs, targets = asked("azure-conversation-2023")
    found = capacity_near(demand, replica, knobs, targets.model_copy(update={"tpot_p99_s": 1e-4}), 9.0)
    assert found.rate_rps is None
