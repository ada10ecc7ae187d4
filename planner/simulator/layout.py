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
ORDER = 17  # rises with each admission: the order of the running list
SLOT_COLUMNS = 18

PREFILL = 0
DECODE = 1
ENDED = 2  # its last token is in flight: holds slot and blocks, gets no tokens
LEFT = 3  # decodes, but not in the step being decided

# Elements of `g`, the whole numbers of the loop: first the settings
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
LOGGING = 13  # 1: the step being decided is logged
HASH_TOKENS = 14
WINDOW = 15
# then its state
FREE = 16
RUNNING = 17
DECODING = 18
SUM_BASE = 19
STEP = 20
FIRST = 21
LAST = 22
PREFILLS = 23
ARRIVED = 24
ADMITTED = 25
STACKED = 26
HEAPED = 27
GHOSTS = 28  # preempted, but their last token is in flight: they wait in name only
DONE = 29
LINGERING = 30  # stopped in the step in flight, unknown to the scheduler: their next row is wasted
COMPLETED = 31  # prefills that end in the step being decided
LEFT_OUT = 32  # decoding sequences left out of the step being decided
WERE_LEFT_OUT = 33  # the same of the step before
FREE_SLOTS = 34
WINDOW_SUM = 35
WINDOW_BELOW = 36
PREEMPTED_NOW = 37
BUDGET = 38
WAIT_REASON = 39
# what the step being decided holds
CHUNK_TOKENS = 40
CHUNK_ROWS = 41
CHUNK_CONTEXT = 42
LATE_ROWS = 43
ADMISSIONS = 44  # number of the latest
# totals
PREEMPTIONS = 45
RECOMPUTED = 46
WASTED = 47
COMPUTED_TOTAL = 48
TOKENS_OUT = 49
HIT_TOKENS = 50
QUERY_TOKENS = 51
MAX_USED = 52
MAX_RUNNING = 53
# prefix cache
PLAIN = 54
FRESH = 55
IDLE_FIRST = 56
IDLE_LAST = 57
# step log
LOG_ROWS = 58
LOG_STEPS = 59
LOG_FULL = 60
BINS_USED = 61
GAP_BIN = 62
DRAINED = 63  # last step decided with none in flight
LOG_MOST = 64  # steps that the log may hold; 0: none are wanted
IN_FLIGHT = 65  # where the loop pauses: 1 while a step is in flight
G_SIZE = 66

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
DURATION = 15
LOG_FROM = 16  # the log begins with the first step decided then or later
LONGEST = 17
LONGEST_AT = 18
CLOCK = 19  # where the loop pauses: time of the next decision
PAUSE_AT = 20  # the loop pauses before the first decision then or later
F_SIZE = 21

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
SERIES_BOUND = 5  # the first of REASONS * RESOURCES columns
SERIES_COLUMNS = SERIES_BOUND + REASONS * RESOURCES

# Columns of `nodes`, one row for each block of the prefix cache
IDLE_NEXT = 0
IDLE_PREVIOUS = 1
REFERENCES = 2
SAME_NEXT = 3  # next block of the same content
MARK = 4
KEY = 5
PLAIN_STACK = 6
NODE_COLUMNS = 7
UNHASHED = 0
HASHED = 1
FINDABLE = 2

# Columns of `table`
TABLE_KEY = 0
TABLE_FIRST = 1

# Rows of `lists`
FREE_LIST = 0
PREFILL_LIST = 1
COMPLETED_LIST = 2
LEFT_OUT_LIST = 3
STACK_LIST = 4
LISTS = 5

# Rows of `residues`: by step modulo block size
CROSSING = 0  # decoding sequences that need a new block
BUCKET = 1  # the first of them

# Rows of `ring`: by step modulo the ring's size
ENDING = 0  # first slot that ends
LEAVING = 1  # sequences whose context reaches the window

# Rows of `asked`
PROMPT = 0
OUTPUT = 1
RANK = 2
PREEMPTED = 3
CACHED = 4
PRODUCED = 5  # tokens brought before the latest preemption; all of them once the request has ended
KNOWN_HIT = 6  # prompt tokens that the prefix cache is said to hold, whole blocks
ASKED_ROWS = 7

# Rows of `times`
ARRIVAL = 0
SCHEDULED = 1
FIRST_TOKEN = 2
FINISH = 3
TIME_ROWS = 4

# Rows of `memo`
LINEAR = 0
COMPUTE_BOUND = 1
HEAD = 2
MEMO_ROWS = 3

NONE = -1
EMPTY_KEY = np.iinfo(np.int64).min
POSITIONS = 1 << 20  # block positions that a key can tell apart in one request


class Cache(NamedTuple):
    """The prefix cache.

    nodes : one row for each block
    table : hash table from content to the first block that holds it
    blocks : blocks of each slot, by position
    identities, offsets : content of the leading blocks of each request
    """

    nodes: Ints
    table: Ints
    blocks: Shorts
    identities: Ints
    offsets: Ints


class Record(NamedTuple):
    """What the loop writes down and never reads.

    gaps : tokens by gap to the token before, in logarithmic bins
    series : sums by bin of time
    log_rows, log_steps, log_times : step log
    """

    gaps: Ints
    series: Floats
    log_rows: Ints
    log_steps: Ints
    log_times: Floats


class State(NamedTuple):
    """All arrays of one simulation; see the columns above.

    g, f : settings and whole numbers, real numbers
    slots : running sequences, one row each
    since : last token's time of slots that were left out [s]
    lists : slots that are free, that prefill (in admission order), that end their prefill now, that got no token now; preempted
        requests that wait in front
    residues, ring : sequences by the steps in which something happens to them
    asked, times : requests, in order of arrival
    heap : requests that wait under the priority policy
    memo : step-time parts already computed, by scheduled and by sampled tokens [s]
    """

    g: Ints
    f: Floats
    slots: Ints
    since: Floats
    lists: Ints
    residues: Ints
    ring: Ints
    asked: Shorts
    times: Floats
    heap: Ints
    memo: Floats
    cache: Cache
    record: Record
