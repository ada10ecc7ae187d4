"""The frame of the questions' pages: inputs from the link, complaints under their field, whose case, what a page keeps."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from planner.ui import reading
from planner.ui.components import questions_batching as batching
from planner.ui.components import questions_latency as latency
from planner.ui.components import questions_offline as offline
from planner.ui.components import questions_overload as overload
from planner.ui.components import questions_sharing as sharing
from planner.ui.components import questions_speculation as speculation
from planner.ui.views.question_inputs import Input, complaints_of, read_asked, widget_key
from planner.ui.views.questions import FORMER_TITLES

Open = Callable[..., AppTest]
ONE_GPU = {"gpus": "h100-80g-sxm", "tp": "1"}
LATENCY = "planner/ui/pages/latency.py"
RATE = Input("rate", "Requests/s", "10", low=0.1, high=1e4)
ORDER = Input("order", "Order", "fcfs", choices={"fcfs": 1, "shortest": 2})


def run(app: AppTest) -> AppTest:
    app.run(timeout=120)
    assert [error.message for error in app.exception] == []
    return app


def open_latency(open_app: Open, **query: str) -> AppTest:
    app = open_app(**ONE_GPU, **query)
    app.switch_page(LATENCY)
    return run(app)


def headline(app: AppTest) -> str:
    return next(str(element.value) for element in app.markdown if str(element.value).startswith("#### "))


def test_empty_inputs_take_their_initial_values() -> None:
    assert read_asked([RATE, ORDER], {}).values == {"rate": 10.0, "order": 1}


@pytest.mark.parametrize(
    ("text", "bound"), [("0", "at least 0.1"), ("1e9", "at most 10000"), ("NaN", "a number"), ("<b>", "a number")]
)
def test_a_bad_input_is_a_fault_of_its_own_field(text: str, bound: str) -> None:
    asked = read_asked([RATE, ORDER], {"rate": text})
    assert bound in asked.faults["rate"].bound
    assert "order" not in asked.faults


@pytest.mark.parametrize(("text", "bound"), [("0.01", "at least 0.1 ms"), ("4e6", "at most 3600 s")])
def test_a_bound_is_written_in_the_unit_of_its_input(text: str, bound: str) -> None:
    tpot = Input("tpot", "TPOT target", "30 ms", reading.duration("ms"), low=1e-4, high=3600.0)
    assert bound in read_asked([tpot], {"tpot": text}).faults["tpot"].bound


def test_a_choice_that_is_not_offered_is_a_fault() -> None:
    assert "must be one of fcfs, shortest" in str(read_asked([ORDER], {"order": "lifo"}).faults["order"])


@settings(deadline=None)
@given(st.floats(min_value=0.1, max_value=1e4))
def test_every_number_within_the_bounds_reads_back(value: float) -> None:
    assert read_asked([RATE], {"rate": repr(value)}).values["rate"] == value


@settings(deadline=None)
@given(st.text(max_size=80))
def test_no_text_breaks_the_reading(text: str) -> None:
    count = Input("n", "Requests", "100", reading.whole, low=1, high=1000)
    asked = read_asked([count], {"n": text})
    assert ("n" in asked.values) != ("n" in asked.faults)


def test_a_view_takes_its_inputs_from_the_link(open_app: Open) -> None:
    slow = headline(open_latency(open_app, **{widget_key("flight", "rate"): "1"}))
    fast = headline(open_latency(open_app, **{widget_key("flight", "rate"): "8"}))
    assert slow != fast


def test_the_textbook_is_asked_on_a_click(open_app: Open) -> None:
    app = open_latency(open_app)
    own = headline(app)
    app.session_state[widget_key("latency", "case")] = "Textbook"
    assert "12.49" in headline(run(app))
    assert "12.49" not in own


def test_a_bad_input_is_complained_of_under_its_field_and_the_page_lives(open_app: Open) -> None:
    app = open_latency(open_app, **{widget_key("flight", "rate"): "many"})
    assert any("Must be a number" in str(element.value) for element in app.markdown)
    assert not any(str(element.value).startswith("#### ") for element in app.markdown)
    app.session_state[widget_key("flight", "rate")] = "2"
    assert headline(run(app))


def test_a_link_with_a_former_title_opens_the_view_under_its_new_one(open_app: Open) -> None:
    titles = {view.title for group in (batching, latency, offline, overload, sharing, speculation) for view in group.VIEWS}
    assert set(FORMER_TITLES.values()) <= titles
    assert not titles & set(FORMER_TITLES)
    app = open_app(**ONE_GPU, **{widget_key("batching", "view"): "Which knob binds?", widget_key("batching", "case"): "Textbook"})
    app.switch_page("planner/ui/pages/batching.py")
    assert "The compute ridge binds first" in headline(run(app))
    assert app.session_state[widget_key("batching", "view")] == "What binds?"


def test_what_a_link_asks_for_and_is_not_there_is_said(open_app: Open) -> None:
    app = open_latency(
        open_app, **{"q-latency-view": "<b>Cows</b>", "q-latency-case": "NaN", "q-flight-cows": "1", "q-long-cows": "2"}
    )
    said = [str(each.value).replace("\\", "") for each in app.warning]
    assert [text.split(",")[0] for text in said] == [
        "The link says q-latency-view=<b>Cows</b>",
        "The link says q-latency-case=NaN",
        "The link says q-flight-cows=1",
    ], "of the view that is shown, and of no other"
    former, now = next(iter(FORMER_TITLES.items()))
    assert complaints_of({"q-batching-view": former}, ("batching", {"view": [now]}), ("budget", {})) == ()


def test_inputs_come_back_with_the_page(open_app: Open) -> None:
    app = open_latency(open_app, **{widget_key("flight", "rate"): "7"})
    before = headline(app)
    app.switch_page("planner/ui/pages/catalogue.py")
    run(app)
    app.switch_page(LATENCY)
    assert headline(run(app)) == before


def test_a_scenario_without_an_engine_is_said_not_broken(open_app: Open) -> None:
    app = open_app(gpus="l4", tp="1", model="llama-3.1-70b-instruct")
    app.switch_page(LATENCY)
    run(app)
    assert any("no engine that starts" in str(element.value) for element in app.markdown)


def test_html_in_a_link_is_text(open_app: Open) -> None:
    app = open_latency(open_app, **{widget_key("flight", "rate"): "<script>alert(1)</script>"})
    assert not any("<script>" in str(element.value) for element in app.markdown)


def test_the_replica_asked_is_named_and_a_plan_without_an_answer_is_said(open_app: Open) -> None:
    captions = [str(element.value) for element in open_latency(open_app).caption]
    assert any("Asked of one replica, H100 80GB SXM5, with max" in text for text in captions)
    assert not any("No layout meets" in text for text in captions)
    hopeless = [str(element.value) for element in open_latency(open_app, ttft="1 ms").caption]
    assert any("No layout meets the scenario's targets" in text for text in hopeless)


def test_a_choice_keeps_its_first_value_in_every_run_so_that_a_slow_browser_shows_what_is_answered(open_app: Open) -> None:
    app = open_app(**ONE_GPU, **{"q-sharing-case": "Textbook", "q-sharing-view": "Who goes first?", "q-order-n": "200"})
    app.switch_page("planner/ui/pages/sharing.py")
    for _ in range(2):
        lengths = run(app).selectbox(widget_key("order", "lengths"))
        assert (lengths.value, lengths.proto.default) == ("Exponential", lengths.options.index("Exponential"))


def test_a_link_holds_for_a_view_that_is_opened_later(open_app: Open) -> None:
    linked = {widget_key("order", "lengths"): "Heavy (squared CV 4)", widget_key("order", "n"): "210"}
    app = open_app(**ONE_GPU, **{"q-sharing-case": "Textbook", **linked})
    app.switch_page("planner/ui/pages/sharing.py")
    run(app)
    app.session_state[widget_key("sharing", "view")] = "Who goes first?"
    lengths = run(app).selectbox(widget_key("order", "lengths"))
    assert (lengths.value, lengths.proto.set_value) == ("Heavy (squared CV 4)", True)
    assert app.text_input(widget_key("order", "n")).value == "210"
