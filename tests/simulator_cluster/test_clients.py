"""Clients who come back: with everyone let in the compiled loop's own times, with rejections those of the event loop."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.simulator import EngineLimits, SimulationOptions, simulate
from planner.simulator.agenda import COME, COME_AGAIN, GIVE_UP, Agenda
from planner.simulator.clients import COME_IN, Answer, Clients, Door, Fate, Rules, Seen, Tries, simulate_clients
from planner.simulator.cluster import Admission, Cluster, EngineSpec, Pool, bounded_queue, run_cluster
from planner.simulator.inputs import RequestTable
from planner.step_model import StepCoefficients

Poisson = Callable[..., RequestTable]
BY_EVENTS = {Fate.SERVED: 0, Fate.REJECTED: 2, Fate.DROPPED: 4, Fate.REFUSED: 1}


def run(
    requests: RequestTable, engine: tuple[EngineLimits, StepCoefficients], rules: Rules, clients: Clients | None = None
) -> Tries:
    return simulate_clients(requests, engine, rules, clients or Clients(), np.random.default_rng(3))


def by_events(
    requests: RequestTable, engine: tuple[EngineLimits, StepCoefficients], admission: Admission | None, deadline_s: float | None
) -> tuple[list[int], np.ndarray, np.ndarray]:
    pool = (Pool("engine", EngineSpec(*engine)),)
    cluster = Cluster(pool, deadline_s=deadline_s) if admission is None else Cluster(pool, admission, deadline_s=deadline_s)
    result = run_cluster(cluster, requests, np.random.default_rng(0), by_events=True)
    return result.outcome.tolist(), result.first_token_s, result.finish_s


def open_door(_seen: Seen) -> Answer:
    return COME_IN


def at_most(requests: int) -> Door:
    return lambda seen: Answer(admit=seen.unfinished < requests)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999),
    rate=st.sampled_from([5.0, 40.0, 400.0]),
    asynchronous=st.booleans(),
    door=st.booleans(),
    policy=st.sampled_from(["fcfs", "priority"]),
)
def test_where_nobody_is_refused_the_times_are_the_compiled_loops(
    *, poisson: Poisson, usual: StepCoefficients, seed: int, rate: float, asynchronous: bool, door: bool, policy: str
) -> None:
    limits = EngineLimits(8, 256, 16, 90, async_scheduling=asynchronous, policy=policy)
    requests = poisson(80, rate, seed)
    expected = simulate(requests, limits, usual)
    found = run(requests, (limits, usual), Rules(open_door if door else None))
    assert np.array_equal(np.sort(found.request), np.arange(80))
    order = np.argsort(found.request)
    assert np.array_equal(found.first_token_s[order], expected.first_token_s, equal_nan=True)
    assert np.array_equal(found.finish_s[order], expected.finish_s, equal_nan=True)
    assert np.array_equal(found.fate[order] == Fate.REFUSED, expected.rejected)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    rate=st.sampled_from([20.0, 60.0, 400.0]),
    asynchronous=st.booleans(),
    bound=st.sampled_from([None, 1, 9, 25]),
    deadline_s=st.sampled_from([None, 0.02, 0.3]),
)
def test_rejections_and_drops_are_those_of_the_event_loop(
    *,
    poisson: Poisson,
    usual: StepCoefficients,
    seed: int,
    rate: float,
    asynchronous: bool,
    bound: int | None,
    deadline_s: float | None,
) -> None:
    engine = (EngineLimits(8, 256, 16, 2000, async_scheduling=asynchronous), usual)
    requests = poisson(80, rate, seed)
    outcome, first_s, finish_s = by_events(requests, engine, None if bound is None else bounded_queue(bound), deadline_s)
    found = run(requests, engine, Rules(None if bound is None else at_most(bound), deadline_s))
    assert [BY_EVENTS[Fate(each)] for each in found.fate] == outcome
    served = found.fate == Fate.SERVED
    assert np.allclose(found.first_token_s[served], first_s[served], rtol=1e-12)
    assert np.allclose(found.finish_s[served], finish_s[served], rtol=1e-12)


@pytest.mark.parametrize("retry", ["fixed", "exponential", "as told"])
def test_everyone_who_is_rejected_comes_back_until_the_tries_are_used_up(
    poisson: Poisson, usual: StepCoefficients, retry: str
) -> None:
    clients = Clients(retry, delay_s=0.5, most_tries=3)  # type: ignore[arg-type]
    found = run(poisson(60, 50.0, 1), (EngineLimits(4, 256, 16, 2000), usual), Rules(lambda _: Answer(False, 0, 2.0)), clients)
    assert np.bincount(found.request).tolist() == [3] * 60
    gaps = np.array([np.diff(found.sent_s[found.request == each]) for each in range(60)])
    low, high = {
        "fixed": ([0.5, 0.5], [0.5, 0.5]),
        "exponential": ([0.0, 0.0], [0.5, 1.0]),
        "as told": ([2.0, 2.0], [4.0, 4.0]),
    }[retry]
    assert (gaps >= np.array(low) - 1e-9).all()
    assert (gaps <= np.array(high) + 1e-9).all()
    assert retry == "fixed" or gaps.std() > 0.1


def test_nobody_comes_back_who_was_served_in_time(poisson: Poisson, usual: StepCoefficients) -> None:
    clients = Clients("fixed", patience_s=60.0)
    found = run(poisson(100, 20.0, 2), (EngineLimits(16, 512, 16, 2000), usual), Rules(), clients)
    assert len(found) == 100
    assert not found.given_up.any()


def test_who_gives_up_leaves_work_behind_and_comes_back(table: Callable[..., RequestTable], usual: StepCoefficients) -> None:
    """Two prompts of several seconds: the second one's client gives up, and its request is computed all the same, twice."""
    requests = table([0.0, 0.0], 20_000, 2)
    clients = Clients("fixed", delay_s=0.25, most_tries=2, patience_s=0.3)
    found = run(requests, (EngineLimits(1, 512, 16, 4000), usual), Rules(), clients)
    assert found.request.tolist() == [0, 1, 0, 1]
    assert found.sent_s.tolist() == pytest.approx([0.0, 0.0, 0.55, 0.55])
    assert found.given_up.all()
    assert (found.fate == Fate.SERVED).all()
    assert np.isfinite(found.finish_s).all()


