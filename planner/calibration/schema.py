"""CalibrationRecord: what a GPU reaches under one engine, each figure with its interval, its basis and its source.

A record holds fractions of the data sheet (efficiencies) beside the catalogue figures that they are fractions of, so that a later
correction of the catalogue doesn't change a measured rate.
"""

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.errors import InputError
from planner.provenance import Source

SCHEMA_VERSION = 1
RECORD_ID = r"^[a-z0-9][a-z0-9.+_-]*(/[a-z0-9][a-z0-9.+_-]*)?$"
MAX_TENSOR_PARALLEL = 1024

WeightClass = Literal["bf16", "fp8", "fp4"]
ComputeClass = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
InformedBy = Literal["data", "prior", "assumed"]
Basis = Literal["fitted", "published", "prior", "textbook"]

Figure = Annotated[float, Field(ge=0, le=1e16, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=-100, le=1e6, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
GpuId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=64)]

EFFICIENCY_RANGE = (0.01, 1.0)
SECONDS_RANGE = (0.0, 1.0)
BANDWIDTH_RANGE = (1e6, 1e14)
MIX_RANGE = (1.0, 20.0)
SHARE_RANGE = (0.0, 1.0)
ACTIVATION_RANGE = (0.05, 4.0)


T = TypeVar("T")


def by_name(table: Mapping[Any, T]) -> dict[str, T]:
    """Return a table whose keys are a closed set of names as one with any name, for lookups by text."""
    return dict(table.items())


class Parameter(BaseModel):
    """One figure of a record with its interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: Figure = Field(description="the figure that predictions use")
    low: Figure = Field(description="lower end of the 80 % interval")
    high: Figure = Field(description="upper end of the 80 % interval")
    informed_by: InformedBy = Field(
        description="data: measurements narrowed it; prior: other GPUs' measurements; assumed: judgement"
    )
    source: Source = Field(description="where it comes from")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.value <= self.high:
            bound = f"must lie between low ({self.low:g}) and high ({self.high:g})"
            raise InputError("value", self.value, bound, "Widen the interval or correct the value")
        return self


def check_range(name: str, parameter: Parameter, bounds: tuple[float, float]) -> None:
    """Raise InputError when a parameter's value or interval leaves its physical bounds.

    name : the parameter's path, for the message
    bounds : lowest and highest value that physics allows
    """
    lowest, highest = bounds
    for value in (parameter.low, parameter.value, parameter.high):
        if not lowest <= value <= highest:
            raise InputError(name, value, f"must lie between {lowest:g} and {highest:g}", "Check its unit: SI, fractions of 1")


class AllReduce(BaseModel):
    """Cost of one all-reduce among a number of GPUs: alpha_s + 2 (tp - 1) / tp * bytes / beta_bytes_per_s."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alpha_s: Parameter = Field(description="latency of one all-reduce [s]")
    beta_bytes_per_s: Parameter = Field(description="bandwidth of one GPU's link that large messages reach [B/s]")


class HostTerms(BaseModel):
    """CPU time around a step: a property of the server's CPU, the engine's version and its front end, not of the GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=RECORD_ID, max_length=80, description="name of this set of host terms")
    description: Text = Field(description="server, front end and load that it stands for")
    host_s: Parameter = Field(description="CPU time of a step that asynchronous scheduling hides [s]")
    host_s_per_sequence: Parameter = Field(description="the same for each sequence of the step [s/seq]")
    exposed_host_s_per_sequence: Parameter = Field(description="CPU time of each sequence that nothing hides [s/seq]")
    request_s: Parameter = Field(description="time that a request spends outside the engine before its first token [s]")

    @model_validator(mode="after")
    def _physical(self) -> Self:
        for name in HOST_SCALARS:
            check_range(f"host.{name}", getattr(self, name), SECONDS_RANGE)
        return self


class Reference(BaseModel):
    """Catalogue figures that a record's efficiencies are fractions of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes_per_s: Annotated[float, Field(ge=1e9, le=1e15, allow_inf_nan=False)]
    dense_flops_per_s: dict[ComputeClass, Annotated[float, Field(ge=1e9, le=1e19, allow_inf_nan=False)]]


