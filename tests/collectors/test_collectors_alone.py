"""Each collector is one file that runs alone: what it imports, what it shares with the others, and how it keeps its records."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.collectors.fakes import COLLECTORS, collector

NAMES = ("http", "links", "torch", "vllm")
SHARED = {
    "refuse": NAMES,
    "whole_number": NAMES,
    "RecordFile": NAMES,
    "output_of": ("torch", "vllm"),
    "look": ("torch", "vllm"),
    "seen": ("torch", "vllm"),
}
HEADER = {"collector": "links", "machine": {"device_name": "A"}, "software": {"torch": "2.13.0"}, "settings": {}}


def source(name: str) -> str:
    return (COLLECTORS / f"collect_{name}.py").read_text(encoding="utf-8")


def definitions(name: str) -> dict[str, str]:
    tree = ast.parse(source(name))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: ast.unparse(node) for node in tree.body if isinstance(node, kinds)}


@pytest.fixture(scope="module")
def links() -> ModuleType:
    return collector("links")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_only_the_standard_library_is_imported_at_the_top(name: str) -> None:
    nodes = [node for node in ast.walk(ast.parse(source(name))) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module).partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)
    assert "planner" not in source(name)


@pytest.mark.parametrize("part", SHARED)
def test_what_the_files_share_is_the_same_in_each(part: str) -> None:
    found = {definitions(name)[part] for name in SHARED[part]}
    assert len(found) == 1


@pytest.mark.parametrize("name", NAMES)
def test_help_needs_nothing_but_python(name: str, tmp_path: Path) -> None:
    copy = tmp_path / f"collect_{name}.py"
    copy.write_text(source(name), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", str(copy), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "--out" in done.stdout
    assert "--quick" in done.stdout


@pytest.mark.parametrize("name", ["torch", "links", "vllm"])
def test_missing_software_is_said_with_the_remedy(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(COLLECTORS / f"collect_{name}.py"), "--out", str(tmp_path / "x.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "must be installed" in done.stderr
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.parametrize("value", ["0", "-1", "1e3", "nan", "9" * 5000, "٣", "<b>", ""])
def test_numbers_are_bounded_and_the_message_says_how(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        collector("http").parse(["--out", "x", "--max-requests", value])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "whole number from 1 to 1000000" in message or "expected one argument" in message


def test_records_are_lines_and_a_second_run_knows_them(links: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    links.RecordFile(path, HEADER).write({"record": "launch", "key": "one", "median_s": 1e-6})
    again = links.RecordFile(path, HEADER)
    assert again.keys == {"one"}
    assert [row["record"] for row in lines(path)] == ["header", "launch", "header"]
    assert all(row["at_utc"].endswith("Z") for row in lines(path))


def test_a_line_cut_off_by_a_kill_stays_apart(links: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    links.RecordFile(path, HEADER).write({"record": "launch", "key": "one"})
    with path.open("ab") as file:
        file.write(b'{"record": "launch", "key": "tw')
    again = links.RecordFile(path, HEADER)
    again.write({"record": "launch", "key": "two"})
    text = path.read_text().splitlines()
    assert again.keys == {"one"}
    assert text[2] == '{"record": "launch", "key": "tw'
    assert json.loads(text[-1])["key"] == "two"


def test_a_skipped_point_is_tried_again(links: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    links.RecordFile(path, HEADER).write({"record": "skipped", "key": "one", "reason": "no room"})
    assert links.RecordFile(path, HEADER).keys == set()


@pytest.mark.parametrize("part", ["machine", "software", "collector", "settings"])
def test_another_machine_or_version_is_refused_by_name(
    links: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    path = tmp_path / "a.jsonl"
    links.RecordFile(path, HEADER)
    before = path.read_bytes()
    with pytest.raises(SystemExit):
        links.RecordFile(path, {**HEADER, part: {"device_name": "B"}})
    message = capsys.readouterr().err
    assert "differs from this run's" in message
    assert "'B'" in message
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"name,price\nH100,2.0\n", b"\x00\xff", b"[]\n{}\n", b'{"record": "launch"}'])
def test_files_of_others_are_left_as_they_are(links: ModuleType, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        links.RecordFile(path, HEADER)
    assert stopped.value.code == 2
    assert path.read_bytes() == content


def test_a_folder_that_is_missing_is_named(links: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        links.RecordFile(tmp_path / "no" / "a.jsonl", HEADER)
    assert "Give a file in a folder that exists" in capsys.readouterr().err


def test_nan_never_reaches_a_file(links: ModuleType, tmp_path: Path) -> None:
    out = links.RecordFile(tmp_path / "a.jsonl", HEADER)
    with pytest.raises(ValueError, match="Out of range float"):
        out.write({"record": "launch", "median_s": float("nan")})
    assert len(lines(tmp_path / "a.jsonl")) == 1


NVIDIA_SMI = """#!/bin/sh
echo "$@" > "$0.asked"
echo "1305, 698.21, 71, 1980, 700.00, {reasons}"
"""
ROCM_SMI = """#!/bin/sh
echo '{"card0": {"Temperature (Sensor junction) (C)": "64.0", "sclk clock speed:": "(2100Mhz)", "Average Power (W)": "512.0"}}'
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [("0x0000000000000000", False), ("0x0000000000000004", False), ("0x0000000000000040", True), ("[N/A]", None)],
)
def test_clocks_power_and_throttling_are_read_from_nvidia_smi(tools: Path, reasons: str, throttled: bool | None) -> None:
    program(tools, "nvidia-smi", NVIDIA_SMI.format(reasons=reasons))
    torch = collector("torch")
    state = torch.seen("cuda", torch.look("cuda", "GPU-1"))
    assert state["clock_hz"] == 1305e6
    assert state["clock_max_hz"] == 1980e6
    assert (state["power_w"], state["power_limit_w"], state["temperature_c"]) == (698.21, 700.0, 71.0)
    assert state["throttled"] is throttled
    assert "--id=GPU-1" in (tools / "nvidia-smi.asked").read_text()


def test_clocks_and_power_are_read_from_rocm_smi(tools: Path) -> None:
    program(tools, "rocm-smi", ROCM_SMI)
    torch = collector("torch")
    state = torch.seen("rocm", torch.look("rocm", "0"))
    assert (state["clock_hz"], state["power_w"], state["temperature_c"]) == (2100e6, 512.0, 64.0)
    assert state["throttled"] is None


@pytest.mark.parametrize("kind", ["cpu", "cuda", "rocm"])
def test_what_a_machine_does_not_tell_is_none(tools: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("PATH", str(tools))
    torch = collector("torch")
    assert set(torch.seen(kind, torch.look(kind, "0")).values()) == {None}
