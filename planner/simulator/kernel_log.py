"""Part of the compiled loop: what it writes down: the step log, gaps between tokens, sums over time."""

import math

from planner.simulator import layout as n
from planner.simulator.compiled import hot, part
from planner.simulator.layout import State

GAP_BINS_PER_OCTAVE = 1024
GAP_FIRST_OCTAVE = -24
GAP_OCTAVES = 48


@part
def log_row(k: State, request: int, tokens: int, context: int) -> None:
    """Write a row of the step being decided; tokens NONE says that the request was preempted."""
    row = k.g[n.LOG_ROWS]
    if row >= len(k.log_rows):
        k.g[n.LOG_FULL] = 1
        return
    k.log_rows[row, 0] = k.g[n.LOG_STEPS]
    k.log_rows[row, 1] = request
    k.log_rows[row, 2] = tokens
    k.log_rows[row, 3] = context
    k.g[n.LOG_ROWS] += 1


@part
def log_decoding(k: State) -> None:
    """Write a row for each sequence that decodes in the step being decided."""
    slot = k.g[n.FIRST]
    while slot != n.NONE:
        if k.slots[slot, n.PHASE] == n.DECODE and k.slots[slot, n.SKIPPED] != k.g[n.STEP]:
            log_row(k, k.slots[slot, n.REQUEST], 1, k.slots[slot, n.BASE] + k.g[n.STEP])
        slot = k.slots[slot, n.NEXT]


@part
def log_step(k: State, num_waiting: int) -> None:
    """Write the step that was decided, with its times."""
    step = k.g[n.LOG_STEPS]
    if step >= len(k.log_steps):
        k.g[n.LOG_FULL] = 1
        return
    k.log_steps[step, 0] = k.g[n.LOG_ROWS]
    k.log_steps[step, 1] = k.options[n.NUM_BLOCKS] - k.g[n.FREE]
    k.log_steps[step, 2] = k.g[n.RUNNING]
    k.log_steps[step, 3] = num_waiting
    k.log_times[step, 0] = k.f[n.NOW]
    k.log_times[step, 1] = k.f[n.START]
    k.log_times[step, 2] = k.f[n.END] - k.f[n.START]
    k.g[n.LOG_STEPS] += 1


@hot
def add_gap(k: State, gap_s: float, tokens: int) -> None:
    """Count tokens by the time since the token before."""
    if not k.f[n.GAP_LOW] <= gap_s < k.f[n.GAP_EDGE]:
        _find_gap_bin(k, gap_s)
    k.gaps[k.g[n.GAP_BIN]] += tokens
    k.f[n.GAP_SUM] += gap_s * tokens


@part
def _find_gap_bin(k: State, gap_s: float) -> None:
    mantissa, octave = math.frexp(gap_s)
    within = int((mantissa - 0.5) * (2 * GAP_BINS_PER_OCTAVE))
    place = (octave - GAP_FIRST_OCTAVE) * GAP_BINS_PER_OCTAVE + within
    k.g[n.GAP_BIN] = min(max(place, 0), GAP_OCTAVES * GAP_BINS_PER_OCTAVE - 1)
    k.f[n.GAP_LOW] = math.ldexp(0.5 + within / (2 * GAP_BINS_PER_OCTAVE), octave)
    k.f[n.GAP_EDGE] = math.ldexp(0.5 + (within + 1) / (2 * GAP_BINS_PER_OCTAVE), octave)


@hot
def account(k: State, duration_s: float, resource: int, tokens: int) -> None:
    """Add a step to the sums over time."""
    used = k.options[n.NUM_BLOCKS] - k.g[n.FREE]
    k.f[n.BUSY] += duration_s
    k.f[n.KV_INTEGRAL] += used * duration_s
    k.f[n.RUNNING_INTEGRAL] += k.g[n.RUNNING] * duration_s
    k.g[n.COMPUTED_TOTAL] += tokens
    k.g[n.MAX_USED] = max(k.g[n.MAX_USED], used)
    k.g[n.MAX_RUNNING] = max(k.g[n.MAX_RUNNING], k.g[n.RUNNING])
    k.bound[k.g[n.WAIT_REASON], resource] += duration_s
    if k.f[n.START] >= k.f[n.BIN_END]:
        _find_time_bin(k)
    place = k.g[n.BINS_USED]
    k.series[place, n.SERIES_TIME] += duration_s
    k.series[place, n.SERIES_KV] += used * duration_s
    k.series[place, n.SERIES_RUNNING] += k.g[n.RUNNING] * duration_s
    k.series[place, n.SERIES_STEPS] += 1.0
    k.series[place, n.SERIES_TOKENS] += tokens


@part
def _find_time_bin(k: State) -> None:
    """Move to the bin of the step's start; past the last bin, join bins in pairs so that twice the time fits."""
    bins = len(k.series)
    while k.f[n.START] >= bins * k.f[n.BIN_WIDTH]:
        for place in range(bins // 2):
            for column in range(n.SERIES_COLUMNS):
                k.series[place, column] = k.series[2 * place, column] + k.series[2 * place + 1, column]
        k.series[bins // 2 :] = 0.0
        k.f[n.BIN_WIDTH] *= 2.0
    k.g[n.BINS_USED] = min(int(k.f[n.START] / k.f[n.BIN_WIDTH]), bins - 1)
    k.f[n.BIN_END] = (k.g[n.BINS_USED] + 1) * k.f[n.BIN_WIDTH]
