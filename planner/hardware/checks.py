"""Plausibility of an accelerator's figures: the errors that catalogues really ship, refused with a reason.

Four families: rates with sparsity or of two devices taken for dense rates of one; vector rates taken for tensor rates; both
directions of a link taken for one; marketed memory taken for usable memory. Each check is a pure function that raises InputError.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from planner.errors import InputError
from planner.units import GB, GIB

Rates = Mapping[str, float]


class RatioRule(NamedTuple):
    """A rate may be at most `at_most` times the first of `bases` that is given."""

    dtype: str
    bases: tuple[str, ...]
    at_most: float


# Halving the width doubles the dense rate, at most triples it (FP4 on Blackwell Ultra); four times is a figure with sparsity. The
# exceptions are GeForce parts, where only the 16-bit (and on Blackwell the FP8) rate is halved by accumulating in FP32.
RATIO_RULES = (
    RatioRule("tf32", ("bf16", "fp16"), 1.0),
    RatioRule("fp8", ("bf16", "fp16"), 3.2),
    RatioRule("int8", ("bf16", "fp16"), 3.2),
    RatioRule("fp4", ("fp8",), 3.2),
    RatioRule("fp4", ("bf16", "fp16"), 8.1),
    RatioRule("int4", ("int8",), 3.2),
)
# The smallest tensor-to-vector ratio of a part with tensor cores is 2 (GeForce, L40); 1 is the vector rate entered twice.
LEAST_TENSOR_TO_VECTOR = 1.5


class TensorRate(NamedTuple):
    """What one multiprocessor of a compute capability can do.

    flops_per_cycle : dense FP16 FLOPs with FP32 accumulate of one SM or CU in one clock cycle
    clock_hz : highest clock that a data sheet of the capability implies
    """

    flops_per_cycle: float
    clock_hz: float


# NVIDIA architecture white papers (V100, Turing, A100, GA102, Ada, H100, Blackwell) and AMD CDNA2, CDNA3 and CDNA4 white papers;
# 8.7, 10.x, 11.0 and 12.x follow from the data sheets' FLOP/s, SM counts and clocks.
TENSOR_RATES: Mapping[str, TensorRate] = {
    "7.0": TensorRate(1024, 1.53e9),
    "7.5": TensorRate(1024, 1.80e9),
    "8.0": TensorRate(2048, 1.44e9),
    "8.6": TensorRate(1024, 1.80e9),
    "8.7": TensorRate(2048, 1.30e9),
    "8.9": TensorRate(1024, 2.52e9),
    "9.0": TensorRate(4096, 1.98e9),
    "10.0": TensorRate(8192, 2.01e9),
    "10.3": TensorRate(8192, 2.01e9),
    "11.0": TensorRate(8192, 1.58e9),
    "12.0": TensorRate(1024, 2.62e9),
    "12.1": TensorRate(1024, 2.55e9),
    "gfx90a": TensorRate(1024, 1.70e9),
    "gfx942": TensorRate(2048, 2.10e9),
    "gfx950": TensorRate(4096, 2.40e9),
}
# Overclocked boards run up to a quarter above; a doubled figure needs twice.
CLOCK_MARGIN = 1.25

# One direction, one GPU: links times 25 or 50 GB/s (NVIDIA data sheets quote both directions together).
NVLINK_BYTES_PER_S: Mapping[str, float] = {"1": 80e9, "2": 150e9, "3": 300e9, "4": 450e9, "5": 900e9}

PCIE_TRANSFERS_PER_S: Mapping[int, float] = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
PCIE_ENCODING: Mapping[int, float] = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}

# Reported memory lies between the marketed figure read as decimal GB (less 2 %) and the same read as GiB.
LEAST_SHARE_OF_MARKETED = 0.98


def pcie_bytes_per_s(generation: int, lanes: int) -> float:
    """Return the payload rate of a PCIe link in one direction [B/s].

    generation : 1 to 6
    lanes : 1 to 32

    Transfers a second times lanes times the line code (8b/10b, 128b/130b, and the 242 of 256 bytes of a Gen 6 FLIT); PCI-SIG base
    specifications 1 to 6. Packet headers take a further tenth or so, which is why achieved rates are stored beside it.

    >>> [round(pcie_bytes_per_s(generation, 16) / 1e9, 2) for generation in (3, 4, 5, 6)]
    [15.75, 31.51, 63.02, 121.0]
    """
    if generation not in PCIE_TRANSFERS_PER_S:
        raise InputError("generation", generation, f"must be one of {sorted(PCIE_TRANSFERS_PER_S)}", "Give the PCIe generation")
    return PCIE_TRANSFERS_PER_S[generation] * lanes / 8 * PCIE_ENCODING[generation]


def check_ratios(rates: Rates, excepted: frozenset[str] = frozenset()) -> None:
    """Refuse tensor rates that equal the vector rate, and rates whose ratio no dense tensor core has (RATIO_RULES).

    rates : dense FLOP/s or OP/s by dtype, those that the device has
    excepted : dtypes for which the profile says why they break the rules
    """
    for tensor in ("bf16", "fp16"):
        if tensor in excepted or tensor not in rates or "fp32" not in rates:
            continue
        if rates[tensor] < LEAST_TENSOR_TO_VECTOR * rates["fp32"]:
            raise InputError(
                f"dense_flops_per_s.{tensor}",
                rates[tensor],
                f"is {rates[tensor] / rates['fp32']:.2f} times fp32; a tensor rate is at least {LEAST_TENSOR_TO_VECTOR:g} times",
                f"Give the tensor-core rate, or say in ratio_exception why {tensor} is this slow",
            )
    for rule in RATIO_RULES:
        base = next((name for name in rule.bases if name in rates), None)
        if base is None or rule.dtype not in rates or rule.dtype in excepted:
            continue
        if rates[rule.dtype] > rule.at_most * rates[base]:
            raise InputError(
                f"dense_flops_per_s.{rule.dtype}",
                rates[rule.dtype],
                f"is {rates[rule.dtype] / rates[base]:.2f} times {base}; a dense rate is at most {rule.at_most:g} times",
                f"Give the rate without sparsity, or say in ratio_exception why {rule.dtype} is this fast",
            )


def check_clock(rates: Rates, compute_capability: str | None, multiprocessors: int | None) -> None:
    """Refuse a 16-bit rate that the multiprocessors could not reach at any clock that was ever shipped.

    rates : dense FLOP/s by dtype
    compute_capability, multiprocessors : of the device; nothing is checked where one is unknown

    Catches what ratios cannot: all dtypes doubled together (sparsity, or a pair of cards counted as one).
    """
    limits = TENSOR_RATES.get(compute_capability or "")
    dtype = next((name for name in ("bf16", "fp16") if name in rates), None)
    if limits is None or multiprocessors is None or dtype is None:
        return
    clock_hz = rates[dtype] / (multiprocessors * limits.flops_per_cycle)
    most_hz = limits.clock_hz * CLOCK_MARGIN
    if clock_hz > most_hz:
        raise InputError(
            f"dense_flops_per_s.{dtype}",
            rates[dtype],
            f"would need a clock of {clock_hz / 1e9:.2f} GHz on {multiprocessors} multiprocessors; at most {most_hz / 1e9:.2f} GHz",
            "Give the dense rate of one device, without sparsity",
        )


def check_memory(reported_bytes: float, marketed_gb: float, exception: str | None) -> None:
    """Refuse reported memory that the marketed figure cannot mean.

    reported_bytes : what the driver reports [B]
    marketed_gb : the figure in the product's name [GB]
    exception : why less is usable than marketed, or None

    Makers' GB is binary for most parts (an "80 GB" H100 reports 85.5e9 bytes, 79.6 GiB) and decimal for a few (a B300 reports
    288.4e9 for 288 GB). So marketed times 2^30 is the bound from above, without exception, and 98 % of marketed times 10^9 the
    bound from below: less means a unit slipped, or a pre-launch figure (MI325X: 256, announced as 288).
    """
    if reported_bytes > marketed_gb * GIB:
        raise InputError(
            "memory_reported_bytes",
            reported_bytes,
            f"must be at most memory_marketed_gb as GiB, {marketed_gb * GIB:.0f} bytes",
            "Give the bytes that the driver reports (MiB times 1,048,576)",
        )
    if exception is None and reported_bytes < LEAST_SHARE_OF_MARKETED * marketed_gb * GB:
        raise InputError(
            "memory_reported_bytes",
            reported_bytes,
            f"must be at least {LEAST_SHARE_OF_MARKETED:.0%} of memory_marketed_gb, {marketed_gb * GB:.0f} bytes",
            "Correct one of the two (a slice is marketed by its own size), or say in memory_exception why less is usable",
        )


def check_link(kind: str, unidirectional_bytes_per_s: float) -> None:
    """Refuse an NVLink figure that is above one direction of its generation: it is both directions together.

    kind : name such as "NVLink4 bridge"
    unidirectional_bytes_per_s : all links of one GPU, one direction [B/s]
    """
    generation = re.match(r"NVLink ?(\d)\b", kind)
    limit = NVLINK_BYTES_PER_S.get(generation.group(1)) if generation else None
    if limit is not None and unidirectional_bytes_per_s > limit:
        raise InputError(
            "unidirectional_bytes_per_s",
            unidirectional_bytes_per_s,
            f"is above one direction of NVLink{generation.group(1) if generation else ''}, {limit:.0f}",
            "Data sheets add both directions: give half",
        )


def check_pcie(generation: int | None, lanes: int, theoretical_bytes_per_s: float, achieved_bytes_per_s: float | None) -> None:
    """Refuse a PCIe rate that is off its generation's payload rate by over 1 %, or achieved above theoretical.

    generation, lanes : of the slot; None when unknown
    theoretical_bytes_per_s, achieved_bytes_per_s : one direction [B/s]
    """
    if generation is not None:
        expected = pcie_bytes_per_s(generation, lanes)
        if abs(theoretical_bytes_per_s / expected - 1.0) > 0.01:
            raise InputError(
                "theoretical_bytes_per_s",
                theoretical_bytes_per_s,
                f"differs from Gen {generation} x{lanes}, {expected / 1e9:.2f}e9 after the line code",
                "Give the payload rate of one direction, not the raw transfers",
            )
    if achieved_bytes_per_s is not None and achieved_bytes_per_s > theoretical_bytes_per_s:
        raise InputError(
            "achieved_bytes_per_s", achieved_bytes_per_s, "must be at most theoretical_bytes_per_s", "Give one direction, measured"
        )
