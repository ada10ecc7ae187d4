"""Part of the compiled loop: what it writes down: the step log, gaps between tokens, sums over time."""

import math
from typing import NamedTuple

from planner.simulator import layout as n
from planner.simulator.compiled import hot, part
from planner.simulator.layout import Floats, Ints, Record, State

GAP_BINS_PER_OCTAVE = 1024
GAP_FIRST_OCTAVE = -24
GAP_OCTAVES = 48


@part
def log_row(g: Ints, record: Record, request: int, tokens: int, context: int) -> None:
    """Write a row of the step being decided; tokens NONE says that the request was preempted."""
    row = g[n.LOG_ROWS]
    if row >= len(record.log_rows):
        g[n.LOG_FULL] = 1
        return
    record.log_rows[row, 0] = g[n.LOG_STEPS]
    record.log_rows[row, 1] = request
    record.log_rows[row, 2] = tokens
    record.log_rows[row, 3] = context
    g[n.LOG_ROWS] += 1


@part
def log_decoding(k: State) -> None:
    """Write a row for each sequence that decodes in the step being decided."""
    slot = k.g[n.FIRST]
    while slot != n.NONE:
        if k.slots[slot, n.PHASE] == n.DECODE:
            log_row(k.g, k.record, k.slots[slot, n.REQUEST], 1, k.slots[slot, n.BASE] + k.g[n.STEP])
        slot = k.slots[slot, n.NEXT]


@part
def log_step(g: Ints, f: Floats, record: Record, num_waiting: int) -> None:
    """Write the step that was decided, with its times."""
    step = g[n.LOG_STEPS]
    if step >= len(record.log_steps):
        g[n.LOG_FULL] = 1
        return
    record.log_steps[step, 0] = g[n.LOG_ROWS]
    record.log_steps[step, 1] = g[n.NUM_BLOCKS] - g[n.FREE]
    record.log_steps[step, 2] = g[n.RUNNING]
    record.log_steps[step, 3] = num_waiting
    record.log_times[step, 0] = f[n.NOW]
    record.log_times[step, 1] = f[n.START]
    record.log_times[step, 2] = f[n.END] - f[n.START]
    g[n.LOG_STEPS] += 1


class Steps(NamedTuple):
    """Steps in a row that go into the same sums.

    number : how many [step]; tokens : computed in each [token]; time_s : from the first one's start to the last one's end [s]
    block_s : KV blocks in use times time [block s]
    """

    number: int
    tokens: int
    time_s: float
    block_s: float


@hot
def find_bins(g: Ints, f: Floats, record: Record, start_s: float, gap_s: float) -> None:
    """Move to the bins of a time and of a gap between tokens."""
    if start_s >= f[n.BIN_END]:
        _find_time_bin(g, f, record, start_s)
    if not f[n.GAP_LOW] <= gap_s < f[n.GAP_EDGE]:
        _find_gap_bin(g, f, gap_s)


@hot
def add_gap(g: Ints, f: Floats, record: Record, gap_s: float) -> None:
    """Count one token by the time since the token before."""
    if not f[n.GAP_LOW] <= gap_s < f[n.GAP_EDGE]:
        _find_gap_bin(g, f, gap_s)
    add_gaps(g, f, record, 1, gap_s)


@hot
def add_gaps(g: Ints, f: Floats, record: Record, tokens: int, sum_s: float) -> None:
    """Count tokens whose gaps lie in the bin that was found; sum_s : of all these gaps [s]."""
    record.gaps[g[n.GAP_BIN]] += tokens
    f[n.GAP_SUM] += sum_s


@part
def _find_gap_bin(g: Ints, f: Floats, gap_s: float) -> None:
    mantissa, octave = math.frexp(gap_s)
    within = int((mantissa - 0.5) * (2 * GAP_BINS_PER_OCTAVE))
    place = (octave - GAP_FIRST_OCTAVE) * GAP_BINS_PER_OCTAVE + within
    g[n.GAP_BIN] = min(max(place, 0), GAP_OCTAVES * GAP_BINS_PER_OCTAVE - 1)
    f[n.GAP_LOW] = math.ldexp(0.5 + within / (2 * GAP_BINS_PER_OCTAVE), octave)
    f[n.GAP_EDGE] = math.ldexp(0.5 + (within + 1) / (2 * GAP_BINS_PER_OCTAVE), octave)


@hot
def account(g: Ints, f: Floats, record: Record, steps: Steps, resource: int) -> None:
    """Add steps to the sums over time, in the bin that was found; the last of them holds the most KV blocks."""
    f[n.BUSY] += steps.time_s
    f[n.KV_INTEGRAL] += steps.block_s
    f[n.RUNNING_INTEGRAL] += g[n.RUNNING] * steps.time_s
    g[n.COMPUTED_TOTAL] += steps.number * steps.tokens
    g[n.MAX_USED] = max(g[n.MAX_USED], g[n.NUM_BLOCKS] - g[n.FREE])
    g[n.MAX_RUNNING] = max(g[n.MAX_RUNNING], g[n.RUNNING])
    place = g[n.BINS_USED]
    record.series[place, n.SERIES_TIME] += steps.time_s
    record.series[place, n.SERIES_KV] += steps.block_s
    record.series[place, n.SERIES_RUNNING] += g[n.RUNNING] * steps.time_s
    record.series[place, n.SERIES_STEPS] += steps.number
    record.series[place, n.SERIES_TOKENS] += steps.number * steps.tokens
    record.series[place, n.SERIES_BOUND + g[n.WAIT_REASON] * n.RESOURCES + resource] += steps.time_s


@hot
def note_longest(f: Floats, start_s: float, duration_s: float) -> None:
    """Remember the longest step, the first of those that are equal."""
    if duration_s > f[n.LONGEST]:
        f[n.LONGEST] = duration_s
        f[n.LONGEST_AT] = start_s


@part
def _find_time_bin(g: Ints, f: Floats, record: Record, start_s: float) -> None:
    """Move to the bin of a time; past the last bin, join bins in pairs so that twice the time fits."""
    bins = len(record.series)
    while start_s >= bins * f[n.BIN_WIDTH]:
        for place in range(bins // 2):
            for column in range(n.SERIES_COLUMNS):
                record.series[place, column] = record.series[2 * place, column] + record.series[2 * place + 1, column]
        record.series[bins // 2 :] = 0.0
        f[n.BIN_WIDTH] *= 2.0
    g[n.BINS_USED] = min(int(start_s / f[n.BIN_WIDTH]), bins - 1)
    f[n.BIN_END] = (g[n.BINS_USED] + 1) * f[n.BIN_WIDTH]
