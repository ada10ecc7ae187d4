"""One engine behind a door, and clients who come back: requests may be rejected, dropped at a deadline, or given up and sent again.

The engine is the compiled loop, paused where the door must know its state. With an open door, no deadline and no second tries the
times are those of `simulate`, to the last bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.simulator import layout as n
from planner.simulator.agenda import GIVE_UP, Agenda, Event
from planner.simulator.door import look_inside
from planner.simulator.inputs import RequestArrays, take_in
from planner.simulator.kernel import FINISHED, OUT_OF_STEPS, STUCK, run_kernel
from planner.simulator.limits import EngineLimits, check_coefficients, check_limits
from planner.simulator.state import LogSize, Queue, build_state
from planner.step_model import StepCoefficients

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.bool_]
Engine = tuple[EngineLimits, StepCoefficients]
Retry = Literal["none", "fixed", "exponential", "as told"]

_MOST_TRIES = 100


class Seen(NamedTuple):
    """What the door knows when a request comes.

    now_s : time [s]; request : position in the caller's requests; prompt_tokens : its prompt [token]
    unfinished : requests inside, without lower priorities that wait [request]; decoding : of them, past their first token [seq]
    waiting_prompt_tokens : prompts of those whose first token hasn't come, whole prompts as vLLM's own bound counts them [token]
    """

    now_s: float
    request: int
    prompt_tokens: int
    unfinished: int
    decoding: int
    waiting_prompt_tokens: int


class Answer(NamedTuple):
    """What the door says.

    admit : let it in; priority : with this rank, lower first, where the engine's policy is "priority"
    retry_after_s : what a rejected client is told [s]
    """

    admit: bool
    priority: int = 0
    retry_after_s: float = 0.0


COME_IN = Answer(admit=True)
Door = Callable[[Seen], Answer]


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


class Fate(IntEnum):
    """What became of one try: served (perhaps after its client gave up), rejected at the door, dropped at the deadline, or refused
    because the engine could never hold it.
    """

    SERVED = 0
    REJECTED = 1
    DROPPED = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Tries:
    """All tries, by the time when they were sent.

    request : position in the caller's requests; number : which try of it, from 0; sent_s : [s]; fate : of `Fate`
    first_token_s, finish_s : NaN where it wasn't served [s]; given_up : its client had given up before the first token
    priority : given at the door; finished : False when the engine preempted without end and was stopped
    """

    request: Ints
    number: Ints
    sent_s: Floats
    fate: Ints
    first_token_s: Floats
    finish_s: Floats
    given_up: Masks
    priority: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    finished: bool

    def __len__(self) -> int:
        return len(self.request)


class Rules(NamedTuple):
    """What the operator sets: who comes in, and how long one may wait with nothing computed [s]; None for no bound."""

    door: Door | None = None
    deadline_s: float | None = None


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
    run = _Run(requests, (limits, check_coefficients(engine[1])), rules, clients)
    run.serve(rng)
    return run.result()


class _Row(NamedTuple):
    """One try as it was sent; position : in the engine's queue, place : in its arrays, -1 for none."""

    position: int
    number: int
    sent_s: float
    fate: Fate
    place: int
    priority: int = 0


