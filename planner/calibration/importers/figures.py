"""From the times of single requests, or a tool's own statistics, to checked figures of one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from planner.calibration.importers.documents import at, number
from planner.calibration.importers.run import MOST_S, BenchmarkRun, RequestDetail, Spread, Weight
from planner.errors import InputError, as_input_error

Floats = npt.NDArray[np.float64]

MS = 1e-3
AGREES = 0.10
"""A reported time per output token may differ so much from (E2E - TTFT) / (output - 1) before the latter replaces it [1]."""

_UNIT_FACTOR = 100.0
_FASTEST_TPOT_S, _SLOWEST_TPOT_S = 5e-5, 60.0
_FASTEST_TTFT_S, _SLOWEST_TTFT_S = 1e-4, 86_400.0
_CLOSED_SLACK = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class RequestTimes:
    """Requests that completed, in the file's order: lengths [token] and what a client saw of each [s].

    sent_s : on any clock; None where the tool doesn't say
    remarks : on requests and times that are left out
    """

    prompt_tokens: Floats
    output_tokens: Floats
    ttft_s: Floats
    e2e_s: Floats
    sent_s: Floats | None
    remarks: tuple[str, ...] = ()

    @property
    def tpot_s(self) -> Floats:
        """Time per output token of the requests with more than one [s]."""
        several = self.output_tokens > 1
        decode_s = (self.e2e_s - self.ttft_s)[several]
        return np.asarray(decode_s / (self.output_tokens[several] - 1.0), dtype=np.float64)

    def statistics(self) -> dict[str, Any]:
        """Return the fields of a run that follow from its requests; `remarks` among them."""
        order = np.arange(len(self.ttft_s)) if self.sent_s is None else np.argsort(self.sent_s, kind="stable")
        sent = None if self.sent_s is None else tuple((self.sent_s[order] - self.sent_s.min()).tolist())
        return {
            "requests": len(self.ttft_s),
            "prompt_tokens": float(self.prompt_tokens.mean()),
            "output_tokens": float(self.output_tokens.mean()),
            "ttft": spread_of(self.ttft_s),
            "tpot": spread_of(self.tpot_s),
            "e2e": spread_of(self.e2e_s),
            "detail": RequestDetail(
                prompt_tokens=tuple(self.prompt_tokens[order].astype(int).tolist()),
                output_tokens=tuple(self.output_tokens[order].astype(int).tolist()),
                sent_s=sent,
            ),
            "remarks": self.remarks,
        }


def spread_of(values: Floats, weight: Weight = "request") -> Spread:
    """Return mean and percentiles of some times [s]; nothing for none."""
    if not len(values):
        return Spread(weight=weight)
    p50, p90, p99 = (float(value) for value in np.percentile(values, (50, 90, 99)))
    return Spread(mean_s=float(values.mean()), p50_s=p50, p90_s=p90, p99_s=p99, weight=weight)


def times_of(columns: dict[str, Sequence[float | None] | None], failed: Sequence[bool], name: str) -> RequestTimes | None:
    """Return the requests that completed; None when a column is missing or none completed.

    columns : prompt_tokens, output_tokens, ttft_s, e2e_s and, where there is one, sent_s, one entry a request
    failed : of each request; a failed one keeps its place with zeros

    Raises InputError when the columns have different lengths or a completed request ends before its first token.
    """
    needed = ("prompt_tokens", "output_tokens", "ttft_s", "e2e_s")
    if any(columns.get(column) is None for column in needed):
        return None
    present = {column: values for column, values in columns.items() if values is not None}
    counts = {column: len(values) for column, values in present.items()} | {"errors": len(failed)}
    if len(set(counts.values())) != 1:
        raise InputError(name, counts, "must list every request in each of them", "Export the result again; the file may be cut")
    table = {column: np.array([np.nan if value is None else value for value in values]) for column, values in present.items()}
    completed = ~np.asarray(failed, dtype=np.bool_)
    usable = {column: np.isfinite(table[column]) & (table[column] > 0.0) for column in needed[1:]}
    kept = completed & np.logical_and.reduce(list(usable.values()))
    if not kept.any():
        return None
    ends_early = kept & (table["e2e_s"] < table["ttft_s"] * (1.0 - 1e-6))
    if ends_early.any():
        place = int(np.argmax(ends_early))
        bound = f"ends before its first token ({table['ttft_s'][place]:.4g} s)"
        raise InputError(f"{name}: request {place}", float(table["e2e_s"][place]), bound, "Export the result again")
    prompt = np.where(np.isfinite(table["prompt_tokens"]), np.maximum(table["prompt_tokens"], 1.0), 1.0)
    sent = table.get("sent_s")
    whole_clock = sent is not None and bool(np.isfinite(sent[kept]).all())
    return RequestTimes(
        prompt_tokens=prompt[kept],
        output_tokens=table["output_tokens"][kept],
        ttft_s=table["ttft_s"][kept],
        e2e_s=np.maximum(table["e2e_s"], table["ttft_s"])[kept],
        sent_s=sent[kept] if sent is not None and whole_clock else None,
        remarks=_left_out(
            {column: completed & ~good for column, good in usable.items()}, clock_cut=sent is not None and not whole_clock
        ),
    )


def _left_out(faulty: dict[str, npt.NDArray[np.bool_]], *, clock_cut: bool) -> tuple[str, ...]:
    """Return how many completed requests are left out and for which fields, and that the clock of sending is."""
    remarks = []
    count = int(np.logical_or.reduce(list(faulty.values())).sum())
    if count:
        fields = ", ".join(column for column, places in faulty.items() if places.any())
        one = f"1 request is left out: its {fields} is no number above 0"
        remarks.append(one if count == 1 else f"{count:,} requests are left out: their {fields} is no number above 0")
    if clock_cut:
        remarks.append("times of sending aren't stated of every request: arrivals are drawn")
    return tuple(remarks)


def stated_spread(
    get: Callable[[str], object], names: tuple[str, str, str, str], factor: float, weight: Weight = "request"
) -> Spread:
    """Return the mean, median, 90th and 99th percentile that a tool states.

    get : looks a name up; names : of the four in the tool's words; factor : to seconds
    """
    times_s = [number(get(name), name, factor) for name in names]
    for name, time_s in zip(names, times_s, strict=True):
        if time_s is not None and time_s > MOST_S:
            raise InputError(name, time_s, f"must be at most {MOST_S:g} s", "Check the unit of the file's times")
    mean, p50, p90, p99 = times_s
    return Spread(mean_s=mean, p50_s=p50, p90_s=p90, p99_s=p99, weight=weight)


def figure(document: object, field: str, factor: float = 1.0) -> float | None:
    """Return a number of a document's top level; see `number`."""
    return number(at(document, field), field, factor)


