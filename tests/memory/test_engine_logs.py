"""Reading start-up logs, old and new wording, and refusing what isn't one."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.memory import parse_engine_log
from planner.memory.logs import MAX_LOG_BYTES
from planner.units import GIB

# vLLM 0.19.0 on H100, google/gemma-3-12b-it: llm-d-incubation/llm-d-planner, accuracy/results/v0.19.0/logs (Apache-2.0), shortened.
TWO_LINES = """\
(APIServer pid=1) INFO 04-22 16:04:09 [config/scheduler.py:238] Chunked prefill is enabled with max_num_batched_tokens=8192.
(EngineCore pid=510) INFO 04-22 16:04:33 [v1/engine/core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: model='g'
(EngineCore pid=510) INFO 04-22 16:05:47 [gpu_model_runner.py:4820] Model loading took 23.31 GiB memory and 61.511970 seconds
(EngineCore pid=510) INFO 04-22 16:06:24 [v1/worker/gpu_worker.py:436] Available KV cache memory: 47.72 GiB
(EngineCore pid=510) INFO 04-22 16:06:24 [v1/core/kv_cache_utils.py:1319] GPU KV cache size: 130,304 tokens
(EngineCore pid=510) INFO 04-22 16:06:24 [v1/core/kv_cache_utils.py:1324] Maximum concurrency for 8,192 tokens per request: 15.88x
(EngineCore pid=510) INFO 04-22 16:06:31 [v1/worker/gpu_model_runner.py:6046] Graph capturing finished in 10 secs, took 0.94 GiB
(EngineCore pid=510) INFO 04-22 16:06:31 [gpu_worker.py:597] CUDA graph pool memory: 0.94 GiB (actual), 1.02 GiB (estimated)
(EngineCore pid=510) DEBUG 04-22 16:06:31 [gpu_worker.py:661] Free memory on device (78.68/79.19 GiB) on startup. Desired \
GPU memory utilization is (0.95, 75.23 GiB). Actual usage is 23.31 GiB for weight, 3.94 GiB for peak activation, 0.25 GiB for \
non-torch memory, and 0.94 GiB for CUDAGraph memory.
(APIServer pid=1) DEBUG 04-22 16:06:31 vllm cache_config_info with initialization after num_gpu_blocks is: 48867
"""
ONE_LINE = (
    "(EngineCore pid=26333) INFO 11-30 09:03:58 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, "
    "Maximum concurrency for 2,048 tokens per request: 256.00x"
)


def test_a_log_of_0_19_tells_everything() -> None:
    log = parse_engine_log(TWO_LINES)
    assert (log.version, log.kv_tokens, log.num_gpu_blocks, log.max_num_batched_tokens) == ("0.19.0", 130_304, 48_867, 8192)
    assert (log.max_concurrency, log.concurrency_tokens, log.gpu_memory_utilization) == (15.88, 8192, 0.95)
    gib = {
        "available_kv_bytes": 47.72,
        "weights_bytes": 23.31,
        "activation_bytes": 3.94,
        "non_torch_bytes": 0.25,
        "graphs_bytes": 0.94,
        "graphs_estimated_bytes": 1.02,
        "total_bytes": 79.19,
        "requested_bytes": 75.23,
    }
    assert {name: getattr(log, name) / GIB for name in gib} == pytest.approx(gib)


def test_the_one_line_wording_of_later_releases() -> None:
    log = parse_engine_log(ONE_LINE.encode())
    assert (log.kv_tokens, log.concurrency_tokens, log.max_concurrency) == (524_288, 2048, 256.0)
    assert log.weights_bytes is None


def test_the_smallest_of_several_engines_counts() -> None:
    log = parse_engine_log("GPU KV cache size: 9,000 tokens\nGPU KV cache size: 8,000 tokens\nAvailable KV cache memory: 2.5 GiB")
    assert (log.kv_tokens, log.available_kv_bytes) == (8000, 2.5 * GIB)


def test_the_block_that_a_backend_or_a_state_sets() -> None:
    log = parse_engine_log(
        "Setting attention block size to 544 tokens to ensure that …\nSetting kv cache block size to 64 for FLASHMLA."
    )
    assert log.block_size == 544


@pytest.mark.parametrize("text", ["", "hello", "GPU KV cache size: many tokens", "<script>alert(1)</script>", "\x00\xff"])
def test_what_is_no_log_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_engine_log(text)
    assert caught.value.field == "log"


def test_a_huge_upload_is_refused_before_it_is_read() -> None:
    with pytest.raises(InputError, match="MiB"):
        parse_engine_log(b"0" * (MAX_LOG_BYTES + 1))


@given(st.text(max_size=400))
@settings(max_examples=60, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_engine_log(text)


@given(st.integers(1, 10**9))
@settings(max_examples=40, deadline=None)
def test_grouped_digits_come_back_whole(tokens: int) -> None:
    assert parse_engine_log(f"GPU KV cache size: {tokens:,} tokens").kv_tokens == tokens