class _Run:
    """One simulation: the engine's arrays, filled as requests are let in, and the events to come."""

    def __init__(
        self, requests: RequestArrays, engine: tuple[EngineLimits, StepCoefficients], rules: Rules, clients: Clients
    ) -> None:
        limits, self.c = engine
        self.requests, self.rules, self.clients = requests, rules, clients
        self.intake = take_in(requests, limits, None)
        self.order, self.prompts = self.intake.order.tolist(), self.intake.queue.prompt.tolist()
        tries = clients.most_tries if clients.retry != "none" else 1
        self.state = build_state(_room(self.intake.queue, tries), limits, "length", int(self.c.window_tokens), LogSize())
        self.state.times[n.ARRIVAL] = np.inf
        self.rows: list[_Row] = []
        self.row_of: list[int] = []
        self.first = self.inside = 0
        self.gone = np.zeros(self.state.times.shape[1], np.bool_)
        self.agenda = Agenda(self.intake.queue.arrival_s.tolist())
        self.clock_s = float(self.state.f[n.CLOCK])
        self.stopped = False

    def serve(self, rng: np.random.Generator) -> None:
        """Run until nobody comes back and the engine is empty."""
        while not self.stopped:
            event = self.agenda.peek()
            at_s = math.inf if event is None else event.at_s
            if (event is None or self._asks_engine(event)) and not self._advance(at_s, rng):
                continue
            if event is None:
                return
            self.agenda.drop(event)
            if event.kind != GIVE_UP:
                self._come(event, rng)
            elif not self._answered(event):
                row = self.rows[self.row_of[event.what]]
                self._come_back(event.at_s, row, 0.0, rng)

    def _asks_engine(self, event: Event) -> bool:
        """Say whether an event depends on what the engine does until then."""
        if self.rules.door is not None or self.rules.deadline_s is not None:
            return True
        return event.kind == GIVE_UP and math.isnan(self.state.times[n.FIRST_TOKEN, event.what])

    def _answered(self, event: Event) -> bool:
        """Say whether a client that would give up has its first token, or was sent away before."""
        return bool(self.gone[event.what]) or self.state.times[n.FIRST_TOKEN, event.what] <= event.at_s

    def _come(self, event: Event, rng: np.random.Generator) -> None:
        at_s, position, number = event.at_s, event.what, event.number
        answer = COME_IN if self.rules.door is None else self.rules.door(self._seen(at_s, position))
        if not answer.admit:
            row = _Row(position, number, at_s, Fate.REJECTED, -1)
            self.rows.append(row)
            self._come_back(at_s, row, answer.retry_after_s, rng)
            return
        place = self.inside
        self.inside += 1
        self.row_of.append(len(self.rows))
        self.rows.append(_Row(position, number, at_s, Fate.SERVED, place, answer.priority))
        self._let_in(at_s, position, place, answer.priority)
        if self.clients.patience_s is not None and self.clients.retry != "none":
            self.agenda.give_up(at_s + self.clients.patience_s, place, number)

    def _let_in(self, at_s: float, position: int, place: int, priority: int) -> None:
        queue, state = self.intake.queue, self.state
        state.times[n.ARRIVAL, place] = at_s
        state.asked[n.PROMPT, place] = queue.prompt[position]
        state.asked[n.OUTPUT, place] = queue.output[position]
        state.asked[n.KNOWN_HIT, place] = queue.known_hit[position]
        state.asked[n.RANK, place] = priority
        if math.isinf(self.clock_s):
            self.clock_s = at_s

    def _seen(self, at_s: float, position: int) -> Seen:
        """Return what has happened by at_s; the step in flight may already have later times, which stay unseen."""
        state = self.state
        span = (self.first, self.inside)
        arrays = state.g, state.times, state.asked, self.gone
        self.first, unended, decoding, prompts = look_inside(*arrays, span, at_s)
        return Seen(
            now_s=at_s,
            request=self.order[position],
            prompt_tokens=self.prompts[position],
            unfinished=unended,
            decoding=decoding,
            waiting_prompt_tokens=prompts,
        )

    def _come_back(self, at_s: float, row: _Row, told_s: float, rng: np.random.Generator) -> None:
        clients = self.clients
        if clients.retry == "none" or row.number + 1 >= clients.most_tries:
            return
        if clients.retry == "fixed":
            wait_s = clients.delay_s
        elif clients.retry == "exponential":
            wait_s = clients.delay_s * 2.0**row.number * float(rng.random())
        else:
            wait_s = max(told_s, clients.delay_s) * (1.0 + float(rng.random()))
        self.agenda.come_again(at_s + wait_s, row.position, row.number + 1)

    def _advance(self, until_s: float, rng: np.random.Generator) -> bool:
        """Let the engine decide what it decides before until_s; False when it stopped early, as somebody was dropped."""
        f = self.state.f
        while True:
            pause_s = until_s
            if self.rules.deadline_s is not None:
                if self._drop(until_s, rng):
                    return False
                pause_s = min(until_s, self._head_deadline_s())
            if not self.clock_s < pause_s:
                return True
            f[n.CLOCK], f[n.PAUSE_AT] = self.clock_s, pause_s
            status = run_kernel(self.state, self.c)
            self.clock_s = math.inf if status == FINISHED else float(f[n.CLOCK])
            if status == STUCK:
                raise RuntimeError("The simulated engine has requests and nothing in flight, yet schedules nothing")
            if status == OUT_OF_STEPS:
                self.stopped = True
                return False

    def _head_deadline_s(self) -> float:
        """Return until when the head of the queue may wait [s]; inf where nobody waits or there is no deadline."""
        head = int(self.state.g[n.ADMITTED])
        if self.rules.deadline_s is None or head >= self.inside:
            return math.inf
        return float(self.state.times[n.ARRIVAL, head]) + self.rules.deadline_s

    def _drop(self, until_s: float, rng: np.random.Generator) -> bool:
        """Drop whoever's deadline passes before the next decision and until_s; they stand at the head, as all may wait as long."""
        g, dropped = self.state.g, False
        while (due_s := self._head_deadline_s()) < min(self.clock_s, until_s):
            head = int(g[n.ADMITTED])
            g[n.ADMITTED] += 1
            g[n.ARRIVED] = max(g[n.ARRIVED], g[n.ADMITTED])
            g[n.DONE] += 1
            self.gone[head] = dropped = True
            row = self.rows[self.row_of[head]]
            self.rows[self.row_of[head]] = row._replace(fate=Fate.DROPPED)
            self._come_back(due_s, row, 0.0, rng)
        return dropped

    def result(self) -> Tries:
        """Return all tries, and the requests that the engine could never hold."""
        asked, order = self.requests, self.intake.order
        refused = np.setdiff1d(np.arange(len(asked)), order)
        request = np.concatenate([order[[row.position for row in self.rows]].astype(np.int64), refused])
        none = len(refused)
        place = np.array([row.place for row in self.rows] + [-1] * none, np.int64)
        fate = np.array([row.fate for row in self.rows] + [Fate.REFUSED] * none, np.int64)
        sent_s = np.concatenate([np.array([row.sent_s for row in self.rows]), asked.arrival_s[refused]])
        served = fate == Fate.SERVED
        times = np.full((2, len(request)), np.nan)
        times[:, served] = self.state.times[n.FIRST_TOKEN : n.FINISH + 1, place[served]]
        patience_s = math.inf if self.clients.patience_s is None else self.clients.patience_s
        columns = {
            "request": request,
            "number": np.array([row.number for row in self.rows] + [0] * none, np.int64),
            "fate": fate,
            "priority": np.array([row.priority for row in self.rows] + [0] * none, np.int64),
            "given_up": served & ~(times[0] - sent_s <= patience_s),
            "prompt_tokens": asked.prompt_tokens[request],
            "output_tokens": asked.output_tokens[request],
        }
        by_time = np.argsort(sent_s, kind="stable")
        return Tries(
            **{name: column[by_time] for name, column in columns.items()},
            sent_s=sent_s[by_time],
            first_token_s=times[0, by_time],
            finish_s=times[1, by_time],
            finished=not self.stopped,
        )


