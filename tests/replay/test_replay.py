"""A replay is the plan's own simulation, keeps the queue's laws, and compares settings on the same requests."""

import dataclasses
import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plans import plan
from planner.replay import ReplaySettings, differences, replay, sentence_of, settings_from_dict
from planner.replay.compare import paired_difference
from planner.replay.setup import can_replay_recorded, knows_prefixes, requests_for
from planner.scenario import scenario_from_dict
from planner.simulator import values_s
from planner.workloads import load_trace, load_workload
from tests.replay.replays import ONE_GPU, one_gpu_plan, replayed

LIGHT = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_without_changes_it_is_the_run_that_the_plan_rests_on() -> None:
    planned = one_gpu_plan().chosen
    found = replay(one_gpu_plan(), ReplaySettings())
    assert planned is not None
    assert planned.latency is not None
    assert found.changed is None
    assert found.rate_rps == planned.latency.rate_rps
    summary = found.planned.summary
    assert summary.ttft.percentiles[99.0].value == pytest.approx(planned.latency.ttft_p99_s, rel=1e-12)
    assert summary.tpot.percentiles[99.0].value == pytest.approx(planned.latency.tpot_p99_s, rel=1e-12)
    assert summary.ttft.mean.value == pytest.approx(planned.latency.ttft_mean_s, rel=1e-12)
    assert found.planned.result.averages.running == planned.latency.running_mean


def test_a_replay_shows_itself_in_a_line() -> None:
    shown = repr(replay(one_gpu_plan(), ReplaySettings(requests=300, rate_rps=5.0)))
    assert re.fullmatch(r"<Replay: 300 requests at 5 req/s on [\w ]+>", shown)


