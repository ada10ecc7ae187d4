"""Serves a closed loop: a fixed number of clients, each of which sends its next request when it has all of the one before.

The engine's loop runs step by step with the same step time as the simulator's. Two things are in it that a list of arrival times
can't say: arrivals depend on completions, and an engine may prefill first and decode only when no prompt waits (SGLang), which
keeps requests of equal length in lockstep, or hold prompts back for some steps to batch them (TensorRT-LLM).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from planner import step_model
from planner.attention_pairs import causal_pairs, window_pairs
from planner.errors import InputError
from planner.simulator.compiled import entry, part
from planner.simulator.limits import EngineLimits
from planner.step_model import StepCoefficients, StepShape, step_s

register_jitable(step_model.gpu_s)
register_jitable(step_model.step_s)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REQUEST, CONTEXT, TARGET, LEFT, DECODES, CHUNK = range(6)
_COLUMNS = 6
ASSIGNED, ARRIVED, ADMITTED, RUNNING, DONE, STACKED, DECODING, SUM, HELD, STEPS, WAITED, PREEMPTED = range(12)
_COUNTERS = 12
_STEPS_PER_TOKEN = 4
_FILLS = 0.9


class Policy(NamedTuple):
    """How an engine treats prompts in a closed loop.

    mixed : prefill chunks and decode rows share a step; else prompts go first and decode waits
    reserves_output : a request is admitted only when its whole output fits too
    wait_steps : steps for which waiting prompts are held back while others decode [step]
    """

    mixed: bool = True
    reserves_output: bool = False
    wait_steps: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ClosedLoopLoad:
    """Requests in the order in which clients take them up.

    prompt_tokens, output_tokens : of each request [token]
    delay_s : from a client's sending to the engine's queue, of each request [s]
    clients : requests in flight at most [request]
    """

    prompt_tokens: Ints
    output_tokens: Ints
    delay_s: Floats
    clients: int


@dataclass(frozen=True, slots=True, eq=False)
class ClosedLoopRun:
    """What became of each request, in order of sending, times from the start of the run [s]."""

    sent_s: Floats
    first_token_s: Floats
    finish_s: Floats
    output_tokens: Ints
    preemptions: int
    finished: bool


class _State(NamedTuple):
    """All arrays of one run.

    asked, times, delays : of each request: prompt, output and produced tokens; when sent, queued, at first and last token [s]
    slots, stack : running sequences in order of admission; preempted requests
    g : counters
    seqs, budget, capacity, block, window : limits [seq], [token]
    """

    asked: Ints
    times: Floats
    delays: Floats
    slots: Ints
    stack: Ints
    g: Ints
    seqs: int
    budget: int
    capacity: int
    block: int
    window: int
    asynchronous: bool


def serve_closed_loop(load: ClosedLoopLoad, limits: EngineLimits, policy: Policy, coefficients: StepCoefficients) -> ClosedLoopRun:
    """Serve the requests of all clients until they are done; the first ones are sent at time 0.

    Deterministic. Without delay the run is that of `simulate` with all requests queued and max_num_seqs set to the clients, as
    far as nothing is preempted. A full cache preempts the youngest sequence; blocks count as half-filled on average.

    Raises InputError when one request alone is larger than the cache, or there is no request.
    """
    prompt_tokens, output_tokens = load.prompt_tokens, load.output_tokens
    capacity = limits.num_blocks * limits.block_size
    largest = int((prompt_tokens + output_tokens).max(initial=0))
    if not 0 < largest <= capacity:
        raise InputError("engine.num_blocks", limits.num_blocks, f"must hold {largest} tokens", "Shorten requests or free memory")
    count = len(prompt_tokens)
    state = _State(
        asked=np.stack([prompt_tokens, output_tokens, np.zeros(count, np.int64)]).astype(np.int64),
        times=np.full((4, count), np.nan),
        delays=load.delay_s,
        slots=np.zeros((limits.max_num_seqs + 1, _COLUMNS), np.int64),
        stack=np.zeros(count + 1, np.int64),
        g=np.zeros(_COUNTERS, np.int64),
        seqs=limits.max_num_seqs,
        budget=limits.max_num_batched_tokens,
        capacity=capacity,
        block=limits.block_size,
        window=int(coefficients.window_tokens),
        asynchronous=limits.async_scheduling,
    )
    c = StepCoefficients(*(float(value) for value in coefficients))
    finished = _serve(state, policy, c, min(load.clients, count))
    return ClosedLoopRun(state.times[0], state.times[2], state.times[3], output_tokens, int(state.g[PREEMPTED]), bool(finished))


@part
def _send(k: _State, now_s: float) -> None:
    """Let a client send the next request, if any is left; the front end passes them on in order."""
    request = k.g[ASSIGNED]
    if request == k.asked.shape[1]:
        return
    reaches_s = now_s + k.delays[request]
    if request > 0:
        reaches_s = max(reaches_s, k.times[1, request - 1])
    k.times[0, request] = now_s
    k.times[1, request] = reaches_s
    k.g[ASSIGNED] += 1


@part
def _fits(k: _State, policy: Policy, request: int) -> bool:
    known = k.asked[0, request] + k.asked[2, request]
    reserved = 0
    if policy.reserves_output:
        reserved = k.asked[1, request] - k.asked[2, request]
        for i in range(k.g[RUNNING]):
            reserved += k.slots[i, LEFT]
    rounding = (k.block - 1) * (k.g[RUNNING] + 1) // 2
    fits: bool = k.g[HELD] + known + reserved + rounding <= k.capacity
    return fits or k.g[RUNNING] == 0


@part
def _admit(k: _State, policy: Policy) -> bool:
    """Take the head of the queue into the batch; False when there is none or no room."""
    stacked = k.g[STACKED]
    if stacked == 0 and k.g[ADMITTED] == k.g[ARRIVED]:
        return False
    request = k.stack[stacked - 1] if stacked > 0 else k.g[ADMITTED]
    if k.g[RUNNING] >= k.seqs or not _fits(k, policy, request):
        return False
    if stacked > 0:
        k.g[STACKED] -= 1
    else:
        k.g[ADMITTED] += 1
    slot = k.g[RUNNING]
    k.slots[slot, REQUEST] = request
    k.slots[slot, CONTEXT] = 0
    k.slots[slot, TARGET] = k.asked[0, request] + k.asked[2, request]
    k.slots[slot, LEFT] = k.asked[1, request] - k.asked[2, request]
    k.slots[slot, DECODES] = 0
    k.slots[slot, CHUNK] = 0
    k.g[RUNNING] += 1
    k.g[HELD] += k.slots[slot, TARGET]
    return True


@part
def _preempt_youngest(k: _State) -> None:
    slot = k.g[RUNNING] - 1
    request = k.slots[slot, REQUEST]
    k.asked[2, request] = k.asked[1, request] - k.slots[slot, LEFT]
    if k.slots[slot, DECODES]:
        k.g[DECODING] -= 1
        k.g[SUM] -= k.slots[slot, CONTEXT]
        k.g[HELD] -= k.slots[slot, CONTEXT]
    else:
        k.g[HELD] -= k.slots[slot, TARGET]
    k.stack[k.g[STACKED]] = request
    k.g[STACKED] += 1
    k.g[RUNNING] -= 1
    k.g[PREEMPTED] += 1


@part
def _held_back(k: _State, policy: Policy) -> bool:
    """Say whether prompts wait for more of them."""
    if policy.wait_steps == 0 or k.g[DECODING] == 0 or k.g[STACKED] > 0:
        return False
    tokens = 0
    for request in range(k.g[ADMITTED], k.g[ARRIVED]):
        tokens += k.asked[0, request]
    if tokens == 0:
        return False
    k.g[WAITED] += 1
    held: bool = k.g[WAITED] <= policy.wait_steps and tokens < _FILLS * k.budget
    return held


@part
def _plan_prefill(k: _State, policy: Policy, budget: int) -> int:
    """Give prompt tokens to running prefills, then to newly admitted ones; return how many."""
    given = 0
    i = 0
    holds_back = _held_back(k, policy)
    while given < budget:
        if i == k.g[RUNNING]:
            if holds_back or not _admit(k, policy):
                break
            k.g[WAITED] = 0
        if not k.slots[i, DECODES]:
            tokens = min(k.slots[i, TARGET] - k.slots[i, CONTEXT], budget - given)
            k.slots[i, CHUNK] = tokens
            given += tokens
        i += 1
    return given


@part
def _window_sum(k: _State) -> int:
    total = 0
    if k.window > 0:
        for i in range(k.g[RUNNING]):
            if k.slots[i, DECODES]:
                total += min(k.slots[i, CONTEXT], k.window)
    return total


@part
def _duration(k: _State, c: StepCoefficients, decoding: int, chunk_tokens: int) -> float:
    rows = completed = context = 0
    pairs = pairs_in_window = 0.0
    if chunk_tokens > 0:
        for i in range(k.g[RUNNING]):
            tokens = k.slots[i, CHUNK]
            if tokens > 0:
                past = k.slots[i, CONTEXT]
                rows += 1
                completed += past + tokens == k.slots[i, TARGET]
                context += past
                pairs += causal_pairs(past, tokens)
                if k.window > 0:
                    pairs_in_window += window_pairs(past, tokens, k.window)
    shape = StepShape(
        float(decoding + chunk_tokens),
        float(decoding + completed),
        float(decoding + rows),
        float(decoding),
        float(k.g[SUM] if decoding > 0 else 0),
        float(_window_sum(k) if decoding > 0 else 0),
        pairs,
        pairs_in_window,
        float(context),
    )
    return float(step_s(shape, c))


@part
def _finish(k: _State, end_s: float) -> None:
    """Drop the sequences that have their last token; their clients send the next request."""
    kept = 0
    for i in range(k.g[RUNNING]):
        if k.slots[i, DECODES] and k.slots[i, LEFT] == 0:
            k.times[3, k.slots[i, REQUEST]] = end_s
            k.g[DECODING] -= 1
            k.g[SUM] -= k.slots[i, CONTEXT]
            k.g[HELD] -= k.slots[i, CONTEXT]
            k.g[DONE] += 1
            _send(k, end_s)
        else:
            for column in range(_COLUMNS):
                k.slots[kept, column] = k.slots[i, column]
            kept += 1
    k.g[RUNNING] = kept


@part
def _advance(k: _State, end_s: float, decoded: int, chunk_tokens: int) -> bool:
    """Account `decoded` tokens of every decoding sequence and the chunks of a step; True when a sequence ended."""
    ended = False
    for i in range(k.g[RUNNING]):
        if k.slots[i, DECODES]:
            k.slots[i, CONTEXT] += decoded
            k.slots[i, LEFT] -= decoded
            ended = ended or k.slots[i, LEFT] == 0
        elif chunk_tokens > 0 and k.slots[i, CHUNK] > 0:
            k.slots[i, CONTEXT] += k.slots[i, CHUNK]
            k.slots[i, CHUNK] = 0
            if k.slots[i, CONTEXT] == k.slots[i, TARGET]:
                request = k.slots[i, REQUEST]
                if k.asked[2, request] == 0:
                    k.times[2, request] = end_s
                k.slots[i, DECODES] = 1
                k.slots[i, LEFT] -= 1
                ended = ended or k.slots[i, LEFT] == 0
    return ended


@part
def _room(k: _State) -> bool:
    """Say whether every decoding sequence can have one more token."""
    enough: bool = k.g[HELD] + k.g[DECODING] + k.block * k.g[RUNNING] // 2 <= k.capacity
    return enough or k.g[RUNNING] == 1


@part
def _decode_on(k: _State, c: StepCoefficients, policy: Policy, now_s: float) -> tuple[float, float, int]:
    """Take decode steps until a sequence ends, a request arrives or the cache is full; return time, what is known, and the steps.

    Nothing else can change the batch, so its sums grow by one token for each sequence and no sequence is touched.
    """
    most = k.slots[0, LEFT]
    for i in range(k.g[RUNNING]):
        most = min(most, k.slots[i, LEFT])
    if k.window > 0 or (policy.wait_steps > 0 and k.g[ARRIVED] > k.g[ADMITTED]):
        most = 1
    steps = 0
    known_s = now_s
    while steps < most:
        start_s = now_s
        now_s = start_s + _duration(k, c, k.g[DECODING], 0)
        known_s = start_s if k.asynchronous else now_s
        k.g[SUM] += k.g[DECODING]
        k.g[HELD] += k.g[DECODING]
        steps += 1
        comes = k.g[ARRIVED] < k.g[ASSIGNED] and k.times[1, k.g[ARRIVED]] <= known_s
        if comes or not _room(k):
            break
    return now_s, known_s, steps


@part
def _recount(k: _State) -> None:
    k.g[DECODING] = 0
    k.g[SUM] = 0
    for i in range(k.g[RUNNING]):
        if k.slots[i, DECODES]:
            k.g[DECODING] += 1
            k.g[SUM] += k.slots[i, CONTEXT]


@part
def _most_steps(k: _State) -> int:
    most = 1000
    for request in range(k.asked.shape[1]):
        most += _STEPS_PER_TOKEN * (k.asked[1, request] + 2) + k.asked[0, request] // k.budget
    return most


@entry
def _serve(k: _State, policy: Policy, c: StepCoefficients, clients: int) -> bool:
    """Run until all requests are done; False when the engine preempts for ever."""
    for _ in range(clients):
        _send(k, 0.0)
    most = _most_steps(k)
    now_s = known_s = 0.0
    while k.g[DONE] < k.asked.shape[1]:
        while k.g[ARRIVED] < k.g[ASSIGNED] and k.times[1, k.g[ARRIVED]] <= known_s:
            k.g[ARRIVED] += 1
        while not _room(k):
            _preempt_youngest(k)
        decoding = k.g[DECODING]
        chunk_tokens = _plan_prefill(k, policy, max(k.budget - decoding, 0) if policy.mixed else k.budget)
        if decoding + chunk_tokens == 0:
            now_s = max(now_s, k.times[1, k.g[ARRIVED]])
            known_s = now_s
            continue
        if chunk_tokens == 0:
            now_s, known_s, steps = _decode_on(k, c, policy, now_s)
            ended = _advance(k, now_s, steps, 0)
        else:
            decoding = decoding if policy.mixed else 0
            start_s, steps = now_s, 1
            now_s = start_s + _duration(k, c, decoding, chunk_tokens)
            known_s = start_s if k.asynchronous else now_s
            ended = _advance(k, now_s, int(decoding > 0), chunk_tokens)
            k.g[HELD] += decoding
            _recount(k)
        if ended:
            _finish(k, now_s)
        k.g[STEPS] += steps
        if k.g[STEPS] > most:
            return False
    return True
