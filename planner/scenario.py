"""The Scenario: one document with every input of a plan, the same in a file, a link, the shell and Python."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from planner.engines import check_block_size
from planner.errors import InputError, as_input_error, unique_fields

MAX_SCENARIO_BYTES = 64 * 1024
MAX_PLAN_BYTES = 4 * 1024 * 1024
LONGEST_TTFT_S = 86_400.0
USUAL_RATE_RPS = 10.0
_HEAD_CHARACTERS = 200
_SHOWN = 40


def _refuse_text(value: object) -> object:
    """Raise pydantic's own kind of error for a number in quotes, of which it would make one."""
    if isinstance(value, str | bytes):
        raise PydanticCustomError("text_for_number", "must be a number, not text")
    return value


Whole = Annotated[int, BeforeValidator(_refuse_text)]
Real = Annotated[float, BeforeValidator(_refuse_text)]
Id = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]


def _refuse_truth_values(value: object, path: str) -> None:
    """Raise InputError for true or false: no field of a scenario is one, and a number would be made of it."""
    if isinstance(value, bool):
        raise InputError(path, value, "must not be true or false", "Give a number, a text or null")
    if isinstance(value, dict):
        for field, inner in value.items():
            _refuse_truth_values(inner, f"{path}.{field}" if path else str(field))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_truth_values(inner, f"{path}[{index}]")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_values(cls, given: object) -> object:
        _refuse_truth_values(given, "")
        return given

    def __hash__(self) -> int:
        return hash(json.dumps(self.model_dump(mode="json"), sort_keys=True))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with fields changed, checked as the constructor checks them: pydantic's own takes whatever it is given."""
        if not update:
            return super().model_copy(deep=deep)
        return type(self).model_validate({**dict(self), **update})


class RateLoad(_Frozen):
    """Load stated as requests a second."""

    kind: Literal["rate"] = "rate"
    requests_per_s: Real = Field(gt=0, le=1e7, description="mean arrival rate [request/s]")


class UsersLoad(_Frozen):
    """Load stated as people: users × share active × requests each active user makes."""

    kind: Literal["users"] = "users"
    users: Whole = Field(gt=0, le=10**10, description="people who have access")
    active_share: Real = Field(gt=0, le=1, description="share of them active at once in the mean hour [1]")
    requests_per_user_minute: Real = Field(gt=0, le=1e4, description="requests an active user makes [request/min]")


class TokensPerDayLoad(_Frozen):
    """Load stated as tokens a day, prompt and output together."""

    kind: Literal["tokens_per_day"] = "tokens_per_day"
    tokens_per_day: Real = Field(gt=0, le=1e16, description="prompt and output tokens of a day [token/day]")


Load = Annotated[RateLoad | UsersLoad | TokensPerDayLoad, Field(discriminator="kind")]


class WorkloadChoice(_Frozen):
    """Which lengths and arrivals, and how much of them."""

    id: Id = Field(default="azure-conversation-2023", description="workload of the catalogue or of the user's folder")
    load: Load = Field(default=RateLoad(requests_per_s=USUAL_RATE_RPS))
    peak_factor: Real | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="rate to plan for ÷ the stated mean; None: a stated rate is planned as it is, users and tokens a day take the "
        "workload's own busiest hour",
    )


class ModelChoice(_Frozen):
    """Which model at which precision."""

    id: Id = "llama-3.1-8b-instruct"
    quantization: Id = Field(default="bf16", description="weights: an id of the quantization table")
    kv_dtype: Literal["auto", "bf16", "fp8"] = Field(default="auto", description="auto: what the quantization's checkpoint uses")


class Targets(_Frozen):
    """Latency targets at the 99th percentile; None leaves one open, both None is offline work."""

    ttft_p99_s: Real | None = Field(default=1.0, gt=0, le=LONGEST_TTFT_S, description="time to first token [s]")
    tpot_p99_s: Real | None = Field(default=0.030, gt=0, le=3600, description="time per output token after the first [s]")

    @property
    def offline(self) -> bool:
        """Whether only throughput counts."""
        return self.ttft_p99_s is None and self.tpot_p99_s is None


class HardwareChoice(_Frozen):
    """Where it may run and what an hour costs."""

    gpu_ids: tuple[Id, ...] = Field(default=(), max_length=100, description="GPUs to compare; empty compares every priced one")
    tensor_parallel: tuple[Annotated[Whole, Field(ge=1, le=64)], ...] = Field(
        default=(), max_length=16, description="TP sizes to try; empty tries every legal one that a node holds"
    )
    provider: str | None = Field(default=None, min_length=1, max_length=60, description="only prices of this provider")
    region: str | None = Field(default=None, min_length=1, max_length=60, description="only prices of this region")
    price_basis: Literal["on_demand", "spot"] = "on_demand"
    usd_per_gpu_hour: dict[Id, Annotated[Real, Field(gt=0, le=1e6)]] = Field(
        default_factory=dict, max_length=100, description="the user's own price by GPU id; wins over the catalogue"
    )


