"""The Catalogue page: tables with sources and marks, details, uploads of every kind."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner.hardware import list_gpus, list_prices
from planner.models import list_models
from planner.ui.views.catalogue import STALE, WEAK, gpu_details, gpus_frame, is_stale, model_details, prices_frame
from planner.workloads import list_workloads
from tests.ui.pages_run import run
from tests.ui.users_files import GPU, LLAMA

Open = Callable[..., AppTest]
PAGE = "planner/ui/pages/catalogue.py"
CONFIG = json.dumps(LLAMA).encode()


def catalogue(app: AppTest, tab: str) -> AppTest:
    app.switch_page(PAGE)
    app.session_state["catalogue-tab"] = tab
    return run(app)


def text_of(app: AppTest) -> str:
    return "\n".join(str(element.value) for element in (*app.markdown, *app.caption, *app.error, *app.warning)).replace("\xa0", " ")


@pytest.fixture
def light(open_app: Open) -> AppTest:
    """The app opened on a link that is quick to answer."""
    return open_app(gpus="h100-80g-sxm", tp="1")


@pytest.mark.parametrize(
    ("tab", "rows"),
    [
        ("GPUs", len(list_gpus())),
        ("Prices", len(list_prices())),
        ("Models", len(list_models())),
        ("Workloads", len(list_workloads())),
    ],
)
def test_each_table_lists_its_catalogue(light: AppTest, tab: str, rows: int) -> None:
    app = catalogue(light, tab)
    assert len(app.dataframe[0].value) == rows


def test_the_scenario_stays_while_one_looks_around(light: AppTest) -> None:
    app = catalogue(light, "Models")
    assert app.session_state["_scenario_state"].scenario.hardware.gpu_ids == ("h100-80g-sxm",)


def test_every_figure_of_every_gpu_has_a_source() -> None:
    for gpu in list_gpus():
        rows = gpu_details(gpu.id)
        assert len(rows) > 5
        assert all(row.reference and row.kind for row in rows)


def test_every_model_has_its_sources() -> None:
    for model in list_models()[::10]:
        facts, sources = model_details(model.id)
        assert facts["Parameters"]
        assert sources


def test_weak_gpus_are_marked() -> None:
    weak = {gpu.name for gpu in list_gpus() if gpu.confidence == "low"}
    frame = gpus_frame()
    assert set(frame[[WEAK in note for note in frame["Note"]]]["GPU"]) == weak


def test_old_prices_are_marked_against_the_day_that_is_given() -> None:
    newest = max(price.as_of for price in list_prices())
    frame = prices_frame(newest + dt.timedelta(days=91))
    assert all(STALE in note for note in frame["Note"])
    price = max(list_prices(), key=lambda each: each.as_of)
    assert not is_stale(price, newest)
    assert not is_stale(price, newest - dt.timedelta(days=1000))


def test_a_config_is_read_and_shown(light: AppTest) -> None:
    app = catalogue(light, "Models")
    app.file_uploader(key="upload-model").upload("config.json", CONFIG)
    run(app)
    assert "id `my-model`" in text_of(app)
    assert "PLANNER_HOME" in text_of(app)


def test_a_config_is_kept_and_planned_with(light: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    app = catalogue(light, "Models")
    app.file_uploader(key="upload-model").upload("config.json", CONFIG)
    app.text_input(key="upload-model-name").set_value("Tiny 1B")
    run(app)
    app.button(key="keep-model").click()
    run(app)
    assert (tmp_path / "models" / "tiny-1b.json").read_bytes() == CONFIG
    assert app.session_state["_scenario_state"].scenario.model.id == "tiny-1b"
    app.switch_page("planner/ui/pages/plan.py")
    run(app)
    assert app.metric


def with_a_kept_profile(app: AppTest) -> AppTest:
    """Upload a GPU's profile on the Catalogue page and keep it."""
    opened = catalogue(app, "GPUs")
    opened.file_uploader(key="upload-gpu").upload("capped.toml", GPU)
    run(opened)
    opened.button(key="keep-gpus").click()
    run(opened)
    return opened


