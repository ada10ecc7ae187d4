"""How far the computed KV capacity is from what engines logged: every recorded start-up, its error, and whether it is covered."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import as_input_error
from planner.hardware import load_gpu
from planner.memory.activation import graphs_bytes
from planner.memory.budget import MemoryBudget, memory_budget
from planner.models import QUANTIZATIONS, ModelSpec, load_model, model_from_config
from planner.paths import PROFILES_DIR
from planner.units import GIB

EVIDENCE_DIR = PROFILES_DIR / "evidence"
RECORDED_FILE = EVIDENCE_DIR / "kv_capacity_vllm_h100.csv"
RECORDED_GPU = "h100-80g-sxm"
_TEXT_ONLY_HERE = frozenset({"kimi-vl-a3b-instruct", "mistral-small-24b-instruct-2501"})


class RecordedCapacity(BaseModel):
    """One start-up of an engine as its log told it; sizes in GiB as logged."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model_id: str
    quantization_id: str
    kv_dtype: str
    version: str
    date: str
    model: str
    tp: int = Field(ge=1)
    pp: int = Field(ge=1)
    max_model_len: int = Field(ge=2)
    dtype: str
    kv_cache_dtype: str
    gpu_memory_utilization: float = Field(gt=0, le=1)
    init_total_memory_gib: float = Field(gt=0)
    weight_memory_gib: float = Field(gt=0)
    activation_memory_gib: float = Field(gt=0)
    non_torch_forward_gib: float = Field(gt=0)
    cuda_graph_estimated_gib: float = Field(gt=0)
    cuda_graph_actual_gib: float = Field(gt=0)
    kv_cache_memory_gib: float = Field(gt=0)
    kv_cache_tokens: int = Field(gt=0)
    kv_cache_blocks: int = Field(gt=0)
    max_concurrency: float = Field(gt=0)


