"""The policies keep their promises: what each improves, what it bounds, and what it may never do."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.fairness import jain_index
from planner.simulator.cluster import EngineSpec, Outcome, engine_steps, run_engine
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits, predict_outputs
from planner.simulator.limits import EngineLimits
from planner.simulator.policies import POLICIES, ClassLimit, Discipline, Ledger
from planner.step_model import StepCoefficients

ONE_SECOND = StepCoefficients(
    **(dict.fromkeys(StepCoefficients._fields, 0.0) | {"layers_s": 1.0, "mix_factor": 1.0, "expert_miss_ratio": 1.0})
)
ONE_SLOT = EngineLimits(max_num_seqs=1, max_num_batched_tokens=64, block_size=16, num_blocks=100, async_scheduling=False)
LIGHT = settings(max_examples=40, deadline=None)


def at_once(prompt: list[int], output: list[int]) -> RequestTable:
    return RequestTable(np.zeros(len(prompt)), np.array(prompt, np.int64), np.array(output, np.int64))


def test_only_vllms_own_policies_are_marked_as_its() -> None:
    assert {name for name, policy in POLICIES.items() if policy.in_vllm} == {"fcfs", "priority"}
    assert all(policy.description for policy in POLICIES.values())


@LIGHT
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30)), min_size=1, max_size=12))
def test_shortest_job_first_never_waits_longer_on_average(jobs: list[tuple[int, int]]) -> None:
    """On one server with everything there at once, shortest first is optimal for the mean; a wrong predictor is not below it."""
    requests = at_once([prompt for prompt, _ in jobs], [output for _, output in jobs])
    waits = {}
    for name in ("fcfs", "shortest-predicted"):
        spec = EngineSpec(ONE_SLOT, ONE_SECOND, Discipline(policy=name, prompt_weight=0.0))
        waits[name] = float(run_engine(spec, requests).queue_s.mean())
    wrong = predict_outputs(requests.output_tokens, 2.0, np.random.default_rng(1))
    noisy = run_engine(spec, requests, Traits(predicted_output_tokens=wrong)).queue_s.mean()
    assert waits["shortest-predicted"] <= waits["fcfs"] + 1e-9
    assert waits["shortest-predicted"] <= noisy + 1e-9
    ordered = np.sort(requests.output_tokens)
    assert waits["shortest-predicted"] == pytest.approx(np.concatenate([[0], np.cumsum(ordered)[:-1]]).mean())


def test_one_long_prompt_delays_all_behind_it_unless_short_ones_go_first(usual: StepCoefficients) -> None:
    limits = EngineLimits(max_num_seqs=16, max_num_batched_tokens=2048, block_size=16, num_blocks=4000)
    requests = at_once([32768] + [100] * 10, [10] * 11)
    fcfs = run_engine(EngineSpec(limits, usual), requests)
    short = run_engine(EngineSpec(limits, usual, Discipline(policy="shortest-prompt")), requests)
    prefill_s = 16 * (1e-3 + 2048 * 3e-5) + 2e-10 * 32768**2 / 2
    assert fcfs.ttft_s[1:].min() > 0.9 * prefill_s
    assert short.ttft_s[1:].max() < 0.1 * prefill_s
    assert short.ttft_s[0] == pytest.approx(fcfs.ttft_s[0], rel=0.05)


def test_ageing_bounds_the_wait_that_shortest_first_leaves_open() -> None:
    """A long job under a stream of short ones that fill the server waits to the end, or until it has aged."""
    count = 200
    requests = RequestTable(
        np.concatenate([[0.5], np.arange(count) * 3.0]),
        np.array([60] + [10] * count, np.int64),
        np.array([5] + [3] * count, np.int64),
    )
    for ageing_s in (None, 30.0):
        spec = EngineSpec(ONE_SLOT, ONE_SECOND, Discipline(policy="shortest-prompt", ageing_s=ageing_s))
        wait_s = run_engine(spec, requests).queue_s[0]
        assert wait_s == pytest.approx(count * 3.0 - 0.5) if ageing_s is None else 30.0 <= wait_s <= 33.0


def test_feedback_serves_short_jobs_before_long_ones_without_knowing_lengths() -> None:
    rng = np.random.default_rng(3)
    output = np.where(rng.random(120) < 0.1, 300, 5).astype(np.int64)
    requests = RequestTable(np.sort(rng.uniform(0.0, 800.0, 120)), np.full(120, 8, np.int64), output)
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64, block_size=16, num_blocks=400)
    short = output == 5
    runs = {
        name: run_engine(EngineSpec(limits, ONE_SECOND, Discipline(policy=name, level_costs=(40.0, 200.0))), requests)
        for name in ("fcfs", "multi-level-feedback")
    }
    assert all((run.outcome == Outcome.SERVED).all() for run in runs.values())
    assert runs["multi-level-feedback"].e2e_s[short].mean() < 0.5 * runs["fcfs"].e2e_s[short].mean()
    assert runs["multi-level-feedback"].preemptions[~short].sum() > 0
    assert runs["multi-level-feedback"].preemptions[short].sum() == 0


def test_idle_time_banks_no_credit() -> None:
    ledger = Ledger(Discipline(policy="virtual-token-counter"))
    ledger.accounts[0].prompt_tokens = 1000
    ledger.enter(0, back=False)
    ledger.enter(1, back=False)
    assert ledger.counter(1) == ledger.counter(0) == 1000.0
    ledger.leave(0)
    ledger.leave(1)
    ledger.accounts[1].output_tokens = 50
    ledger.enter(2, back=False)
    assert ledger.counter(2) == ledger.counter(1) == 1100.0


def test_a_tenant_that_comes_back_shares_from_then_on() -> None:
    """Tenant 1 idles for 500 s, then sends a burst; tenant 0, backlogged all along, keeps its half."""
    requests = RequestTable(np.array([0.0] * 100 + [500.0] * 60), np.full(160, 16, np.int64), np.full(160, 10, np.int64))
    tenant = np.array([0] * 100 + [1] * 60, np.int64)
    run = run_engine(EngineSpec(ONE_SLOT, ONE_SECOND, Discipline(policy="virtual-token-counter")), requests, Traits(tenant=tenant))
    window = (run.finish_s > 520.0) & (run.finish_s < 900.0)
    served = np.array([(window & (tenant == each)).sum() for each in (0, 1)], float)
    assert jain_index(served.tolist()) > 0.99


def service_difference(spec: EngineSpec, requests: RequestTable, tenant: Any) -> float:
    """Return the largest difference of two tenants' service while requests of both wait."""
    _, steps = engine_steps(spec, requests, Traits(tenant=tenant))
    left = {0: int((tenant == 0).sum()), 1: int((tenant == 1).sum())}
    service: dict[int, float] = defaultdict(float)
    seen: set[int] = set()
    worst = 0.0
    for step in steps:
        for row in step.chunks:
            job: Any = row.sequence
            if job.index not in seen:
                seen.add(job.index)
                left[job.tenant] -= 1
                service[job.tenant] += spec.discipline.prompt_weight * job.prompt_tokens
        for job in step.token_takers():
            service[job.tenant] += spec.discipline.output_weight
        if min(left.values()) == 0:
            break
        worst = max(worst, abs(service[0] - service[1]))
    return worst


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_service_of_two_backlogged_tenants_differs_by_a_bounded_amount(seed: int, seqs: int) -> None:
    """Sheng et al. (2024): at most twice the larger of the longest prompt's cost and that of a cache full of outputs."""
    rng = np.random.default_rng(seed)
    limits = EngineLimits(max_num_seqs=seqs, max_num_batched_tokens=64, block_size=4, num_blocks=40)
    lengths = rng.integers(1, 60, 80), rng.integers(1, 40, 80)
    requests = RequestTable(np.zeros(80), *lengths)
    tenant = np.array([0] * 40 + [1] * 40, np.int64)
    spec = EngineSpec(limits, ONE_SECOND, Discipline(policy="virtual-token-counter"))
    bound = 2.0 * max(1.0 * int(lengths[0].max()), 2.0 * 160)
    assert service_difference(spec, requests, tenant) <= bound
    assert service_difference(EngineSpec(limits, ONE_SECOND), requests, tenant) > bound


