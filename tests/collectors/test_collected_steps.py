"""From collectors' files to the rows of a fit, and the fit itself: closed forms, known efficiencies found again, a real engine."""

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.attention_pairs import window_pairs
from planner.calibration.collected import Collected, read_collected
from planner.calibration.collected_rows import Engine
from planner.calibration.fit import FitOptions, fit_record
from planner.calibration.fit.__main__ import main as fit_main
from planner.calibration.fit.collected import (
    OPERATORS_SAY_NOTHING,
    Batch,
    all_reduces_of,
    deployment_of,
    kv_tokens,
    rows_for_fit,
    shape_of,
    steps_of_endpoint,
    steps_of_engine,
    steps_of_operators,
)
from planner.calibration.fit.solve import relative_errors
from planner.calibration.priors import completed, prior_record
from planner.calibration.records import CalibrationRecord, host_for
from planner.deployment import Deployment
from planner.errors import InputError
from planner.hardware import GpuProfile, gpu_from_toml, load_gpu

RECORDED = Path(__file__).parent / "recorded"
DAY = dt.date(2026, 11, 30)
START = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
CPU = """
schema_version = 1
id = "cpu-of-tests"
name = "two cores of an AMD EPYC (Zen 4)"
vendor = "AMD"
form = "host"
arch = "Zen 4"
launch_year = 2022
memory_type = "DDR5"
memory_marketed_gb = 24
memory_reported_bytes = 24_900_000_000
memory_bytes_per_s = 80e9
tdp_w = 50
[dense_flops_per_s]
fp32 = 240e9
[sources."*"]
kind = "assumed"
ref = "two cores at 3.7 GHz with 32 fp32 FLOP a cycle; memory bandwidth of one core complex"
"""
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131072,
}  # fmt: skip
QKV, OUTPUT, GATE_UP, DOWN, HEAD = (4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256)
SHAPES = {"qkv": QKV, "output": OUTPUT, "gate_up": GATE_UP, "down": DOWN, "head": HEAD}


def cpu() -> GpuProfile:
    return gpu_from_toml(CPU, "cpu.toml")


def h100() -> GpuProfile:
    return load_gpu("h100-80g-sxm")


def prior_of(gpu: GpuProfile) -> CalibrationRecord:
    return completed(prior_record(gpu, "vllm", "0.32.0", host_for("vllm")), gpu)


def recorded(name: str) -> Collected:
    return read_collected(gzip.decompress((RECORDED / f"{name}.jsonl.gz").read_bytes()), name)


def file_of(collector: str, settings: dict[str, Any], rows: list[dict[str, Any]]) -> Collected:
    header = {
        "record": "header", "format": "headroom-collected", "format_version": 1, "collector": collector, "command": "test",
        "machine": {"device_kind": "cuda", "device_name": "GPU"}, "software": {"vllm": "0.33.0"}, "settings": settings,
    }  # fmt: skip
    lines = [
        json.dumps({**row, "at_utc": (START + dt.timedelta(seconds=60 * i)).isoformat()}) for i, row in enumerate([header, *rows])
    ]
    collected = read_collected("\n".join(lines).encode(), "made")
    assert collected.dropped == ()
    return collected


def timed(record: str, seconds: float, **fields: Any) -> dict[str, Any]:
    key = f"{record} {sorted(fields.items())}"
    return {
        "record": record,
        "key": key,
        "median_s": seconds,
        "lower_quartile_s": seconds,
        "upper_quartile_s": seconds,
        "samples": 30,
    } | fields


def gemm(layer: str, tokens: int, seconds: float, **fields: Any) -> dict[str, Any]:
    k, n = SHAPES[layer]
    return timed("gemm", seconds, layer=layer, dtype="bf16", tokens=tokens, k=k, n=n, **fields)


def attention(record: str, seconds: float, **fields: Any) -> dict[str, Any]:
    return timed(record, seconds, dtype="bf16", heads=32, kv_heads=8, head_dim=128, **fields)


