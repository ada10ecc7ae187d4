"""The machine code lies where it can't go stale and where nobody else can plant it."""

import os
import stat
from pathlib import Path

import pytest

from planner.simulator import compiled, warm_up


def test_a_changed_source_makes_a_new_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    source = tmp_path / "kernel.py"
    source.write_text("a = 1\n")
    monkeypatch.setattr(compiled, "_SOURCES", (source,))
    before = compiled.cache_dir()
    source.write_text("a = 2\n")
    after = compiled.cache_dir()
    assert before is not None
    assert after is not None
    assert before != after
    assert before.parent == after.parent == tmp_path


def test_every_part_of_the_loop_is_in_the_digest() -> None:
    names = {path.name for path in compiled._SOURCES}
    package = Path(compiled.__file__).parent
    assert {path.name for path in package.glob("kernel*.py")} <= names
    assert {"layout.py", "door_layout.py", "attention_pairs.py", "forecast.py", "compiled.py", "step_model.py"} <= names


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    locked = tmp_path / "package"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_PACKAGE_DIR", locked)
    folder = compiled.cache_dir()
    assert folder is not None
    assert folder.is_relative_to(tmp_path / "cache" / "headroom")


def test_no_folder_at_all_means_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(compiled, "_PACKAGE_DIR", blocked)
    assert compiled.cache_dir() is None
    assert not compiled.is_compiled()


def test_warm_up_says_what_it_does() -> None:
    said: list[str] = []
    warm_up(said.append)
    assert said[0] in ("Loading the simulator", "Compiling the simulator: about half a minute, once")
    assert said[1] == "The simulator is ready"
    assert compiled.is_compiled() or compiled.cache_dir() is None
    said.clear()
    warm_up(said.append)
    assert said[0] == "Loading the simulator" or compiled.cache_dir() is None