def test_weights_give_a_tenant_its_share() -> None:
    requests = at_once([16] * 200, [10] * 200)
    tenant = np.array([0] * 100 + [1] * 100, np.int64)
    discipline = Discipline(policy="virtual-token-counter", tenant_weights=(3.0, 1.0))
    run = run_engine(EngineSpec(ONE_SLOT, ONE_SECOND, discipline), requests, Traits(tenant=tenant))
    early = run.finish_s < 1000.0
    assert (early & (tenant == 0)).sum() == pytest.approx(3 * (early & (tenant == 1)).sum(), abs=4)


def test_counting_requests_lets_tenants_take_turns_whatever_a_request_costs() -> None:
    requests = at_once([60] * 50 + [5] * 50, [20] * 50 + [2] * 50)
    tenant = np.array([0] * 50 + [1] * 50, np.int64)
    by_request = Discipline("virtual-token-counter", prompt_weight=0.0, output_weight=0.0, request_weight=1.0)
    run = run_engine(EngineSpec(ONE_SLOT, ONE_SECOND, by_request), requests, Traits(tenant=tenant))
    served = tenant[np.argsort(run.first_scheduled_s)]
    assert abs(np.diff(served)).all()


def test_without_the_lift_idle_time_banks_credit() -> None:
    """Tenant 1 comes back after 500 s of idleness: without the lift it has the engine to itself until it has caught up."""
    requests = RequestTable(np.array([0.0] * 100 + [500.0] * 60), np.full(160, 16, np.int64), np.full(160, 10, np.int64))
    tenant = np.array([0] * 100 + [1] * 60, np.int64)
    discipline = Discipline("virtual-token-counter", lift=False)
    run = run_engine(EngineSpec(ONE_SLOT, ONE_SECOND, discipline), requests, Traits(tenant=tenant))
    window = (run.finish_s > 520.0) & (run.finish_s < 900.0)
    assert set(tenant[window].tolist()) == {1}


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_leaves_a_slot_free_while_a_job_waits(name: str) -> None:
    rng = np.random.default_rng(11)
    requests = RequestTable(np.sort(rng.uniform(0, 60.0, 60)), rng.integers(1, 20, 60), rng.integers(1, 20, 60))
    traits = Traits(tenant=rng.integers(0, 3, 60), priority=rng.integers(0, 3, 60))
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=1000, block_size=4, num_blocks=500, async_scheduling=False)
    run, steps = engine_steps(EngineSpec(limits, ONE_SECOND, Discipline(policy=name)), requests, traits)
    assert run.count(Outcome.SERVED) == 60
    assert all(step.running == 4 for step in steps if step.waiting)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("reserve", [True, False])
