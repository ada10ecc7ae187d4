"""The command that starts an engine as planned: only flags that its release has, quoted for a shell."""

import shlex
from typing import NamedTuple

from planner.deployment import Deployment
from planner.engines import EngineConfig, EngineName, vllm_facts
from planner.errors import InputError
from planner.models import ModelSpec

_MAX_NAME = 300
_PLAIN = frozenset({"bf16", "fp16", "fp32"})

FLAG_NAMES: dict[str, dict[EngineName, str]] = {
    "tensor_parallel_size": {"vllm": "--tensor-parallel-size", "sglang": "--tp-size", "tensorrt-llm": "--tp_size"},
    "pipeline_parallel_size": {"vllm": "--pipeline-parallel-size", "sglang": "--pp-size", "tensorrt-llm": "--pp_size"},
    "data_parallel_size": {"vllm": "--data-parallel-size", "sglang": "--dp-size"},
    "max_num_seqs": {"vllm": "--max-num-seqs", "sglang": "--max-running-requests", "tensorrt-llm": "--max_batch_size"},
    "max_num_batched_tokens": {
        "vllm": "--max-num-batched-tokens",
        "sglang": "--chunked-prefill-size",
        "tensorrt-llm": "--max_num_tokens",
    },
    "max_num_scheduled_tokens": {"vllm": "--max-num-scheduled-tokens"},
    "max_num_active_seqs": {"vllm": "--max-num-active-seqs"},
    "max_model_len": {"vllm": "--max-model-len", "sglang": "--context-length", "tensorrt-llm": "--max_seq_len"},
    "gpu_memory_utilization": {
        "vllm": "--gpu-memory-utilization",
        "sglang": "--mem-fraction-static",
        "tensorrt-llm": "--kv_cache_free_gpu_memory_fraction",
    },
    "kv_cache_memory_bytes": {"vllm": "--kv-cache-memory-bytes"},
    "block_size": {"vllm": "--block-size", "sglang": "--page-size"},
    "kv_cache_dtype": {"vllm": "--kv-cache-dtype", "sglang": "--kv-cache-dtype"},
    "long_prefill_token_threshold": {"vllm": "--long-prefill-token-threshold"},
    "prefill_schedule_interval": {"vllm": "--prefill-schedule-interval"},
    "watermark": {"vllm": "--watermark"},
    "policy": {"vllm": "--scheduling-policy", "sglang": "--schedule-policy"},
    "stream_interval": {"vllm": "--stream-interval", "sglang": "--stream-interval"},
    "max_num_queued_reqs": {"vllm": "--max-num-queued-reqs", "sglang": "--max-queued-requests"},
    "max_num_queued_tokens": {"vllm": "--max-num-queued-tokens"},
}
"""Name of each setting's flag by engine; an engine without an entry has no such flag. Read in vLLM 0.11–0.33
(engine/arg_utils.py), SGLang 0.5.23 (srt/arg_groups/fields) and TensorRT-LLM 1.2 (commands/serve.py)."""

_VLLM_KV_DTYPES = {"fp8": "fp8", "bf16": "auto", "fp32": "auto"}
_SGLANG_KV_DTYPES = {"fp8": "fp8_e4m3", "bf16": "auto", "fp32": "auto"}


