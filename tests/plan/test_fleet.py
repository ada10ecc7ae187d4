"""Replicas, placement: closed forms and laws."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.fleet import place, replicas_for

rates = st.floats(1e-3, 1e6)


def test_replicas_closed_form() -> None:
    answer = replicas_for(rate_rps=10.0, capacity_rps=7.0, headroom=0.15, spares=1)
    assert (answer.needed, answer.spares, answer.total) == (2, 1, 3)
    assert answer.utilisation == pytest.approx(10 / 14)
    assert answer.utilisation_all_up == pytest.approx(10 / 21)
    assert answer.next_replica_at_rps == pytest.approx(11.9)
    assert answer.rate_per_replica_rps == pytest.approx(5.0)


def test_a_load_that_fits_exactly_needs_no_further_replica() -> None:
    assert replicas_for(rate_rps=2 * 7.0 * 0.9, capacity_rps=7.0, headroom=0.1, spares=0).needed == 2


@given(rate=rates, capacity=rates, headroom=st.floats(0, 0.9), spares=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_replicas_carry_the_load_and_one_fewer_does_not(rate: float, capacity: float, headroom: float, spares: int) -> None:
    answer = replicas_for(rate, capacity, headroom, spares)
    usable = capacity * (1 - headroom)
    assert answer.needed * usable >= rate * (1 - 1e-6)
    assert answer.needed == 1 or (answer.needed - 1) * usable < rate * (1 + 1e-6)
    assert answer.utilisation <= (1 - headroom) * (1 + 1e-6)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_replicas_refuse_impossible_rates(value: float) -> None:
    with pytest.raises(InputError, match="rate_rps"):
        replicas_for(value, 1.0, 0.1, 0)
    with pytest.raises(InputError, match="capacity_rps"):
        replicas_for(1.0, value, 0.1, 0)


@pytest.mark.parametrize("headroom", [-0.1, 1.0, math.nan])
def test_headroom_is_a_share_below_one(headroom: float) -> None:
    with pytest.raises(InputError, match="headroom"):
        replicas_for(1.0, 1.0, headroom, 0)


def test_placement_pays_for_idle_gpus() -> None:
    placement = place(replicas=3, gpus_per_replica=3, gpus_per_instance=8)
    assert placement is not None
    assert (placement.instances, placement.replicas_per_instance) == (2, 2)
    assert placement.idle_gpus == 16 - 9


def test_a_replica_never_spans_machines() -> None:
    assert place(replicas=1, gpus_per_replica=8, gpus_per_instance=4) is None
    assert place(replicas=1, gpus_per_replica=1, gpus_per_instance=0.125) is None


@given(replicas=st.integers(1, 500), per_replica=st.sampled_from([1, 2, 4, 8]), per_instance=st.sampled_from([1, 2, 4, 8, 16]))
@settings(max_examples=60, deadline=None)
def test_placement_holds_every_replica(replicas: int, per_replica: int, per_instance: int) -> None:
    placement = place(replicas, per_replica, per_instance)
    if per_replica > per_instance:
        assert placement is None
        return
    assert placement is not None
    assert placement.instances * placement.replicas_per_instance >= replicas
    assert (placement.instances - 1) * placement.replicas_per_instance < replicas
    assert placement.idle_gpus >= 0