class Achieved(BaseModel):
    """Absolute rates that the efficiencies stand for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes_per_s: dict[WeightClass, Figure] = Field(default={}, description="by weight dtype [B/s]")
    dense_flops_per_s: dict[ComputeClass, Annotated[float, Field(ge=0, le=1e19, allow_inf_nan=False)]] = Field(
        default={}, description="by compute dtype [FLOP/s]"
    )


class GroupError(BaseModel):
    """How far predictions lie from the measured steps of one model at one tensor-parallel size, in percent of the measured time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: Text
    rows: Annotated[int, Field(ge=1, le=10**7)]
    median_abs_pct: Percent
    mean_abs_pct: Percent
    worst_abs_pct: Percent
    bias_pct: Percent = Field(description="median of predicted / measured - 1; above 0 predicts too slow")
    held_out_median_abs_pct: Percent | None = Field(default=None, description="the same when the group was left out of the fit")
    held_out_mean_abs_pct: Percent | None = None


class Evidence(BaseModel):
    """The measurements behind a record and how well it reproduces them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Annotated[int, Field(ge=0, le=10**7)]
    groups: tuple[GroupError, ...] = Field(default=(), max_length=100)
    residual_log_sd: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = Field(
        default=None, description="spread of ln(predicted / measured) over all rows [1]"
    )
    seen: dict[str, tuple[Figure, Figure]] = Field(default={}, max_length=20, description="range of each input that was measured")
    held_out: Text = Field(description="what was held out, or why nothing could be")


class LogCovariance(BaseModel):
    """Covariance of the logarithms of the fitted parameters, for drawing from their joint distribution."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: tuple[str, ...] = Field(max_length=60)
    matrix: tuple[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], ...] = Field(max_length=60)

    @model_validator(mode="after")
    def _square_and_symmetric(self) -> Self:
        size = len(self.names)
        if len(self.matrix) != size or any(len(row) != size for row in self.matrix):
            raise InputError("covariance", len(self.matrix), f"must be {size} by {size}, one row a name", "Fit the record again")
        for i in range(size):
            for j in range(i + 1):
                if not math.isclose(self.matrix[i][j], self.matrix[j][i], rel_tol=1e-6, abs_tol=1e-12):
                    raise InputError("covariance", self.matrix[i][j], "must be symmetric", "Fit the record again")
        return self


