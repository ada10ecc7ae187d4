"""A spike and admission, simulated: where the queue's arithmetic holds, and each claim that the Overload page makes."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis import spike_simulated
from planner.analysis.admission_simulated import (
    Offered,
    gate_run,
    mistakes,
    off_by,
    offered_requests,
    remainder_runs,
)
from planner.analysis.case import Case
from planner.analysis.overload import Spike, backlog
from planner.analysis.predictor import Aims, door_bounds, forecast_of, slots_of, steady_batch
from planner.analysis.served import saturated_rps
from planner.analysis.spike_simulated import RETRIES, Asked, SpikeRun, SpikeSetting, spike_requests, spike_runs, storm_runs
from planner.cases import textbook_case
from planner.errors import InputError
from planner.simulator.forecast import Inside, foretold_tpot_s, foretold_ttft_s, keeps_ttft, retry_after_s
from planner.ui.views.questions_overload_spike import goodput_title, spike_rows
from planner.workloads import load_workload

SEQS = 64


@pytest.fixture(scope="module")
def case() -> Case:
    """The textbook's engine under recorded lengths, with a batch that is soon full, so that it serves at a fixed rate."""
    workload = load_workload("azure-conversation-2023")
    recorded = replace(textbook_case(), workload=workload, lengths=workload.length_stats(), tpot_p99_s=0.1)
    return recorded.with_limits(max_num_seqs=SEQS, max_num_batched_tokens=2048)


@pytest.fixture(scope="module")
def setting(case: Case) -> SpikeSetting:
    capacity = saturated_rps(case)
    assert capacity is not None
    return SpikeSetting(Spike(0.6, 3.0, 30.0), capacity, Aims(1.0, 0.1), 5.0)


@pytest.fixture(scope="module")
def runs(case: Case, setting: SpikeSetting) -> dict[tuple[str, str], SpikeRun]:
    wanted = [
        Asked("no bound", "none"),
        Asked("no bound", "fixed"),
        Asked("requests", "none"),
        Asked("requests", "fixed"),
        Asked("tokens", "none"),
        Asked("deadline", "none"),
        Asked("predicted", "none"),
    ]
    return {(run.rule, run.retry): run for run in spike_runs(case, setting, wanted)}


def test_the_queues_arithmetic_holds_where_the_engine_serves_at_a_fixed_rate(
    setting: SpikeSetting, runs: dict[tuple[str, str], SpikeRun]
) -> None:
    found, run = backlog(setting.spike), runs["no bound", "none"]
    assert run.longest_wait_s == pytest.approx(found.backlog_s, rel=0.15)
    assert run.recovery_s == pytest.approx(found.drain_s, rel=0.15)


def test_a_bounded_queue_keeps_goodput_while_an_unbounded_one_serves_the_dead(
    setting: SpikeSetting, runs: dict[tuple[str, str], SpikeRun]
) -> None:
    none = runs["no bound", "none"]
    served = 1.0 - backlog(setting.spike).excess_share
    assert none.good_in_spike < 0.15
    assert none.dead > 0.3
    for rule in ("requests", "tokens", "deadline", "predicted"):
        run = runs[rule, "none"]
        assert run.good_in_spike > (0.5 if rule == "deadline" else 0.75) * served
        assert run.dead == 0.0
        assert run.good_after > 0.95
        assert run.recovery_s is not None
        assert run.recovery_s < 5.0


