"""Read what the collectors wrote: checked rows, and a report of every line that was left out or deserves a look.

A collector's file is one JSON record a line. It may end in the middle of a line, hold several runs, or have been edited by hand:
nothing of it is trusted, and nothing is dropped without being reported.
"""

import json
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from pydantic import ValidationError
from pydantic_core import from_json

from planner.calibration.collected_rows import KINDS, End, Engine, Header, Machine, Row, Skipped, Step, Timed, Watched
from planner.errors import InputError, as_input_error, shorten, unique_fields

MAX_BYTES = 64_000_000
MAX_LINES = 1_000_000
MAX_LINE_BYTES = 8_000_000
CLOCK_DROP = 0.8
"""A row whose clock lies below this share of the file's usual one is pointed out."""

_NEXT_RUN = b'{"record": "header"'
_CLOCK_SLACK_S = 2.0
_WRONG_UNIT_SHARE = 0.5
_SHOWN = 200
R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class Remark:
    """One line that was left out or deserves a look: its number from 1, why, and how it begins."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Collected:
    """A collector's file.

    header : the last run's; machine and software are the same in all
    runs : how many runs wrote it
    complete : whether the last run measured all that it had planned
    rows : checked rows with their line numbers, in order, without headers, skipped points and ends
    skipped : points that the collector didn't measure and never did later
    dropped : lines that were left out
    flagged : lines that were kept and deserve a look, such as a lowered clock
    """

    header: Header
    runs: int
    complete: bool
    rows: tuple[tuple[int, Row], ...]
    skipped: tuple[Skipped, ...]
    dropped: tuple[Remark, ...]
    flagged: tuple[Remark, ...]

    @property
    def machine(self) -> Machine:
        """The machine that was measured."""
        return self.header.machine

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Return the rows of one kind, in order."""
        return tuple(row for _, row in self.rows if isinstance(row, kind))

    def report(self) -> str:
        """Return in words what the file holds and what was left out."""
        counts: dict[str, int] = {}
        for _, row in self.rows:
            counts[row.record] = counts.get(row.record, 0) + 1
        held = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no measurements"
        lines = [f"{self.machine.device_name}, collect_{self.header.collector}.py, {self.runs} runs: {held}"]
        lines += [] if self.complete else ["The last run didn't reach the end of its plan."]
        lines += [f"line {remark.line} left out: {remark.reason}" for remark in self.dropped]
        lines += [f"line {remark.line}: {remark.reason}" for remark in self.flagged]
        return "\n".join(lines)


@dataclass(slots=True)
class _Reading:
    """State while a file is read."""

    name: str
    headers: list[Header] = field(default_factory=list)
    rows: list[tuple[int, Row]] = field(default_factory=list)
    dropped: list[Remark] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, Skipped] = field(default_factory=dict)
    complete: bool = False
    timed: int = 0
    too_long: list[int] = field(default_factory=list)
    before: Row | None = None
    engines: dict[str, Engine] = field(default_factory=dict)


def read_collected(data: bytes, name: str) -> Collected:
    """Return the checked rows of a collector's file.

    data : JSON lines, at most 64 MB
    name : label for messages, such as the file's name; never opened

    Broken, impossible and doubled lines are left out and reported. Raises InputError when the file isn't a collector's, mixes two
    machines or two versions of their software, or gives its times in another unit than seconds.
    """
    if len(data) > MAX_BYTES:
        raise InputError(name, f"{len(data):,} bytes", f"must be at most {MAX_BYTES:,} bytes", "Split it by run")
    lines = data.split(b"\n")
    if len(lines) > MAX_LINES:
        raise InputError(name, f"{len(lines):,} lines", f"must have at most {MAX_LINES:,} lines", "Split it by run")
    reading = _Reading(name)
    for number, line in enumerate(lines, 1):
        if line.strip():
            _take(reading, number, line, last=number == len(lines) or lines[number].startswith(_NEXT_RUN))
    if not reading.headers:
        remedy = "Give the file that a collector wrote with --out, from its first line"
        raise InputError(name, data[:40], "holds no header of a collector", remedy)
    if reading.timed and len(reading.too_long) > _WRONG_UNIT_SHARE * reading.timed:
        named = ", ".join(map(str, reading.too_long[:5]))
        bound = f"take longer than the run itself in {len(reading.too_long)} of {reading.timed} records (lines {named} …)"
        raise InputError(f"{name}: times", "not seconds", bound, "Give seconds; milliseconds are a thousand times too long")
    left = tuple(row for key, row in reading.skipped.items() if key not in reading.seen)
    rows = tuple(reading.rows)
    flagged = tuple(_flagged(rows, lines))
    return Collected(reading.headers[-1], len(reading.headers), reading.complete, rows, left, tuple(reading.dropped), flagged)


def _take(reading: _Reading, number: int, line: bytes, *, last: bool) -> None:
    row = _row(line, last=last)
    if isinstance(row, Header):
        _same_machine(reading, row)
        reading.headers.append(row)
        reading.complete = False
    reason = row if isinstance(row, str) else _fault(reading, number, row)
    if reason is not None:
        reading.dropped.append(Remark(number, reason, _start(line)))
    elif isinstance(row, End):
        reading.complete = row.complete
    elif isinstance(row, Skipped):
        reading.skipped[row.key or ""] = row
    elif isinstance(row, Row) and not isinstance(row, Header):
        reading.rows.append((number, row))
    if isinstance(row, Row):
        reading.before = row


