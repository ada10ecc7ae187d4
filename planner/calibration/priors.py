"""The record of a GPU that nobody has calibrated: a prior scaled from measurements of others, each figure with its source.

The form of the step model already carries what tensor parallelism costs (smaller matrices, all-reduces, constants), so no
efficiency here falls with its size; what a whole engine loses for each doubling is the sum of those parts.
"""

import datetime as dt

from planner.calibration.all_reduce_priors import all_reduce_priors
from planner.calibration.families import Family, dtype_ratio, family_of, whole_experts
from planner.calibration.schema import CalibrationRecord, HostTerms, InformedBy, Parameter, Reference, bounds_of, by_name
from planner.hardware import GpuProfile
from planner.provenance import Kind, Source
from planner.units import US

_DATE = dt.date(2026, 11, 30)
BAND = 0.25

"""Half-width of a prior's 80 % interval: published runs of one GPU and engine lie within about a quarter of their median."""

EXPERT_RATIO = 0.2
"""Share of the linear layers' share that routed experts of 768 values reach in serving engines if stored in eight or four bits."""

SMOOTHNESS = 4.0 / 9.0
"""1/p of the norm that joins memory and compute time, p = 2.25: one constant for all GPUs.

Chosen on two independent sets of whole-step times, each fitted with all else free. Steps composed of vLLM operator tables (H100,
H200, A100, L40S; 2,496 steps) cost 362, 265, 256, 258, 270 and 372 at p = 1.5, 2, 2.25, 2.5, 3 and the hard maximum; steps composed
of Vidur's tables (A100, 8B and 70B; 2,143 steps) cost 66, 49, 51, 56, 66 and 130. The sets alone would choose 2.25 and 2.
"""

_ENGINE_MEDIANS = (
    "medians of published engine runs, 2023 to 2026 (step model of this project, README of hardware_profiles/calibrations)"
)
_FITTED_STEPS = "fits to steps composed of operator tables (aiconfigurator-core 0.12.0, Apache-2.0)"


def prior_record(gpu: GpuProfile, engine: str, version: str, host: HostTerms) -> CalibrationRecord:
    """Return what to expect of a GPU without any measurement of its own.

    gpu : its vendor, architecture, form, link and PCIe decide
    engine, version : named in the record; they choose the host terms, given as host
    host : CPU time around a step

    Every parameter's interval is at least a quarter to either side, or as wide as the machines that it was scaled from lie apart.
    """
    compute = compute_priors(gpu)
    sixteen = compute.get("bf16") or compute.get("fp16") or next(iter(compute.values()))
    return CalibrationRecord.model_validate(
        {
            "id": f"{gpu.id}/{engine}-{version}-prior",
            "gpu_id": gpu.id,
            "engine": engine,
            "engine_version": version,
            "basis": "prior",
            "description": f"Prior for {gpu.name}: nothing measured on it; scaled from GPUs that were",
            "created": _DATE,
            "reference": Reference(memory_bytes_per_s=gpu.memory_bytes_per_s, dense_flops_per_s={**gpu.dense_flops_per_s}),
            "memory_efficiency": memory_priors(gpu),
            "compute_efficiency": compute,
            "expert_compute_efficiency": {key: _expert(gpu, key, value) for key, value in compute.items()},
            "attention_efficiency": _scaled(sixteen, 0.83, "prefill attention reaches 0.71 to 0.85 of the linear layers' share"),
            "kv_read_efficiency": _kv_read(family_of(gpu), memory_priors(gpu)["bf16"]),
            "all_reduce": all_reduce_priors(gpu),
            **common_priors(gpu),
            "host": host,
        }
    )


def memory_priors(gpu: GpuProfile) -> dict[str, Parameter]:
    """Return the share of memory bandwidth by weight dtype.

    gpu : its family's fitted share at 16 bit where one was measured, with 0.85 and 0.65 of it for eight and four bits (H100's fp8
        fit, and fp8 and nvfp4 kernels of eight GPUs); else whole-engine medians, 0.80 and 0.58 for four bits
    """
    family = family_of(gpu)
    if family.memory_efficiency is None:
        eight = "whole-engine decode: 0.80 of bandwidth for bf16 and fp8 weights"
        return {
            "bf16": banded("memory_efficiency.bf16", 0.80, "prior", f"{eight}, {_ENGINE_MEDIANS}", "published"),
            "fp8": banded("memory_efficiency.fp8", 0.80, "prior", f"{eight}, {_ENGINE_MEDIANS}", "published"),
            "fp4": banded("memory_efficiency.fp4", 0.58, "prior", f"0.58 for four-bit weights, {_ENGINE_MEDIANS}", "published"),
        }
    shares = {"bf16": 1.0, "fp8": 0.85, "fp4": 0.65}
    base = family.memory_efficiency
    return {
        name: banded(f"memory_efficiency.{name}", base * share, "prior", f"{base:g} at 16 bit ({family.reason}) times {share:g}")
        for name, share in shares.items()
    }


