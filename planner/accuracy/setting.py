"""Turns a measured row into the deployment and the load that it describes, or says why the planner can't predict it."""

from dataclasses import dataclass, replace
from typing import Literal

from planner.accuracy.names import Release, engine_named, gpu_named, kv_dtype_named, model_named, quantization_named
from planner.accuracy.recipes import Recipe, cards_copy_directly, recipe_for
from planner.calibration.all_reduce_priors import at_pair_rate
from planner.calibration.measurements import Measurement
from planner.calibration.priors import prior_record
from planner.calibration.records import CalibrationRecord, HostTerms, host_for, load_host, record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import EngineConfig, engine_defaults
from planner.errors import InputError
from planner.hardware import GpuProfile
from planner.memory import MemoryBudget, memory_budget
from planner.models import QUANTIZATIONS, ModelSpec, tp_refusal
from planner.step_coefficients import coefficients_for, compute_dtype_on
from planner.step_model import StepCoefficients, scaled

Records = Literal["shipped", "none"]

NODE_GPUS = 8
LAUNCH_S_PER_LAYER = 300e-6
"""CPU time to launch a layer's kernels where no CUDA graph replays them [s].

The middle of the 100 to 500 µs a layer that engines without CUDA graphs show (published runs, 2023 to 2024), chosen with
Llama-3.1-405B on B200 and GB200 in view (MLPerf v5.1): its median TPOT on four B200 at two rates is that of decode steps of 38 ms,
0.3 a layer. Errors of those rows are therefore no test of this figure.
"""
_ROOM_TOKENS = 256
_SLACK = 1.05
_COPIED_ATTENTION = "data-parallel attention"


class NotPredictedError(Exception):
    """Says why a row can't be predicted; the reason is one of few sentences, so that rows can be counted by it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a row measured, in the planner's terms.

    replicas : engines that share the load
    wait_steps : steps for which the engine holds prompts back to batch them [step]
    sending_s : for how long at least the benchmark sends requests [s]; None where that isn't known
    requests : how many it sends in all [request]; likewise
    """

    measured: Measurement
    deployment: Deployment
    record: CalibrationRecord
    coefficients: StepCoefficients
    memory: MemoryBudget
    replicas: int
    wait_steps: int
    sending_s: float | None = None
    requests: int | None = None

    @property
    def group(self) -> tuple[str, str, str]:
        """GPU, engine and model by the catalogue's names."""
        return self.deployment.gpu.id, self.deployment.engine.engine, self.deployment.model.id

    def with_step_times(self, factor: float) -> "Setting":
        """Return the setting with all step times multiplied by a factor [1]."""
        return replace(self, coefficients=scaled(self.coefficients, factor))


def setting_of(measured: Measurement, records: Records = "shipped") -> Setting:
    """Return the deployment of a row.

    records : "shipped" takes the calibration records, "none" only the priors that hold for any GPU of a family

    Raises NotPredictedError with the reason when the row can't be predicted.
    """
    _refuse_modes(measured)
    gpu, model, release = _known(measured)
    recipe = recipe_for(measured, release.engine, model.id, gpu.id)
    if recipe.copies_attention or _copies_attention(measured, model):
        raise NotPredictedError(_COPIED_ATTENTION)
    layout, replicas = _layout(measured, recipe)
    _refuse_contradictions(measured, replicas)
    if layout.tp > gpu_domain(gpu):
        raise NotPredictedError("spans several machines")
    quantization = quantization_named(measured, model)
    if quantization is None:
        raise NotPredictedError("unknown weight dtype")
    try:
        engine = _engine(measured, release, gpu, layout, recipe)
        kv_dtype = kv_dtype_named(measured) or recipe.kv_dtype or quantization.kv_dtype
        if quantization.block_size and tp_refusal(model, layout.tp, quantization, layout.ep):
            quantization = QUANTIZATIONS["fp8"]
        deployment = Deployment(gpu, model, quantization, kv_dtype, layout, engine)
        record = _record(deployment, release, records, _host(measured, release, recipe))
        if cards_copy_directly(measured, gpu.id):
            record = at_pair_rate(record, gpu)
        coefficients = _as_run(coefficients_for(deployment, record), deployment, record, recipe)
        memory = memory_budget(deployment, measured.kv_cache_tokens or recipe.kv_cache_tokens)
    except InputError as error:
        raise NotPredictedError(f"not a legal deployment: {error.field}") from error
    if not memory.fits:
        raise NotPredictedError("does not fit in the computed memory")
    return Setting(
        measured,
        deployment,
        record,
        coefficients,
        memory,
        replicas,
        wait_steps=recipe.wait_steps,
        sending_s=recipe.sending_s,
        requests=measured.requests or recipe.requests,
    )


def _as_run(c: StepCoefficients, deployment: Deployment, record: CalibrationRecord, recipe: Recipe) -> StepCoefficients:
    """Return step coefficients with what a launch script changes about kernels.

    A kernel that multiplies and all-reduces hides the transfer behind the products as far as those last. Without CUDA graphs the
    CPU launches every kernel of every layer while the GPU runs those before: a step takes the longer of the two.
    """
    if recipe.all_reduce_in_product:
        c = c._replace(all_reduce_s_per_token=max(c.all_reduce_s_per_token - c.linear_s_per_token, 0.0))
    if record.cuda_graphs and not deployment.engine.cuda_graphs:
        c = c._replace(host_s=c.host_s + deployment.model.layers * LAUNCH_S_PER_LAYER, host_overlap=1.0)
    return c


