"""Laws of the step model over random deployments' coefficients: bounds, monotonicity, parts, arrays and compiled code."""

import functools
import types
from collections.abc import Callable

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import step_model
from planner.step_model import StepCoefficients, StepShape, experts_hit, gpu_s, smooth_max, step_s, step_time

LAWS = settings(max_examples=60, deadline=None)
FUNCTIONS = (
    "smooth_max", "experts_hit", "weights_s", "linear_s", "head_s", "decode_attention_s", "prefill_attention_s",
    "host_s", "exposed_host_s", "gpu_s", "step_s",
)  # fmt: skip


def seconds(highest: float) -> st.SearchStrategy[float]:
    return st.floats(0.0, highest, allow_nan=False, allow_subnormal=False)


@st.composite
def coefficients(draw: st.DrawFn) -> StepCoefficients:
    return StepCoefficients(
        layers_s=draw(seconds(1e-2)),
        dense_weights_s=draw(seconds(1e-1)),
        expert_weights_s=draw(st.sampled_from([0.0, 1e-3, 5e-2])),
        expert_miss_ratio=draw(st.floats(0.5, 1.0)),
        linear_s_per_token=draw(seconds(1e-4)),
        head_weights_s=draw(seconds(1e-2)),
        head_s_per_token=draw(seconds(1e-5)),
        decode_s_per_context_token=draw(seconds(1e-6)),
        decode_s_per_window_token=draw(seconds(1e-6)),
        decode_s_per_sequence=draw(seconds(1e-4)),
        prefill_s_per_pair=draw(seconds(1e-8)),
        prefill_s_per_window_pair=draw(seconds(1e-8)),
        activation_s_per_token=draw(seconds(1e-5)),
        all_reduce_s=draw(seconds(1e-2)),
        all_reduce_s_per_token=draw(seconds(1e-5)),
        host_s=draw(seconds(5e-3)),
        host_s_per_sequence=draw(seconds(1e-4)),
        mix_factor=draw(st.floats(1.0, 4.0)),
        inverse_p=draw(st.sampled_from([0.0, 1e-3, 0.25, 4 / 9, 0.5, 1.0])),
        window_tokens=draw(st.sampled_from([0.0, 1024.0])),
        host_overlap=draw(st.sampled_from([0.0, 1.0])),
        exposed_host_s_per_sequence=draw(seconds(1e-4)),
        expert_spread=draw(st.floats(0.2, 1.0)),
    )


@st.composite
def shapes(draw: st.DrawFn) -> StepShape:
    decodes = draw(st.integers(0, 512))
    context = draw(st.integers(0, 32_768))
    chunks = draw(st.integers(0 if decodes else 1, 4))
    new = draw(st.integers(1, 4_096))
    past = draw(st.integers(0, 32_768))
    return StepShape(
        scheduled_tokens=float(decodes + chunks * new),
        sampled_tokens=float(decodes + draw(st.integers(0, chunks))),
        sequences=float(decodes + chunks),
        decode_sequences=float(decodes),
        decode_context_tokens=float(decodes * context),
        decode_window_tokens=float(decodes * min(context, 1024)),
        prefill_pairs=float(chunks * new * (past + new / 2)),
        prefill_window_pairs=float(chunks * new * min(past + new / 2, 1024)),
        prefill_context_tokens=float(chunks * past),
    )


@given(coefficients(), shapes())
@LAWS
def test_no_step_beats_its_bytes_or_its_flops(c: StepCoefficients, shape: StepShape) -> None:
    weights_s = c.dense_weights_s + c.expert_weights_s * float(experts_hit(shape.scheduled_tokens, c))
    cache_s = (
        c.decode_s_per_context_token * shape.decode_context_tokens
        + c.decode_s_per_window_token * shape.decode_window_tokens
        + c.decode_s_per_sequence * shape.decode_sequences
    )
    pairs_s = c.prefill_s_per_pair * shape.prefill_pairs + c.prefill_s_per_window_pair * shape.prefill_window_pairs
    read_s = c.decode_s_per_context_token * shape.prefill_context_tokens
    head_s = c.head_weights_s if shape.sampled_tokens else 0.0
    bytes_s = weights_s + cache_s + read_s + head_s
    flops_s = c.linear_s_per_token * shape.scheduled_tokens + pairs_s + c.head_s_per_token * shape.sampled_tokens
    on_gpu = float(gpu_s(shape, c))
    assert on_gpu >= max(bytes_s, flops_s) * (1 - 1e-12)
    assert float(step_s(shape, c)) >= on_gpu


