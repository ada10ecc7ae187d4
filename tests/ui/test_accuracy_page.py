"""The Accuracy page, driven from app.py: shipped results, every source, and the user's own table or benchmark."""

import json
import time
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from planner.accuracy.shipped import shipped_accuracy

Open = Callable[..., AppTest]
SECONDS = 120
WAIT_S = 240.0
"""The first run on a machine compiles the simulator."""

PAGE = "planner/ui/pages/accuracy.py"
TABLE = (
    "gpu,engine,model,scenario,prompt_tokens,output_tokens,concurrency,tpot_mean_s,ttft_mean_s\n"
    "h100-80g-sxm,vllm,llama-3.1-8b-instruct,closed-loop,256,32,2,0.0080,0.05\n"
    "h100-80g-sxm,vllm,<b>no model</b>,closed-loop,256,32,2,0.0080,0.05\n"
)
BENCH = {
    "date": "20261101-120000", "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 40,
    "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": None, "duration": 21.0, "completed": 40, "failed": 0,
    "total_input_tokens": 10_240, "total_output_tokens": 2_560, "request_throughput": 1.905, "output_throughput": 121.9,
    "total_token_throughput": 609.5, "mean_ttft_ms": 35.0, "median_ttft_ms": 33.0, "p99_ttft_ms": 60.0, "mean_tpot_ms": 7.5,
    "median_tpot_ms": 7.4, "p99_tpot_ms": 9.0, "mean_itl_ms": 7.5, "median_itl_ms": 7.3, "p99_itl_ms": 12.0,
}  # fmt: skip


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


def until(app: AppTest, done: Callable[[AppTest], bool]) -> AppTest:
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if done(app):
            return app
        run(app)
    raise AssertionError(text_of(app))


@pytest.fixture
def page(open_app: Open) -> AppTest:
    """The page with a scenario that no plan is made of, which it doesn't need."""
    return run(open_app(rps="ten").switch_page(PAGE))


@pytest.mark.parametrize("gone", [{"model": "gone"}, {"gpus": "gone"}])
def test_what_a_link_names_and_is_not_there_is_no_matter_here(open_app: Open, gone: dict[str, str]) -> None:
    app = run(open_app(**gone).switch_page(PAGE))
    assert not app.error
    assert "Add your own benchmark" in [each.value for each in app.subheader]


def upload(app: AppTest, name: str, data: bytes) -> AppTest:
    app.file_uploader(key="own-files").upload(name, data)
    return run(app)


def test_it_opens_with_the_figures_in_a_sentence(page: AppTest) -> None:
    text = text_of(page)
    assert "measured points" in text
    assert "Largest miss" in text
    assert "not verified by MLCommons" in text
    assert any("python -m planner accuracy" in block.value for block in page.code)


def test_every_source_can_be_looked_at(page: AppTest) -> None:
    for source in shipped_accuracy():
        page.selectbox(key="accuracy-source").set_value(source.id)
        run(page)
        assert source.command in [block.value for block in page.code]
        if source.notice is not None:
            assert source.notice[:40] in text_of(page)


def test_a_metric_sorts_the_groups(page: AppTest) -> None:
    page.selectbox(key="accuracy-metric-serving_by_concurrency").set_value("ttft")
    run(page)
    medians = page.dataframe[0].value["TTFT, median"].dropna().tolist()
    assert medians == sorted(medians, reverse=True)


def test_a_table_of_one_s_own_is_compared_in_place(page: AppTest) -> None:
    upload(page, "mine.csv", TABLE.encode())
    until(page, lambda each: "rows is predicted" in text_of(each))
    assert "1 of 2 rows is predicted" in text_of(page)
    assert any("TPOT, measured" in frame.value for frame in page.dataframe)


def test_lines_that_cannot_be_read_are_shown(page: AppTest) -> None:
    rows = "h100-80g-sxm,vllm,llama-3.1-8b-instruct,closed-loop,256,32,2,0.0080,nan\n" * 22
    found = until(upload(page, "faults.csv", (TABLE + rows).encode()), lambda each: "that can't be read" in text_of(each))
    shown = next(frame.value for frame in found.dataframe if "Column" in frame.value)
    first = len(TABLE.splitlines()) + 1
    assert shown["Line"].tolist() == list(range(first, first + 20))
    assert set(shown["Column"]) == {"ttft_mean_s"}
    assert shown["Why not"][0].startswith("is 'nan': input should be")
    assert "2 more lines can't be read" in text_of(found)


def test_a_benchmark_s_result_is_compared_in_place(page: AppTest) -> None:
    upload(page, "bench.json", json.dumps(BENCH).encode())
    until(page, lambda each: any(button.key == "own-submit" for button in each.button))
    assert page.selectbox(key="own-model_id").value == "llama-3.1-8b-instruct"
    page.button(key="own-submit").click()
    until(run(page), lambda each: "is off by (median)" in text_of(each) or bool(each.error))
    assert "is off by (median)" in text_of(page)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.csv", b"", "empty"),
        ("negative.json", json.dumps({**BENCH, "mean_ttft_ms": -35.0}).encode(), "negative.json"),
        ("cut.json", json.dumps(BENCH)[:200].encode(), "cut.json"),
        ("<script>.csv", b"a,b\n1,2\n", "columns"),
        ("utf16.csv", TABLE.encode("utf-16"), "utf16"),
    ],
)
def test_a_file_that_is_none_is_named_and_the_page_stays(page: AppTest, name: str, data: bytes, says: str) -> None:
    until(upload(page, name, data), lambda each: bool(each.error))
    assert says in text_of(page)
    assert page.selectbox(key="accuracy-source").value


def test_a_large_table_is_refused_in_time(page: AppTest) -> None:
    until(upload(page, "large.csv", b"gpu,engine\n" + b"x,y\n" * 15_000_000), lambda each: bool(each.error))
    assert "rows" in text_of(page)