def compute_priors(gpu: GpuProfile) -> dict[str, Parameter]:
    """Return the share of peak FLOP/s that linear layers reach, for every dtype that the GPU has a rate for."""
    family = family_of(gpu)
    efficiencies: dict[str, Parameter] = {}
    for dtype in gpu.dense_flops_per_s:
        ratio = dtype_ratio(gpu.id, dtype)
        assumed = "assumed" in {family.informed_by, ratio.informed_by}
        value = family.compute_efficiency * ratio.ratio
        reason = f"{family.compute_efficiency:g} at 16 bit ({family.reason}); times {ratio.ratio:g} ({ratio.reason})"
        informed_by: InformedBy = "assumed" if assumed else "prior"
        path = f"compute_efficiency.{dtype}"
        low = min(ratio.low / ratio.ratio, 1.0) * (1.0 - BAND) * value
        high = max(ratio.high / ratio.ratio, 1.0) * (1.0 + BAND) * value
        efficiencies[dtype] = _parameter(path, (value, low, high), informed_by, reason)
    return efficiencies


def common_priors(gpu: GpuProfile) -> dict[str, Parameter]:
    """Return the constants of a GPU until they are measured, by name; most are alike on all."""
    routing = "vLLM 0.24 on H100 with Qwen3-30B-A3B: routing, alignment and reduction kernels; "
    spread = (
        "1 fits operator tables with drawn routing at 32 tokens and more; 0.4 a real model's decode at 20 to 60 (vLLM 0.19, H100)"
    )
    return {
        "layer_s": _layer(family_of(gpu)),
        "expert_layer_s": _parameter("expert_layer_s", (40 * US, 20 * US, 60 * US), "prior", f"{routing}{_FITTED_STEPS}"),
        "mix_factor": _parameter(
            "mix_factor", (1.0, 1.0, 3.5), "assumed", "1.9 to 3.5 on RTX PRO 6000 and 4090; not verified elsewhere"
        ),
        "expert_spread": _parameter("expert_spread", (0.5, 0.3, 1.0), "prior", spread),
        "smoothness": smoothness(),
        "activation_bandwidth_fraction": _parameter(
            "activation_bandwidth_fraction",
            (0.85, 0.60, 0.95),
            "prior",
            "0.78 to 0.90 of memory bandwidth on H100, H200, A100 and L40S: element-wise part of the composed operator tables",
        ),
    }


def _layer(family: Family) -> Parameter:
    if family.layer_s is None:
        reason = f"70 µs, 55 to 85 under CUDA graphs with NVLink, {_ENGINE_MEDIANS}"
        return _parameter("layer_s", (70 * US, 52 * US, 88 * US), "prior", reason, "published")
    return _parameter("layer_s", (family.layer_s, 0.7 * family.layer_s, 88 * US), "prior", f"same chip family: {family.reason}")


def separate_mix_factor() -> Parameter:
    """Return the mix factor of an engine whose attention runs prefill chunks and decode rows in kernels of their own."""
    ref = (
        "TensorRT-LLM's attention operator runs context and generation requests in separate kernels (attentionOp.cpp), so that "
        "chunks don't make decode rows dearer; what vLLM's joint kernels cost is not carried over"
    )
    return _parameter("mix_factor", (1.0, 1.0, 2.0), "assumed", ref)


def smoothness() -> Parameter:
    """Return the p-norm's constant with the evidence for it."""
    ref = "p = 2.25 from two sets of step times: see planner.calibration.priors.SMOOTHNESS"
    return _parameter("smoothness", (SMOOTHNESS, 1 / 3, 0.57), "data", ref)


