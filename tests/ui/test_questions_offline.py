"""The Offline page: the textbook's fleet, the scenario's own, bad inputs, no price, no answer."""

import json
import re
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.pages_run import compared, headline, run, text_of

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/offline.py"
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
TEXTBOOK = {**ONE_GPU, "q-offline-case": "Textbook"}


def opened(open_app: Open, **query: str) -> AppTest:
    app = open_app(**{**TEXTBOOK, **query})
    app.switch_page(PAGE)
    return run(app)


def table(app: AppTest, column: str) -> list[dict[str, str]]:
    return next(frame.value for frame in app.dataframe if column in frame.value.columns).to_dict("records")  # type: ignore[no-any-return]


def test_the_textbooks_fleet(open_app: Open) -> None:
    app = opened(open_app)
    assert "36.7 × H100 80GB SXM5 busy all day" in headline(app)
    assert "27.2 for prompts and 9.47 for decode at a batch of 355" in headline(app)
    text = text_of(app)
    assert "Reading alone takes 20.8 ms: counted so, decode needs 5.42 GPU-days" in text
    assert "vllm run-batch" in text
    assert "aws p5.48xlarge us-east-1, 2026-07-20" in text
    assert compared(app)["GPU-days now"][1] not in ("—", None)


def test_levers_stand_in_the_order_of_dollars(open_app: Open) -> None:
    rows = table(opened(open_app), "Lever")
    assert len(rows) == 8
    assert rows[0]["Lever"] == "Spot machines"
    assert {row["Lever"]: row["On top of those above"] for row in rows}["Length sorting"] == "not pulled"
    dollars = [float(row["Bill then"].lstrip("$").removesuffix("/day").replace(",", "")) for row in rows]
    assert dollars == sorted(dollars, reverse=True)


def test_the_chart_shows_bills_and_apis(open_app: Open) -> None:
    (chart,) = opened(open_app).get("vega_lite_chart")
    assert "a day now" in chart.proto.alt
    layers = json.loads(chart.proto.spec)["layer"]
    bars = {row["bar"] for each in layers for row in each["data"]["values"] if "part" in row}
    assert "Now" in bars
    assert any(bar.startswith("API: ") for bar in bars)


@pytest.mark.parametrize(("cached", "marked"), [({}, True), ({"q-offline-cached": "40 %"}, False)])
def test_reuse_that_is_only_assumed_is_marked_in_the_bar(open_app: Open, cached: dict[str, str], marked: bool) -> None:
    app = opened(open_app, **cached)
    (chart,) = app.get("vega_lite_chart")
    assert ("reuse assumed" in chart.proto.spec) == marked
    assert ("as asked above" in text_of(app)) != marked


def test_a_batch_price_is_shown_where_it_is_known(open_app: Open) -> None:
    rows = {row["Provider"]: row for row in table(opened(open_app), "Provider")}
    assert (rows["together"]["For the day"], rows["together"]["By batch API"]) == ("$8,800", "$4,400")
    assert rows["nebius"]["By batch API"] == "—"


def test_a_window_needs_more_replicas(open_app: Open) -> None:
    app = opened(open_app, **{"q-offline-hours": "8"})
    assert "In 8 hours a day 28 replicas" in text_of(app)
    alone = opened(open_app, **{"q-offline-in": "1M", "q-offline-out": "1M"})
    assert re.search(r"1 replica of .* finishes the work", text_of(alone))


def test_the_scenarios_own_work(open_app: Open) -> None:
    app = opened(open_app, **{"q-offline-case": "Your scenario"})
    assert "busy all day" in headline(app)
    assert "Azure" not in headline(app)
    assert len(table(app, "Lever")) == 8
    assert any("--model meta-llama/Llama-3.1-8B-Instruct " in str(code.value) for code in app.code)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("in", "0", "Must be at least 1"),
        ("in", "nan", "Must be a number"),
        ("out", "-5", "Must be at least 1"),
        ("prompt", "<script>", "Must be a number"),
        ("seqs", "1.5", "Must be a whole number"),
        ("hours", "25", "Must be at most 24"),
        ("cached", "150%", "Must be at most 0.99"),
        ("lost", "1e9", "Must be at most"),
        ("idle", "-1", "Must be at least 0"),
    ],
)
def test_a_bad_input_is_complained_of(open_app: Open, name: str, text: str, complaint: str) -> None:
    app = opened(open_app, **{f"q-offline-{name}": text})
    assert complaint in text_of(app)
    assert not any("<script" in str(element.value) for element in app.markdown)
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)


def test_requests_too_long_for_every_cache_are_told(open_app: Open) -> None:
    app = opened(open_app, **{"q-offline-prompt": "1000000"})
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)
    assert "must be at most 131,072 tokens" in text_of(app)
    in_cache = opened(open_app, **{"q-offline-in": "100000000", "q-offline-cached": "0"})
    assert not in_cache.exception
    few = opened(open_app, **{"q-offline-in": "10"})
    assert "must hold one prompt of 1,000 tokens at least" in text_of(few)


def test_a_machine_without_a_price_is_told(open_app: Open) -> None:
    app = opened(open_app, gpus="rtx-4090", tp="1", **{"q-offline-case": "Your scenario"})
    assert "no price" in text_of(app)


def test_a_scenario_without_an_answer_still_says_why(open_app: Open) -> None:
    app = opened(open_app, gpus="t4", tp="1", model="llama-3.1-70b-instruct", **{"q-offline-case": "Your scenario"})
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)
    assert text_of(app)


def test_without_a_dated_spot_price_the_lever_says_so(open_app: Open) -> None:
    """A range of discounts is no price: on a GPU whose spot price nobody has read, the lever isn't pulled."""
    rows = {row["Lever"]: row for row in table(opened(open_app, gpus="l40s", **{"q-offline-case": "Your scenario"}), "Lever")}
    assert rows["Spot machines"]["Alone"] == "—"
    assert "no dated spot price is known; discounts of aws span 4\xa0% to 89\xa0%" in rows["Spot machines"]["What changes"]


def test_the_textbooks_caption_names_the_model_that_does_the_work(open_app: Open) -> None:
    app = run(open_app(**{"q-offline-case": "Textbook"}).switch_page(PAGE))
    (asked,) = [str(each.value) for each in app.caption if "Asked of" in str(each.value)]
    assert "Llama-3.1-70B-Instruct in bf16" in asked
    assert "10 req/s" not in asked
