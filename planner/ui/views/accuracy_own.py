"""A user's own measurements on the Accuracy page: read, predicted by the shipped records, and compared."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pandas as pd

from planner.accuracy import AccuracyReport, accuracy_report
from planner.accuracy.publish import load_in_words
from planner.accuracy.report import MOST_FAULTS, RowResult
from planner.accuracy.shipped import Metric
from planner.calibration.priors import completed
from planner.calibration.records import CalibrationRecord, load_record
from planner.errors import InputError
from planner.exporters.table import spreadsheet_safe
from planner.tuning import Bench, FitPoint, Target, Tell, UserFile, compare_runs
from planner.ui.charts.base import Row
from planner.ui.views.accuracy import ENGINES, METRICS
from planner.ui.views.calibrate_files import Given, ReadFile, read_all
from planner.ui.views.calibrate_fit import series_of, signed, statistic_of
from planner.ui.words import DASH, figure, percent, plural, seconds
from planner.units import MS

FORMATS = (
    "A table of measured results as CSV, in the measurement schema or in a published layout, or the result of vllm bench serve, "
    "GuideLLM, AIPerf, inference-perf or SGLang's bench_serving."
)
SCHEMA_NOTE = (
    "A table needs the columns gpu, engine, model, scenario, prompt_tokens and output_tokens, and what was measured: tpot_mean_s, "
    "ttft_p50_s, output_tokens_per_s and so on, in SI units. hardware_profiles/evidence/accuracy/README.md lists every column."
)
TEMPLATE = (
    "gpu,engine,engine_version,model,scenario,prompt_tokens,output_tokens,tp,concurrency,ttft_mean_s,tpot_mean_s,output_tokens_per_s\n"
    "h100-80g-sxm,vllm,0.33.0,llama-3.1-8b-instruct,closed-loop,1024,256,1,32,,,\n"
)
MOST_ROWS = 2_000
_TIMES = frozenset({"tpot", "ttft", "tpot_p99", "ttft_p99"})
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_GZIP = b"\x1f\x8b"
_HEAD = 4_096


def is_table(given: Given) -> bool:
    """Whether a file is a table of measured results rather than a benchmark's document: its first line has columns.

    Columns between semicolons or tabs count as such, so that the complaint is about them.
    """
    if given.data.startswith(_GZIP):
        return given.name.lower().endswith(".csv.gz")
    head = given.data[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n")
    first = head.partition(b"\n")[0]
    return any(mark in first for mark in (b",", b";", b"\t")) and head[:1] not in {b"{", b"["}


def read_benchmarks(given: Sequence[Given]) -> tuple[ReadFile, ...]:
    """Return the benchmark results among some files; a collector's file or a step log is refused, as it holds no served request."""
    return tuple(_benchmark(each) for each in read_all(given))


def _benchmark(read: ReadFile) -> ReadFile:
    if read.file is None or read.file.kind == "benchmark":
        return read
    fault = InputError(read.name, read.file.format, "holds no result of a benchmark", "Fit a record to it on the Calibrate page")
    return ReadFile(read.name, None, fault)


def own_report(given: Given, tell: Tell) -> AccuracyReport:
    """Return the errors of the shipped records on a table; InputError when it is none, or holds too many rows for a page."""
    tell("Reading the table", 0.0)
    suffix = ".csv.gz" if given.data.startswith(_GZIP) else ".csv"
    stem = _UNSAFE.sub("-", Path(given.name).name.partition(".")[0])[:60] or "table"
    if given.data.count(b"\n") > MOST_ROWS + 1 and suffix == ".csv":
        remedy = "Run python -m planner accuracy on it, or give a part of it"
        raise InputError(given.name, f"{given.data.count(bytes([10])):,} lines", f"must hold at most {MOST_ROWS:,} rows", remedy)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{stem}{suffix}"
        path.write_bytes(given.data)
        tell("Predicting its rows", 0.1)
        return accuracy_report(path)


def report_sentence(report: AccuracyReport) -> str:
    """Return in one sentence how far the predictions are off on a user's table."""
    parts = []
    for metric, name in METRICS.items():
        summary = report.summary(metric)
        if summary is not None and metric in {"tpot", "ttft", "throughput", "kv_tokens"}:
            parts.append(f"{name} is off by {_pct(summary.median_abs_pct)} (median; bias {signed(summary.bias_pct)})")
    predicted, rows = len(report.predicted), plural(len(report.results), "row")
    counted = (
        f"{predicted:,} of {rows} {'is' if predicted == 1 else 'are'} predicted" if predicted else f"None of {rows} is predicted"
    )
    return f"{counted}: {'; '.join(parts)}." if parts else f"{counted}."


def _pct(value: float) -> str:
    return percent(value / 100.0)


def unreadable_frame(report: AccuracyReport) -> pd.DataFrame:
    """Return what can't be read in a user's table: line, column, and what is wrong with the cell."""
    faults = report.unreadable[:MOST_FAULTS]
    return pd.DataFrame([{"Line": line, "Column": spreadsheet_safe(field), "Why not": reason} for line, field, reason in faults])


def more_unreadable(report: AccuracyReport) -> str | None:
    """Return how many lines the table of faults leaves out; None for none."""
    more = len(report.unreadable) - MOST_FAULTS
    return f"{plural(more, 'more line')} can't be read." if more > 0 else None


def report_frame(report: AccuracyReport) -> pd.DataFrame:
    """Return each predicted row with what was measured, what is predicted and the error, the largest first."""
    ordered = sorted(report.predicted, key=lambda row: -max((abs(error) for error in row.errors.values()), default=0.0))
    return pd.DataFrame([_result_row(row) for row in ordered])


