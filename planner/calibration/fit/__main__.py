"""Fit a record to a table of step times from the shell: `python -m planner.calibration.fit STEPS.csv --gpu ID`."""

import argparse
import datetime as dt
import gzip
import sys
from dataclasses import replace
from pathlib import Path

from planner.calibration.collected import read_collected
from planner.calibration.fit.collected import FitRows, rows_for_fit
from planner.calibration.fit.parameters import kv_read_prior
from planner.calibration.fit.request_time import request_parameter
from planner.calibration.fit.solve import FitOptions, FitResult, fit_record
from planner.calibration.fit.table import MAX_BYTES, all_reduce_rows_from_csv, groups_from_csv
from planner.calibration.priors import completed, prior_record, widened
from planner.calibration.records import CalibrationRecord, host_for, load_host, load_record, save_record
from planner.errors import InputError
from planner.hardware import GpuProfile, load_gpu


def main(arguments: list[str] | None = None) -> int:
    """Fit, print the parameters and errors, and save the record where --out says; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        result = _fit(options)
        if options.out is not None:
            sys.stdout.write(f"saved {save_record(result.record, options.out)}\n")
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(report(result))
    return 0


def report(result: FitResult) -> str:
    """Return the fitted parameters with their intervals, and the errors by group, as text."""
    names = result.record.covariance.names if result.record.covariance else ()
    known = dict(result.record.parameters())
    lines = [f"{'parameter':38} {'value':>11} {'low':>11} {'high':>11}  informed by"]
    for name in names:
        p = known[name]
        lines.append(f"{name:38} {p.value:11.4g} {p.low:11.4g} {p.high:11.4g}  {p.informed_by}")
    evidence = result.record.evidence
    if evidence is not None:
        lines += [
            f"held out: {evidence.held_out}",
            f"{'group':38} {'rows':>5} {'median %':>9} {'mean %':>7} {'held-out median %':>18}",
        ]
        for group in evidence.groups:
            out = "-" if group.held_out_median_abs_pct is None else f"{group.held_out_median_abs_pct:.1f}"
            lines.append(f"{group.group:38} {group.rows:5d} {group.median_abs_pct:9.1f} {group.mean_abs_pct:7.1f} {out:>18}")
    return "\n".join([*lines, f"robust cost {result.cost:.2f}", ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m planner.calibration.fit", description=__doc__)
    table = "CSV of step times (see groups_from_csv), or a collector's JSONL file; either may end in .gz"
    parser.add_argument("table", type=Path, help=table)
    parser.add_argument("--gpu", required=True, help="id of the GPU, such as h100-80g-sxm")
    parser.add_argument("--engine", default="vllm", help="vllm, sglang or tensorrt-llm")
    parser.add_argument("--version", required=True, help="release of the engine")
    parser.add_argument("--all-reduce", type=Path, help="CSV or CSV.gz of all-reduce times")
    parser.add_argument("--source", default="fit to measured step times", help="the measurements, in words")
    parser.add_argument("--fit-mix", action="store_true", help="also fit what decode rows cost beside prefill chunks")
    kv_reads = "let decode attention have a share of memory bandwidth of its own, as on CPUs"
    parser.add_argument("--separate-kv-reads", action="store_true", help=kv_reads)
    parser.add_argument("--host", help="id of the host terms to start from; the engine's own")
    parser.add_argument("--like", help="id of the record of a sibling GPU: start from its figures, with intervals twice as wide")
    parser.add_argument("--leave-out", nargs="*", default=[], help="models whose rows are not used")
    parser.add_argument("--eager", action="store_true", help="the engine ran without CUDA graphs")
    today = dt.datetime.now(dt.UTC).date()
    parser.add_argument("--day", type=dt.date.fromisoformat, default=today, help="day of the fit, for the record; today")
    parser.add_argument("--out", type=Path, help="folder of records to save into, such as ~/planner/hardware_profiles/calibrations")
    return parser


def _fit(options: argparse.Namespace) -> FitResult:
    gpu = load_gpu(options.gpu)
    prior = start_record(options.gpu, options.engine, options.version, options.like)
    prior = prior.model_copy(update={"cuda_graphs": not options.eager})
    if options.separate_kv_reads:
        prior = prior.model_copy(update={"kv_read_efficiency": kv_read_prior()})
    if options.host is not None:
        prior = prior.with_host(load_host(options.host))
    rows = _rows(options.table, gpu, prior)
    if rows.request_time is not None:
        prior = prior.with_parameters({"host.request_s": request_parameter(rows.request_time, options.source, options.day)})
    groups = tuple(group for group in rows.groups if group.deployment.model.id not in options.leave_out)
    messages = all_reduce_rows_from_csv(_bytes(options.all_reduce), gpu.id) if options.all_reduce else rows.all_reduces
    fixed = rows.fixed | (frozenset() if options.fit_mix else FitOptions().fixed)
    result = fit_record(prior, groups, messages, FitOptions(source=options.source, fixed=fixed, day=options.day))
    description = f"{gpu.name} under {options.engine} {options.version}. {options.source}"
    taken = [path for path, _ in load_record(options.like).parameters()] if options.like else []
    record = result.record.only([*result.informed, *result.uninformed, *taken])
    return replace(result, record=record.model_copy(update={"description": description}))


def start_record(gpu_id: str, engine: str, version: str, like: str | None = None) -> CalibrationRecord:
    """Return the prior that a fit starts from, under the id that the fitted record gets.

    like : id of a sibling GPU's record, whose figures stand in for the family's
    """
    gpu = load_gpu(gpu_id)
    prior = completed(prior_record(gpu, engine, version, host_for(engine)), gpu)
    if like is not None:
        known = dict(prior.parameters())
        reason = f"taken from {like}, interval twice as wide"
        shared = {
            path: widened(parameter, path, 2.0, reason)
            for path, parameter in load_record(like).parameters()
            if path in known and not path.startswith("host.")
        }
        prior = prior.with_parameters(shared)
    return prior.model_copy(update={"id": f"{gpu_id}/{engine}-{version}", "description": f"{gpu.name} under {engine} {version}"})


def _rows(path: Path, gpu: GpuProfile, prior: CalibrationRecord) -> FitRows:
    """Read a table or a collector's file; what a collector's file loses is reported on standard error."""
    data = _bytes(path)
    if ".jsonl" not in path.suffixes:
        return FitRows(groups_from_csv(data, gpu, prior), (), frozenset(), ())
    collected = read_collected(data, path.name)
    rows = rows_for_fit(collected, gpu, prior.engine_version or "")
    sys.stderr.write("\n".join([collected.report(), *(f"{left.rows} steps {left.reason}" for left in rows.left_out), ""]))
    return rows


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), error.strerror, "could not be read", "Check that the file exists and may be read") from error
    if path.suffix != ".gz":
        return data
    with gzip.open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


if __name__ == "__main__":
    sys.exit(main())
