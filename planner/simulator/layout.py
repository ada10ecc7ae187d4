"""What the compiled loop keeps in memory: one tuple of arrays, and the names of their columns.

A running sequence has a row in `slots`; a request has an element in each of the arrays of all requests. A sequence that decodes
isn't touched in every step: its context in step d is BASE + d, so a step that all of them take costs the same for one as for a
thousand.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

# Columns of `slots`
REQUEST = 0
NEXT = 1  # running list, in admission order
PREVIOUS = 2
PHASE = 3
BASE = 4  # decoding: context in step d is BASE + d
LAST_STEP = 5  # step whose token is the sequence's last
RING_NEXT = 6  # others that end in the same step
RING_PREVIOUS = 7
COMPUTED = 8  # prefill: tokens in the cache
TARGET = 9  # prefill: tokens to compute before the next token can be sampled
BLOCKS = 10  # prefill: blocks held
CHUNK = 11  # prefill: tokens given in the step being decided
FIRST_STEP = 12  # step that ended the prefill
SKIPPED = 13  # last step that left this sequence out while it decoded
TAKEN = 14  # last step that gave a decoding sequence its token, where steps are taken one by one
BUCKET_NEXT = 15  # others that need a new block in the same steps
BUCKET_PREVIOUS = 16
SLOT_COLUMNS = 17

PREFILL = 0
DECODE = 1
ENDED = 2  # its last token is in flight: holds slot and blocks, gets no tokens

# Elements of `g`, the whole numbers of the loop
FREE = 0
RUNNING = 1
DECODING = 2
SUM_BASE = 3
STEP = 4
FIRST = 5
LAST = 6
PREFILLS = 7
ARRIVED = 8
ADMITTED = 9
STACKED = 10
HEAPED = 11
GHOSTS = 12  # preempted, but their last token is in flight: they wait in name only
DONE = 13
LINGERING = 14  # stopped in the step in flight, unknown to the scheduler: their next row is wasted
COMPLETED = 15  # prefills that end in the step being decided
LEFT_OUT = 16  # decoding sequences left out of the step being decided
WERE_LEFT_OUT = 17  # the same of the step before
FREE_SLOTS = 18
WINDOW_SUM = 19
WINDOW_BELOW = 20
PREEMPTED_NOW = 21
BUDGET = 22
WAIT_REASON = 23
SHOWN_ARRIVED = 24
# what the step being decided holds
CHUNK_TOKENS = 25
CHUNK_ROWS = 26
CHUNK_CONTEXT = 27
LATE_ROWS = 28
CUT = 29
# totals
PREEMPTIONS = 30
RECOMPUTED = 31
WASTED = 32
COMPUTED_TOTAL = 33
TOKENS_OUT = 34
HIT_TOKENS = 35
QUERY_TOKENS = 36
MAX_USED = 37
MAX_RUNNING = 38
# prefix cache
PLAIN = 39
FRESH = 40
IDLE_FIRST = 41
IDLE_LAST = 42
# step log
LOG_ROWS = 43
LOG_STEPS = 44
LOG_FULL = 45
BINS_USED = 46
GAP_BIN = 47
GAP_PENDING = 48
G_SIZE = 49

# Elements of `f`, the real numbers of the loop
NOW = 0
START = 1
END = 2
FLIGHT_END = 3
PAIRS = 4
WINDOW_PAIRS = 5
BUSY = 6
KV_INTEGRAL = 7
RUNNING_INTEGRAL = 8
GAP_SUM = 9
GAP_EDGE = 10
BIN_WIDTH = 11
BIN_END = 12
GAP_LOW = 13
REQUEUED = 14
F_SIZE = 15

# Elements of `options`
MAX_NUM_SEQS = 0
MAX_TOKENS = 1
BLOCK_SIZE = 2
NUM_BLOCKS = 3
MAX_LEN = 4  # 0: no bound
CACHING = 5
ASYNC = 6
PRIORITY = 7
WATERMARK = 8
WHOLE_SEQUENCE = 9
THRESHOLD = 10
FORESEEN = 11  # 1: the scheduler knows when a sequence ends
MAX_STEPS = 12
LOGGING = 13
HASH_TOKENS = 14
WINDOW = 15
OPTION_COUNT = 16

# Why the head of the queue waits
REASON_NONE = 0
REASON_SEQS = 1
REASON_TOKENS = 2
REASON_KV = 3
REASONS = 4

# What a step's time is spent on
BANDWIDTH = 0
COMPUTE = 1
COMMUNICATION = 2
LAUNCH = 3
HOST = 4
RESOURCES = 5

# Columns of `series`
SERIES_TIME = 0
SERIES_KV = 1
SERIES_RUNNING = 2
SERIES_STEPS = 3
SERIES_TOKENS = 4
SERIES_COLUMNS = 5

# Columns of `nodes`, one row for each block of the prefix cache
IDLE_NEXT = 0
IDLE_PREVIOUS = 1
REFERENCES = 2
SAME_NEXT = 3  # next block of the same content
MARK = 4
NODE_COLUMNS = 5
UNHASHED = 0
HASHED = 1
FINDABLE = 2

NONE = -1
EMPTY_KEY = np.iinfo(np.int64).min
POSITIONS = 1 << 20  # block positions that a key can tell apart in one request


class State(NamedTuple):
    """All arrays of one simulation; see the columns above.

    options, g, f : settings, whole numbers, real numbers
    slots, free_slots : running sequences, and rows that none uses
    prefills, completed, left_out : slots that prefill in admission order; that end their prefill now; that got no token now
    crossing, bucket : decoding sequences by the step, modulo block size, in which they need a new block: count, and first slot
    ring : first slot that ends in a step, by step modulo the ring's size
    leaves_window : sequences whose context reaches the window in a step, by step modulo the ring's size
    held_since : last token's time of slots that were left out [s]
    stack, heap : preempted requests that wait in front (fcfs); waiting keys (priority)
    arrival_s, prompt, output, rank : what each request asks; rank is its priority
    scheduled_s, first_s, finish_s, preempted, cached, produced : what became of each
    nodes, keys, table_keys, table_first, block_table, plain : prefix cache
    identities, offsets : content of the leading blocks of each request
    linear, head : step-time parts already computed, by scheduled and by sampled tokens [s]
    gaps : tokens by gap to the token before, in logarithmic bins
    bound : time by why the head waits and by what a step's time is spent on [s]
    series : sums by bin of time
    log_rows, log_steps, log_times : step log
    """

    options: Ints
    g: Ints
    f: Floats
    slots: Ints
    free_slots: Ints
    prefills: Ints
    completed: Ints
    left_out: Ints
    crossing: Ints
    bucket: Ints
    ring: Ints
    leaves_window: Ints
    held_since: Floats
    stack: Ints
    heap: Ints
    arrival_s: Floats
    prompt: Shorts
    output: Shorts
    rank: Shorts
    scheduled_s: Floats
    first_s: Floats
    finish_s: Floats
    preempted: Shorts
    cached: Shorts
    produced: Shorts
    nodes: Shorts
    keys: Ints
    table_keys: Ints
    table_first: Shorts
    block_table: Shorts
    plain: Shorts
    identities: Ints
    offsets: Ints
    linear: Floats
    head: Floats
    gaps: Ints
    bound: Floats
    series: Floats
    log_rows: Ints
    log_steps: Ints
    log_times: Floats