def _refuse_modes(measured: Measurement) -> None:
    if measured.disaggregated:
        raise NotPredictedError("prefill and decode on different GPUs")
    if measured.speculative:
        raise NotPredictedError("speculative decoding")
    if measured.prefix_caching:
        raise NotPredictedError("prefixes shared to an unknown degree")
    if measured.scenario in {"closed-loop", "static-batch"} and measured.concurrency is None:
        raise NotPredictedError("no concurrency")
    if measured.scenario == "open-loop" and measured.rate_rps is None:
        raise NotPredictedError("no rate")


def _refuse_contradictions(measured: Measurement, replicas: int) -> None:
    """Refuse rows in which more requests decode at once than the stated engines can run.

    By Little's law rate · (E2E - TTFT) of them decode. A batch limit that holds for each copy of the attention layers, or a layout
    other than the one stated, shows so.
    """
    rate_rps = measured.requests_per_s or measured.rate_rps
    if measured.scenario != "open-loop" or rate_rps is None or measured.max_num_seqs is None or measured.e2e_mean_s is None:
        return
    decoding = rate_rps * (measured.e2e_mean_s - (measured.ttft_mean_s or measured.ttft_p50_s or 0.0))
    if decoding > _SLACK * measured.max_num_seqs * replicas:
        raise NotPredictedError("more requests in flight than the stated layout runs")


def _known(measured: Measurement) -> tuple[GpuProfile, ModelSpec, Release]:
    gpu = gpu_named(measured.gpu)
    if gpu is None:
        raise NotPredictedError("unknown GPU")
    model = model_named(measured.model)
    if model is None:
        raise NotPredictedError("unknown model")
    release = engine_named(measured)
    if release is None:
        raise NotPredictedError("engine not modelled")
    return gpu, model, release


def _copies_attention(measured: Measurement, model: ModelSpec) -> bool:
    """Say whether a row's notes give its experts' model a copy of the attention layers on each GPU, beyond one GPU."""
    noted = "attention-dp" in measured.notes.casefold()
    return noted and (measured.gpu_count or measured.tp or 1) > 1 and any(group.kind == "moe" for group in model.groups)


def _layout(measured: Measurement, recipe: Recipe) -> tuple[Parallelism, int]:
    if (measured.dp or 1) > 1:
        raise NotPredictedError(_COPIED_ATTENTION)
    if measured.tp is None and measured.gpu_count not in {None, 1}:
        raise NotPredictedError("layout over GPUs not stated")
    tp, pp = measured.tp or 1, measured.pp or 1
    ep = measured.ep or 1
    if ep not in {1, tp}:
        raise NotPredictedError("experts spread over a part of the GPUs")
    count = measured.gpu_count or tp * pp
    if count % (tp * pp):
        raise NotPredictedError("layout over GPUs not stated")
    return Parallelism(tp=tp, pp=pp, ep=tp if recipe.expert_parallel else ep), count // (tp * pp)


def gpu_domain(gpu: GpuProfile) -> int:
    """Return the GPUs of one machine or of one fast link, whichever is more [GPU]."""
    return max(NODE_GPUS, gpu.link.domain_gpus if gpu.link else 0) if not gpu.id.startswith("gb") else NODE_GPUS


def _engine(measured: Measurement, release: Release, gpu: GpuProfile, layout: Parallelism, recipe: Recipe) -> EngineConfig:
    usage: Literal["server", "offline"] = "offline" if measured.scenario in {"offline", "static-batch"} else "server"
    config = engine_defaults(release.engine, release.settings_version, gpu, layout.tp, usage)
    if release.engine == "vllm" and release.version != release.settings_version:
        config = config.replace(async_scheduling=False) if _older(release.version, release.settings_version) else config
    clients = measured.concurrency or 0
    beyond = recipe.tokens_beyond_prompt
    per_step = None if beyond is None else int(measured.prompt_tokens) + clients + beyond
    changes = {
        "max_num_seqs": measured.max_num_seqs or recipe.max_num_seqs,
        "max_num_batched_tokens": measured.max_num_batched_tokens or per_step or recipe.max_num_batched_tokens,
        "gpu_memory_utilization": measured.gpu_memory_utilization or recipe.gpu_memory_utilization,
        "async_scheduling": recipe.async_scheduling if measured.async_scheduling is None else measured.async_scheduling,
        "mixed_batches": recipe.mixed_batches,
        "cuda_graphs": False if not measured.cuda_graphs else recipe.cuda_graphs,
        "enable_prefix_caching": False,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    seqs = given.get("max_num_seqs", config.max_num_seqs)
    tokens = given.get("max_num_batched_tokens", config.max_num_batched_tokens)
    longest = int(measured.prompt_tokens + measured.output_tokens) + _ROOM_TOKENS
    return config.replace(**given | {"max_num_seqs": min(seqs, tokens), "max_num_batched_tokens": tokens, "max_model_len": longest})


def _older(version: str, than: str) -> bool:
    return tuple(map(int, version.split("."))) < tuple(map(int, than.split(".")))


def _host(measured: Measurement, release: Release, recipe: Recipe) -> HostTerms | None:
    """Return the host terms of a front end; None for the engine's usual server, whose terms a record holds itself."""
    front = measured.front_end or "server"
    if recipe.front_end is not None and front != "offline":
        front = recipe.front_end
    if front == "tuned" and release.engine == "vllm":
        return load_host("vllm-tuned")
    return host_for(release.engine, "offline", release.version) if front == "offline" else None


def _record(deployment: Deployment, release: Release, records: Records, host: HostTerms | None) -> CalibrationRecord:
    gpu = deployment.gpu
    if records == "none":
        return prior_record(gpu, release.engine, release.version, host or host_for(release.engine, "server", release.version))
    dtype = compute_dtype_on(gpu, deployment.quantization, release.engine)
    record = record_for(gpu, release.engine, release.version, dtype)
    return record if host is None else record.with_host(host)
