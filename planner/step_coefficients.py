"""Step coefficients of one deployment: what a GPU of it holds and does, over the rates that a calibration record gives.

`StepWork` is arithmetic on the model and the layout; `StepRates` is what silicon, engine and host reach. `coefficients` divides one
by the other. A fit varies only the rates, so that it predicts with the very formula that plans use.
"""

import math
from functools import lru_cache
from typing import NamedTuple

from planner.calibration.records import CalibrationRecord
from planner.calibration.schema import AllReduce, Parameter, WeightClass, by_name
from planner.deployment import Deployment, Parallelism, Shard, shard
from planner.errors import InputError
from planner.expert_share import expert_layer_share, expert_share
from planner.hardware import GpuProfile
from planner.models import LayerGroup, ModelSpec, Quantization, kv_read_bytes
from planner.step_model import StepCoefficients, smooth_max

SIXTEEN_BIT = ("bf16", "fp16", "fp32")
_WEIGHT_ONLY = {"fp8": ("vllm", "sglang"), "fp4": ("vllm", "sglang")}
_WEIGHT_ONLY_SINCE = 7.5


class StepWork(NamedTuple):
    """What one GPU of the fullest pipeline stage holds, moves and computes.

    layers, expert_layers : layers of the stage, and those with routed experts [layer]
    stages, tensor_parallel : pipeline stages; GPUs that share a layer [1]
    dense_bytes, expert_bytes, head_bytes : weights that a step streams [B]
    dense_flops, expert_flops : linear layers' FLOPs of one token outside and inside routed experts [FLOP/token]
    head_flops : language-model head, per sampled token [FLOP/token]
    kv_bytes_per_token, window_bytes_per_token, state_bytes_per_sequence : cache read by decode attention [B/token], [B/seq]
    window_tokens : longest span that windowed or sparse layers attend to [token]; 0 without one
    pair_flops, window_pair_flops : prefill attention's FLOPs of one query-key pair, full and windowed layers [FLOP]
    decode_pair_flops, decode_window_pair_flops : the same of decode attention; more where it runs in a latent space [FLOP]
    activation_bytes_per_token : activations read and written for one token [B/token]
    all_reduces, all_reduce_bytes_per_token : messages of one step [1] and their bytes for one token [B/token]
    hop_bytes_per_token : activations that one token carries from a stage to the next [B/token]
    expert_miss_ratio : chance that one token misses one expert [1]; 1 without experts
    """

    layers: float
    expert_layers: float
    stages: int
    tensor_parallel: int
    dense_bytes: float
    expert_bytes: float
    head_bytes: float
    dense_flops: float
    expert_flops: float
    head_flops: float
    kv_bytes_per_token: float
    window_bytes_per_token: float
    state_bytes_per_sequence: float
    window_tokens: float
    pair_flops: float
    window_pair_flops: float
    decode_pair_flops: float
    decode_window_pair_flops: float
    activation_bytes_per_token: float
    all_reduces: float
    all_reduce_bytes_per_token: float
    hop_bytes_per_token: float
    expert_miss_ratio: float


class StepRates(NamedTuple):
    """What a GPU, its links, its engine and its host reach; all above 0 except the constants, which may be 0.

    weights_bytes_per_s, head_bytes_per_s, kv_bytes_per_s : memory rates for quantised weights, head and cache [B/s]
    dense_flops_per_s, expert_flops_per_s, head_flops_per_s, attention_flops_per_s : compute rates [FLOP/s]
    activation_s_per_byte : time to move one activation byte [s/B]; 0 leaves activations out
    layer_s, expert_layer_s : constants of one layer, and of routing in one layer with experts [s]
    all_reduce_alpha_s, all_reduce_s_per_byte : one all-reduce's latency and its time for one byte on a GPU's link [s], [s/B]
    hop_alpha_s, hop_s_per_byte : the same for sending activations to the next pipeline stage [s], [s/B]
    host_s, host_s_per_sequence, exposed_host_s_per_sequence : see StepCoefficients [s], [s/seq]
    mix_factor, expert_spread, inverse_p, host_overlap : see StepCoefficients [1]
    """

    weights_bytes_per_s: float
    head_bytes_per_s: float
    kv_bytes_per_s: float
    dense_flops_per_s: float
    expert_flops_per_s: float
    head_flops_per_s: float
    attention_flops_per_s: float
    activation_s_per_byte: float
    layer_s: float
    expert_layer_s: float
    all_reduce_alpha_s: float
    all_reduce_s_per_byte: float
    hop_alpha_s: float
    hop_s_per_byte: float
    host_s: float
    host_s_per_sequence: float
    exposed_host_s_per_sequence: float
    mix_factor: float
    expert_spread: float
    inverse_p: float
    host_overlap: float


