"""Commands: flags that the release has, values that the plan chose, names that can't break out of the shell."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.exporters.flags import flags, serve_command
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model

FIRST_MINOR = json.loads((Path(__file__).resolve().parent.parent / "recorded" / "vllm_flags.json").read_text(encoding="utf-8"))[
    "first_minor"
]


def deployment(
    engine: str = "vllm", version: str = "0.33.0", quantization: str = "bf16", tp: int = 1, **changes: Any
) -> Deployment:
    gpu = load_gpu("h100-80g-sxm")
    kv_dtype, model = changes.pop("kv_dtype", "bf16"), load_model(changes.pop("model_id", "llama-3.1-8b-instruct"))
    parallelism = Parallelism(tp=tp, pp=changes.pop("pp", 1), ep=changes.pop("ep", 1), dp=changes.pop("dp", 1))
    config = engine_defaults(engine, version, gpu, tp)  # type: ignore[arg-type]
    config = config.replace(**changes) if changes else config
    return Deployment(gpu, model, QUANTIZATIONS[quantization], kv_dtype, parallelism, config)


def test_the_command_says_what_was_chosen() -> None:
    made = deployment(tp=4, quantization="fp8", kv_dtype="fp8", max_model_len=8192, max_num_seqs=96, max_num_batched_tokens=4096)
    assert serve_command(made).line == (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 4 --max-model-len 8192 --max-num-seqs 96 "
        "--max-num-batched-tokens 4096 --gpu-memory-utilization 0.92 --kv-cache-dtype fp8 --quantization fp8"
    )


def test_every_setting_reaches_the_command() -> None:
    made = deployment(
        enable_prefix_caching=False,
        async_scheduling=False,
        scheduler_reserve_full_isl=False,
        cuda_graphs=False,
        long_prefill_token_threshold=512,
        long_prefill_token_threshold_adaptive=True,
        prefill_schedule_interval=4,
        watermark=0.01,
        policy="priority",
        stream_interval=10,
        block_size=32,
        max_num_active_seqs=8,
        max_num_scheduled_tokens=4096,
        max_num_queued_reqs=100,
        max_num_queued_tokens=10_000,
        kv_cache_memory_bytes=2.0**33,
    )
    line = serve_command(made).line
    for part in (
        "--no-enable-prefix-caching --no-async-scheduling --no-scheduler-reserve-full-isl --enforce-eager",
        "--long-prefill-token-threshold 512 --long-prefill-token-threshold-adaptive --prefill-schedule-interval 4 --watermark 0.01",
        "--scheduling-policy priority --stream-interval 10 --max-num-queued-reqs 100 --max-num-queued-tokens 10000",
        "--kv-cache-memory-bytes 8589934592",
        "--block-size 32",
        "--max-num-scheduled-tokens 4096 --max-num-active-seqs 8",
    ):
        assert part in line


@given(st.integers(11, 33), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_flag_is_older_than_the_release(minor: int, caching: bool, overlap: bool, whole: bool) -> None:
    made = deployment(version=f"0.{minor}.0", enable_prefix_caching=caching, async_scheduling=overlap)
    if minor >= 19:
        made = deployment(version=f"0.{minor}.0", scheduler_reserve_full_isl=whole)
    for argument in flags(made.engine, "some/model", made):
        if argument.startswith("--"):
            assert FIRST_MINOR[argument.replace("--no-", "--")] <= minor


def test_expert_and_data_parallel_layouts() -> None:
    line = serve_command(deployment(model_id="qwen3-30b-a3b", tp=2, ep=4, dp=2)).line
    assert "--data-parallel-size 2 --enable-expert-parallel" in line
    assert "--ep-size 2" in serve_command(deployment("sglang", "0.5.23", model_id="qwen3-30b-a3b", tp=2, ep=2)).line
    assert "--pipeline-parallel-size 2" in serve_command(deployment(pp=2)).line


def test_sglang_and_tensorrt_llm_use_their_own_names() -> None:
    sglang = serve_command(deployment("sglang", "0.5.23", tp=2, kv_dtype="fp8", enable_prefix_caching=False))
    assert sglang.line.startswith("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp-size 2 ")
    assert "--chunked-prefill-size 8192" in sglang.line
    assert "--kv-cache-dtype fp8_e4m3" in sglang.line
    assert "--disable-radix-cache" in sglang.line
    tensorrt = serve_command(deployment("tensorrt-llm", "1.2.0", tp=2, kv_dtype="fp8"))
    assert tensorrt.line.startswith("trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2 --max_batch_size 2048")
    assert "--extra_llm_api_options trtllm-options.yaml" in tensorrt.line
    assert tensorrt.options_file is not None
    assert "  dtype: fp8\n" in tensorrt.options_file
    assert "capacity_scheduler_policy: GUARANTEED_NO_EVICT" in tensorrt.options_file


def test_chunked_prefill_off_is_written_in_each_engine() -> None:
    off = {"enable_chunked_prefill": False, "max_model_len": 8192}
    assert "--no-enable-chunked-prefill" in serve_command(deployment(**off)).line
    assert "--chunked-prefill-size -1" in serve_command(deployment("sglang", "0.5.23", **off)).line
    assert "--enable_chunked_prefill" not in serve_command(deployment("tensorrt-llm", "1.2.0")).line


def test_a_checkpoint_of_another_precision_is_named_in_a_note() -> None:
    assert "int4-awq" in serve_command(deployment(quantization="int4-awq")).notes[0]
    assert serve_command(deployment(quantization="fp8")).notes == ()
    assert serve_command(deployment()).notes == ()


@pytest.mark.parametrize(
    "name", ["x; rm -rf /", "$(reboot)", "a b", "it's", "`id`", "a|b", "a&&b", "<img src=x>", "../../etc/passwd"]
)
def test_a_hostile_name_stays_one_argument(name: str) -> None:
    command = serve_command(deployment(), name)
    assert shlex.split(command.line)[2] == name
    assert shlex.split(command.line) == list(command.arguments)


@pytest.mark.parametrize("name", ["", "--trust-remote-code", "-q", "a\nb", "a\x00b", "x" * 301])
def test_a_name_that_is_a_flag_or_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        serve_command(deployment(), name)
    assert caught.value.field == "model"


@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_printable_name_survives_the_shell(name: str) -> None:
    if name.startswith("-") or not name.isprintable():
        return
    assert shlex.split(serve_command(deployment(), name).line)[2] == name
