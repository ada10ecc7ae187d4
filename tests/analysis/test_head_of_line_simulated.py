"""The burst simulated: exact where a step holds one prompt, order helps who waits, cut chunks help behind who runs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.head_of_line import burst_waits, head_of_line
from planner.analysis.head_of_line_simulated import ORDERS, Burst, BurstOrder, BurstRun, simulated_burst, simulated_bursts
from planner.cases import textbook_case
from planner.errors import InputError
from planner.simulator.policies import POLICIES

TEXTBOOK = Burst(long_tokens=32_768, short_tokens=512, shorts=10, output_tokens=250, threshold_tokens=2048)
FCFS, CUT, PRIORITY, SHORTEST = ORDERS[:4]


@pytest.fixture(scope="module")
def runs() -> list[BurstRun]:
    return list(simulated_bursts(textbook_case(), TEXTBOOK))


def one_prompt_a_step() -> Case:
    """The closed form's assumption: one request in the engine, its prompt whole in a step, one output token."""
    return textbook_case().with_limits(max_num_seqs=1, max_num_batched_tokens=65_536)


def of(runs: list[BurstRun], order: BurstOrder, *, running: bool) -> BurstRun:
    return next(run for run in runs if run.order == order and run.running == running)


@settings(max_examples=20, deadline=None)
@given(st.integers(1_000, 40_000), st.integers(1, 900), st.integers(1, 12))
def test_one_prompt_a_step_agrees_with_the_closed_form(long_tokens: int, short_tokens: int, shorts: int) -> None:
    case = one_prompt_a_step()
    burst = Burst(long_tokens, short_tokens, shorts, 1, 2048)
    prompts = [long_tokens, *([short_tokens] * shorts)]
    for order, closed in ((FCFS, "fcfs"), (SHORTEST, "shortest first")):
        run = simulated_burst(case, burst, order, running=False)
        expected = burst_waits(prompts, closed, case.coefficients)  # type: ignore[arg-type]
        assert (run.long_s, *run.short_s) == pytest.approx(expected.ttft_s)


def test_each_short_prompt_behind_a_long_one_pays_for_it_under_first_come(runs: list[BurstRun]) -> None:
    blocked_s = head_of_line(32_768, 512, 10, textbook_case().coefficients).long_prefill_s
    assert blocked_s == pytest.approx(1.573, abs=1e-3)
    assert all(wait >= 0.99 * blocked_s for wait in of(runs, FCFS, running=False).short_s)


@pytest.mark.parametrize("order", ORDERS[1:], ids=lambda order: order.name)
def test_while_the_long_prompt_waits_every_other_order_spares_the_short_ones(runs: list[BurstRun], order: BurstOrder) -> None:
    first, other = of(runs, FCFS, running=False), of(runs, order, running=False)
    assert other.short_mean_s < 0.2 * first.short_mean_s
    assert other.long_s < 1.2 * first.long_s


@pytest.mark.parametrize("order", [order for order in ORDERS if not order.cut], ids=lambda order: order.name)
def test_once_the_long_prompt_runs_no_order_helps(runs: list[BurstRun], order: BurstOrder) -> None:
    assert of(runs, order, running=True).short_mean_s == pytest.approx(of(runs, FCFS, running=True).short_mean_s, rel=0.01)


def test_cut_chunks_let_short_prompts_past_a_running_one(runs: list[BurstRun]) -> None:
    first, cut = of(runs, FCFS, running=True), of(runs, CUT, running=True)
    assert cut.short_mean_s < 0.4 * first.short_mean_s
    assert cut.long_s > first.long_s


def test_what_vllm_has_is_what_the_table_of_policies_says() -> None:
    for order in ORDERS:
        assert (order.enforced == "by itself") == POLICIES[order.policy].in_vllm


def test_a_prompt_beyond_the_cache_is_refused() -> None:
    with pytest.raises(InputError, match="KV cache"):
        simulated_burst(textbook_case(), Burst(500_000, 512, 2, 10, 2048), FCFS, running=False)