def test_priorities_are_given_at_the_door(poisson: Poisson, usual: StepCoefficients) -> None:
    limits = EngineLimits(4, 256, 16, 2000, policy="priority")
    requests = poisson(100, 400.0, 5)
    late = np.arange(100) % 2
    expected = simulate(requests, limits, usual, SimulationOptions(priorities=late))
    found = run(requests, (limits, usual), Rules(lambda seen: Answer(admit=True, priority=seen.request % 2)))
    assert np.array_equal(found.first_token_s, expected.first_token_s)
    assert np.array_equal(found.priority, late)


def test_the_door_sees_what_the_engine_holds(table: Callable[..., RequestTable], usual: StepCoefficients) -> None:
    seen: list[Seen] = []

    def door(one: Seen) -> Answer:
        seen.append(one)
        return COME_IN

    run(table([0.0, 0.0, 0.5, 60.0], [100, 300, 40, 7], [200, 1, 5, 2]), (EngineLimits(8, 512, 16, 500), usual), Rules(door))
    assert [(one.unfinished, one.decoding, one.waiting_prompt_tokens) for one in seen] == [
        (0, 0, 0),
        (1, 0, 100),
        (1, 1, 0),
        (0, 0, 0),
    ]


@pytest.mark.parametrize(
    ("clients", "rules", "field"),
    [
        (Clients("never"), Rules(), "retry"),  # type: ignore[arg-type]
        (Clients("fixed", delay_s=0.0), Rules(), "delay_s"),
        (Clients("fixed", patience_s=float("nan")), Rules(), "patience_s"),
        (Clients("fixed", most_tries=0), Rules(), "most_tries"),
        (Clients(), Rules(deadline_s=-1.0), "deadline_s"),
    ],
)
def test_nonsense_is_refused(poisson: Poisson, usual: StepCoefficients, clients: Clients, rules: Rules, field: str) -> None:
    with pytest.raises(InputError, match=field):
        run(poisson(5, 1.0, 0), (EngineLimits(4, 256, 16, 500), usual), rules, clients)


def test_a_deadline_needs_first_come_first_served(poisson: Poisson, usual: StepCoefficients) -> None:
    with pytest.raises(InputError, match="first come"):
        run(poisson(5, 1.0, 0), (EngineLimits(4, 256, 16, 500, policy="priority"), usual), Rules(deadline_s=1.0))


def test_the_same_seed_gives_the_same_bytes(poisson: Poisson, usual: StepCoefficients) -> None:
    engine = (EngineLimits(4, 256, 16, 2000), usual)
    clients = Clients("exponential", patience_s=0.4)
    one, two = (run(poisson(80, 100.0, 4), engine, Rules(deadline_s=0.3), clients) for _ in range(2))
    assert np.array_equal(one.sent_s, two.sent_s)
    assert np.array_equal(one.finish_s, two.finish_s, equal_nan=True)
    assert (np.diff(one.sent_s) >= 0.0).all()


@settings(max_examples=40, deadline=None)
@given(
    arrivals=st.lists(st.floats(0.0, 10.0), max_size=12).map(sorted),
    again=st.lists(st.floats(0.0, 10.0), max_size=12),
    leaving=st.lists(st.floats(0.0, 10.0), max_size=12).map(sorted),
)
def test_the_agenda_brings_all_that_is_foreseen_in_order_of_time(
    arrivals: list[float], again: list[float], leaving: list[float]
) -> None:
    agenda = Agenda(arrivals)
    for position, at_s in enumerate(again):
        agenda.come_again(at_s, position, 1)
    for place, at_s in enumerate(leaving):
        agenda.give_up(at_s, place, 0)
    seen = []
    while (event := agenda.peek()) is not None:
        seen.append((event.at_s, event.kind))
        agenda.drop(event)
    assert seen == sorted(
        [*((at, COME) for at in arrivals), *((at, COME_AGAIN) for at in again), *((at, GIVE_UP) for at in leaving)]
    )
