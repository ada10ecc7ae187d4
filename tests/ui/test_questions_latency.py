"""The Latency page: each view on the scenario and on the textbook, its charts, bad inputs, and a scenario without an answer."""

from collections.abc import Callable

import altair as alt
import pytest
from streamlit.testing.v1 import AppTest

from planner.ui.charts.curves import Axis, Curve, Mark, curves, tall_curves
from planner.ui.charts.lanes import Lanes, lanes
from tests.ui.pages_run import charts, compared, headline, run, table_with, text_of

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/latency.py"
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
TEXTBOOK = {**ONE_GPU, "q-latency-case": "Textbook"}
VIEWS = {
    "flight": "How many are in flight?",
    "queue": "Why does TTFT shoot up?",
    "long": "A long prompt arrives",
    "async": "Async scheduling",
}


def open_view(open_app: Open, view: str, **query: str) -> AppTest:
    app = open_app(**{**TEXTBOOK, "q-latency-view": VIEWS[view], **query})
    app.switch_page(PAGE)
    return run(app)


@pytest.mark.parametrize(
    ("view", "answer", "drawn"),
    [
        ("flight", "of the cache (12.49 and 1.02 GB if prefills slowed no one)", 2),
        ("queue", "The queue's formula, M/G/1, says 53.2 %", 1),
        ("long", "from 9.91 ms to 1,096 ms at worst, for 13 steps; new arrivals wait 8.65 s", 4),
        ("async", "A step takes 10 ms instead of 15 ms: 50 % more throughput", 3),
    ],
)
def test_the_textbook_gives_the_published_figures(open_app: Open, view: str, answer: str, drawn: int) -> None:
    app = open_view(open_app, view)
    assert answer in headline(app)
    assert len(charts(app)) == drawn
    assert all(len(alternative) > 15 for alternative in charts(app))
    assert "—" not in [simulated for _, simulated in compared(app).values()][:1]
    assert "What to set" in text_of(app)
    assert "Why" in text_of(app)


@pytest.mark.parametrize("view", list(VIEWS))
def test_the_scenarios_own_replica_is_asked(open_app: Open, view: str) -> None:
    app = open_view(open_app, view, **{"q-latency-case": "Your scenario"})
    assert headline(app)
    assert charts(app)
    assert any(simulated != "—" for _, simulated in compared(app).values())


@pytest.mark.parametrize(
    ("view", "name", "text", "complaint"),
    [
        ("flight", "rate", "0", "Must be at least 0"),
        ("flight", "output", "NaN", "Must be a number"),
        ("flight", "output", "1e6", "Must be at most"),
        ("flight", "prompt", "1e9", "Must be at most"),
        ("queue", "target", "-1 s", "Must be at least"),
        ("queue", "cached", "100 %", "Must be at most 0"),
        ("long", "prompt", "<img src=x>", "Must be a"),
        ("async", "stop", "1.5", "Must be at most 1"),
    ],
)
def test_a_bad_input_is_complained_of(open_app: Open, view: str, name: str, text: str, complaint: str) -> None:
    app = open_view(open_app, view, **{f"q-{view}-{name}": text})
    assert complaint in text_of(app)
    assert not any("<img" in str(element.value) for element in app.markdown)
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)


def test_a_rate_without_a_steady_state_is_an_answer(open_app: Open) -> None:
    app = open_view(open_app, "flight", **{"q-flight-rate": "500", "q-flight-n": "2000"})
    assert "no steady state" in headline(app)
    assert "The curves never cross" in charts(app)[0]
    assert compared(app)["In flight"][1] == "grows with the run"


def test_a_crossing_that_the_run_never_reaches_is_not_called_one(open_app: Open) -> None:
    app = open_view(open_app, "flight", **{"q-flight-rate": "40", "q-flight-n": "3000"})
    assert "grows without end" in headline(app)
    assert "the queue grows" in charts(app)[0]


