"""The Batching page: each view on the scenario and on the textbook, its charts, bad inputs, no targets, no answer."""

import json
from collections.abc import Callable
from dataclasses import replace

import altair as alt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from planner.analysis.knobs import ceilings
from planner.case_capacity import Carried, Setting
from planner.cases import textbook_case
from planner.ui.charts.curves import Axis, Rule
from planner.ui.charts.marked import HEIGHT, Kind, Marked, MarkedCurve, marked_curve
from planner.ui.views.question_inputs import read_asked
from planner.ui.views.questions_batching import beside_plan, tpot_input, ttft_input
from planner.ui.views.questions_batching_knobs import ceiling_table, ceiling_title, knob_advice, knob_flags
from planner.ui.words import DASH
from tests.ui.pages_run import charts, compared, headline, run, text_of

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/batching.py"
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
TEXTBOOK = {**ONE_GPU, "q-batching-case": "Textbook"}
VIEWS = {
    "static": "Why continuous?",
    "budget": "Token budget",
    "goodput": "Goodput",
    "knobs": "What binds?",
    "sweep": "Budget by load",
    "adaptive": "Adaptive",
}


def open_view(open_app: Open, view: str, **query: str) -> AppTest:
    app = open_app(**{**TEXTBOOK, "q-batching-view": VIEWS[view], **query})
    app.switch_page(PAGE)
    return run(app)


@pytest.mark.parametrize(
    ("view", "figures", "drawn"),
    [
        ("static", ["A static batch of 32 decodes 4.06 times the steps", "75 % of its rows idle", "1 + 1/2 + … + 1/32 = 4.058"], 2),
        ("budget", ["hold both targets", "144.6", "the rates that kernels reach at 145", "knee at 295 tokens"], 2),
        ("goodput", ["Goodput is largest with", "89 sequences at 2,048 tokens take 11.97 ms a step", "and hardly any goodput"], 4),
        (
            "knobs",
            ["The compute ridge binds first: 144 sequences", "411,520 tokens / 2,048 = 200.9", "lies beyond KV memory (200)"],
            1,
        ),
        ("sweep", ["The knee lies at budget", "largest power", "Kleinrock"], 1),
        ("adaptive", ["The adaptive budget", "can move it while it runs", "p95 TPOT of requests that ended"], 3),
    ],
)
def test_the_textbook_gives_the_published_figures(open_app: Open, view: str, figures: list[str], drawn: int) -> None:
    app = open_view(open_app, view)
    text = text_of(app)
    for each in figures:
        assert each in text
    assert len(charts(app)) == drawn
    assert all(len(alternative) > 15 for alternative in charts(app))
    assert any(simulated != "—" for _, simulated in compared(app).values())
    assert "What to set" in text
    assert "Why" in text
    assert "seed" in text


@pytest.mark.parametrize("view", list(VIEWS))
def test_the_scenarios_own_replica_is_asked(open_app: Open, view: str) -> None:
    app = open_view(open_app, view, **{"q-batching-case": "Your scenario"})
    assert headline(app)
    assert charts(app)
    assert any(simulated != "—" for _, simulated in compared(app).values())


@pytest.mark.parametrize(
    ("view", "name", "text", "complaint"),
    [
        ("static", "batch", "0", "Must be at least 1"),
        ("static", "n", "1e9", "Must be at most"),
        ("budget", "decoders", "1.5", "Must be a whole number"),
        ("budget", "rate", "nan", "Must be a number"),
        ("goodput", "tpot", "-3 ms", "Must be at least"),
        ("knobs", "kv", "<img src=x>", "Must be a number"),
        ("sweep", "p95", "soon", "Must be a number"),
        ("adaptive", "long", "150%", "Must be at most 1"),
        ("adaptive", "interval", "1 ms", "Must be at least 0.5"),
    ],
)
def test_a_bad_input_is_complained_of(open_app: Open, view: str, name: str, text: str, complaint: str) -> None:
    app = open_view(open_app, view, **{f"q-{view}-{name}": text})
    assert complaint in text_of(app)
    assert not any("<img" in str(element.value) for element in app.markdown)
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)


