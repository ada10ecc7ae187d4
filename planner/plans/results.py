"""What a plan says: one choice, every candidate with its reason, and what would change the answer."""

from dataclasses import dataclass
from typing import Any, Literal

from planner.calibration.records import CalibrationRecord
from planner.deployment import Deployment, Link
from planner.fleet import Replicas
from planner.memory import MemoryBudget
from planner.pricing import Cost, Tariff
from planner.scenario import Scenario
from planner.step_model import StepCoefficients
from planner.workloads import LengthStats, Workload

Reason = Literal[
    "weights do not fit",
    "KV cache is too small",
    "requests are too long",
    "layout is not legal",
    "precision is not supported",
    "TTFT target cannot be met",
    "TPOT target cannot be met",
    "costs more than another layout",
    "no machine to rent",
]
Method = Literal["simulated", "mean field"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the range that the calibration's error leaves open; nominally 80 %."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The load that the fleet is sized for.

    mean_rps : requests a second over the day; what the bill is divided by
    peak_rps : requests a second to plan for; the targets must hold here
    """

    mean_rps: float
    peak_rps: float
    peak_factor: float
    peak_source: str
    stated: str


@dataclass(frozen=True, slots=True)
class Knobs:
    """The two scheduler settings that the plan chooses."""

    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True)
class KnobCell:
    """One cell of the knob map: what a replica reaches with these settings.

    capacity_rps : largest rate that meets the targets; None when none does
    binds : what stops it
    running_peak : most sequences at once at that rate [seq]; None when nothing ran
    """

    knobs: Knobs
    capacity_rps: float | None
    binds: str
    running_peak: int | None


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of one replica at one arrival rate, and how they were obtained.

    ttft_mean_s, ttft_p99_s : None when no request got a token, as when all are refused [s]
    tpot_mean_s, tpot_p99_s : None when no request has a TPOT: outputs of one token have none [s]
    running_mean, running_peak : sequences in the batch [seq]; the mean-field model knows no peak
    kv_utilisation : mean share of the KV blocks in use [1]
    refused_share : requests that the engine refuses because they are longer than max_model_len or the KV cache [1]
    kv_free : no request ever waited for KV blocks or lost them, so that more of them change nothing; None where that isn't known
    """

    rate_rps: float
    ttft_mean_s: float | None
    ttft_p99_s: float | None
    tpot_mean_s: float | None
    tpot_p99_s: float | None
    running_mean: float
    running_peak: int | None
    kv_utilisation: float
    refused_share: float
    stable: bool
    binds: str
    method: Method
    kv_free: bool | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a candidate is not an answer, with the figures.

    detail : one sentence with the figures in it
    remedy : the nearest change that would make it one; None when nothing would
    miss : how far off, as a ratio above 1 (needed ÷ available); None where no ratio makes sense
    """

    reason: Reason
    detail: str
    remedy: str | None
    miss: float | None


@dataclass(frozen=True, slots=True)
class DefaultKnobs:
    """What the engine's own settings would reach on the same machine."""

    knobs: Knobs
    capacity_rps: float | None
    replicas: int | None
    extra_usd_per_day: float | None
    binds: str


@dataclass(frozen=True, slots=True, repr=False)
class Candidate:
    """One way to serve the scenario: a GPU, a layout and its settings, or the reason why not.

    link : what a replica's all-reduces travel over; None for one GPU
    several_links : other machines join the same GPUs by another link, which is a candidate of its own
    """

    gpu_id: str
    gpu_name: str
    tensor_parallel: int
    quantization_id: str
    kv_dtype: str
    rejection: Rejection | None
    deployment: Deployment | None = None
    record: CalibrationRecord | None = None
    memory: MemoryBudget | None = None
    coefficients: StepCoefficients | None = None
    knobs: Knobs | None = None
    capacity_rps: float | None = None
    binds: str | None = None
    latency: Latency | None = None
    replicas: Replicas | None = None
    cost: Cost | None = None
    tariff: Tariff | None = None
    link: Link | None = None
    several_links: bool = False

    @property
    def feasible(self) -> bool:
        """Whether it meets every target and can be bought."""
        return self.rejection is None

    @property
    def label(self) -> str:
        """Short name: GPU and TP size, and the link where machines differ in it."""
        if self.tensor_parallel == 1:
            return self.gpu_name
        over = f" over {self.link.kind}" if self.link is not None and self.several_links else ""
        return f"{self.gpu_name} × {self.tensor_parallel}{over}"

    def __repr__(self) -> str:
        figures = [
            "" if self.replicas is None else f"{self.replicas.total} replicas",
            "" if self.cost is None else f"${self.cost.usd_per_day:,.2f} a day",
            "" if self.rejection is None else self.rejection.detail,
        ]
        return f"<Candidate {self.label}: {', '.join(part for part in figures if part)}>"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the scenario and what it does.

    patch : fields of the scenario to set, by dotted name; None when nothing can be applied
    usd_per_day : change of the bill, negative saves; None when the change is not about money
    """

    title: str
    detail: str
    patch: dict[str, Any] | None
    usd_per_day: float | None


@dataclass(frozen=True, slots=True)
class NearestFeasible:
    """The smallest loosening of the targets that some candidate meets at a useful load, and what that costs."""

    candidate: Candidate
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Details:
    """Evidence for the chosen candidate.

    curve : latencies of one replica over arrival rates, up to saturation, on the sample of the candidate's own figures
    knob_map : the grid of settings that was searched
    replicas : replicas and capacity of one over the calibration's error
    ttft_p99_s, tpot_p99_s, usd_per_day : the same for the latencies at the planned rate and the bill
    impossible_draws : draws of the calibration in which no rate meets the targets; the intervals leave them out
    """

    curve: tuple[Latency, ...]
    knob_map: tuple[KnobCell, ...]
    default: DefaultKnobs
    replicas: Interval
    capacity_rps: Interval
    ttft_p99_s: Interval
    tpot_p99_s: Interval | None
    usd_per_day: Interval | None
    interval_source: str
    impossible_draws: int
    mean_field: Latency | None


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The answer to a scenario: the choice or the reason why there is none, every candidate, and what would change it."""

    scenario: Scenario
    workload: Workload
    lengths: LengthStats
    load: PlannedLoad
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    nearest: NearestFeasible | None
    details: Details | None
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    summary: str

    def __repr__(self) -> str:
        return f"<Plan: {self.summary}>"
