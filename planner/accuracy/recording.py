"""Puts a recorded engine into the accuracy report: each phase beside what its clients measured, as one row."""

import argparse
import gzip
import math
from pathlib import Path

from planner.accuracy.compare import errors_of, stated
from planner.accuracy.engine_run import Means, PhaseResult, loaded_run, predict_phases
from planner.accuracy.predict import Figures
from planner.accuracy.report import RECORDED, AccuracyReport, RowResult
from planner.calibration.engine_run import EngineRun, sent
from planner.calibration.measurements import Measurement
from planner.deployment import Deployment
from planner.errors import InputError

_GZIP = b"\x1f\x8b"


def is_recording(path: Path) -> bool:
    """Say whether a file is a recording, a JSON document, rather than a table; False for one that can't be read."""
    try:
        with path.open("rb") as file:
            start = file.read(64)
        if start.startswith(_GZIP):
            with gzip.open(path) as file:
                start = file.read(64)
    except (OSError, EOFError):
        return False
    return start.lstrip().startswith(b"{")


def recording_report(path: Path, config: Path | None, gpu: str | None, record: str | None) -> AccuracyReport:
    """Predict the phases of a recording that aren't its grid, from arrivals and lengths.

    path : recording, see planner.calibration.engine_run; config : config.json of the model that ran; gpu : id of the device
    record : id or file of the record to predict with; one fitted on the grid alone has not seen the phases

    Raises InputError for a missing argument and for what can't be read.
    """
    for name, value in (("--config", config), ("--gpu", gpu), ("--record", record)):
        if value is None:
            bound = "must be given for a recording, which does not name it"
            raise InputError(name, "missing", bound, f"Add {name}; `python -m planner accuracy --help` says what it takes")
    run, deployment, chosen = loaded_run(argparse.Namespace(run=path, config=config, gpu=gpu, record=record))
    phases = predict_phases(run, deployment, chosen)
    return AccuracyReport(path.name[:100], "shipped", tuple(_row(run, deployment, phase) for phase in phases))


def _row(run: EngineRun, deployment: Deployment, phase: PhaseResult) -> RowResult:
    row = _measurement(run, deployment, phase)
    predicted = _figures(phase.predicted)
    errors = errors_of(row, predicted) | {"e2e": phase.predicted.e2e_s / phase.measured.e2e_s - 1.0}
    group = (deployment.gpu.id, "vllm", deployment.model.id)
    ends = zip(("ttft", "tpot", "e2e"), phase.low, phase.predicted, phase.high, strict=True)
    ranges = {metric: (low / middle, high / middle) for metric, low, middle, high in ends if metric in errors}
    return RowResult(row, group, None, errors, {}, stated(row) | {"e2e": phase.measured.e2e_s}, ranges)


def _measurement(run: EngineRun, deployment: Deployment, phase: PhaseResult) -> Measurement:
    requests = sent(run, phase.phase)
    span_s = float(requests.arrival_s[-1] - requests.arrival_s[0])
    return Measurement(
        source=f"recording, phase {phase.phase}",
        engine="vLLM",
        engine_version=run.engine.vllm[:500],
        model=deployment.model.id,
        gpu=deployment.gpu.id,
        scenario="open-loop",
        length_kind=RECORDED,
        prompt_tokens=float(requests.prompt_tokens.mean()),
        output_tokens=float(requests.output_tokens.mean()),
        rate_rps=(phase.requests - 1) / span_s if span_s > 0.0 else None,
        requests=phase.requests,
        max_num_seqs=run.engine.max_num_seqs,
        max_num_batched_tokens=run.engine.max_num_batched_tokens,
        async_scheduling=run.engine.async_scheduling,
        ttft_mean_s=phase.measured.ttft_s,
        tpot_mean_s=None if math.isnan(phase.measured.tpot_s) else phase.measured.tpot_s,
        e2e_mean_s=phase.measured.e2e_s,
    )


def _figures(means: Means) -> Figures:
    """Return figures that hold means alone; the rest has no value."""
    return Figures(*[float("nan")] * len(Figures._fields))._replace(
        ttft_mean_s=means.ttft_s, tpot_mean_s=means.tpot_s, e2e_mean_s=means.e2e_s
    )