class AllReduceCost(NamedTuple):
    """Cost of one all-reduce at a tensor-parallel size, and where it was taken from.

    alpha_s, s_per_byte : fixed time [s] and time of a byte [s/B]; 0 where nothing is communicated
    """

    alpha_s: float
    s_per_byte: float
    note: str


def coefficients_for(deployment: Deployment, record: CalibrationRecord) -> StepCoefficients:
    """Return the step coefficients of a deployment.

    deployment : model, quantization, GPUs, layout and engine
    record : what the GPU reaches; see planner.calibration.records.record_for

    Raises InputError when the GPU can't compute in the quantization's dtype, or the record lacks a figure that is needed.
    """
    return coefficients(work_of(deployment), rates_of(deployment, record))


def coefficients(work: StepWork, rates: StepRates) -> StepCoefficients:
    """Divide work by rates: seconds that each unit of a step costs.

    With pipeline stages, a step of all n sequences is one round, in which each stage runs as many micro-batches of n / stages as
    there are stages. What a stage pays once a micro-batch (weights, constants, latencies) counts `stages` times, what it pays for
    each token once. A lone request takes longer than a round's share: it waits for every stage in turn.
    """
    rounds = float(work.stages)
    sends = rounds if work.stages > 1 else 0.0
    ring = 2.0 * (work.tensor_parallel - 1) / work.tensor_parallel
    reduce_s_per_token = ring * work.all_reduce_bytes_per_token * rates.all_reduce_s_per_byte
    send_s_per_token = min(sends, 1.0) * work.hop_bytes_per_token * rates.hop_s_per_byte
    return StepCoefficients(
        layers_s=rounds * (rates.layer_s * work.layers + rates.expert_layer_s * work.expert_layers),
        dense_weights_s=rounds * work.dense_bytes / rates.weights_bytes_per_s,
        expert_weights_s=rounds * work.expert_bytes / rates.weights_bytes_per_s,
        expert_miss_ratio=work.expert_miss_ratio,
        linear_s_per_token=work.dense_flops / rates.dense_flops_per_s + work.expert_flops / rates.expert_flops_per_s,
        head_weights_s=rounds * work.head_bytes / rates.head_bytes_per_s,
        head_s_per_token=work.head_flops / rates.head_flops_per_s,
        decode_s_per_context_token=_decode_s(work.kv_bytes_per_token, work.decode_pair_flops, rates),
        decode_s_per_window_token=_decode_s(work.window_bytes_per_token, work.decode_window_pair_flops, rates),
        decode_s_per_sequence=2.0 * work.state_bytes_per_sequence / rates.kv_bytes_per_s,
        prefill_s_per_pair=work.pair_flops / rates.attention_flops_per_s,
        prefill_s_per_window_pair=work.window_pair_flops / rates.attention_flops_per_s,
        activation_s_per_token=work.activation_bytes_per_token * rates.activation_s_per_byte,
        all_reduce_s=rounds * work.all_reduces * rates.all_reduce_alpha_s + sends * rates.hop_alpha_s,
        all_reduce_s_per_token=reduce_s_per_token + send_s_per_token,
        host_s=rates.host_s,
        host_s_per_sequence=rates.host_s_per_sequence,
        mix_factor=rates.mix_factor,
        inverse_p=rates.inverse_p,
        window_tokens=work.window_tokens,
        host_overlap=rates.host_overlap,
        exposed_host_s_per_sequence=rates.exposed_host_s_per_sequence,
        expert_spread=rates.expert_spread,
    )


