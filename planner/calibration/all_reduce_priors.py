"""What an all-reduce costs over each kind of link, scaled from tables of vLLM's all-reduce on nine machines."""

from typing import NamedTuple

from planner.calibration.schema import AllReduce, CalibrationRecord, InformedBy, Parameter
from planner.hardware import GpuProfile, Interconnect
from planner.provenance import Source
from planner.units import US

SIZES = (2, 4, 8)
_TABLES = "vLLM all-reduce tables of aiconfigurator-core 0.12.0 (Apache-2.0), alpha and beta fitted by size"
SWITCH_SHARE = {2: 0.57, 4: 0.61, 8: 0.70}
SWITCH_ALPHA_US = {2: 5.0, 4: 6.0, 8: 8.5}
PCIE_SHARE = {2: 0.60, 4: 0.43, 8: 0.35}
"""Share of PCIe's rate that a ring reaches on the median host of three.

L40S 0.12 and 0.06 among 4 and 8 cards, RTX PRO 6000 0.43 and 0.35 (all-reduce tables), RTX 5090 0.56 and 0.44 (NVIDIA/nccl issue
1639: 35 and 28 GB/s). Published runs of TensorRT-LLM on eight L40S show 0.43 at least.
"""
PCIE_ALPHA_US = {2: 5.0, 4: 14.0, 8: 21.0}
_PCIE_SHARE_RANGE = {2: (0.40, 0.80), 4: (0.12, 0.56), 8: (0.06, 0.44)}


def at_pair_rate(record: CalibrationRecord, gpu: GpuProfile) -> CalibrationRecord:
    """Return a record whose all-reduces over PCIe run at the rate of two cards, however many take part.

    record : as measured on some host; gpu : one with a link of its own is left as it is

    A ring sends each byte once over each hop, in both directions at once, so that its rate doesn't fall with its size where every
    card copies straight to the next. The record's own host may do worse: among four L40S it moves a fifth of what two do.
    """
    pair = record.all_reduce.get(2)
    if pair is None or (gpu.link is not None and gpu.link.topology != "host"):
        return record
    found = {size: cost.beta_bytes_per_s.value for size, cost in record.all_reduce.items()}
    slower = {size for size, beta in found.items() if size > 2 and beta < pair.beta_bytes_per_s.value}
    return record.with_values({f"all_reduce.{size}.beta_bytes_per_s": pair.beta_bytes_per_s.value for size in slower})


def over_pcie(record: CalibrationRecord, gpu: GpuProfile, pcie_bytes_per_s: float) -> CalibrationRecord:
    """Return a record as it holds on a machine that joins this GPU's cards by PCIe alone: their fast link isn't there.

    record : as measured or taken over, its all-reduces over the GPU's own link
    gpu : its link says which sizes were measured over it; without one, the record is over PCIe already and stays
    pcie_bytes_per_s : PCIe's rate of one card of the machine in one direction [B/s]

    Each size within the link's domain takes the prior of PCIe's median host, with its interval and source. What was measured on
    cards whose bridge is sold separately stays: the record alone knows its machine. The textbook record has no all-reduces.
    """
    link = gpu.link
    if link is None or link.topology == "host":
        return record
    kept = {
        size: cost
        for size, cost in record.all_reduce.items()
        if size > link.domain_gpus or (link.sold_separately and cost.beta_bytes_per_s.informed_by == "data")
    }
    slower = {size: _as_all_reduce(_over_pcie(pcie_bytes_per_s, size)) for size in SIZES if size in record.all_reduce}
    return record.model_copy(update={"all_reduce": slower | kept})


def over_bridge(record: CalibrationRecord, gpu: GpuProfile) -> CalibrationRecord:
    """Return a record as it holds on a machine whose cards are bridged: that the bridge may lack leaves the interval.

    record : as taken over, for any machine; gpu : one whose link isn't sold separately is left as it is
    """
    link = gpu.link
    if link is None or not link.sold_separately or link.topology not in {"switch", "pairs"}:
        return record
    there = link.model_copy(update={"sold_separately": False})
    surer = {
        size: _as_all_reduce(_over_switch(gpu, there, size))
        for size, cost in record.all_reduce.items()
        if size in SIZES and size <= link.domain_gpus and cost.beta_bytes_per_s.informed_by != "data"
    }
    return record.model_copy(update={"all_reduce": record.all_reduce | surer}) if surer else record


