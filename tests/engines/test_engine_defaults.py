"""Defaults by engine, release and GPU, against the tables in the engines' sources."""

import pytest

from planner.engines import (
    batch_defaults,
    engine_defaults,
    graph_ceiling_tokens,
    graph_sizes,
    limit_to_model_length,
    sglang_mem_fraction,
)
from planner.errors import InputError
from planner.hardware import list_gpus, load_gpu


@pytest.mark.parametrize(
    ("gpu_id", "version", "usage", "expected"),
    [
        ("h100-80g-sxm", "0.19.0", "server", (8192, 1024)),
        ("h100-80g-sxm", "0.33.0", "offline", (16384, 1024)),
        ("h200-141g-sxm", "0.33.0", "server", (8192, 1024)),
        ("b200-sxm", "0.27.0", "server", (8192, 1024)),
        ("b200-sxm", "0.28.0", "server", (16384, 1024)),
        ("mi300x", "0.33.0", "server", (16384, 1024)),
        ("a100-80g-sxm", "0.33.0", "server", (2048, 256)),
        ("a100-80g-sxm", "0.33.0", "offline", (8192, 256)),
        ("l40s", "0.33.0", "server", (2048, 256)),
        ("gb10-dgx-spark", "0.32.0", "server", (8192, 1024)),
        ("gb10-dgx-spark", "0.33.0", "server", (2048, 256)),
        ("tpu-v6e", "0.33.0", "server", (1024, 256)),
        ("tpu-v6e", "0.33.0", "offline", (2048, 256)),
    ],
)
def test_vllm_batch_defaults(gpu_id: str, version: str, usage: str, expected: tuple[int, int]) -> None:
    assert batch_defaults(version, load_gpu(gpu_id), usage) == expected  # type: ignore[arg-type]


def test_every_gpu_has_defaults_and_every_value_a_source() -> None:
    for gpu in list_gpus():
        for engine, version in (("vllm", "0.33.0"), ("sglang", "0.5.23"), ("tensorrt-llm", "1.2.0")):
            config = engine_defaults(engine, version, gpu, tp=1)  # type: ignore[arg-type]
            for field in ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size", "policy"):
                assert config.source_for(field).ref.startswith(f"{engine} {version}"), (gpu.id, field)


def test_defaults_follow_the_release() -> None:
    h100 = load_gpu("h100-80g-sxm")
    old, new = (engine_defaults("vllm", version, h100, tp=1) for version in ("0.13.0", "0.33.0"))
    assert (old.async_scheduling, old.scheduler_reserve_full_isl, old.gpu_memory_utilization) == (False, False, 0.90)
    assert (new.async_scheduling, new.scheduler_reserve_full_isl, new.gpu_memory_utilization) == (True, True, 0.92)


def test_graph_ceiling_is_higher_on_datacentre_blackwell() -> None:
    assert graph_ceiling_tokens("0.33.0", load_gpu("b200-sxm")) == 1024
    assert graph_ceiling_tokens("0.27.0", load_gpu("b200-sxm")) == 512
    assert graph_ceiling_tokens("0.33.0", load_gpu("rtx-5090")) == 512


def test_graph_sizes_are_those_logged_by_vllm() -> None:
    assert graph_sizes(512)[:6] == (1, 2, 4, 8, 16, 24)
    assert graph_sizes(512)[-3:] == (480, 496, 512)
    assert len(graph_sizes(512)) == 51
    assert len(graph_sizes(256)) == 35


def test_sglang_leaves_what_its_reserve_needs() -> None:
    # 512 + 1.5·8192 + 128 + 2·256 + 8·58 = 13,904 MiB of 81,559.
    assert sglang_mem_fraction(81559, tp=1, chunk_tokens=8192, graph_bs=256) == round(1 - 13904 / 81559, 3)
    config = engine_defaults("sglang", "0.5.23", load_gpu("h100-80g-sxm"), tp=4)
    assert (config.max_num_batched_tokens, config.max_graph_tokens, config.mixed_batches) == (8192, 512, False)


def test_short_models_lower_the_budget_as_the_engine_does() -> None:
    config = engine_defaults("vllm", "0.33.0", load_gpu("l4"), tp=1).replace(max_num_seqs=4)
    limited = limit_to_model_length(config, 256)
    assert (limited.max_num_batched_tokens, limited.max_num_seqs, limited.max_model_len) == (1024, 4, 256)
    assert "arg_utils" in limited.source_for("max_num_batched_tokens").ref


@pytest.mark.parametrize("tp", [0, -2])
def test_no_gpus_is_an_input_error(tp: int) -> None:
    with pytest.raises(InputError, match=r"parallelism\.tp"):
        engine_defaults("vllm", "0.33.0", load_gpu("l4"), tp=tp)
