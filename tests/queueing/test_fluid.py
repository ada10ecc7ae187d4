"""Bounds for the order of candidates: by hand, and against the mean-field model over random engines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.queueing import MeanField, ReplicaLimits, Traffic, fluid_limit, lone_floor
from planner.step_model import StepCoefficients, StepShape, step_s
from tests.queueing.streams import ANSWER_ROWS, CHAT_ROWS, CODE_ROWS, H100

LIMITS = ReplicaLimits(256, 8192, 411_525.0)
STREAMS = {name: Traffic.from_rows(*pairs) for name, pairs in (("chat", CHAT_ROWS), ("code", CODE_ROWS), ("answers", ANSWER_ROWS))}
STEP_OF_A_SECOND = StepCoefficients(
    **(
        dict.fromkeys(StepCoefficients._fields, 0.0)
        | {"layers_s": 1.0, "mix_factor": 1.0, "expert_spread": 1.0, "host_overlap": 1.0}
    )
)


def test_steps_of_a_second_complete_the_slots_over_the_output() -> None:
    """16 sequences of 10 decode steps each leave 1.6 requests in every step of one second."""
    traffic = Traffic.from_rows([8.0] * 50, [11.0] * 50)
    found = fluid_limit(traffic, ReplicaLimits(16, 4096, 1e6), STEP_OF_A_SECOND, tpot_s=1.0)
    assert found.rate_rps == pytest.approx(1.6)
    assert found.within_rps == pytest.approx(1.6)
    assert fluid_limit(traffic, ReplicaLimits(16, 4096, 1e6), STEP_OF_A_SECOND, tpot_s=0.99).within_rps == 0.0


@given(
    name=st.sampled_from(sorted(STREAMS)),
    seqs=st.integers(8, 1024),
    budget=st.sampled_from([1024, 2048, 8192, 16384]),
    kv_tokens=st.floats(20_000.0, 2e6),
    scale=st.floats(0.2, 5.0),
)
@settings(max_examples=60, deadline=None)
def test_no_mean_field_capacity_lies_above_it(name: str, seqs: int, budget: int, kv_tokens: float, scale: float) -> None:
    limits = ReplicaLimits(seqs, budget, kv_tokens)
    costs = H100._replace(layers_s=H100.layers_s * scale, linear_s_per_token=H100.linear_s_per_token * scale)
    saturated = MeanField(STREAMS[name], limits, costs).saturated.rate_rps
    found = fluid_limit(STREAMS[name], limits, costs)
    assert found.rate_rps >= 0.94 * saturated
    assert found.within_rps == found.rate_rps


@given(name=st.sampled_from(sorted(STREAMS)), targets=st.lists(st.floats(1e-3, 0.5), min_size=2, max_size=2))
@settings(max_examples=30, deadline=None)
def test_a_tighter_target_never_allows_more(name: str, targets: list[float]) -> None:
    tight, loose = (fluid_limit(STREAMS[name], LIMITS, H100, target).within_rps for target in sorted(targets))
    assert tight <= loose <= fluid_limit(STREAMS[name], LIMITS, H100).rate_rps


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_an_idle_replica_is_not_faster_than_the_floor(name: str) -> None:
    model, floor = MeanField(STREAMS[name], LIMITS, H100), lone_floor(STREAMS[name], H100)
    idle = model.at(model.saturated.rate_rps * 1e-3)
    assert idle.ttft_p99_s is not None
    assert idle.tpot_p99_s is not None
    assert 0.5 * idle.ttft_p99_s < floor.ttft_s <= idle.ttft_p99_s * 1.05
    assert 0.5 * idle.tpot_p99_s < floor.tpot_s <= idle.tpot_p99_s * 1.05


def test_the_floor_of_equal_prompts_is_their_own_prefill() -> None:
    traffic = Traffic.from_rows(np.full(200, 1000.0), np.full(200, 50.0))
    prefill = step_s(StepShape(1000.0, 1.0, 1.0, prefill_pairs=1000.0**2 / 2.0), H100)
    assert lone_floor(traffic, H100).ttft_s == pytest.approx(float(prefill))


def test_a_cache_below_one_sequence_completes_nothing() -> None:
    assert fluid_limit(STREAMS["chat"], ReplicaLimits(256, 8192, 100.0), H100) == (0.0, 0.0)
    with pytest.raises(InputError, match="max_num_seqs"):
        fluid_limit(STREAMS["chat"], ReplicaLimits(0, 8192, 1e5), H100)
