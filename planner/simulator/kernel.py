"""The compiled loop: decides step after step, and takes a stretch of equal steps at once."""

import math

from planner.simulator import layout as n
from planner.simulator.compiled import entry, hot, part
from planner.simulator.kernel_log import Steps, account, add_gap, add_gaps, find_bins, log_decoding, log_step, note_longest
from planner.simulator.kernel_queue import arrive, waiting
from planner.simulator.kernel_schedule import schedule_running, schedule_waiting, take_crossing_blocks
from planner.simulator.kernel_slots import (
    add_decoding,
    blocks_for,
    give_back,
    next_step,
    remove_decoding,
    remove_running,
)
from planner.simulator.kernel_time import fixed_parts, shape_of, step_duration
from planner.simulator.layout import Ints, Shorts, State
from planner.step_model import StepCoefficients, decode_attention_s, prefill_attention_s

FINISHED = 0
OUT_OF_STEPS = 1
STUCK = 2
PAUSED = 3


@hot
def _foreseen(g: Ints, asked: Shorts, request: int) -> bool:
    """Say whether the scheduler knows a sequence's last token before it comes: by max_tokens, or by max_model_len."""
    known: bool = g[n.FORESEEN] == 1 or asked[n.PROMPT, request] + asked[n.OUTPUT, request] == g[n.MAX_LEN]
    return known


@hot
def _end_prefills(k: State, step: int) -> None:
    """Let the sequences whose prefill this step ends decode from the next one on."""
    for i in range(k.g[n.COMPLETED]):
        slot = k.lists[n.COMPLETED_LIST, i]
        request = k.slots[slot, n.REQUEST]
        if math.isnan(k.times[n.FIRST_TOKEN, request]):
            k.times[n.FIRST_TOKEN, request] = k.f[n.END]
        else:
            add_gap(k.g, k.f, k.record, k.f[n.END] - k.times[n.FINISH, request])
        k.slots[slot, n.FIRST_STEP] = step
        k.slots[slot, n.SKIPPED] = n.NONE
        k.slots[slot, n.TAKEN] = n.NONE
        k.slots[slot, n.BASE] = k.slots[slot, n.TARGET] - step - 1
        k.slots[slot, n.LAST_STEP] = step + k.asked[n.OUTPUT, request] - k.asked[n.PRODUCED, request] - 1
        add_decoding(k, slot)


@part
def _bring_back(k: State, steps: int) -> None:
    """Let sequences that were left out decode again: one step later than planned, or none when there was no step after all."""
    for i in range(k.g[n.LEFT_OUT]):
        slot = k.lists[n.LEFT_OUT_LIST, i]
        k.slots[slot, n.BASE] -= steps
        k.slots[slot, n.LAST_STEP] += steps
        add_decoding(k, slot)
        if steps == 1:
            step = k.g[n.STEP] - 1
            if k.slots[slot, n.SKIPPED] != step - 1:
                k.since[slot] = k.f[n.START]
            k.slots[slot, n.SKIPPED] = step


@part
def _add_late_gaps(k: State, step: int) -> None:
    """Count the gaps of sequences that an earlier step left out."""
    slot = k.g[n.FIRST]
    while slot != n.NONE:
        decodes = k.slots[slot, n.PHASE] == n.DECODE and k.slots[slot, n.TAKEN] == step
        if decodes and k.slots[slot, n.SKIPPED] == step - 1:
            add_gap(k.g, k.f, k.record, k.f[n.END] - k.since[slot])
        slot = k.slots[slot, n.NEXT]


@hot
def _end_outputs(k: State, step: int) -> None:
    """Note the end of the sequences whose last token this step brings."""
    slot = k.ring[n.ENDING, step & (k.ring.shape[1] - 1)]
    k.g[n.LINGERING] = 0
    while slot != n.NONE:
        request = k.slots[slot, n.REQUEST]
        k.times[n.FINISH, request] = k.f[n.END]
        k.asked[n.PRODUCED, request] = k.asked[n.OUTPUT, request]
        if k.g[n.ASYNC]:
            if _foreseen(k.g, k.asked, request):
                remove_decoding(k, slot)
                k.slots[slot, n.PHASE] = n.ENDED
            else:
                k.g[n.LINGERING] += 1
        slot = k.slots[slot, n.RING_NEXT]


@hot
def _take_in(k: State, step: int) -> None:
    """Take in a step's tokens: sequences that ended give back slot and blocks, the oldest first."""
    place = step & (k.ring.shape[1] - 1)
    slot = k.ring[n.ENDING, place]
    k.ring[n.ENDING, place] = n.NONE
    k.g[n.GHOSTS] = 0
    while slot != n.NONE and k.slots[slot, n.RING_NEXT] != n.NONE:
        slot = k.slots[slot, n.RING_NEXT]
    while slot != n.NONE:
        younger = k.slots[slot, n.RING_PREVIOUS]
        computed = k.slots[slot, n.BASE] + step + 1
        held_tokens = computed
        if k.slots[slot, n.PHASE] == n.DECODE:
            held_tokens = k.slots[slot, n.BASE] + k.g[n.STEP]
            remove_decoding(k, slot)
        give_back(k, slot, blocks_for(k.g, held_tokens), computed, 0)
        remove_running(k, slot)
        k.g[n.DONE] += 1
        slot = younger


