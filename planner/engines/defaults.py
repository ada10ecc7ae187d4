"""The settings an engine takes when none are given, by its release and by the GPU's memory."""

from planner.engines.config import EngineConfig, FieldSource, Usage
from planner.engines.versions import EngineName, check_version, engine_source, vllm_facts
from planner.errors import InputError
from planner.hardware import GpuProfile
from planner.provenance import Source
from planner.units import GIB, MIB

_LARGE_GPU_BYTES = 70 * GIB
_LARGEST_GPU_BYTES = 160 * GIB
_TPU_TOKENS: dict[str, tuple[int, int]] = {"tpu-v6e": (2048, 1024), "tpu-v5e": (1024, 512), "tpu-v5p": (512, 256)}
_SGLANG_TIERS_MIB = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
_SGLANG_LARGEST = (16384, 512, 512)
_SGLANG_GRAPH_STEPS = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, 2**21, 512))


def engine_defaults(engine: EngineName, version: str, gpu: GpuProfile, tp: int, usage: Usage = "server") -> EngineConfig:
    """Return what `engine` of `version` chooses by itself on `tp` GPUs; each value carries its source.

    tp : tensor-parallel size [GPU]; SGLang's graphs and memory share depend on it
    usage : "server" is the OpenAI API server, "offline" the LLM class over a list of prompts

    InputError for a release that the planner doesn't know and for tp below 1.
    """
    if tp < 1:
        raise InputError("parallelism.tp", tp, "must be at least 1", "Give the GPUs that share one model")
    version = check_version(engine, version)
    if engine == "vllm":
        return _vllm(version, gpu, usage)
    return _sglang(version, gpu, tp, usage) if engine == "sglang" else _tensorrt_llm(version, usage)


def batch_defaults(version: str, gpu: GpuProfile, usage: Usage = "server") -> tuple[int, int]:
    """Return vLLM's default (max_num_batched_tokens, max_num_seqs) for a GPU.

    The A100 keeps the small GPU's values: a larger budget cost a 70B model on two of them 27 % of its throughput
    (vllm-project/vllm pull request 17885).
    """
    facts = vllm_facts(version)
    server = usage == "server"
    if gpu.id in _TPU_TOKENS:
        offline_tokens, server_tokens = _TPU_TOKENS[gpu.id]
        return (server_tokens if server else offline_tokens), 256
    memory_bytes = gpu.memory_reported_bytes
    if facts.large_gpu_tier and memory_bytes >= _LARGEST_GPU_BYTES:
        return 16384, 1024
    small_gb10 = facts.gb10_is_small and gpu.compute_capability == "12.1"
    if memory_bytes >= _LARGE_GPU_BYTES and "a100" not in gpu.name.lower() and not small_gb10:
        return (8192 if server else 16384), 1024
    return (2048 if server else 8192), 256


def limit_to_model_length(config: EngineConfig, max_model_len: int) -> EngineConfig:
    """Return vLLM's defaults for a model of this length: a budget above max_num_seqs × max_model_len is lowered to it, and a
    count of sequences above the budget to the budget, as the engine does when neither is given; without chunked prefill the
    budget is raised to max_model_len first.

    max_model_len : longest prompt and output together [token]
    """
    tokens, seqs = config.max_num_batched_tokens, config.max_num_seqs
    if not config.enable_chunked_prefill:
        tokens = max(tokens, max_model_len)
    tokens = min(tokens, seqs * max_model_len)
    source = engine_source(config.engine, config.version, "engine/arg_utils.py, lowered to the model's length")
    limited = config.replace(max_num_batched_tokens=tokens, max_num_seqs=min(seqs, tokens), max_model_len=max_model_len)
    changed = {"max_num_batched_tokens", "max_num_seqs"}
    kept = tuple(entry for entry in limited.sources if entry.field not in changed)
    return limited.model_copy(update={"sources": (*kept, *(FieldSource(name, source) for name in sorted(changed)))})


def graph_ceiling_tokens(version: str, gpu: GpuProfile) -> int:
    """Return vLLM's ceiling of captured batches [token]: 512, or 1024 on compute capability 10 in later releases."""
    on_blackwell = (gpu.compute_capability or "").startswith("10.")
    return vllm_facts(version).blackwell_graph_ceiling if on_blackwell else 512


def graph_sizes(max_graph_tokens: int) -> tuple[int, ...]:
    """Return the batch sizes that vLLM captures up to a ceiling [token]: 1, 2, 4, then every 8th to 248 and every 16th above.

    >>> len(graph_sizes(512)), graph_sizes(16)
    (51, (1, 2, 4, 8, 16))
    """
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, max_graph_tokens + 1, 16)]
    return tuple(size for size in sizes if size <= max_graph_tokens)


