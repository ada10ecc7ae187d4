"""A user's rows → a Workload that a scenario can name."""

import numpy as np
import pandas as pd

from planner.errors import InputError
from planner.provenance import Source
from planner.units import DAY_S, HOUR_S, MINUTE_S
from planner.workloads.arrivals import Arrivals, PoissonArrivals, TraceArrivals
from planner.workloads.catalogue import register_workload
from planner.workloads.importers.cleaning import BadRows
from planner.workloads.importers.rows import ColumnMap, import_rows
from planner.workloads.laws import Floats
from planner.workloads.lengths import RowsLengths
from planner.workloads.prefix import PrefixHitCurve, prefix_hit_curve
from planner.workloads.trace import Trace, register_trace
from planner.workloads.workload import MAX_PEAK_FACTOR, ExpectedMeans, Workload

_FEWEST_ARRIVALS = 100
_CACHE_BLOCKS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)
_MOST_HASHES_FOR_CURVE = 1_000_000


def workload_from_rows(
    data: bytes | pd.DataFrame, name: str, *, columns: ColumnMap | None = None, bad_rows: BadRows = "refuse"
) -> Workload:
    """Return a Workload from a user's requests and keep it in this process under its id; arguments as `import_rows`."""
    return workload_from_trace(import_rows(data, name, columns=columns, bad_rows=bad_rows).trace)


def workload_from_trace(trace: Trace) -> Workload:
    """Return the Workload of a user's trace and keep both in this process, so that a scenario can name it.

    Rows are drawn whole. Recorded times are used when there are at least 100; rows with block hashes are replayed in order. The
    peak factor is measured when the trace spans a day or more, else it is None and must be asked.
    """
    timed = trace.arrival_s is not None and len(trace) >= _FEWEST_ARRIVALS and trace.arrival_s[-1] > 0
    in_order = trace.block_hashes is not None
    arrivals: Arrivals = PoissonArrivals()
    if timed:
        arrivals = TraceArrivals(trace=trace.meta.id, window="first" if in_order else "random")
    hour, minute = measured_peaks(trace.arrival_s) if timed and trace.arrival_s is not None else (None, None)
    if hour is not None and hour > MAX_PEAK_FACTOR:
        raise InputError(
            "arrival",
            f"a busiest hour of {hour:,.0f} times the mean",
            f"must be at most {MAX_PEAK_FACTOR} times",
            "Give one stretch of traffic without such gaps, or leave the times out",
        )
    register_trace(trace)
    workload = Workload(
        id=trace.meta.id,
        name=trace.meta.name,
        description=trace.meta.description,
        lengths=RowsLengths(trace=trace.meta.id, draw="in_order" if in_order else "bootstrap"),
        arrivals=arrivals,
        expected_means=ExpectedMeans(
            prompt_mean_tokens=float(trace.prompt_tokens.mean()), output_mean_tokens=float(trace.output_tokens.mean())
        ),
        peak_factor=hour,
        peak_minute_factor=minute,
        prefix_hits=_measured_hits(trace),
        licence=trace.meta.licence,
        sources={"*": trace.meta.source},
    )
    register_workload(workload)
    return workload


def measured_peaks(arrival_s: Floats) -> tuple[float | None, float | None]:
    """Return busiest hour ÷ mean and busiest minute ÷ mean of a trace of a day or more; (None, None) for a shorter one [1].

    Only whole hours (minutes) from the first arrival count.
    """
    if arrival_s[-1] - arrival_s[0] < DAY_S:
        return None, None

    def peak(width_s: float) -> float:
        whole = int((arrival_s[-1] - arrival_s[0]) // width_s)
        counts = np.bincount(((arrival_s - arrival_s[0]) // width_s).astype(np.int64))[:whole]
        return float(counts.max() / counts.mean())

    return round(peak(HOUR_S), 4), round(peak(MINUTE_S), 4)


def _measured_hits(trace: Trace) -> PrefixHitCurve | None:
    hashes = trace.block_hashes
    if hashes is None or not 0 < len(hashes.flat) <= _MOST_HASHES_FOR_CURVE:
        return None
    source = Source(kind="fitted", ref="LRU replay of the block identities in the user's rows", confidence="high")
    return prefix_hit_curve(hashes, trace.prompt_tokens, _CACHE_BLOCKS, source)