@hot
def _clear_step(k: State) -> None:
    k.g[n.CHUNK_TOKENS] = 0
    k.g[n.CHUNK_ROWS] = 0
    k.g[n.CHUNK_CONTEXT] = 0
    k.g[n.COMPLETED] = 0
    k.g[n.LATE_ROWS] = 0
    k.g[n.LEFT_OUT] = 0
    k.f[n.PAIRS] = 0.0
    k.f[n.WINDOW_PAIRS] = 0.0


@hot
def _run_step(k: State, c: StepCoefficients, start_s: float) -> None:
    """Run the step that was decided, from start_s on."""
    shape = shape_of(k)
    prefill = float(prefill_attention_s(shape, c)) if k.g[n.CHUNK_ROWS] > 0 else 0.0
    duration_s, resource = step_duration(c, fixed_parts(k, c, shape), float(decode_attention_s(shape, c)), prefill)
    step = k.g[n.STEP]
    rows = k.g[n.DECODING]
    k.f[n.DURATION] = duration_s
    k.f[n.START] = start_s
    k.f[n.END] = start_s + duration_s
    if k.g[n.LOGGING]:
        log_decoding(k)
        log_step(k.g, k.f, k.record, waiting(k.g) + k.g[n.GHOSTS])
    find_bins(k.g, k.f, k.record, start_s, duration_s)
    held = k.g[n.NUM_BLOCKS] - k.g[n.FREE]
    account(k.g, k.f, k.record, Steps(1, rows + k.g[n.CHUNK_TOKENS], duration_s, held * duration_s), resource)
    note_longest(k.f, start_s, duration_s)
    on_time = rows - k.g[n.LINGERING] - k.g[n.LATE_ROWS]
    k.g[n.WASTED] += k.g[n.LINGERING]
    k.g[n.TOKENS_OUT] += rows - k.g[n.LINGERING] + k.g[n.COMPLETED]
    if on_time > 0:
        add_gaps(k.g, k.f, k.record, on_time, duration_s * on_time)
    if k.g[n.LATE_ROWS] > 0:
        _add_late_gaps(k, step)
    next_step(k)
    _end_prefills(k, step)
    if k.g[n.LEFT_OUT] > 0:
        _bring_back(k, 1)
    k.g[n.WERE_LEFT_OUT] = k.g[n.LEFT_OUT]
    _end_outputs(k, step)


@hot
def _quiet_until(k: State, freed: int) -> float:
    """Return until when no decision but one more token for everyone is possible, blocks and endings aside [s]; 0 for not at all."""
    steady = k.g[n.DECODING] > 0 and k.g[n.PREFILLS] == 0 and k.g[n.LINGERING] == 0 and k.g[n.WERE_LEFT_OUT] == 0
    if not steady or k.g[n.PREEMPTED_NOW] > 0 or k.g[n.LOGGING]:
        return 0.0
    if k.g[n.ASYNC] and k.ring[n.ENDING, (k.g[n.STEP] - 1) & (k.ring.shape[1] - 1)] != n.NONE:
        return 0.0
    arrives_s = k.times[n.ARRIVAL, k.g[n.ARRIVED]] if k.g[n.ARRIVED] < k.times.shape[1] else math.inf
    if waiting(k.g) == 0:
        return arrives_s
    if k.g[n.WAIT_REASON] == n.REASON_SEQS and k.g[n.RUNNING] == k.g[n.MAX_NUM_SEQS]:
        return math.inf
    if k.g[n.WAIT_REASON] == n.REASON_KV and freed == 0:
        return arrives_s if k.g[n.PRIORITY] else math.inf
    return 0.0


@hot
def _alone_until(k: State, freed: int) -> float:
    """Return until when the loop may take steps at once: nothing to decide, nothing to log, no pause [s]."""
    until_s = min(_quiet_until(k, freed), k.f[n.PAUSE_AT])
    if k.g[n.LOG_STEPS] < k.g[n.LOG_MOST]:
        until_s = min(until_s, k.f[n.LOG_FROM])
    return float(until_s)


@hot
def _add_decoding_steps(k: State, steps: Steps, resource: int) -> None:
    """Add steps in which the same sequences decode to all sums."""
    account(k.g, k.f, k.record, steps, resource)
    add_gaps(k.g, k.f, k.record, steps.number * steps.tokens, steps.time_s * steps.tokens)
    k.g[n.TOKENS_OUT] += steps.number * steps.tokens


