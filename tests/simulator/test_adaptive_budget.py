"""An engine whose budget a controller moves: a still hand changes nothing, a moving one equals the plain loop's, nothing unseen."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from planner.errors import InputError
from planner.simulator import EngineLimits, RequestTable, plain_run, simulate
from planner.simulator.adaptive import Observation, Range, simulate_adaptive
from planner.simulator.plain_loop import Batch, PlainScheduler, Sequence
from tests.simulator.engines import LIGHT, Case, cases, coefficients

C = coefficients(layers_s=0.004, linear_s_per_token=2e-5, decode_s_per_context_token=1e-7, host_overlap=1.0)
LIMITS = EngineLimits(max_num_seqs=32, max_num_batched_tokens=512, block_size=16, num_blocks=4000)
TIMES = ("first_scheduled_s", "first_token_s", "finish_s")


def requests(count: int = 400, rate_rps: float = 40.0) -> RequestTable:
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(1.0 / rate_rps, count))
    return RequestTable(arrival_s, rng.integers(10, 900, count), rng.integers(1, 60, count))


@LIGHT
@given(cases(known_hits=True))
def test_pauses_change_nothing(case: Case) -> None:
    limits = case.limits._replace(policy="fcfs")
    whole = simulate(case.table(), limits, case.coefficients)
    budget = limits.max_num_batched_tokens
    paused = simulate_adaptive(
        case.table(), limits, case.coefficients, Range(limits.max_num_seqs, budget, 2.0**-5), lambda seen: seen.budget_tokens
    )
    for name in (*TIMES, "preemptions", "bound_s"):
        assert np.array_equal(getattr(paused.result, name), getattr(whole, name), equal_nan=True), name
    assert paused.result.totals == whole.totals
    assert paused.budget_tokens.tolist() == [budget]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_moving_budget_equals_the_plain_loop_with_the_same_budgets(asynchronous: bool) -> None:
    limits = LIMITS._replace(async_scheduling=asynchronous)
    ladder = [32, 512, 64, 300]

    def controller(seen: Observation) -> int:
        return ladder[int(seen.now_s / 0.25) % len(ladder)]

    table = requests()
    found = simulate_adaptive(table, limits, C, Range(32, 32, 0.25), controller)
    assert len(found.at_s) > 20
    plain = _plain(table, limits, found.at_s, found.budget_tokens)
    assert np.array_equal([each.first_token_s for each in plain], found.result.first_token_s)
    assert np.array_equal([each.finish_s for each in plain], found.result.finish_s)


def _plain(table: RequestTable, limits: EngineLimits, at_s: np.ndarray, budgets: np.ndarray) -> list[Sequence]:
    """Serve the requests with the plain loop, whose decisions take the budget that holds then."""

    class Moving(PlainScheduler):
        now_s = 0.0

        def schedule(self) -> Batch:
            place = int(np.searchsorted(at_s, Moving.now_s, side="right")) - 1
            self.limits = limits._replace(max_num_batched_tokens=int(budgets[place]))
            return super().schedule()

    decide = plain_run._decide

    def noting(scheduler: PlainScheduler, now_s: float) -> Batch | None:
        Moving.now_s = now_s
        return decide(scheduler, now_s)

    sequences = [
        Sequence(index, float(arrival_s), int(prompt), int(output))
        for index, (arrival_s, prompt, output) in enumerate(
            zip(table.arrival_s, table.prompt_tokens, table.output_tokens, strict=True)
        )
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_run, "PlainScheduler", Moving)
        patch.setattr(plain_run, "_decide", noting)
        plain_run.run_plain(sequences, limits, plain_run.step_time_of(C))
    return sequences


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("num_blocks", [4000, 400])
def test_controller_sees_each_request_once_and_nothing_of_the_future(num_blocks: int, asynchronous: bool) -> None:
    seen: list[Observation] = []

    def controller(observed: Observation) -> int:
        seen.append(observed)
        return observed.budget_tokens

    table = requests(rate_rps=300.0)
    limits = LIMITS._replace(num_blocks=num_blocks, async_scheduling=asynchronous)
    found = simulate_adaptive(table, limits, C, Range(32, 512, 0.1), controller).result
    assert (found.totals.preemptions > 10) == (num_blocks == 400)
    ttft_s = found.first_token_s - found.arrival_s
    gaps = found.output_tokens - 1
    tpot_s = (found.finish_s - found.first_token_s) / np.maximum(gaps, 1)
    for before, now in pairwise(seen):
        inside = (found.first_token_s > before.now_s) & (found.first_token_s <= now.now_s)
        assert sorted(now.ttft_s) == sorted(ttft_s[inside])
        ended = (found.finish_s > before.now_s) & (found.finish_s <= now.now_s) & (gaps > 0)
        assert sorted(now.tpot_s) == sorted(tpot_s[ended])
        arrived = int((found.arrival_s <= now.now_s).sum())
        first_waits = arrived - int((found.first_scheduled_s < now.now_s).sum())
        assert now.waiting == first_waits if num_blocks == 4000 else now.waiting >= first_waits
        assert now.now_s > before.now_s
    assert max(observed.waiting for observed in seen) > 5


def test_range_is_checked() -> None:
    table = requests(20)
    for allowed, field in (
        (Range(16, 64, 1.0), "least"),
        (Range(32, 1024, 1.0), "budget_tokens"),
        (Range(32, 64, 0.0), "interval_s"),
        (Range(32, 64, float("nan")), "interval_s"),
    ):
        with pytest.raises(InputError) as fault:
            simulate_adaptive(table, LIMITS, C, allowed, lambda observed: observed.budget_tokens)
        assert fault.value.field == field
    with pytest.raises(InputError, match="budget_tokens is 4096"):
        simulate_adaptive(table, LIMITS, C, Range(32, 64, 0.01), lambda _: 4096)
