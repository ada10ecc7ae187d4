"""How far equal runs lie apart: what no prediction from GPU, model, settings and rate can do better than.

    python -m planner.accuracy.repeats mlperf.csv

Rows of one table that state the same GPUs, model, layout, weights and load, with rates within 3 %, are repeats. A prediction that
depends on these alone is one figure for all of them; the best is their middle.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner.accuracy.compare import stated
from planner.calibration.measurement_tables import read_measurements
from planner.calibration.measurements import Measurement, Row
from planner.errors import InputError

SAME_RATE = 1.03
WITHIN = 0.25
_ALIKE = ("gpu", "gpu_count", "engine", "model", "weight_dtype", "tp", "pp", "scenario", "length_kind", "concurrency")


class Agreement(NamedTuple):
    """Repeats of one model, and how many lie within a quarter of the middle of their own group by a metric."""

    model: str
    metric: str
    groups: int
    rows: int
    within: int

    @property
    def share(self) -> float:
        """Return the share of repeats that their own middle meets [1]."""
        return self.within / self.rows


def repeats(rows: Iterable[Row]) -> Iterator[tuple[Measurement, ...]]:
    """Yield groups of two or more equal runs, each within 3 % of the rate of the one before."""
    alike: dict[tuple[object, ...], list[Measurement]] = {}
    for row in rows:
        if isinstance(row, Measurement):
            alike.setdefault(tuple(getattr(row, name) for name in _ALIKE), []).append(row)
    for members in alike.values():
        chain: list[Measurement] = []
        for row in sorted(members, key=lambda each: each.rate_rps or 0.0):
            if chain and (row.rate_rps or 0.0) > SAME_RATE * (chain[-1].rate_rps or 0.0):
                if len(chain) > 1:
                    yield tuple(chain)
                chain = []
            chain.append(row)
        if len(chain) > 1:
            yield tuple(chain)


def agreement(rows: Sequence[Row], metric: str) -> tuple[Agreement, ...]:
    """Return how far repeats agree by model, the worst first; metric : as in an accuracy report, such as "ttft_tail"."""
    counts: dict[str, list[int]] = {}
    for group in repeats(rows):
        figures = np.array([found[metric] for row in group if metric in (found := stated(row))])
        if len(figures) < 2:
            continue
        middle = float(np.exp(np.median(np.log(figures))))
        held = int(np.sum(np.abs(middle / figures - 1.0) <= WITHIN))
        own = counts.setdefault(group[0].model, [0, 0, 0])
        for place, more in enumerate((1, len(figures), held)):
            own[place] += more
    found_all = (Agreement(model, metric, *numbers) for model, numbers in counts.items())
    return tuple(sorted(found_all, key=lambda one: (one.share, one.model)))


def main(arguments: list[str] | None = None) -> int:
    """Print how far the repeats of a table agree; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m planner.accuracy.repeats", description=main.__doc__)
    parser.add_argument("file", type=Path, help="CSV of measured results")
    parser.add_argument("--metric", default="ttft_tail", help="tpot, ttft, throughput, ttft_p99, tpot_tail, ttft_tail, …")
    options = parser.parse_args(arguments)
    try:
        found = agreement(read_measurements(options.file), options.metric)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for one in found:
        sys.stdout.write(
            f"{one.model:32} {one.rows:4} repeats in {one.groups:3} groups: {one.within} within a quarter of their middle\n"
        )
    if not found:
        sys.stdout.write(f"no two rows are alike and state {options.metric}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