def completed(record: CalibrationRecord, gpu: GpuProfile) -> CalibrationRecord:
    """Return a record in which priors stand for the dtypes, tensor-parallel sizes and constants that it doesn't hold.

    record : of the same GPU; its own figures stay as they are
    gpu : decides the priors

    A dtype that wasn't measured is scaled from the record's own 16-bit share, not from the family's.
    """
    base = record.compute_efficiency.get("bf16") or record.compute_efficiency.get("fp16")
    compute = compute_priors(gpu)
    if base is not None:
        for dtype in compute:
            ratio = dtype_ratio(gpu.id, dtype)
            compute[dtype] = _scaled(base, ratio.ratio, f"this record's 16-bit share times {ratio.ratio:g}: {ratio.reason}")
    compute |= by_name(record.compute_efficiency)
    experts = {key: _expert(gpu, key, value) for key, value in compute.items()} | by_name(record.expert_compute_efficiency)
    common = {name: value for name, value in common_priors(gpu).items() if getattr(record, name) is None}
    common.pop("activation_bandwidth_fraction", None)
    reference = record.reference
    if reference is not None:
        rates = by_name(gpu.dense_flops_per_s) | by_name(reference.dense_flops_per_s)
        reference = Reference.model_validate({"memory_bytes_per_s": reference.memory_bytes_per_s, "dense_flops_per_s": rates})
    return record.model_copy(
        update={
            "reference": reference,
            "memory_efficiency": memory_priors(gpu) | by_name(record.memory_efficiency),
            "compute_efficiency": compute,
            "expert_compute_efficiency": experts,
            "all_reduce": all_reduce_priors(gpu) | record.all_reduce,
            **common,
        }
    )


def widened(parameter: Parameter, path: str, factor: float, reason: str) -> Parameter:
    """Return a parameter with a wider interval, informed by a prior: a figure taken over from another engine or version.

    factor : by what the distance of both ends from the value grows [1]
    """
    value = parameter.value
    low, high = value - factor * (value - parameter.low), value + factor * (parameter.high - value)
    return _parameter(path, (value, min(low, 0.9 * value), max(high, 1.1 * value)), "prior", f"{reason}; {parameter.source.ref}")


def banded(path: str, value: float, informed_by: InformedBy, reason: str, kind: Kind = "fitted") -> Parameter:
    """Return a parameter with the prior's band around it, cut at its physical bounds; kind : of the source unless it is assumed."""
    return _parameter(path, (value, (1.0 - BAND) * value, (1.0 + BAND) * value), informed_by, reason, kind)


def _parameter(
    path: str, figures: tuple[float, float, float], informed_by: InformedBy, reason: str, kind: Kind = "fitted"
) -> Parameter:
    value, low, high = figures
    lowest, highest = bounds_of(path)
    source = Source(
        kind="assumed" if informed_by == "assumed" else kind,
        ref=reason[:1000],
        retrieved=_DATE,
        confidence="low" if informed_by == "assumed" else "medium",
    )
    return Parameter(value=value, low=max(low, lowest), high=min(high, highest), informed_by=informed_by, source=source)


def _scaled(base: Parameter, ratio: float, reason: str) -> Parameter:
    """Return a share derived from another one, within physical bounds: a fit to a wrong model can leave next to nothing of it."""
    lowest, highest = bounds_of("attention_efficiency")
    value = max(lowest, min(highest, base.value * ratio))
    informed_by: InformedBy = "assumed" if base.informed_by == "assumed" else "prior"
    figures = (value, min(base.low * ratio, (1 - BAND) * value), max(base.high * ratio, (1 + BAND) * value))
    return _parameter("attention_efficiency", figures, informed_by, reason)


def _kv_read(family: Family, weights: Parameter) -> Parameter | None:
    """Attention reads the cache a little faster than matrix products stream weights, where the two could be told apart."""
    ratio = family.kv_read_ratio
    if ratio is None:
        return None
    reason = f"{ratio:g} of the share at which weights stream: steps of 8B and 70B on H100 and H200; {weights.source.ref}"
    value = min(ratio * weights.value, 0.96)
    return _parameter("kv_read_efficiency", (value, 0.92 * value, min(1.06 * value, 0.98)), "prior", reason)


def _expert(gpu: GpuProfile, dtype: str, base: Parameter) -> Parameter:
    """Grouped products over many narrow experts reach a fraction of the share of one large product."""
    if dtype in {"bf16", "fp16", "tf32", "fp32"}:
        whole = whole_experts(gpu)
        return _scaled(base, whole.ratio, f"{whole.ratio:g} of the linear layers' share at 768 values of an expert: {whole.reason}")
    reason = (
        "0.2 of the linear layers' share at 768 values of an expert on one GPU: prefill of MiniMax-M2.5, Kimi-K2.5 and "
        "DeepSeek-R1 in InferenceX runs (aiconfigurator's silicon table, Apache-2.0)"
    )
    return _scaled(base, EXPERT_RATIO, reason)