class ServeCommand(NamedTuple):
    """How to start the planned engine.

    arguments : the command line, one entry an argument
    options_file : text of trtllm-options.yaml, which TensorRT-LLM reads for what has no flag; None for the other engines
    notes : what the command can't say, such as a checkpoint that must be quantised beforehand
    """

    arguments: tuple[str, ...]
    options_file: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command quoted for a POSIX shell: a hostile model name stays one argument."""
        return shlex.join(self.arguments)


def serve_command(deployment: Deployment, model_name: str | None = None) -> ServeCommand:
    """Return the command that serves a deployment, or works through a file of requests where it is planned for offline use.

    model_name : repository or path to serve; None takes the model's Hugging Face repository, else its id
    """
    name = served_name(deployment.model, model_name)
    arguments = flags(deployment.engine, name, deployment)
    notes = _notes(deployment)
    if deployment.engine.engine == "vllm" and deployment.engine.usage == "offline":
        files = ("-i", "requests.jsonl", "-o", "results.jsonl")
        return ServeCommand(("vllm", "run-batch", *files, "--model", name, *arguments), notes=notes)
    if deployment.engine.engine == "vllm":
        return ServeCommand(("vllm", "serve", name, *arguments), notes=notes)
    if deployment.engine.engine == "sglang":
        return ServeCommand(("python", "-m", "sglang.launch_server", "--model-path", name, *arguments), notes=notes)
    return ServeCommand(("trtllm-serve", name, *arguments), tensorrt_llm_options(deployment), notes)


def served_name(model: ModelSpec, model_name: str | None = None) -> str:
    """Return what to call the model on the command line; what could be read as a flag or holds control characters is refused."""
    name = model_name if model_name is not None else (model.hf_repo or model.id)
    if not name or len(name) > _MAX_NAME or name.startswith("-") or not name.isprintable():
        bound = f"must be 1 to {_MAX_NAME} printable characters and not start with a dash"
        raise InputError("model", name, bound, "Give a Hugging Face repository or a path")
    return name


def flags(config: EngineConfig, model: str, deployment: Deployment) -> tuple[str, ...]:
    """Return the flags of a configuration, without the program and the model.

    model : name that is served; refused as in `served_name`
    deployment : gives the layout, the quantization and the cache dtype

    Every choice that the plan made is written out, so that a change of defaults between releases doesn't change it.
    """
    served_name(deployment.model, model)
    by_engine = {"vllm": _vllm_flags, "sglang": _sglang_flags, "tensorrt-llm": _tensorrt_llm_flags}
    return tuple(by_engine[config.engine](config, deployment))


def tensorrt_llm_options(deployment: Deployment) -> str:
    """Return the YAML for trtllm-serve's --extra_llm_api_options: cache dtype, block reuse, blocks and the capacity policy."""
    config = deployment.engine
    cache = [f"  enable_block_reuse: {str(config.enable_prefix_caching).lower()}", f"  tokens_per_block: {config.block_size}"]
    if deployment.kv_dtype == "fp8":
        cache.append("  dtype: fp8")
    lines = ["kv_cache_config:", *cache, "scheduler_config:", f"  capacity_scheduler_policy: {config.policy.upper()}"]
    if not config.async_scheduling:
        lines.append("disable_overlap_scheduler: true")
    if not config.cuda_graphs:
        lines.append("cuda_graph_config: null")
    return "\n".join(lines) + "\n"


class _Arguments:
    """Collects flags by the setting's name."""

    def __init__(self, engine: EngineName) -> None:
        self.engine: EngineName = engine
        self.items: list[str] = []

    def add(self, setting: str, value: object) -> None:
        """Add a setting's flag with its value; None adds nothing."""
        if value is not None:
            self.items += [FLAG_NAMES[setting][self.engine], _written(value)]

    def add_unless(self, setting: str, value: object, default: object) -> None:
        """Add a setting's flag where its value isn't the default of every release."""
        if value != default:
            self.add(setting, value)

    def switch(self, flag: str, *, on: bool) -> None:
        """Add a flag without a value."""
        if on:
            self.items.append(flag)


def _written(value: object) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and value > 1 else repr(value)
    return str(value)


def _vllm_flags(config: EngineConfig, deployment: Deployment) -> list[str]:
    out = _Arguments("vllm")
    _layout(out, deployment)
    out.switch("--enable-expert-parallel", on=deployment.parallelism.ep > 1)
    out.add("max_model_len", config.max_model_len)
    out.add("max_num_seqs", config.max_num_seqs)
    out.add("max_num_batched_tokens", config.max_num_batched_tokens)
    out.add("gpu_memory_utilization", config.gpu_memory_utilization)
    out.add("kv_cache_memory_bytes", config.kv_cache_memory_bytes)
    out.add_unless("kv_cache_dtype", _VLLM_KV_DTYPES[deployment.kv_dtype], "auto")
    out.add_unless("block_size", config.block_size, 16)
    if _quantised_on_load(deployment):
        out.items += ["--quantization", "fp8"]
    for name in ("max_num_scheduled_tokens", "max_num_active_seqs", "long_prefill_token_threshold"):
        out.add(name, getattr(config, name))
    out.switch("--long-prefill-token-threshold-adaptive", on=config.long_prefill_token_threshold_adaptive)
    out.add_unless("prefill_schedule_interval", config.prefill_schedule_interval, 1)
    out.add_unless("watermark", config.watermark, 0.0)
    out.add_unless("policy", config.policy, "fcfs")
    out.add_unless("stream_interval", config.stream_interval, 1)
    out.add("max_num_queued_reqs", config.max_num_queued_reqs)
    out.add("max_num_queued_tokens", config.max_num_queued_tokens)
    _vllm_switches(out, config)
    return out.items