def test_a_target_that_no_load_meets_is_an_answer(open_app: Open) -> None:
    app = open_view(open_app, "queue", **{"q-queue-target": "10 ms"})
    assert "No load meets p99 TTFT of 0.01 s" in headline(app)


def test_bursts_and_caching_are_the_last_departure(open_app: Open) -> None:
    app = open_view(open_app, "queue", **{"q-queue-arrivals": "few clients (CV 2)", "q-queue-cached": "50 %"})
    figures = {name: simulated for name, (_, simulated) in compared(app).items()}
    assert figures["Utilisation, with arrivals and caching"] != figures["Utilisation, with KV admission"]
    assert "Bursts lengthen the queue" in text_of(app)
    assert "vllm:prompt_tokens_total" in text_of(app)


def test_a_threshold_changes_the_run_that_is_shown(open_app: Open) -> None:
    app = open_view(open_app, "long", **{"q-long-threshold": "1,024", "q-long-prompt": "20000"})
    assert "20 steps" in headline(app)
    assert any("threshold of 1,024 tokens" in alternative for alternative in charts(app))
    assert "--long-prefill-token-threshold 1024" in text_of(app)


def test_a_long_prompt_that_the_cache_cannot_hold_is_said(open_app: Open) -> None:
    app = open_view(open_app, "long", **{"q-long-prompt": "500000"})
    assert "Not simulated: the KV cache holds 411,520 tokens" in text_of(app)
    assert len(charts(app)) == 2


def test_decoders_that_fill_the_budget_are_refused_with_a_remedy(open_app: Open) -> None:
    app = open_view(open_app, "long", **{"q-long-decoders": "300", "q-long-budget": "256"})
    assert "must be above the 300 decode rows" in text_of(app)


def test_what_runs_without_overlap_has_releases_and_sources(open_app: Open) -> None:
    app = open_view(open_app, "async", **{"q-async-drafts": "4", "q-async-stop": "50 %"})
    table = table_with(app, "Releases")
    assert list(table.columns) == ["Without overlap", "Releases", "Source"]
    assert len(table) > 12
    assert all(table["Source"].str.len() > 10)
    assert "wasted rows = 0.5 × (1 + 4) = 2.5" in text_of(app)


def test_a_scenario_without_an_engine_is_said(open_app: Open) -> None:
    app = open_app(**{"gpus": "l4", "tp": "1", "model": "llama-3.1-70b-instruct", "q-latency-view": VIEWS["queue"]})
    app.switch_page(PAGE)
    run(app)
    assert "no engine that starts" in text_of(app)


def test_lanes_are_valid_vega_lite() -> None:
    rows = [
        {"lane": "GPU", "start": 0.0, "end": 2.0, "work": "decode", "label": "1", "what": "", "when": "", "took": ""},
        {"lane": "arrival", "start": 1.0, "end": 3.0, "work": "waiting", "label": "", "what": "", "when": "", "took": ""},
    ]
    found = lanes(
        rows, Lanes(["GPU", "arrival"], {"decode": "#0072B2", "waiting": "#7A8692"}, "Time (s)", 3.0), "One works, one waits"
    )
    alt.LayerChart.from_dict(found.spec, validate=True)
    assert found.title == "One works, one waits"
    x = found.spec["layer"][0]["encoding"]["x"]
    assert x["axis"]["title"] == "Time (s)"
    assert x["scale"]["domain"] == [0.0, 3.0]


def test_a_tall_chart_has_the_layers_of_a_plain_one() -> None:
    content = ("t", (Axis("x"), Axis("y")), [Curve("c", [(1.0, 2.0), (2.0, 3.0)])], (), [Mark(1.0, 2.0, "m", place="below left")])
    plain, tall = curves(*content), tall_curves(*content)
    assert tall.spec["height"] > plain.spec["height"]
    assert tall.spec["layer"] == plain.spec["layer"]
    alt.LayerChart.from_dict(tall.spec, validate=True)