def _decode_s(read_bytes: float, flops: float, rates: StepRates) -> float:
    """Return the time that one cached token costs a decode row [s]: reading it or multiplying with it.

    Both grow with the context alone, so their join is one figure; only latent attention comes near its compute side.
    """
    return float(smooth_max(read_bytes / rates.kv_bytes_per_s, flops / rates.attention_flops_per_s, rates.inverse_p))


def work_of(deployment: Deployment) -> StepWork:
    """Return what one GPU of a deployment holds, moves and computes."""
    model, kept = deployment.model, shard(deployment)
    return _work(model, deployment.kv_dtype, deployment.parallelism, kept, deployment.activation_element_bytes)


@lru_cache(maxsize=1024)
def _work(model: ModelSpec, kv_dtype: str, layout: Parallelism, part: Shard, element_bytes: int) -> StepWork:
    read = kv_read_bytes(model, kv_dtype, tp=layout.tp, pp=layout.pp)
    experts = tuple(group for group in model.groups if group.kind == "moe")
    expert_flops = routed_flops(experts) / (layout.pp * layout.tp)
    return StepWork(
        layers=float(part.layers),
        expert_layers=sum(group.count for group in experts) / layout.pp,
        stages=layout.pp,
        tensor_parallel=layout.tp,
        dense_bytes=part.weights.dense_bytes,
        expert_bytes=part.weights.expert_bytes,
        head_bytes=part.weights.head_bytes,
        dense_flops=max(part.flops.linear_flops - expert_flops, 0.0),
        expert_flops=expert_flops,
        head_flops=part.flops.head_flops,
        kv_bytes_per_token=read.full_bytes_per_token,
        window_bytes_per_token=read.window_bytes_per_token,
        state_bytes_per_sequence=read.state_bytes_per_sequence,
        window_tokens=float(read.window_tokens or 0),
        pair_flops=part.flops.full_pair_flops,
        window_pair_flops=part.flops.window_pair_flops,
        decode_pair_flops=part.flops.decode_full_pair_flops,
        decode_window_pair_flops=part.flops.decode_window_pair_flops,
        activation_bytes_per_token=part.activation_bytes_per_token,
        all_reduces=float(part.all_reduces),
        all_reduce_bytes_per_token=part.all_reduce_bytes_per_token,
        hop_bytes_per_token=float(model.hidden * element_bytes),
        expert_miss_ratio=expert_miss_ratio(experts),
    )


def routed_flops(groups: tuple[LayerGroup, ...]) -> float:
    """Return the FLOPs of one token in all routed experts that it visits, before sharding [FLOP/token]."""
    return sum(2.0 * group.count * (group.top_k or 0) * group.expert_params for group in groups)


def expert_miss_ratio(groups: tuple[LayerGroup, ...]) -> float:
    """Return the chance that one token misses one expert, 1 - k/E, weighted by the experts' parameters [1]; 1 without experts."""
    weights = [group.count * group.all_expert_params for group in groups]
    if not sum(weights):
        return 1.0
    misses = [1.0 - (group.top_k or 0) / (group.experts or 1) for group in groups]
    return sum(weight * miss for weight, miss in zip(weights, misses, strict=True)) / sum(weights)