def test_same_seed_same_bytes_another_seed_others() -> None:
    first, again, other = (replayed(seed=seed).planned.result for seed in (7, 7, 8))
    for name in ("arrival_s", "first_token_s", "finish_s", "bound_s"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
    assert first.finish_s.tobytes() != other.finish_s.tobytes()


@LIGHT
@given(
    rate=st.floats(0.5, 60.0),
    seqs=st.sampled_from([None, 8, 64, 256]),
    cv=st.sampled_from([None, 0.5, 3.0]),
    seed=st.integers(0, 1000),
    asynchronous=st.booleans(),
)
def test_littles_law(rate: float, seqs: int | None, cv: float | None, seed: int, asynchronous: bool) -> None:
    run = replayed(
        rate_rps=rate, max_num_seqs=seqs, arrival_cv=cv, seed=seed, async_scheduling=asynchronous, requests=800
    ).shown.result
    in_system = run.averages.running + run.averages.waiting
    by_requests = float(np.nansum(run.finish_s - run.arrival_s)) / run.totals.makespan_s
    assert in_system == pytest.approx(by_requests, rel=0.01)


def test_both_runs_serve_the_same_requests() -> None:
    both = replayed(max_num_seqs=32)
    assert both.changed is not None
    for run in (both.planned, both.changed):
        assert np.array_equal(run.result.arrival_s, both.requests.arrival_s)
        assert np.array_equal(run.result.prompt_tokens, both.requests.prompt_tokens)
        assert np.array_equal(run.result.output_tokens, both.requests.output_tokens)
    assert both.changed.setup.limits.max_num_seqs == 32
    assert both.changed.result.averages.peak_running <= 32 < both.planned.result.averages.peak_running


def test_settings_that_repeat_the_plans_change_nothing() -> None:
    planned = one_gpu_plan().chosen
    assert planned is not None
    assert planned.knobs is not None
    assert replayed(max_num_seqs=planned.knobs.max_num_seqs, async_scheduling=True).changed is None
    assert differences(replayed()) == ()


def test_goodput_counts_the_requests_within_both_targets() -> None:
    run = replayed(rate_rps=14.0, max_num_seqs=48).shown
    first = int(0.1 * len(run.client.arrival_s))
    ttft, tpot = values_s(run.client, "ttft")[first:], values_s(run.client, "tpot")[first:]
    good = (ttft <= 1.0) & ~(tpot > 0.030)
    assert run.goodput is not None
    assert 0.0 < run.goodput.share < 1.0
    assert run.goodput.share == pytest.approx(good.mean())
    assert np.array_equal(run.met[first:], good)


def test_offline_work_has_no_goodput() -> None:
    offline = plan(scenario_from_dict(ONE_GPU | {"targets": {"ttft_p99_s": None, "tpot_p99_s": None}}))
    found = replay(offline, ReplaySettings(requests=500))
    assert found.shown.goodput is None
    assert found.shown.checks == ()
    assert "output tokens/s" in sentence_of(found)
    assert found.shown.met.all()


def test_latency_outside_the_engine_counts_for_the_first_token_and_not_for_the_rest() -> None:
    run = replayed().planned
    assert run.setup.request_s > 0.0
    assert np.allclose(values_s(run.client, "ttft") - values_s(run.result, "ttft"), run.setup.request_s)
    assert np.allclose(values_s(run.client, "tpot"), values_s(run.result, "tpot"), equal_nan=True)


@pytest.mark.parametrize(
    ("settings", "opening"),
    [({}, "keeps up with"), ({"max_num_seqs": 24}, "is full at"), ({"rate_rps": 60.0}, "doesn't keep up with")],
)
def test_the_sentence_opens_with_the_verdict(settings: dict[str, float], opening: str) -> None:
    found = replayed(**settings)
    assert opening in sentence_of(found)
    assert found.shown.result.verdict == {"keeps up with": "stable", "is full at": "backlogged"}.get(opening, "overloaded")


def test_an_overloaded_run_says_that_latencies_grow_with_it() -> None:
    assert "Latencies grow with the run" in sentence_of(replayed(rate_rps=60.0))


def test_recorded_requests_come_in_their_order_at_the_asked_rate() -> None:
    trace = load_trace("azure-conversation-2023")
    assert trace.arrival_s is not None
    found = replayed(order="recorded", rate_rps=5.0)
    assert np.array_equal(found.requests.prompt_tokens, trace.prompt_tokens[:3000])
    gaps, recorded = np.diff(found.requests.arrival_s), np.diff(trace.arrival_s[:3000])
    assert np.allclose(gaps / gaps.sum(), recorded / recorded.sum(), atol=1e-6)
    assert len(found.requests) / found.requests.arrival_s[-1] == pytest.approx(5.0, rel=0.01)


def test_burstier_arrivals_have_the_asked_cv() -> None:
    gaps = np.diff(replayed(arrival_cv=3.0, requests=20_000).requests.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.1)


def test_another_rate_stretches_the_same_requests() -> None:
    slow, fast = replayed(rate_rps=2.0).requests, replayed(rate_rps=4.0).requests
    assert np.array_equal(slow.prompt_tokens, fast.prompt_tokens)
    assert np.allclose(slow.arrival_s, 2.0 * fast.arrival_s)


def test_only_rows_with_times_can_be_replayed_in_order() -> None:
    assert can_replay_recorded(load_workload("azure-conversation-2023"))
    assert not can_replay_recorded(load_workload("reasoning"))
    with pytest.raises(InputError, match="no rows to replay"):
        requests_for(load_workload("reasoning"), ReplaySettings(order="recorded"), 1.0, 1)


def test_prefix_hits_need_known_prompts() -> None:
    agent = plan(scenario_from_dict(ONE_GPU | {"workload": {"id": "agent", "load": {"kind": "rate", "requests_per_s": 1.0}}}))
    assert knows_prefixes(agent.workload, ReplaySettings())
    cached = replay(agent, ReplaySettings(requests=400, enable_prefix_caching=True))
    assert cached.changed is not None
    assert cached.changed.result.totals.prefix_hit_tokens > 0
    assert cached.planned.result.totals.prefix_hit_tokens == 0
    by_name = {each.name: each for each in differences(cached)}
    assert by_name["p50 TTFT"].difference.value < 0.0
    assert not knows_prefixes(one_gpu_plan().workload, ReplaySettings())


def test_stop_tokens_waste_rows_and_known_lengths_do_not() -> None:
    assert replayed().planned.result.totals.wasted_rows == 0
    assert replayed(stop="eos").planned.result.totals.wasted_rows > 0


def test_paired_differences_cancel_what_requests_do_to_both() -> None:
    rng = np.random.default_rng(3)
    common = rng.exponential(1.0, 4000)
    found = paired_difference(common, common + 0.5, 99.0)
    assert found.value == pytest.approx(0.5)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low < 1e-9
    assert paired_difference(common[:20], common[:20] + 1.0, 99.0).low is None
    assert np.isnan(paired_difference(np.array([np.nan]), np.array([1.0]), 50.0).value)


def test_a_clear_change_is_judged_and_an_unclear_one_is_not() -> None:
    by_name = {each.name: each for each in differences(replayed(max_num_seqs=24))}
    assert by_name["p99 TTFT"].better is False
    assert by_name["p99 TPOT"].better is True
    assert by_name["preemptions"].better is None


@pytest.mark.parametrize(
    "document",
    [
        {"requests": 0},
        {"requests": 1_000_001},
        {"requests": 2.5},
        {"rate_rps": 0.0},
        {"rate_rps": -1.0},
        {"rate_rps": float("nan")},
        {"rate_rps": float("inf")},
        {"rate_rps": 1e9},
        {"seed": -1},
        {"seed": 2**40},
        {"order": "<b>backwards</b>"},
        {"arrival_cv": 0.0},
        {"arrival_cv": 2.0, "order": "recorded"},
        {"stop": "never"},
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": 2**40},
        {"surprise": 1},
    ],
)
def test_wrong_settings_are_refused_with_the_field(document: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        settings_from_dict(document)
    assert caught.value.field in {"replay", *document}


def test_settings_that_the_engine_refuses_are_refused() -> None:
    with pytest.raises(InputError, match="max_num_batched_tokens"):
        replayed(max_num_seqs=9999)


def test_a_plan_without_an_engine_cannot_be_replayed() -> None:
    empty = dataclasses.replace(one_gpu_plan(), chosen=None, nearest=None, candidates=())
    with pytest.raises(InputError, match="no engine that starts"):
        replay(empty)


def test_stages_are_told_and_can_end_the_replay() -> None:
    told: list[tuple[str, float]] = []
    replay(one_gpu_plan(), ReplaySettings(requests=200, max_num_seqs=32), lambda text, share: told.append((text, share)))
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert told[-1][1] == 1.0

    def stop(_text: str, share: float) -> None:
        if share > 0.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(one_gpu_plan(), ReplaySettings(requests=200), stop)


@pytest.mark.parametrize("requests", [1, 2, 30])
def test_few_requests_give_figures_without_intervals(requests: int) -> None:
    run = replayed(requests=requests).shown
    assert run.summary.ttft.percentiles[99.0].low is None
    json.dumps(sentence_of(replayed(requests=requests)))


def test_requests_longer_than_the_engine_takes_are_rejected_and_counted() -> None:
    short = plan(scenario_from_dict(ONE_GPU | {"engine": {"max_model_len": 2048}}))
    run = replay(short, ReplaySettings(requests=2000)).shown
    assert 0 < run.result.rejected.sum() < 2000
    assert np.isnan(run.client.finish_s[run.result.rejected]).all()
    assert not run.met[run.result.rejected].any()