@pytest.mark.parametrize(
    ("view", "query", "answer"),
    [
        ("static", {"q-static-outputs": "constant"}, "A static batch of 32 decodes 1.00 times the steps"),
        ("static", {"q-static-batch": "64"}, "A static batch of 64 decodes 4.74 times"),
        ("goodput", {"q-goodput-tpot": "1 ms"}, "No batch serves a request within both targets"),
        ("knobs", {"q-knobs-context": "8192"}, "KV memory binds first: 50 sequences"),
        ("knobs", {"q-knobs-tpot": "1 ms"}, "TPOT target binds first: 0 sequences"),
        ("budget", {"q-budget-tpot": "1 ms"}, "No simulated budget holds both targets"),
        ("adaptive", {"q-adaptive-rate": "3"}, "gains nothing measurable"),
    ],
)
def test_inputs_change_the_answer(open_app: Open, view: str, query: dict[str, str], answer: str) -> None:
    assert answer in headline(open_view(open_app, view, **query))


def test_a_context_that_outputs_alone_exceed_is_refused_with_its_remedy(open_app: Open) -> None:
    app = open_view(open_app, "goodput", **{"q-goodput-context": "50"})
    assert "context_tokens is 50" in text_of(app)


@pytest.mark.parametrize("view", list(VIEWS))
def test_offline_work_has_assumed_targets_that_say_so(open_app: Open, view: str) -> None:
    app = open_app(**{**ONE_GPU, "ttft": "", "tpot": ""})
    assert "no latency target" in text_of(app) or "offline" in text_of(app).lower()
    app = open_view(open_app, view, **{"ttft": "", "tpot": "", "q-batching-case": "Your scenario"})
    assert headline(app)
    labels = {str(each.label) for each in app.text_input if str(each.key).startswith("q-")}
    if view in {"budget", "goodput", "adaptive"}:
        assert {"TTFT target, assumed", "TPOT target, assumed"} <= labels


def test_targets_without_a_unit_are_read_as_in_the_sidebar() -> None:
    case = textbook_case()
    asked = read_asked([ttft_input(case), tpot_input(case)], {"ttft": "2", "tpot": "40"})
    assert (asked.number("ttft"), asked.number("tpot")) == (2.0, 0.04)
    initial = read_asked([ttft_input(case), tpot_input(case)], {})
    assert (initial.number("ttft"), initial.number("tpot")) == (case.ttft_p99_s, case.tpot_p99_s)


def test_a_scenario_without_an_engine_says_why(open_app: Open) -> None:
    app = open_app(**{"gpus": "l4-24g-pcie", "tp": "1", "model": "llama-3.1-70b-instruct", "q-batching-view": VIEWS["budget"]})
    app.switch_page(PAGE)
    run(app)
    assert not charts(app)
    assert len(text_of(app)) > 20


@pytest.mark.parametrize(("view", "work"), [("sweep", "sweep"), ("adaptive", "adaptive_day"), ("goodput", "simulated_goodput")])
def test_work_that_nothing_gets_through_says_so_and_ends(
    open_app: Open, view: str, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"planner.ui.components.questions_batching_{view}.{work}", lambda *_: None)
    app = open_view(open_app, view, **{f"q-{view}-n": "321", "q-adaptive-rate": "3.21"})
    assert "must get through the engine, and none does" in text_of(app)


def test_the_engines_default_is_compared_in_capacity_and_dollars(open_app: Open) -> None:
    app = open_view(open_app, "knobs", **{"q-batching-case": "Your scenario"})
    table = next(frame.value for frame in app.dataframe if "Carries" in frame.value.columns)
    assert table["Settings"].iloc[0] == "This replica"
    assert table["Settings"].iloc[-1].startswith("Default of vLLM")
    assert table["Per M tokens"].str.startswith("$").all()
    assert "The default of vLLM" in text_of(app)


def test_a_marked_curve_is_valid_vega_lite_and_leaves_out_rules_that_lie_too_far() -> None:
    marked = [Marked(20.0, 500.0, "256", "published", "a budget"), Marked(25.0, 300.0, "512", "best", "a budget")]
    rules = [Rule("x", 30.0, "near"), Rule("y", 1e6, "far")]
    shown = MarkedCurve([(20.0, 500.0), (25.0, 300.0)], marked, rules)
    spec = marked_curve("A finding", (Axis("p99 TPOT (ms)"), Axis("p99 TTFT (ms)")), shown).spec
    alt.LayerChart.from_dict({"$schema": alt.SCHEMA_URL, **spec})
    written = json.dumps(spec)
    assert "near" in written
    assert '"far"' not in written
    assert "512" in written


def test_an_axis_that_needs_no_zero_starts_near_its_points() -> None:
    marked = [Marked(20.0, 500.0, "256", "published", "a budget"), Marked(25.0, 300.0, "512", "best", "a budget")]
    shown = MarkedCurve([], marked, [Rule("x", 30.0, "near")])
    spec = marked_curve("A finding", (Axis("x (ms)", zero=False), Axis("y (ms)")), shown).spec
    encoding = next(each for each in spec["layer"] if each["mark"]["type"] == "point")["encoding"]
    assert encoding["x"]["scale"]["domain"] == pytest.approx([20.0 - 0.8, 30.0 + 0.8])
    assert encoding["x"]["scale"]["zero"] is False
    assert encoding["y"]["scale"]["domain"][0] == 0.0


