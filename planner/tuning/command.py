"""The shell's `calibrate`: reads files, fits, says what came out, and keeps the record where the user wants it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.errors import InputError, as_input_error
from planner.tuning.any_fit import fit_files
from planner.tuning.files import UserFile, read_file
from planner.tuning.options import TuneOptions
from planner.tuning.results import CalibrationFit, Tell, silent
from planner.tuning.saving import save_own_record
from planner.tuning.target import Target

MAX_FILE_BYTES = 64 * 2**20
_UNITS = {"throughput": "token/s"}


def calibrate(arguments: argparse.Namespace, tell: Tell = silent) -> dict[str, Any]:
    """Return what a fit to the files says, as plain values; the record is kept where --save says.

    arguments : parsed flags of `planner.cli_calibrate`

    Raises InputError for files that can't be read or used, or flags that fit no deployment.
    """
    files = [read_file(_bytes(path), path.name[:100]) for path in arguments.files]
    target = target_of(arguments, files)
    fit = fit_files(files, target, _options(arguments), tell)
    saved = None
    if arguments.save is not None:
        saved = save_own_record(fit.record, arguments.save, replace=arguments.replace)
    return document(fit, files, target) | {"saved": None if saved is None else str(saved)}


def target_of(arguments: argparse.Namespace, files: Sequence[UserFile]) -> Target:
    """Return what was measured: the flags, and where they say nothing the files."""
    engine = arguments.engine or next((file.engine for file in files if file.engine), "vllm")
    version = arguments.engine_version or next((file.engine_version for file in files if file.engine_version), None)
    if arguments.model is None and any(_needs_model(file) for file in files):
        stated = next((file.model for file in files if file.model), None)
        bound = f"is required; the file says {stated!r}" if stated else "is required: the file doesn't say"
        raise InputError("--model", None, bound, "Name a model of the catalogue; `python -m planner models` lists them")
    run = next((run for file in files for run in file.runs), None)
    told = {} if run is None else {"tp": run.tp, **run.settings.model_dump()}

    def given(name: str) -> object:
        flag = getattr(arguments, name)
        return told.get(name) if flag is None else flag

    values = {
        "gpu_id": arguments.gpu,
        "model_id": arguments.model or "",
        "quantization": given("quantization") or "bf16",
        "kv_dtype": given("kv_dtype"),
        "tp": 1 if given("tp") is None else given("tp"),
        "engine": engine,
        "engine_version": version,
        "max_num_seqs": given("max_num_seqs"),
        "max_num_batched_tokens": given("max_num_batched_tokens"),
        "max_model_len": given("max_model_len"),
        "kv_cache_tokens": arguments.kv_cache_tokens,
        "async_scheduling": arguments.async_scheduling,
        "cuda_graphs": False if arguments.eager else None,
        "replicas": arguments.replicas,
    }
    try:
        return Target.model_validate(values)
    except ValidationError as error:
        raise as_input_error(error, "command line") from error


def _needs_model(file: UserFile) -> bool:
    return file.kind != "collected" or (file.collected is not None and file.collected.header.collector == "http")


def _options(arguments: argparse.Namespace) -> TuneOptions | None:
    return TuneOptions(hold_out=False) if arguments.no_hold_out else None


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError("FILE", str(path), f"can't be read ({error.strerror})", "Give a readable file") from error
    except ValueError as error:
        raise InputError("FILE", str(path), "is no file name", "Give a readable file") from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError("FILE", str(path), f"must be at most {MAX_FILE_BYTES // 2**20} MiB", "Split it by run")
    return data


def document(fit: CalibrationFit, files: Sequence[UserFile], target: Target) -> dict[str, Any]:
    """Return a fit as plain values."""
    parameters = [
        {
            "path": value.path,
            "value": value.value,
            "low": value.low,
            "high": value.high,
            "origin": value.informed_by,
            "prior": {"value": value.prior_value, "low": value.prior_low, "high": value.prior_high},
        }
        for value in fit.parameters
    ]
    errors = [
        {
            "metric": pair.metric,
            "phase": pair.phase or "all",
            "rows": pair.rows,
            "before": {"median_abs_pct": _round(pair.before_median_pct), "bias_pct": _round(pair.before_bias_pct)},
            "after": {"median_abs_pct": _round(pair.after_median_pct), "bias_pct": _round(pair.after_bias_pct)},
            "held_out": None if pair.held_out_median_pct is None else {"median_abs_pct": _round(pair.held_out_median_pct)},
        }
        for pair in fit.errors
    ]
    points = [
        {
            "label": point.label,
            "metric": point.metric,
            "statistic": point.statistic,
            "unit": _UNITS.get(point.metric, "s"),
            "measured": point.measured,
            "before": point.before,
            "after": point.after,
            "held_out": point.held_out,
        }
        for point in fit.points
        if point.metric != "step"
    ]
    read = [
        {"name": file.name, "format": file.format, "rows": file.rows, "remarks": list(file.remarks), "missing": list(file.missing)}
        for file in files
    ]
    return {
        "files": read,
        "gpu": target.gpu_id,
        "model": target.model_id or None,
        "engine": target.engine,
        "engine_version": target.version,
        "started_from": fit.prior.description,
        "parameters": parameters,
        "errors": errors,
        "points": points,
        "held_out": fit.held_out,
        "warnings": list(fit.warnings),
    }


def text(result: dict[str, Any]) -> str:
    """Return a fit's document for reading in a terminal."""
    lines = []
    for file in result["files"]:
        lines.append(f"{file['name']}: {file['format']}, {file['rows']} {'row' if file['rows'] == 1 else 'rows'}")
        lines += [f"  {remark}" for remark in file["remarks"]]
        lines += [f"  doesn't say: {gap}" for gap in file["missing"]]
    lines += ["", f"{'parameter':38} {'value':>11} {'80 % interval':>23} {'origin':>8} {'before':>11}"]
    for value in result["parameters"]:
        interval = f"{value['low']:.4g} to {value['high']:.4g}"
        lines.append(
            f"{value['path']:38} {value['value']:11.4g} {interval:>23} {value['origin']:>8} {value['prior']['value']:11.4g}"
        )
    lines += ["", f"{'median |error| (bias) in percent':32} {'rows':>5} {'before':>16} {'after':>16} {'held out':>9}"]
    for error in result["errors"]:
        cells = [f"{error[when]['median_abs_pct']:.1f} ({error[when]['bias_pct']:+.1f})" for when in ("before", "after")]
        held = "–" if error["held_out"] is None else f"{error['held_out']['median_abs_pct']:.1f}"
        name = error["metric"] if error["phase"] == "all" else f"{error['metric']}, {error['phase']}"
        lines.append(f"{name:32} {error['rows']:5d} {cells[0]:>16} {cells[1]:>16} {held:>9}")
    lines.append(f"held out: {result['held_out']}")
    lines += [f"note: {warning}" for warning in result["warnings"]]
    if result["saved"]:
        path = Path(result["saved"])
        lines += [
            f"saved {path}",
            f"a plan uses it where its scenario names it: engine.calibration_id {path.parent.name}/{path.stem}",
        ]
    return "\n".join(lines)


def _round(value: float) -> float:
    return round(value, 3)