def test_every_policy_serves_all_under_kv_pressure(name: str, reserve: bool) -> None:
    """Preemption upon preemption ends: each request gets exactly its tokens, with stretches as without."""
    rng = np.random.default_rng(5)
    requests = RequestTable(np.sort(rng.uniform(0, 20.0, 60)), rng.integers(1, 60, 60), rng.integers(1, 60, 60))
    traits = Traits(tenant=rng.integers(0, 3, 60), priority=rng.integers(0, 3, 60), class_index=rng.integers(0, 2, 60))
    limits = EngineLimits(8, 32, 4, 40, scheduler_reserve_full_isl=reserve, enable_prefix_caching=reserve)
    discipline = Discipline(policy=name, level_costs=(50.0, 100.0), class_limits=(ClassLimit(), ClassLimit(120, 0.5)))
    spec = EngineSpec(limits, ONE_SECOND, discipline)
    run = run_engine(spec, requests, traits)
    by_step, steps = engine_steps(spec, requests, traits)
    assert run.count(Outcome.SERVED) == 60
    assert run.preemptions.sum() > 0
    assert np.array_equal(run.finish_s, by_step.finish_s)
    assert np.array_equal(run.preemptions, by_step.preemptions)
    tokens: dict[int, int] = defaultdict(int)
    for step in steps:
        assert step.used_blocks <= limits.num_blocks
        assert step.running <= limits.max_num_seqs
        assert step.tokens <= limits.max_num_batched_tokens
        for job in step.token_takers():
            tokens[job.index] += 1
    assert [tokens[index] for index in range(60)] == requests.output_tokens.tolist()
    assert run.replicas[0].peak_class_blocks[1] <= 30
