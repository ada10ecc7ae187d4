"""Layouts whose KV cache is small: settings that leave it more memory are tried, and no bound shuts them out."""

from typing import Any

import pytest

from planner.plans import first_answer
from planner.plans.knobs import first_knobs
from planner.plans.planning import Answer
from planner.plans.race import Entrant
from planner.plans.results import Knobs
from planner.plans.starting import with_knobs
from planner.scenario import scenario_from_dict

EXPERTS = {"id": "qwen3-30b-a3b"}
TWO = {"gpu_ids": ["h100-80g-sxm", "rtx-pro-6000-bw-server"], "tensor_parallel": [1]}


def answer(tpot_p99_s: float | None, **changes: Any) -> Answer:
    return first_answer(
        scenario_from_dict(
            {
                "workload": {"id": "chat", "load": {"kind": "rate", "requests_per_s": 20.0}},
                "model": EXPERTS,
                "hardware": TWO,
                "targets": {"ttft_p99_s": 1.0, "tpot_p99_s": tpot_p99_s},
                **changes,
            }
        )
    )


def usd_per_hour(found: Answer) -> float:
    assert found.chosen is not None
    assert found.chosen.cost is not None
    return found.chosen.cost.usd_per_hour


def of_h100(found: Answer) -> Entrant:
    return next(each for each in found.race.entrants.values() if each.layout.gpu.id == "h100-80g-sxm")


def test_a_looser_target_costs_no_more_where_sequences_take_memory_from_the_cache() -> None:
    costs = [usd_per_hour(answer(tpot_p99_s)) for tpot_p99_s in (0.045, 0.060, 0.080)]
    assert costs == sorted(costs, reverse=True)


def test_the_first_cap_is_one_that_the_cache_cannot_reach() -> None:
    tight, wide = (of_h100(found) for found in (answer(0.06), answer(0.06, model={"id": "llama-3.2-1b-instruct"})))
    question = answer(0.06).race.question
    held = (tight.engine.memory.kv_tokens or 0) / question.context_mean_tokens
    assert 3.0 * held <= first_knobs(question, tight.engine).max_num_seqs < tight.engine.own.max_num_seqs
    assert first_knobs(question, wide.engine).max_num_seqs == wide.engine.own.max_num_seqs


@pytest.mark.parametrize("tpot_p99_s", [None, 0.06])
def test_a_cap_that_the_user_holds_is_kept(tpot_p99_s: float | None) -> None:
    found = answer(tpot_p99_s, engine={"max_num_seqs": 1024, "max_num_batched_tokens": 2048})
    assert first_knobs(found.race.question, of_h100(found).engine) == Knobs(1024, 2048)


def test_the_bound_allows_for_a_cache_that_smaller_settings_leave() -> None:
    found = answer(0.06, model={"id": "qwen3-32b"}, hardware={"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]})
    entrant = of_h100(found)
    assert found.chosen is not None
    assert found.chosen.capacity_rps is not None
    small = with_knobs(entrant.engine, Knobs(32, 512), None).memory
    assert (small.kv_tokens or 0) > 1.4 * (entrant.engine.memory.kv_tokens or 0)
    own = answer(
        0.06, model={"id": "qwen3-32b"}, hardware={"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}, engine=_held(entrant)
    )
    assert entrant.most_rps > 1.2 * of_h100(own).most_rps
    assert found.chosen.capacity_rps <= entrant.most_rps


def _held(entrant: Entrant) -> dict[str, int]:
    return {"max_num_seqs": entrant.engine.own.max_num_seqs, "max_num_batched_tokens": entrant.engine.own.max_num_batched_tokens}