def test_a_profile_is_kept_and_planned_with(light: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    app = with_a_kept_profile(light)
    assert (tmp_path / "hardware_profiles" / "h100-capped.toml").exists()
    assert app.session_state["_scenario_state"].scenario.hardware.gpu_ids == ("h100-capped",)


def test_a_trace_is_read_and_planned_with(light: AppTest) -> None:
    rows = "\n".join(
        ["arrived_at,num_prefill_tokens,num_decode_tokens", *(f"{i * 0.1},{100 + i},{20 + i % 7}" for i in range(300))]
    )
    app = catalogue(light, "Workloads")
    app.file_uploader(key="upload-trace").upload("mine.csv", rows.encode())
    run(app)
    assert "300 of 300 rows kept" in text_of(app)
    app.button(key="use-trace").click()
    run(app)
    assert any("250 in" in each.label for each in app.expander), "the folded sidebar knows what was uploaded"
    app.switch_page("planner/ui/pages/plan.py")
    run(app)
    assert app.metric


def test_a_trace_is_planned_with_at_the_rate_at_which_it_was_recorded(light: AppTest) -> None:
    rows = "\n".join(["timestamp,prompt_tokens,output_tokens", *(f"{i * 0.4},{100 + i},{20 + i % 7}" for i in range(300))])
    app = catalogue(light, "Workloads")
    app.file_uploader(key="upload-trace").upload("mine.csv", rows.encode())
    run(app)
    offer = app.button(key="use-trace-rate")
    assert offer.label.replace("\xa0", " ") == "Use it at its own 2.5 req/s"
    offer.click()
    run(app)
    scenario = app.session_state["_scenario_state"].scenario
    assert (scenario.workload.load.requests_per_s, scenario.workload.id[:8]) == (2.5, "mine-csv")
    untimed = "prompt_tokens,output_tokens\n100,20\n200,30"
    app.file_uploader(key="upload-trace").upload("untimed.csv", untimed.encode())
    run(app)
    assert [button.key for button in app.button if str(button.key).startswith("use-trace")] == ["use-trace"]


def test_what_is_kept_already_is_not_offered_to_be_kept_again(
    light: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    app = with_a_kept_profile(light)
    assert "It is in your folder" in text_of(app)
    assert not any(button.key == "keep-gpus" for button in app.button)
    app.button(key="use-gpus").click()
    run(app)
    assert app.session_state["_scenario_state"].scenario.hardware.gpu_ids == ("h100-capped",)


def test_a_bad_row_is_named_and_left_out_when_asked(light: AppTest) -> None:
    rows = "prompt_tokens,output_tokens\n100,20\n=1+1,20\n300,30"
    app = catalogue(light, "Workloads")
    app.file_uploader(key="upload-trace").upload("mine.csv", rows.encode())
    run(app)
    assert "prompt\\_tokens is '=1+1'" in str(app.error[0].value)
    app.toggle(key="upload-trace-drop").set_value(True)
    run(app)
    assert not app.error
    assert "2 of 3 rows kept" in text_of(app)


@pytest.mark.parametrize(
    ("tab", "key", "name", "data"),
    [
        ("Models", "upload-model", "config.json", b"not json"),
        ("Models", "upload-model", "config.json", b'{"model_type": "unheard-of"}'),
        ("Models", "upload-model", "config.json", bytes(3 * 2**20)),
        ("GPUs", "upload-gpu", "gpu.toml", b"id = "),
        ("GPUs", "upload-gpu", "gpu.toml", b"a = [" + b"[" * 5000),
        ("Workloads", "upload-trace", "t.csv", b"a,b\n1,2\n"),
        ("Workloads", "upload-trace", "t.csv", b""),
    ],
)
def test_a_bad_file_is_refused_where_it_lies_and_the_app_lives(light: AppTest, tab: str, key: str, name: str, data: bytes) -> None:
    app = catalogue(light, tab)
    app.file_uploader(key=key).upload(name, data)
    run(app)
    assert len(app.error) == 1
    assert len(app.dataframe[0].value) > 0


def test_html_in_a_model_name_is_shown_as_text_or_refused(light: AppTest) -> None:
    app = catalogue(light, "Models")
    app.file_uploader(key="upload-model").upload("config.json", CONFIG)
    app.text_input(key="upload-model-name").set_value("<script>alert(1)</script>")
    run(app)
    assert "<script>" not in text_of(app).replace("\\<script\\>", "")
    assert not any(element.proto.allow_html for element in app.markdown)
