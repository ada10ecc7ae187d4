"""The adaptive budget: its rule, the drifting day, and what it is worth against the best fixed budget."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.adaptive_budget import (
    HOURS,
    PROFILE,
    AdaptiveDay,
    Day,
    Rule,
    adaptive_day,
    adaptive_explanation,
    controller,
    day_of_requests,
    long_prompt_share,
    usual_rate_rps,
    weekday,
)
from planner.cases import textbook_case
from planner.errors import InputError
from planner.simulator import Estimate
from planner.simulator.adaptive import Observation
from planner.ui.views.questions_batching_adaptive import adaptive_notes, share_title
from planner.workloads import load_profile

CASE = textbook_case()
RULE = Rule(1.0, 4, 0.030, 1.5, "lower")
DAY = Day(5000, 19.0, 0.3, 4.0)


def seen(budget: int = 1024, waiting: int = 0, tpot_s: tuple[float, ...] = ()) -> Observation:
    return Observation(10.0, budget, waiting, 20, np.array([]), np.array(tpot_s))


def test_the_rule_raises_while_the_queue_is_deep_and_lowers_on_a_breach() -> None:
    decide = controller(RULE, 256, 8192)
    assert decide(seen()) == 1024
    assert decide(seen(waiting=3)) == 1024
    assert decide(seen(waiting=4)) == 1536
    assert decide(seen(tpot_s=(0.01, 0.02, 0.04))) == 682
    assert decide(seen(waiting=9, tpot_s=(0.04,))) == 682
    patient = controller(RULE._replace(on_breach="lower when nobody waits"), 256, 8192)
    assert patient(seen(waiting=9, tpot_s=(0.04,))) == 1536
    assert patient(seen(waiting=3, tpot_s=(0.04,))) == 682


@settings(max_examples=50, deadline=None)
@given(st.integers(256, 8192), st.integers(0, 50), st.lists(st.floats(0.001, 0.2), max_size=5), st.floats(1.01, 8.0))
def test_the_rule_stays_in_its_range(budget: int, waiting: int, tpot_s: list[float], step: float) -> None:
    for breach in ("lower", "lower when nobody waits"):
        rule: Any = RULE._replace(step=step, on_breach=breach)
        found = controller(rule, 256, 8192)(seen(budget, waiting, tuple(tpot_s)))
        assert 256 <= found <= 8192
        if waiting < rule.deep_requests:
            assert found <= budget


@pytest.mark.parametrize("wrong", [RULE._replace(step=1.0), RULE._replace(step=float("nan")), RULE._replace(deep_requests=0)])
def test_a_rule_without_sense_is_refused(wrong: Rule) -> None:
    with pytest.raises(InputError):
        controller(wrong, 256, 8192)


def test_a_day_drifts_in_rate_and_in_prompts() -> None:
    requests = day_of_requests(CASE, DAY, 1)
    length_s = DAY.requests / DAY.mean_rps
    assert len(requests) == DAY.requests
    assert requests.arrival_s[-1] <= length_s
    assert (np.diff(requests.arrival_s) >= 0.0).all()
    counts = np.bincount((requests.arrival_s // (length_s / HOURS)).astype(int).clip(max=HOURS - 1), minlength=HOURS)
    assert np.corrcoef(counts, weekday(load_profile(PROFILE)))[0, 1] > 0.9
    longer = requests.prompt_tokens == 2000
    assert set(requests.prompt_tokens) == {500, 2000}
    quarter = (requests.arrival_s / length_s * 8).astype(int).clip(max=7)
    shares = np.bincount(quarter, weights=longer) / np.bincount(quarter)
    assert shares[[1, 2, 5, 6]].min() > 2.0 * shares[[0, 3, 4, 7]].max()
    assert np.array_equal(day_of_requests(CASE, DAY, 1).arrival_s, requests.arrival_s)
    assert long_prompt_share(DAY, np.array([0.0, 0.25, 0.5, 0.75])) == pytest.approx([0.0, 0.3, 0.0, 0.3])


def test_without_long_prompts_prompts_are_the_workloads_own_and_fit_the_model() -> None:
    assert set(day_of_requests(CASE, DAY._replace(long_share=0.0), 1).prompt_tokens) == {500}
    short = day_of_requests(CASE.with_limits(max_model_len=1000), DAY, 1)
    assert (short.prompt_tokens + short.output_tokens).max() == 1000


@pytest.fixture(scope="module")
def busy() -> AdaptiveDay:
    found = adaptive_day(CASE, DAY, RULE, 1.0)
    assert found is not None
    return found


def test_the_adaptive_budget_does_not_beat_the_best_fixed_one_and_says_so(busy: AdaptiveDay) -> None:
    assert busy.outcome != "beats"
    said = adaptive_explanation(busy, RULE, 1.0)
    assert f"{busy.best.budget:,}" in said.answer
    assert "gains nothing measurable" in said.answer or "loses to" in said.answer
    assert "no release of vLLM can move it" in said.setting


def test_it_does_beat_a_budget_that_was_not_chosen_for_the_load(busy: AdaptiveDay) -> None:
    assert busy.own is not None
    assert busy.own.budget == 8192
    gains = [mine - its for mine, its in zip(busy.adaptive.good_share, busy.own.good_share, strict=True)]
    assert np.mean(gains) > 0.01
    assert busy.best.mean_good_share - min(run.mean_good_share for run in busy.fixed) > 0.05


def test_what_it_did_is_on_record(busy: AdaptiveDay) -> None:
    at_s = [each for each, _ in busy.budget_steps]
    assert at_s == sorted(at_s)
    assert busy.budget_steps[0] == (0.0, 8192)
    assert all(busy.least <= budget <= busy.largest for _, budget in busy.budget_steps)
    assert len(busy.hours) == HOURS
    assert sum(hour.rate_rps for hour in busy.hours) / HOURS == pytest.approx(DAY.mean_rps, rel=0.02)
    assert len(busy.adaptive.good_share) == len(busy.best.good_share)


def test_a_calm_day_leaves_the_budget_alone() -> None:
    calm = adaptive_day(CASE, DAY._replace(requests=800, mean_rps=3.0), RULE, 1.0)
    assert calm is not None
    assert calm.outcome == "equals"
    assert len(calm.budget_steps) == 1
    assert "gains nothing measurable" in adaptive_explanation(calm, RULE, 1.0).answer


def test_the_outcome_follows_the_interval(busy: AdaptiveDay) -> None:
    for estimate, outcome in (
        (Estimate(0.02, 0.01, 0.03), "beats"),
        (Estimate(-0.02, -0.03, -0.01), "loses to"),
        (Estimate(0.02, -0.01, 0.05), "equals"),
        (Estimate(0.02), "equals"),
    ):
        found = replace(busy, difference=estimate)
        assert found.outcome == outcome
    assert (
        "beats the best fixed one" in adaptive_explanation(replace(busy, difference=Estimate(0.02, 0.01, 0.03)), RULE, 1.0).answer
    )


def test_an_engine_that_serves_nothing_has_no_answer() -> None:
    assert adaptive_day(CASE.with_limits(num_blocks=4), DAY._replace(requests=200), RULE, 1.0) is None


def test_the_usual_rate_is_the_cases_own_but_for_the_textbook() -> None:
    assert 15.0 < usual_rate_rps(CASE) < 25.0


def test_what_is_called_beaten_is_beaten_by_more_than_the_interval(busy: AdaptiveDay) -> None:
    shares = busy.adaptive.good_share
    hardly = tuple(share - 0.001 * (-1.0) ** day * (day + 1) for day, share in enumerate(shares))
    clearly = tuple(share - 0.1 for share in shares)
    runs = tuple(busy.best._replace(good_share=each) for each in (hardly, clearly))
    found = replace(busy, fixed=runs, best=runs[0], difference=Estimate(0.001, -0.01, 0.012))
    assert found.beaten == 1
    assert "measurably better than 1 of 2 fixed ones" in share_title(found)
    assert len(adaptive_notes(found)) == 2
    assert len(adaptive_notes(replace(found, difference=Estimate(0.02, 0.01, 0.03)))) == 1
    alike = replace(found, fixed=(runs[0],) * 2)
    assert share_title(alike) == "Every fixed budget serves the day alike"
