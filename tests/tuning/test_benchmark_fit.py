"""Fits to benchmark results: a simulated truth is found again, what the data can't tell stays, and wrong data are refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.importers import BenchmarkRun, Spread
from planner.calibration.records import record_from_json
from planner.calibration.schema import bounds_of
from planner.errors import InputError
from planner.tuning import CalibrationFit, TuneOptions, compare_runs, fit_benchmarks
from planner.tuning.served import MOST_DRAWS, Statistic, in_flight, loads_of, predicted
from tests.tuning.simulated import SHIFTS, bench, prior, run_of, shifted

RUNS = [run_of(shifted(), rate=rate, n=200) for rate in (1.0, 20.0)] + [run_of(shifted(), clients=n, n=160) for n in (1, 32, 128)]


@pytest.fixture(scope="module")
def fit() -> CalibrationFit:
    return fit_benchmarks(bench(), RUNS, prior())


def test_a_simulated_truth_is_reproduced_and_unseen_loads_are_predicted(fit: CalibrationFit) -> None:
    by_metric = {pair.metric: pair for pair in fit.errors}
    assert by_metric["tpot"].before_median_pct > 8.0
    assert by_metric["tpot"].after_median_pct < 1.0
    assert by_metric["ttft"].after_median_pct < 2.0
    assert by_metric["tpot"].held_out_median_pct is not None
    assert by_metric["tpot"].held_out_median_pct < 2.0
    assert by_metric["ttft"].held_out_median_pct is not None
    assert by_metric["ttft"].held_out_median_pct < 3.0
    assert "each run left out in turn" in fit.held_out


def test_parameters_of_a_simulated_truth_lie_in_their_intervals(fit: CalibrationFit) -> None:
    truth = dict(shifted().parameters())
    inside = [value.low <= truth[value.path].value <= value.high for value in fit.parameters if value.path in SHIFTS]
    assert len(inside) == len(SHIFTS)
    assert sum(inside) >= 4  # 80 % intervals
    informed = {value.path for value in fit.parameters if value.informed_by == "data"}
    assert {"memory_efficiency.bf16", "host.request_s", "host.exposed_host_s_per_sequence"} <= informed
    assert "host.host_s" not in informed  # hidden behind the GPU by asynchronous scheduling: nothing shows it


def test_what_the_data_do_not_tell_stays_at_the_prior(fit: CalibrationFit) -> None:
    hidden = next(value for value in fit.parameters if value.path == "host.host_s_per_sequence")
    assert hidden.informed_by == "prior"
    assert hidden.value == pytest.approx(hidden.prior_value, rel=0.05)
    assert hidden.high / hidden.low > 2.0


def test_a_load_far_from_the_fitted_ones_is_predicted(fit: CalibrationFit) -> None:
    points = compare_runs(bench(), fit.record, [run_of(shifted(), clients=256, n=512)])
    means = [point for point in points if point.statistic == "mean"]
    assert means
    assert all(abs(point.after / point.measured - 1.0) < 0.06 for point in means)
    assert all(point.before == point.after and point.held_out is None for point in points)


def test_the_record_is_whole_and_says_what_it_rests_on(fit: CalibrationFit) -> None:
    again = record_from_json(fit.record.model_dump_json(exclude_none=True), "fitted")
    assert again == fit.record
    assert (again.basis, again.gpu_id, again.id) == ("fitted", "h100-80g-sxm", "h100-80g-sxm/vllm-0.19.0")
    assert again.evidence is not None
    assert again.evidence.seen["requests_in_flight"][1] == 128.0
    assert again.covariance is not None
    matrix = np.array(again.covariance.matrix)
    assert np.all(np.linalg.eigvalsh(matrix) > -1e-9)
    for value in fit.parameters:
        lowest, highest = bounds_of(value.path)
        assert lowest <= value.low <= value.value <= value.high <= highest


def test_the_same_runs_give_the_same_bytes() -> None:
    few = [RUNS[2]]
    one, other = (fit_benchmarks(bench(), few, prior()).record.model_dump_json() for _ in range(2))
    assert one == other


def test_a_held_out_run_has_no_say_in_its_prediction() -> None:
    runs = [run_of(shifted(), clients=n, n=40) for n in (1, 8, 24)]
    slower = {
        metric: Spread(mean_s=1.2 * (was.mean_s or 0.0), p50_s=1.2 * (was.p50_s or 0.0), p99_s=1.2 * (was.p99_s or 0.0))
        for metric, was in (("tpot", runs[1].tpot), ("ttft", runs[1].ttft))
    }
    wrong = runs[1].model_copy(update=slower)
    found = []
    for middle in (runs[1], wrong):
        points = fit_benchmarks(bench(), [runs[0], middle, runs[2]], prior()).points
        found.append([point.held_out for point in points if point.label == middle.label and point.statistic == "mean"])
    assert found[0] == pytest.approx(found[1], rel=0.01)


def test_progress_grows_and_its_error_ends_the_fit() -> None:
    shares: list[float] = []

    class EnoughError(Exception):
        pass

    def tell(_text: str, share: float) -> None:
        shares.append(share)
        if len(shares) > 12:
            raise EnoughError

    with pytest.raises(EnoughError):
        fit_benchmarks(bench(), RUNS[:1], prior(), None, tell)
    assert shares == sorted(shares)
    assert shares[-1] < 1.0


def test_two_runs_are_fitted_with_nothing_held_out_and_alike_loads_are_pointed_out() -> None:
    fitted = fit_benchmarks(bench(), [run_of(shifted(), clients=n, n=60) for n in (16, 20)], prior())
    assert fitted.held_out.startswith("nothing")
    assert all(point.held_out is None for point in fitted.points)
    assert any("alike" in warning for warning in fitted.warnings)


def test_a_machine_of_another_kind_is_fitted_from_a_start_of_its_own() -> None:
    slow = shifted({"memory_efficiency.bf16": 0.2, "compute_efficiency.bf16": 0.2, "layer_s": 4.0})
    runs = [run_of(slow, rate=1.0, n=60), run_of(slow, clients=1, n=15), run_of(slow, clients=16, n=48)]
    fitted = fit_benchmarks(bench(), runs, prior(), TuneOptions(hold_out=False))
    tpot = next(pair for pair in fitted.errors if pair.metric == "tpot")
    assert tpot.before_median_pct > 60.0
    assert tpot.after_median_pct < 5.0
    assert any("Far outside" in warning for warning in fitted.warnings)


def test_runs_that_no_such_machine_can_make_are_refused() -> None:
    run = RUNS[2]
    fast = run.model_copy(update={"tpot": Spread(mean_s=1e-3)})
    with pytest.raises(InputError, match="beats the data sheet"):
        fit_benchmarks(bench(), [fast], prior())
    slow = run.model_copy(update={"tpot": Spread(mean_s=5.0), "ttft": Spread(mean_s=60.0)})
    with pytest.raises(InputError, match="times from what"):
        fit_benchmarks(bench(), [slow], prior())
    with pytest.raises(InputError, match="speculative"):
        fit_benchmarks(bench(), [run.model_copy(update={"speculative": True})], prior())
    with pytest.raises(InputError, match="1 to 40"):
        fit_benchmarks(bench(), [], prior())


def test_requests_larger_than_the_cache_are_refused() -> None:
    huge = BenchmarkRun(
        tool="x", arrivals="closed", concurrency=2, requests=4, prompt_tokens=5e6, output_tokens=10, ttft=Spread(mean_s=60.0)
    )
    with pytest.raises(InputError, match=r"KV cache|num_blocks"):
        fit_benchmarks(bench(), [huge], prior())


def test_an_open_loop_that_is_capped_is_served_as_a_closed_one() -> None:
    run = RUNS[1].model_copy(update={"concurrency": 30, "requests_per_s": 10.0, "e2e": Spread(mean_s=2.9)})
    assert in_flight(run) == 30
    assert in_flight(run.model_copy(update={"concurrency": 500})) is None
    flooded = run.model_copy(
        update={"concurrency": None, "rate_rps": 50.0, "detail": None, "ttft": Spread(mean_s=3.0, p50_s=3.0, p99_s=3.3)}
    )
    assert in_flight(flooded) == 29
    growing = flooded.model_copy(update={"ttft": Spread(mean_s=3.0, p50_s=3.0, p99_s=6.0)})
    assert in_flight(growing) is None


@settings(max_examples=20, deadline=None)
@given(
    rate=st.floats(0.5, 50.0),
    shape=st.floats(0.3, 5.0),
    count=st.integers(20, 400),
    mean=st.floats(1.0, 900.0),
    replicas=st.integers(1, 3),
)
def test_drawn_loads_keep_the_runs_rate_and_lengths(rate: float, shape: float, count: int, mean: float, replicas: int) -> None:
    run = BenchmarkRun(
        tool="x",
        arrivals="gamma",
        rate_rps=rate,
        burstiness=shape,
        requests=count,
        prompt_tokens=mean,
        output_tokens=5,
        e2e=Spread(),
    )
    loads = loads_of(run, replicas)
    assert 1 <= len(loads) <= MOST_DRAWS
    for load in loads:
        kept = len(load.arrival_s)
        assert kept == max(1, count // replicas)
        assert load.arrival_s[-1] == pytest.approx(kept / (rate / replicas))
        assert set(np.unique(load.prompt_tokens)) <= {math.floor(mean), math.floor(mean) + 1}
    again = loads_of(run, replicas)
    assert all(np.array_equal(a.arrival_s, b.arrival_s) for a, b in zip(loads, again, strict=True))


def test_a_lone_request_takes_its_steps_and_the_time_outside() -> None:
    run = BenchmarkRun(tool="x", arrivals="closed", concurrency=1, requests=1, prompt_tokens=100, output_tokens=11)
    wanted = (Statistic("ttft", "mean"), Statistic("tpot", "mean"), Statistic("e2e", "mean"), Statistic("throughput", ""))
    ttft, tpot, e2e, rate = predicted(loads_of(run), wanted, bench(), prior())
    assert e2e == pytest.approx(ttft + 10 * tpot)
    assert rate == pytest.approx(11 / e2e)
