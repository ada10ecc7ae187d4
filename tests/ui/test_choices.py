"""The lists that the form offers: the shipped ones are read once, the user's own each time."""

from pathlib import Path

import pytest

from planner.ui.choices import model_names, options


def test_a_gpu_that_the_user_adds_is_offered_at_once_and_gone_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "mine" not in options("gpus")
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    assert "mine" not in options("gpus")
    folder = tmp_path / "hardware_profiles"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('extends = "l4"\nid = "mine"\nname = "Mine"\n', encoding="utf-8")
    assert "mine" in options("gpus")
    monkeypatch.delenv("PLANNER_HOME")
    assert "mine" not in options("gpus")


def test_what_a_caller_does_to_a_list_stays_with_the_caller() -> None:
    names = model_names()
    names.clear()
    options("model").clear()
    options("calibration").clear()
    assert model_names()
    assert options("model")
    assert options("calibration")
