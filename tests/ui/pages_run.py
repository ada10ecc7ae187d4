"""Runs pages of the app without a browser and reads what they say."""

import json
import time

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from planner.ui.words import DASH, NBSP

SECONDS = 120
_MOST_RUNS = 600


def run(app: AppTest) -> AppTest:
    """Run the app until its work is done; an exception on the page fails the test even when nothing else looks at it."""
    for _ in range(_MOST_RUNS):
        app.run(timeout=SECONDS)
        assert [error.message for error in app.exception] == []
        if not any(str(button.key).startswith("cancel-") for button in app.button):
            return app
        time.sleep(0.1)
    pytest.fail("the page's work did not end")


def headline(app: AppTest) -> str:
    said = next(str(element.value) for element in app.markdown if str(element.value).startswith("#### "))
    return said.replace("\\", "").replace(NBSP, " ")


def text_of(app: AppTest) -> str:
    return (
        "\n".join(str(element.value) for element in (*app.markdown, *app.caption, *app.code)).replace("\\", "").replace(NBSP, " ")
    )


def table_with(app: AppTest, column: str) -> pd.DataFrame:
    """Return the first table of texts that has a column, without the marks that keep Markdown from reading them."""
    found = next(each.value for each in app.table if column in each.value.columns)
    return found.map(lambda text: str(text).replace("\\", ""))


def compared(app: AppTest) -> dict[str, tuple[str, str]]:
    """Return formula and simulation of a question's comparison, by name."""
    table = table_with(app, "Simulated")
    return {row["Figure"]: (row.get("By formula", DASH), row["Simulated"]) for _, row in table.iterrows()}


def charts(app: AppTest) -> list[str]:
    """Return the finding of each chart, all of which have layers."""
    found = app.get("vega_lite_chart")
    for chart in found:
        assert json.loads(chart.proto.spec)["layer"]
    return [chart.proto.alt for chart in found]
