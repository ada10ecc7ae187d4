"""Lays out the arrays of one simulation before the compiled loop runs."""

from typing import NamedTuple

import numpy as np

from planner.simulator import layout as n
from planner.simulator.kernel_log import GAP_BINS_PER_OCTAVE, GAP_OCTAVES
from planner.simulator.layout import Floats, Ints, Shorts, State
from planner.simulator.limits import EngineLimits, Stop

SERIES_BINS = 512
_STEPS_PER_TOKEN = 4
_SPARE_STEPS = 1000


class Queue(NamedTuple):
    """The requests that the engine accepts, in order of arrival.

    identities, offsets, hash_tokens : content of the leading tokens: request i owns identities[offsets[i] : offsets[i + 1]], each
        of which stands for hash_tokens tokens and all before them
    """

    arrival_s: Floats
    prompt: Shorts
    output: Shorts
    rank: Shorts
    identities: Ints
    offsets: Ints
    hash_tokens: int


class LogSize(NamedTuple):
    """Room for the step log; 0 rows turn it off."""

    rows: int = 0
    steps: int = 0


def build_state(queue: Queue, limits: EngineLimits, stop: Stop, window_tokens: int, log: LogSize) -> State:
    """Return the arrays of an engine that has served nothing yet."""
    count = len(queue.arrival_s)
    seqs = min(limits.max_num_seqs, max(count, 1))
    longest = int((queue.prompt.astype(np.int64) + queue.output).max(initial=1))
    blocks = limits.num_blocks if limits.enable_prefix_caching else 1
    ring = _power_of_two(int(queue.output.max(initial=1)) + 4)
    bins = max(count and float(queue.arrival_s[-1]) / (SERIES_BINS // 2), 1e-3)
    options = _options(queue, limits, stop, window_tokens, log)
    options[n.MAX_STEPS] = _max_steps(queue)
    g = np.zeros(n.G_SIZE, np.int64)
    g[n.FREE] = limits.num_blocks
    g[[n.FIRST, n.LAST, n.IDLE_FIRST, n.IDLE_LAST]] = n.NONE
    g[n.FREE_SLOTS] = seqs
    f = np.zeros(n.F_SIZE)
    f[n.BIN_WIDTH] = f[n.BIN_END] = bins
    return State(
        options=options,
        g=g,
        f=f,
        slots=np.full((seqs, n.SLOT_COLUMNS), n.NONE, np.int64),
        free_slots=np.arange(seqs, dtype=np.int64)[::-1].copy(),
        prefills=np.zeros(seqs, np.int64),
        completed=np.zeros(seqs, np.int64),
        left_out=np.zeros(seqs, np.int64),
        crossing=np.zeros(limits.block_size, np.int64),
        bucket=np.full(limits.block_size, n.NONE, np.int64),
        ring=np.full(ring, n.NONE, np.int64),
        leaves_window=np.zeros(ring if window_tokens else 1, np.int64),
        held_since=np.zeros(seqs),
        stack=np.zeros(seqs + 1, np.int64),
        heap=np.zeros(count if limits.policy == "priority" else 1, np.int64),
        arrival_s=queue.arrival_s,
        prompt=queue.prompt,
        output=queue.output,
        rank=queue.rank,
        scheduled_s=np.full(count, np.nan),
        first_s=np.full(count, np.nan),
        finish_s=np.full(count, np.nan),
        preempted=np.zeros(count, np.int32),
        cached=np.full(count, n.NONE, np.int32),
        produced=np.zeros(count, np.int32),
        nodes=np.full((blocks, n.NODE_COLUMNS), 0, np.int32),
        keys=np.zeros(blocks, np.int64),
        table_keys=np.full(_power_of_two(2 * blocks), n.EMPTY_KEY, np.int64),
        table_first=np.zeros(_power_of_two(2 * blocks), np.int32),
        block_table=np.zeros((seqs, longest // limits.block_size + 2) if limits.enable_prefix_caching else (1, 1), np.int32),
        plain=np.zeros(blocks, np.int32),
        identities=queue.identities,
        offsets=queue.offsets,
        linear=np.full((limits.max_num_batched_tokens + 1, 2), np.nan),
        head=np.full(limits.max_num_batched_tokens + 1, np.nan),
        gaps=np.zeros(GAP_BINS_PER_OCTAVE * GAP_OCTAVES, np.int64),
        bound=np.zeros((n.REASONS, n.RESOURCES)),
        series=np.zeros((SERIES_BINS, n.SERIES_COLUMNS)),
        log_rows=np.zeros((log.rows, 4), np.int64),
        log_steps=np.zeros((log.steps, 4), np.int64),
        log_times=np.zeros((log.steps, 3)),
    )


def _options(queue: Queue, limits: EngineLimits, stop: Stop, window_tokens: int, log: LogSize) -> Ints:
    options = np.zeros(n.OPTION_COUNT, np.int64)
    options[n.MAX_NUM_SEQS] = min(limits.max_num_seqs, max(len(queue.arrival_s), 1))
    options[n.MAX_TOKENS] = limits.max_num_batched_tokens
    options[n.BLOCK_SIZE] = limits.block_size
    options[n.NUM_BLOCKS] = limits.num_blocks
    options[n.MAX_LEN] = 0 if limits.max_model_len is None else limits.max_model_len
    options[n.CACHING] = limits.enable_prefix_caching
    options[n.ASYNC] = limits.async_scheduling
    options[n.PRIORITY] = limits.policy == "priority"
    options[n.WATERMARK] = limits.watermark_blocks
    options[n.WHOLE_SEQUENCE] = limits.scheduler_reserve_full_isl
    options[n.THRESHOLD] = limits.long_prefill_token_threshold
    options[n.FORESEEN] = stop == "length"
    options[n.LOGGING] = log.rows > 0
    options[n.HASH_TOKENS] = queue.hash_tokens
    options[n.WINDOW] = window_tokens
    return options


def _max_steps(queue: Queue) -> int:
    """Bound the steps: several times what all tokens would take one by one; only an engine that thrashes for good needs more."""
    tokens = int(queue.prompt.sum(dtype=np.int64) + queue.output.sum(dtype=np.int64))
    return _STEPS_PER_TOKEN * tokens + _SPARE_STEPS


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()