def sglang_mem_fraction(gpu_mib: float, tp: int, chunk_tokens: int, graph_bs: int) -> float:
    """Return SGLang's default mem_fraction_static [1]: what is left after a reserve for activations and graphs.

    gpu_mib : memory that the driver reports [MiB]
    chunk_tokens : chunked_prefill_size [token]; graph_bs : largest captured decode batch [seq]

    reserve = 512 + 1.5 · max(chunk, 2048) + 128 · tp + 2 · graph_bs + 8 · prefill graphs [MiB], at least 10 GiB above 60 GiB.
    Source: SGLang 0.5.23, srt/arg_groups/memory_hook.py (graphs of a model without latent attention).
    """
    prefill_graphs = sum(
        len(range(first, min(last, chunk_tokens) + 1, step)) for first, last, step in _SGLANG_GRAPH_STEPS if first <= chunk_tokens
    )
    reserve_mib = 512 + 1.5 * max(chunk_tokens, 2048) + tp * 128 + 2 * graph_bs + 8 * prefill_graphs
    if gpu_mib > 60 * 1024:
        reserve_mib = max(reserve_mib, 10 * 1024.0)
    return round((gpu_mib - reserve_mib) / gpu_mib, 3)


def _vllm(version: str, gpu: GpuProfile, usage: Usage) -> EngineConfig:
    facts = vllm_facts(version)
    tokens, seqs = batch_defaults(version, gpu, usage)
    batch = engine_source("vllm", version, "vllm/engine/arg_utils.py, get_batch_defaults")
    if gpu.vendor not in {"NVIDIA", "AMD", "Google"}:
        note = "vLLM's rule for GPUs, assumed to hold for this accelerator's plug-in"
        batch = Source(kind="assumed", ref=batch.ref, retrieved=batch.retrieved, confidence="low", note=note)
    return EngineConfig(
        engine="vllm",
        version=version,
        usage=usage,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        gpu_memory_utilization=facts.gpu_memory_utilization,
        block_size=16,
        async_scheduling=facts.async_scheduling,
        scheduler_reserve_full_isl=facts.admits_whole_sequence,
        max_graph_tokens=graph_ceiling_tokens(version, gpu),
        sources=(
            FieldSource("*", engine_source("vllm", version, "vllm/config/scheduler.py")),
            FieldSource("max_num_seqs", batch),
            FieldSource("max_num_batched_tokens", batch),
            FieldSource("gpu_memory_utilization", engine_source("vllm", version, "vllm/config/cache.py")),
            FieldSource("block_size", engine_source("vllm", version, "vllm/config/cache.py")),
            FieldSource("enable_prefix_caching", engine_source("vllm", version, "vllm/engine/arg_utils.py")),
            FieldSource("async_scheduling", engine_source("vllm", version, "vllm/config/vllm.py")),
            FieldSource("max_graph_tokens", engine_source("vllm", version, "vllm/config/vllm.py")),
        ),
    )


def _sglang(version: str, gpu: GpuProfile, tp: int, usage: Usage) -> EngineConfig:
    gpu_mib = gpu.memory_reported_bytes / MIB
    chunk, few, many = next((tier[1:] for tier in _SGLANG_TIERS_MIB if gpu_mib < tier[0] * 1024), _SGLANG_LARGEST)
    graph_bs = few if tp < 4 else many
    memory = engine_source("sglang", version, "srt/arg_groups/memory_hook.py")
    running = engine_source("sglang", version, "srt/mem_cache/kv_cache_configurator.py: 2048 to 4096 by KV size; the lower bound")
    return EngineConfig(
        engine="sglang",
        version=version,
        usage=usage,
        max_num_seqs=2048,
        max_num_batched_tokens=chunk,
        gpu_memory_utilization=sglang_mem_fraction(gpu_mib, tp, chunk, graph_bs),
        block_size=1,
        mixed_batches=False,
        scheduler_reserve_full_isl=True,
        output_reservation="clipped",
        max_graph_tokens=graph_bs,
        sources=(
            FieldSource("*", engine_source("sglang", version, "srt/arg_groups/fields/schedule.py")),
            FieldSource("max_num_seqs", running),
            FieldSource("max_num_batched_tokens", memory),
            FieldSource("gpu_memory_utilization", memory),
            FieldSource("max_graph_tokens", memory),
        ),
    )


def _tensorrt_llm(version: str, usage: Usage) -> EngineConfig:
    return EngineConfig(
        engine="tensorrt-llm",
        version=version,
        usage=usage,
        max_num_seqs=2048,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=0.9,
        block_size=32,
        enable_chunked_prefill=False,
        scheduler_reserve_full_isl=True,
        output_reservation="full",
        policy="guaranteed_no_evict",
        max_graph_tokens=None,
        sources=(FieldSource("*", engine_source("tensorrt-llm", version, "tensorrt_llm/llmapi/llm_args.py, commands/serve.py")),),
    )