def _row(line: bytes, *, last: bool) -> Row | str:
    """Return the checked row of a line, or the reason why there is none."""
    if len(line) > MAX_LINE_BYTES:
        return f"is longer than {MAX_LINE_BYTES:,} bytes"
    try:
        document = from_json(line, allow_inf_nan=False)
        json.loads(line, object_pairs_hook=unique_fields)  # of a field stated twice, from_json keeps the last and says nothing
    except InputError as twice:
        return f"{twice.field} {twice.bound}"
    except ValueError as error:
        return "is cut off, as the last line of an interrupted run is" if last else f"is not JSON without NaN ({error})"
    kind = KINDS.get(str(document.get("record"))) if isinstance(document, dict) else None
    if kind is None:
        return "is no record that this release knows"
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        fault = as_input_error(error, f"{kind.kind} record")
        return f"{fault.field} is {shorten(fault.value)}: {fault.bound}"


def _fault(reading: _Reading, number: int, row: Row) -> str | None:
    """Return why a row can't be used, or None; remember what later rows are checked against."""
    if isinstance(row, Header | Skipped | End):
        return None
    if not reading.headers:
        return "stands before the first header"
    if isinstance(row, Engine):
        reading.engines[row.key or ""] = row
        return None
    reason = _impossible(reading, row)
    if isinstance(row, Timed | Step):
        reading.timed += 1
        reading.too_long += [number] if reason is not None and reason.startswith("took") else []
    return reason or _repeated(reading, number, row)


def _repeated(reading: _Reading, number: int, row: Row) -> str | None:
    identity = f"{row.engine} {row.point} {row.scheduled_at_s}" if isinstance(row, Step) else row.key
    if identity is None:
        return "has no key"
    if identity in reading.seen:
        return f"repeats line {reading.seen[identity]}"
    reading.seen[identity] = number
    return None


def _impossible(reading: _Reading, row: Row) -> str | None:
    """Return why no machine can have measured a row, or None."""
    if isinstance(row, Step):
        return _impossible_step(reading, row)
    claim = row.claim()
    if claim is None:
        return None
    if claim.rate is not None and claim.rate > claim.most:
        return f"reaches {claim.rate:.3g} a second, and no device exceeds {claim.most:.3g}"
    passed_s = (row.at_utc - reading.before.at_utc).total_seconds() if reading.before else 0.0
    if claim.took_s > passed_s + _CLOCK_SLACK_S:
        return f"took {claim.took_s:.4g} s by its own times, {passed_s:.4g} s after the record before: is it in milliseconds?"
    return None


def _impossible_step(reading: _Reading, step: Step) -> str | None:
    engine = reading.engines.get(step.engine)
    if engine is None:
        return f"belongs to an engine that no line before describes ({shorten(step.engine)})"
    passed_s = (step.at_utc - engine.at_utc).total_seconds()
    if step.processed_at_s > passed_s + _CLOCK_SLACK_S:
        return f"took until {step.processed_at_s:.4g} s, and the engine was {passed_s:.4g} s old: is it in milliseconds?"
    tokens = sum(run.sequences * run.tokens for run in step.decode) + sum(run.sequences * run.tokens for run in step.prefill)
    if tokens > engine.max_num_batched_tokens:
        return f"schedules {tokens} tokens, and the engine allows {engine.max_num_batched_tokens}"
    return None


def _same_machine(reading: _Reading, header: Header) -> None:
    if not reading.headers:
        return
    first = reading.headers[0]
    parts = ("collector", "machine", "software", "settings") if first.collector == "torch" else ("collector", "machine", "software")
    for part in parts:  # one set of operators is of one model; engines and servers each say what they ran
        one, other = getattr(first, part), getattr(header, part)
        if one != other:
            names = (first.machine.device_name, header.machine.device_name) if part == "machine" else (one, other)
            bound = f"mixes two runs that differ in {part}: {_difference(one, other)}"
            raise InputError(reading.name, f"{names[0]} and {names[1]}", bound, "Give one file for each")


def _difference(one: object, other: object) -> str:
    left, right = (item if isinstance(item, dict) else getattr(item, "__dict__", {"": item}) for item in (one, other))
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return ", ".join(f"{name} {shorten(left.get(name))} and {shorten(right.get(name))}".strip() for name in names[:4])


def _flagged(rows: tuple[tuple[int, Row], ...], lines: list[bytes]) -> list[Remark]:
    """Point out rows that were measured while the device was slowed down."""
    watched = [(number, row) for number, row in rows if isinstance(row, Watched)]
    clocks = [row.clock_hz for _, row in watched if row.clock_hz]
    usual_hz = float(np.percentile(clocks, 90)) if clocks else 0.0
    remarks = []
    for number, row in watched:
        if row.throttled:
            remarks.append(Remark(number, "the device was throttled while it was measured", _start(lines[number - 1])))
        elif row.clock_hz and row.clock_hz < CLOCK_DROP * usual_hz:
            reason = f"the clock was {row.clock_hz / 1e6:.0f} MHz, and {usual_hz / 1e6:.0f} MHz is usual in this file"
            remarks.append(Remark(number, reason, _start(lines[number - 1])))
    return remarks


def _start(line: bytes) -> str:
    return line[:_SHOWN].decode("utf-8", errors="replace")
