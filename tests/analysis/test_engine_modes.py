"""Asynchronous scheduling, offline service, speculation, overload: closed forms, laws, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.async_scheduling import SWITCHED_OFF, overlap, wasted_rows
from planner.analysis.offline import DailyWork, kv_limited_batch, offline_fleet, packed_prefill_s, read_step_s
from planner.analysis.overload import Spike, backlog, rejection
from planner.analysis.speculation import Draft, expected_tokens, speculation, speedup, verify_step_s
from planner.analysis.steps import decode_step_s
from planner.errors import InputError
from tests.analysis.round_engine import C


def test_overlap_as_published() -> None:
    # Textbook question 12: host 5 ms, GPU 10 ms, a step goes from 15 to 10 ms.
    found = overlap(10e-3, 5e-3)
    assert found.serial_s == pytest.approx(15e-3)
    assert found.overlapped_s == pytest.approx(10e-3)
    assert found.gain == pytest.approx(1.5)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-4, 1.0), st.floats(0.0, 1.0))
def test_overlap_gains_at_most_a_factor_of_two(gpu_s: float, host_s: float) -> None:
    assert 1.0 <= overlap(gpu_s, host_s).gain <= 2.0 + 1e-12


def test_wasted_rows_by_ending() -> None:
    assert wasted_rows(0.0, 7) == 0.0
    assert wasted_rows(0.5) == 0.5
    assert wasted_rows(1.0, 4) == 5.0


def test_the_switch_off_table_has_sources() -> None:
    assert len({(row.configuration, row.versions) for row in SWITCHED_OFF}) == len(SWITCHED_OFF)
    assert all(row.source.ref for row in SWITCHED_OFF)


def test_offline_by_hand() -> None:
    work = DailyWork(1000.0, 200.0, 86_400e3, 86_400e3)
    # A prompt: 20 ms + 0.5 ms + 1 µs; 86,400 prompts a day are one a second.
    assert packed_prefill_s(1000.0, C) == pytest.approx(20.501e-3)
    fleet = offline_fleet(work, 100.0, 2, C)
    assert fleet.prefill_gpu_days == pytest.approx(2 * 20.501e-3)
    # Decode at batch 100, context 1,100: 4 + 0.3 + 4.4 ms; 1,000 tokens a second.
    assert fleet.decode_step_s == pytest.approx(8.7e-3)
    assert fleet.decode_gpu_days == pytest.approx(2 * 1000 / 100 * 8.7e-3)
    assert fleet.read_gpu_days == fleet.decode_gpu_days
    assert kv_limited_batch(11e9, 100e3, work) == pytest.approx(100.0)


@settings(max_examples=40, deadline=None)
@given(st.floats(1.0, 4000.0), st.floats(1.0, 20_000.0))
def test_reading_alone_is_a_floor_that_holds_below_the_knee(batch: float, context: float) -> None:
    step = float(decode_step_s(batch, context, C))
    assert read_step_s(batch, context, C) <= step * (1 + 1e-12)
    if batch <= 200.0:
        assert read_step_s(batch, context, C) == pytest.approx(step)


def test_expected_tokens_by_sampling() -> None:
    rng = np.random.default_rng(2)
    accepted = (rng.random((200_000, 4)) < 0.7).cumprod(axis=1).sum(axis=1) + 1
    assert expected_tokens(4, 0.7) == pytest.approx(accepted.mean(), rel=0.01)


def test_verification_pays_for_every_draft() -> None:
    # 100 sequences of 5 rows: 500 tokens take 10 ms, head 0.5 ms, KV once.
    assert float(verify_step_s(100.0, 1000.0, 4, C)) == pytest.approx(10e-3 + 0.5e-3 + 4e-3)
    assert float(verify_step_s(100.0, 1000.0, 0, C)) == pytest.approx(float(decode_step_s(100.0, 1000.0, C)))


def test_draft_rows_are_not_prefill() -> None:
    # A dearer KV read in steps with prefill chunks must not apply to verification.
    assert float(verify_step_s(8.0, 1000.0, 4, C._replace(mix_factor=3.0))) == float(verify_step_s(8.0, 1000.0, 4, C))


def test_speculation_loses_past_its_break_even() -> None:
    draft = Draft(4, 0.7)
    found = speculation(500.0, draft, C)
    assert found.speedup_at_one == pytest.approx(2.7731)
    assert found.losing_batch is not None
    assert float(speedup(float(found.losing_batch), 500.0, draft, C)) < 1.0
    assert float(speedup(float(found.losing_batch - 1), 500.0, draft, C)) >= 1.0
    assert speculation(500.0, draft, C, largest_batch=10).losing_batch is None


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.floats(0.0, 1.0), st.floats(0.0, 5e-3), st.integers(1, 500))
def test_drafts_that_cost_time_never_help_more(k: int, acceptance: float, draft_s: float, batch: int) -> None:
    free, paid = (float(speedup(float(batch), 500.0, Draft(k, acceptance, cost), C)) for cost in (0.0, draft_s))
    assert paid <= free <= k + 1 + 1e-9


def test_spike_as_published() -> None:
    # Textbook question 15: base 0.6, threefold for 60 s.
    found = backlog(Spike(0.6, 3.0, 60.0))
    assert found.backlog_s == pytest.approx(48.0)
    assert found.drain_s == pytest.approx(120.0)
    assert found.excess_share == pytest.approx(0.8 / 1.8)


def test_spikes_at_their_ends() -> None:
    assert backlog(Spike(0.3, 3.0, 60.0)).backlog_s == 0.0
    assert backlog(Spike(0.3, 3.0, 60.0)).drain_s == 0.0
    assert backlog(Spike(1.0, 2.0, 10.0)).drain_s is None
    assert "never drains" in backlog(Spike(1.0, 2.0, 10.0)).explanation.answer


def test_clients_are_told_when_to_return() -> None:
    full = rejection(48.0, 1.0)
    assert (full.status, full.retry_after_s) == (503, 47)
    assert full.response.startswith("HTTP/1.1 503 Service Unavailable\nRetry-After: 47\n")
    assert rejection(48.0, 1.0, client_limit=True).status == 429
    assert rejection(0.5, 1.0).retry_after_s == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: overlap(0.0, 1.0),
        lambda: overlap(1.0, math.nan),
        lambda: wasted_rows(1.5),
        lambda: wasted_rows(0.5, -1),
        lambda: offline_fleet(DailyWork(1000.0, 200.0, 1e9, 1e9), 0.5, 1, C),
        lambda: offline_fleet(DailyWork(1000.0, 200.0, 1e9, 1e9), math.nan, 1, C),
        lambda: offline_fleet(DailyWork(0.0, 200.0, 1e9, 1e9), 10.0, 1, C),
        lambda: offline_fleet(DailyWork(1000.0, 200.0, 1e9, 1e9), 10.0, 0, C),
        lambda: kv_limited_batch(-1.0, 1.0, DailyWork(1000.0, 200.0, 1e9, 1e9)),
        lambda: expected_tokens(-1, 0.5),
        lambda: expected_tokens(4, math.nan),
        lambda: speculation(500.0, Draft(4, 0.7, -1.0), C),
        lambda: speculation(500.0, Draft(4, 0.7), C, largest_batch=0),
        lambda: backlog(Spike(0.0, 3.0, 60.0)),
        lambda: backlog(Spike(0.6, math.inf, 60.0)),
        lambda: backlog(Spike(0.6, 3.0, -1.0)),
        lambda: rejection(math.nan, 1.0),
        lambda: rejection(1.0, -1.0),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
