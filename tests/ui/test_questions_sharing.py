"""The Sharing page: each view on the textbook and on the scenario, its charts, bad inputs, a scenario without an answer."""

import json
import re
from collections.abc import Callable

import altair as alt
import pytest
from streamlit.testing.v1 import AppTest

from planner.ui.charts.sharing import Dot, Part, Spot, dots, parts, trade
from tests.ui.pages_run import headline, run, table_with, text_of

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/sharing.py"
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
TEXTBOOK = {**ONE_GPU, "q-sharing-case": "Textbook"}
VIEWS = {
    "hol": "Behind a long prompt?",
    "order": "Who goes first?",
    "classes": "How much for batch?",
    "tenants": "Fair to tenants?",
}
CHARTS = {"hol": 1, "order": 4, "classes": 2, "tenants": 3}
FEW = {"q-order-n": "200", "q-classes-output": "100", "q-classes-boutput": "100", "q-classes-context": "800"}
ANSWERS = {
    "hol": "waits 1.573 s for its prefill",
    "order": "cuts the mean wait by a factor of 2.6",
    "classes": "191,824 without",
    "tenants": "gives the tenant with prompts of 16,384 tokens 96.0 % of the engine",
}


def open_view(open_app: Open, view: str, **query: str) -> AppTest:
    app = open_app(**{**TEXTBOOK, "q-sharing-view": VIEWS[view], **query})
    app.switch_page(PAGE)
    return run(app)


def charts_of(app: AppTest) -> list[str]:
    """Return each chart's finding, after checking that Vega-Lite accepts the chart."""
    found = []
    for element in app.get("vega_lite_chart"):
        alt.LayerChart.from_dict(json.loads(element.proto.spec), validate=True)
        found.append(str(element.proto.alt))
    return found


@pytest.mark.parametrize("view", VIEWS)
def test_the_textbook_gives_the_published_figures(open_app: Open, view: str) -> None:
    app = open_view(open_app, view)
    assert ANSWERS[view] in headline(app)
    findings = charts_of(app)
    assert len(findings) == CHARTS[view]
    assert all(len(finding) > 20 for finding in findings)
    text = text_of(app)
    for part in ("Formula beside simulation", "Why", "What to set"):
        assert f"**{part}**" in text
    table = table_with(app, "By formula")
    assert not (table["Simulated"] == "—").all()


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_answers_on_the_scenario_of_the_sidebar(open_app: Open, view: str) -> None:
    app = open_view(open_app, view, **{"q-sharing-case": "Your scenario", **FEW})
    assert ANSWERS[view] not in headline(app)
    assert len(charts_of(app)) == CHARTS[view]


@pytest.mark.parametrize("behaviour", ["Chat comes back from a pause", "Documents flood, chat is modest"])
def test_what_tenants_do_is_chosen_in_the_link(open_app: Open, behaviour: str) -> None:
    quick = {"q-tenants-dprompt": "4096", "q-tenants-doutput": "50", "q-tenants-coutput": "50"}
    findings = charts_of(open_view(open_app, "tenants", **quick, **{"q-tenants-does": behaviour}))
    told = {
        "Chat comes back from a pause": "with the credit of its idle time",
        "Documents flood, chat is modest": "flood of documents",
    }
    assert any(told[behaviour] in finding for finding in findings)


def test_below_capacity_the_order_is_left_alone(open_app: Open) -> None:
    app = open_view(open_app, "order", **{"q-order-load": "0.8", "q-order-n": "200"})
    assert "order of service changes hardly anything" in headline(app)
    assert "Leave the order at fcfs" in text_of(app)


def test_a_target_that_the_interactive_class_misses_alone_leaves_nothing(open_app: Open) -> None:
    query = {**FEW, "q-classes-tpot": "5.2 ms", "q-classes-context": "2048"}
    app = open_view(open_app, "classes", **query)
    assert "Leave batch work out: at no cap simulated does interactive p99 TPOT stay within 5.2 ms" in headline(app)
    assert "engines of its own" in text_of(app)
    assert "Semaphore" not in text_of(app)


