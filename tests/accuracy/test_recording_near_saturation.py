"""Other phases of a recording's layout, near saturation and beyond, served by the recorded machine with its own drift.

The truth is the simulator's, with steps that follow a stretch of the drift which the real phases recorded (`DriftPath`), under
arrivals and lengths drawn from the recorded requests: what a phase at 6 requests/s or one of requests sent at once would hold.
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.accuracy.drift_floor import DriftPath, recorded_drift
from planner.accuracy.engine_run import Floats, limits_of, loaded_run, predict_phases, step_log_sd
from planner.accuracy.engine_run import main as run_main
from planner.accuracy.recording import recording_report
from planner.calibration.engine_run import EngineRun, Sent, read_engine_run, sent
from planner.calibration.records import CalibrationRecord
from planner.cli import main
from planner.deployment import Deployment
from planner.simulator.plain_loop import Sequence
from planner.simulator.plain_run import run_plain, step_time_of
from planner.step_coefficients import coefficients_for

RECORDED = Path(__file__).parent.parent / "recorded"
RUN, CONFIG = RECORDED / "vllm_cpu_run.json.gz", RECORDED / "vllm_cpu_run.config.json"
GPU, RECORD = "cpu-recorded", "cpu-recorded/vllm-0.32.0"
RATES: dict[str, float | None] = {"poisson-5.0": 5.0, "poisson-6.0": 6.0, "saturated": None}
REQUESTS = 200


class Machine:
    """The recorded machine as the record and its drift describe it."""

    def __init__(self) -> None:
        options = argparse.Namespace(run=RUN, config=CONFIG, gpu=GPU, record=RECORD)
        found: tuple[EngineRun, Deployment, CalibrationRecord] = loaded_run(options)
        self.run, self.deployment, self.record = found
        self.drift: Floats = recorded_drift(*found)

    def phase(self, rate_rps: float | None, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Return the requests of a phase as their client would have seen them."""
        pool = sent(self.run, "poisson-3.0")
        rows = rng.integers(0, len(pool.prompt_tokens), REQUESTS)
        gaps = np.zeros(REQUESTS) if rate_rps is None else rng.exponential(1.0 / rate_rps, REQUESTS)
        nothing = np.zeros(REQUESTS)
        asked = Sent(np.cumsum(gaps), pool.prompt_tokens[rows], pool.output_tokens[rows], nothing, nothing)
        path = DriftPath(np.roll(self.drift, int(rng.integers(0, len(self.drift)))))
        modelled = step_time_of(coefficients_for(self.deployment, self.record))
        columns = zip(asked.arrival_s.tolist(), asked.prompt_tokens.tolist(), asked.output_tokens.tolist(), strict=True)
        sequences = [Sequence(index, *row) for index, row in enumerate(columns)]
        limits = limits_of(asked, self.deployment)
        done = run_plain(sequences, limits, lambda batch: modelled(batch) * path.at(batch.start_s)).sequences
        outside_s = self.record.host.request_s.value
        return [
            {
                "id": f"r{one.index}", "arrival_s": one.arrival_s, "prompt": int(asked.prompt_tokens[one.index]),
                "output": one.output_tokens, "ttft_s": (one.first_token_s or 0.0) - one.arrival_s + outside_s,
                "e2e_s": (one.finish_s or 0.0) - one.arrival_s + outside_s,
            }
            for one in done
        ]  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


@pytest.fixture(scope="module")
def recording(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    document = json.loads(gzip.decompress(RUN.read_bytes()))
    grid = [step for step in document["steps"] if step["phase"].startswith("grid")]
    bursts = {name: rows for name, rows in document["requests"].items() if name.startswith("grid")}
    rng = np.random.default_rng(11)
    phases = {name: machine.phase(rate, rng) for name, rate in RATES.items()}
    path = tmp_path_factory.mktemp("recording") / "other_rates.json"
    path.write_text(json.dumps({"engine": document["engine"], "steps": grid, "requests": bursts | phases}), encoding="utf-8")
    return path


def test_other_rates_are_predicted_with_intervals_that_hold_them(machine: Machine, recording: Path) -> None:
    """Steps follow a drift of 5 to 10 %, on which the record's spread of step times is no wider than it needs to be."""
    run = read_engine_run(recording.read_bytes(), recording.name)
    results = {result.phase: result for result in predict_phases(run, machine.deployment, machine.record)}
    assert list(results) == list(RATES)
    for result in results.values():
        for low, middle, high, truth in zip(result.low, result.predicted, result.high, result.measured, strict=True):
            assert low <= truth <= high
            assert low < middle < high
        assert (result.step_ratio, result.at_own_speed) == (None, None)


def test_intervals_widen_towards_saturation(machine: Machine) -> None:
    results = {result.phase: result for result in predict_phases(machine.run, machine.deployment, machine.record)}
    widths = {name: (one.high.e2e_s - one.low.e2e_s) / one.predicted.e2e_s for name, one in results.items()}
    assert widths["poisson-1.5"] < widths["poisson-3.0"] < widths["poisson-4.5"]
    assert widths["poisson-1.5"] < 0.35


def test_the_command_reports_phases_without_steps(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["accuracy", str(recording), "--config", str(CONFIG), "--gpu", GPU, "--record", RECORD]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["overall"]["predicted_share"] == 1.0
    assert [phase["phase"] for phase in document["phases"]] == [f"recording, phase {name}" for name in RATES]
    saturated = document["phases"][-1]["e2e"]
    assert saturated["held"]
    assert saturated["low"] < saturated["measured"] < saturated["high"]
    assert main(arguments) == 0
    assert "80 % " in capsys.readouterr().out


def test_a_record_that_has_not_seen_the_machine_is_less_sure(machine: Machine) -> None:
    """A record 30 % off the recording's bursts can't claim its own residuals."""
    record = machine.record
    slow = {name: 0.7 * dict(record.parameters())[name].value for name in ("compute_efficiency.fp32", "kv_read_efficiency")}
    assert step_log_sd(machine.run, machine.deployment, record) < 0.1
    assert step_log_sd(machine.run, machine.deployment, record.with_values(slow)) > 0.15


def test_a_recording_without_bursts_takes_the_spread_between_deployments(recording: Path, tmp_path: Path) -> None:
    document = json.loads(recording.read_text(encoding="utf-8"))
    document["steps"] = []
    document["requests"] = {"poisson-6.0": document["requests"]["poisson-6.0"]}
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(document), encoding="utf-8")
    with_bursts = recording_report(recording, CONFIG, GPU, RECORD).phases[1][1]
    without = recording_report(bare, CONFIG, GPU, RECORD).phases[0][1]
    assert without[0].high / without[0].low > with_bursts[0].high / with_bursts[0].low


def test_single_tokens_have_no_tpot(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(recording.read_text(encoding="utf-8"))
    for request in document["requests"]["poisson-6.0"]:
        request["output"], request["e2e_s"] = 1, request["ttft_s"]
    path = tmp_path / "single.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    result = recording_report(path, CONFIG, GPU, RECORD).results[1]
    assert set(result.errors) == {"ttft", "e2e"}
    assert run_main([str(path), "--config", str(CONFIG), "--gpu", GPU, "--record", RECORD, "--json"]) == 0
    phases = {phase["phase"]: phase for phase in json.loads(capsys.readouterr().out)}
    assert phases["poisson-6.0"]["predicted"]["tpot_s"] is None
    assert phases["poisson-5.0"]["low"]["tpot_s"] < phases["poisson-5.0"]["high"]["tpot_s"]
