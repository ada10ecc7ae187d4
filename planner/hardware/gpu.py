"""GpuProfile: what one accelerator can do, in SI units, dense, one device, one direction, each figure with its source."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.errors import InputError
from planner.hardware import checks
from planner.hardware.figures import (
    DTYPES,
    Bytes,
    Count,
    DeviceMemoryBytes,
    Dtype,
    FigureSource,
    FlopsPerS,
    Gigabytes,
    Identifier,
    Label,
    LinkBytesPerS,
    MemoryBytesPerS,
    Text,
    Topology,
    Watts,
)
from planner.hardware.reading import close_matches
from planner.provenance import Confidence, Source

_FROZEN = ConfigDict(frozen=True, extra="forbid")
DEFAULT_SOURCE = "*"


class Interconnect(BaseModel):
    """The fast link between accelerators, beside PCIe."""

    model_config = _FROZEN

    kind: Label = Field(description="name of the link, such as NVLink4")
    unidirectional_bytes_per_s: LinkBytesPerS = Field(description="bytes/s of all links of one GPU in one direction, such as 450e9")
    topology: Topology = Field(description="switch, pairs (bridge), mesh, torus or host")
    domain_gpus: Annotated[int, Field(ge=2, le=100_000, strict=True)] = Field(description="GPUs that one such domain can join")
    pair_bytes_per_s: LinkBytesPerS | None = Field(
        default=None, description="bytes/s between two neighbours in one direction, where it isn't the whole or an even share"
    )
    sold_separately: bool = Field(default=False, strict=True, description="true for a bridge that many machines don't have")

    @property
    def between_two_bytes_per_s(self) -> float:
        """Bytes/s from one GPU to one other: all links behind a switch or bridge, an even share of them in a mesh."""
        if self.pair_bytes_per_s is not None:
            return self.pair_bytes_per_s
        return self.unidirectional_bytes_per_s / (self.domain_gpus - 1 if self.topology == "mesh" else 1)

    @model_validator(mode="after")
    def _plausible(self) -> Self:
        checks.check_link(self.kind, self.unidirectional_bytes_per_s)
        neighbours = self.domain_gpus - 1 if self.topology == "mesh" else 1
        most = self.unidirectional_bytes_per_s / neighbours
        if self.pair_bytes_per_s is not None and self.pair_bytes_per_s > 1.01 * most:
            raise InputError(
                "pair_bytes_per_s",
                self.pair_bytes_per_s,
                f"must be at most {most:.4g}, the share of one neighbour",
                "Give the bytes a second between two GPUs",
            )
        return self


class Pcie(BaseModel):
    """The host link of one accelerator."""

    model_config = _FROZEN

    generation: Annotated[int, Field(ge=1, le=6, strict=True)] | None = Field(default=None, description="PCIe generation, 1 to 6")
    lanes: Annotated[int, Field(ge=1, le=32, strict=True)] = Field(description="lanes, such as 16")
    theoretical_bytes_per_s: LinkBytesPerS = Field(description="payload bytes/s in one direction, such as 63.0e9 for Gen 5 x16")
    achieved_bytes_per_s: LinkBytesPerS | None = Field(default=None, description="bytes/s that a copy reaches in one direction")

    @model_validator(mode="after")
    def _plausible(self) -> Self:
        checks.check_pcie(self.generation, self.lanes, self.theoretical_bytes_per_s, self.achieved_bytes_per_s)
        return self


class HostLink(BaseModel):
    """A coherent link to the CPU beside PCIe, as in Grace Hopper."""

    model_config = _FROZEN

    kind: Label = Field(description="name of the link, such as NVLink-C2C")
    unidirectional_bytes_per_s: LinkBytesPerS = Field(description="bytes/s of one GPU in one direction, such as 450e9")


class GpuProfile(BaseModel):
    """One accelerator as its driver shows it: one device, dense rates, one direction."""

    model_config = _FROZEN

    schema_version: Literal[1] = Field(default=1, description="layout of this file, 1")
    id: Identifier = Field(description="an id of small letters, digits, dots and dashes, equal to the file's name")
    name: Label = Field(description="the product's name, without angle brackets")
    vendor: Label = Field(description="the maker")
    form: Label = Field(description="SXM5, PCIe, OAM …")
    arch: Label = Field(description="the architecture and chip")
    launch_year: Annotated[int, Field(ge=2010, le=2100, strict=True)] = Field(description="the year of first shipment")
    compute_capability: Label | None = Field(default=None, description='compute capability or gfx target in quotes, such as "9.0"')
    memory_marketed_gb: Gigabytes = Field(description="the size in the product's name in GB; a label, never used in arithmetic")
    memory_type: Label = Field(description="HBM3, GDDR6 …")
    memory_reported_bytes: DeviceMemoryBytes = Field(
        description="bytes that the driver reports, such as 85520809984 for 81,559 MiB"
    )
    memory_exception: Text | None = Field(default=None, description="why less memory is usable than is marketed")
    memory_bytes_per_s: MemoryBytesPerS = Field(description="memory bandwidth in bytes/s, such as 3.35e12 for 3,350 GB/s")
    dense_flops_per_s: dict[Dtype, FlopsPerS] = Field(
        min_length=1,
        description="dense FLOP/s without sparsity, such as 989.4e12, of each dtype that the part has: " + ", ".join(DTYPES),
    )
    ratio_exception: dict[Dtype, Annotated[str, Field(min_length=20, max_length=500)]] = Field(
        default={}, description="by dtype: why its rate breaks the ratio rules, in a sentence"
    )
    link: Interconnect | None = Field(default=None, description="the fast link to other accelerators, if it has one")
    pcie: Pcie | None = Field(default=None, description="the PCIe link to the host")
    host_link: HostLink | None = Field(default=None, description="a coherent link to the CPU beside PCIe")
    tdp_w: Watts | None = Field(default=None, description="power limit as shipped in watts")
    multiprocessors: Count | None = Field(default=None, description="streaming multiprocessors, compute units or cores")
    l2_bytes: Bytes | None = Field(default=None, description="last cache before memory, in bytes")
    sources: dict[str, FigureSource] = Field(description='the origin of each figure; "*" is that of all others')

    def __hash__(self) -> int:
        """Profiles go into caches as arguments; equal ones have equal scalars."""
        return hash((self.id, self.name, self.memory_reported_bytes, self.memory_bytes_per_s, self.tdp_w))

    @property
    def confidence(self) -> Confidence:
        """How far the sources agree on this accelerator as a whole."""
        return self.sources[DEFAULT_SOURCE].confidence

    @property
    def usual_link(self) -> Interconnect | None:
        """The link that every machine with this accelerator has: None when there is none, or only as an option."""
        return None if self.link is None or self.link.sold_separately else self.link

    def source_for(self, field: str) -> Source:
        """Return the origin of one figure.

        field : name as in the file, such as "memory_bytes_per_s" or "dense_flops_per_s.bf16"
        """
        if field not in figure_names():
            raise InputError("field", field, "is no figure of a profile", f"Known near it: {close_matches(field, figure_names())}")
        table = field.partition(".")[0]
        return next(self.sources[name] for name in (field, table, DEFAULT_SOURCE) if name in self.sources)

    def peak_flops_per_s(self, dtype: str) -> float:
        """Return the dense rate of one device at a dtype [FLOP/s, OP/s].

        dtype : "bf16", "fp8" … of the matrix product

        Raises InputError naming those present: an absent rate is never guessed from another.
        """
        rates = self.dense_flops_per_s
        if dtype not in rates:
            present = ", ".join(rates)
            remedy = f"Compute in one of them, or choose an accelerator that has {dtype}"
            raise InputError("dtype", dtype, f"must be a rate that {self.name} has: {present}", remedy)
        return rates[dtype]

    @model_validator(mode="after")
    def _plausible(self) -> Self:
        rates = self.dense_flops_per_s
        checks.check_ratios(rates, frozenset(self.ratio_exception))
        checks.check_clock(rates, self.compute_capability, self.multiprocessors)
        checks.check_memory(self.memory_reported_bytes, self.memory_marketed_gb, self.memory_exception)
        return self

    @model_validator(mode="after")
    def _sourced(self) -> Self:
        if DEFAULT_SOURCE not in self.sources:
            raise InputError("sources", sorted(self.sources), 'must hold "*"', "Say where the figures come from")
        for name in self.sources:
            if name != DEFAULT_SOURCE and name not in figure_names():
                raise InputError("sources", name, "is no figure of a profile", f"Near it: {close_matches(name, figure_names())}")
        return self


_NAMES_NOT_FIGURES = frozenset({"schema_version", "id", "name", "sources", "memory_exception", "ratio_exception"})
_TABLES: dict[str, tuple[str, ...]] = {
    "dense_flops_per_s": DTYPES,
    "link": tuple(Interconnect.model_fields),
    "pcie": tuple(Pcie.model_fields),
    "host_link": tuple(HostLink.model_fields),
}


def figure_names() -> frozenset[str]:
    """Return the names of all figures that a profile can hold; those of its tables with a dot.

    >>> {"tdp_w", "link.domain_gpus", "dense_flops_per_s.fp8"} <= figure_names()
    True
    """
    return _FIGURE_NAMES


_FIGURE_NAMES = frozenset(set(GpuProfile.model_fields) - _NAMES_NOT_FIGURES) | {
    f"{table}.{key}" for table, keys in _TABLES.items() for key in keys
}