def test_runs_that_are_known_are_not_made_again(
    case: Case, setting: SpikeSetting, runs: dict[tuple[str, str], SpikeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Asked] = []

    def note(_case: Case, _setting: SpikeSetting, wanted: Sequence[Asked], _tell: object) -> list[SpikeRun]:
        made.extend(wanted)
        return [replace(runs["no bound", "none"], rule=one.rule, retry=one.retry) for one in wanted]

    monkeypatch.setattr(spike_simulated, "spike_runs", note)
    found = storm_runs(case, setting, list(runs.values()))
    assert [(run.rule, run.retry) for run in found] == [(rule, retry) for rule in ("no bound", "requests") for retry in RETRIES]
    assert made == [Asked(rule, retry) for rule in ("no bound", "requests") for retry in ("exponential", "as told")]  # type: ignore[arg-type]
    assert found[0] is runs["no bound", "none"]


def test_clients_who_come_back_keep_an_unbounded_queue_from_recovering_and_a_bounded_one_not(
    runs: dict[tuple[str, str], SpikeRun],
) -> None:
    storm, held = runs["no bound", "fixed"], runs["requests", "fixed"]
    assert storm.recovery_s is None
    assert storm.good_after < 0.1
    assert storm.dead > 0.8
    assert storm.tries > 2.5
    assert held.dead == 0.0
    assert held.good_after > 0.95


def test_what_is_inside_stays_within_the_bound_and_its_waits_within_the_target(
    case: Case, setting: SpikeSetting, runs: dict[tuple[str, str], SpikeRun]
) -> None:
    bounds = door_bounds(case, setting.aims)
    assert bounds.unfinished == bounds.batch.sequences + bounds.waiting
    assert runs["requests", "none"].longest_wait_s < 1.5 * setting.aims.ttft_s
    assert runs["predicted", "none"].longest_wait_s < 1.5 * setting.aims.ttft_s


def test_nobody_may_wait_where_the_batch_could_outgrow_its_target() -> None:
    bounds = door_bounds(textbook_case(), Aims(1.0, 0.030))
    assert bounds.waiting == 0
    assert bounds.unfinished == bounds.batch.sequences < textbook_case().limits.max_num_seqs


@settings(max_examples=20, deadline=None)
@given(tpot_ms=st.floats(6.0, 80.0))
def test_the_steady_batch_is_the_largest_that_holds_the_target(tpot_ms: float) -> None:
    own = textbook_case()
    found = steady_batch(own, tpot_ms / 1e3)
    assert found.step_s <= tpot_ms / 1e3
    assert found.rate_rps == pytest.approx(found.sequences / (own.lengths.output_mean_tokens * found.step_s))
    slots = slots_of(own)
    if found.sequences < slots:
        assert steady_batch(own.with_limits(max_num_seqs=found.sequences + 1), None).step_s > tpot_ms / 1e3


def test_a_target_that_one_sequence_misses_leaves_no_batch() -> None:
    assert steady_batch(textbook_case(), 1e-4).sequences == 0


@settings(max_examples=20, deadline=None)
@given(waiting=st.integers(0, 100_000), decoding=st.integers(0, 60), more=st.integers(1, 20_000))
def test_a_longer_queue_is_never_predicted_to_be_quicker(waiting: int, decoding: int, more: int) -> None:
    forecast = forecast_of(textbook_case().with_limits(max_num_seqs=SEQS), Aims(1.0, 0.030))
    short = Inside(decoding + 2, decoding, waiting)
    long, fuller = short._replace(waiting_prompt_tokens=waiting + more), short._replace(unfinished=decoding + 90)
    shortly_s = foretold_ttft_s(forecast, short, 500)
    assert foretold_ttft_s(forecast, long, 500) >= shortly_s
    assert foretold_ttft_s(forecast, fuller, 500) >= shortly_s
    assert foretold_tpot_s(forecast, fuller) >= foretold_tpot_s(forecast, short)


def test_the_spike_comes_at_the_rates_that_were_asked_for(case: Case, setting: SpikeSetting) -> None:
    requests = spike_requests(case, setting)
    inside = ((requests.arrival_s >= setting.lead_s) & (requests.arrival_s < setting.spike_end_s)).sum()
    base_rps = setting.spike.base_load * setting.capacity_rps
    assert inside == pytest.approx(3.0 * base_rps * setting.spike.duration_s, rel=0.1)
    assert (requests.arrival_s < setting.lead_s).sum() == pytest.approx(base_rps * setting.lead_s, rel=0.2)
    assert requests.arrival_s.max() <= setting.ends_s


def test_without_a_spike_the_requests_are_the_cases_own(case: Case, setting: SpikeSetting) -> None:
    flat = replace(setting, spike=Spike(0.5, 1.0, 30.0))
    requests = spike_requests(case, flat)
    assert np.allclose(requests.arrival_s, case.requests(len(requests), 0.5 * setting.capacity_rps).arrival_s)


@pytest.mark.parametrize(
    ("spike", "field"),
    [
        (Spike(float("nan"), 3.0, 60.0), "base_load"),
        (Spike(0.6, 0.0, 60.0), "factor"),
        (Spike(0.6, 3.0, float("inf")), "duration_s"),
        (Spike(0.9, 50.0, 600.0), "spike"),
    ],
)
def test_a_spike_that_makes_no_sense_is_refused(case: Case, setting: SpikeSetting, spike: Spike, field: str) -> None:
    with pytest.raises(InputError, match=field):
        spike_requests(case, replace(setting, spike=spike))


def test_a_target_below_the_time_outside_the_engine_is_refused(case: Case) -> None:
    with pytest.raises(InputError, match="outside the engine"):
        door_bounds(replace(case, request_s=0.2), Aims(0.1, 0.03))


@pytest.mark.parametrize("arrivals", ["Poisson", "bursty"])
def test_past_capacity_prediction_keeps_the_goodput_that_an_open_door_loses(arrivals: str) -> None:
    own = textbook_case()
    capacity = saturated_rps(own)
    assert capacity is not None
    offered = Offered(1.6, capacity, arrivals, 1500)  # type: ignore[arg-type]
    aims = Aims(1.0, 0.030)
    none, cap, predicted = (gate_run(own, aims, gate, offered, 0.2) for gate in ("none", "cap", "predicted"))  # type: ignore[arg-type]
    assert none.good < 0.2
    assert none.admitted == 1.0
    assert min(cap.good, predicted.good) > 0.55
    assert predicted.false_admits < 0.05


def test_below_capacity_everyone_is_let_in() -> None:
    own = textbook_case()
    capacity = saturated_rps(own)
    assert capacity is not None
    run = gate_run(own, Aims(1.0, 0.030), "predicted", Offered(0.5, capacity, "Poisson", 600), 0.0)
    assert run.admitted == 1.0
    assert run.good == 1.0


def test_an_error_of_the_prediction_turns_more_away_and_one_more_would_always_have_fitted() -> None:
    own = textbook_case()
    capacity = saturated_rps(own)
    assert capacity is not None
    offered, aims = Offered(1.25, capacity, "Poisson", 800), Aims(1.0, 0.030)
    exact, wrong = (mistakes(own, aims, offered, sigma, 12) for sigma in (0.0, 1.0))
    assert wrong.rejected > exact.rejected
    assert wrong.run.good < exact.run.good
    assert exact.sampled == 12
    assert exact.false_rejects is not None
    assert exact.alone is not None
    assert 0.0 <= exact.false_rejects <= exact.alone <= 1.0


def test_where_nobody_is_turned_away_nobody_is_turned_away_wrongly() -> None:
    own = textbook_case()
    found = mistakes(own, Aims(1.0, 0.030), Offered(0.3, 30.0, "Poisson", 300), 0.0)
    assert (found.rejected, found.alone, found.false_rejects, found.sampled) == (0.0, None, None, 0)


def test_each_way_to_treat_those_who_fail_has_its_price() -> None:
    own = textbook_case()
    capacity = saturated_rps(own)
    assert capacity is not None
    found = {run.remainder: run for run in remainder_runs(own, Aims(1.0, 0.030), Offered(1.25, capacity, "Poisson", 800), 0.2)}
    assert found["queue"].good < 0.5 < found["reject"].good
    assert found["second pool"].good > 0.99
    assert found["second pool"].pool_load == pytest.approx(1.25 * (1.0 - found["reject"].answered), abs=1e-9)
    assert found["reject"].answered < 1.0 == found["batch class"].answered
    assert found["come back"].answered >= found["reject"].answered
    assert found["batch class"].good < found["second pool"].good


def test_bursty_arrivals_have_the_rate_and_the_scatter_that_are_stated() -> None:
    requests = offered_requests(textbook_case(), Offered(1.0, 20.0, "bursty", 20_000))
    gaps = np.diff(requests.arrival_s)
    assert gaps.mean() == pytest.approx(1.0 / 20.0, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), 99.0])
