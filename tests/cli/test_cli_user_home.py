"""PLANNER_HOME as it should not be: a file, nobody's home, loops, folders named like files, names that are no ids."""

import shutil
from pathlib import Path

import pytest

from planner.cli import main
from planner.paths import MODELS_DIR

FOLDERS = (
    "models",
    "workloads",
    "workloads/traces",
    "hardware_profiles",
    "hardware_profiles/nodes",
    "hardware_profiles/prices",
    "hardware_profiles/calibrations",
)
SUFFIXES = ("toml", "json", "csv", "parquet")
VERBS = (["gpus"], ["models"], ["workloads"], ["questions"])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("verb", VERBS, ids=[verb[0] for verb in VERBS])
@pytest.mark.parametrize("given", ["{tmp}/file", "~nobody-of-this-name/x", "{tmp}/loop", "{tmp}/file/below", "/" + "x" * 5000])
def test_a_home_that_is_no_folder_is_one_line(
    verb: list[str], given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setenv("PLANNER_HOME", given.format(tmp=tmp_path))
    assert main(verb) == 2
    error = capsys.readouterr().err
    assert error.startswith("planner: PLANNER_HOME is ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("given", ["{tmp}/made later", ""])
def test_a_home_that_is_not_there_yet_is_said_and_not_refused(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLANNER_HOME", given.format(tmp=tmp_path))
    assert main(["workloads"]) == 0
    error = capsys.readouterr().err
    assert error.count("\n") == (1 if given else 0)
    assert ("doesn't exist" in error and "made later" in error) == bool(given)
    (tmp_path / "made later").mkdir()
    assert main(["workloads"]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("kind", ["loop", "nowhere", "folder"])
def test_what_is_no_file_is_not_an_entry(kind: str, home: Path) -> None:
    for folder in FOLDERS:
        for suffix in SUFFIXES:
            entry = home / folder / f"entry.{suffix}"
            if kind == "folder":
                entry.mkdir()
            else:
                entry.symlink_to(entry if kind == "loop" else home / "nowhere")
    assert [main(verb) for verb in VERBS] == [0] * len(VERBS)


def test_a_models_file_whose_name_is_no_id_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(MODELS_DIR / "phi-4.json", home / "models" / "\u043c\n\u202e.json")
    assert main(["models"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("planner: models/")
    assert "PLANNER_HOME/models" in error
    assert error.count("\n") == 1


def test_a_gpu_file_with_a_fault_is_left_out_and_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "hardware_profiles" / "mine.toml").write_bytes(b"\xff\xfe")
    assert main(["gpus"]) == 0
    captured = capsys.readouterr()
    assert "h100-80g-sxm" in captured.out
    assert captured.err.startswith("planner: left out: mine.toml is ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(("name", "said"), [("mine.json", "models/mine.json: "), ("mine/config.json", "models/mine/config.json: ")])
@pytest.mark.parametrize("text", ["{", "{}", '{"model_type": "llama"}', '{"model_type": "unheard-of"}', '{"groups": []}'])
def test_a_model_file_with_a_fault_is_named(
    name: str, said: str, text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "models" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert main(["models"]) == 2
    assert capsys.readouterr().err.startswith(f"planner: {said}")
