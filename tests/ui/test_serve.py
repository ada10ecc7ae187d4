"""The start of the app: its first answer and what its page needs are there before the port opens."""

import subprocess
import sys
from pathlib import Path

from planner.paths import ROOT_DIR

_LOOK = """
import sys
from unittest import mock
from planner.scenario import Scenario
from planner.ui import serve
from planner.ui.components.simulate_jobs import kept
with mock.patch("streamlit.web.cli.main") as started:
    serve.main(["--server.port", "8600"])
started.assert_called_once()
from planner.ui.plans import catalogue_stamp
def missing():
    raise LookupError("not kept")
kept(("plan", Scenario().digest(), catalogue_stamp()), 1, missing)
assert "planner.ui.components.evidence" in sys.modules, "the page wasn't drawn"
import gc
assert gc.get_freeze_count() > 100_000 > len(gc.get_objects()), "each collection walks through modules and catalogues"
from streamlit import config
assert config.get_option("runner.postScriptGC") is False, "each run ends in a collection"
"""


def _prepare(look: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", look],
        cwd=ROOT_DIR,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_first_visitor_finds_the_answer_made_and_the_page_imported() -> None:
    done = _prepare(_LOOK)
    assert done.returncode == 0, done.stderr
    assert "ScriptRunContext" not in done.stderr + done.stdout


def test_a_fault_in_the_users_files_does_not_keep_the_app_from_starting(tmp_path: Path) -> None:
    folder = tmp_path / "hardware_profiles"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("id = ", encoding="utf-8")
    done = _prepare("from planner.ui import serve\nserve.prepare()", PLANNER_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
