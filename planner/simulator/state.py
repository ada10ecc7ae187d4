"""Lays out the arrays of one simulation before the compiled loop runs."""

from typing import NamedTuple

import numpy as np

from planner.simulator import layout as n
from planner.simulator.kernel_log import GAP_BINS_PER_OCTAVE, GAP_OCTAVES
from planner.simulator.layout import Cache, Floats, Ints, Record, Shorts, State
from planner.simulator.limits import EngineLimits, Stop

SERIES_BINS = 512
_LEAST_BIN_S = 1e-3
_STEPS_PER_TOKEN = 4
_SPARE_STEPS = 1000


class Queue(NamedTuple):
    """The requests that the engine accepts, in order of arrival.

    known_hit : prompt tokens, in whole blocks, that the prefix cache is said to hold for certain [token]
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
    known_hit: Shorts


class LogSize(NamedTuple):
    """Room for the step log, and what goes into it: at most `most_steps` steps, 0 for none, decided from `from_s` on."""

    rows: int = 0
    steps: int = 0
    most_steps: int = 0
    from_s: float = 0.0


def build_state(queue: Queue, limits: EngineLimits, stop: Stop, window_tokens: int, log: LogSize) -> State:
    """Return the arrays of an engine that has served nothing yet."""
    count = len(queue.arrival_s)
    seqs = min(limits.max_num_seqs, max(count, 1))
    ring = _power_of_two(int(queue.output.max(initial=1)) + 8)
    return State(
        g=_numbers(queue, limits, stop, window_tokens, log),
        f=_times(queue, log),
        slots=np.full((seqs, n.SLOT_COLUMNS), n.NONE, np.int64),
        since=np.zeros(seqs),
        lists=_lists(seqs),
        residues=np.stack([np.zeros(limits.block_size, np.int64), np.full(limits.block_size, n.NONE, np.int64)]),
        ring=np.stack([np.full(ring, n.NONE, np.int64), np.zeros(ring, np.int64)]),
        asked=_asked(queue),
        times=np.stack([queue.arrival_s, *(np.full(count, np.nan) for _ in range(n.TIME_ROWS - 1))]),
        heap=np.zeros(count if limits.policy == "priority" else 1, np.int64),
        memo=np.full((n.MEMO_ROWS, limits.max_num_batched_tokens + 1), np.nan),
        cache=_cache(queue, limits, seqs),
        record=Record(
            gaps=np.zeros(GAP_BINS_PER_OCTAVE * GAP_OCTAVES, np.int64),
            series=np.zeros((SERIES_BINS, n.SERIES_COLUMNS)),
            log_rows=np.zeros((log.rows, 4), np.int64),
            log_steps=np.zeros((log.steps, 4), np.int64),
            log_times=np.zeros((log.steps, 3)),
        ),
    )


def _lists(seqs: int) -> Ints:
    lists = np.zeros((n.LISTS, seqs + 1), np.int64)
    lists[n.FREE_LIST, :seqs] = np.arange(seqs)[::-1]
    return lists


def _asked(queue: Queue) -> Shorts:
    asked = np.zeros((n.ASKED_ROWS, len(queue.prompt)), np.int32)
    asked[n.PROMPT] = queue.prompt
    asked[n.OUTPUT] = queue.output
    asked[n.RANK] = queue.rank
    asked[n.CACHED] = n.NONE
    asked[n.KNOWN_HIT] = queue.known_hit
    return asked


def _cache(queue: Queue, limits: EngineLimits, seqs: int) -> Cache:
    """Return an empty prefix cache; the smallest possible one when the engine has none."""
    blocks = limits.num_blocks if limits.enable_prefix_caching else 1
    longest = int((queue.prompt.astype(np.int64) + queue.output).max(initial=1))
    table = np.zeros((_power_of_two(2 * blocks), 2), np.int64)
    table[:, n.TABLE_KEY] = n.EMPTY_KEY
    return Cache(
        nodes=np.zeros((blocks, n.NODE_COLUMNS), np.int64),
        table=table,
        blocks=np.zeros((seqs, longest // limits.block_size + 2) if limits.enable_prefix_caching else (1, 1), np.int32),
        identities=queue.identities,
        offsets=queue.offsets,
    )


def _times(queue: Queue, log: LogSize) -> Floats:
    f = np.zeros(n.F_SIZE)
    f[n.LOG_FROM] = log.from_s
    f[n.PAUSE_AT] = np.inf
    last_s = float(queue.arrival_s[-1]) if len(queue.arrival_s) else 0.0
    f[n.BIN_WIDTH] = f[n.BIN_END] = max(last_s / (SERIES_BINS // 2), _LEAST_BIN_S)
    return f


def _numbers(queue: Queue, limits: EngineLimits, stop: Stop, window_tokens: int, log: LogSize) -> Ints:
    g = np.zeros(n.G_SIZE, np.int64)
    g[n.MAX_NUM_SEQS] = min(limits.max_num_seqs, max(len(queue.arrival_s), 1))
    g[n.MAX_TOKENS] = limits.max_num_batched_tokens
    g[n.BLOCK_SIZE] = limits.block_size
    g[n.NUM_BLOCKS] = limits.num_blocks
    g[n.MAX_LEN] = 0 if limits.max_model_len is None else limits.max_model_len
    g[n.CACHING] = limits.enable_prefix_caching
    g[n.ASYNC] = limits.async_scheduling
    g[n.PRIORITY] = limits.policy == "priority"
    g[n.WATERMARK] = limits.watermark_blocks
    g[n.WHOLE_SEQUENCE] = limits.scheduler_reserve_full_isl
    g[n.THRESHOLD] = limits.long_prefill_token_threshold
    g[n.FORESEEN] = stop == "length"
    g[n.LOG_MOST] = log.most_steps
    g[n.HASH_TOKENS] = queue.hash_tokens
    g[n.WINDOW] = window_tokens
    g[n.MAX_STEPS] = _max_steps(queue)
    g[n.FREE] = limits.num_blocks
    g[[n.FIRST, n.LAST, n.IDLE_FIRST, n.IDLE_LAST]] = n.NONE
    g[n.FREE_SLOTS] = g[n.MAX_NUM_SEQS]
    return g


def _max_steps(queue: Queue) -> int:
    """Bound the steps: several times what all tokens would take one by one; only an engine that thrashes for good needs more."""
    tokens = int(queue.prompt.sum(dtype=np.int64) + queue.output.sum(dtype=np.int64))
    return _STEPS_PER_TOKEN * tokens + _SPARE_STEPS


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()
