"""The Calibrate page, driven from app.py: before any upload, a fit to a file, a kept record, and files that are none."""

import gzip
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner.calibration.records import load_record
from planner.ui.views.calibrate_files import EXAMPLE

Open = Callable[..., AppTest]
SECONDS = 120
WAIT_S = 240.0
"""The first run on a machine compiles the simulator."""

PAGE = "planner/ui/pages/calibrate.py"


def run(app: AppTest) -> AppTest:
    app.run(timeout=SECONDS)
    assert [error.message for error in app.exception] == []
    return app


def text_of(app: AppTest) -> str:
    return (
        "\n".join(str(element.value) for element in (*app.markdown, *app.caption, *app.error, *app.warning))
        .replace("\\", "")
        .replace("\xa0", " ")
    )


@pytest.fixture
def page(open_app: Open) -> AppTest:
    """The page, for a plan that is quick to make."""
    return run(open_app(gpus="h100-80g-sxm", tp="1").switch_page(PAGE))


def until(app: AppTest, done: Callable[[AppTest], bool]) -> AppTest:
    """Run until work beside the page is through."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if done(app):
            return app
        run(app)
    raise AssertionError(text_of(app))


def upload(app: AppTest, name: str, data: bytes) -> AppTest:
    app.file_uploader(key="calibrate-files").upload(name, data)
    return run(app)


def fitted(app: AppTest) -> AppTest:
    app.button(key="calibrate-submit").click()
    return until(run(app), lambda each: "Fitted to" in text_of(each) or bool(each.error))


def has(app: AppTest, key: str) -> bool:
    return any(button.key == key for button in app.button)


def test_before_any_upload_it_shows_what_the_plan_rests_on(page: AppTest) -> None:
    text = text_of(page)
    assert "The plan's step times come from h100-80g-sxm/vllm-" in text
    assert "left out of the fit" in text
    assert "collect_vllm.py --quick" in page.code[0].value
    assert page.selectbox(key="calibrate-record").value.startswith("h100-80g-sxm/vllm-")
    assert not has(page, "calibrate-submit")


@pytest.mark.parametrize("title", ["Running server", "Operators", "Links"])
def test_each_collector_has_its_command(page: AppTest, title: str) -> None:
    before = page.code[0].value
    page.segmented_control(key="calibrate-collector").set_value(title)
    page.segmented_control(key="calibrate-effort").set_value("Full")
    run(page)
    assert page.code[0].value != before
    assert "--full" in page.code[0].value


def test_a_wrong_field_in_the_sidebar_is_said_and_nothing_breaks(open_app: Open) -> None:
    app = run(open_app(rps="ten").switch_page(PAGE))
    assert "Requests a second" in text_of(app)


def test_a_scenario_that_no_gpu_can_serve_still_shows_a_record(open_app: Open) -> None:
    app = run(open_app(gpus="t4", tp="1", model="llama-3.1-405b-instruct").switch_page(PAGE))
    assert "The plan's step times come from" in text_of(app)


def test_a_model_that_is_gone_is_said_once_and_no_file_of_ones_own_is_blamed(open_app: Open) -> None:
    app = run(open_app(model="gone").switch_page(PAGE))
    assert "is not in the catalogue" in text_of(app)
    assert not app.error


def test_a_record_that_is_gone_is_named_and_the_others_stay(open_app: Open) -> None:
    app = run(open_app(gpus="h100-80g-sxm", tp="1", calibration="h100-80g-sxm/gone").switch_page(PAGE))
    assert "gone" in text_of(app)
    assert page_has_records(app)


def page_has_records(app: AppTest) -> bool:
    return any(box.key == "calibrate-record" for box in app.selectbox)


def test_any_record_can_be_looked_at_and_used(page: AppTest) -> None:
    page.selectbox(key="calibrate-record").set_value("l40s/vllm-0.24.0")
    run(page)
    assert load_record("l40s/vllm-0.24.0").description[:20] in text_of(page)
    page.button(key="use-record").click()
    run(page)
    scenario = page.session_state["_scenario_state"].scenario
    assert scenario.engine.calibration_id == "l40s/vllm-0.24.0"
    assert scenario.hardware.gpu_ids == ("l40s",)


def test_a_file_is_fitted_kept_and_planned_with(page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    upload(page, "steps.jsonl.gz", EXAMPLE.read_bytes())
    until(page, lambda each: has(each, "calibrate-submit"))
    assert "vllm 0.32.0" in page.dataframe[1].value["Engine"].tolist()
    page.selectbox(key="calibrate-gpu_id").set_value("cpu-recorded")
    fitted(page)
    assert "when left out of the fit" in text_of(page)
    page.text_input(key="calibrate-name").set_value("two-cores")
    run(page)
    page.button(key="calibrate-save").click()
    run(page)
    kept = tmp_path / "hardware_profiles" / "calibrations" / "cpu-recorded" / "two-cores.json"
    assert kept.is_file()
    scenario = page.session_state["_scenario_state"].scenario
    assert scenario.engine.calibration_id == "cpu-recorded/two-cores"
    assert scenario.hardware.gpu_ids == ("cpu-recorded",)
    assert load_record("cpu-recorded/two-cores").basis == "fitted"
    page.button(key="calibrate-save").click()
    run(page)
    assert "already" in text_of(page)


def test_a_name_that_leaves_the_folder_or_is_taken_is_refused(
    page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "home"))
    page.button(key="calibrate-example").click()
    until(run(page), lambda each: has(each, "calibrate-submit"))
    page.selectbox(key="calibrate-gpu_id").set_value("cpu-recorded")
    fitted(page)
    for name in ("../../outside", "/etc/passwd", "a/../../b", "", "<b>x</b>", "x" * 80, "vllm-0.32.0"):
        page.text_input(key="calibrate-name").set_value(name)
        run(page)
        page.button(key="calibrate-save").click()
        run(page)
        assert "name is" in text_of(page), name
    assert not list(tmp_path.rglob("*.json"))


def test_without_a_folder_the_record_can_be_downloaded_and_the_page_says_how_to_keep_it(page: AppTest) -> None:
    page.button(key="calibrate-example").click()
    until(run(page), lambda each: has(each, "calibrate-submit"))
    fitted(page)
    assert "PLANNER_HOME" in text_of(page)
    assert "put the file into hardware_profiles/calibrations/cpu-recorded" in text_of(page).replace("\\", "")
    assert "choose it under Every record" in text_of(page)
    assert not has(page, "calibrate-save")


def test_files_and_form_come_back_after_another_page(page: AppTest) -> None:
    page.button(key="calibrate-example").click()
    until(run(page), lambda each: has(each, "calibrate-submit"))
    fitted(page)
    before = next(line for line in text_of(page).splitlines() if "Fitted to" in line)
    run(page.switch_page("planner/ui/pages/catalogue.py"))
    run(page.switch_page(PAGE))
    assert before in text_of(page)
    page.button(key="calibrate-clear").click()
    run(page)
    assert not has(page, "calibrate-submit")


def test_a_file_given_twice_counts_once_and_clearing_empties_the_upload_too(page: AppTest) -> None:
    data = EXAMPLE.read_bytes()
    page.file_uploader(key="calibrate-files").upload("a.jsonl.gz", data).upload("b.jsonl.gz", data)
    until(run(page), lambda each: has(each, "calibrate-submit"))
    assert "b.jsonl.gz holds the same as a.jsonl.gz: it counts once" in text_of(page)
    held = next(frame.value for frame in page.dataframe if "Holds" in frame.value.columns)
    assert list(held["File"]) == ["a.jsonl.gz"]
    page.button(key="calibrate-clear").click()
    run(page)
    assert "counts once" not in text_of(page)
    assert page.file_uploader(key="calibrate-files-1").value == [], "a new widget is an empty one"


def test_a_long_fit_shows_its_progress_and_can_be_given_up(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def endless(_files: object, _target: object, tell: Callable[[str, float], None]) -> None:
        try:
            while True:
                tell("Serving the requests again", 0.4)
                time.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr("planner.ui.components.calibrate_fit.fit_files", endless)
    page.button(key="calibrate-example").click()
    until(run(page), lambda each: has(each, "calibrate-submit"))
    page.selectbox(key="calibrate-gpu_id").set_value("l40s")
    page.button(key="calibrate-submit").click()
    until(run(page), lambda each: has(each, "cancel-fit"))
    page.button(key="cancel-fit").click()
    run(page)
    assert ended.wait(10.0)
    assert "Cancelled" in text_of(page)
    assert has(page, "again-fit")


BAD = {
    "empty.json": (b"", "must not be empty"),
    "nan.json": (b'{"backend": "vllm", "request_throughput": NaN}', "nan.json"),
    "truncated.json": (b'{"backend": "vllm", "duration":', "truncated.json"),
    "utf16.json": ('{"backend": "vllm"}'.encode("utf-16"), "utf16.json"),
    "page.html": (b"<html><script>alert(1)</script></html>", "page.html"),
    "<img src=x>.json": (b"[]", "img src"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_none_is_named_and_the_page_stays(page: AppTest, name: str) -> None:
    data, says = BAD[name]
    until(upload(page, name, data), lambda each: bool(each.error))
    assert says in text_of(page)
    assert not any("<img" in str(error.value).replace("\\<", "") for error in page.error)
    assert not has(page, "calibrate-submit")
    assert page_has_records(page)


def test_a_large_file_that_is_none_is_refused_in_time(page: AppTest) -> None:
    until(upload(page, "large.json", b"[" + b" " * 60_000_000), lambda each: bool(each.error))
    assert page_has_records(page)


def test_a_file_cut_in_the_middle_is_used_and_its_loss_is_said(page: AppTest) -> None:
    whole = gzip.decompress(EXAMPLE.read_bytes())
    upload(page, "cut.jsonl", whole[: len(whole) // 2])
    until(page, lambda each: has(each, "calibrate-submit"))
    assert "cut off" in text_of(page)


def test_times_of_another_device_are_said_to_be_far_off(page: AppTest) -> None:
    page.button(key="calibrate-example").click()
    until(run(page), lambda each: has(each, "calibrate-submit"))
    page.selectbox(key="calibrate-gpu_id").set_value("b200-sxm")
    fitted(page)
    assert page.error or "Far outside" in text_of(page)
