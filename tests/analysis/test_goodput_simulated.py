"""Goodput by simulation: decode alone where the formula's assumptions hold, and throughput up with goodput down past the best."""

from dataclasses import replace

import numpy as np
import pytest

from planner.analysis.goodput import best_batch
from planner.analysis.goodput_simulated import (
    Promise,
    at_context,
    batches_up_to,
    closed_run,
    formula_batch,
    goodput_explanation,
    largest_batch,
    simulated_goodput,
)
from planner.analysis.served import all_at_once, flow
from planner.analysis.steps import decode_step_s
from planner.cases import textbook_case
from planner.errors import InputError
from planner.workloads import Constant, ConstantLengths

CASE = textbook_case()
TEXTBOOK = Promise(1.0, 0.012, 2048.0)


def test_textbook_formula() -> None:
    assert formula_batch(CASE, TEXTBOOK).batch == 89
    assert largest_batch(CASE, 2048.0) == 200


def test_closed_clients_meet_the_formula_where_only_decode_takes_time() -> None:
    # Prompts of one token: a prefill is a row like any other.
    lengths = ConstantLengths(prompt=Constant(tokens=1), output=Constant(tokens=400))
    workload = CASE.workload.model_copy(update={"lengths": lengths})
    bare = replace(CASE, workload=workload, lengths=workload.length_stats())
    for batch in (8, 64):
        point = closed_run(bare, batch, Promise(1.0, 0.012, bare.context_tokens))
        assert point is not None
        expected = float(decode_step_s(float(batch), bare.context_tokens, CASE.coefficients))
        assert point.run.tpot_p99_s == pytest.approx(expected, rel=0.02)
        assert point.run.tokens_per_s == pytest.approx(batch / expected, rel=0.03)


def test_past_the_best_batch_throughput_rises_and_goodput_falls() -> None:
    found = simulated_goodput(CASE, TEXTBOOK, 89, 1500)
    assert found is not None
    best = found.best
    past = [point for point in found.by_batch if point.batch > 1.5 * best.batch]
    assert past
    assert max(point.run.tokens_per_s for point in past) > 1.1 * best.run.tokens_per_s
    assert all(point.good_tokens_per_s < 0.3 * best.good_tokens_per_s for point in past)
    assert best.run.tpot_p99_s <= 1.05 * TEXTBOOK.tpot_s
    assert best.batch < 89  # prefills share the steps, which decode alone leaves out
    said = goodput_explanation(found, TEXTBOOK)
    assert f"Goodput is largest with {best.batch} sequences" in said.answer
    assert "more tokens a second and" in said.answer


def test_goodput_over_rates_peaks_and_collapses() -> None:
    found = simulated_goodput(CASE, TEXTBOOK, 89, 1500)
    assert found is not None
    setting = found.best_setting
    peak, last = setting.best, setting.points[-1]
    assert peak.run.good_rps > 3.0
    assert last.rate_rps > peak.rate_rps
    assert last.run.good_rps < 0.1 * peak.run.good_rps
    assert last.run.requests_per_s > peak.run.good_rps
    assert setting.best.run.good_rps == max(curve.best.run.good_rps for curve in found.by_rate)
    assert found.setting(CASE.limits.max_num_seqs) is not None


def test_the_own_setting_stays_where_no_other_serves_more_good_requests() -> None:
    # Outputs of two tokens: prefill is all of the work, and few decode at once whatever max_num_seqs allows.
    lengths = ConstantLengths(prompt=Constant(tokens=2000), output=Constant(tokens=2))
    workload = CASE.workload.model_copy(update={"lengths": lengths})
    prefill = replace(CASE, workload=workload, lengths=workload.length_stats())
    promise = Promise(1.0, 0.5, prefill.context_tokens)
    found = simulated_goodput(prefill, promise, 8, 600)
    assert found is not None
    most = max(curve.best.run.good_rps for curve in found.by_rate)
    assert found.best_setting.best.run.good_rps >= 0.99 * most
    assert found.best_setting.max_num_seqs == CASE.limits.max_num_seqs
    said = goodput_explanation(found, promise)
    assert f"max_num_seqs {CASE.limits.max_num_seqs} is as good as any tried" in said.setting
    assert "as many as the engine runs" not in said.answer


def test_both_targets_count() -> None:
    loose = closed_run(CASE, 24, Promise(1.0, 0.1, 2048.0))
    late = closed_run(CASE, 24, Promise(1e-3, 0.1, 2048.0))
    assert loose is not None
    assert late is not None
    assert loose.run.good_share == 1.0
    assert late.run.good_share == 0.0


def test_prompts_are_stretched_to_the_asked_context() -> None:
    requests = at_context(CASE, CASE.requests(500), 2048.0)
    outputs = requests.output_tokens
    held = float((outputs * (requests.prompt_tokens + outputs / 2.0)).sum() / outputs.sum())
    assert held == pytest.approx(2048.0, rel=1e-3)
    assert at_context(CASE, CASE.requests(5), CASE.context_tokens).prompt_tokens.tolist() == [500] * 5
    with pytest.raises(InputError, match="context_tokens is 100"):
        at_context(CASE, CASE.requests(5), 100.0)


def test_batches_cover_the_range_and_lie_close_about_the_chosen() -> None:
    batches = batches_up_to(200, 89)
    assert batches[0] == 1
    assert batches[-1] == 200
    assert {80, 89, 98} <= set(batches)
    assert batches_up_to(1, 1) == (1,)
    assert all(np.diff(batches) > 0)
    assert best_batch(2048.0, 0.012, CASE.coefficients).batch in batches


def test_the_rate_between_two_ends_is_counted_by_hand() -> None:
    case = textbook_case().with_limits(max_num_seqs=1)
    result = case.serve(all_at_once(case.requests(50)))
    end_s = np.sort(result.finish_s)
    found = flow(result, (9, 39))
    assert found is not None
    assert found.requests_per_s == pytest.approx(30.0 / (end_s[39] - end_s[9]))
    assert found.tokens_per_s == pytest.approx(250.0 * found.requests_per_s)
    assert flow(result) == flow(result, (9, 39)), "a fifth is left out at each end"
    assert [flow(result, ends) for ends in ((-1, 4), (4, 4), (4, 50))] == [None, None, None]
    assert flow(replace(result, finished=False)) is None
