"""Which parameters a fit moves, how firmly each is held to its prior, and what the data have told about it afterwards."""

import datetime as dt
import math
from typing import NamedTuple

from planner.calibration.fit.groups import AllReduceRows, StepGroup
from planner.calibration.records import CalibrationRecord, Parameter
from planner.calibration.schema import InformedBy, bounds_of
from planner.calibration.spread import Z80
from planner.provenance import Source
from planner.step_coefficients import compute_dtype_on, sixteen_bit_of, weight_class

INFORMED_BELOW = 0.7
"""A parameter counts as informed by the data when they leave less than this share of the prior's standard deviation."""

_SMALLEST = 1e-9
_NARROWEST_SD = 0.02
_WIDEST_SD = 1.5


class FreeParameter(NamedTuple):
    """One parameter of a fit, as its logarithm.

    path : as CalibrationRecord.parameters yields it
    start, prior_sd : the prior's logarithm and its standard deviation
    low, high : physical bounds of the logarithm
    """

    path: str
    start: float
    prior_sd: float
    low: float
    high: float


def free_parameters(
    record: CalibrationRecord, groups: tuple[StepGroup, ...], all_reduces: tuple[AllReduceRows, ...], fixed: frozenset[str]
) -> tuple[FreeParameter, ...]:
    """Return the parameters that the rows can say something about.

    record : the prior, complete for the GPU
    fixed : paths that stay as they are
    """
    paths: dict[str, None] = {"layer_s": None} if groups else {}
    for group in groups:
        paths |= dict.fromkeys(_paths_of(group, record))
    sizes = {rows.tensor_parallel for rows in all_reduces} | {group.deployment.parallelism.tp for group in groups}
    for size in sorted(sizes & set(record.all_reduce)):
        paths |= {f"all_reduce.{size}.alpha_s": None, f"all_reduce.{size}.beta_bytes_per_s": None}
    known = dict(record.parameters())
    return tuple(_free(path, known[path]) for path in paths if path in known and path not in fixed)


def _paths_of(group: StepGroup, record: CalibrationRecord) -> list[str]:
    deployment = group.deployment
    quantization = deployment.quantization
    dtype = compute_dtype_on(deployment.gpu, quantization, deployment.engine.engine)
    sixteen = sixteen_bit_of(deployment.gpu)
    paths = [f"memory_efficiency.{weight_class(quantization.weight_bits)}", "memory_efficiency.bf16"]
    paths += [f"compute_efficiency.{dtype}", f"compute_efficiency.{sixteen}"]
    if deployment.model.is_moe:
        paths += [f"expert_compute_efficiency.{dtype}", "expert_layer_s", "expert_spread"]
    if record.attention_efficiency is not None and "prefill" in group.phase:
        paths.append("attention_efficiency")
    if record.kv_read_efficiency is not None and "decode" in group.phase:
        paths.append("kv_read_efficiency")
    if "mixed" in group.phase:
        paths.append("mix_factor")
    if group.measured == "step":
        paths += ["host.host_s", "host.host_s_per_sequence", "host.exposed_host_s_per_sequence"]
    return paths


def _free(path: str, prior: Parameter) -> FreeParameter:
    lowest, highest = bounds_of(path)
    value = max(prior.value, _SMALLEST)
    widest = max(math.log(value / max(prior.low, _SMALLEST)), math.log(max(prior.high, _SMALLEST) / value))
    sd = min(max(widest / Z80, _NARROWEST_SD), _WIDEST_SD)
    return FreeParameter(path, math.log(value), sd, math.log(max(lowest, _SMALLEST)), math.log(highest))


def kv_read_prior() -> Parameter:
    """Return what to expect of decode attention that doesn't stream as the weights do, before a fit: little."""
    ref = "decode attention on a CPU is bound by its kernel, far below the memory's rate: a wide guess"
    source = Source(kind="assumed", ref=ref, confidence="low")
    return Parameter(value=0.3, low=0.05, high=0.95, informed_by="assumed", source=source)


def fitted_parameter(free: FreeParameter, log_value: float, log_sd: float, source: str, day: dt.date) -> Parameter:
    """Return a fitted parameter with its 80 % interval, saying whether the data informed it.

    log_value, log_sd : of the fit; source : the measurements, in words; day : of the fit
    """
    value = min(max(math.exp(log_value), math.exp(free.low)), math.exp(free.high))
    low = max(value * math.exp(-Z80 * log_sd), math.exp(free.low))
    high = min(value * math.exp(Z80 * log_sd), math.exp(free.high))
    informed_by: InformedBy = "data" if log_sd < INFORMED_BELOW * free.prior_sd else "prior"
    confidence = "high" if informed_by == "data" else "medium"
    origin = Source(kind="fitted", ref=source[:1000], retrieved=day, confidence=confidence)
    return Parameter(
        value=_rounded(value), low=min(_rounded(low), _rounded(value)), high=max(_rounded(high), _rounded(value)),
        informed_by=informed_by, source=origin,
    )  # fmt: skip


def _rounded(value: float) -> float:
    """Four significant digits: more than any measurement carries, and short in the file."""
    return float(f"{value:.4g}")