def positive(value: float | None) -> float | None:
    """Return a figure, or None for 0: tools write 0 where nothing was measured."""
    return value if value else None


def checked_run(values: dict[str, Any], name: str) -> BenchmarkRun:
    """Return a run from a reader's fields, with its time per output token derived and its units checked.

    values : fields of BenchmarkRun; None for what isn't stated
    name : label for messages

    Raises InputError naming the field when a figure is missing, impossible, or in another unit than it claims.
    """
    given = {field: value for field, value in values.items() if value is not None}
    for field in ("requests", "prompt_tokens", "output_tokens"):
        if not given.get(field):
            raise InputError(
                f"{name}: {field}", given.get(field), "must be above 0", "Give a run that completed at least one request"
            )
    try:
        run = BenchmarkRun.model_validate(given)
    except ValidationError as error:
        fault = as_input_error(error, f"benchmark {name}")
        raise InputError(f"{name}: {fault.field}", fault.value, fault.bound, fault.remedy) from error
    _refuse_wrong_units(run, name)
    run = _with_derived_tpot(run)
    if not run.ttft and not run.tpot and not run.e2e and run.output_tokens_per_s is None:
        raise InputError(name, run.tool, "states no latency and no throughput", "Export it with its latencies")
    return run


def derived_tpot_s(run: BenchmarkRun) -> float | None:
    """Return (E2E - TTFT) / (output - 1) of a run's means [s]; None without them, or for outputs of one token."""
    e2e_s, ttft_s = run.e2e.mean_s, run.ttft.mean_s
    if e2e_s is None or ttft_s is None or run.output_tokens <= 1.5 or e2e_s <= ttft_s:
        return None
    return (e2e_s - ttft_s) / (run.output_tokens - 1.0)