@given(coefficients(), shapes(), st.sampled_from(StepShape._fields), st.floats(0.0, 4.0))
@LAWS
def test_more_of_anything_never_takes_less_time(c: StepCoefficients, shape: StepShape, field: str, factor: float) -> None:
    value = getattr(shape, field)
    larger = shape._replace(**{field: value * (1.0 + factor) + (1.0 if field in {"sequences", "sampled_tokens"} else 0.0)})
    if field == "decode_sequences":
        larger = larger._replace(scheduled_tokens=shape.scheduled_tokens + larger.decode_sequences - shape.decode_sequences)
    assert float(step_s(larger, c)) >= float(step_s(shape, c)) * (1 - 1e-12)


@given(coefficients(), shapes())
@LAWS
def test_parts_add_up_and_hide_no_more_than_the_shorter_side(c: StepCoefficients, shape: StepShape) -> None:
    time = step_time(shape, c)
    parts = time.parts()
    assert all(value >= 0 for value in parts.values())
    assert sum(parts.values()) == pytest.approx(time.total_s + time.hidden_s, rel=1e-9, abs=1e-15)
    overlapping = time.host_s - c.exposed_host_s_per_sequence * shape.sequences
    shorter = min(time.gpu_s, overlapping) if c.host_overlap == 1.0 else 0.0
    assert time.hidden_s == pytest.approx(shorter, rel=1e-9, abs=1e-12)
    assert time.total_s == pytest.approx(float(step_s(shape, c)), rel=1e-12)


@given(seconds(1.0), seconds(1.0), st.sampled_from([0.0, 1e-6, 1e-3, 4 / 9, 1.0]))
@LAWS
def test_smooth_maximum_lies_between_maximum_and_sum(a: float, b: float, inverse_p: float) -> None:
    joined = float(smooth_max(a, b, inverse_p))
    assert max(a, b) * (1 - 1e-12) <= joined <= (a + b) * (1 + 1e-12)
    assert joined == float(smooth_max(b, a, inverse_p))


def test_smooth_maximum_neither_over_nor_underflows() -> None:
    assert float(smooth_max(1e-200, 1e-200, 0.001)) == pytest.approx(1e-200, rel=1e-3)
    assert float(smooth_max(0.0, 0.0, 0.5)) == 0.0
    assert float(smooth_max(1e200, 1.0, 0.1)) == 1e200


def test_the_first_token_hits_k_of_e_experts_whatever_the_skew() -> None:
    c = StepCoefficients(*[0.0] * 21)._replace(expert_miss_ratio=1 - 8 / 128)
    for spread in (0.2, 0.5, 1.0):
        assert float(experts_hit(1.0, c._replace(expert_spread=spread))) == pytest.approx(8 / 128)
    assert float(experts_hit(16.0, c._replace(expert_spread=1.0))) == pytest.approx(1 - (1 - 8 / 128) ** 16)
    assert float(experts_hit(16.0, c._replace(expert_spread=0.5))) < float(experts_hit(16.0, c._replace(expert_spread=1.0)))


def test_arrays_give_what_scalars_give() -> None:
    rng = np.random.default_rng(5)
    c = StepCoefficients(*rng.uniform(1e-6, 1e-3, 21))._replace(
        mix_factor=2.0, inverse_p=4 / 9, expert_miss_ratio=0.9, host_overlap=1.0, exposed_host_s_per_sequence=7e-5
    )
    table = np.vstack([rng.integers(1, 1000, 20).astype(float) for _ in StepShape._fields])
    whole = step_s(StepShape(*table), c)
    each = [float(step_s(StepShape(*column), c)) for column in table.T]
    np.testing.assert_allclose(whole, each, rtol=1e-13)


@functools.cache
def compiled_step_s() -> Callable[[StepShape, StepCoefficients], float]:
    """Compile step_s with everything that it calls."""
    names = dict(vars(step_model))
    for name in FUNCTIONS:
        source = getattr(step_model, name)
        names[name] = numba.njit(types.FunctionType(source.__code__, names, name, source.__defaults__))
    return names["step_s"]


@pytest.mark.parametrize("inverse_p", [0.0, 4 / 9])
@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_compiled_code_gives_what_python_gives(inverse_p: float, overlap: float) -> None:
    rng = np.random.default_rng(11)
    compiled = compiled_step_s()
    for _ in range(5):
        c = StepCoefficients(*rng.uniform(1e-6, 1e-3, 21))._replace(
            mix_factor=2.0, inverse_p=inverse_p, host_overlap=overlap, exposed_host_s_per_sequence=5e-5, expert_spread=0.5
        )
        shape = StepShape(*rng.uniform(1.0, 1000.0, len(StepShape._fields)))
        assert compiled(shape, c) == pytest.approx(float(step_s(shape, c)), rel=1e-13)
