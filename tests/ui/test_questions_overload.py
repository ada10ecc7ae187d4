"""The Overload page: each view on the textbook and on the scenario, its charts, bad inputs, and a scenario without an answer."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from streamlit.testing.v1 import AppTest

from planner.analysis.admission import admission_limit
from planner.analysis.admission_simulated import Remainder
from planner.analysis.predictor import Aims, door_bounds
from planner.analysis.spike_simulated import RuleName, SpikeRun
from planner.analysis.steps import Decoders
from planner.cases import textbook_case
from planner.ui.views.questions_overload_admit import admit_code, admit_setting
from planner.ui.views.questions_overload_spike import spike_setting
from tests.ui.pages_run import charts, headline, run, table_with, text_of

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/overload.py"
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
TEXTBOOK = {**ONE_GPU, "q-overload-case": "Textbook"}
VIEWS = {"spike": "Traffic spikes?", "admit": "Whom to admit?", "restore": "Swap or recompute?"}


def open_view(open_app: Open, view: str, **query: str) -> AppTest:
    app = open_app(**{**TEXTBOOK, "q-overload-view": VIEWS[view], **query})
    app.switch_page(PAGE)
    return run(app)


def beside(app: AppTest, column: str) -> dict[str, str]:
    table = table_with(app, "Simulated")
    return dict(zip(table["Figure"], table[column], strict=True))


@pytest.mark.parametrize(
    ("view", "answers", "drawn"),
    [
        ("admit", ["chunks of 694 tokens", "23,133 tokens/s"], 3),
        ("restore", ["Computing again is", "at 3.09 GB/s", "vLLM computes again"], 4),
    ],
)
def test_the_textbook_gives_the_published_figures(open_app: Open, view: str, answers: list[str], drawn: int) -> None:
    app = open_view(open_app, view)
    for answer in answers:
        assert answer in headline(app)
    assert len(charts(app)) == drawn
    assert all(len(alternative) > 15 for alternative in charts(app))
    assert "What to set" in text_of(app)
    assert "Why" in text_of(app)


def test_a_gate_that_carries_more_than_a_full_engine_says_why(open_app: Open) -> None:
    app = open_view(open_app, "admit")
    gate = beside(app, "By formula")["Goodput of the gate"]
    full = re.search(r"more than the ([\d.]+) req/s of a full engine", text_of(app))
    assert full is not None
    assert float(gate.split("\xa0")[0]) > float(full[1])
    assert any(f"full engine {full[1]}" in chart.proto.spec.replace("\\u00a0", " ") for chart in app.get("vega_lite_chart"))
    assert "of a full engine, which" not in text_of(open_view(open_app, "admit", **{"q-admit-tpot": "6 ms"}))


def test_the_textbooks_spike_its_rules_its_clients_and_what_to_copy(open_app: Open) -> None:
    app = open_view(open_app, "spike", **{"q-spike-seqs": "64"})
    assert "leaves 48 s of work, which takes 120 s more to drain; 44.4 % of its requests" in headline(app)
    assert len(charts(app)) == 4
    assert list(beside(app, "By formula").values()) == ["48\xa0s", "120\xa0s", "44.4\xa0%"]
    rules = next(frame.value for frame in app.dataframe if "Bound" in frame.value.columns)
    wasted = dict(zip(rules["Rule"], rules["GPU time wasted"], strict=True))
    assert wasted.pop("no bound") != "0\xa0%"
    assert set(wasted.values()) == {"0\xa0%"}
    storm = next(frame.value for frame in app.dataframe if "Clients come back" in frame.value.columns)
    assert len(storm) == 8
    assert storm["Recovered after"].iloc[1] == "not in the run"
    assert storm["Recovered after"].iloc[5] != "not in the run"
    text = text_of(app)
    assert "--max-num-queued-reqs" in text
    assert "HTTP/1.1 503 Service Unavailable\nRetry-After: 47" in text
    assert "HTTP/1.1 429 Too Many Requests" in text
    assert "HeadroomQueue" in text
    assert "HeadroomRejections" in text
    assert "is over before it fires" in text
    assert beside(app, "Simulated")["Good again after the spike"].endswith("\xa0s"), "in the unit of the formula beside it"


def test_a_load_that_is_carried_is_an_answer(open_app: Open) -> None:
    app = open_view(open_app, "spike", **{"q-spike-load": "20 %", "q-spike-factor": "2", "q-spike-for": "20 s"})
    assert "it is carried" in headline(app)


@pytest.mark.parametrize(
    ("rest", "copied"),
    [
        ("second pool", "error_page 503 = @second_pool"),
        ("batch class", "--scheduling-policy priority --max-num-seqs 231"),
        ("reject", "Retry-After: 1"),
        ("queue", "no bound by default"),
    ],
)
def test_what_to_copy_follows_those_who_fail(rest: Remainder, copied: str) -> None:
    case, aims = textbook_case(), Aims(1.0, 0.030)
    found = admission_limit(Decoders(64.0, 2048.0), 1.0, 0.030, case.coefficients, 2048.0)
    code, language = admit_code(rest, found, door_bounds(case, aims), aims)
    assert copied in code
    assert language in ("http", "nginx", "bash")
    assert admit_setting(rest, None)


def test_large_copies_make_copying_faster(open_app: Open) -> None:
    app = open_view(open_app, "restore", **{"q-restore-copy": "65536", "q-restore-latency": "0"})
    assert "Copying out and in is" in headline(app)
    assert "one way, 6.23 both" in text_of(app)
    assert "= 4.41" in text_of(app)
    assert beside(app, "By formula")["Compute the context again"] == "63.2\xa0ms"


def test_host_memory_is_only_a_setting_where_copying_wins(open_app: Open) -> None:
    by_layer = open_view(open_app, "restore")
    assert "--kv-offloading-size" not in str([each.value for each in by_layer.code])
    by_block = open_view(open_app, "restore", **{"q-restore-copy": "2048"})
    assert "--enable-prefix-caching --kv-offloading-size 64 " in str([each.value for each in by_block.code])


def test_the_backlog_that_may_wait_is_derived_to_its_figure(open_app: Open) -> None:
    assert "23,133 tokens/s × 1 s = 23,133 prompt tokens" in text_of(open_view(open_app, "admit"))


def test_a_rule_that_only_a_gateway_has_stands_beside_the_best_of_the_engines_own() -> None:
    def run_of(rule: RuleName, good: float) -> SpikeRun:
        return cast("SpikeRun", SimpleNamespace(rule=rule, good_in_spike=good))

    engine = [run_of("no bound", 0.1), run_of("requests", 0.6), run_of("tokens", 0.7)]
    said = spike_setting([*engine, run_of("predicted", 0.8)])
    assert "rejected on prediction by a gateway (80\xa0% good); of vLLM's own bounds prompt tokens bounded (70\xa0%)" in said
    assert "Best here: prompt tokens bounded." in spike_setting(engine)


@pytest.mark.parametrize("view", list(VIEWS))
def test_the_scenarios_own_replica_is_asked(open_app: Open, view: str) -> None:
    app = open_view(open_app, view, **{"q-overload-case": "Your scenario"})
    assert headline(app)
    assert charts(app)
    assert any(value != "—" for value in beside(app, "Simulated").values())


@pytest.mark.parametrize(
    ("view", "name", "text", "complaint"),
    [
        ("spike", "load", "120 %", "Must be at most 0.99"),
        ("spike", "factor", "NaN", "Must be a number"),
        ("spike", "for", "-60 s", "Must be at least 5"),
        ("spike", "patience", "<img src=x>", "Must be a"),
        ("admit", "sigma", "-1", "Must be at least 0"),
        ("admit", "ttft", "1e9 s", "Must be at most 3600"),
        ("restore", "context", "0", "Must be at least 1"),
        ("restore", "cached", "100 %", "Must be at most 0.99"),
    ],
)
def test_a_bad_input_is_complained_of(open_app: Open, view: str, name: str, text: str, complaint: str) -> None:
    app = open_view(open_app, view, **{f"q-{view}-{name}": text})
    assert complaint in text_of(app)
    assert not any("<img" in str(element.value) for element in app.markdown)
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)


def test_a_spike_of_too_many_requests_says_so(open_app: Open) -> None:
    app = open_view(open_app, "spike", **{"q-spike-factor": "50", "q-spike-for": "600 s"})
    assert "must make from 1 to 24,000 requests" in text_of(app)


def test_targets_that_nobody_can_meet_admit_nobody(open_app: Open) -> None:
    app = open_view(open_app, "admit", **{"q-admit-tpot": "1 ms"})
    assert "Admit nobody" in headline(app)


@pytest.mark.parametrize("view", list(VIEWS))
def test_a_scenario_that_no_engine_can_serve_says_so(open_app: Open, view: str) -> None:
    app = open_app(**{"gpus": "t4", "model": "llama-3.1-405b-instruct", "tp": "1", "q-overload-view": VIEWS[view]})
    app.switch_page(PAGE)
    run(app)
    assert not charts(app)