class _Cost(NamedTuple):
    """Bandwidth and latency before they become parameters, with the interval of the bandwidth."""

    alpha_s: float
    beta: float
    low: float
    high: float
    informed_by: InformedBy
    reason: str


def all_reduce_priors(gpu: GpuProfile) -> dict[int, AllReduce]:
    """Return the cost of an all-reduce among 2, 4 and 8 GPUs, as far as some link's bandwidth is known.

    gpu : its link, or PCIe beyond the link's domain, decides

    Over a switch it reaches 0.5 to 0.84 of a GPU's link, more with more GPUs (medians of A100, H100, H200, B200 and B300); over
    PCIe 0.6 between two cards, and between eight anything from 0.06 (a host that can't copy from card to card) to 0.44.
    """
    costs = {size: _cost(gpu, size) for size in SIZES}
    return {size: _as_all_reduce(cost) for size, cost in costs.items() if cost is not None}


def _cost(gpu: GpuProfile, size: int) -> _Cost | None:
    link = gpu.link
    if link is None or size > link.domain_gpus or link.topology == "host":
        return None if gpu.pcie is None else _over_pcie(gpu.pcie.theoretical_bytes_per_s, size)
    if link.topology in {"switch", "pairs"}:
        return _over_switch(gpu, link, size)
    if link.topology == "mesh":
        return _over_mesh(link, size)
    reason = f"{link.kind} as a ring: half of the link's rate assumed, no measurement"
    beta = 0.5 * link.unidirectional_bytes_per_s
    return _Cost(10 * US, beta, 0.5 * beta, 1.5 * beta, "assumed", reason)


def _over_switch(gpu: GpuProfile, link: Interconnect, size: int) -> _Cost:
    beta = SWITCH_SHARE[size] * link.between_two_bytes_per_s
    low, note = 0.8 * beta, ""
    if link.sold_separately and gpu.pcie is not None:
        low = min(low, PCIE_SHARE[size] * gpu.pcie.theoretical_bytes_per_s)
        note = "; the low end is PCIe, where no bridge is fitted"
    reason = f"{SWITCH_SHARE[size]:g} of {link.kind}'s rate, median of five machines: {_TABLES}{note}"
    return _Cost(SWITCH_ALPHA_US[size] * US, beta, low, 1.25 * beta, "prior", reason)


def _over_mesh(link: Interconnect, size: int) -> _Cost:
    """A full mesh gives `size` GPUs only the links between them: size - 1 of domain - 1."""
    usable = link.unidirectional_bytes_per_s * min(1.0, (size - 1) / (link.domain_gpus - 1))
    beta = SWITCH_SHARE[size] * usable
    links = f"{size - 1} of {link.domain_gpus - 1} links of {link.kind}"
    reason = f"{links}, {SWITCH_SHARE[size]:g} of their rate as over a switch ({_TABLES})"
    return _Cost(2 * SWITCH_ALPHA_US[size] * US, beta, 0.6 * beta, 1.4 * beta, "assumed", reason)


def _over_pcie(rate: float, size: int) -> _Cost:
    low, high = _PCIE_SHARE_RANGE[size]
    reason = f"{PCIE_SHARE[size]:g} of PCIe's rate, median host, from {low:g} to {high:g}: {_TABLES}; NVIDIA/nccl issue 1639"
    return _Cost(PCIE_ALPHA_US[size] * US, PCIE_SHARE[size] * rate, low * rate, high * rate, "prior", reason)


def _as_all_reduce(cost: _Cost) -> AllReduce:
    source = Source(kind="fitted" if cost.informed_by == "prior" else "assumed", ref=cost.reason, confidence="low")
    alpha = Parameter(
        value=cost.alpha_s, low=0.6 * cost.alpha_s, high=1.7 * cost.alpha_s, informed_by=cost.informed_by, source=source
    )
    beta = Parameter(value=cost.beta, low=cost.low, high=cost.high, informed_by=cost.informed_by, source=source)
    return AllReduce(alpha_s=alpha, beta_bytes_per_s=beta)
