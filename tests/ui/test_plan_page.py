"""The Plan page in Streamlit's own test runner: answered when it opens, right after every change, alive after every bad value."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from planner.plans.results import Plan
from planner.scenario import Scenario, scenario_from_dict
from planner.ui.components import simulate_jobs
from planner.ui.fields import defaults, values_of
from planner.ui.words import sentence
from tests.ui.pages_run import SECONDS, run

Open = Callable[..., AppTest]
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}


def said_by(app: AppTest) -> str:
    """Return what the page says, its escapes, subheaders and warnings too."""
    return "\n".join(str(element.value) for element in (*app.markdown, *app.caption, *app.subheader, *app.warning))


def answer_of(app: AppTest) -> str:
    return next(element.value for element in app.markdown if str(element.value).startswith("#### "))


def planned(app: AppTest) -> Scenario:
    scenario: Scenario = app.session_state["_scenario_state"].scenario
    return scenario


def test_page_opens_answered(open_app: Open, default_plan: Plan) -> None:
    app = open_app()
    assert answer_of(app) == f"#### {sentence(default_plan.summary)}"
    assert [metric.label for metric in app.metric] == ["GPUs", "p99 TTFT", "p99 TPOT", "Cost a day"]
    assert all(metric.value not in {"", "—"} for metric in app.metric)
    assert planned(app) == Scenario()


def test_page_holds_every_piece_of_evidence(open_app: Open) -> None:
    app = open_app()
    assert len(app.get("vega_lite_chart")) >= 5
    assert [heading.value for heading in app.subheader][-3:] == ["Run it", "Every candidate", "Why"]
    assert any("vllm serve" in block.value for block in app.code)
    assert {button.proto.label for button in app.get("download_button")} >= {"CSV", "JSON", "Scenario as JSON"}


def test_page_says_what_moved_and_why_after_a_change(open_app: Open) -> None:
    app = open_app(**ONE_GPU)
    assert "Since your change" not in said_by(app)
    app.text_input(key="rps").set_value("40")
    run(app)
    text = said_by(app)
    assert "Since your change" in text
    assert "10 → 40" in text
    assert "GPUs" in text
    assert "the planned rate went from 10 to 40 req/s" in text
    run(app)
    assert "10 → 40" in said_by(app), "a rerun without a change keeps the comparison"


def test_the_answer_stands_before_its_evidence_which_can_be_cancelled_and_asked_for_again(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_app(**ONE_GPU)
    monkeypatch.setattr(simulate_jobs, "PATIENCE_S", 0.0)
    app.text_input(key="seed").set_value("123457")
    app.run(timeout=SECONDS)
    for _ in range(600):
        if any(button.key == "cancel-plan" for button in app.button):
            break
        time.sleep(0.02)
        app.run(timeout=SECONDS)
    wanted = answer_of(app)
    assert [metric.label for metric in app.metric] == ["GPUs", "p99 TTFT", "p99 TPOT", "Cost a day"]
    assert not app.get("vega_lite_chart"), "no evidence of another scenario stands under the answer"
    app.button(key="cancel-plan").click()
    app.run(timeout=SECONDS)
    assert "Cancelled." in said_by(app)
    assert answer_of(app) == wanted
    app.button(key="again-plan").click()
    run(app)
    assert answer_of(app) == wanted
    assert app.get("vega_lite_chart")


def test_every_chart_is_named_for_screen_readers(open_app: Open) -> None:
    charts = open_app().get("vega_lite_chart")
    assert charts
    for chart in charts:
        spec = json.loads(chart.proto.spec)
        assert len(chart.proto.alt) > 20
        assert spec["layer"]


def test_a_changed_rate_changes_the_plan(open_app: Open) -> None:
    app = open_app(**ONE_GPU)
    before = app.metric[0].value
    app.text_input(key="rps").set_value("200")
    run(app)
    assert planned(app).workload.load.model_dump() == {"kind": "rate", "requests_per_s": 200.0}
    assert int(app.metric[0].value.replace(",", "")) > int(before)


@pytest.mark.parametrize(
    ("load", "key", "text", "expected"),
    [
        ("Users", "users", "20k", {"kind": "users", "users": 20000, "active_share": 0.2, "requests_per_user_minute": 0.4}),
        ("Tokens", "tokens", "10B", {"kind": "tokens_per_day", "tokens_per_day": 1e10}),
    ],
)
def test_load_can_be_stated_as_people_know_it(open_app: Open, load: str, key: str, text: str, expected: dict[str, Any]) -> None:
    app = open_app(**ONE_GPU)
    app.session_state["load"] = load
    app.text_input(key=key).set_value(text)
    run(app)
    assert planned(app).workload.load.model_dump() == expected
    assert app.metric


def test_a_link_opens_its_scenario(open_app: Open) -> None:
    wanted = scenario_from_dict(
        {
            "workload": {"load": {"kind": "users", "users": 5000, "active_share": 0.1, "requests_per_user_minute": 1.5}},
            "hardware": {"gpu_ids": ["h100-80g-sxm", "l40s"], "tensor_parallel": [1], "usd_per_gpu_hour": {"l40s": 0.9}},
            "targets": {"ttft_p99_s": 2.0, "tpot_p99_s": None},
            "fleet": {"headroom": 0.2, "spare_replicas": 2},
            "seed": 7,
        }
    )
    query = {key: value for key, value in values_of(wanted).items() if value not in (False, None, "") or key == "tpot"}
    app = open_app(**{key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()})
    assert planned(app) == wanted
    assert app.metric


def test_offline_leaves_latency_out(open_app: Open) -> None:
    app = open_app(offline="true", **ONE_GPU)
    assert planned(app).targets.offline
    assert app.text_input(key="ttft").disabled
    assert "no target" in said_by(app)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("rps", "abc"), ("rps", "-1"), ("rps", "0"), ("rps", "nan"), ("rps", "1e12"), ("rps", "<b>1</b>"),
        ("headroom", "150%"), ("spares", "1.5"), ("ttft", "soon"), ("tpot", "-3 ms"), ("seqs", "0"), ("budget", "99999999999"),
        ("util", "2"), ("seed", "-1"), ("prices", "cheap"), ("kvlog", "-5"), ("peak", "0.5"), ("version", "latest"),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_in_place_and_the_app_lives(open_app: Open, key: str, text: str) -> None:
    app = open_app(**{**ONE_GPU, key: text})
    assert not app.metric
    assert "can't be planned yet" in app.subheader[0].value
    assert ":red[" in "".join(str(element.value) for element in app.sidebar.markdown)
    assert app.button(key="fix-0")


@pytest.mark.parametrize(("key", "text"), [("rps", "abc"), ("seqs", "0"), ("version", "latest")])
def test_a_click_sets_a_bad_value_back(open_app: Open, key: str, text: str) -> None:
    app = open_app(**{**ONE_GPU, key: text})
    app.button(key="fix-0").click()
    run(app)
    assert app.metric
    assert values_of(planned(app))[key] == defaults()[key]


@pytest.mark.parametrize(
    ("key", "text"),
    [("model", "no-such-model"), ("workload", "no-such-trace"), ("gpus", "no-such-gpu"), ("quant", "int1"), ("kv", "int2")],
)
def test_a_link_to_what_is_not_there_says_so(open_app: Open, key: str, text: str) -> None:
    app = open_app(**{**ONE_GPU, key: text})
    assert not app.metric
    assert text in said_by(app)
    assert app.button(key="fix-0")


def test_a_load_below_what_is_planned_can_be_set_back(open_app: Open) -> None:
    app = open_app(rps="1e-9", **ONE_GPU)
    assert "the least that is planned" in said_by(app)
    app.button(key="fix-0").click()
    run(app)
    assert app.metric


def test_a_link_with_an_unknown_parameter_is_answered_with_a_note(open_app: Open) -> None:
    app = open_app(rsp="12", load="Cows")
    assert app.metric
    assert [warning.value for warning in app.warning] == [
        "The link says rsp=12, which no field is called; it is left out.",
        "The link says load=Cows, which is none of Requests, Users, Tokens; the default is used.",
    ]


def test_html_in_a_link_is_shown_as_text(open_app: Open) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    app = open_app(model=hostile)
    shown = said_by(app)
    assert "\\<img" in shown
    assert not any(element.proto.allow_html for element in app.markdown)


def test_advanced_settings_are_marked_and_reset(open_app: Open) -> None:
    app = open_app(seqs="64", **ONE_GPU)
    assert planned(app).engine.max_num_seqs == 64
    assert any("● 1 change" in str(expander.label) for expander in app.expander)
    app.button(key="reset-advanced").click()
    run(app)
    assert planned(app).engine.max_num_seqs is None
    assert planned(app).hardware.gpu_ids == ("h100-80g-sxm",)


def test_start_afresh_returns_to_the_default(open_app: Open) -> None:
    app = open_app(rps="12", provider="aws", **ONE_GPU)
    app.button(key="reset-all").click()
    run(app)
    assert planned(app) == Scenario()


def test_a_suggestion_applies_its_patch(open_app: Open) -> None:
    app = open_app(**ONE_GPU)
    before = planned(app)
    button = next(button for button in app.button if str(button.key).startswith("change-"))
    button.click()
    run(app)
    assert planned(app) != before
    assert app.metric


def test_infeasible_targets_are_answered_with_the_nearest_that_can_be_met(open_app: Open) -> None:
    app = open_app(tpot="0.1 ms", **ONE_GPU)
    assert not app.metric
    assert answer_of(app)
    assert len(app.dataframe[0].value) > 0, "the rejected are what there is to see"
    assert "Loosen the targets" not in said_by(app), "it is the button at the top"
    app.button(key="nearest").click()
    run(app)
    tpot_s = planned(app).targets.tpot_p99_s
    assert tpot_s is not None
    assert tpot_s > 0.0001
    assert app.metric


def test_a_scenario_file_opens(open_app: Open) -> None:
    wanted = scenario_from_dict({"hardware": {"gpu_ids": ["l40s"], "tensor_parallel": [2]}, "seed": 11})
    app = open_app(rps="12", **ONE_GPU)
    app.file_uploader(key="scenario-file").upload("scenario.json", wanted.to_json().encode())
    run(app)
    assert planned(app) == wanted


@pytest.mark.parametrize("data", [b"", b"not json", b'{"seed": -1}', b" " * 70_000])
def test_a_bad_scenario_file_is_refused_and_nothing_changes(open_app: Open, data: bytes) -> None:
    app = open_app(rps="12", **ONE_GPU)
    app.file_uploader(key="scenario-file").upload("scenario.json", data)
    run(app)
    assert app.warning
    assert planned(app).workload.load.model_dump()["requests_per_s"] == 12.0


def test_the_link_to_copy_states_the_scenario(open_app: Open) -> None:
    app = open_app(rps="12", **ONE_GPU)
    link = next(block.value for block in app.code if block.value.startswith("http"))
    assert link.endswith("/?rps=12&gpus=h100-80g-sxm&tp=1")
