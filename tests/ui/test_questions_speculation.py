"""The Speculation page: the textbook's break-even, the scenario's own engine, bad inputs, no targets, no answer."""

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.pages_run import compared, headline, run, text_of

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/speculation.py"
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
TEXTBOOK = {**ONE_GPU, "q-speculation-case": "Textbook"}


def opened(open_app: Open, **query: str) -> AppTest:
    app = open_app(**{**TEXTBOOK, **query})
    app.switch_page(PAGE)
    return run(app)


def test_the_textbooks_break_even(open_app: Open) -> None:
    app = opened(open_app)
    assert "4 drafts yield 2.773 tokens a step" in headline(app)
    assert "2.77 times as fast at batch 1" in headline(app)
    assert "they lose from batch 105" in headline(app)
    formula, simulated = compared(app)["Tokens a verification yields"]
    assert float(simulated) == pytest.approx(float(formula), rel=0.01)
    text = text_of(app)
    assert "1 + 0.7 + 0.49 + 0.343 + 0.2401 = 2.773" in text
    assert "num_speculative_tokens_per_batch_size" in text
    assert "graphs end at 102 sequences = 510 tokens" in text
    assert "drafts taken back, no block returned" in text


def test_both_charts_say_their_finding(open_app: Open) -> None:
    charts = opened(open_app).get("vega_lite_chart")
    assert [chart.proto.alt for chart in charts] == [
        "4 drafts: decode gains 2.77 times at batch 1 and loses from 105 sequences",
        "At 64 sequences 4 drafts gain from an acceptance of 0.6 on",
    ]
    cells = json.loads(charts[1].proto.spec)["layer"][0]["data"]["values"]
    assert next(cell["label"] for cell in cells if (cell["batch"], cell["acceptance"]) == (128, "0.7")) == "0.87"
    assert [cell["acceptance"] for cell in cells if cell["asked"]] == ["0.7"]


def test_acceptance_by_position(open_app: Open) -> None:
    app = opened(open_app, **{"q-spec-k": "3", "q-spec-acceptance": "0.8, 0.5"})
    assert "3 drafts yield 2.400 tokens a step" in headline(app)  # 1 + 0.8 + 0.4 + 0.2


def test_a_drafter_costs_time_and_slots(open_app: Open) -> None:
    app = opened(open_app, **{"q-spec-draft": "EAGLE or MTP head (one layer)"})
    assert "1.99 times as fast at batch 1" in headline(app)
    assert "<your drafter>" in text_of(app)
    assert "reserves K KV slots more" in text_of(app)


def test_the_scenarios_own_engine(open_app: Open) -> None:
    app = opened(open_app, **{"q-speculation-case": "Your scenario"})
    assert "drafts yield 2.773" in headline(app)
    assert all(simulated for _, simulated in compared(app).values())


def test_without_targets(open_app: Open) -> None:
    app = opened(open_app, ttft="", tpot="", **{"q-speculation-case": "Your scenario"})
    assert headline(app)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("acceptance", "1.2", "Must be shares between 0 and 1"),
        ("acceptance", "nan", "Must be a number"),
        ("acceptance", "0.7, <b>", "Must be a number"),
        ("acceptance", ",".join(["0.5"] * 20), "Must be one share or one for each position"),
        ("batch", "0", "Must be at least 1"),
        ("batch", "1e6", "Must be at most 512"),
        ("context", "long", "Must be a number"),
        ("launch", "1 h", "Must be at most 10 ms"),
    ],
)
def test_a_bad_input_is_complained_of(open_app: Open, name: str, text: str, complaint: str) -> None:
    app = opened(open_app, **{f"q-spec-{name}": text})
    assert complaint in text_of(app)
    assert not any("<b>" in str(element.value) for element in app.markdown)
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)


def test_a_scenario_without_an_answer_still_says_why(open_app: Open) -> None:
    app = opened(open_app, gpus="t4", tp="1", model="llama-3.1-70b-instruct", **{"q-speculation-case": "Your scenario"})
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)
    assert text_of(app)


def test_a_context_that_no_cache_holds_is_refused_at_its_input(open_app: Open) -> None:
    app = opened(open_app, **{"q-spec-context": "1000000"})
    assert not app.exception
    assert "Must be at most 411369" in text_of(app)
