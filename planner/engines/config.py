"""The settings of an inference engine, by vLLM's names, with their bounds and the rules between them."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from planner.engines.versions import VLLM_KNOB_SINCE, EngineName, check_version, vllm_facts
from planner.errors import InputError, as_input_error
from planner.provenance import Source

MAX_SEQS = 2**16
MAX_TOKENS_PER_STEP = 2**21
MAX_MODEL_LEN = 2**27

Usage = Literal["server", "offline"]
Policy = Literal["fcfs", "priority", "lpm", "guaranteed_no_evict", "max_utilization"]
OutputReservation = Literal["none", "clipped", "full"]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS_PER_STEP)]
Seqs = Annotated[int, Field(ge=1, le=MAX_SEQS)]

POLICIES: dict[EngineName, tuple[Policy, ...]] = {
    "vllm": ("fcfs", "priority"),
    "sglang": ("fcfs", "lpm", "priority"),
    "tensorrt-llm": ("guaranteed_no_evict", "max_utilization"),
}
USER_SOURCE = Source(kind="assumed", ref="set by the user")


class FieldSource(NamedTuple):
    """Where the value of one setting comes from; field "*" stands for all that have no entry."""

    field: str
    source: Source


class EngineConfig(BaseModel):
    """Every setting of an engine that changes a plan; SGLang's and TensorRT-LLM's are named by their vLLM counterpart."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    engine: EngineName = "vllm"
    version: str = Field(max_length=20, description="release of the engine")
    usage: Usage = Field(default="server", description="server: an OpenAI API server; offline: the LLM class over a file")
    max_num_seqs: Seqs = Field(description="sequences that may run at once [seq]; sizes the sampler's buffers")
    max_num_batched_tokens: Tokens = Field(description="tokens of one step [token]; SGLang: of one prefill pass")
    max_num_scheduled_tokens: Tokens | None = Field(default=None, description="cap below max_num_batched_tokens [token]")
    max_num_active_seqs: Seqs | None = Field(default=None, description="admission cap below max_num_seqs [seq]")
    max_model_len: Annotated[int, Field(ge=2, le=MAX_MODEL_LEN)] | None = Field(
        default=None, description="longest prompt and output together [token]; None: as long as the model and memory allow"
    )
    gpu_memory_utilization: float = Field(
        gt=0,
        le=1,
        description="vLLM: share of all memory, for everything; SGLang: for weights and KV; TensorRT-LLM: share of the rest [1]",
    )
    kv_cache_memory_bytes: Annotated[float, Field(gt=0, le=1e15)] | None = Field(
        default=None, description="KV cache size that replaces gpu_memory_utilization's [B]"
    )
    block_size: Annotated[int, Field(ge=1, le=8192)] = Field(
        default=16, description="tokens of a KV block [token]; an attention backend may raise it"
    )
    kv_cache_dtype: Literal["auto", "bf16", "fp8"] = Field(default="auto", description="auto: what the deployment names")
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    mixed_batches: bool = Field(default=True, description="prefill chunks and decode rows share a step")
    async_scheduling: bool = Field(default=True, description="the next step is scheduled while the GPU works on this one")
    scheduler_reserve_full_isl: bool = Field(default=True, description="admit only what has blocks for its whole known sequence")
    output_reservation: OutputReservation = Field(default="none", description="output tokens that admission reserves blocks for")
    long_prefill_token_threshold: Tokens | None = Field(default=None, description="most prefill tokens of one request in a step")
    long_prefill_token_threshold_adaptive: bool = Field(default=False, description="raise that cap to an equal share of the budget")
    prefill_schedule_interval: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="prefill is scheduled in one of so many steps while anything decodes"
    )
    watermark: float = Field(default=0.0, ge=0, lt=1, description="share of blocks kept free when admitting [1]")
    policy: Policy = "fcfs"
    cuda_graphs: bool = Field(default=True, description="decode steps are replayed from captured CUDA graphs")
    max_graph_tokens: Tokens | None = Field(
        default=512, description="the engine's ceiling of captured batches [token]; None: unknown"
    )
    stream_interval: Annotated[int, Field(ge=1, le=10_000)] = Field(default=1, description="tokens per streamed chunk")
    max_num_queued_reqs: Annotated[int, Field(ge=1, le=10**9)] | None = Field(default=None, description="refuse above this queue")
    max_num_queued_tokens: Annotated[int, Field(ge=1, le=10**12)] | None = Field(
        default=None, description="the same in prompt tokens"
    )
    sources: tuple[FieldSource, ...] = Field(default=(FieldSource("*", USER_SOURCE),), max_length=64)

    @field_validator("version")
    @classmethod
    def _without_v(cls, version: str) -> str:
        return version.removeprefix("v")

    @model_validator(mode="after")
    def _rules(self) -> Self:
        check_version(self.engine, self.version)
        self._rules_between_counts()
        if self.policy not in POLICIES[self.engine]:
            known = ", ".join(POLICIES[self.engine])
            raise InputError("engine.policy", self.policy, f"{self.engine} has {known}", "Choose one of these policies")
        if self.engine == "vllm":
            self._knobs_exist()
        return self

    def _rules_between_counts(self) -> None:
        tokens, seqs, length = self.max_num_batched_tokens, self.max_num_seqs, self.max_model_len
        if self.engine == "vllm" and tokens < seqs:
            bound = f"must be at least max_num_seqs ({seqs})"
            raise InputError("engine.max_num_batched_tokens", tokens, bound, "Raise it or lower max_num_seqs")
        if self.engine == "vllm" and not self.enable_chunked_prefill and length is not None and tokens < length:
            bound = f"must be at least max_model_len ({length}) when chunked prefill is off"
            remedy = "Raise it, lower max_model_len, or turn chunked prefill on"
            raise InputError("engine.max_num_batched_tokens", tokens, bound, remedy)
        self._at_most("max_num_active_seqs", "max_num_seqs")
        self._at_most("max_num_scheduled_tokens", "max_num_batched_tokens")
        self._at_most("long_prefill_token_threshold", "max_model_len")

    def _at_most(self, field: str, limit_field: str) -> None:
        value, limit = getattr(self, field), getattr(self, limit_field)
        if value is not None and limit is not None and value > limit:
            raise InputError(
                f"engine.{field}", value, f"must be at most {limit_field} ({limit})", f"Lower it or raise {limit_field}"
            )

    def _knobs_exist(self) -> None:
        minor = vllm_facts(self.version).minor
        for name, since in VLLM_KNOB_SINCE.items():
            default = type(self).model_fields[name].default
            value = getattr(self, name)
            unset = value == default or (name == "scheduler_reserve_full_isl" and value is False)
            if minor < since and not unset:
                raise InputError(f"engine.{name}", value, f"vLLM has it from 0.{since}.0 on", f"Unset it or plan for 0.{since}.0")

    @property
    def largest_graph_tokens(self) -> int | None:
        """Largest batch that runs from a CUDA graph [token]: vLLM captures up to twice max_num_seqs, others up to it; 0 without."""
        if not self.cuda_graphs:
            return 0
        if self.max_graph_tokens is None:
            return None
        if self.engine == "vllm":
            return min(2 * self.max_num_seqs, self.max_graph_tokens, self.max_num_batched_tokens)
        return min(self.max_num_seqs, self.max_graph_tokens)

    def source_for(self, field: str) -> Source:
        """Return where the value of a setting comes from."""
        by_field = dict(self.sources)
        return by_field.get(field) or by_field.get("*") or USER_SOURCE

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 - each field's own type is validated
        """Return the configuration with other values, checked again and marked as set by the user; InputError if they don't fit.

        >>> EngineConfig(version="0.33.0", max_num_seqs=8, max_num_batched_tokens=64, gpu_memory_utilization=0.9).replace(
        ...     max_num_seqs=16).max_num_seqs
        16
        """
        kept = tuple(entry for entry in self.sources if entry.field not in changes)
        marked = tuple(FieldSource(name, USER_SOURCE) for name in sorted(changes))
        values = {name: getattr(self, name) for name in type(self).model_fields} | {"sources": kept + marked} | changes
        return type(self).parse(values)

    @classmethod
    def parse(cls, values: object) -> Self:
        """Return a configuration from a mapping; every fault is an InputError that names the setting."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            fault = as_input_error(error, "engine settings")
            field = fault.field if fault.field.startswith("engine.") else f"engine.{fault.field}"
            raise InputError(field, fault.value, fault.bound, fault.remedy) from error
