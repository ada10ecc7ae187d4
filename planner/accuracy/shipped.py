"""The error figures that ship with the planner: one document for each source of measured results, one for step times.

`python -m planner.accuracy.publish` writes them; hardware_profiles/evidence/accuracy/README.md says how.
"""

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.paths import PROFILES_DIR

FOLDER = PROFILES_DIR / "evidence" / "accuracy"
SOURCES_FOLDER = FOLDER / "sources"
STEPS_FILE = FOLDER / "steps.json"
RUN_FILE = FOLDER / "recorded_run.json"

Metric = Literal["tpot", "ttft", "throughput", "tpot_p99", "ttft_p99", "tpot_tail", "ttft_tail", "kv_tokens"]
"""tpot, ttft, throughput: at the stated statistic; _p99: the 99th percentile; _tail: 99th percentile ÷ median."""

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Count = Annotated[int, Field(ge=0, le=10**7)]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Errors(_Model):
    """A distribution of predicted ÷ measured - 1 [%]; above 0 is too slow for latencies, too much for throughput."""

    points: Count
    median_abs_pct: float
    mean_abs_pct: float
    p90_abs_pct: float
    bias_pct: float = Field(description="median with its sign")
    quantiles_pct: tuple[float, float, float, float, float] = Field(description="10th, 25th, 50th, 75th, 90th percentile, signed")


class Coverage(_Model):
    """How often the planner's 80 % interval held the measured figure."""

    points: Count
    covered_pct: Annotated[float, Field(ge=0, le=100)]
    half_width_pct: Annotated[float, Field(ge=0)] = Field(description="median of half the interval ÷ the prediction [%]")


class Part(_Model):
    """Rows of a source with the errors of their predictions."""

    rows: Count
    predicted: Count
    errors: dict[Metric, Errors] = Field(default={}, description="only metrics that some row states")
    coverage: dict[Metric, Coverage] = Field(default={}, description="of the 80 % intervals, where they were computed")


class GroupPart(Part):
    """The rows of one GPU, engine and model, by the catalogue's names."""

    gpu: Text
    engine: Text
    model: Text
    held_out: bool = Field(description="the group was no part of what the intervals were sized on")


class SourceReport(_Model):
    """What the accuracy command says of one source."""

    overall: Part
    held_out: Part = Field(description="rows of the held-out groups alone")
    groups: tuple[GroupPart, ...] = Field(description="largest errors first")
    not_predicted: dict[str, Count] = Field(description="rows by reason, the commonest first")
    not_compared: dict[str, Count] = Field(default={}, description="predicted rows with a figure that isn't compared, by reason")
    peer: dict[Metric, Errors] = Field(default={}, description="errors of another planner whose predictions the table holds")


class ShownRow(_Model):
    """One measured row beside its prediction, from a source whose terms allow it; latencies in seconds."""

    gpu: Text
    engine: Text
    version: str
    model: Text
    quantization: str
    tp: Annotated[int, Field(ge=1)]
    load: Text = Field(description="such as 'closed loop of 32', '10 requests/s'")
    prompt_tokens: float
    output_tokens: float
    measured: dict[Metric, float]
    predicted: dict[Metric, float]


class ShippedAccuracy(_Model):
    """What the accuracy command said of one source, with and without calibration records."""

    id: str = Field(pattern=r"^[a-z0-9_]+$", max_length=80)
    title: Text
    source: Text = Field(description="where the measured figures were published")
    terms: Text = Field(description="terms under which they were published")
    notice: Text | None = Field(default=None, description="what must be said wherever the figures are shown")
    caveat: Text = Field(description="what a reader must know before comparing")
    peer_name: Text | None = Field(default=None, description="the other planner whose predictions the table holds")
    date: Day = Field(description="when the command ran")
    command: Text
    shipped: SourceReport = Field(description="with the shipped calibration records")
    none: SourceReport = Field(description="with priors alone")
    rows: tuple[ShownRow, ...] = Field(default=(), description="only for sources whose terms allow it")


class StepGroupErrors(_Model):
    """Errors of whole-step times of one model at one tensor-parallel size on one GPU [%]."""

    gpu: Text
    engine: Text
    version: Text
    group: Text = Field(description="model, weights, tensor-parallel size")
    rows: Count
    errors: Errors = Field(description="of the shipped record, which has seen the group")
    held_out: Errors | None = Field(default=None, description="of a fit that hasn't; None where the GPU has one group alone")
    coverage: Coverage | None = Field(default=None, description="of 80 % intervals from the fit that hasn't seen the group")
    below_bound: Count = Field(description="predictions below what the data sheet allows; must be 0")


class GpuSteps(_Model):
    """The same over all groups of a GPU; limit : the median that is aimed at [%].

    by_range : where the GPU has one group alone: of fits without the third of the range of tokens in which a step of its phase lies
    """

    gpu: Text
    engine: Text
    version: Text
    rows: Count
    errors: Errors
    held_out: Errors | None = None
    by_range: Errors | None = None
    coverage: Coverage | None = None
    median_limit_pct: float | None = None
    mean_limit_pct: float | None = None


class ShippedSteps(_Model):
    """How far step times of the shipped records lie from recorded ones."""

    title: Text
    source: Text
    terms: Text
    caveat: Text
    date: Day
    command: Text
    gpus: tuple[GpuSteps, ...]
    groups: tuple[StepGroupErrors, ...]


class RunPhase(_Model):
    """Errors of mean times of one load that a recorded engine served, predicted from a record fitted on other phases [%].

    at_drift : largest error once steps follow the machine's speed; at_own_speed : with the one factor that suits the phase best
    """

    phase: Text
    requests: Count
    ttft_pct: float
    tpot_pct: float
    e2e_pct: float
    at_drift_pct: Annotated[float, Field(ge=0)]
    at_own_speed_pct: Annotated[float, Field(ge=0)]


class Redrawn(_Model):
    """Largest error that the machine's own step times leave when they were measured at another moment of its drift [%]."""

    draws: Count
    median_pct: float
    low_pct: float = Field(description="10th percentile")
    high_pct: float = Field(description="90th percentile")
    within_5_pct_share: Annotated[float, Field(ge=0, le=1)] = Field(description="draws whose errors all lie within 5 % [1]")


class ShippedRun(_Model):
    """How far a record lies from whole runs of a recorded engine, and what its machine's drift costs any record."""

    title: Text
    source: Text
    date: Day
    command: Text
    phases: tuple[RunPhase, ...] = Field(min_length=1)
    at_one_speed_pct: float = Field(description="least largest error that one factor on all phases' step times leaves [%]")
    redrawn: Redrawn


@lru_cache(maxsize=1)
def shipped_accuracy() -> tuple[ShippedAccuracy, ...]:
    """Return the documents of all sources, by id."""
    return tuple(ShippedAccuracy.model_validate_json(path.read_bytes()) for path in sorted(SOURCES_FOLDER.glob("*.json")))


@lru_cache(maxsize=1)
def shipped_steps() -> ShippedSteps:
    """Return the errors of step times by GPU."""
    return ShippedSteps.model_validate_json(STEPS_FILE.read_bytes())


@lru_cache(maxsize=1)
def shipped_run() -> ShippedRun:
    """Return the errors on a recorded engine's runs."""
    return ShippedRun.model_validate_json(RUN_FILE.read_bytes())
