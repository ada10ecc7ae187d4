"""The app alive under a hostile link and a broken PLANNER_HOME: what is wrong is said in place, nothing breaks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner.errors import InputError
from planner.ui import reading, uploads
from planner.ui.fields import defaults
from planner.ui.plans import catalogue_stamp
from planner.ui.summaries import summary_of
from planner.workloads import load_workload, save_workload

Open = Callable[..., AppTest]
SECONDS = 120


@pytest.mark.parametrize("spares", ["²", "½", "٣", "9" * 5000, "-1", "", "\x00"])
def test_the_folded_fleet_says_whatever_its_widgets_hold(spares: str) -> None:
    assert "headroom" in summary_of("fleet", {**defaults(), "spares": spares})


@pytest.mark.parametrize(("ttft", "shown"), [("2", "TTFT ≤ 2\xa0s"), ("1ms", "TTFT ≤ 1\xa0ms"), ("<b>", "TTFT ≤ \\<b\\>")])
def test_the_folded_targets_say_their_unit(ttft: str, shown: str) -> None:
    assert shown in summary_of("targets", {**defaults(), "ttft": ttft})


@pytest.mark.parametrize("text", ["9e300T", "1e308k"])
def test_a_number_that_its_suffix_makes_infinite_is_refused(text: str) -> None:
    for read in (reading.number, reading.whole):
        with pytest.raises(InputError, match="finite"):
            read("users", text)


BROKEN = [
    ("models/mine.json", "null", "JSON object"),
    ("workloads/mine.toml", "", "is required"),
    ("hardware_profiles/prices/mine.csv", "colour\nblue\n", "colour"),
    ("hardware_profiles/mine.toml", "id = 3", None),
]


@pytest.mark.parametrize("broken", BROKEN, ids=[file for file, *_ in BROKEN])
def test_a_broken_file_of_the_user_is_named_on_every_page(
    broken: tuple[str, str, str | None], open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, text, says = broken
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    app = open_app(rps="ten")
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    for page in ("planner/ui/pages/plan.py", "planner/ui/pages/catalogue.py"):
        app.switch_page(page).run(timeout=SECONDS)
        assert [error.message for error in app.exception] == []
        if says is not None:
            assert any(says in str(error.value) for error in app.error)
    monkeypatch.delenv("PLANNER_HOME")
    assert not app.run(timeout=SECONDS).error


def test_a_home_that_is_not_there_is_said_where_ones_own_entries_are_looked_for(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_app(rps="ten")
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "gone"))
    app.switch_page("planner/ui/pages/catalogue.py").run(timeout=SECONDS)
    assert any("doesn't exist" in str(warning.value) for warning in app.warning)


def test_only_the_mirrored_folders_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "photo.jpg").touch()
    assert catalogue_stamp() == ""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.json").touch()
    assert "mine.json" in catalogue_stamp()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    for name in ("hardware_profiles", "workloads"):
        (tmp_path / name).write_text("a file in the folder's place")
    data = b'extends = "h100-80g-sxm"\nid = "h100-capped"\nname = "H100 at 500 W"\ntdp_w = 500.0\n'
    with pytest.raises(InputError, match="can't be written"):
        uploads.save_gpu(data, uploads.read_gpu(data, "mine.toml"))
    with pytest.raises(InputError, match="can't be written"):
        save_workload(load_workload("chat"))
