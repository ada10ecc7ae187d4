"""Requests that may be sent more than once: how their clients behave, and what became of each try."""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.simulator import layout as n
from planner.simulator.door import Door, DoorRule
from planner.simulator.inputs import Intake, RequestArrays
from planner.simulator.limits import EngineLimits
from planner.simulator.state import LogSize, Queue, build_state
from planner.step_model import StepCoefficients

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.bool_]
Retry = Literal["none", "fixed", "exponential", "as told"]
RETRIES: tuple[Retry, ...] = ("none", "fixed", "exponential", "as told")


@dataclass(frozen=True, slots=True)
class Clients:
    """How clients behave.

    retry : whether and when they come back after a rejection, a drop or giving up: after delay_s; after a random time up to
        delay_s · 2^tries (exponential with full jitter); or after Retry-After and up to as much again, delay_s where none was given
    delay_s : [s]; most_tries : tries of one request, the first among them
    patience_s : a client without its first token gives up after so long; the engine doesn't learn of it [s]; None: never
    """

    retry: Retry = "none"
    delay_s: float = 1.0
    most_tries: int = 4
    patience_s: float | None = None

    @property
    def tries(self) -> int:
        """Tries of one request at most, the first among them."""
        return self.most_tries if self.retry != "none" else 1


class Fate(IntEnum):
    """What became of one try: served (perhaps after its client gave up), rejected at the door, dropped at the deadline, or refused
    because the engine could never hold it.
    """

    SERVED = 0
    REJECTED = 1
    DROPPED = 2
    REFUSED = 3


class Rules(NamedTuple):
    """What the operator sets: who comes in, and how long one may wait with nothing computed [s]; None for no bound.

    A door that is a function is asked in Python for each request, which takes tens of times as long as a rule.
    """

    door: Door | DoorRule | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tries:
    """All tries, by the time when they were sent.

    request : position in the caller's requests; number : which try of it, from 0; sent_s : [s]; fate : of `Fate`
    first_token_s, finish_s : NaN where it wasn't served [s]; given_up : its client had given up before the first token
    priority : given at the door; failed : the door's rule was against it, even if it came in all the same
    finished : False when the engine preempted without end and was stopped
    """

    request: Ints
    number: Ints
    sent_s: Floats
    fate: Ints
    first_token_s: Floats
    finish_s: Floats
    given_up: Masks
    priority: Ints
    failed: Masks
    prompt_tokens: Ints
    output_tokens: Ints
    finished: bool

    def __len__(self) -> int:
        return len(self.request)


class Sent(NamedTuple):
    """The tries of the accepted requests as they were sent.

    position : in the engine's queue; place : in its arrays, -1 for none; times : when requests at those places got their first and
        last token [s]
    """

    position: Ints
    number: Ints
    sent_s: Floats
    fate: Ints
    place: Ints
    priority: Ints
    failed: Masks
    times: n.Floats


def empty_engine(intake: Intake, engine: tuple[EngineLimits, StepCoefficients], tries: int) -> n.State:
    """Return an engine to which nobody has come yet, with a place for each try of the accepted requests."""
    limits, c = engine
    state = build_state(_room(intake.queue, tries), limits, "length", int(c.window_tokens), LogSize())
    state.times[n.ARRIVAL] = np.inf
    return state


def _room(queue: Queue, tries: int) -> Queue:
    """Return a queue with a place for each try; the arrivals only size the engine's record."""
    count = len(queue.arrival_s) * tries
    return queue._replace(
        arrival_s=np.repeat(queue.arrival_s, tries),
        prompt=np.repeat(queue.prompt, tries),
        output=np.repeat(queue.output, tries),
        rank=np.zeros(count, np.int32),
        known_hit=np.zeros(count, np.int32),
        offsets=np.zeros(count + 1, np.int64),
    )


def tries_of(requests: RequestArrays, intake: Intake, sent: Sent, patience_s: float | None, *, finished: bool) -> Tries:
    """Return all tries, with the requests that the engine could never hold."""
    refused = np.setdiff1d(np.arange(len(requests)), intake.order)
    none = len(refused)
    request = np.concatenate([intake.order[sent.position], refused])
    sent_s = np.concatenate([sent.sent_s, requests.arrival_s[refused]])
    fate = np.concatenate([sent.fate, np.full(none, Fate.REFUSED)])
    served = fate == Fate.SERVED
    times = np.full((2, len(request)), np.nan)
    times[:, served] = sent.times[:, sent.place[sent.fate == Fate.SERVED]]
    columns = {
        "request": request,
        "number": np.concatenate([sent.number, np.zeros(none, np.int64)]),
        "fate": fate,
        "priority": np.concatenate([sent.priority, np.zeros(none, np.int64)]),
        "failed": np.concatenate([sent.failed, np.zeros(none, np.bool_)]),
        "given_up": served & ~(times[0] - sent_s <= (math.inf if patience_s is None else patience_s)),
        "prompt_tokens": requests.prompt_tokens[request],
        "output_tokens": requests.output_tokens[request],
    }
    by_time = np.argsort(sent_s, kind="stable")
    return Tries(
        **{name: column[by_time] for name, column in columns.items()},
        sent_s=sent_s[by_time],
        first_token_s=times[0, by_time],
        finish_s=times[1, by_time],
        finished=finished,
    )
