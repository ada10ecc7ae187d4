"""The loop of clients who come back, in Python: for doors that are functions, and the oracle of the compiled one.

The engine is the compiled loop, paused where the door must know its state.
"""

import math
from typing import NamedTuple

import numpy as np

from planner.simulator import layout as n
from planner.simulator.agenda import GIVE_UP, Agenda, Event
from planner.simulator.door import COME_IN, Door, Seen
from planner.simulator.inputs import Intake
from planner.simulator.kernel import FINISHED, OUT_OF_STEPS, STUCK, run_kernel
from planner.simulator.limits import EngineLimits
from planner.simulator.tries import Clients, Fate, Sent, empty_engine
from planner.step_model import StepCoefficients


class PlainRules(NamedTuple):
    """Who comes in, and how long one may wait with nothing computed [s]."""

    door: Door | None
    deadline_s: float | None


def serve_plainly(
    intake: Intake, engine: tuple[EngineLimits, StepCoefficients], rules: PlainRules, clients: Clients, rng: np.random.Generator
) -> tuple[Sent, int]:
    """Serve the accepted requests; return their tries, and why the engine stopped."""
    run = _Run(intake, engine, rules, clients)
    run.serve(rng)
    return run.sent(), OUT_OF_STEPS if run.stopped else FINISHED


class _Row(NamedTuple):
    """One try as it was sent; position : in the engine's queue, place : in its arrays, -1 for none."""

    position: int
    number: int
    sent_s: float
    fate: Fate
    place: int
    priority: int = 0
    failed: bool = False


class _Run:
    """One simulation: the engine's arrays, filled as requests are let in, and the events to come."""

    def __init__(self, intake: Intake, engine: tuple[EngineLimits, StepCoefficients], rules: PlainRules, clients: Clients) -> None:
        self.c = engine[1]
        self.intake, self.rules, self.clients = intake, rules, clients
        self.order, self.prompts = intake.order.tolist(), intake.queue.prompt.tolist()
        self.state = empty_engine(intake, engine, clients.tries)
        self.rows: list[_Row] = []
        self.row_of: list[int] = []
        self.inside = 0
        places = self.state.times.shape[1]
        self.gone, self.left = np.zeros(places, np.bool_), np.zeros(places, np.bool_)
        self.agenda = Agenda(intake.queue.arrival_s.tolist())
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
                self.left[event.what] = True
                self._come_back(event.at_s, self.rows[self.row_of[event.what]], 0.0, rng)

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
            row = _Row(position, number, at_s, Fate.REJECTED, -1, failed=True)
            self.rows.append(row)
            self._come_back(at_s, row, answer.retry_after_s, rng)
            return
        place = self.inside
        self.inside += 1
        self.row_of.append(len(self.rows))
        self.rows.append(_Row(position, number, at_s, Fate.SERVED, place, answer.priority, answer.failed))
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
        times, asked = self.state.times[:, : self.inside], self.state.asked[:, : self.inside]
        # until a preempted request ends, its time of finish is that of its latest token
        all_brought = (asked[n.PREEMPTED] == 0) | (asked[n.PRODUCED] == asked[n.OUTPUT])
        open_ = ~(self.gone[: self.inside] | ((times[n.FINISH] <= at_s) & all_brought))
        decoding = open_ & (times[n.FIRST_TOKEN] <= at_s)
        waiting = open_ & ~decoding
        if self.state.g[n.PRIORITY]:
            waiting &= asked[n.RANK] <= 0
        return Seen(
            now_s=at_s,
            request=self.order[position],
            prompt_tokens=self.prompts[position],
            unfinished=int(decoding.sum() + waiting.sum()),
            decoding=int(decoding.sum()),
            waiting_prompt_tokens=int(asked[n.PROMPT, waiting].sum(dtype=np.int64)),
        )

    def _come_back(self, at_s: float, row: _Row, told_s: float, rng: np.random.Generator) -> None:
        clients = self.clients
        if row.number + 1 >= clients.tries:
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
        """Drop whoever's deadline passes before the next decision and until_s; they stand at the head, as all may wait as long.

        Clients who had given up before have already come back, and don't again.
        """
        g, dropped = self.state.g, False
        while (due_s := self._head_deadline_s()) < min(self.clock_s, until_s):
            head = int(g[n.ADMITTED])
            g[n.ADMITTED] += 1
            g[n.ARRIVED] = max(g[n.ARRIVED], g[n.ADMITTED])
            g[n.DONE] += 1
            self.gone[head] = dropped = True
            row = self.rows[self.row_of[head]]
            self.rows[self.row_of[head]] = row._replace(fate=Fate.DROPPED)
            if not self.left[head]:
                self._come_back(due_s, row, 0.0, rng)
        return dropped

    def sent(self) -> Sent:
        """Return the tries as they were sent."""
        whole = [(row.position, row.number, row.fate, row.place, row.priority) for row in self.rows]
        position, number, fate, place, priority = np.array(whole, np.int64).reshape(-1, 5).T
        return Sent(
            position=position,
            number=number,
            sent_s=np.array([row.sent_s for row in self.rows]),
            fate=fate,
            place=place,
            priority=priority,
            failed=np.array([row.failed for row in self.rows], np.bool_),
            times=self.state.times[n.FIRST_TOKEN : n.FINISH + 1],
        )
