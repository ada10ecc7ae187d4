"""Metrics by hand, against numpy, and as laws; intervals that cover; the verdict's three answers."""

from typing import Any

import numpy as np
import pytest

from planner.errors import InputError
from planner.simulator import (
    WARM_UP_SHARE,
    EngineLimits,
    MeasureOptions,
    RequestTable,
    SimulationOptions,
    SimulationResult,
    Target,
    check_targets,
    goodput,
    latency_targets,
    measured_s,
    meets,
    met,
    over_replications,
    percentile_s,
    seen_by_clients,
    simulate,
    summarise,
    values_s,
)
from planner.simulator.metrics import leaving_rps
from planner.simulator.verdict import judge
from tests.simulator.engines import coefficients

LIMITS = EngineLimits(max_num_seqs=32, max_num_batched_tokens=256, block_size=16, num_blocks=2000, async_scheduling=False)
COSTS = coefficients(layers_s=2e-3, dense_weights_s=6e-3, linear_s_per_token=4e-5, decode_s_per_context_token=5e-8)
WHOLE = MeasureOptions(warm_up_share=0.0)


def run(count: int, rate_rps: float, seed: int, **limits: Any) -> SimulationResult:
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1.0 / rate_rps, count))
    table = RequestTable(arrival_s, rng.integers(1, 400, count), rng.integers(1, 120, count))
    return simulate(table, LIMITS._replace(**limits), COSTS)


def test_two_requests_by_hand() -> None:
    """Steps of one second: the second request arrives during the first's first step and starts with the next."""
    table = RequestTable(np.array([0.0, 0.5]), np.array([10, 10]), np.array([3, 1]))
    result = simulate(table, LIMITS, coefficients(layers_s=1.0))
    assert values_s(result, "queue").tolist() == [0.0, 0.5]
    assert values_s(result, "ttft").tolist() == [1.0, 1.5]
    assert values_s(result, "e2e").tolist() == [3.0, 1.5]
    assert values_s(result, "tpot")[0] == 1.0
    assert np.isnan(values_s(result, "tpot")[1])
    summary = summarise(result, WHOLE)
    assert summary.tpot.count == 1
    assert summary.itl.count == 2
    assert summary.itl.mean.value == 1.0
    assert summary.itl.percentiles[99.0].value == pytest.approx(1.0, rel=1e-3)
    assert summary.requests_per_s == 2 / 3
    assert summary.output_tokens_per_s == 4 / 3


def test_percentiles_are_numpys() -> None:
    result = run(1000, 10.0, seed=1)
    summary = summarise(result, WHOLE)
    for metric in ("ttft", "tpot", "e2e", "queue"):
        values = values_s(result, metric)
        values = values[~np.isnan(values)]
        distribution = summary.distribution(metric)
        assert distribution.count == len(values)
        assert distribution.mean.value == pytest.approx(values.mean(), rel=1e-12)
        for percentile, estimate in distribution.percentiles.items():
            assert estimate.value == pytest.approx(np.percentile(values, percentile), rel=1e-12)


def test_gaps_percentile_is_the_step_logs() -> None:
    table = RequestTable(np.array([0.0]), np.array([5]), np.array([400]))
    result = simulate(table, LIMITS, coefficients(layers_s=1.0, decode_s_per_context_token=0.01))
    gaps_s = 1.0 + 0.01 * np.arange(5, 404)
    summary = summarise(result, WHOLE)
    assert summary.itl.percentiles[50.0].value == pytest.approx(np.percentile(gaps_s, 50), rel=5e-3)
    assert summary.itl.mean.value == pytest.approx(gaps_s.mean(), rel=1e-12)


def test_warm_up_leaves_out_the_first_arrivals() -> None:
    result = run(1000, 10.0, seed=2)
    summary = summarise(result, MeasureOptions(warm_up_share=0.25))
    assert summary.measured == 750
    assert summary.ttft.mean.value == pytest.approx(values_s(result, "ttft")[250:].mean(), rel=1e-12)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """Of 60 short runs at least 80 % of the 95 % intervals of the median TTFT cover the median over all of them."""
    runs = [run(1500, 12.0, seed=seed) for seed in range(60)]
    truth = float(np.mean([summarise(result, WHOLE).ttft.percentiles[50.0].value for result in runs]))
    estimates = [summarise(result, WHOLE).ttft.percentiles[50.0] for result in runs]
    covered = sum(e.low is not None and e.high is not None and e.low <= truth <= e.high for e in estimates)
    assert covered >= 48


