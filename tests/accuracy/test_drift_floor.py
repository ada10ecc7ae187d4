"""What the recorded machine's drift costs any prediction: known on machines of one speed, and on the recorded one."""

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from planner.accuracy.drift_floor import DriftPath, document, main, own_record_errors, recorded_drift, speeds_in_hindsight
from planner.accuracy.engine_run import limits_of, predict_phases, served, served_at
from planner.accuracy.shipped import shipped_run
from planner.calibration.engine_run import EngineRun, config_from_json, engine_row, read_engine_run, sent
from planner.calibration.fit.collected import deployment_of
from planner.calibration.records import load_record
from planner.deployment import Deployment
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.step_coefficients import coefficients_for
from planner.step_model import scaled

RECORDED = Path(__file__).parent.parent / "recorded"
RUN, CONFIG = RECORDED / "vllm_cpu_run.json.gz", RECORDED / "vllm_cpu_run.config.json"
RECORD = load_record("cpu-recorded/vllm-0.32.0")


@pytest.fixture(scope="module")
def run() -> EngineRun:
    return read_engine_run(RUN.read_bytes(), RUN.name)


@pytest.fixture(scope="module")
def deployment(run: EngineRun) -> Deployment:
    engine = engine_row(run, config_from_json(CONFIG), "llama", dt.datetime(2026, 11, 30, tzinfo=dt.UTC))
    return deployment_of(engine, load_gpu("cpu-recorded"), "0.32.0")


def test_what_ships_is_what_the_record_gives_now(run: EngineRun, deployment: Deployment) -> None:
    results, hindsight = predict_phases(run, deployment, RECORD), speeds_in_hindsight(run, deployment, RECORD)
    made, shipped = document(results, hindsight, np.full((1, 3, 3), 0.1), "2026-11-30"), shipped_run()
    assert made.at_one_speed_pct == pytest.approx(shipped.at_one_speed_pct, abs=0.05)
    for mine, theirs in zip(made.phases, shipped.phases, strict=True):
        assert mine.phase == theirs.phase
        for name in ("ttft_pct", "tpot_pct", "e2e_pct", "at_drift_pct", "at_own_speed_pct"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), abs=0.05), name
    assert shipped.redrawn.draws >= 100
    assert made.redrawn.within_5_pct_share == 0.0


def test_no_single_speed_brings_all_runs_within_five_percent_and_each_runs_own_does(run: EngineRun, deployment: Deployment) -> None:
    found = speeds_in_hindsight(run, deployment, RECORD)
    together = found.pop(None)
    assert together.worst_error == pytest.approx(0.073, abs=0.004)
    assert together.worst_error > 0.05
    assert all(best.worst_error < 0.015 for best in found.values())
    assert [best.factor for best in found.values()] == pytest.approx([0.975, 1.025, 0.963], abs=0.004)


def test_a_machine_of_one_speed_is_predicted_by_its_scaled_step_times(run: EngineRun, deployment: Deployment) -> None:
    c, requests = coefficients_for(deployment, RECORD), sent(run, "poisson-3.0")
    real = served_at(requests, limits_of(requests, deployment), c, DriftPath(np.full(10, 1.1)))
    assert max(map(abs, served(requests, deployment, scaled(c, 1.1), 0.0).errors(real))) < 1e-3
    assert min(served(requests, deployment, c, 0.0).errors(real)) < -0.1


def test_even_a_machines_own_step_times_miss_by_its_drift(run: EngineRun, deployment: Deployment) -> None:
    drift = recorded_drift(run, deployment, RECORD)
    assert drift.mean() == pytest.approx(1.0)
    assert 0.05 < drift.std() < 0.12
    errors = own_record_errors(run, deployment, RECORD, 4, np.random.default_rng(1))
    assert errors.shape == (4, 3, 3)
    assert np.median(np.abs(errors).max(axis=(1, 2))) > 0.05
    with pytest.raises(InputError, match="draws"):
        own_record_errors(run, deployment, RECORD, 0, np.random.default_rng(1))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(RUN), "--config", str(CONFIG), "--gpu", "cpu-recorded", "--record", "cpu-recorded/vllm-0.32.0", "--draws", "1"]
    assert main(arguments) == 0
    assert "all phases     best with step times x 0.99" in capsys.readouterr().out
    assert main([*arguments, "--out", str(tmp_path / "made.json"), "--day", "2026-01-02"]) == 0
    assert '"date": "2026-01-02"' in (tmp_path / "made.json").read_text()
    assert main([*arguments[:-1], "0"]) == 2
    assert "draws" in capsys.readouterr().err
