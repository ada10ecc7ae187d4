"""The compiled loop of clients who come back: tries come, a rule lets them in, the engine runs from one event to the next."""

import math

from planner.simulator import door_layout as m
from planner.simulator import layout as n
from planner.simulator.compiled import entry, hot, part
from planner.simulator.door_layout import Doorway
from planner.simulator.forecast import Inside, foretold_tpot_s, foretold_ttft_s, keeps_tpot, keeps_ttft, retry_after_s
from planner.simulator.kernel import FINISHED, PAUSED, run_kernel
from planner.simulator.layout import State
from planner.step_model import StepCoefficients

_NOTHING, _GIVE_UP, _COME, _COME_AGAIN = -1, 0, 1, 2


@part
def _look_inside(k: State, d: Doorway, at_s: float) -> Inside:
    """Return what has happened by at_s [s]; the step in flight may already have later times, which stay unseen."""
    unfinished = 0
    decoding = 0
    prompts = 0
    for place in range(d.h[m.FIRST], d.h[m.INSIDE]):
        # until a preempted request ends, its time of finish is that of its latest token
        ended = k.times[n.FINISH, place] <= at_s and (
            k.asked[n.PREEMPTED, place] == 0 or k.asked[n.PRODUCED, place] == k.asked[n.OUTPUT, place]
        )
        if ended or d.gone[place]:
            if place == d.h[m.FIRST]:
                d.h[m.FIRST] += 1
        elif k.times[n.FIRST_TOKEN, place] <= at_s:
            unfinished += 1
            decoding += 1
        elif k.g[n.PRIORITY] == 0 or k.asked[n.RANK, place] <= 0:
            unfinished += 1
            prompts += k.asked[n.PROMPT, place]
    return Inside(unfinished, decoding, prompts)


@part
def _ask(k: State, d: Doorway, position: int, at_s: float) -> tuple[bool, float]:
    """Return whether a request passes the rule, and the Retry-After that it is told otherwise [s]; 0 for none."""
    if d.h[m.RULE] == m.OPEN:
        return True, 0.0
    inside = _look_inside(k, d, at_s)
    ttft_s = math.nan
    tpot_s = math.nan
    if d.h[m.FORETELLS]:
        factor = d.off_by[position]
        ttft_s = foretold_ttft_s(d.forecast, inside, d.asked[n.PROMPT, position]) * factor
        tpot_s = foretold_tpot_s(d.forecast, inside) * factor
    if d.h[m.RULE] == m.REQUESTS:
        passes = inside.unfinished < d.h[m.BOUND]
    elif d.h[m.RULE] == m.TOKENS:
        passes = inside.waiting_prompt_tokens < d.h[m.BOUND]
    else:
        passes = keeps_tpot(d.forecast, tpot_s) and keeps_ttft(d.forecast, ttft_s)
    told_s = 0.0
    if d.h[m.FORETELLS] and not passes:
        told_s = retry_after_s(d.forecast, ttft_s)
    return passes, told_s


@part
def _earlier(d: Doorway, one: int, other: int) -> bool:
    """Order of two later tries by their rows in the heap: time, then when they were foreseen."""
    if d.again_s[one] != d.again_s[other]:
        return bool(d.again_s[one] < d.again_s[other])
    return bool(d.again[m.FORESEEN_AS, one] < d.again[m.FORESEEN_AS, other])


@part
def _swap(d: Doorway, one: int, other: int) -> None:
    d.again_s[one], d.again_s[other] = d.again_s[other], d.again_s[one]
    for row in range(d.again.shape[0]):
        d.again[row, one], d.again[row, other] = d.again[row, other], d.again[row, one]