class EngineChoice(_Frozen):
    """Engine, version, and the settings that the user holds fixed; None lets the planner choose or takes the default."""

    engine: Literal["vllm"] = "vllm"
    version: str = Field(default="0.33.0", max_length=20, pattern=r"^\d+\.\d+(\.\d+)?$")
    max_num_seqs: Whole | None = Field(default=None, ge=1, le=65536)
    max_num_batched_tokens: Whole | None = Field(default=None, ge=1, le=2**20)
    max_model_len: Whole | None = Field(default=None, ge=2, le=2**27)
    gpu_memory_utilization: Real | None = Field(default=None, gt=0, le=1)
    block_size: Whole | None = Field(default=None, ge=1, le=8192)
    logged_kv_tokens: Whole | None = Field(
        default=None, ge=1, le=10**12, description="the engine's own 'GPU KV cache size' line; needs one GPU and one TP size"
    )
    calibration_id: str | None = Field(
        default=None, min_length=1, max_length=200, description="calibration record to use instead of the shipped one"
    )

    @model_validator(mode="after")
    def _blocks_that_the_engine_takes(self) -> Self:
        if self.block_size is not None:
            check_block_size(self.version, self.block_size)
        return self


class FleetChoice(_Frozen):
    """How much is kept free and how many replicas may fail."""

    headroom: Real = Field(
        default=0.15, ge=0, le=0.999, description="share of a replica's capacity kept free at the planned rate [1]"
    )
    spare_replicas: Whole = Field(default=1, ge=0, le=1000, description="replicas that may be down while targets hold")


class Scenario(_Frozen):
    """Every input of a plan. The defaults are a realistic question, answered when the app opens.

    `scenario_from_dict` and `scenario_from_json` refuse wrong input with an InputError; this constructor does so with pydantic's
    ValidationError, which lists every fault. Both are ValueErrors.
    """

    schema_version: Literal[1] = 1
    workload: WorkloadChoice = WorkloadChoice()
    model: ModelChoice = ModelChoice()
    hardware: HardwareChoice = HardwareChoice()
    targets: Targets = Targets()
    engine: EngineChoice = EngineChoice()
    fleet: FleetChoice = FleetChoice()
    seed: Whole = Field(default=1, ge=0, le=2**31 - 1, description="seed of every sampled quantity")

    @model_validator(mode="after")
    def _logged_kv_needs_one_layout(self) -> Self:
        if self.engine.logged_kv_tokens is not None and (
            len(self.hardware.gpu_ids) != 1 or len(self.hardware.tensor_parallel) != 1
        ):
            raise InputError(
                "engine.logged_kv_tokens",
                self.engine.logged_kv_tokens,
                "belongs to one GPU and one TP size",
                "Name exactly one hardware.gpu_ids and one hardware.tensor_parallel, or leave the logged size out",
            )
        return self

    @model_validator(mode="after")
    def _a_step_holds_a_token_of_each_sequence(self) -> Self:
        sequences, budget = self.engine.max_num_seqs, self.engine.max_num_batched_tokens
        if sequences is not None and budget is not None and budget < sequences:
            raise InputError(
                "engine.max_num_batched_tokens",
                budget,
                f"must be at least engine.max_num_seqs, {sequences}",
                "Raise it, lower max_num_seqs, or leave one of them to the plan",
            )
        return self

    def digest(self) -> str:
        """Return 16 hexadecimal digits that name this scenario: same inputs, same digest."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the scenario as JSON with sorted keys; `scenario_from_json` reads it back."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def scenario_from_json(text: str | bytes) -> Scenario:
    """Read a Scenario from JSON, or from a plan's whole document as `plan --json` prints it, which holds its scenario.

    Every fault is an InputError that names the field, the value, the bound and the remedy.

    >>> scenario_from_json('{"targets": {"ttft_p99_s": -1}}')
    Traceback (most recent call last):
        ...
    planner.errors.InputError: targets.ttft_p99_s is -1: must be greater than 0. Correct the field in the scenario.
    """
    most = MAX_PLAN_BYTES if _opens_a_plan(text) else MAX_SCENARIO_BYTES
    if len(text) > most:
        raise InputError("scenario", f"{len(text)} bytes", f"must be at most {most} bytes", "Give one scenario document")
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=unique_fields)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        shown = text[:_SHOWN] if isinstance(text, str) else text[:_SHOWN].decode("utf-8", errors="replace")
        raise InputError("scenario", shown, f"must be JSON ({error})", "Correct the document") from error
    return scenario_from_dict(document)


def scenario_from_dict(document: object) -> Scenario:
    """Make a Scenario from a plain mapping or from a plan's `plan_document`; raises InputError as `scenario_from_json` does."""
    if not isinstance(document, dict):
        raise InputError("scenario", document, "must be an object of fields", "Start from the default scenario and change fields")
    if "document_version" in document and "scenario" in document:
        return scenario_from_dict(document["scenario"])
    _refuse_truth_values(document, "")
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise as_input_error(error, "scenario") from error


def patched(scenario: Scenario, patch: Mapping[str, Any]) -> Scenario:
    """Return a scenario with fields set by dotted name, as a plan's `changes` name them; raises InputError as `scenario_from_json`.

    >>> patched(Scenario(), {"model.quantization": "fp8", "fleet.spare_replicas": 0}).model.quantization
    'fp8'
    """
    tree = scenario.model_dump()
    for path, value in patch.items():
        *parents, last = path.split(".")
        node: object = tree
        for part in parents:
            node = node.get(part) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            raise InputError(path, value, "is not a field of the scenario", "Name it as workload.load.requests_per_s is named")
        node[last] = value
    return scenario_from_dict(tree)


def _opens_a_plan(text: str | bytes) -> bool:
    """Whether a text begins as a plan's document does: that one is longer than any scenario."""
    head = text[:_HEAD_CHARACTERS]
    return '"document_version"' in (head.decode(errors="replace") if isinstance(head, bytes) else head)


def _refuse_constant(name: str) -> float:
    raise InputError("scenario", name, "must hold finite numbers", "Replace NaN and Infinity by numbers or null")
