"""What a shared machine's drift costs any prediction of a recorded run, whatever the record.

    python -m planner.accuracy.drift_floor RUN.json.gz --config config.json --gpu cpu-recorded --record cpu-recorded/vllm-0.32.0

Two bounds on what a better record could reach. In hindsight: the least error that one speed of the machine leaves, in all phases
together and in each alone. In advance: how far the very step times that a machine has miss its own runs, when they were measured
at another moment of the same drift.
"""

import argparse
import datetime as dt
import sys
from collections.abc import Sequence as Many
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner.accuracy.engine_run import (
    Floats,
    Means,
    PhaseResult,
    add_run_arguments,
    drift_of,
    limits_of,
    loaded_run,
    measured_means,
    predict_phases,
    served,
    served_at,
)
from planner.accuracy.shipped import Redrawn, RunPhase, ShippedRun
from planner.calibration.engine_run import EngineRun, sent
from planner.calibration.records import CalibrationRecord
from planner.deployment import Deployment
from planner.errors import InputError
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients, scaled

FACTORS = tuple(0.8 + 0.0025 * step for step in range(161))
_TICK_S = 0.5
_BLOCK_S = 30.0  # longer than the drift remembers: its correlation is gone after 15 s
_SLOWEST = 1.5
_MOST_DRAWS = 10_000
_AIM = 0.05
COMMAND = (
    "python -m planner.accuracy.drift_floor tests/recorded/vllm_cpu_run.json.gz --config tests/recorded/vllm_cpu_run.config.json "
    "--gpu cpu-recorded --record cpu-recorded/vllm-0.32.0 --draws 200"
)


class Hindsight(NamedTuple):
    """The factor on all step times that leaves the least error, and the largest of the means' errors at it [1]."""

    factor: float
    worst_error: float


def speeds_in_hindsight(run: EngineRun, deployment: Deployment, record: CalibrationRecord) -> dict[str | None, Hindsight]:
    """Return the best speed of each phase alone, and under None that of all phases together, chosen by the outcomes."""
    c, request_s = coefficients_for(deployment, record), record.host.request_s.value
    worst: dict[str | None, Floats] = {}
    for phase in run.tested:
        requests = sent(run, phase)
        measured = measured_means(requests)
        errors = [served(requests, deployment, scaled(c, factor), request_s).errors(measured) for factor in FACTORS]
        worst[phase] = np.abs(np.array(errors, dtype=np.float64)).max(axis=1)
    if not worst:
        raise InputError("phases", 0, "must be recorded beside the grid", "Give a run with requests that were sent over time")
    worst[None] = np.max(list(worst.values()), axis=0)
    return {phase: Hindsight(FACTORS[int(np.argmin(errors))], float(errors.min())) for phase, errors in worst.items()}


class DriftPath:
    """A machine's speed over time: how many times longer than usual steps take, tick by tick."""

    def __init__(self, factors: Floats) -> None:
        self._factors = factors

    def at(self, moment_s: float) -> float:
        """Return the factor at a moment [1]; the last one holds on."""
        return float(self._factors[min(int(moment_s / _TICK_S), len(self._factors) - 1)])


def own_record_errors(
    run: EngineRun, deployment: Deployment, record: CalibrationRecord, draws: int, rng: np.random.Generator
) -> Floats:
    """Return the errors of mean TTFT, TPOT and E2E that step times measured at another moment leave, [draw, phase, metric].

    The drift of the recorded phases is drawn anew in blocks, once for a calibration as long as the recorded grid and once for each
    phase. A phase is served with steps that follow its drift, and predicted with the calibration's mean speed.

    Raises InputError for no draws or more than ten thousand.
    """
    if not 1 <= draws <= _MOST_DRAWS:
        raise InputError("draws", draws, f"must lie between 1 and {_MOST_DRAWS:,}", "Give a hundred or two")
    c = coefficients_for(deployment, record)
    drift = recorded_drift(run, deployment, record)
    phases = frozenset(run.grid)
    grid = [step for step in run.steps if step.phase in phases]
    grid_s = grid[-1].processed_at_s - grid[0].scheduled_at_s
    errors = []
    for _ in range(draws):
        calibrated = float(_redrawn(drift, grid_s, rng).mean())
        errors.append([_phase_errors(run, phase, deployment, (c, drift, calibrated), rng) for phase in run.tested])
    return np.array(errors, dtype=np.float64)


def recorded_drift(run: EngineRun, deployment: Deployment, record: CalibrationRecord) -> Floats:
    """Return the drift of the phases after the grid, end to end and tick by tick, ÷ its mean [1]."""
    c = coefficients_for(deployment, record)
    factors = []
    for phase in run.tested:
        drift, first_s, last_s = drift_of(run, phase, deployment, c)
        factors += [drift.at(moment_s) for moment_s in np.arange(first_s, last_s, _TICK_S)]
    found = np.array(factors, dtype=np.float64)
    return np.asarray(found / found.mean(), dtype=np.float64)


