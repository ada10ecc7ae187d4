"""Predicts the phases of a recorded engine from arrivals and lengths, and says how far that is from what its clients measured.

    python -m planner.accuracy.engine_run RUN.json.gz --config config.json --gpu cpu-recorded --record cpu-recorded/vllm-0.32.0

The record is one that was fitted on the recording's grid alone, by id or as a file. For each phase the report gives mean TTFT, TPOT
and E2E, and the step model's bias on the batches that really ran: a machine whose speed drifted between grid and phase shows there.
The last columns are the errors when steps follow that drift, five seconds at a time: what scheduling, arrivals and the time outside
the engine leave. Below each phase stand the ends of the 80 % interval: the same requests served with step times at the ends of what
the record and the recording's bursts leave open, so that it widens near saturation.
"""

import argparse
import datetime as dt
import json
import math
import sys
from collections.abc import Sequence as Many
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from planner.calibration.engine_run import EngineRun, RunStep, Sent, config_from_json, engine_row, read_engine_run, ready_at_s, sent
from planner.calibration.fit.collected import Batch, deployment_of, shape_of
from planner.calibration.reading import read_bounded
from planner.calibration.records import CalibrationRecord, load_record, record_from_json
from planner.calibration.spread import Z80, spread_of
from planner.deployment import Deployment
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.simulator import EngineLimits, RequestTable, simulate, values_s
from planner.simulator.plain_loop import Sequence
from planner.simulator.plain_run import run_plain, step_time_of
from planner.step_coefficients import coefficients_for, work_of
from planner.step_model import StepCoefficients, StepShape, scaled, step_s

Floats = npt.NDArray[np.float64]

WINDOW_S = 5.0
"""Span over which the machine's speed is taken [s]: some hundred steps, and shorter than its drift."""

METRICS: tuple[Literal["ttft"], Literal["tpot"], Literal["e2e"]] = ("ttft", "tpot", "e2e")


class Means(NamedTuple):
    """Mean TTFT, TPOT and E2E of the requests of a phase [s]."""

    ttft_s: float
    tpot_s: float
    e2e_s: float

    def errors(self, measured: "Means") -> "Means":
        """Return predicted ÷ measured - 1 of each [1]."""
        return Means(*(mine / theirs - 1.0 for mine, theirs in zip(self, measured, strict=True)))


class PhaseResult(NamedTuple):
    """A phase as it was measured and predicted.

    low, high : ends of the 80 % interval
    step_ratio : time that the step model predicts for the batches that really ran ÷ their measured time [1]
    at_own_speed : predicted with step times that follow the machine's drift; both None where the phase's steps weren't recorded
    """

    phase: str
    requests: int
    measured: Means
    predicted: Means
    low: Means
    high: Means
    step_ratio: float | None
    at_own_speed: Means | None


def predict_phases(run: EngineRun, deployment: Deployment, record: CalibrationRecord) -> tuple[PhaseResult, ...]:
    """Predict the phases of a recording that aren't its grid.

    deployment : model, device and engine as recorded; record : what the device reaches
    """
    log_sd = step_log_sd(run, deployment, record)
    return tuple(_phase(run, phase, deployment, record, log_sd) for phase in run.tested)


def served(requests: Sent, deployment: Deployment, coefficients: StepCoefficients, request_s: float) -> Means:
    """Return the mean times of requests as the simulator serves them; request_s : spent outside the engine [s]."""
    table = RequestTable(requests.arrival_s, requests.prompt_tokens, requests.output_tokens)
    result = simulate(table, limits_of(requests, deployment), coefficients)
    ttft, tpot, e2e = (_mean(values_s(result, metric)) for metric in METRICS)
    return Means(ttft + request_s, tpot, e2e + request_s)


def interval(requests: Sent, deployment: Deployment, record: CalibrationRecord, log_sd: float) -> tuple[Means, Means]:
    """Return the ends of the 80 % interval of mean times [s].

    log_sd : spread of the factor on all step times, as a standard deviation of its logarithm [1]

    The requests are served with all step times at the ends of that factor's 80 %: a queue magnifies it as it does in the machine.
    """
    c, request_s = coefficients_for(deployment, record), record.host.request_s.value
    factors = [math.exp(sign * Z80 * log_sd) for sign in (-1.0, 0.0, 1.0)]
    found = np.array([served(requests, deployment, scaled(c, factor), request_s) for factor in factors])
    return Means(*found.min(axis=0).tolist()), Means(*found.max(axis=0).tolist())


