"""Parts of a step by hand: what mixing with prefill costs, recurrent states, cached keys that a chunk reads, and pipeline hops."""

import pytest

from planner.calibration.records import record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import coefficients, coefficients_for, rates_of, work_of
from planner.step_model import StepCoefficients, StepShape, decode_attention_s, prefill_attention_s, step_time

NOTHING = StepCoefficients(*(0.0 for _ in StepCoefficients._fields))._replace(mix_factor=1.0, host_overlap=1.0)


def deployment(model: str, layout: Parallelism) -> Deployment:
    gpu = load_gpu("h100-80g-sxm")
    engine = engine_defaults("vllm", "0.33.0", gpu, layout.tp)
    return Deployment(gpu, load_model(model), QUANTIZATIONS["bf16"], "bf16", layout, engine)


def test_reads_of_decode_rows_are_dearer_beside_prefill() -> None:
    c = NOTHING._replace(mix_factor=1.5, decode_s_per_context_token=1e-6, decode_s_per_sequence=1e-4)
    alone = StepShape(8.0, 8.0, 8.0, decode_sequences=8.0, decode_context_tokens=1000.0)
    mixed = alone._replace(scheduled_tokens=8.0 + 512.0)
    assert float(decode_attention_s(alone, c)) == pytest.approx(1e-3 + 8e-4)
    assert float(decode_attention_s(mixed, c)) == pytest.approx(1.5 * (1e-3 + 8e-4))


def test_a_short_chunk_on_a_long_context_waits_for_its_cached_keys() -> None:
    c = NOTHING._replace(decode_s_per_context_token=1e-6, prefill_s_per_pair=1e-9)
    chunk = StepShape(16.0, 1.0, 1.0, prefill_pairs=16.0 * (10_000.0 + 8.0), prefill_context_tokens=10_000.0)
    assert float(prefill_attention_s(chunk, c)) == pytest.approx(10e-3), "reading takes 10 ms, multiplying 0.16"
    assert float(prefill_attention_s(chunk._replace(prefill_context_tokens=0.0), c)) == pytest.approx(1e-9 * 16 * 10_008)


def test_recurrent_states_are_read_and_written() -> None:
    part = deployment("qwen3-next-80b-a3b-instruct", Parallelism(tp=4))
    record = record_for(part.gpu, "vllm", "0.33.0")
    states_bytes = work_of(part).state_bytes_per_sequence
    assert states_bytes > 0.0
    expected = 2 * states_bytes / rates_of(part, record).kv_bytes_per_s
    assert coefficients_for(part, record).decode_s_per_sequence == pytest.approx(expected)


def test_each_stage_of_a_pipeline_sends_a_token_once() -> None:
    part = deployment("llama-3.1-70b-instruct", Parallelism(tp=2, pp=4))
    record = record_for(part.gpu, "vllm", "0.33.0")
    work, rates = work_of(part), rates_of(part, record)
    reduced_s = 2 * (1 / 2) * work.all_reduce_bytes_per_token * rates.all_reduce_s_per_byte
    sent_s = 8192 * 2 * rates.hop_s_per_byte
    c = coefficients(work, rates)
    assert sent_s > 0.0
    assert c.all_reduce_s_per_token == pytest.approx(reduced_s + sent_s)
    assert c.all_reduce_s == pytest.approx(4 * 40 * rates.all_reduce_alpha_s + 4 * rates.hop_alpha_s)


@pytest.mark.parametrize(("exposed_s", "binds"), [(1e-3, "launch overhead"), (6e-3, "host")])
def test_host_time_that_nothing_hides_binds_once_it_is_the_longest_part(exposed_s: float, binds: str) -> None:
    c = NOTHING._replace(layers_s=5e-3, exposed_host_s_per_sequence=exposed_s)
    assert step_time(StepShape(1.0, 1.0, 1.0, decode_sequences=1.0, decode_context_tokens=10.0), c).binds == binds
