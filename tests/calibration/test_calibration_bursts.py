"""Rows of one burst are held out together, attention may read the cache at a share of its own, requests cost time outside."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.fit import FitOptions, StepGroup, fit_record, predicted_s
from planner.calibration.fit.parameters import kv_read_prior
from planner.calibration.fit.request_time import RequestTime, request_parameter
from planner.calibration.fit.solve import ONE_GROUP, ONE_GROUP_THIRDS
from planner.calibration.records import CalibrationRecord, load_record
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import coefficients_for
from planner.step_model import StepShape

DAY = dt.date(2026, 11, 30)
RECORD = "cpu-recorded/vllm-0.32.0"


def deployment() -> Deployment:
    gpu = load_gpu("cpu-recorded")
    engine = engine_defaults("vllm", "0.33.0", gpu, tp=1).replace(async_scheduling=False)
    return Deployment(gpu, load_model("qwen3-4b"), QUANTIZATIONS["fp32"], "fp32", Parallelism(), engine)


def decodes(bursts: list[int]) -> StepGroup:
    """Decode steps of 1, 4 and 16 sequences as the record has them, each burst once."""
    rows = len(bursts)
    sequences = np.resize([1.0, 4.0, 16.0], rows)
    shape = StepShape(sequences, sequences, sequences, sequences, sequences * 300.0)
    group = StepGroup(
        "decode",
        deployment(),
        shape,
        np.ones(rows),
        np.full(rows, "decode"),
        np.arange(rows),
        bursts=np.array(bursts, dtype=np.int64),
    )
    return replace(group, seconds=predicted_s(group, load_record(RECORD)))


def evidence_of(group: StepGroup) -> tuple[str, float | None]:
    evidence = fit_record(load_record(RECORD), (group,), (), FitOptions(day=DAY)).record.evidence
    assert evidence is not None
    return evidence.held_out, evidence.groups[0].held_out_median_abs_pct


def test_bursts_are_left_out_by_thirds_and_predicted_by_the_others() -> None:
    bursts = [burst for burst in range(6) for _ in range(3)]
    text, median = evidence_of(decodes(bursts))
    assert text == ONE_GROUP_THIRDS
    assert median == pytest.approx(0.0, abs=0.5)
    group = decodes(bursts)
    twice = replace(group, seconds=np.where(np.isin(group.bursts, (0, 3)), 2.0, 1.0) * group.seconds)
    held_out = fit_record(load_record(RECORD), (twice,), (), FitOptions(day=DAY)).record.evidence
    assert held_out is not None
    assert held_out.groups[0].held_out_mean_abs_pct is not None
    # the slow third is predicted at half of its time by a fit of the others, and each of them by a fit that is half slow
    assert 100 * 0.5 / 3 + 5 < held_out.groups[0].held_out_mean_abs_pct < 50
    assert held_out.groups[0].mean_abs_pct < held_out.groups[0].held_out_mean_abs_pct - 5


@pytest.mark.parametrize("bursts", [[0] * 12, [0, 1, 2, 3, 4] * 3])
def test_with_too_few_bursts_nothing_is_held_out(bursts: list[int]) -> None:
    assert evidence_of(decodes(bursts)) == (ONE_GROUP, None)
    assert evidence_of(replace(decodes(bursts), bursts=None)) == (ONE_GROUP, None)


@given(st.lists(st.booleans(), min_size=12, max_size=12))
@settings(max_examples=20, deadline=None)
def test_a_part_of_a_group_is_its_rows(flags: list[bool]) -> None:
    group, chosen = decodes(list(range(12))), np.array(flags)
    part = group.only(chosen)
    assert np.array_equal(part.seconds, group.seconds[chosen])
    assert np.array_equal(part.bursts, np.arange(12)[chosen])
    assert np.allclose(predicted_s(part, load_record(RECORD)), predicted_s(group, load_record(RECORD))[chosen])


def with_kv_reads(value: float | None) -> CalibrationRecord:
    parameter = None if value is None else kv_read_prior().model_copy(update={"value": value, "low": 0.01, "high": 1.0})
    return load_record(RECORD).model_copy(update={"kv_read_efficiency": parameter})


def test_without_a_share_of_its_own_attention_reads_as_weights_stream() -> None:
    weights = load_record(RECORD).memory_efficiency["bf16"].value
    assert coefficients_for(deployment(), with_kv_reads(None)) == coefficients_for(deployment(), with_kv_reads(weights))


@given(st.floats(0.02, 0.9), st.floats(1.05, 1.1))
@settings(max_examples=30, deadline=None)
def test_a_smaller_share_only_makes_reading_the_cache_dearer(share: float, times: float) -> None:
    slow, fast = (coefficients_for(deployment(), with_kv_reads(value)) for value in (share, share * times))
    assert slow.decode_s_per_context_token > fast.decode_s_per_context_token
    assert slow._replace(decode_s_per_context_token=fast.decode_s_per_context_token) == fast


def test_time_outside_becomes_a_measured_parameter_with_its_range() -> None:
    parameter = request_parameter(RequestTime(0.0036808, 0.0030692, 0.005255, 3), "bursts", DAY)
    assert (parameter.value, parameter.low, parameter.high) == (0.003681, 0.003069, 0.005255)
    assert (parameter.source.kind, parameter.informed_by) == ("measured", "data")
    assert "3 lone requests" in parameter.source.ref
