"""Node: what one rents or buys. Prices are of nodes, never of GPUs, and the fast link ends where the node says."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.errors import InputError
from planner.hardware.figures import Bytes, Count, FigureSource, Identifier, Label, Text, Topology, Watts
from planner.hardware.gpu import DEFAULT_SOURCE, Pcie
from planner.provenance import Source

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class Host(BaseModel):
    """Processors and memory of the node; None where no source was found."""

    model_config = _FROZEN

    vcpus: Count | None = Field(default=None, description="virtual CPUs, or hardware threads of an owned machine")
    memory_bytes: Bytes | None = Field(default=None, description="main memory in bytes")

    @model_validator(mode="after")
    def _holds_something(self) -> Self:
        if self.vcpus is None and self.memory_bytes is None:
            raise InputError("vcpus", None, "must be set, or memory_bytes", "Leave the host table out when neither is known")
        return self


class Node(BaseModel):
    """One instance type or machine and the accelerators in it."""

    model_config = _FROZEN

    schema_version: Literal[1] = Field(default=1, description="layout of this file, 1")
    id: Identifier = Field(description="an id of small letters, digits, dots and dashes, equal to the file's name")
    name: Label = Field(description="the name that its maker or provider uses")
    provider: Identifier | None = Field(
        default=None, description="the cloud as in the price lists, or nothing for a machine to buy"
    )
    instance: Label | None = Field(default=None, description="the provider's name of the instance, as in the price lists")
    gpu_id: Identifier = Field(description="the id of the accelerator in it")
    gpu_count: Count = Field(description="accelerators in it, as the driver counts them")
    link_domain_gpus: Count = Field(
        description="accelerators that the fast link joins, beyond the node where it does; 1 for PCIe only"
    )
    topology: Topology = Field(description="switch, pairs, mesh or torus of the fast link; host when there is none")
    pcie: Pcie | None = Field(default=None, description="PCIe to each accelerator, where it differs from the accelerator's own")
    host: Host | None = Field(default=None, description="processors and memory of the host")
    power_w: Watts | None = Field(default=None, description="highest power drawn at the wall in watts")
    note: Text | None = Field(default=None, description="what else matters")
    sources: dict[str, FigureSource] = Field(description='the origin of each figure; "*" is that of all others')

    def __hash__(self) -> int:
        """Nodes go into caches as arguments."""
        return hash((self.id, self.gpu_id, self.gpu_count))

    def source_for(self, field: str) -> Source:
        """Return the origin of one figure, such as "power_w" or "host.vcpus"."""
        names = (field, field.partition(".")[0], DEFAULT_SOURCE)
        return next(self.sources[name] for name in names if name in self.sources)

    @property
    def largest_linked_gpus(self) -> int:
        """Accelerators of this one node that the fast link joins; tensor parallelism beyond it crosses PCIe."""
        return min(self.gpu_count, self.link_domain_gpus)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.topology == "host") != (self.link_domain_gpus == 1):
            raise InputError(
                "topology",
                self.topology,
                f"doesn't go with link_domain_gpus = {self.link_domain_gpus}: host means 1 and 1 means host",
                "Give both or neither a fast link",
            )
        if (self.provider is None) != (self.instance is None):
            raise InputError("instance", self.instance, "must be given with provider", "Give both, or neither for a machine to buy")
        if DEFAULT_SOURCE not in self.sources:
            raise InputError("sources", sorted(self.sources), 'must hold "*"', "Say where the figures come from")
        return self
