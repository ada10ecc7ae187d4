"""Batch work by the day: the published figures, each lever as its own fleet, the simulated engine, windows and prices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.offline import DailyWork, kv_limited_batch, offline_fleet, packed_prefill_s
from planner.analysis.offline_levers import (
    LEVERS,
    Bill,
    api_bills,
    bill_of,
    offline_explanation,
    over_windows,
    pulled,
    stacked,
)
from planner.analysis.offline_simulated import simulated_bill, simulated_offline, static_batch, static_waste
from planner.cases import planned_case, textbook_case
from planner.errors import InputError
from planner.offline_case import OfflineCase, offline_case
from planner.plans import plan
from planner.scenario import HardwareChoice, Scenario, Targets
from planner.units import dollars
from planner.workloads import Lognormal, LognormalLengths

FEW = settings(max_examples=30, deadline=None)


@pytest.fixture(scope="module")
def asked() -> OfflineCase:
    return offline_case(textbook_case())


@pytest.fixture(scope="module")
def own() -> Case:
    hardware = HardwareChoice(gpu_ids=("l40s",), tensor_parallel=(1,))
    return planned_case(plan(Scenario(hardware=hardware)))


def bill(question: OfflineCase, **changed: object) -> Bill:
    found = bill_of(question.way._replace(**changed), question.work, question.terms)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_textbooks_fleet(asked: OfflineCase) -> None:
    """Llama-3.1-70B in BF16 on four H100: 27.2 GPU-days of prefill, 5.4 of decode by reading alone, at a batch of 355."""
    found = bill(asked).fleet
    assert found.prefill_gpu_days == pytest.approx(27.2, rel=0.01)
    assert found.read_gpu_days == pytest.approx(5.4, rel=0.01)
    assert found.batch == pytest.approx(355, rel=0.01)
    assert found.read_step_s == pytest.approx(20.76e-3, rel=0.01)
    for batch, share in ((128, 0.72), (192, 0.78)):
        assert bill(asked, max_num_seqs=float(batch)).fleet.read_prefill_share == pytest.approx(share, rel=0.01)


def test_the_bill_is_gpu_hours_times_the_price(asked: OfflineCase) -> None:
    found = bill(asked)
    assert found.gpu_hours == pytest.approx(24.0 * found.fleet.gpu_days)
    assert found.usd_per_day == pytest.approx(found.gpu_hours * (asked.way.machine.usd_per_gpu_hour or 0.0))
    assert found.prefill_usd + found.decode_usd == pytest.approx(found.usd_per_day)
    assert found.usd_per_million_tokens == pytest.approx(found.usd_per_day / 1e4)


def test_each_lever_changes_what_it_says(asked: OfflineCase) -> None:
    base = bill(asked)
    found = {lever: pulled(asked.way, lever, asked.work, asked.terms) for lever in LEVERS}
    cached, weights, kv = found["prefix caching"], found["FP8 weights"], found["FP8 KV cache"]
    assert cached is not None
    assert weights is not None
    assert kv is not None
    assert cached.fleet.prefill_gpu_days < 0.51 * base.fleet.prefill_gpu_days
    assert cached.fleet.decode_gpu_days == base.fleet.decode_gpu_days
    assert weights.fleet.prefill_gpu_days < 0.6 * base.fleet.prefill_gpu_days
    assert weights.fleet.batch > base.fleet.batch
    assert kv.fleet.batch == pytest.approx(2.0 * base.fleet.batch)
    assert kv.fleet.prefill_gpu_days == base.fleet.prefill_gpu_days
    spot, idle, sorting = found["spot"], found["idle GPUs off-peak"], found["length sorting"]
    assert spot is not None
    assert idle is not None
    assert spot.gpu_hours == pytest.approx(base.gpu_hours / (1.0 - 20.0 / 1440.0))
    assert idle.idle_hours == 24.0
    assert idle.gpu_hours == pytest.approx(base.gpu_hours - 24.0)
    assert sorting == base


def test_a_larger_batch_saves_decode_until_the_cache_is_full(asked: OfflineCase) -> None:
    way = asked.way._replace(max_num_seqs=64.0)
    found = pulled(way, "larger batch", asked.work, asked.terms)
    small = bill_of(way, asked.work, asked.terms)
    assert found is not None
    assert small is not None
    assert found.usd_per_day < small.usd_per_day
    assert found.fleet.batch == pytest.approx(355, rel=0.01)
    assert found.fleet.prefill_gpu_days == small.fleet.prefill_gpu_days


def test_levers_stack_in_the_order_of_dollars_saved(asked: OfflineCase) -> None:
    base, savings = stacked(asked.way, asked.work, asked.terms)
    added = [each.added_usd for each in savings]
    assert {each.lever for each in savings} == set(LEVERS)
    assert base.usd_per_day - sum(added) == pytest.approx(savings[-1].bill.usd_per_day)
    assert savings[0].added_usd == pytest.approx(max(each.alone_usd for each in savings))
    current = asked.way
    for position, each in enumerate(each for each in savings if each.added_usd > 0.0):
        rivals = [pulled(current, other.lever, asked.work, asked.terms) for other in savings[position:]]
        assert each.bill.usd_per_day == pytest.approx(min(rival.usd_per_day for rival in rivals if rival is not None))
        current = each.bill.way


def test_together_isnt_the_product_of_the_shares_alone(asked: OfflineCase) -> None:
    """Prefix caching halves prompts only once: after FP8 it saves less than alone, so that no factor stands for a lever."""
    _, savings = stacked(asked.way, asked.work, asked.terms)
    caching = next(each for each in savings if each.lever == "prefix caching")
    assert 0.0 < caching.added_usd < caching.alone_usd


@FEW
@given(
    st.tuples(st.floats(1e6, 1e12), st.floats(1e5, 1e12), st.floats(16.0, 8000.0)),
    st.floats(0.0, 0.95),
    st.floats(0.0, 1000.0),
    st.floats(1.0, 24.0),
)
def test_no_stack_costs_more_than_its_start(tokens: tuple[float, float, float], cached: float, lost: float, hours: float) -> None:
    start = offline_case(textbook_case())
    work = DailyWork.of_day(*tokens)
    terms = replace(start.terms, cached_share=cached, spot_lost_minutes=lost, hours=hours)
    first = bill_of(start.way, work, terms)
    if first is None:
        with pytest.raises(InputError):
            stacked(start.way, work, terms)
        return
    base, savings = stacked(start.way, work, terms)
    bills = [base.usd_per_day, *(each.bill.usd_per_day for each in savings)]
    assert bills == sorted(bills, reverse=True)
    assert base.replicas * hours * start.way.machine.gpus >= base.gpu_hours * (1.0 - 1e-9)
    assert (base.replicas - 1) * hours * start.way.machine.gpus < base.gpu_hours * (1.0 + 1e-9)


def test_a_cached_prompt_computes_the_rest_with_all_its_keys(asked: OfflineCase) -> None:
    engine = asked.terms.engines(asked.way.machine, "bf16", "bf16")
    assert engine is not None
    c = engine.coefficients
    whole, half = packed_prefill_s(1000.0, c), packed_prefill_s(1000.0, c, 500.0)
    first = packed_prefill_s(500.0, c)
    assert first + half - c.head_s_per_token == pytest.approx(whole)
    with pytest.raises(InputError):
        packed_prefill_s(1000.0, c, 1000.0)


def test_a_shorter_window_needs_more_machines_for_the_same_hours(asked: OfflineCase) -> None:
    found = over_windows(bill(asked), (24.0, 12.0, 8.0), asked.terms)
    assert [(each.hours, each.replicas) for each in found] == [(24.0, 10), (12.0, 19), (8.0, 28)]


def test_spot_machines_are_as_many_as_the_certainty_asks(asked: OfflineCase) -> None:
    """Drawn interruptions: with the replicas found 99 % of the days are done in time, with one fewer they are not."""
    terms = replace(asked.terms, spot_lost_minutes=120.0)
    (window,) = over_windows(bill(asked), (8.0,), terms)
    assert window.on_spot > window.replicas
    replica_hours = bill(asked).fleet.gpu_days * 24.0 / 4.0
    rng = np.random.default_rng(7)

    def done(replicas: int) -> float:
        lost_hours = rng.poisson(12.0 * replicas * 8.0 / 24.0, 40_000) * 10.0 / 60.0
        return float((replicas * 8.0 - lost_hours >= replica_hours).mean())

    assert done(window.on_spot) >= 0.988
    assert done(window.on_spot - 1) < 0.99
    assert over_windows(bill(asked), (8.0,), replace(asked.terms, spot_lost_minutes=0.0))[0].on_spot == window.replicas


def simple(case: Case, prompt: float, output: float) -> Case:
    lengths = LognormalLengths(
        prompt=Lognormal(p50_tokens=prompt, p95_tokens=1.5 * prompt, cap_tokens=16384),
        output=Lognormal(p50_tokens=output, p95_tokens=2.5 * output, cap_tokens=16384),
    )
    workload = case.workload.model_copy(update={"lengths": lengths})
    return replace(case, workload=workload, lengths=workload.length_stats())


def test_formula_and_simulation_agree_where_requests_dont_end_together(asked: OfflineCase) -> None:
    """Lengths of many sizes and a batch that max_num_seqs sets: packed prompts and decode at the mean batch make up the run."""
    varied = simple(textbook_case(), 900.0, 220.0)
    found = bill(asked, max_num_seqs=128.0)
    engine = asked.terms.engines(asked.way.machine, "bf16", "bf16")
    assert engine is not None
    run = simulated_bill(varied, found, engine, asked.work)
    assert run.too_long == 0
    assert run.running == pytest.approx(128.0, rel=0.03)
    assert run.gpu_days == pytest.approx(found.fleet.gpu_days, rel=0.10)


def test_sorting_gives_back_what_static_batches_lose(asked: OfflineCase) -> None:
    engine = asked.terms.engines(asked.way.machine, "bf16", "bf16")
    assert engine is not None
    found = static_waste(textbook_case(), engine, asked.work)
    assert found.formula == pytest.approx(4.744, abs=1e-3)  # the harmonic number of 64
    assert 1.0 < found.sorted_cost < found.unsorted_cost < found.formula


def test_a_static_batch_is_as_large_as_its_padded_requests_leave_room_for() -> None:
    requests = textbook_case().requests(40)  # 500 + 250 tokens each
    assert [static_batch(requests, kv_tokens) for kv_tokens in (1.0, 7499.0, 7500.0, 1e9)] == [1, 9, 10, 64]
    uneven = replace(requests, output_tokens=np.array([1, 499] * 20, np.int64))
    # Of two outputs of 1 or 499 tokens the longest has 374.5 on average: 2 · (500 + 374.5) = 1,749.
    assert [static_batch(uneven, kv_tokens) for kv_tokens in (1748.9, 1749.1)] == [1, 2]


def test_requests_that_the_cache_never_holds_are_counted(asked: OfflineCase) -> None:
    varied = simple(textbook_case(), 900.0, 220.0)
    engine = asked.terms.engines(asked.way.machine, "bf16", "bf16")
    assert engine is not None
    found = bill(asked, max_num_seqs=16.0)
    whole, small = (
        simulated_bill(varied, found, engine._replace(kv_tokens=tokens), asked.work) for tokens in (engine.kv_tokens, 1500.0)
    )
    assert whole.too_long == 0
    assert small.too_long > 0
    assert small.requests + small.too_long == whole.requests


def test_the_scenarios_own_work_and_engine(own: Case) -> None:
    question = offline_case(own)
    assert question.work.prompts_total == pytest.approx(10.0 * 86400.0 * own.lengths.prompt_mean_tokens)
    assert question.way.machine.gpu_id == "l40s"
    base, savings = stacked(question.way, question.work, question.terms)
    assert base.fleet.batch <= own.limits.max_num_seqs
    assert savings[0].added_usd > 0.0
    run = simulated_offline(own, (base, savings[-1].bill), question.work, question.terms)
    assert run.now.gpu_days == pytest.approx(base.fleet.gpu_days, rel=0.25)
    explanation = offline_explanation(base, savings)
    assert f"${base.usd_per_day:,.0f}/day" in explanation.answer
    most = max(savings, key=lambda each: each.alone_usd)
    last, less, alone = (
        dollars(amount)
        for amount in (savings[-1].bill.usd_per_day, base.usd_per_day - savings[-1].bill.usd_per_day, most.alone_usd)
    )
    assert f"costs {last}/day, {less} less" in explanation.answer
    assert f"pulled by itself {most.lever} saves most, {alone}/day" in explanation.answer


def test_a_machine_without_a_price_is_refused() -> None:
    """A GPU that nobody rents can be planned on, but has no dollars to save."""
    case = planned_case(plan(Scenario(hardware=HardwareChoice(gpu_ids=("rtx-4090",), tensor_parallel=(1,)))))
    question = offline_case(case)
    with pytest.raises(InputError, match="price"):
        stacked(question.way, question.work, question.terms)


def test_the_users_own_price_is_the_bills(own: Case) -> None:
    hardware = HardwareChoice(gpu_ids=("l40s",), tensor_parallel=(1,), usd_per_gpu_hour={"l40s": 0.5})
    mine = offline_case(planned_case(plan(Scenario(hardware=hardware, targets=Targets(ttft_p99_s=None, tpot_p99_s=None)))))
    assert mine.way.machine.usd_per_gpu_hour == pytest.approx(0.5)
    assert mine.way.machine.price_source.startswith("your price")


def test_api_prices_stand_beside_the_bill(asked: OfflineCase) -> None:
    found = {each.price.provider: each for each in api_bills("llama-3.1-70b-instruct", asked.work)}
    assert found["together"].usd_per_day == pytest.approx(8800.0)
    assert found["together"].batch_usd_per_day == pytest.approx(4400.0)
    assert found["nebius"].batch_usd_per_day is None
    assert api_bills("no-such-model", asked.work) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cached_share", 1.0),
        ("cached_share", float("nan")),
        ("hours", 0.0),
        ("hours", 25.0),
        ("spot_lost_minutes", 1440.0),
        ("spot_lost_minutes", -1.0),
        ("idle_gpu_hours", -1.0),
        ("idle_gpu_hours", float("nan")),
    ],
)
def test_bad_terms_are_refused(asked: OfflineCase, field: str, value: float) -> None:
    with pytest.raises(InputError) as caught:
        replace(asked.terms, **{field: value})
    assert caught.value.field == field


def test_a_day_without_prompts_is_refused() -> None:
    with pytest.raises(InputError):
        DailyWork.of_day(0.0, 1e9, 100.0)


def test_a_fleet_follows_its_own_terms(asked: OfflineCase) -> None:
    """The bill's fleet is offline_fleet at the KV-limited batch."""
    engine = asked.terms.engines(asked.way.machine, "bf16", "bf16")
    assert engine is not None
    per_token = 1.0
    batch = kv_limited_batch(engine.kv_tokens * per_token, per_token, asked.work)
    assert bill(asked).fleet.decode_gpu_days == offline_fleet(asked.work, batch, 4, engine.coefficients).decode_gpu_days


def test_a_move_to_a_machine_without_a_spot_price_is_counted_on_demand(asked: OfflineCase) -> None:
    spot = asked.way._replace(spot=True)
    found = pulled(spot, "another GPU", asked.work, asked.terms)
    unpriced = next(each for each in asked.terms.machines if each.gpu_id == "mi300x" and each.gpus == 2)
    on_demand = bill_of(asked.way._replace(machine=unpriced), asked.work, asked.terms)
    assert found is not None
    assert on_demand is not None
    assert unpriced.spot_usd_per_gpu_hour is None
    assert found.usd_per_day <= on_demand.usd_per_day
    assert found.way.spot == (found.way.machine.spot_usd_per_gpu_hour is not None)