def _result_row(row: RowResult) -> dict[str, object]:
    gpu, engine, model = row.group or (DASH, DASH, DASH)
    cells: dict[str, object] = {
        "GPU": spreadsheet_safe(gpu),
        "Engine": ENGINES.get(engine, engine),
        "Model": spreadsheet_safe(model),
        "Load": load_in_words(row.measured) if row.measured is not None else DASH,
    }
    for metric, name in METRICS.items():
        if metric in row.errors and metric in row.stated:
            measured, error = row.stated[metric], row.errors[metric]
            cells[f"{name}, measured"] = _written(metric, measured)
            cells[f"{name}, predicted"] = _written(metric, measured * (1.0 + error))
            cells[f"{name}, error"] = signed(100.0 * error)
    return cells


def _written(metric: Metric, value: float) -> str:
    return seconds(value) if metric in _TIMES else figure(value)


def report_rows(report: AccuracyReport) -> tuple[list[Row], str]:
    """Return the times of a user's table with their predictions for a chart, with the finding."""
    rows = [
        row
        for result in report.predicted
        for metric in ("ttft", "tpot")
        if metric in result.errors and metric in result.stated
        for row in (_chart_row(result, metric),)
    ]
    return rows, _finding(rows)


def _chart_row(result: RowResult, metric: Metric) -> Row:
    measured, error = result.stated[metric], result.errors[metric]
    gpu, engine, model = result.group or (DASH, DASH, DASH)
    load = load_in_words(result.measured) if result.measured is not None else DASH
    return {
        "label": model,
        "series": METRICS[metric],
        "batch": f"{gpu}, {ENGINES.get(engine, engine)}, {load}",
        "measured": measured / MS,
        "after": measured * (1.0 + error) / MS,
        "measured_text": seconds(measured),
        "after_text": seconds(measured * (1.0 + error)),
        "error": signed(100.0 * error),
        "within": abs(error) <= 0.1,
    }


def _finding(rows: Sequence[Row]) -> str:
    within = sum(row["within"] for row in rows)
    return f"{within} of {plural(len(rows), 'time')} {'is' if within == 1 else 'are'} predicted within 10\N{NO-BREAK SPACE}%"


def record_of(target: Target, calibration_id: str | None) -> CalibrationRecord:
    """Return the record that a plan for the same GPU would use: the one that the scenario names, if it is of this GPU.

    calibration_id : of the scenario
    """
    deployment = target.deployment()
    if calibration_id is not None:
        named = load_record(calibration_id)
        if named.gpu_id == target.gpu_id:
            return completed(named, deployment.gpu)
    return target.serving_prior(deployment)


class Compared(NamedTuple):
    """What a record predicts for benchmark results; name : of the record, for a sentence."""

    points: tuple[FitPoint, ...]
    name: str


def compared(files: Sequence[UserFile], target: Target, calibration_id: str | None, tell: Tell) -> Compared:
    """Return what the record of a plan predicts for benchmark results; nothing is fitted. calibration_id : of the scenario."""
    deployment = target.deployment()
    bench = Bench(deployment, target.memory(deployment), target.replicas)
    runs = tuple(run for file in files for run in file.runs)
    record = record_of(target, calibration_id)
    tell("Serving the benchmark's requests again", 0.1)
    name = record.id if record.id == calibration_id else f"the plan's record for {deployment.gpu.name}"
    return Compared(compare_runs(bench, record, runs), name)


def points_sentence(found: Compared) -> str:
    """Return in one sentence how far the predictions are off on benchmark results."""
    names = list(dict.fromkeys(statistic_of(point) for point in found.points))
    runs = plural(len({point.label for point in found.points}), "run")
    parts = [f"{name} {percent(_median_error(found.points, name))}" for name in names]
    return f"On {runs} {found.name} is off by (median): {', '.join(parts)}."


def _median_error(points: Sequence[FitPoint], name: str) -> float:
    return median(abs(point.after / point.measured - 1.0) for point in points if statistic_of(point) == name)


def points_frame(points: Sequence[FitPoint]) -> pd.DataFrame:
    """Return each figure of the benchmark with its prediction, the largest error first."""
    ordered = sorted(points, key=lambda point: -abs(point.after / point.measured - 1.0))
    return pd.DataFrame(
        [
            {
                "Run": spreadsheet_safe(point.label),
                "Figure": statistic_of(point),
                "Measured": _of_point(point, point.measured),
                "Predicted": _of_point(point, point.after),
                "Error": signed(100.0 * (point.after / point.measured - 1.0)),
            }
            for point in ordered
        ]
    )


def _of_point(point: FitPoint, value: float) -> str:
    return f"{figure(value)} tokens/s" if point.metric == "throughput" else seconds(value)


def points_rows(points: Sequence[FitPoint]) -> tuple[list[Row], str]:
    """Return the times of benchmark results with their predictions for a chart, with the finding."""
    rows = [_point_row(point) for point in points if point.metric != "throughput"]
    return rows, _finding(rows)


def _point_row(point: FitPoint) -> Row:
    error = point.after / point.measured - 1.0
    return {
        "label": point.label,
        "series": series_of(point),
        "batch": statistic_of(point),
        "measured": point.measured / MS,
        "after": point.after / MS,
        "measured_text": seconds(point.measured),
        "after_text": seconds(point.after),
        "error": signed(100.0 * error),
        "within": abs(error) <= 0.1,
    }
