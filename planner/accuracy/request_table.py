"""Checks tables of single requests: each run is replayed with its own arrivals and lengths."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.calibration.measurements import Row, Unreadable, checked, number, read_table

_COLUMNS = {"run", "model", "gpu", "tp", "arrival_s", "prompt", "output", "first_token_s", "last_token_s"}
_TIMES = ("arrival_s", "first_token_s", "last_token_s")
_ENGINE = ("vLLM", "0.19.0")

Cells = Mapping[str, str]


class RecordedRun(NamedTuple):
    """One run of a table: what it measured on the whole, and its requests in order of arrival; none when it is unreadable."""

    row: Row
    arrival_s: npt.NDArray[np.float64]
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]


def is_request_table(path: Path) -> bool:
    """Say whether a table holds single requests; InputError when it can't be read."""
    header, _ = read_table(path)
    return set(header) >= _COLUMNS


def recorded_runs(path: Path) -> Iterator[RecordedRun]:
    """Yield the runs of a table; one with a faulty request is unreadable as a whole, since the others queue behind it."""
    _, rows = read_table(path)
    runs: dict[str, list[tuple[int, Cells | None]]] = {}
    for line, cells in rows:
        runs.setdefault(cells["run"] if cells else "cut off", []).append((line, cells))
    for name, requests in runs.items():
        yield _run(name, requests)


def _run(name: str, requests: list[tuple[int, Cells | None]]) -> RecordedRun:
    nothing = np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = requests[0]
    if first[1] is None:
        return RecordedRun(Unreadable(first[0], "row", "has not as many cells as the header"), *nothing)
    columns = (*_TIMES, "prompt", "output")
    table = np.array([[_number(cells, column) for column in columns] for _, cells in requests])
    faulty = ~np.isfinite(table) | (table < 0.0)
    faulty[:, 3:] |= table[:, 3:] < 1.0
    faulty[:, 1:3] |= np.diff(table[:, :3], axis=1) < 0.0
    if faulty.any():
        where, column = np.argwhere(faulty)[0]
        return RecordedRun(
            Unreadable(requests[where][0], columns[column], "must be a time after the one before, or a length"), *nothing
        )
    table = table[np.argsort(table[:, 0], kind="stable")]
    row = _measurement(name, first[1], table)
    return RecordedRun(row, table[:, 0] - table[0, 0], table[:, 3].astype(np.int64), table[:, 4].astype(np.int64))


def _number(cells: Cells | None, column: str) -> float:
    value = None if cells is None else number(cells[column])
    return np.nan if value is None else value


def _measurement(name: str, cells: Cells, table: npt.NDArray[np.float64]) -> Row:
    arrival, first, last, prompt, output = table.T
    ttft, tpot = first - arrival, (last - first) / np.maximum(output - 1.0, 1.0)
    span = float(last.max() - arrival[0])
    count = len(table)
    engine, version = _ENGINE
    values = {
        "source": name[:500],
        "engine": cells.get("engine") or engine,
        "engine_version": cells.get("engine_version") or version,
        "front_end": "offline",
        "model": cells["model"],
        "gpu": cells["gpu"],
        "gpu_count": number(cells["tp"]),
        "tp": number(cells["tp"]),
        "scenario": "open-loop",
        "prompt_tokens": float(prompt.mean()),
        "output_tokens": float(output.mean()),
        "length_kind": "recorded",
        "rate_rps": count / max(float(arrival[-1] - arrival[0]), 1e-3),
        "requests": count,
        "ttft_mean_s": float(ttft.mean()),
        "ttft_p99_s": float(np.percentile(ttft, 99)),
        "tpot_mean_s": float(tpot.mean()),
        "tpot_p99_s": float(np.percentile(tpot, 99)),
        "e2e_mean_s": float((last - arrival).mean()),
        "output_tokens_per_s": float(output.sum()) / span,
    }
    return checked(values, 2)