def _vllm_switches(out: _Arguments, config: EngineConfig) -> None:
    facts = vllm_facts(config.version)
    out.switch("--no-enable-prefix-caching", on=not config.enable_prefix_caching)
    out.switch("--no-enable-chunked-prefill", on=not config.enable_chunked_prefill)
    out.switch("--async-scheduling", on=config.async_scheduling and not facts.async_scheduling)
    out.switch("--no-async-scheduling", on=not config.async_scheduling and facts.async_scheduling)
    out.switch("--no-scheduler-reserve-full-isl", on=facts.admits_whole_sequence and not config.scheduler_reserve_full_isl)
    out.switch("--enforce-eager", on=not config.cuda_graphs)


def _sglang_flags(config: EngineConfig, deployment: Deployment) -> list[str]:
    out = _Arguments("sglang")
    _layout(out, deployment)
    if deployment.parallelism.ep > 1:
        out.items += ["--ep-size", str(deployment.parallelism.ep)]
    out.add("max_model_len", config.max_model_len)
    out.add("max_num_seqs", config.max_num_seqs)
    out.add("max_num_batched_tokens", config.max_num_batched_tokens if config.enable_chunked_prefill else -1)
    out.add("gpu_memory_utilization", config.gpu_memory_utilization)
    out.add_unless("kv_cache_dtype", _SGLANG_KV_DTYPES[deployment.kv_dtype], "auto")
    out.add_unless("block_size", config.block_size, 1)
    if _quantised_on_load(deployment):
        out.items += ["--quantization", "fp8"]
    if config.policy == "priority":
        out.items.append("--enable-priority-scheduling")
    else:
        out.add_unless("policy", config.policy, "fcfs")
    out.add_unless("stream_interval", config.stream_interval, 1)
    out.add("max_num_queued_reqs", config.max_num_queued_reqs)
    out.switch("--enable-mixed-chunk", on=config.mixed_batches)
    out.switch("--disable-radix-cache", on=not config.enable_prefix_caching)
    out.switch("--disable-overlap-schedule", on=not config.async_scheduling)
    out.switch("--disable-cuda-graph", on=not config.cuda_graphs)
    return out.items


def _tensorrt_llm_flags(config: EngineConfig, deployment: Deployment) -> list[str]:
    out = _Arguments("tensorrt-llm")
    out.add_unless("tensor_parallel_size", deployment.parallelism.tp, 1)
    out.add_unless("pipeline_parallel_size", deployment.parallelism.pp, 1)
    if deployment.parallelism.ep > 1:
        out.items += ["--ep_size", str(deployment.parallelism.ep)]
    out.add("max_model_len", config.max_model_len)
    out.add("max_num_seqs", config.max_num_seqs)
    out.add("max_num_batched_tokens", config.max_num_batched_tokens)
    out.add("gpu_memory_utilization", config.gpu_memory_utilization)
    out.switch("--enable_chunked_prefill", on=config.enable_chunked_prefill)
    out.items += ["--extra_llm_api_options", "trtllm-options.yaml"]
    return out.items


def _layout(out: _Arguments, deployment: Deployment) -> None:
    layout = deployment.parallelism
    out.add("tensor_parallel_size", layout.tp)
    out.add_unless("pipeline_parallel_size", layout.pp, 1)
    out.add_unless("data_parallel_size", layout.dp, 1)


def _quantised_on_load(deployment: Deployment) -> bool:
    """Whether the checkpoint is in 16 bit and the engine is asked to quantise it to fp8 while loading."""
    return deployment.quantization.id == "fp8" and deployment.model.native_quantization is None


def _notes(deployment: Deployment) -> tuple[str, ...]:
    """Say when the named checkpoint isn't the one that the plan computes with."""
    wanted = deployment.quantization.id
    if wanted == deployment.model.default_quantization.id or wanted in _PLAIN:
        return ()
    if _quantised_on_load(deployment) and deployment.engine.engine != "tensorrt-llm":
        return ()
    return (f"The plan is for {wanted} weights: serve a checkpoint of {deployment.model.name} that is quantised so.",)