def _with_derived_tpot(run: BenchmarkRun) -> BenchmarkRun:
    """Tools disagree on what a time per output token is, and one counted a token twice: the parts decide."""
    derived, stated = derived_tpot_s(run), run.tpot.mean_s
    if derived is None or run.detail is not None:
        return run
    if stated and abs(derived / stated - 1.0) <= AGREES:
        return run
    remarks = run.remarks
    if stated:
        said = f"{1e3 * stated:.3g} ms a token is stated, and (E2E - TTFT) / (output - 1) is {1e3 * derived:.3g} ms, which is used"
        remarks = (*remarks, said)
    return run.model_copy(update={"tpot": Spread(mean_s=derived), "remarks": remarks})


def _refuse_wrong_units(run: BenchmarkRun, name: str) -> None:
    remedy = "Check the unit of the file's times: a factor of 1,000 lies between seconds and milliseconds"
    for metric, lowest, highest in (("ttft", _FASTEST_TTFT_S, _SLOWEST_TTFT_S), ("tpot", _FASTEST_TPOT_S, _SLOWEST_TPOT_S)):
        value = getattr(run, metric).mean_s or getattr(run, metric).p50_s
        if value and not lowest <= value <= highest:
            raise InputError(f"{name}: {metric}", value, f"must lie between {lowest:g} and {highest:g} s", remedy)
    parts_s = _parts_s(run)
    for metric in ("ttft", "tpot", "e2e"):
        spread: Spread = getattr(run, metric)
        ratio = (spread.mean_s or 0.0) / spread.p50_s if spread.p50_s and spread.mean_s else 1.0
        if not 1.0 / _UNIT_FACTOR < ratio < _UNIT_FACTOR:
            raise InputError(f"{name}: {metric}", spread.mean_s, f"lies {ratio:.3g} times from its own median", remedy)
    e2e_s = run.e2e.mean_s
    if parts_s and e2e_s and not 1.0 / _UNIT_FACTOR < e2e_s / parts_s < _UNIT_FACTOR:
        raise InputError(f"{name}: e2e", e2e_s, f"lies {e2e_s / parts_s:.3g} times from TTFT and TPOT ({parts_s:.4g} s)", remedy)
    _refuse_impossible_load(run, e2e_s or parts_s, name)


def _parts_s(run: BenchmarkRun) -> float | None:
    ttft_s, tpot_s = run.ttft.mean_s or run.ttft.p50_s, run.tpot.mean_s or run.tpot.p50_s
    return None if ttft_s is None or tpot_s is None else ttft_s + tpot_s * (run.output_tokens - 1.0)


def _refuse_impossible_load(run: BenchmarkRun, e2e_s: float | None, name: str) -> None:
    """Little's law: requests in flight are their rate times their time, and never more than there were."""
    rate_rps = run.requests_per_s
    if rate_rps is None and run.output_tokens_per_s is not None:
        rate_rps = run.output_tokens_per_s / run.output_tokens
    if e2e_s is None or rate_rps is None:
        return
    in_flight = rate_rps * e2e_s
    most = float(run.concurrency or run.requests) if run.arrivals == "closed" else float(run.requests)
    remedy = "Check the unit of times and throughputs"
    if in_flight > _CLOSED_SLACK * most + 1.0:
        bound = f"times {rate_rps:.4g} requests/s leaves {in_flight:.4g} in flight, and there were {most:g} at most"
        raise InputError(f"{name}: e2e", e2e_s, bound, remedy)
    if run.arrivals == "closed" and in_flight < most / _UNIT_FACTOR:
        bound = f"times {rate_rps:.4g} requests/s keeps {in_flight:.4g} of {most:g} in flight"
        raise InputError(f"{name}: e2e", e2e_s, bound, remedy)
