"""One engine behind a door, and clients who come back: requests may be rejected, dropped at a deadline, or given up and sent again.

The engine is the compiled loop. With an open door, no deadline and no second tries the times are those of `simulate`, to the last
bit.
"""

import math

import numpy as np

from planner.errors import InputError
from planner.simulator import door_layout as m
from planner.simulator import layout as n
from planner.simulator.door import COME_IN, FAILING, RULE_KINDS, Answer, Door, DoorRule, Seen
from planner.simulator.door_layout import Doorway
from planner.simulator.forecast import Forecast
from planner.simulator.inputs import Intake, RequestArrays, take_in
from planner.simulator.kernel import OUT_OF_STEPS, STUCK
from planner.simulator.kernel_door import serve_clients
from planner.simulator.limits import EngineLimits, check_coefficients, check_limits
from planner.simulator.plain_clients import PlainRules, serve_plainly
from planner.simulator.tries import RETRIES, Clients, Fate, Retry, Rules, Sent, Tries, empty_engine, tries_of
from planner.step_model import StepCoefficients

__all__ = [
    "COME_IN",
    "Answer",
    "Clients",
    "Door",
    "DoorRule",
    "Engine",
    "Fate",
    "Retry",
    "Rules",
    "Seen",
    "Tries",
    "simulate_clients",
]

Engine = tuple[EngineLimits, StepCoefficients]

_MOST_TRIES = 100
_NO_FORECAST = Forecast(1, 1.0, 0.0, 1.0, math.inf, 0.0, np.zeros(2), np.zeros(2))


def simulate_clients(
    requests: RequestArrays,
    engine: Engine,
    rules: Rules,
    clients: Clients,
    rng: np.random.Generator,
) -> Tries:
    """Serve requests of clients who may come back, with one engine behind a door.

    requests : without block hashes; rng : draws the jitter. Deterministic for one state of it.
    """
    limits = check_limits(engine[0])
    _check(requests, limits, rules, clients)
    intake = take_in(requests, limits, None)
    engine = limits, check_coefficients(engine[1])
    door = rules.door
    if door is None or isinstance(door, DoorRule):
        sent, status = _serve(intake, engine, (door, rules.deadline_s), clients, rng)
    else:
        sent, status = serve_plainly(intake, engine, PlainRules(door, rules.deadline_s), clients, rng)
    if status == STUCK:
        raise RuntimeError("The simulated engine has requests and nothing in flight, yet schedules nothing")
    return tries_of(requests, intake, sent, clients.patience_s, finished=status != OUT_OF_STEPS)


def _serve(
    intake: Intake, engine: Engine, rules: tuple[DoorRule | None, float | None], clients: Clients, rng: np.random.Generator
) -> tuple[Sent, int]:
    """Serve the accepted requests with the compiled loop; return their tries, and why it stopped."""
    state = empty_engine(intake, engine, clients.tries)
    doorway = _doorway(intake, rules, clients, rng)
    status = serve_clients(state, engine[1], doorway)
    tries = doorway.tries[:, : doorway.h[m.TRIES]]
    sent = Sent(
        position=tries[m.POSITION],
        number=tries[m.NUMBER],
        sent_s=doorway.sent_s[: doorway.h[m.TRIES]],
        fate=tries[m.FATE],
        place=tries[m.PLACE],
        priority=tries[m.RANK],
        failed=tries[m.FAILED] == 1,
        times=state.times[n.FIRST_TOKEN : n.FINISH + 1],
    )
    return sent, status


def _doorway(intake: Intake, rules: tuple[DoorRule | None, float | None], clients: Clients, rng: np.random.Generator) -> Doorway:
    """Return what stands before the engine when nobody has come yet."""
    rule, deadline_s = rules
    queue, count = intake.queue, len(intake.order)
    room = count * clients.tries
    x = np.zeros(m.X_SIZE)
    x[m.DELAY] = clients.delay_s
    x[m.PATIENCE] = math.inf if clients.patience_s is None else clients.patience_s
    x[m.DEADLINE] = math.inf if deadline_s is None else deadline_s
    asked = np.zeros((n.ASKED_ROWS, count), np.int32)
    asked[[n.PROMPT, n.OUTPUT, n.KNOWN_HIT]] = queue.prompt, queue.output, queue.known_hit
    jitters = clients.retry in ("exponential", "as told")
    off_by = None if rule is None else rule.off_by
    forecast = _NO_FORECAST if rule is None or rule.forecast is None else rule.forecast
    return Doorway(
        h=_numbers(rule, clients),
        x=x,
        forecast=forecast._replace(rates=np.array(forecast.rates, np.float64), steps_s=np.array(forecast.steps_s, np.float64)),
        off_by=np.ones(count) if off_by is None else np.array(off_by[intake.order], np.float64),
        arrival_s=np.array(queue.arrival_s),
        asked=asked,
        tries=np.zeros((m.TRY_ROWS, room), np.int64),
        sent_s=np.zeros(room),
        try_of=np.zeros(room, np.int64),
        gone=np.zeros(room, np.bool_),
        left=np.zeros(room, np.bool_),
        again=np.zeros((m.AGAIN_ROWS, count), np.int64),
        again_s=np.zeros(count),
        draws=rng.random(room - count) if jitters else np.zeros(0),
    )


def _numbers(rule: DoorRule | None, clients: Clients) -> n.Ints:
    h = np.zeros(m.H_SIZE, np.int64)
    if rule is not None:
        h[m.RULE] = 1 + RULE_KINDS.index(rule.kind)
        h[m.BOUND] = 0 if rule.bound is None else rule.bound
        h[m.FAILING] = FAILING.index(rule.failing)
        h[m.FORETELLS] = rule.forecast is not None
    h[m.RETRY] = RETRIES.index(clients.retry)
    h[m.MOST_TRIES] = clients.tries
    h[m.GIVES_UP] = clients.patience_s is not None and clients.retry != "none"
    return h


def _check(requests: RequestArrays, limits: EngineLimits, rules: Rules, clients: Clients) -> None:
    if requests.block_hashes is not None and limits.enable_prefix_caching:
        raise InputError("requests", "block hashes", "can't come back with their content", "Leave block_hashes unset")
    if clients.retry not in RETRIES:
        raise InputError("retry", clients.retry, "must be none, fixed, exponential or as told", "Choose one of these")
    for name, value in (("delay_s", clients.delay_s), ("patience_s", clients.patience_s), ("deadline_s", rules.deadline_s)):
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise InputError(name, value, "must be finite and above 0", "Give seconds")
    if not 1 <= clients.most_tries <= _MOST_TRIES:
        raise InputError("most_tries", clients.most_tries, f"must be from 1 to {_MOST_TRIES}", "Correct it")
    if rules.deadline_s is not None and limits.policy != "fcfs":
        raise InputError("deadline_s", rules.deadline_s, "needs first come, first served", "Leave it unset under priorities")
    off_by = rules.door.off_by if isinstance(rules.door, DoorRule) else None
    if off_by is not None and len(off_by) != len(requests):
        raise InputError("off_by", len(off_by), f"must hold a factor for each of {len(requests)} requests", "Give equal lengths")
