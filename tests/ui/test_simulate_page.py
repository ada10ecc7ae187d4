"""The Simulate page in Streamlit's test runner: the plan's replay first, right after every change, alive after bad values."""

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from planner.replay import Replay, ReplaySettings, sentence_of
from planner.ui.components import simulate_jobs
from planner.ui.words import NBSP, seconds, sentence
from tests.ui.pages_run import run

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/simulate.py"
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
FEW = {**ONE_GPU, "sim-n": "2000"}


@pytest.fixture
def open_simulate(open_app: Open) -> Open:
    """Return a function that opens the page as from a link."""

    def open_with(**query: str) -> AppTest:
        app = open_app(**query)
        app.switch_page(PAGE)
        return run(app)

    return open_with


def answer_of(app: AppTest) -> str:
    return next(element.value for element in app.markdown if str(element.value).startswith("#### "))


def text_of(app: AppTest) -> str:
    return "\n".join(str(element.value) for element in (*app.markdown, *app.caption, *app.subheader, *app.warning)).replace(
        NBSP, " "
    )


def shown(app: AppTest) -> Replay:
    """Return the replay that the page shows."""
    return next(
        result
        for _, result in reversed(simulate_jobs._kept()._results.values())
        if isinstance(result, Replay) and f"#### {sentence(sentence_of(result, seconds))}" == answer_of(app)
    )


def test_page_opens_with_the_plans_own_run(open_simulate: Open) -> None:
    app = open_simulate(**ONE_GPU)
    found = shown(app)
    assert found.settings == ReplaySettings()
    assert found.changed is None
    assert [metric.label for metric in app.metric] == ["p99 TTFT", "p99 TPOT", "Goodput", "Running"]
    planned = found.plan.chosen
    assert planned is not None
    assert planned.latency is not None
    assert app.metric[0].value == seconds(planned.latency.ttft_p99_s)
    assert [heading.value for heading in app.subheader] == ["Latency", "Over time", "Step by step", "Every request", "Why"]
    charts = app.get("vega_lite_chart")
    assert len(charts) == 8
    assert all(len(chart.proto.alt) > 15 for chart in charts)


def test_a_changed_engine_is_compared_on_the_same_requests(open_simulate: Open) -> None:
    app = open_simulate(**FEW)
    app.text_input(key="sim-seqs").set_value("24")
    run(app)
    found = shown(app)
    assert found.changed is not None
    assert found.changed.setup.limits.max_num_seqs == 24
    assert "Planned against changed" in [heading.value for heading in app.subheader]
    assert "Against the plan, on the same requests" in text_of(app)
    table = next(frame.value for frame in app.dataframe if "Verdict" in frame.value.columns)
    assert set(table["Verdict"]) >= {"worse", "better"}


def test_every_input_reaches_the_replay(open_simulate: Open) -> None:
    app = open_simulate(**FEW)
    for key, text in (("sim-rate", "5"), ("sim-n", "1.5k"), ("sim-seed", "9"), ("sim-cv", "2"), ("sim-budget", "4096")):
        app.text_input(key=key).set_value(text)
    app.selectbox(key="sim-stop").set_value("at a stop token")
    app.selectbox(key="sim-async").set_value("off")
    app.selectbox(key="sim-prefix").set_value("on")
    run(app)
    assert shown(app).settings == ReplaySettings(
        rate_rps=5.0,
        requests=1500,
        seed=9,
        arrival_cv=2.0,
        stop="eos",
        max_num_batched_tokens=4096,
        async_scheduling=False,
        enable_prefix_caching=True,
    )
    assert "Prefix caching finds nothing here" in text_of(app)


def test_a_link_opens_its_replay(open_simulate: Open) -> None:
    app = open_simulate(**{**FEW, "sim-rate": "40", "sim-order": "recorded order", "sim-at": "10"})
    assert shown(app).settings == ReplaySettings(rate_rps=40.0, requests=2000, order="recorded")
    assert "doesn't keep up with" in answer_of(app)
    assert not app.warning