def _room(queue: Queue, tries: int) -> Queue:
    """Return a queue with a place for each try; the arrivals only size the engine's record."""
    count_ = len(queue.arrival_s) * tries
    return queue._replace(
        arrival_s=np.repeat(queue.arrival_s, tries),
        prompt=np.repeat(queue.prompt, tries),
        output=np.repeat(queue.output, tries),
        rank=np.zeros(count_, np.int32),
        known_hit=np.zeros(count_, np.int32),
        offsets=np.zeros(count_ + 1, np.int64),
    )


def _check(requests: RequestArrays, limits: EngineLimits, rules: Rules, clients: Clients) -> None:
    if requests.block_hashes is not None and limits.enable_prefix_caching:
        raise InputError("requests", "block hashes", "can't come back with their content", "Leave block_hashes unset")
    if clients.retry not in ("none", "fixed", "exponential", "as told"):
        raise InputError("retry", clients.retry, "must be none, fixed, exponential or as told", "Choose one of these")
    for name, value in (("delay_s", clients.delay_s), ("patience_s", clients.patience_s), ("deadline_s", rules.deadline_s)):
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise InputError(name, value, "must be finite and above 0", "Give seconds")
    if not 1 <= clients.most_tries <= _MOST_TRIES:
        raise InputError("most_tries", clients.most_tries, f"must be from 1 to {_MOST_TRIES}", "Correct it")
    if rules.deadline_s is not None and limits.policy != "fcfs":
        raise InputError("deadline_s", rules.deadline_s, "needs first come, first served", "Leave it unset under priorities")