def test_sums_of_a_batch_are_those_of_its_rows() -> None:
    batches = [
        Batch(((3, 100), (1, 7)), ((2, 10, 50, 1), (1, 5, 0, 0)), 0.1, 1),
        Batch(((2, 40),), (), 0.1, 2),
        Batch((), ((1, 64, 0, 1),), 0.1, 3),
    ]
    shape = shape_of(batches, 60.0)
    assert list(np.asarray(shape.scheduled_tokens)) == [29, 2, 64]
    assert list(np.asarray(shape.sampled_tokens)) == [6, 2, 1]
    assert list(np.asarray(shape.sequences)) == [7, 2, 1]
    assert list(np.asarray(shape.decode_sequences)) == [4, 2, 0]
    assert list(np.asarray(shape.decode_context_tokens)) == [307, 80, 0]
    assert list(np.asarray(shape.decode_window_tokens)) == [187, 80, 0]
    assert list(np.asarray(shape.prefill_pairs)) == [2 * 10 * 55 + 12.5, 0, 2048]
    assert list(np.asarray(shape.prefill_context_tokens)) == [100, 0, 0]
    window = [2 * window_pairs(50, 10, 60) + window_pairs(0, 5, 60), 0, window_pairs(0, 64, 60)]
    assert np.asarray(shape.prefill_window_pairs) == pytest.approx(window)


def test_an_operator_step_is_the_sum_of_its_parts() -> None:
    rows = [gemm(layer, 8, 1e-5 * i) for i, layer in enumerate(SHAPES, 1)] + [gemm("head", 1, 7e-5)]
    rows += [attention("decode_attention", 2e-5, sequences=8, context_tokens=1000)]
    rows += [attention("prefill_attention", 3e-5, new_tokens=8, context_tokens=100)]
    rows += [attention("decode_attention", 2e-5, sequences=16, context_tokens=1000)]
    steps = steps_of_operators(file_of("torch", {"config": LLAMA, "tp": 1, "model": "8b"}, rows), h100())
    (group,) = steps.groups
    assert group.label == "8b bf16 tp1"
    assert group.measured == "gpu"
    assert list(group.phase) == ["decode", "prefill"]
    assert group.seconds == pytest.approx([32 * (10e-5 + 2e-5) + 5e-5, 32 * (10e-5 + 3e-5) + 7e-5])
    assert [(left.rows, left.reason) for left in steps.left_out] == [(1, "lack a product of as many tokens")]


def test_efficiencies_behind_operators_are_found_again() -> None:
    """Operators that reach 0.85 of the bandwidth and 0.62 of the peak give a record that says so."""
    gpu = h100()
    bandwidth, peak = 0.85 * gpu.memory_bytes_per_s, 0.62 * gpu.peak_flops_per_s("bf16")
    tokens = (1, 8, 32, 64, 512, 2048, 8192)

    def product(layer: str, n: int) -> float:
        k, columns = SHAPES[layer]
        # one product of a layer keeps the memory or the compute side busy, so the sum over layers joins as the model does
        return max(2.0 * k * columns / bandwidth, 2.0 * n * k * columns / peak)

    rows = [gemm(layer, n, product(layer, n)) for layer in SHAPES for n in tokens]
    for n, context in ((1, 512), (8, 512), (32, 4096), (64, 4096), (64, 512)):
        seconds = n * context * 2 * 8 * 128 * 2.0 / bandwidth
        rows.append(attention("decode_attention", seconds, sequences=n, context_tokens=context))
    for n, context in ((512, 0), (2048, 0), (8192, 0), (2048, 32768), (8192, 32768), (8192, 65536)):
        seconds = n * (context + n / 2) * 4 * 32 * 128 / (0.8 * peak)
        rows.append(attention("prefill_attention", seconds, new_tokens=n, context_tokens=context))
    (group,) = steps_of_operators(file_of("torch", {"config": LLAMA, "tp": 1}, rows), gpu).groups
    prior = prior_of(gpu)
    zero = prior.layer_s.model_copy(update={"value": 0.0, "low": 0.0})
    hard = prior.smoothness.model_copy(update={"value": 0.0, "low": 0.0})
    bare = prior.model_copy(update={"layer_s": zero, "smoothness": hard, "activation_bandwidth_fraction": None})
    options = FitOptions(hold_out=False, day=DAY, fixed=FitOptions().fixed | OPERATORS_SAY_NOTHING)
    fitted = dict(fit_record(bare, (group,), (), options).record.parameters())
    assert fitted["memory_efficiency.bf16"].value == pytest.approx(0.85, rel=0.03)
    assert fitted["compute_efficiency.bf16"].value == pytest.approx(0.62, rel=0.03)
    assert fitted["attention_efficiency"].value == pytest.approx(0.8 * 0.62, rel=0.05)