def test_an_error_that_makes_no_sense_is_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma"):
        off_by(sigma, 3, 1)


def test_a_request_that_fits_beside_no_decoder_has_no_prediction_and_is_turned_away(case: Case) -> None:
    forecast = forecast_of(case, Aims(1.0, 0.1))
    stuck = forecast._replace(rates=np.zeros_like(forecast.rates))
    nothing = foretold_ttft_s(stuck, Inside(1, 1, 0), 10)
    assert math.isnan(nothing)
    assert not keeps_ttft(stuck, nothing)
    assert retry_after_s(stuck, nothing) == 1.0
    assert keeps_ttft(forecast, foretold_ttft_s(forecast, Inside(0, 0, 0), 10))


def test_retry_after_is_what_the_first_token_would_be_late_in_whole_seconds(case: Case) -> None:
    forecast = forecast_of(case, Aims(1.0, 0.1))
    assert [retry_after_s(forecast, ttft_s) for ttft_s in (0.2, 1.9, 2.01, 3.5)] == [1.0, 1.0, 2.0, 3.0]


def test_of_a_spike_in_which_nothing_is_sent_no_share_is_good(case: Case) -> None:
    setting = SpikeSetting(Spike(0.5, 1.0, 1e-6), 1.0, Aims(1.0, 0.1), 5.0)
    (run,) = spike_runs(case, setting, [Asked("no bound", "none")])
    assert run.good_in_spike is None
    assert run.good_after is not None
    assert goodput_title([run]) == "No request is sent in the spike: make it longer or larger"
    assert spike_rows(backlog(setting.spike), [run])[-1].simulated is None
