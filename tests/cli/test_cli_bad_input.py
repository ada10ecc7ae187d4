"""Wrong input at the shell: one line on standard error that names the field, and exit status 2."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli import main
from planner.errors import InputError
from planner.paths import ROOT_DIR
from planner.scenario import RateLoad, Scenario


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a verb that must be refused and return its one line."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("planner: ")
    return captured.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "must be JSON"),
        (b"\xff\x00\x01", "must be JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "4300 digits"),
        (b"[" * 60_000, "must be JSON"),
        (b"x" * 70_000, "at most 65536 bytes"),
        (b'{"model": {"id": "\\u001b[2J\\n"}}', "model.id"),
    ],
    ids=["empty", "binary", "long integer", "deep", "large", "control characters"],
)
def test_a_scenario_file_that_cannot_be_read(text: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.json"
    path.write_bytes(text)
    assert says in refused(["plan", "--scenario", str(path)], capsys)


def test_a_plan_as_printed_is_taken_for_its_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"document_version": 1, "scenario": {"model": {"id": "no-such-model"}}}))
    assert "no-such-model" in refused(["plan", "--scenario", str(path)], capsys)


def test_no_more_of_a_scenario_file_is_read_than_a_scenario_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert "at most 65536 bytes" in refused(["plan", "--scenario", "/dev/zero"], capsys)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\u202eb", "a\udcffb"])
def test_a_message_is_one_printable_line_whatever_a_file_is_called(name: str) -> None:
    assert str(InputError(f"{name}.toml", 1, f"must be {name}", f"Rename {name}")).isprintable()


@pytest.mark.parametrize("share", ["nan", "inf", "-1", "0", "1e-308", "1.1"])
@pytest.mark.parametrize("flag", ["--e-mem", "--e-comp"])
def test_an_efficiency_that_no_gpu_has(flag: str, share: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "at least 0.001 and at most 1" in refused(["questions", f"{flag}={share}"], capsys)


def shell(command: str, encoding: str = "utf-8") -> "subprocess.CompletedProcess[bytes]":
    """Run `planner` as a shell does; command : its arguments and redirections."""
    line = f"exec {shlex.quote(sys.executable)} -m planner {command}"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(["/bin/sh", "-c", line], cwd=ROOT_DIR, env=environment, capture_output=True, check=False)


def test_what_a_terminal_cannot_show_is_escaped() -> None:
    done = shell("gpus", "ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2013" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_cannot_be_written_is_one_line() -> None:
    done = shell("models > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith(b"planner: the output can't be written")
    assert done.stderr.count(b"\n") == 1


def test_a_reader_that_leaves_early_is_no_fault() -> None:
    done = shell("models | head -1")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs signals as POSIX has them")
def test_an_interrupt_is_one_line() -> None:
    code = "import sys; from planner import __main__, cli; cli._gpus = lambda _: signal.raise_signal(signal.SIGINT)"
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's background jobs ignore it
    line = f"{heard}; {code}; sys.argv = ['planner', 'gpus']; sys.exit(__main__.run())"
    done = subprocess.run([sys.executable, "-c", line], cwd=ROOT_DIR, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"planner: interrupted\n")


def test_a_scenario_comes_from_standard_input_too() -> None:
    done = shell("plan --scenario - < /dev/null")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"must be JSON" in done.stderr
    closed = shell("plan --scenario - <&-")
    assert closed.returncode == 2
    assert b"which is closed" in closed.stderr


def test_flags_without_effect_and_files_without_a_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--active-share" in refused(["plan", "--active-share", "0.3"], capsys)
    assert "--ttft-p99" in refused(["plan", "--offline", "--ttft-p99", "1"], capsys)
    assert "FILE" in refused(["accuracy", ""], capsys)
    table = ["accuracy", "tests/accuracy/serving_subset.csv", "--siblings"]
    assert "--config" in refused([*table, "--config", "config.json"], capsys)
    assert "--records" in refused([*table, "--records", "none"], capsys)


def test_offline_work_gets_a_batch_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--offline", "--tokens-per-day", "1e9", "--gpu", "h100-80g-sxm", "--tp", "1"]) == 0
    assert "vllm run-batch -i requests.jsonl" in capsys.readouterr().out


def test_the_help_of_a_plan_names_the_default_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["plan", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    usual = Scenario()
    load = usual.workload.load
    assert left.value.code == 0
    assert isinstance(load, RateLoad)
    assert (
        f"{usual.workload.id} at {load.requests_per_s:g} requests a second, {usual.model.id} in {usual.model.quantization}" in said
    )
    assert f"p99 TTFT {usual.targets.ttft_p99_s:g} s, p99 TPOT {usual.targets.tpot_p99_s:g} s" in said
    assert f"headroom {usual.fleet.headroom:g}, spares {usual.fleet.spare_replicas}" in said
    assert f"vLLM {usual.engine.version}, seed {usual.seed}." in said


@pytest.mark.parametrize(
    "verb",
    [
        "plan",
        "simulate",
        "owned",
        "models",
        "gpus",
        "workloads",
        "questions",
        "memory-check",
        "accuracy",
        "calibrate",
        "bench",
        "compile",
    ],
)
def test_every_verb_says_what_it_does(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    described = capsys.readouterr().out.split("\n\n")[1]
    assert described.endswith(".")
    assert described[0].isupper()


def test_an_owned_machines_price_is_what_the_plan_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """$325k, 30 % residual, 4 years, 7 kW at PUE 1.3 and $0.10, colocation $200 × 10.2 kW: $0.81 + $0.11 + $0.35."""
    flags = "--capex 325000 --residual 0.3 --years 4 --wall-power 7000 --pue 1.3 --usd-per-kwh 0.1 --colocation 2040 --gpus 8"
    assert main(["owned", *flags.split()]) == 0
    assert capsys.readouterr().out == "$1.27 a GPU-hour\n"
    assert main(["owned", *flags.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["usd_per_gpu_hour"] == pytest.approx(1.27, abs=0.01)
    assert main(["owned", *flags.replace("--years 4", "--years 0").split()]) == 2
    assert "owned.years is 0.0: must be a number from 0.1 to 50" in capsys.readouterr().err