def step_log_sd(run: EngineRun, deployment: Deployment, record: CalibrationRecord) -> float:
    """Return how far a phase's step times may lie from a record's, as a standard deviation of the factor's logarithm [1].

    A record that was fitted on the recording's bursts departs by its own residuals; how far it lies from the bursts on the whole
    shows whether it was, and is added. Without bursts, or for a record without residuals, it is the spread between deployments.
    """
    own = None if record.evidence is None else record.evidence.residual_log_sd
    if own is None or not run.grid:
        return spread_of(record).step_log_sd
    c, window_tokens = coefficients_for(deployment, record), work_of(deployment).window_tokens
    modelled_s = measured_s = 0.0
    for phase in run.grid:
        shape, seconds = batches_of(run, phase, window_tokens)
        modelled_s += float(np.sum(step_s(shape, c)))
        measured_s += float(seconds.sum())
    return math.hypot(own, math.log(modelled_s / measured_s))


def limits_of(requests: Sent, deployment: Deployment) -> EngineLimits:
    """Return the engine's limits, with a KV cache that is never short."""
    config = deployment.engine
    longest = config.max_model_len or int((requests.prompt_tokens + requests.output_tokens).max())
    return EngineLimits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        block_size=config.block_size,
        num_blocks=config.max_num_seqs * -(-longest // config.block_size),
        max_model_len=config.max_model_len,
        async_scheduling=config.async_scheduling,
        scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
    )


def measured_means(requests: Sent) -> Means:
    """Return the mean times that the clients measured; a single token has no TPOT."""
    several = requests.output_tokens > 1
    decode_s = (requests.e2e_s - requests.ttft_s)[several] / (requests.output_tokens[several] - 1)
    return Means(float(requests.ttft_s.mean()), _mean(decode_s), float(requests.e2e_s.mean()))


def _mean(values: Floats) -> float:
    """Return the mean of the values that are numbers; NaN without any, as where each request asks for one token."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def batches_of(run: EngineRun, phase: str, window_tokens: float) -> tuple[StepShape, Floats]:
    """Return the batches of a phase as they really ran, and how long each step took until the next decision [s].

    window_tokens : sliding window of the model's windowed layers [token]; 0 without one
    """
    steps = [step for step in run.steps if step.phase == phase]
    budget = run.engine.max_num_batched_tokens
    seconds = np.array([ready_s - step.scheduled_at_s for step, ready_s in zip(steps, ready_at_s(steps), strict=True)])
    return shape_of([_batch(step, budget) for step in steps], window_tokens), seconds


def _batch(step: RunStep, budget: int) -> Batch:
    """A single new token on cached ones is a decode row; a chunk ends its prompt unless it is the last of a batch that is full."""
    rows = list(zip(step.tokens, step.context, strict=True))
    cut = len(rows) - 1 if sum(step.tokens) >= budget else len(rows)
    decode = tuple((1.0, float(cached)) for new, cached in rows if new == 1 and cached > 0)
    prefill = tuple(
        (1.0, float(new), float(cached), float(place < cut)) for place, (new, cached) in enumerate(rows) if new > 1 or cached == 0
    )
    return Batch(decode, prefill, step.processed_at_s - step.scheduled_at_s, 0)


def _phase(run: EngineRun, phase: str, deployment: Deployment, record: CalibrationRecord, log_sd: float) -> PhaseResult:
    c, request_s = coefficients_for(deployment, record), record.host.request_s.value
    requests = sent(run, phase)
    low, high = interval(requests, deployment, record, log_sd)
    step_ratio, own = None, None
    if any(step.phase == phase for step in run.steps):
        drift, _, _ = drift_of(run, phase, deployment, c)
        inside = served_at(requests, limits_of(requests, deployment), c, drift)
        step_ratio, own = drift.step_ratio, Means(inside.ttft_s + request_s, inside.tpot_s, inside.e2e_s + request_s)
    return PhaseResult(
        phase,
        len(requests.arrival_s),
        measured_means(requests),
        served(requests, deployment, c, request_s),
        low,
        high,
        step_ratio,
        own,
    )


def drift_of(run: EngineRun, phase: str, deployment: Deployment, c: StepCoefficients) -> tuple["Drift", float, float]:
    """Return the machine's drift in a phase, against a step model, and the moments of its first and last decision [s].

    Raises InputError when none of the phase's steps were recorded.
    """
    shape, seconds = batches_of(run, phase, work_of(deployment).window_tokens)
    if not len(seconds):
        raise InputError(f"steps of {phase}", 0, "must be recorded beside its requests", "Record every step of the run")
    decided_s = np.array([step.scheduled_at_s for step in run.steps if step.phase == phase])
    modelled = np.asarray(step_s(shape, c), dtype=np.float64)
    # clients and engine have clocks of their own; the first request meets an engine at rest
    moments = decided_s - decided_s[0] + sent(run, phase).arrival_s[0]
    return Drift(moments, seconds, modelled), float(moments[0]), float(moments[-1])


class Speed(Protocol):
    """How many times longer than the model says steps take, moment by moment."""

    def at(self, moment_s: float) -> float:
        """Return the factor at a moment of the phase [1]."""


class Drift:
    """How many times longer than the model says the machine's steps took, around any moment of a phase."""

    def __init__(self, decided_s: Floats, measured: Floats, modelled: Floats) -> None:
        self._at_s = np.arange(decided_s[0], decided_s[-1] + WINDOW_S, 0.1 * WINDOW_S)
        first = np.searchsorted(decided_s, self._at_s - 0.5 * WINDOW_S)
        last = np.searchsorted(decided_s, self._at_s + 0.5 * WINDOW_S)
        took, should = (np.concatenate([[0.0], np.cumsum(values)]) for values in (measured, modelled))
        seen = last > first
        self._at_s = self._at_s[seen]
        self.step_ratio = float(should[-1] / took[-1])
        self._factor = (took[last] - took[first])[seen] / (should[last] - should[first])[seen]

    def at(self, moment_s: float) -> float:
        """Return the factor at a moment of the phase [1]."""
        return float(np.interp(moment_s, self._at_s, self._factor))


