"""The memory that an engine sees: what the driver reports less what the driver keeps for itself."""

import datetime as dt

from planner.hardware import GpuProfile
from planner.provenance import Source
from planner.units import GIB

# Total that the CUDA runtime shows, in GiB, by GPU id.
_SEEN_GIB: dict[str, float] = {
    "h100-80g-sxm": 79.19,
    "h200-141g-sxm": 139.80,
    "b200-sxm": 178.35,
    "b300-sxm": 267.69,
    "a100-80g-sxm": 79.25,
    "a100-40g-sxm": 39.49,
    "l40s": 44.39,
    "l4": 22.03,
    "t4": 14.56,
    "rtx-4090": 23.52,
    "rtx-5090": 31.36,
    "rtx-pro-6000-bw-server": 94.97,
    "rtx-pro-6000-bw-ws": 94.97,
}
_RESERVE_BYTES = 0.42 * GIB
_RESERVE_SHARE = 0.0016
_SAME_CARD = 0.965
_RETRIEVED = dt.date(2026, 11, 30)


def visible_memory_bytes(gpu: GpuProfile) -> float:
    """Return the total that an engine multiplies by its utilisation [B]; see `visible_memory_source`.

    For a card without a figure of its own an NVIDIA driver is taken to keep 0.42 GiB + 0.16 % of what it reports. Fitted on T4,
    4090, A100-40, H100, RTX PRO 6000 and B200; on L4, 5090, L40S, A100-80, H200 and B300 it is off by at most 0.25 % of the
    memory. Others are taken as their driver reports them: an MI300X's HIP runtime shows 191.98 of 192 GiB.
    """
    reported_bytes = gpu.memory_reported_bytes
    seen_gib = _SEEN_GIB.get(gpu.id)
    if seen_gib is not None and reported_bytes * _SAME_CARD <= seen_gib * GIB <= reported_bytes:
        return seen_gib * GIB
    if gpu.vendor == "NVIDIA":
        return reported_bytes * (1.0 - _RESERVE_SHARE) - _RESERVE_BYTES
    return reported_bytes


def visible_memory_source(gpu: GpuProfile) -> Source:
    """Return where `visible_memory_bytes` comes from for this GPU."""
    seen_gib = _SEEN_GIB.get(gpu.id)
    if seen_gib is not None and visible_memory_bytes(gpu) == seen_gib * GIB:
        ref = f"{seen_gib} GiB in start-up logs and out-of-memory messages of public issue threads ('total capacity of … GiB')"
        return Source(kind="published", ref=ref, retrieved=_RETRIEVED, confidence="high")
    if gpu.vendor == "NVIDIA":
        ref = "driver-reported memory less 0.42 GiB and 0.16 %, fitted on six cards and checked on six others"
        return Source(kind="fitted", ref=ref, retrieved=_RETRIEVED, confidence="medium")
    return Source(kind="assumed", ref="all memory that the driver reports", retrieved=_RETRIEVED, confidence="low")