@part
def _foresee(d: Doorway, at_s: float, position: int, number: int) -> None:
    """Add a later try to the heap."""
    place = d.h[m.HEAPED]
    d.h[m.HEAPED] += 1
    d.again_s[place] = at_s
    d.again[m.FORESEEN_AS, place] = d.h[m.FORESEEN]
    d.again[m.AGAIN_POSITION, place] = position
    d.again[m.AGAIN_NUMBER, place] = number
    d.h[m.FORESEEN] += 1
    while place > 0 and _earlier(d, place, (place - 1) // 2):
        _swap(d, place, (place - 1) // 2)
        place = (place - 1) // 2


@part
def _take_out(d: Doorway) -> None:
    """Take the earliest later try out of the heap."""
    d.h[m.HEAPED] -= 1
    size = d.h[m.HEAPED]
    _swap(d, 0, size)
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _earlier(d, child + 1, child):
            child += 1
        if not _earlier(d, child, place):
            break
        _swap(d, place, child)
        place = child


@part
def _come_back(d: Doorway, at_s: float, row: int, told_s: float) -> None:
    """Let the client of a try come back, if it still does."""
    number = d.tries[m.NUMBER, row]
    if number + 1 >= d.h[m.MOST_TRIES]:
        return
    if d.h[m.RETRY] == m.FIXED:
        wait_s = d.x[m.DELAY]
    else:
        drawn = d.draws[d.h[m.DRAWN]]
        d.h[m.DRAWN] += 1
        if d.h[m.RETRY] == m.EXPONENTIAL:
            wait_s = d.x[m.DELAY] * 2.0**number * drawn
        else:
            wait_s = max(told_s, d.x[m.DELAY]) * (1.0 + drawn)
    _foresee(d, at_s + wait_s, d.tries[m.POSITION, row], number + 1)


@hot
def _next_event(d: Doorway) -> tuple[int, float]:
    """Return what comes next and when [s]: of one instant who gives up, then first tries, then later ones."""
    comes_s = d.arrival_s[d.h[m.ARRIVED]] if d.h[m.ARRIVED] < len(d.arrival_s) else math.inf
    again_s = d.again_s[0] if d.h[m.HEAPED] > 0 else math.inf
    if d.h[m.LEAVING] < d.h[m.INSIDE] and d.h[m.GIVES_UP]:
        leaves_s = d.sent_s[d.try_of[d.h[m.LEAVING]]] + d.x[m.PATIENCE]
        if leaves_s <= comes_s and leaves_s <= again_s:
            return _GIVE_UP, leaves_s
    if again_s < comes_s:
        return _COME_AGAIN, again_s
    return (_NOTHING if comes_s == math.inf else _COME), comes_s


@hot
def _asks_engine(k: State, d: Doorway, event: int) -> bool:
    """Say whether an event depends on what the engine does until then."""
    if event == _NOTHING or d.h[m.RULE] != m.OPEN or d.x[m.DEADLINE] < math.inf:
        return True
    return bool(event == _GIVE_UP and math.isnan(k.times[n.FIRST_TOKEN, d.h[m.LEAVING]]))


@part
def _come(k: State, d: Doorway, event: int, at_s: float) -> None:
    """Ask the rule for a try that comes now, and let it in or send it away."""
    position = d.h[m.ARRIVED]
    number = 0
    if event == _COME_AGAIN:
        position = d.again[m.AGAIN_POSITION, 0]
        number = d.again[m.AGAIN_NUMBER, 0]
        _take_out(d)
    else:
        d.h[m.ARRIVED] += 1
    passes, told_s = _ask(k, d, position, at_s)
    row = d.h[m.TRIES]
    d.h[m.TRIES] += 1
    d.sent_s[row] = at_s
    d.tries[m.POSITION, row] = position
    d.tries[m.NUMBER, row] = number
    d.tries[m.FAILED, row] = not passes
    if not passes and d.h[m.FAILING] == m.REJECT:
        d.tries[m.FATE, row] = m.REJECTED
        d.tries[m.PLACE, row] = n.NONE
        _come_back(d, at_s, row, told_s)
        return
    d.tries[m.FATE, row] = m.SERVED
    d.tries[m.PLACE, row] = d.h[m.INSIDE]
    d.tries[m.RANK, row] = not passes and d.h[m.FAILING] == m.BATCH_CLASS
    d.try_of[d.h[m.INSIDE]] = row
    _let_in(k, d, row)


@part
def _let_in(k: State, d: Doorway, row: int) -> None:
    place = d.h[m.INSIDE]
    position = d.tries[m.POSITION, row]
    d.h[m.INSIDE] += 1
    k.times[n.ARRIVAL, place] = d.sent_s[row]
    k.asked[n.PROMPT, place] = d.asked[n.PROMPT, position]
    k.asked[n.OUTPUT, place] = d.asked[n.OUTPUT, position]
    k.asked[n.KNOWN_HIT, place] = d.asked[n.KNOWN_HIT, position]
    k.asked[n.RANK, place] = d.tries[m.RANK, row]
    if k.f[n.CLOCK] == math.inf:
        k.f[n.CLOCK] = d.sent_s[row]


@part
def _give_up(k: State, d: Doorway, at_s: float) -> None:
    """End the patience of the client whose turn it is: without a first token it comes back, its request stays."""
    place = d.h[m.LEAVING]
    d.h[m.LEAVING] += 1
    if d.gone[place] or k.times[n.FIRST_TOKEN, place] <= at_s:
        return
    d.left[place] = True
    _come_back(d, at_s, d.try_of[place], 0.0)


@part
def _head_deadline_s(k: State, d: Doorway) -> float:
    """Return until when the head of the queue may wait [s]; inf where nobody waits or there is no deadline."""
    head = k.g[n.ADMITTED]
    if head >= d.h[m.INSIDE]:
        return math.inf
    due_s: float = k.times[n.ARRIVAL, head] + d.x[m.DEADLINE]
    return due_s


@part
def _drop(k: State, d: Doorway, until_s: float) -> bool:
    """Drop whoever's deadline passes before the next decision and until_s; they stand at the head, as all may wait as long.

    Clients who had given up before have already come back, and don't again.
    """
    dropped = False
    while True:
        due_s = _head_deadline_s(k, d)
        if not due_s < min(k.f[n.CLOCK], until_s):
            return dropped
        head = k.g[n.ADMITTED]
        k.g[n.ADMITTED] += 1
        k.g[n.ARRIVED] = max(k.g[n.ARRIVED], k.g[n.ADMITTED])
        k.g[n.DONE] += 1
        dropped = True
        d.gone[head] = True
        row = d.try_of[head]
        d.tries[m.FATE, row] = m.DROPPED
        if not d.left[head]:
            _come_back(d, due_s, row, 0.0)


@entry
def serve_clients(k: State, c: StepCoefficients, d: Doorway) -> int:
    """Serve all tries of all requests; return FINISHED, or why the engine stopped.

    Only this function calls the engine's loop: each level above it would compile it once more.
    """
    while True:
        event, at_s = _next_event(d)
        if _asks_engine(k, d, event):
            if _drop(k, d, at_s):
                continue
            k.f[n.PAUSE_AT] = min(at_s, _head_deadline_s(k, d))
            if k.f[n.CLOCK] < k.f[n.PAUSE_AT]:
                status = run_kernel(k, c)
                if status == FINISHED:
                    k.f[n.CLOCK] = math.inf
                elif status != PAUSED:
                    return int(status)
                continue
        if event == _NOTHING:
            return FINISHED
        if event == _GIVE_UP:
            _give_up(k, d, at_s)
        else:
            _come(k, d, event, at_s)