@hot
def _decode_on(k: State, c: StepCoefficients, now_s: float, quiet_until_s: float) -> float:
    """Take steps in which every sequence decodes until something else can happen; return when the next decision is made [s].

    The batch stays as it is, so a step costs a few additions: its context grows by one token for each sequence. What goes into the
    same sums is added up first.
    """
    rows = k.g[n.DECODING]
    if waiting(k.g) == 0:
        k.g[n.WAIT_REASON] = n.REASON_NONE
    _clear_step(k)
    fixed = fixed_parts(k, c, shape_of(k))
    ring_mask = k.ring.shape[1] - 1
    asynchronous = k.g[n.ASYNC] == 1
    place = k.g[n.STEP] % k.g[n.BLOCK_SIZE]
    start_s = begin_s = end_s = k.f[n.END] if asynchronous else now_s
    duration_s, block_s, first, bound = k.f[n.DURATION], 0.0, k.g[n.STEP], n.BANDWIDTH
    while now_s < quiet_until_s and k.g[n.STEP] < k.g[n.MAX_STEPS]:
        if k.ring[n.ENDING, k.g[n.STEP] & ring_mask] != n.NONE or k.residues[n.CROSSING, place] > k.g[n.FREE]:
            break
        take_crossing_blocks(k, place)
        duration_s, resource = step_duration(c, fixed, float(decode_attention_s(shape_of(k), c)), 0.0)
        start_s = end_s
        if resource != bound or start_s >= k.f[n.BIN_END] or not k.f[n.GAP_LOW] <= duration_s < k.f[n.GAP_EDGE]:
            _add_decoding_steps(k, Steps(k.g[n.STEP] - first, rows, start_s - begin_s, block_s), bound)
            find_bins(k.g, k.f, k.record, start_s, duration_s)
            begin_s, block_s, first, bound = start_s, 0.0, k.g[n.STEP], resource
        block_s += (k.g[n.NUM_BLOCKS] - k.g[n.FREE]) * duration_s
        end_s = start_s + duration_s
        note_longest(k.f, start_s, duration_s)
        next_step(k)
        place = 0 if place + 1 == k.g[n.BLOCK_SIZE] else place + 1
        now_s = start_s if asynchronous else end_s
    _add_decoding_steps(k, Steps(k.g[n.STEP] - first, rows, end_s - begin_s, block_s), bound)
    if end_s > begin_s:
        k.f[n.DURATION] = duration_s
        k.f[n.START] = start_s
        k.f[n.END] = end_s
    return now_s


@hot
def _decide(k: State, now_s: float) -> bool:
    """Decide the next step from what is known now; False when it would be empty."""
    arrive(k, now_s)
    k.f[n.NOW] = now_s
    if k.g[n.LOG_MOST] > 0:
        k.g[n.LOGGING] = k.g[n.LOG_STEPS] < k.g[n.LOG_MOST] and now_s >= k.f[n.LOG_FROM]
    _clear_step(k)
    logged = k.g[n.LOG_ROWS]
    schedule_running(k)
    schedule_waiting(k)
    if k.g[n.DECODING] + k.g[n.CHUNK_TOKENS] > 0:
        return True
    k.g[n.LOG_ROWS] = logged
    _bring_back(k, 0)
    return False


@entry
def run_kernel(k: State, c: StepCoefficients) -> int:
    """Serve all requests; return FINISHED, or why it stopped. After PAUSED, another call goes on where this one stopped."""
    total = k.times.shape[1]
    asynchronous = k.g[n.ASYNC] == 1
    in_flight = k.g[n.IN_FLIGHT] == 1
    now_s = k.f[n.CLOCK]
    while k.g[n.DONE] < total:
        if k.g[n.STEP] + k.g[n.PREEMPTIONS] >= k.g[n.MAX_STEPS] or k.g[n.LOG_FULL] == 1:
            return OUT_OF_STEPS
        if now_s >= k.f[n.PAUSE_AT]:
            k.g[n.IN_FLIGHT] = int(in_flight)
            k.f[n.CLOCK] = now_s
            return PAUSED
        if not in_flight:
            k.g[n.DRAINED] = k.g[n.STEP]
        empty = not _decide(k, now_s)
        done = k.g[n.DONE]
        if empty:
            if in_flight:
                _take_in(k, k.g[n.STEP] - 1)
                in_flight = False
                now_s = k.f[n.END]
            elif k.g[n.PREEMPTED_NOW] > 0:
                pass
            elif k.g[n.ARRIVED] < total:
                now_s = max(now_s, k.times[n.ARRIVAL, k.g[n.ARRIVED]])
            else:
                return STUCK
            continue
        _run_step(k, c, k.f[n.END] if in_flight else now_s)
        if not asynchronous:
            _take_in(k, k.g[n.STEP] - 1)
            now_s = k.f[n.END]
        else:
            if in_flight:
                _take_in(k, k.g[n.STEP] - 2)
            in_flight = True
            now_s = k.f[n.START]
        quiet_until_s = _alone_until(k, k.g[n.DONE] - done)
        if quiet_until_s > now_s:
            now_s = _decode_on(k, c, now_s, quiet_until_s)
    return FINISHED