def test_a_frontier_leaves_out_targets_that_would_empty_it_and_names_them_at_the_axis(open_app: Open) -> None:
    specs = {}
    for tpot, ttft in (("8 ms", "80 ms"), ("30 ms", "1 s")):
        query = {"q-budget-tpot": tpot, "q-budget-ttft": ttft, "q-batching-view": VIEWS["budget"]}
        app = open_app(**{**TEXTBOOK, **query})
        app.switch_page(PAGE)
        specs[tpot] = run(app).get("vega_lite_chart")[1].proto.spec
    assert all(said in specs["8 ms"] for said in ("TPOT target 8", "TTFT target 80"))
    assert "far" not in specs["8 ms"]
    assert '"label": "TPOT target' not in specs["30 ms"]
    assert '"label": "TTFT target' not in specs["30 ms"]
    written = specs["30 ms"].replace("\\u00a0", " ").replace("\u00a0", " ")
    assert "target 30 ms far to the right" in written
    assert "target 1 s far above" in written


KINDS: list[Kind] = ["published", "formula", "own", "best", "other"]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1.0, 1e5), st.floats(0.1, 1e4), st.sampled_from(KINDS)), min_size=1, max_size=12),
    st.floats(0.1, 1e6),
)
def test_marked_points_are_all_drawn_and_no_name_covers_another(points: list[tuple[float, float, Kind]], target: float) -> None:
    marked = [Marked(x, y, f"point {index}", kind, "a point") for index, (x, y, kind) in enumerate(points)]
    figure = marked_curve("A finding", (Axis("x (ms)"), Axis("y (ms)")), MarkedCurve([], marked, [Rule("y", target, "target")]))
    assert figure.spec["height"] == HEIGHT
    drawn = [each for each in figure.spec["layer"] if each["mark"]["type"] == "point"]
    assert len(drawn) == len(points)
    y = drawn[0]["encoding"]["y"]["scale"]["domain"]
    assert y[0] <= min(p[1] for p in points)
    assert y[1] >= max(p[1] for p in points)


def carried_at(name: str, seqs: int, budget: int, rate_rps: float | None) -> Carried:
    return Carried(Setting(name, seqs, budget), rate_rps, "TTFT target (compute)", 0.9, 0.02, 1.0)


def test_the_knobs_keep_the_plans_pair_unless_another_carries_clearly_more() -> None:
    own, default = carried_at("This replica", 32, 512, 5.33), carried_at("Default of vllm 0.33.0", 1024, 8192, None)
    found = ceilings(3_074_096.0, 2796.2, 0.030, textbook_case().coefficients)
    a_little = (own, carried_at("By the ceilings", 143, 547, 5.50), default)
    assert knob_flags(a_little, found) == "--max-num-seqs 32 --max-num-batched-tokens 512"
    assert "the ceilings' pair carries 3.19\xa0% more" in knob_advice(a_little, found)
    clearly = (own, carried_at("By the ceilings", 143, 547, 6.0), default)
    assert knob_flags(clearly, found) == "--max-num-seqs 143 --max-num-batched-tokens 547"
    assert knob_advice(clearly, found).startswith("By the ceilings: these settings carry the most")
    alone = (carried_at("This replica", 32, 512, None), carried_at("By the ceilings", 143, 547, 0.1), default)
    assert knob_flags(alone, found) == "--max-num-seqs 143 --max-num-batched-tokens 547"
    assert "none of those compared carries more" in knob_advice((own, default), found)


def test_over_a_ceiling_that_holds_no_sequence_there_is_no_ratio() -> None:
    found = ceilings(411_520, 2048, 1e-3, textbook_case().coefficients)
    assert ceiling_title(found, 2048) == "At 2,048 tokens the TPOT target is the lowest ceiling; not one sequence fits"
    assert set(ceiling_table(found)["Over the lowest"]) == {DASH}


def test_a_view_whose_budget_isnt_the_plans_says_what_it_asks_instead() -> None:
    own = replace(textbook_case(), textbook=False)
    said = beside_plan(own, 307, "which budget leaves the most room")
    assert "runs 8,192" in said
    assert said.endswith("which budget leaves the most room.")
    assert beside_plan(own, 8192, "anything") == beside_plan(textbook_case(), 307, "anything") == ""