def test_throttled_operators_are_left_out() -> None:
    rows = [gemm(layer, 8, 1e-5, throttled=layer == "down") for layer in SHAPES]
    rows += [attention("decode_attention", 2e-5, sequences=8, context_tokens=1000)]
    with pytest.raises(InputError, match=r"products is .*: don't suffice for a whole step; left out .* throttled: 1"):
        steps_of_operators(file_of("torch", {"config": LLAMA, "tp": 1}, rows), h100())


@pytest.mark.parametrize("settings", [{}, {"config": LLAMA}, {"config": "llama", "tp": 1}, {"config": LLAMA, "tp": "1"}])
def test_operators_without_their_model_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="config and tp"):
        steps_of_operators(file_of("torch", settings, [gemm("qkv", 8, 1e-5)]), h100())


def test_recorded_operators_obey_the_data_sheet_and_fit() -> None:
    """PyTorch on two shared cores: noisy, but no step beats the data sheet, and a fit accepts the rows."""
    (group,) = steps_of_operators(recorded("torch_cpu"), cpu()).groups
    assert len(group.seconds) >= 8
    options = FitOptions(hold_out=False, day=DAY, fixed=FitOptions().fixed | OPERATORS_SAY_NOTHING)
    result = fit_record(prior_of(cpu()), (group,), (), options)
    assert "compute_efficiency.fp32" in result.informed
    assert np.median(np.abs(relative_errors(group, result.record))) < 0.4


def test_the_grid_of_a_real_engine_is_fitted() -> None:
    """On a CPU under vLLM 0.32: a five-number fit of the same steps errs by 5 % in the median; the step model stays below 9 %."""
    steps = steps_of_engine(recorded("vllm_cpu_grid"), cpu())
    (group,) = steps.groups
    assert steps.left_out == ()
    assert {phase: int((group.phase == phase).sum()) for phase in ("decode", "prefill", "mixed")} == {
        "decode": 368, "prefill": 23, "mixed": 70,
    }  # fmt: skip
    assert group.measured == "step"
    assert not group.deployment.engine.async_scheduling
    result = fit_record(prior_of(cpu()), (group,), (), FitOptions(hold_out=False, day=DAY))
    errors = np.abs(relative_errors(group, result.record))
    assert np.median(errors) < 0.09
    assert np.mean(errors) < 0.11
    host = dict(result.record.parameters())["host.host_s"]
    assert 0.01 < host.value < 0.02
    assert host.informed_by == "data"


def test_a_collected_run_gives_one_group_an_engine() -> None:
    collected = recorded("vllm_cpu_collected")
    groups = steps_of_engine(collected, cpu()).groups
    assert [group.label for group in groups] == ["llama-shape-8x512 tp1 sync", "llama-shape-4x1024 tp1 sync"]
    assert sum(len(group.seconds) for group in groups) == 232
    assert [group.deployment.model.hidden for group in groups] == [512, 1024]
    assert kv_tokens(collected.of(Engine)[0]) == 262144 - 128
    (first, _) = groups
    result = fit_record(prior_of(cpu()), (first,), (), FitOptions(hold_out=False, day=DAY))
    assert np.median(np.abs(relative_errors(first, result.record))) < 0.15


ENGINE: dict[str, Any] = {
    "record": "engine", "key": "m tp1 sync", "model": "org/m", "config": LLAMA, "mode": "sync", "max_num_seqs": 8,
    "max_num_batched_tokens": 512, "max_model_len": 4096, "async_scheduling": False, "tensor_parallel_size": 2, "block_size": 16,
    "num_gpu_blocks": 1001, "cache_dtype": "fp8", "dtype": "torch.bfloat16", "enforce_eager": True,
}  # fmt: skip