def rates_of(deployment: Deployment, record: CalibrationRecord) -> StepRates:
    """Return the rates that a record gives a deployment; see coefficients_for for the errors."""
    gpu, quantization = deployment.gpu, deployment.quantization
    dtype = compute_dtype_on(gpu, quantization, deployment.engine.engine)
    sixteen = sixteen_bit_of(gpu)
    head_bits = quantization.bits_of("head")
    weights = weight_class(quantization.weight_bits)
    kv_share = record.kv_read_efficiency
    kv_rate = kv_share.value * _bandwidth(gpu, record) if kv_share else memory_rate(gpu, record, "bf16")
    cost = all_reduce_cost(record, deployment.parallelism.tp)
    hop = all_reduce_cost(record, 2 if deployment.parallelism.pp > 1 else 1)
    attention, fraction = record.attention_efficiency, record.activation_bandwidth_fraction
    host = record.host
    experts = record.expert_compute_efficiency or record.compute_efficiency
    return StepRates(
        weights_bytes_per_s=memory_rate(gpu, record, weights),
        head_bytes_per_s=memory_rate(gpu, record, weight_class(head_bits)),
        kv_bytes_per_s=kv_rate,
        dense_flops_per_s=compute_rate(gpu, record, dtype),
        expert_flops_per_s=expert_share(_efficiency(by_name(experts), dtype, record), deployment) * _peak(gpu, record, dtype),
        head_flops_per_s=compute_rate(gpu, record, sixteen if head_bits >= 16 else dtype),
        attention_flops_per_s=_peak(gpu, record, sixteen) * attention.value if attention else compute_rate(gpu, record, sixteen),
        activation_s_per_byte=1.0 / (fraction.value * _bandwidth(gpu, record)) if fraction else 0.0,
        layer_s=record.layer_s.value,
        expert_layer_s=expert_layer_share(deployment) * record.expert_layer_s.value if record.expert_layer_s else 0.0,
        all_reduce_alpha_s=cost.alpha_s,
        all_reduce_s_per_byte=cost.s_per_byte,
        hop_alpha_s=hop.alpha_s,
        hop_s_per_byte=hop.s_per_byte,
        host_s=host.host_s.value,
        host_s_per_sequence=host.host_s_per_sequence.value,
        exposed_host_s_per_sequence=host.exposed_host_s_per_sequence.value,
        mix_factor=record.mix_factor.value,
        expert_spread=record.expert_spread.value,
        inverse_p=record.smoothness.value,
        host_overlap=1.0 if deployment.engine.async_scheduling else 0.0,
    )


def peak_rates(deployment: Deployment) -> StepRates:
    """Return the rates of the data sheet with no constants and perfect overlap: the physical bound that no step can beat."""
    gpu, quantization = deployment.gpu, deployment.quantization
    dtype = compute_dtype_on(gpu, quantization, deployment.engine.engine)
    sixteen = sixteen_bit_of(gpu)
    memory, fastest = gpu.memory_bytes_per_s, gpu.peak_flops_per_s(dtype)
    return StepRates(
        weights_bytes_per_s=memory,
        head_bytes_per_s=memory,
        kv_bytes_per_s=memory,
        dense_flops_per_s=fastest,
        expert_flops_per_s=fastest,
        head_flops_per_s=gpu.peak_flops_per_s(sixteen if quantization.bits_of("head") >= 16 else dtype),
        attention_flops_per_s=gpu.peak_flops_per_s(sixteen),
        activation_s_per_byte=0.0,
        layer_s=0.0,
        expert_layer_s=0.0,
        all_reduce_alpha_s=0.0,
        all_reduce_s_per_byte=0.0,
        hop_alpha_s=0.0,
        hop_s_per_byte=0.0,
        host_s=0.0,
        host_s_per_sequence=0.0,
        exposed_host_s_per_sequence=0.0,
        mix_factor=1.0,
        expert_spread=1.0,
        inverse_p=0.0,
        host_overlap=1.0,
    )


def weight_class(bits: float) -> WeightClass:
    """Return the class of memory efficiency that weights of so many bits belong to.

    >>> weight_class(16.0), weight_class(8.002), weight_class(4.5)
    ('bf16', 'fp8', 'fp4')
    """
    if bits >= 12:
        return "bf16"
    return "fp8" if bits >= 6 else "fp4"


def sixteen_bit_of(gpu: GpuProfile) -> str:
    """Return the dtype that unquantised layers and attention compute in: bf16, else fp16, else fp32."""
    for dtype in SIXTEEN_BIT:
        if dtype in gpu.dense_flops_per_s:
            return dtype
    present = ", ".join(gpu.dense_flops_per_s)
    raise InputError("gpu", gpu.id, f"needs a 16-bit rate and has {present}", "Add its bf16 or fp16 rate to the profile")