def served_at(requests: Sent, limits: EngineLimits, c: StepCoefficients, speed: Speed) -> Means:
    """Return the mean times inside the engine of requests whose steps follow a machine's speed."""
    modelled = step_time_of(c)
    columns = (requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist())
    sequences = [Sequence(index, *row) for index, row in enumerate(zip(*columns, strict=True))]
    result = run_plain(sequences, limits, lambda batch: modelled(batch) * speed.at(batch.start_s))
    served_one = sorted((one for one in result.sequences if one.finish_s is not None), key=lambda one: one.index)
    first, last, sent_s, tokens = np.array(
        [(one.first_token_s, one.finish_s, one.arrival_s, one.output_tokens) for one in served_one], dtype=np.float64
    ).T
    several = tokens > 1
    tpot_s = _mean((last - first)[several] / (tokens[several] - 1.0))
    return Means(float((first - sent_s).mean()), tpot_s, float((last - sent_s).mean()))


def report(results: Many[PhaseResult]) -> str:
    """Return the results as a table."""
    lines = [
        f"{'phase':14} {'requests':>8}  "
        + "  ".join(f"{f'mean {metric.upper()} [s]':>26}" for metric in METRICS)
        + "  step ratio  at own speed"
    ]
    for result in results:
        errors = result.predicted.errors(result.measured)
        cells = [
            f"{theirs:8.4f} {mine:8.4f} {error:+8.1%}"
            for theirs, mine, error in zip(result.measured, result.predicted, errors, strict=True)
        ]
        last = f"{'–':>10}  –"
        if result.step_ratio is not None and result.at_own_speed is not None:
            own = " ".join(f"{error:+.1%}" for error in result.at_own_speed.errors(result.measured))
            last = f"{result.step_ratio:10.3f}  {own}"
        lines.append(f"{result.phase:14} {result.requests:8d}  " + "  ".join(cells) + f"  {last}")
        ends = "  ".join(f"{low:17.4f} {high:8.4f}" for low, high in zip(result.low, result.high, strict=True))
        lines.append(f"{'  80 % interval':23}  {ends}")
    return "\n".join(lines)


def document(results: Many[PhaseResult]) -> list[dict[str, object]]:
    """Return the results as plain values."""
    return [
        {
            "phase": result.phase, "requests": result.requests, "measured": _known(result.measured),
            "predicted": _known(result.predicted), "errors": _known(result.predicted.errors(result.measured)),
            "low": _known(result.low), "high": _known(result.high), "step_ratio": result.step_ratio,
            "errors_at_own_speed": None if result.at_own_speed is None else _known(result.at_own_speed.errors(result.measured)),
        }
        for result in results
    ]  # fmt: skip


def _known(means: Means) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in means._asdict().items()}


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a recording and a record."""
    parser.add_argument("run", type=Path, help="recording, JSON or JSON.gz")
    parser.add_argument("--config", type=Path, required=True, help="config.json of the model that ran, with torch_dtype")
    parser.add_argument("--gpu", required=True, help="id of the device, such as cpu-recorded")
    parser.add_argument("--record", required=True, help="id of a calibration record, or its file")


def loaded_run(options: argparse.Namespace) -> tuple[EngineRun, Deployment, CalibrationRecord]:
    """Return the recording, its deployment and the record that the arguments name; InputError where one can't be read."""
    run = read_engine_run(options.run.read_bytes(), options.run.name)
    path = Path(options.record)
    record = record_from_json(read_bounded(path), path.name) if path.is_file() else load_record(options.record)
    engine = engine_row(run, config_from_json(options.config), "recorded", dt.datetime.now(dt.UTC))
    return run, deployment_of(engine, load_gpu(options.gpu), run.engine.vllm.split()[0]), record


def main(arguments: list[str] | None = None) -> int:
    """Predict the phases of a recording and print the errors; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m planner.accuracy.engine_run", description=main.__doc__)
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        results = predict_phases(*loaded_run(options))
    except (InputError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    text = json.dumps(document(results), indent=1) if options.json else report(results)
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
