"""A plan to look at and the app to run, each from the project's own files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner.plans import plan
from planner.plans.results import Plan
from planner.scenario import Scenario
from tests.ui.pages_run import run

APP = Path(__file__).resolve().parents[2] / "app.py"
Open = Callable[..., AppTest]


@pytest.fixture(scope="session")
def default_plan() -> Plan:
    return plan(Scenario())


@pytest.fixture
def open_app(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens the app as from a link; its keywords are the query parameters."""
    monkeypatch.delenv("PLANNER_HOME", raising=False)

    def open_with(**query: str | list[str]) -> AppTest:
        app = AppTest.from_file(str(APP))
        for key, value in query.items():
            app.query_params[key] = value
        return run(app)

    return open_with
