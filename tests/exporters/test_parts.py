"""The parts of a plan from the shell: each by its name, alone on standard output."""

import csv
import io
import json

import pytest
import yaml

from planner.cli import EXIT_INPUT, EXIT_OK, main
from planner.exporters.parts import PARTS

ONE_GPU = ["plan", "--gpu", "h100-80g-sxm", "--tp", "1"]


def printed(part: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main([*ONE_GPU, "--part", part, *more]) == EXIT_OK
    return capsys.readouterr().out


def test_each_part_is_alone_and_of_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("command", capsys).startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct ")
    assert printed("check", capsys).startswith("vllm bench serve ")
    assert {"timestamp", "input_length", "output_length", "hash_ids"} == set(
        json.loads(printed("requests", capsys).splitlines()[0])
    )
    assert [each["kind"] for each in yaml.safe_load_all(printed("kubernetes", capsys))] == ["Deployment", "Service"]
    assert yaml.safe_load(printed("autoscaling", capsys))["kind"] == "ScaledObject"
    assert set(yaml.safe_load(printed("alerts", capsys))) == {"groups"}
    rows = list(csv.DictReader(io.StringIO(printed("candidates", capsys))))
    assert sum(row["chosen"] == "True" for row in rows) == 1


def test_the_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in PARTS)


def test_another_name_and_a_plan_without_the_part_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONE_GPU, "--part", "pdf"]) == EXIT_INPUT
    assert "must be one of command, check" in capsys.readouterr().err
    assert main([*ONE_GPU, "--part", "kubernetes", "--offline"]) == EXIT_INPUT
    assert "batch job" in capsys.readouterr().err
    assert main([*ONE_GPU, "--part", "command", "--ttft-p99", "0.0001"]) == EXIT_INPUT
    assert "nothing to start" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*ONE_GPU, "--part", "command", "--json"])