def test_inputs_come_back_with_the_page(open_simulate: Open) -> None:
    app = open_simulate(**FEW)
    app.text_input(key="sim-rate").set_value("5")
    run(app)
    app.switch_page("planner/ui/pages/catalogue.py")
    run(app)
    app.switch_page(PAGE)
    run(app)
    assert app.text_input(key="sim-rate").value == "5"
    assert shown(app).rate_rps == 5.0


def test_resetting_goes_back_to_the_plan(open_simulate: Open) -> None:
    app = open_simulate(**{**FEW, "sim-seqs": "24"})
    assert shown(app).changed is not None
    app.button(key="sim-reset-engine").click()
    run(app)
    assert shown(app).changed is None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sim-rate", "fast"),
        ("sim-rate", "-1"),
        ("sim-rate", "1e300"),
        ("sim-rate", "nan"),
        ("sim-n", "0"),
        ("sim-n", "2.5"),
        ("sim-n", "10M"),
        ("sim-seed", "-1"),
        ("sim-cv", "0"),
        ("sim-seqs", "<b>1</b>"),
        ("sim-seqs", "99999"),
        ("sim-seqs", "9999"),
        ("sim-budget", "16"),
    ],
)
def test_a_bad_value_is_refused_in_place_with_a_way_back(open_simulate: Open, key: str, text: str) -> None:
    app = open_simulate(**{**FEW, key: text})
    assert not app.metric
    fix = next(button for button in app.button if str(button.key).startswith("sim-fix-"))
    fix.click()
    run(app)
    assert app.metric


def test_a_link_with_unknown_parts_says_so(open_simulate: Open) -> None:
    app = open_simulate(**{**FEW, "sim-async": "<i>maybe</i>", "sim-cows": "7"})
    warnings = "\n".join(str(warning.value) for warning in app.warning)
    assert "sim-async" in warnings
    assert "sim-cows" in warnings
    assert "\\<i>" in warnings
    assert app.metric


@pytest.mark.parametrize("text", ["-5", "soon", "1e9", "9999 h"])
def test_a_bad_start_time_leaves_the_rest_of_the_page(open_simulate: Open, text: str) -> None:
    app = open_simulate(**{**FEW, "sim-at": text})
    assert app.metric
    assert ":red[" in text_of(app)
    assert len(app.get("vega_lite_chart")) == 7


def test_offline_work_shows_throughput(open_simulate: Open) -> None:
    app = open_simulate(offline="true", **FEW)
    assert [metric.label for metric in app.metric] == ["p99 TTFT", "p99 TPOT", "Output", "Running"]


def test_a_plan_without_an_answer_replays_its_nearest_candidate(open_simulate: Open) -> None:
    app = open_simulate(tpot="0.1 ms", **FEW)
    assert "nearest candidate" in text_of(app)
    assert app.metric


def test_nothing_to_replay_is_said(open_simulate: Open) -> None:
    app = open_simulate(gpus="l4", tp="1", model="llama-3.1-405b-instruct")
    assert not app.metric
    assert "no engine to replay" in text_of(app)


def test_a_scenario_with_a_fault_waits_for_it(open_simulate: Open) -> None:
    app = open_simulate(rps="many")
    assert not app.metric
    assert "can't be planned yet" in text_of(app)


def test_a_workload_without_recorded_times_offers_no_recorded_order(open_simulate: Open) -> None:
    app = open_simulate(workload="reasoning", **ONE_GPU, **{"sim-n": "300", "sim-order": "recorded order"})
    assert all(box.key != "sim-order" for box in app.selectbox)


def test_downloads_are_offered(open_simulate: Open) -> None:
    labels = {button.proto.label for button in open_simulate(**FEW).get("download_button")}
    assert labels >= {"CSV", "Parquet"}
