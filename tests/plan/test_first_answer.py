"""The answer before the evidence: the plan's own choice and figures, whatever is asked, at a fraction of the simulations."""

import itertools
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plans import Answer, Plan, complete, first_answer, plan
from planner.plans.capacity import latency_at, saturated_rps
from planner.plans.ranking import Dearness, dearness, needed_rps, rank
from planner.scenario import scenario_from_dict

GPUS = ["h100-80g-sxm", "l40s", "a100-80g-sxm", "mi300x", "rtx-pro-6000-bw-server"]
SEVERAL = {"hardware": {"gpu_ids": GPUS, "tensor_parallel": [1, 2]}}
H100 = {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}


def simulations() -> int:
    return latency_at.cache_info().misses + saturated_rps.cache_info().misses


def both(**changes: Any) -> tuple[Answer, Plan]:
    answer = first_answer(scenario_from_dict({**SEVERAL, **changes}))
    return answer, complete(answer)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workload": {"load": {"kind": "rate", "requests_per_s": 120.0}}},
        {"targets": {"ttft_p99_s": 0.3, "tpot_p99_s": 0.015}},
        {"targets": {"ttft_p99_s": 5.0, "tpot_p99_s": None}},
        {"targets": {"ttft_p99_s": None, "tpot_p99_s": None}},
        {"workload": {"id": "azure-code-2023"}},
        {"workload": {"id": "lmsys-chat"}, "seed": 5},
        {"fleet": {"headroom": 0.0, "spare_replicas": 0}},
        {"model": {"id": "qwen2.5-7b-instruct"}},
        {"engine": {"max_num_seqs": 64, "max_num_batched_tokens": 1024}},
        {"hardware": {"gpu_ids": [*GPUS, "rtx-4090"], "usd_per_gpu_hour": {"l40s": 0.4}}},
    ],
)
def test_it_is_the_choice_of_the_whole_plan(changes: dict[str, Any]) -> None:
    answer, whole = both(**changes)
    assert answer.chosen is not None
    assert answer.chosen == whole.chosen
    assert answer.summary == whole.summary
    assert answer.load == whole.load
    assert list(whole.candidates) == sorted(whole.candidates, key=rank)


@given(
    rate=st.floats(0.5, 300.0),
    ttft=st.one_of(st.none(), st.floats(0.2, 5.0)),
    tpot=st.one_of(st.none(), st.floats(0.012, 0.1)),
    headroom=st.floats(0.0, 0.5),
    spares=st.integers(0, 2),
)
@settings(max_examples=8, deadline=None)
def test_it_is_the_choice_of_the_whole_plan_under_random_targets(
    rate: float, ttft: float | None, tpot: float | None, headroom: float, spares: int
) -> None:
    answer, whole = both(
        workload={"load": {"kind": "rate", "requests_per_s": rate}},
        targets={"ttft_p99_s": ttft, "tpot_p99_s": tpot},
        fleet={"headroom": headroom, "spare_replicas": spares},
    )
    assert answer.chosen == whole.chosen
    assert answer.summary in (whole.summary, None)


def test_it_takes_a_fraction_of_the_simulations() -> None:
    scenario = scenario_from_dict({"seed": 4711})
    before = simulations()
    answer = first_answer(scenario)
    first = simulations() - before
    complete(answer)
    assert 20 < first < 0.35 * (simulations() - before)


def test_an_impossible_scenario_has_no_first_answer_and_a_plan_with_reasons() -> None:
    answer = first_answer(scenario_from_dict({"hardware": H100, "targets": {"tpot_p99_s": 0.0001}}))
    assert (answer.chosen, answer.summary) == (None, None)
    assert complete(answer).summary.startswith("No configuration")


def test_wrong_input_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="model"):
        first_answer(scenario_from_dict({"model": {"id": "no-such-model"}}))


def test_progress_rises_and_ends_a_plan_that_is_not_wanted() -> None:
    shares: list[float] = []
    plan(scenario_from_dict({"hardware": H100}), lambda _text, share: shares.append(share))
    assert len(shares) > 5
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert shares == sorted(shares)

    class NotWantedError(Exception):
        pass

    def give_up(_text: str, share: float) -> None:
        if share > 0.3:
            raise NotWantedError

    with pytest.raises(NotWantedError):
        plan(scenario_from_dict({"hardware": H100, "seed": 12}), give_up)


def test_what_a_rival_must_carry_is_what_its_price_leaves() -> None:
    answer = first_answer(scenario_from_dict({**SEVERAL, "fleet": {"headroom": 0.2, "spare_replicas": 1}}))
    question, layout = answer.race.question, answer.race.ways[0]
    fleet_of_three = dearness(layout, 3)
    needed = needed_rps(question, layout, fleet_of_three)
    assert needed == pytest.approx(10.0 / (2 * 0.8))
    assert needed_rps(question, layout, Dearness(unpriced=False, amount=dearness(layout, 1).amount * 0.5)) is None
    assert needed_rps(question, layout, Dearness(unpriced=True, amount=1.0)) == 0.0


@pytest.mark.parametrize(
    "changes", [{"workload": {"id": "sharegpt"}, "seed": 21}, {"workload": {"id": "azure-code-2023"}, "seed": 22}]
)
def test_a_plan_that_is_not_wanted_ends_within_a_stage(changes: dict[str, Any]) -> None:
    told: list[tuple[str, float, float]] = []

    def tell(text: str, share: float) -> None:
        told.append((text, share, time.process_time()))

    answer = first_answer(scenario_from_dict({"hardware": H100, **changes}), tell)
    assert len(told) > 3 * len({(text, share) for text, share, _ in told})
    told.clear()
    complete(answer, tell)
    gaps_s = sorted(after - before for (_, _, before), (_, _, after) in itertools.pairwise(told))
    assert len(told) > 50
    assert gaps_s[-3] < 0.4  # a given-up plan holds up the next one no longer


def test_an_answer_that_is_completed_again_is_given_up_by_its_own_page_only() -> None:
    class NotWantedError(Exception):
        pass

    calls: list[str] = []

    def give_up_after_a_while(text: str, _share: float) -> None:
        calls.append(text)
        if len(calls) > 20:
            raise NotWantedError

    answer = first_answer(scenario_from_dict({"hardware": H100, "seed": 23}), lambda text, _: calls.append(text))
    calls.clear()
    with pytest.raises(NotWantedError):
        complete(answer, give_up_after_a_while)
    ended = len(calls)
    assert complete(answer).chosen == answer.chosen
    assert len(calls) == ended


def test_a_layout_that_a_small_sample_only_just_ruled_out_is_tried_on_the_largest() -> None:
    """96 B200 carry this by 1 %; on the smaller samples they don't, and what is left costs 5 % more."""
    costs = []
    for tpot_p99_s in (0.2, 0.4):
        answer = first_answer(
            scenario_from_dict(
                {
                    "workload": {"id": "azure-conversation-2024", "load": {"kind": "rate", "requests_per_s": 500.0}},
                    "model": {"id": "llama-3.3-70b-instruct", "quantization": "fp8", "kv_dtype": "fp8"},
                    "hardware": {"tensor_parallel": [1]},
                    "targets": {"ttft_p99_s": 3.0, "tpot_p99_s": tpot_p99_s},
                }
            )
        )
        assert answer.chosen is not None
        assert answer.chosen.cost is not None
        costs.append(answer.chosen.cost.usd_per_hour)
    assert costs[1] <= costs[0]