@dataclass(frozen=True, slots=True)
class CheckedRow:
    """One recorded start-up beside what the planner computes.

    error : computed ÷ logged KV tokens - 1 [1]
    covered : whether the formulas claim this configuration; reason says why not
    """

    recorded: RecordedCapacity
    budget: MemoryBudget
    graphs_estimated_bytes: float
    error: float
    covered: bool
    reason: str | None

    def document(self) -> dict[str, object]:
        """Return the row as plain values, sizes in bytes."""
        recorded, budget = self.recorded, self.budget
        return {
            "model": recorded.model,
            "quantization": recorded.quantization_id,
            "kv_dtype": recorded.kv_dtype,
            "tp": recorded.tp,
            "pp": recorded.pp,
            "max_model_len": recorded.max_model_len,
            "logged_kv_tokens": recorded.kv_cache_tokens,
            "computed_kv_tokens": budget.kv_tokens,
            "error": self.error,
            "weights_error_bytes": budget.weights_bytes - recorded.weight_memory_gib * GIB,
            "activation_error_bytes": budget.activation_bytes - recorded.activation_memory_gib * GIB,
            "graphs_error_bytes": self.graphs_estimated_bytes - recorded.cuda_graph_estimated_gib * GIB,
            "covered": self.covered,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Every recorded start-up checked; errors over the covered rows."""

    rows: tuple[CheckedRow, ...]

    @property
    def covered(self) -> tuple[CheckedRow, ...]:
        """Rows that the formulas claim."""
        return tuple(row for row in self.rows if row.covered)

    @property
    def median_error(self) -> float:
        """Median of the absolute relative errors of the covered rows [1]."""
        return statistics.median(abs(row.error) for row in self.covered)

    @property
    def worst_error(self) -> float:
        """Largest absolute relative error of the covered rows [1]."""
        return max(abs(row.error) for row in self.covered)

    def document(self) -> dict[str, object]:
        """Return the report as plain values."""
        return {
            "rows": [row.document() for row in self.rows],
            "covered": len(self.covered),
            "median_error": self.median_error,
            "worst_error": self.worst_error,
        }

    def text(self) -> str:
        """Return the table of misses, largest first, and the summary."""
        head = f"{'model':<46} {'weights':<9} tp pp {'logged':>9} {'computed':>9} {'error':>8} {'weights':>8} {'activ.':>7}  note"
        rows = sorted(self.rows, key=lambda row: abs(row.error), reverse=True)
        summary = (
            f"{len(self.rows)} start-ups of vLLM on H100; covered {len(self.covered)}: "
            f"median error {self.median_error:.2%}, worst {self.worst_error:.2%} of KV tokens"
        )
        return "\n".join([head, *map(_line, rows), "weights and activ.: computed less logged, GiB", summary])


def memory_report(rows: Sequence[RecordedCapacity] | None = None) -> MemoryReport:
    """Compare computed with logged KV capacity.

    rows : start-ups to check; None takes the 39 shipped ones, vLLM 0.19 on H100
    """
    return MemoryReport(tuple(check_row(row) for row in (recorded_capacities() if rows is None else rows)))


def check_row(row: RecordedCapacity) -> CheckedRow:
    """Return one start-up beside what the planner computes for it."""
    deployment = deployment_of(row)
    budget = memory_budget(deployment)
    covered = row.model_id not in _TEXT_ONLY_HERE
    return CheckedRow(
        recorded=row,
        budget=budget,
        graphs_estimated_bytes=graphs_bytes(deployment),
        error=(budget.kv_tokens or 0) / row.kv_cache_tokens - 1.0,
        covered=covered,
        reason=None if covered else "the logged checkpoint has a vision tower that the model here lacks",
    )


def deployment_of(row: RecordedCapacity) -> Deployment:
    """Return the deployment that a recorded start-up describes: the engine's defaults on H100 and the arguments it was given."""
    gpu = load_gpu(RECORDED_GPU)
    engine = engine_defaults("vllm", row.version, gpu, row.tp).replace(
        gpu_memory_utilization=row.gpu_memory_utilization, max_model_len=row.max_model_len, enable_prefix_caching=False
    )
    quantization = QUANTIZATIONS[row.quantization_id]
    return Deployment(gpu, _model(row.model_id), quantization, row.kv_dtype, Parallelism(tp=row.tp, pp=row.pp), engine)


@lru_cache(maxsize=4)
def recorded_capacities(file: Path = RECORDED_FILE) -> tuple[RecordedCapacity, ...]:
    """Return the start-ups recorded in a file; InputError when a row isn't one."""
    lines = (line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(_row(values) for values in csv.DictReader(_stripped(lines)))


def _stripped(lines: Iterable[str]) -> Iterable[str]:
    return (line for line in lines if line.strip())


def _row(values: dict[str, str]) -> RecordedCapacity:
    try:
        return RecordedCapacity.model_validate(values)
    except ValidationError as error:
        raise as_input_error(error, "recorded start-up") from error


@lru_cache(maxsize=64)
def _model(model_id: str) -> ModelSpec:
    """A model of the catalogue, or one whose config lies beside the recorded start-ups."""
    config = EVIDENCE_DIR / "models" / f"{model_id}.json"
    return model_from_config(config.read_bytes(), model_id) if config.is_file() else load_model(model_id)


def _line(row: CheckedRow) -> str:
    recorded, budget = row.recorded, row.budget
    weights_gib = budget.weights_bytes / GIB - recorded.weight_memory_gib
    activation_gib = budget.activation_bytes / GIB - recorded.activation_memory_gib
    return (
        f"{recorded.model[-46:]:<46} {recorded.quantization_id:<9} {recorded.tp:>2} {recorded.pp:>2} {recorded.kv_cache_tokens:>9} "
        f"{budget.kv_tokens or 0:>9} {row.error:>+8.2%} {weights_gib:>+8.2f} {activation_gib:>+7.2f}  {row.reason or ''}"
    ).rstrip()