def compute_dtype_on(gpu: GpuProfile, quantization: Quantization, engine: str) -> str:
    """Return the dtype that a quantization's matrix products run in on a GPU under an engine.

    bf16 and fp16 stand for each other. fp8 and fp4 weights on an NVIDIA GPU without such tensor cores are unpacked to 16 bit by the
    weight-only kernels (Marlin) of vLLM and SGLang from compute capability 7.5 on; the weights stay small in memory.

    Raises InputError when neither works.
    """
    dtype = quantization.compute_dtype
    if dtype in gpu.dense_flops_per_s:
        return dtype
    if dtype in SIXTEEN_BIT:
        return sixteen_bit_of(gpu)
    if engine in _WEIGHT_ONLY.get(dtype, ()) and gpu.vendor == "NVIDIA" and _capability(gpu) >= _WEIGHT_ONLY_SINCE:
        return sixteen_bit_of(gpu)
    present = ", ".join(gpu.dense_flops_per_s)
    bound = f"computes in {dtype}, and {gpu.name} has {present}"
    raise InputError("quantization", quantization.id, bound, f"Choose a GPU with {dtype}, or weights in 16 bit or int4")


def _capability(gpu: GpuProfile) -> float:
    try:
        return float(gpu.compute_capability or 0)
    except ValueError:
        return 0.0


def memory_rate(gpu: GpuProfile, record: CalibrationRecord, weights: WeightClass) -> float:
    """Return the rate at which a GPU streams weights of a class [B/s]."""
    return _efficiency(by_name(record.memory_efficiency), weights, record) * _bandwidth(gpu, record)


def compute_rate(gpu: GpuProfile, record: CalibrationRecord, dtype: str) -> float:
    """Return the rate at which a GPU's linear layers compute in a dtype [FLOP/s]."""
    return _efficiency(by_name(record.compute_efficiency), dtype, record) * _peak(gpu, record, dtype)


def _bandwidth(gpu: GpuProfile, record: CalibrationRecord) -> float:
    """A measured rate stays when the catalogue's figure is raised later, and falls with it when a device is capped."""
    known = record.reference_rate("memory_efficiency.bf16")
    return gpu.memory_bytes_per_s if known is None else min(known, gpu.memory_bytes_per_s)


def _peak(gpu: GpuProfile, record: CalibrationRecord, dtype: str) -> float:
    known = record.reference_rate(f"compute_efficiency.{dtype}")
    peak = gpu.peak_flops_per_s(dtype)
    return peak if known is None else min(known, peak)


def _efficiency(table: dict[str, Parameter], name: str, record: CalibrationRecord) -> float:
    if name not in table:
        bound = f"has {', '.join(table)} and no {name}"
        raise InputError("record", record.id, bound, "Take it from record_for, which fills in priors, or calibrate that dtype")
    return table[name].value


def all_reduce_cost(record: CalibrationRecord, size: int) -> AllReduceCost:
    """Return the cost of one all-reduce among `size` GPUs.

    A size between two that the record has is interpolated, straight in logarithms; one beyond them takes the nearest. The textbook
    record has none and costs nothing.

    Raises InputError when the record has none for a real GPU.
    """
    if size == 1 or record.basis == "textbook":
        return AllReduceCost(0.0, 0.0, "no communication")
    if not record.all_reduce:
        bound = f"has no all-reduce cost, and {size} GPUs are to share a layer"
        raise InputError("record", record.id, bound, "Use one GPU, or add the GPU's link or PCIe to its profile")
    sizes = sorted(record.all_reduce)
    if size in record.all_reduce:
        return _cost(record.all_reduce[size], f"at {size} GPUs")
    lower = max((known for known in sizes if known < size), default=None)
    upper = min((known for known in sizes if known > size), default=None)
    if lower is None or upper is None:
        nearest = sizes[0] if lower is None else sizes[-1]
        return _cost(record.all_reduce[nearest], f"no figure for {size} GPUs: that of {nearest} taken")
    share = math.log(size / lower) / math.log(upper / lower)
    first, second = _cost(record.all_reduce[lower], ""), _cost(record.all_reduce[upper], "")
    alpha_s = (1.0 - share) * first.alpha_s + share * second.alpha_s
    s_per_byte = first.s_per_byte ** (1.0 - share) * second.s_per_byte**share
    return AllReduceCost(alpha_s, s_per_byte, f"between {lower} and {upper} GPUs")


def _cost(parameters: AllReduce, note: str) -> AllReduceCost:
    return AllReduceCost(parameters.alpha_s.value, 1.0 / parameters.beta_bytes_per_s.value, note)
