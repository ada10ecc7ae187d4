"""What the view on drift says: the seen rate counts on both sides of the comparison."""

from dataclasses import replace

import pytest

from planner.analysis.drift import Shift, Work
from planner.drift_check import FleetEffect
from planner.ui.views.questions_overload_watch import (
    drift_answer,
    drift_rows,
    drift_setting,
    length_title,
    shift_frame,
    watch_rows,
)
from planner.ui.words import sentence

EFFECT = FleetEffect(
    before=4, as_set=10, tuned=9, usd_per_day_before=400.0, usd_per_day=900.0, binds="TTFT target (compute)", why_not=None
)
WORK = Work(planned_s=0.1, seen_s=0.15)


@pytest.mark.parametrize(("factor", "formula"), [(1.0, "4 × 1.5 = 6"), (2.0, "4 × 1.5 × 2 = 12")])
def test_replicas_by_gpu_time_follow_the_seen_rate(factor: float, formula: str) -> None:
    as_set, tuned, bill = drift_rows(EFFECT, WORK, factor)
    assert as_set.formula == formula
    assert (as_set.simulated, tuned.simulated) == ("10", "9")
    assert bill.simulated is not None
    assert "900" in bill.simulated


def test_the_answer_names_the_better_settings() -> None:
    assert drift_answer("Chat", EFFECT, WORK).startswith("Chat needs 9 replicas where 4 were planned")
    assert "settings chosen anew" in drift_setting(EFFECT)


def test_one_planned_replica_is_written_in_the_singular() -> None:
    assert "needs 9 replicas where 1 was planned" in drift_answer("Chat", replace(EFFECT, before=1), WORK)


def test_the_answer_names_what_binds_or_what_stands_in_the_way() -> None:
    assert drift_answer("Chat", EFFECT, WORK).endswith("; a request takes 1.5 × the GPU time. TTFT target (compute) binds")
    none = replace(EFFECT, as_set=None, tuned=None, usd_per_day=None, binds="TTFT target cannot be met", why_not="No way.")
    assert drift_answer("Chat", none, WORK) == (
        "Chat can't be served on this fleet's machines: TTFT target cannot be met; a request takes 1.5 × the GPU time"
    )
    assert drift_setting(none).endswith("No way.")


def test_a_change_has_a_true_minus_and_the_titles_figures() -> None:
    shift = Shift("Output tokens, mean", "tokens", 211.0, 102.4, 0.5, 1e-9)
    assert list(shift_frame([shift])["Change"]) == ["−51.5\xa0%"]
    assert length_title("Output", shift) == "Outputs are 51.5\xa0% shorter on average"


def test_the_rule_on_the_queue_is_no_markdown_quote() -> None:
    (row,) = watch_rows(6, None)
    assert row.formula == "over 6"
    assert sentence("> 6") == r"\> 6"
