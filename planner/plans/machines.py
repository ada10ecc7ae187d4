"""The link of each machine that a plan may rent: which GPUs it joins, and what a calibration becomes over it."""

from collections.abc import Mapping, Sequence

from planner.calibration.all_reduce_priors import over_bridge, over_pcie
from planner.calibration.records import CalibrationRecord
from planner.deployment import Link, link_for
from planner.hardware import GpuProfile, Node, survey_nodes
from planner.pricing import Tariff

Machines = Mapping[tuple[str, str, str], Node]


def machines_by_name() -> Machines:
    """Return the nodes of clouds by provider, instance and GPU id, as price lists name them, without faulty files."""
    known = survey_nodes().nodes
    return {(node.provider, node.instance, node.gpu_id): node for node in known if node.provider and node.instance}


def by_link(
    gpu: GpuProfile, tensor_parallel: int, tariffs: Sequence[Tariff], machines: Machines
) -> list[tuple[Link | None, tuple[Tariff, ...]]]:
    """Return the machines that hold a replica, apart by the link that its all-reduces use; fastest link first.

    tariffs : machines with this GPU; one that no node describes is taken to have the link that every machine with this GPU has

    One group with all the tariffs where no machine holds a replica, or for one GPU, which needs no link.
    """
    holding = [tariff for tariff in tariffs if tariff.gpus_per_instance >= tensor_parallel]
    if tensor_parallel == 1 or not holding:
        return [(link_for(gpu, tensor_parallel), tuple(tariffs))]
    groups: dict[tuple[str, str, float | None], tuple[Link, list[Tariff]]] = {}
    for tariff in holding:
        link = link_for(gpu, tensor_parallel, machines.get((tariff.provider, tariff.instance, gpu.id)))
        if link is not None:
            key = (link.kind, link.topology, link.unidirectional_bytes_per_s)
            groups.setdefault(key, (link, []))[1].append(tariff)
    ordered = sorted(groups.values(), key=lambda group: -(group[0].unidirectional_bytes_per_s or 0.0))
    return [(link, tuple(members)) for link, members in ordered]


def record_over(record: CalibrationRecord, gpu: GpuProfile, link: Link | None) -> CalibrationRecord:
    """Return a calibration as it holds over a link: the GPU's own, certain to be there, or PCIe with PCIe's all-reduces.

    link : of the machine; None for one GPU
    """
    if link is not None and link.in_fast_domain:
        return over_bridge(record, gpu)
    if link is None or link.kind != "PCIe" or link.unidirectional_bytes_per_s is None:
        return record
    return over_pcie(record, gpu, link.unidirectional_bytes_per_s)