def test_the_headline_on_batch_work_is_what_the_run_found_and_within_the_cache(open_app: Open) -> None:
    query = {"gpus": "h200-141g-sxm", "model": "qwen3-235b-a22b", "quant": "fp8", "load": "Tokens", "tokens": "5B", "tpot": "50ms"}
    app = open_app(**query, **{"q-sharing-view": VIEWS["classes"]})
    app.switch_page(PAGE)
    run(app)
    said = headline(app)
    cap = re.search(r"may hold ([\d,]+) tokens of KV, (\d+) requests? at once", said)
    assert cap is not None, said
    assert f"Semaphore({cap[2]})" in text_of(app)
    table = table_with(app, "By formula")
    caps = table[table["Figure"].str.startswith("Cap,")]
    assert f"{cap[1]} tokens" in set(caps["Simulated"])
    cache = int(re.search(r"the cache leaves room for ([\d,]+)", text_of(app))[1].replace(",", ""))  # type: ignore[index]
    assert all(int(text.removesuffix(" tokens").replace(",", "")) <= cache for text in caps["By formula"])


@pytest.mark.parametrize(
    ("view", "name", "text"),
    [
        ("hol", "long", "NaN"),
        ("hol", "n", "-3"),
        ("hol", "long", "1e12"),
        ("order", "load", "0"),
        ("order", "sigma", "99"),
        ("classes", "n", "<b>1</b>"),
        ("classes", "tpot", "-5 ms"),
        ("tenants", "owed", "0"),
        ("tenants", "dprompt", "../../etc"),
    ],
)
def test_a_bad_input_is_complained_of_and_the_page_lives(open_app: Open, view: str, name: str, text: str) -> None:
    app = open_view(open_app, view, **{f"q-{view}-{name}": text})
    assert any(":material/error:" in str(element.value) for element in app.markdown)
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)
    assert not any("<b>" in str(element.value) for element in app.markdown)


def test_a_request_beyond_the_cache_is_said_on_the_page(open_app: Open) -> None:
    app = open_view(open_app, "tenants", **{"q-tenants-dprompt": "411000", "q-tenants-doutput": "5000"})
    assert any("must fit the KV cache" in str(element.value).replace("\\", "") for element in app.markdown)


def test_a_scenario_without_an_engine_is_said_not_broken(open_app: Open) -> None:
    app = open_app(gpus="l4", tp="1", model="llama-3.1-70b-instruct")
    app.switch_page(PAGE)
    run(app)
    assert any("no engine that starts" in str(element.value) for element in app.markdown)


def test_no_dot_hides_another_and_names_stay_text() -> None:
    hostile = "<script>alert(1)</script>"
    chart = dots(
        "A finding", "TTFT (s)", [Dot(hostile, "mean", 1.0, "1 s"), Dot(hostile, "worst", 1.0, "1 s")], (2.0, "target 2 s")
    )
    alt.LayerChart.from_dict(chart.spec, validate=True)
    sizes = [layer["mark"]["size"] for layer in chart.spec["layer"] if layer["mark"]["type"] == "point"]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_a_part_too_narrow_for_its_figure_is_not_labelled() -> None:
    chart = parts("A finding", "Share (%)", [Part("a", "x", 0.0, 0.97, "97 %"), Part("a", "y", 0.97, 1.0, "3 %")])
    alt.LayerChart.from_dict(chart.spec, validate=True)
    labels = next(layer["data"]["values"] for layer in chart.spec["layer"] if layer["mark"]["type"] == "text")
    assert [row["said"] for row in labels] == ["97 %"]


def test_ways_to_share_are_named_once_each_in_a_legend() -> None:
    spots = [Spot("one queue", 20.0, 100.0, "20 ms", "100"), Spot("priority", 20.0, 100.0, "20 ms", "100")]
    chart = trade(
        "A finding", ("TPOT (ms)", "Batch (tokens/s)"), spots, [Spot("caps", 10.0, 50.0, "10 ms", "50")], (15.0, "target 15 ms")
    )
    alt.LayerChart.from_dict(chart.spec, validate=True)
    assert chart.spec["layer"][-1]["encoding"]["color"]["scale"]["domain"] == ["caps", "one queue", "priority"]
