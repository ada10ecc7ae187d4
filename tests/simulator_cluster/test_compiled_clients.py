"""The compiled loop of clients decides what the one in Python does, try by try, to the last bit."""

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.simulator import EngineLimits
from planner.simulator.clients import Clients, DoorRule, Fate, Rules, Tries, simulate_clients
from planner.simulator.cluster import Cluster, EngineSpec, Pool, bounded_queue, run_cluster
from planner.simulator.door import FAILING, RULE_KINDS, as_function
from planner.simulator.forecast import Forecast
from planner.simulator.inputs import RequestTable, take_in
from planner.simulator.kernel import FINISHED
from planner.simulator.plain_clients import PlainRules, serve_plainly
from planner.simulator.tries import RETRIES, tries_of
from planner.step_model import StepCoefficients

Poisson = Callable[..., RequestTable]
COUNT = 60
SLOTS = 8
TICK_S = 2.0**-6


class Scene(NamedTuple):
    """An engine, its rules and its clients."""

    limits: EngineLimits
    rules: Rules
    clients: Clients
    rate_rps: float
    seed: int
    ticks: bool

    def requests(self, poisson: Poisson) -> RequestTable:
        """Draw the requests; on a grid of time where many things happen at one instant."""
        drawn = poisson(COUNT, self.rate_rps, self.seed)
        return replace(drawn, arrival_s=np.floor(drawn.arrival_s / TICK_S) * TICK_S) if self.ticks else drawn


def plainly(requests: RequestTable, scene: Scene, costs: StepCoefficients) -> Tries:
    """Serve with the loop in Python, which asks the rule one request at a time."""
    intake = take_in(requests, scene.limits, None)
    door = as_function(scene.rules.door) if isinstance(scene.rules.door, DoorRule) else None
    rules = PlainRules(door, scene.rules.deadline_s)
    sent, status = serve_plainly(intake, (scene.limits, costs), rules, scene.clients, np.random.default_rng(scene.seed))
    return tries_of(requests, intake, sent, scene.clients.patience_s, finished=status == FINISHED)


def compiled(requests: RequestTable, scene: Scene, costs: StepCoefficients) -> Tries:
    rng = np.random.default_rng(scene.seed)
    return simulate_clients(requests, (scene.limits, costs), scene.rules, scene.clients, rng)


def assert_equal(one: Tries, other: Tries) -> None:
    for field in fields(Tries):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(mine, theirs, equal_nan=field.name in ("first_token_s", "finish_s")), field.name


@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    fastest, slowest = draw(st.sampled_from([3e3, 3e4])), draw(st.sampled_from([-1e3, 0.0, 1e3]))
    return Forecast(
        slots=SLOTS,
        leaving_rps=30.0,
        outside_s=0.01,
        ttft_s=draw(st.sampled_from([0.05, 0.4])),
        most_tpot_s=draw(st.sampled_from([float("inf"), 9e-3])),
        margin=0.1,
        rates=np.linspace(fastest, slowest, SLOTS + 1),
        steps_s=np.linspace(6e-3, 11e-3, SLOTS + 1),
    )