def step(number: int, **changes: Any) -> dict[str, Any]:
    moments = {"scheduled_at_s": number, "schedule_s": 0.0, "output_at_s": number + 0.02, "processed_at_s": number + 0.02}
    row = {"record": "step", "engine": "m tp1 sync", "point": "p", "decode": [[4, 1, 100]], "prefill": []}
    return row | moments | {"step_s": 0.02} | changes


def test_an_engine_record_becomes_its_deployment() -> None:
    engine = file_of("vllm", {}, [ENGINE]).of(Engine)[0]
    deployment = deployment_of(engine, h100(), "0.33.0")
    assert (deployment.parallelism.tp, deployment.kv_dtype, deployment.quantization.id) == (2, "fp8", "bf16")
    assert (deployment.engine.max_num_batched_tokens, deployment.engine.block_size, deployment.engine.cuda_graphs) == (
        512,
        16,
        False,
    )
    assert kv_tokens(engine) == 16_000


def test_steps_that_say_nothing_of_plain_serving_are_counted_and_left_out() -> None:
    point = {
        "record": "point",
        "engine": "m tp1 sync",
        "sequences": 4,
        "prompt_tokens": 9,
        "output_tokens": 9,
        "injected_tokens": 0,
    }
    rows = [
        ENGINE, step(1), step(2, preempted=1), step(3, decode=[[4, 3, 100]]), step(4, point="hot"), step(5, point="hot"),
        {**point, "key": "hot", "steps": 2, "throttled": True}, {**point, "key": "p", "steps": 3, "throttled": False},
    ]  # fmt: skip
    steps = steps_of_engine(file_of("vllm", {}, rows), h100())
    assert len(steps.groups[0].seconds) == 1
    assert {left.reason: left.rows for left in steps.left_out} == {
        "preempt a request": 1, "hold draft tokens": 1, "were measured while the GPU was throttled": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"quantization": "mystery"}, "engine.quantization"),
        ({"dtype": "torch.float64"}, "engine.quantization"),
        ({"config": {"model_type": "llama"}}, "config"),
        ({"config": {}}, "config"),
    ],
)
def test_engines_that_the_planner_cannot_describe_are_refused(engine: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        steps_of_engine(file_of("vllm", {}, [ENGINE | engine, step(1)]), h100())


def test_a_file_without_steps_is_refused() -> None:
    with pytest.raises(InputError, match="must hold steps"):
        steps_of_engine(file_of("vllm", {}, [ENGINE]), h100())


def endpoint() -> Deployment:
    return deployment_of(file_of("vllm", {}, [ENGINE | {"tensor_parallel_size": 1}]).of(Engine)[0], h100(), "0.33.0")


def plateau(concurrency: int, seconds: float, per_chunk: float = 1.0) -> dict[str, Any]:
    return timed("plateau", seconds, concurrency=concurrency, context_tokens=130.5, tokens_per_chunk=per_chunk, requests=[])


def test_an_endpoint_gives_decode_mixed_and_prefill_steps() -> None:
    rows = [
        timed("ttft", 0.030, prompt_tokens=16), timed("ttft", 0.070, prompt_tokens=512), timed("ttft", 0.3, prompt_tokens=2048),
        plateau(1, 0.010), plateau(4, 0.011), plateau(8, 0.004, per_chunk=3.0),
        timed("injection", 0.05, concurrency=4, context_tokens=20.0, injected_tokens=400, ttft_s=0.08),
        timed("injection", 0.05, concurrency=4, context_tokens=20.0, injected_tokens=510, ttft_s=0.08),
    ]  # fmt: skip
    steps = steps_of_endpoint(file_of("http", {}, rows), endpoint())
    (group,) = steps.groups
    assert list(group.phase) == ["decode", "decode", "mixed", "prefill"]
    assert group.seconds == pytest.approx([0.010, 0.011, 0.05, 0.070 - 0.030 + 0.010])
    assert list(np.asarray(group.shape.scheduled_tokens)) == [1, 4, 404, 512]
    assert list(np.asarray(group.shape.decode_context_tokens)) == [130.5, 4 * 130.5, 80, 0]
    assert {left.reason.split()[0]: left.rows for left in steps.left_out} == {"stream": 1, "exceed": 1}


def test_a_real_server_gives_steps_that_agree_with_each_other() -> None:
    """A prompt of 512 tokens takes one step whether it comes alone or joins a decoding request: TTFT and spike tell the same."""
    collected = recorded("http_vllm_cpu")
    assert collected.dropped == ()
    small = {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    }
    engine = ENGINE | {
        "config": LLAMA | small,
        "max_num_batched_tokens": 512 + 16,
        "tensor_parallel_size": 1,
        "dtype": "torch.float32",
    }
    deployment = deployment_of(file_of("vllm", {}, [engine]).of(Engine)[0], cpu(), "0.32.0")
    (group,) = steps_of_endpoint(collected, deployment).groups
    tokens, seconds = np.asarray(group.shape.scheduled_tokens), group.seconds
    assert list(group.phase) == ["decode"] * 3 + ["mixed"] * 2 + ["prefill"] * 2
    assert list(tokens) == [1, 4, 16, 513, 528, 128, 512]
    assert seconds[6] == pytest.approx(float(np.mean(seconds[3:5])), rel=0.6)
    assert seconds[:3].max() < seconds[5] < seconds[3:5].min()


def test_an_endpoint_without_single_tokens_is_refused() -> None:
    with pytest.raises(InputError, match="plateaus of single tokens"):
        steps_of_endpoint(file_of("http", {}, [plateau(8, 0.004, per_chunk=3.0)]), endpoint())


def test_all_reduces_come_by_number_of_gpus_from_graphs_where_there_are_any() -> None:
    fields = {"backend": "nccl"}
    rows = [
        timed("all_reduce", 20e-6, gpus=8, size_bytes=8192, in_graph=False, **fields),
        timed("all_reduce", 5e-6, gpus=8, size_bytes=8192, in_graph=True, **fields),
        timed("all_reduce", 4e-6, gpus=2, size_bytes=8192, in_graph=False, **fields),
        timed("all_reduce", 9e-6, gpus=2, size_bytes=65536, in_graph=False, throttled=True, **fields),
    ]
    two, eight = all_reduces_of(file_of("links", {}, rows))
    assert (two.tensor_parallel, list(two.seconds), list(two.message_bytes)) == (2, [4e-6], [8192])
    assert (eight.tensor_parallel, list(eight.seconds)) == (8, [5e-6])


@pytest.mark.parametrize(("name", "groups", "fixed"), [("vllm_cpu_grid", 1, frozenset()), ("torch_cpu", 1, OPERATORS_SAY_NOTHING)])
def test_a_file_gives_a_fit_what_it_can(name: str, groups: int, fixed: frozenset[str]) -> None:
    rows = rows_for_fit(recorded(name), cpu(), "0.32.0")
    assert (len(rows.groups), rows.all_reduces, rows.fixed) == (groups, (), fixed)


def test_an_endpoint_file_alone_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="collect_vllm"):
        rows_for_fit(recorded("http_vllm_cpu"), cpu(), "0.32.0")


def test_the_fit_command_takes_a_collectors_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hardware_profiles").mkdir()
    (tmp_path / "hardware_profiles" / "cpu-of-tests.toml").write_text(CPU)
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    table = str(RECORDED / "vllm_cpu_grid.jsonl.gz")
    assert fit_main([table, "--gpu", "cpu-of-tests", "--version", "0.32.0", "--eager"]) == 0
    captured = capsys.readouterr()
    assert "461 step" in captured.err
    assert "host.host_s" in captured.out
    table = str(RECORDED / "http_vllm_cpu.jsonl.gz")
    assert fit_main([table, "--gpu", "cpu-of-tests", "--version", "0.32.0"]) == 2
    assert "collect_vllm.py" in capsys.readouterr().err