def _redrawn(drift: Floats, seconds: float, rng: np.random.Generator) -> Floats:
    """Return as many seconds of drift, put together from blocks of the recorded one."""
    ticks, block = int(np.ceil(seconds / _TICK_S)), int(_BLOCK_S / _TICK_S)
    starts = rng.integers(0, len(drift), -(-ticks // block))
    places = (starts[:, None] + np.arange(block)[None, :]) % len(drift)
    return np.asarray(drift[places.ravel()[:ticks]], dtype=np.float64)


def _phase_errors(
    run: EngineRun, phase: str, deployment: Deployment, speed: tuple[StepCoefficients, Floats, float], rng: np.random.Generator
) -> Means:
    c, drift, calibrated = speed
    requests = sent(run, phase)
    path = DriftPath(_redrawn(drift, _SLOWEST * float(requests.arrival_s[-1]) + _BLOCK_S, rng))
    real = served_at(requests, limits_of(requests, deployment), c, path)
    return served(requests, deployment, scaled(c, calibrated), 0.0).errors(real)


def report(hindsight: dict[str | None, Hindsight], errors: Floats) -> str:
    """Return both bounds as text."""
    lines = [
        f"{phase or 'all phases':14} best with step times x {best.factor:.3f}: worst error {best.worst_error:.1%}"
        for phase, best in hindsight.items()
    ]
    worst = np.abs(errors).max(axis=(1, 2))
    low, middle, high = np.percentile(worst, (10, 50, 90))
    lines.append(
        f"a machine's own step times, measured at another moment ({len(errors)} draws): worst error of all means "
        f"{middle:.1%}, 80 % of draws {low:.1%} to {high:.1%}; within 5 % in {np.mean(worst <= _AIM):.0%} of draws"
    )
    return "\n".join(lines)


def document(results: Many[PhaseResult], hindsight: dict[str | None, Hindsight], errors: Floats, day: str) -> ShippedRun:
    """Return errors and bounds as the document that ships; day : of the run, YYYY-MM-DD."""

    def percent(value: float) -> float:
        return round(100.0 * float(value), 2)

    phases = []
    for result in results:
        off = result.predicted.errors(result.measured)
        if result.at_own_speed is None:
            raise InputError(f"steps of {result.phase}", 0, "must be recorded beside its requests", "Record every step of the run")
        drifting = max(map(abs, result.at_own_speed.errors(result.measured)))
        phases.append(
            RunPhase(
                phase=result.phase,
                requests=result.requests,
                ttft_pct=percent(off.ttft_s),
                tpot_pct=percent(off.tpot_s),
                e2e_pct=percent(off.e2e_s),
                at_drift_pct=percent(drifting),
                at_own_speed_pct=percent(hindsight[result.phase].worst_error),
            )
        )
    worst = np.abs(errors).max(axis=(1, 2))
    low, middle, high = (percent(value) for value in np.percentile(worst, (10, 50, 90)))
    redrawn = Redrawn(
        draws=len(errors), median_pct=middle, low_pct=low, high_pct=high,
        within_5_pct_share=round(float(np.mean(worst <= _AIM)), 3),
    )  # fmt: skip
    return ShippedRun(
        title="A real engine's runs from its own calibration",
        source="vLLM 0.32 on two shared CPU cores, recorded step by step: a record fitted on twelve bursts alone",
        date=day,
        command=COMMAND,
        phases=tuple(phases),
        at_one_speed_pct=percent(hindsight[None].worst_error),
        redrawn=redrawn,
    )


def main(arguments: list[str] | None = None) -> int:
    """Print what the drift of a recorded machine costs any prediction; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m planner.accuracy.drift_floor", description=main.__doc__)
    add_run_arguments(parser)
    parser.add_argument("--draws", type=int, default=100, help="how often the drift is drawn anew")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the document that ships")
    parser.add_argument("--day", default=dt.datetime.now(dt.UTC).date().isoformat(), help="day of the run; today")
    options = parser.parse_args(arguments)
    try:
        run, deployment, record = loaded_run(options)
        hindsight = speeds_in_hindsight(run, deployment, record)
        errors = own_record_errors(run, deployment, record, options.draws, np.random.default_rng(options.seed))
        if options.out is not None:
            results = predict_phases(run, deployment, record)
            text = document(results, hindsight, errors, options.day).model_dump_json(indent=1)
            options.out.write_text(f"{text}\n", encoding="utf-8")
    except (InputError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{report(hindsight, errors)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