@st.composite
def doors(draw: st.DrawFn) -> DoorRule:
    kind = draw(st.sampled_from(RULE_KINDS))
    forecast = draw(forecasts() if kind == "predicted" else st.none() | forecasts())
    bound = None if kind == "predicted" else draw(st.integers(1, 12)) * (1 if kind == "requests" else 150)
    off_by = np.exp(0.3 * np.random.default_rng(draw(st.integers(0, 9))).standard_normal(COUNT)) if draw(st.booleans()) else None
    return DoorRule(kind, bound, forecast, off_by, draw(st.sampled_from(FAILING)))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    deadline_s = draw(st.sampled_from([None, None, 4 * TICK_S, 0.3]))
    policy = "fcfs" if deadline_s is not None else draw(st.sampled_from(["fcfs", "priority"]))
    asynchronous = draw(st.booleans())
    # the smaller cache holds the longest request and little beside it, so that sequences are preempted
    limits = EngineLimits(SLOTS, 256, 16, draw(st.sampled_from([60, 2000])), async_scheduling=asynchronous, policy=policy)  # type: ignore[arg-type]
    clients = Clients(
        retry=draw(st.sampled_from(RETRIES)),
        delay_s=draw(st.sampled_from([TICK_S, 0.25, 1.0])),
        most_tries=draw(st.integers(1, 5)),
        patience_s=draw(st.sampled_from([None, 2 * TICK_S, 0.1, 0.6])),
    )
    rules = Rules(draw(st.none() | doors()), deadline_s)
    return Scene(limits, rules, clients, draw(st.sampled_from([20.0, 80.0, 400.0])), draw(st.integers(0, 999)), draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(scene=scenes())
def test_every_try_is_the_plain_loops(poisson: Poisson, usual: StepCoefficients, scene: Scene) -> None:
    requests = scene.requests(poisson)
    assert_equal(compiled(requests, scene, usual), plainly(requests, scene, usual))


@pytest.mark.parametrize("kind", RULE_KINDS)
@pytest.mark.parametrize("retry", RETRIES)
def test_every_rule_turns_some_away_as_the_plain_loop_does(
    poisson: Poisson, usual: StepCoefficients, kind: str, retry: str
) -> None:
    """Every rule and kind of client, whatever hypothesis draws; each rule must bite."""
    forecast = Forecast(SLOTS, 30.0, 0.01, 0.2, 9e-3, 0.1, np.full(SLOTS + 1, 3e4), np.linspace(6e-3, 11e-3, SLOTS + 1))
    bound = {"requests": 6, "tokens": 400, "predicted": None}[kind]
    clients = Clients(retry, 0.1, 3, 0.08)  # type: ignore[arg-type]
    rule = DoorRule(kind, bound, forecast)  # type: ignore[arg-type]
    scene = Scene(EngineLimits(SLOTS, 256, 16, 2000), Rules(rule), clients, 80.0, 5, ticks=False)
    requests = scene.requests(poisson)
    found = compiled(requests, scene, usual)
    assert_equal(found, plainly(requests, scene, usual))
    assert 0 < (found.fate == Fate.REJECTED).sum() < len(found)
    assert (len(found) > COUNT) == (retry != "none")
    assert np.array_equal(found.failed, found.fate == Fate.REJECTED)


def test_who_waits_after_a_preemption_still_counts(poisson: Poisson, usual: StepCoefficients) -> None:
    """Where sequences are preempted the bound on requests rejects whom the event loop rejects, which counts its own queue."""
    limits = EngineLimits(SLOTS, 256, 16, 40)
    preempted = 0
    for seed in range(12):
        drawn = poisson(80, 60.0, seed, prompt_mean=100, output_mean=120)
        requests = replace(drawn, **{name: np.minimum(getattr(drawn, name), 300) for name in ("prompt_tokens", "output_tokens")})
        pool = (Pool("engine", EngineSpec(limits, usual)),)
        expected = run_cluster(Cluster(pool, bounded_queue(10)), requests, np.random.default_rng(0), by_events=True)
        found = simulate_clients(requests, (limits, usual), Rules(DoorRule("requests", 10)), Clients(), np.random.default_rng(0))
        rejected = {int(each) for each in np.flatnonzero(expected.outcome == 2)}
        assert {int(each) for each in found.request[found.fate == Fate.REJECTED]} == rejected
        preempted += int(expected.preemptions.sum())
    assert preempted > 50


def test_a_client_who_gave_up_does_not_come_back_once_more_when_its_try_is_dropped(
    poisson: Poisson, usual: StepCoefficients
) -> None:
    clients = Clients("fixed", delay_s=0.05, most_tries=3, patience_s=0.1)
    scene = Scene(EngineLimits(2, 256, 16, 2000), Rules(deadline_s=0.3), clients, 400.0, 1, ticks=False)
    requests = scene.requests(poisson)
    found = compiled(requests, scene, usual)
    assert (found.fate == Fate.DROPPED).sum() > COUNT / 2
    for request in range(COUNT):
        assert found.number[found.request == request].tolist() == list(range((found.request == request).sum()))
    assert_equal(found, plainly(requests, scene, usual))


def test_those_who_fail_may_wait_behind_the_rest(poisson: Poisson, usual: StepCoefficients) -> None:
    limits = EngineLimits(SLOTS, 256, 16, 2000, policy="priority")
    scene = Scene(limits, Rules(DoorRule("requests", 6, failing="batch class")), Clients(), 200.0, 3, ticks=False)
    found = compiled(scene.requests(poisson), scene, usual)
    assert (found.fate == Fate.SERVED).all()
    assert 0 < found.failed.sum() < COUNT
    assert np.array_equal(found.priority, found.failed.astype(np.int64))
    waits_s = found.first_token_s - found.sent_s
    assert np.median(waits_s[found.failed]) > 4.0 * np.median(waits_s[~found.failed])


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"kind": "mood"}, "kind"),
        ({"kind": "requests"}, "bound"),
        ({"kind": "tokens", "bound": 0}, "bound"),
        ({"kind": "predicted"}, "forecast"),
        ({"kind": "requests", "bound": 1, "failing": "<b>"}, "failing"),
        ({"kind": "predicted", "forecast": Forecast(4, 1.0, 0.0, 1.0, 1.0, 0.0, np.ones(4), np.ones(5))}, "forecast"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(given_: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        DoorRule(**given_)  # type: ignore[arg-type]


def test_errors_must_cover_the_requests(poisson: Poisson, usual: StepCoefficients) -> None:
    rules = Rules(DoorRule("requests", 5, off_by=np.ones(3)))
    with pytest.raises(InputError, match="off_by"):
        simulate_clients(poisson(5, 1.0, 0), (EngineLimits(4, 256, 16, 500), usual), rules, Clients(), np.random.default_rng(0))


def test_the_compiled_loop_is_many_times_as_fast(poisson: Poisson, usual: StepCoefficients) -> None:
    """Some seventy times; in CPU seconds, of which other work on the machine takes few."""
    clients = Clients("exponential", 0.1, 3, 0.2)
    scene = Scene(EngineLimits(SLOTS, 256, 16, 2000), Rules(DoorRule("requests", 12)), clients, 200.0, 5, ticks=False)
    requests = poisson(1500, 200.0, 5)

    def least_s(serve: Callable[[RequestTable, Scene, StepCoefficients], Tries]) -> float:
        took_s = []
        for _ in range(3):
            started_s = time.process_time()
            serve(requests, scene, usual)
            took_s.append(time.process_time() - started_s)
        return min(took_s)

    assert least_s(plainly) > 10.0 * least_s(compiled)


def test_where_nobody_fits_all_are_refused(table: Callable[..., RequestTable], usual: StepCoefficients) -> None:
    engine = EngineLimits(4, 256, 16, 4), usual
    found = simulate_clients(table([0.0, 1.0], 100, 3), engine, Rules(), Clients("fixed"), np.random.default_rng(0))
    assert found.fate.tolist() == [Fate.REFUSED, Fate.REFUSED]
    assert found.finished