class CalibrationRecord(BaseModel):
    """Everything that turns bytes and FLOPs into seconds on one kind of GPU under one engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    id: str = Field(pattern=RECORD_ID, max_length=128, description="gpu/engine-version, the path of its file")
    gpu_id: GpuId | None = Field(default=None, description="the GPU it was measured on; none for a record that suits any")
    engine: Annotated[str, Field(pattern=r"^[a-z0-9-]+$", max_length=32)]
    engine_version: Annotated[str, Field(pattern=r"^[A-Za-z0-9.+-]+$", max_length=32)] | None = None
    basis: Basis = Field(description="fitted here, published elsewhere, a prior scaled by evidence, or the textbook setting")
    description: Text
    created: dt.date
    cuda_graphs: bool = Field(default=True, description="whether the engine replayed CUDA graphs when it was measured")
    reference: Reference | None = Field(default=None, description="catalogue figures it was fitted with; none: the GPU's own")
    achieved: Achieved = Field(default=Achieved(), description="efficiencies times reference, for reading")

    memory_efficiency: dict[WeightClass, Parameter] = Field(min_length=1, description="share of memory bandwidth, by weight dtype")
    compute_efficiency: dict[ComputeClass, Parameter] = Field(min_length=1, description="share of peak FLOP/s, by compute dtype")
    expert_compute_efficiency: dict[ComputeClass, Parameter] = Field(default={}, description="the same for routed experts")
    attention_efficiency: Parameter | None = Field(
        default=None, description="share of the 16-bit peak that prefill attention reaches"
    )
    kv_read_efficiency: Parameter | None = Field(
        default=None, description="share of memory bandwidth at which attention reads keys and values; none: that of 16-bit weights"
    )
    layer_s: Parameter = Field(description="constant of one layer: launches, norms, synchronisation [s]")
    expert_layer_s: Parameter | None = Field(default=None, description="constant that routing adds to one layer with experts [s]")
    all_reduce: dict[int, AllReduce] = Field(default={}, max_length=12, description="by tensor-parallel size")
    mix_factor: Parameter = Field(description="how much dearer KV reads of decode rows are beside prefill chunks [1]")
    expert_spread: Parameter = Field(description="fresh experts drawn by each further token, against uniform routing [1]")
    smoothness: Parameter = Field(description="1/p of the norm that joins memory and compute time; 0 is the hard maximum [1]")
    activation_bandwidth_fraction: Parameter | None = Field(
        default=None, description="share of memory bandwidth at which activations move; none: not counted"
    )
    host: HostTerms
    evidence: Evidence | None = None
    covariance: LogCovariance | None = None

    @model_validator(mode="after")
    def _physical(self) -> Self:
        for name, parameter in self.parameters():
            check_range(name, parameter, bounds_of(name))
        for size in self.all_reduce:
            if not 2 <= size <= MAX_TENSOR_PARALLEL:
                raise InputError("all_reduce", size, f"must be a size from 2 to {MAX_TENSOR_PARALLEL}", "Leave other sizes out")
        self._check_achieved()
        return self

    def _check_achieved(self) -> None:
        rates = [(f"memory_efficiency.{key}", rate) for key, rate in self.achieved.memory_bytes_per_s.items()]
        rates += [(f"compute_efficiency.{key}", rate) for key, rate in self.achieved.dense_flops_per_s.items()]
        if rates and self.reference is None:
            raise InputError("achieved", rates[0][0], "needs the reference it is a fraction of", "Add reference or remove achieved")
        known = dict(self.parameters())
        for name, rate in rates:
            peak = self.reference_rate(name)
            expected = known[name].value * peak if name in known and peak is not None else None
            if expected is None or not math.isclose(rate, expected, rel_tol=1e-3):
                bound = f"must be efficiency times reference ({expected:g})" if expected else "has no efficiency and reference"
                raise InputError(f"achieved ({name})", rate, bound, "Correct whichever of the three is wrong")

    def reference_rate(self, name: str) -> float | None:
        """Return the catalogue rate that an efficiency is a fraction of [B/s or FLOP/s], or None where the record has none.

        name : path of an efficiency, such as "compute_efficiency.bf16"
        """
        if self.reference is None:
            return None
        if name.startswith("memory_efficiency."):
            return self.reference.memory_bytes_per_s
        return by_name(self.reference.dense_flops_per_s).get(name.partition(".")[2])

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield every parameter with its path, such as ("all_reduce.8.alpha_s", …) or ("host.host_s", …)."""
        for table in EFFICIENCIES:
            for key, parameter in getattr(self, table).items():
                yield f"{table}.{key}", parameter
        for size, cost in self.all_reduce.items():
            yield f"all_reduce.{size}.alpha_s", cost.alpha_s
            yield f"all_reduce.{size}.beta_bytes_per_s", cost.beta_bytes_per_s
        for name in SCALARS:
            parameter = getattr(self, name)
            if parameter is not None:
                yield name, parameter
        for name in HOST_SCALARS:
            yield f"host.{name}", getattr(self.host, name)

    def with_values(self, values: Mapping[str, float]) -> Self:
        """Return the record with other values at some paths, intervals left as they are and nothing checked: for fits and draws.

        values : by path, as `parameters` yields them; a path that the record lacks raises KeyError
        """
        known = dict(self.parameters())
        changed = {path: known[path].model_copy(update={"value": value}) for path, value in values.items()}
        return self.with_parameters(changed)

    def with_parameters(self, parameters: Mapping[str, Parameter]) -> Self:
        """Return the record with other parameters at some paths, nothing checked; validate the result before it is kept."""
        update: dict[str, Any] = {}
        for path, parameter in parameters.items():
            table, _, rest = path.partition(".")
            if not rest:
                update[table] = parameter
            elif table == "host":
                update[table] = update.get(table, self.host).model_copy(update={rest: parameter})
            elif table == "all_reduce":
                size, _, name = rest.partition(".")
                costs = dict(update.get(table, self.all_reduce))
                costs[int(size)] = costs[int(size)].model_copy(update={name: parameter})
                update[table] = costs
            else:
                update[table] = {**update.get(table, getattr(self, table)), rest: parameter}
        return self.model_copy(update=update)

    def only(self, paths: Iterable[str]) -> Self:
        """Return the record without those entries of its tables (efficiencies, all-reduces) that aren't named; constants stay.

        paths : as `parameters` yields them; what is left out is filled in from priors when the record is used
        """
        kept = set(paths)
        update: dict[str, Any] = {
            table: {key: value for key, value in getattr(self, table).items() if f"{table}.{key}" in kept} for table in EFFICIENCIES
        }
        update["all_reduce"] = {
            size: cost for size, cost in self.all_reduce.items() if f"all_reduce.{size}.beta_bytes_per_s" in kept
        }
        return self.model_copy(update=update).with_achieved()

    def with_achieved(self) -> Self:
        """Return the record with the absolute rates that its efficiencies stand for written out, for readers."""
        rates: dict[str, dict[str, float]] = {"memory_efficiency": {}, "compute_efficiency": {}}
        for path, parameter in self.parameters():
            table, _, name = path.partition(".")
            peak = self.reference_rate(path) if table in rates else None
            if peak is not None:
                rates[table][name] = float(f"{parameter.value * peak:.5g}")
        document = {"memory_bytes_per_s": rates["memory_efficiency"], "dense_flops_per_s": rates["compute_efficiency"]}
        return self.model_copy(update={"achieved": Achieved.model_validate(document)})

    def with_host(self, host: HostTerms) -> Self:
        """Return the record with other host terms: another server, or another front end."""
        return self.model_copy(update={"host": host})


