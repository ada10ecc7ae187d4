"""The report and what else leaves the Plan page: complete, of the plan's own figures, and safe whatever the names are."""

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape
from streamlit.testing.v1 import AppTest

from planner.exporters.check import check_of
from planner.plans import Plan, plan
from planner.scenario import scenario_from_dict
from planner.ui.views.answer import further_changes, metrics
from planner.ui.views.report import curve, report_html
from planner.ui.views.why import derivations
from planner.ui.words import seconds, stop

Open = Callable[..., AppTest]
TODAY = dt.date(2026, 12, 1)
ONE_GPU = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}


class Reader(HTMLParser):
    """Collects tags and text, and fails where an element isn't closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


@lru_cache(maxsize=1)
def one_gpu() -> Plan:
    return plan(scenario_from_dict(ONE_GPU))


@pytest.fixture(scope="module")
def planned() -> Plan:
    return one_gpu()


def test_the_report_says_what_the_page_says(planned: Plan) -> None:
    text = read(report_html(planned, TODAY)).text
    assert planned.summary in text
    for view in metrics(planned, TODAY):
        assert view.value in text
        assert view.note in text
    for change in further_changes(planned):
        assert stop(change.detail) in text
    for derivation in derivations(planned):
        assert derivation.title in text
        assert all(line in text for line in derivation.lines)
        assert all(row.reference in text for row in derivation.sources)
    assert check_of(planned).line in text
    assert planned.scenario.digest() in text


def test_the_report_needs_nothing_from_elsewhere(planned: Plan) -> None:
    page = report_html(planned, TODAY)
    reader = read(page)
    assert not reader.tags & {"script", "img", "link", "iframe", "object", "form"}
    assert not reader.attributes & {"src", "href", "onclick", "onload"}
    assert "url(" not in page
    assert "@import" not in page


@given(st.text(min_size=1, max_size=60) | st.sampled_from(["<script>alert(1)</script>", "{{ 7*7 }}", "</title><b>", '" onload="x']))
@settings(deadline=None, max_examples=30)
def test_no_name_becomes_markup(name: str) -> None:
    planned = one_gpu()
    plain = read(report_html(planned, TODAY))
    assert planned.chosen is not None
    named = replace(planned, summary=name, warnings=(f"{name}.",), chosen=replace(planned.chosen, gpu_name=name))
    page = report_html(named, TODAY)
    reader = read(page)
    assert reader.tags <= plain.tags
    assert reader.attributes <= plain.attributes
    assert page.count(str(escape(name))) >= 2  # in the heading and on the card


def test_the_curve_is_drawn_to_scale(planned: Plan) -> None:
    target_s = planned.scenario.targets.tpot_p99_s
    drawn = curve(planned, "TPOT", target_s)
    assert drawn is not None
    assert planned.details is not None
    assert planned.chosen is not None
    assert planned.chosen.latency is not None
    points = [tuple(map(float, point.split(","))) for point in drawn.p99.split()]
    assert points == sorted(points)
    assert all(46.0 <= x <= 410.0 and 10.0 <= y <= 190.0 for x, y in points)
    assert (drawn.planned_x, drawn.planned_y) in points
    assert drawn.target_y is not None
    measured_s = planned.chosen.latency.tpot_p99_s or 0.0
    assert (190.0 - drawn.planned_y) / (190.0 - drawn.target_y) == pytest.approx(measured_s / (target_s or 1.0), rel=0.02)
    assert drawn.target == seconds(target_s)


@pytest.mark.parametrize(
    "changes",
    [
        {"targets": {"ttft_p99_s": None, "tpot_p99_s": None}},
        {"targets": {"ttft_p99_s": 1e-4, "tpot_p99_s": 1e-4}},
        {"targets": {"ttft_p99_s": None, "tpot_p99_s": 0.05}},
        {"model": {"id": "llama-3.1-405b-instruct"}},
    ],
)
def test_every_kind_of_plan_has_a_report(changes: dict[str, object]) -> None:
    found = plan(scenario_from_dict({**ONE_GPU, **changes}))
    text = read(report_html(found, TODAY)).text
    assert found.summary in text
    if found.nearest is not None:
        assert stop(found.nearest.detail) in text
    assert ("Run it" in text) == (found.chosen is not None)
    assert "None" not in re.sub(r"None of|None was", "", text)
    assert "nan" not in text.split()


def test_the_page_offers_what_leaves_with_the_reader(open_app: Open) -> None:
    app = open_app(gpus="h100-80g-sxm", tp="1")
    labels = [button.proto.label for button in app.get("download_button")]
    assert {"Report", "Kubernetes", "Autoscaling", "Requests"} <= set(labels)
    assert any("vllm bench serve" in block.value for block in app.code)


def test_offline_work_has_a_report_but_no_service(open_app: Open) -> None:
    app = open_app(gpus="h100-80g-sxm", tp="1", offline="true")
    labels = {button.proto.label for button in app.get("download_button")}
    assert "Report" in labels
    assert not {"Kubernetes", "Autoscaling", "Requests"} & labels
