"""Outputs of one token have no time per output token: the plan says so and never shows 0 ms."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from planner.exporters.candidates import candidate_rows
from planner.exporters.plan_document import plan_document, plan_text
from planner.plans import first_answer, plan
from planner.plans.capacity import Demand, demand_for, latency_at
from planner.plans.explain import Outcome, summary_of, ttft_text
from planner.plans.rates import miss
from planner.plans.results import Knobs, Plan
from planner.plans.starting import replica_of
from planner.scenario import Targets, scenario_from_dict
from planner.ui.views.answer import metrics
from planner.ui.views.rows import comparison_rows, curve_rows
from planner.workloads import workload_from_rows

H100 = scenario_from_dict({"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}})


@pytest.fixture(scope="module")
def without_tpot() -> Plan:
    """The plan for one GPU as it is when no request has a TPOT."""
    whole = plan(H100)
    assert whole.chosen is not None
    assert whole.chosen.latency is not None
    assert whole.details is not None
    latency = replace(whole.chosen.latency, tpot_mean_s=None, tpot_p99_s=None)
    chosen = replace(whole.chosen, latency=latency)
    curve = tuple(replace(point, tpot_mean_s=None, tpot_p99_s=None) for point in whole.details.curve)
    details = replace(whole.details, tpot_p99_s=None, curve=curve)
    summary = summary_of(Outcome(first_answer(H100).race.question, (chosen,), chosen, None, details))
    return replace(whole, chosen=chosen, candidates=(chosen, *whole.candidates[1:]), details=details, summary=summary)


def test_a_run_of_one_token_outputs_has_no_tpot_and_misses_no_target_for_it() -> None:
    answer = first_answer(H100)
    assert answer.chosen is not None
    place = next(iter(answer.race.measured))
    engine = answer.race.entrants[place].engine
    demand = _one_token(answer.race.question.demand)
    latency = latency_at(demand, replica_of(engine, demand), Knobs(64, 1024), 2.0)
    assert (latency.tpot_mean_s, latency.tpot_p99_s) == (None, None)
    assert latency.ttft_p99_s is not None
    assert latency.ttft_p99_s > 0.0
    assert miss(latency, Targets(ttft_p99_s=None, tpot_p99_s=0.001)) == -1.0


def test_an_engine_that_refuses_every_request_has_no_latencies_and_meets_no_target() -> None:
    answer = first_answer(H100)
    engine = answer.race.entrants[next(iter(answer.race.measured))].engine
    demand = replace(answer.race.question.demand, count=1200)
    none = latency_at(demand, replica_of(engine, demand)._replace(max_model_len=2), Knobs(64, 1024), 2.0)
    assert none.refused_share == 1.0
    assert (none.ttft_mean_s, none.ttft_p99_s, none.tpot_mean_s, none.tpot_p99_s) == (None, None, None, None)
    assert miss(none, Targets(ttft_p99_s=1.0, tpot_p99_s=0.03)) == 1.0
    assert ttft_text(none).startswith("no TTFT")


def _one_token(like: Demand) -> Demand:
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"prompt_tokens": rng.integers(50, 900, 600), "output_tokens": np.ones(600, np.int64)})
    return demand_for(workload_from_rows(rows, "one token"), 1200, like.seed)


def test_sentence_figures_and_files_say_that_there_is_none(without_tpot: Plan) -> None:
    assert "no TPOT: one-token outputs" in without_tpot.summary
    assert "0 ms" not in without_tpot.summary
    view = next(view for view in metrics(without_tpot, dt.date(2026, 12, 1)) if view.label == "p99 TPOT")
    assert (view.value, view.note) == ("none", "one-token outputs")
    assert curve_rows(without_tpot, "TPOT") == ([], "")
    assert curve_rows(without_tpot, "TTFT")[0]
    assert comparison_rows(without_tpot, {})[0][0]["tpot_p99_ms"] is None
    assert candidate_rows(without_tpot)[0]["tpot_p99_ms"] is None
    assert "one-token outputs" in plan_text(without_tpot, dt.date(2026, 12, 1))
    assert plan_document(without_tpot)["details"]["tpot_p99_s"] is None