EFFICIENCIES = ("memory_efficiency", "compute_efficiency", "expert_compute_efficiency")
SCALARS = (
    "attention_efficiency",
    "kv_read_efficiency",
    "layer_s",
    "expert_layer_s",
    "mix_factor",
    "expert_spread",
    "smoothness",
    "activation_bandwidth_fraction",
)
HOST_SCALARS = ("host_s", "host_s_per_sequence", "exposed_host_s_per_sequence", "request_s")
_BOUNDS = {
    "host": SECONDS_RANGE,
    "memory_efficiency": EFFICIENCY_RANGE,
    "compute_efficiency": EFFICIENCY_RANGE,
    "expert_compute_efficiency": EFFICIENCY_RANGE,
    "attention_efficiency": EFFICIENCY_RANGE,
    "kv_read_efficiency": EFFICIENCY_RANGE,
    "layer_s": SECONDS_RANGE,
    "expert_layer_s": SECONDS_RANGE,
    "mix_factor": MIX_RANGE,
    "expert_spread": SHARE_RANGE,
    "smoothness": SHARE_RANGE,
    "activation_bandwidth_fraction": ACTIVATION_RANGE,
}


def bounds_of(name: str) -> tuple[float, float]:
    """Return the lowest and highest value that physics allows a parameter; name : its path.

    >>> bounds_of("memory_efficiency.bf16")
    (0.01, 1.0)
    """
    if name.startswith("all_reduce."):
        return SECONDS_RANGE if name.endswith(".alpha_s") else BANDWIDTH_RANGE
    return _BOUNDS[name.partition(".")[0]]