def test_no_interval_from_a_run_too_short_for_one() -> None:
    summary = summarise(run(300, 10.0, seed=3), WHOLE)
    assert summary.ttft.percentiles[99.0].low is None
    assert summary.ttft.percentiles[50.0].low is not None


def test_replications_have_students_interval() -> None:
    estimate = over_replications([1.0, 2.0, 3.0])
    assert estimate.value == 2.0
    assert estimate.high == pytest.approx(2.0 + 4.3027 / 3**0.5, rel=1e-4)
    assert over_replications([1.0]).low is None


def test_goodput_counts_requests_that_meet_every_target() -> None:
    result = run(1000, 14.0, seed=4)
    ttft, tpot = values_s(result, "ttft"), values_s(result, "tpot")
    targets = (Target("ttft", float(np.median(ttft))), Target("tpot", float(np.nanmedian(tpot))))
    good = (ttft <= targets[0].limit_s) & ((tpot <= targets[1].limit_s) | np.isnan(tpot))
    found = goodput(result, targets, warm_up_share=0.0)
    assert found.share == good.mean()
    assert found.requests_per_s == pytest.approx(good.sum() / (result.finish_s.max() - result.arrival_s[0]), rel=1e-12)
    assert goodput(result, (), warm_up_share=0.0).share == 1.0


def test_a_request_is_good_when_served_within_each_bound_and_a_missing_metric_keeps_its_own() -> None:
    values = {"ttft": np.array([1.0, 1.1, 1.0, np.nan]), "tpot": np.array([0.1, 0.1, np.nan, np.nan])}
    served = np.array([True, True, True, False])
    targets = latency_targets(1.0, 0.1)
    assert meets(values, served, targets).tolist() == [True, False, True, False]
    assert meets(values, served, ()).tolist() == served.tolist()
    assert served.tolist() == [True, True, True, False], "the mask that is given stays as it was"


def test_clients_see_tokens_later_by_their_time_outside_the_engine() -> None:
    result = run(50, 5.0, seed=4)
    seen = seen_by_clients(result, 0.25)
    assert seen_by_clients(result, 0.0) is result
    assert np.allclose(values_s(seen, "ttft") - values_s(result, "ttft"), 0.25)
    assert np.allclose(values_s(seen, "tpot"), values_s(result, "tpot"), equal_nan=True)
    tight = (Target("ttft", float(np.median(values_s(result, "ttft"))) + 0.01),)
    assert met(result, tight).sum() > met(seen, tight).sum()


def test_rejected_requests_meet_no_target() -> None:
    table = RequestTable(np.array([0.0, 1.0]), np.array([10, 10**6]), np.array([2, 2]))
    assert goodput(simulate(table, LIMITS, COSTS), (Target("ttft", 100.0),), warm_up_share=0.0).share == 0.5


def test_targets_are_checked_at_their_percentile() -> None:
    result = run(4000, 10.0, seed=5)
    p90 = float(np.percentile(values_s(result, "ttft"), 90.0))
    loose, tight = Target("ttft", p90 * 10.0, 90.0), Target("ttft", p90 / 10.0, 90.0)
    first, second = check_targets(result, (loose, tight), WHOLE)
    assert (first.met, first.surely_met, second.met, second.surely_met) == (True, True, False, False)
    assert first.measured.value == pytest.approx(p90, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metric": "itl"}, "target.metric"),
        ({"limit_s": 0.0}, "target.limit_s"),
        ({"limit_s": float("nan")}, "target.limit_s"),
        ({"percentile": 100.0}, "target.percentile"),
    ],
)
def test_wrong_targets_are_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        Target(**({"metric": "ttft", "limit_s": 1.0, "percentile": 99.0} | change))
    assert raised.value.field == field


@pytest.mark.parametrize("options", [MeasureOptions(warm_up_share=1.0), MeasureOptions(percentiles=(0.0,))])
def test_wrong_options_are_refused(options: MeasureOptions) -> None:
    with pytest.raises(InputError):
        summarise(run(10, 10.0, seed=6), options)


def test_a_run_without_served_requests_has_no_latency() -> None:
    result = simulate(RequestTable(np.array([]), np.array([], np.int64), np.array([], np.int64)), LIMITS, COSTS)
    summary = summarise(result)
    assert summary.measured == summary.ttft.count == summary.itl.count == 0
    assert np.isnan(summary.ttft.percentiles[99.0].value)
    assert summary.requests_per_s == 0.0
    assert goodput(result, ()).share == 0.0


