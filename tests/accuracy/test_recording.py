"""A recorded engine in the accuracy command: the same document as for tables, and what is said when something is missing."""

import json
from pathlib import Path

import pytest

from planner.accuracy.recording import is_recording, recording_report
from planner.cli import main
from planner.errors import InputError

RECORDED = Path(__file__).parent.parent / "recorded"
RUN = RECORDED / "vllm_cpu_run.json.gz"
CONFIG = RECORDED / "vllm_cpu_run.config.json"
TABLE = Path(__file__).parent / "mlperf_subset.csv"
ARGUMENTS = ["--config", str(CONFIG), "--gpu", "cpu-recorded", "--record", "cpu-recorded/vllm-0.32.0"]


def test_the_command_gives_the_document_of_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """The record rests on the recording's bursts; its Poisson runs are held out (hardware_profiles/calibrations/README.md)."""
    assert main(["accuracy", str(RUN), *ARGUMENTS, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["overall"]["rows"] == 3
    assert document["overall"]["predicted_share"] == 1.0
    for metric in ("ttft", "tpot", "e2e"):
        assert document["overall"][metric]["mean_abs_pct"] < 7.0
    assert document["groups"][0]["gpu"] == "cpu-recorded"
    assert document["not_predicted"] == {}


def test_rows_are_the_phases_with_the_means_that_clients_measured() -> None:
    report = recording_report(RUN, CONFIG, "cpu-recorded", "cpu-recorded/vllm-0.32.0")
    rates = [row.measured.rate_rps for row in report.results if row.measured]
    assert rates == pytest.approx([1.5, 3.0, 4.5], rel=0.15)
    assert set(report.results[0].errors) == {"ttft", "tpot", "e2e"}
    assert report.results[0].stated["ttft"] == pytest.approx(0.1518, abs=1e-4)
    assert report.results[2].errors["e2e"] == pytest.approx(0.077, abs=0.02)
    assert "end to end" in report.text()


def test_recordings_are_told_from_tables(tmp_path: Path) -> None:
    assert is_recording(RUN)
    assert not is_recording(TABLE)
    assert not is_recording(tmp_path / "missing.json")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(RUN.read_bytes()[:12])
    assert not is_recording(cut)


@pytest.mark.parametrize("missing", ["--config", "--gpu", "--record"])
def test_a_missing_argument_is_named(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = ARGUMENTS.index(missing)
    assert main(["accuracy", str(RUN), *ARGUMENTS[:place], *ARGUMENTS[place + 2 :]]) == 2
    assert f"{missing} is 'missing'" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [["--gpu", "h100-80g-sxm"], ["--record", "textbook"], ["--config", "config.json"]])
def test_what_is_for_recordings_is_refused_with_a_table(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", str(TABLE), *extra]) == 2
    assert "is for the recording of an engine" in capsys.readouterr().err


def test_priors_alone_are_for_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", str(RUN), *ARGUMENTS, "--records", "none"]) == 2
    assert "--record" in capsys.readouterr().err


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"engine": "<b>vLLM</b>", "steps": [NaN]}', encoding="utf-8")
    with pytest.raises(InputError, match=r"wrong\.json"):
        recording_report(wrong, CONFIG, "cpu-recorded", "cpu-recorded/vllm-0.32.0")