def test_verdicts_of_an_engine_under_rising_load() -> None:
    slots = {"max_num_seqs": 8}
    assert run(3000, 2.0, seed=7, **slots).verdict == "stable"
    assert run(3000, 100.0, seed=7, **slots).verdict == "overloaded"
    verdicts = [run(3000, rate, seed=7, **slots).verdict for rate in (2.0, 6.0, 8.0, 9.0, 10.0, 11.0, 12.0, 14.0, 100.0)]
    order = ["stable", "backlogged", "overloaded"]
    assert [order.index(verdict) for verdict in verdicts] == sorted(order.index(verdict) for verdict in verdicts)
    assert "backlogged" in verdicts


def test_a_full_but_steady_queue_is_backlogged() -> None:
    arrival_s = np.arange(1000.0)
    assert judge(arrival_s, arrival_s + 5.0, waiting_share=0.9).verdict == "backlogged"
    assert judge(arrival_s, arrival_s + 5.0, waiting_share=0.1).verdict == "stable"
    assert judge(arrival_s, arrival_s * 1.5 + 5.0, waiting_share=0.1).verdict == "overloaded"
    assert judge(arrival_s[:1], arrival_s[:1] + 5.0, waiting_share=0.0).verdict == "stable"
    few_s, late_s = arrival_s[:100], arrival_s[:100] + 5.0
    late_s[-10:] += 1e6
    assert judge(few_s, late_s, waiting_share=0.1).verdict == "stable", "10 of 50 may be luck: a count of 50 scatters by 7"


def test_shares_of_time_sum_to_one_and_follow_the_limits() -> None:
    crowded = run(2000, 40.0, seed=8, max_num_seqs=4)
    assert sum(crowded.bound_shares().values()) == pytest.approx(1.0)
    assert sum(crowded.resource_shares().values()) == pytest.approx(1.0)
    assert crowded.bound_shares()["max_num_seqs"] > 0.8
    small_cache = run(2000, 40.0, seed=8, num_blocks=60)
    assert small_cache.bound_shares()["KV blocks"] > 0.8
    few_tokens = run(2000, 40.0, seed=8, max_num_batched_tokens=33)
    assert few_tokens.bound_shares()["max_num_batched_tokens"] > 0.5


def test_series_agree_with_totals() -> None:
    result = run(2000, 10.0, seed=9)
    series = result.series
    assert series.width_s * len(series.start_s) >= result.totals.makespan_s - series.width_s
    assert series.tokens_per_s.sum() * series.width_s == pytest.approx(result.totals.computed_tokens, rel=1e-9)
    assert (series.running >= 0).all()
    assert (series.waiting >= 0).all()
    assert series.running.max() <= LIMITS.max_num_seqs


def test_a_percentile_is_numpys_and_the_warm_up_is_left_out() -> None:
    values = np.random.default_rng(3).exponential(1.0, 777)
    assert percentile_s(values, 99.0) == pytest.approx(float(np.percentile(values, 99)), rel=1e-12)
    result = run(777, 10.0, seed=2)
    assert len(measured_s(result, "ttft")) == 777 - int(WARM_UP_SHARE * 777)
    assert not np.isnan(measured_s(result, "tpot")).any()


def test_a_run_without_series_has_the_same_latencies() -> None:
    table = RequestTable(np.arange(500) / 10.0, np.full(500, 300), np.full(500, 40))
    whole, lean = simulate(table, LIMITS, COSTS), simulate(table, LIMITS, COSTS, SimulationOptions(over_time=False))
    assert whole.finish_s.tobytes() == lean.finish_s.tobytes()
    assert whole.totals == lean.totals
    assert whole.averages == lean.averages
    assert whole.verdict == lean.verdict
    assert len(lean.series.start_s) == 0
    assert int(lean.gaps.tokens.sum()) == 0


def test_the_rate_of_the_middle_of_a_run_leaves_out_its_ramp_and_its_drain() -> None:
    """Eighty requests at four a second between ten that come slowly at each end; those that never ended don't count."""
    steady = 100.0 + np.arange(80) / 4.0
    ends = np.concatenate([np.linspace(0.0, 90.0, 10), steady, np.linspace(200.0, 300.0, 10), [np.nan]])
    assert leaving_rps(ends[::-1], 0.15) == pytest.approx(4.0)
    assert leaving_rps(ends, 0.0 + 1e-9) != pytest.approx(4.0, rel=0.1)
    assert leaving_rps(np.array([1.0, np.nan]), 0.1) is None
    assert leaving_rps(np.full(5, 2.0), 0.1) is None
