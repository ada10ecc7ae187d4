"""What the collectors write, one class for each kind of record; times in seconds, sizes in bytes, clocks in hertz."""

import datetime as dt
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.attention_pairs import causal_pairs
from planner.errors import InputError

MOST_FLOPS_PER_S = 1e17
"""No single device multiplies faster in any dtype: more than four times the densest FP4 rate of 2026."""
MOST_BYTES_PER_S = 1e14
"""No single device moves bytes faster: several times the memory bandwidth of 2026."""

_AGAIN = "Measure it again"

Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, strict=True)]
Moment = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=0, le=10**12, strict=True)]
Positive = Annotated[int, Field(ge=1, le=10**12, strict=True)]
Amount = Annotated[float, Field(ge=0, le=1e16, allow_inf_nan=False, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=300)]
Text = Annotated[str, Field(max_length=2000)]
Dtype = Literal["fp32", "bf16", "fp16", "fp8"]


class Claim(NamedTuple):
    """What a row says about a rate and about the time that it took to measure.

    rate, most : FLOP/s or B/s, and what no device reaches; None where the row states no rate
    took_s : time that must have passed while it was measured [s]
    """

    rate: float | None
    most: float
    took_s: float


class Row(BaseModel):
    """One record: its key and the time at which it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str]

    record: Name
    key: Name | None = None
    at_utc: dt.datetime

    def claim(self) -> Claim | None:
        """Return what can be checked against physics and the clock; None where nothing can."""
        return None


class Watched(Row):
    """A row with what was seen of the device while it was measured; None where the machine doesn't tell."""

    clock_hz: Amount | None = None
    clock_max_hz: Amount | None = None
    power_w: Amount | None = None
    power_limit_w: Amount | None = None
    temperature_c: Amount | None = None
    throttled: bool | None = None


class Timed(Watched):
    """A row with the median and quartiles of repeated measurements."""

    median_s: Seconds
    lower_quartile_s: Seconds
    upper_quartile_s: Seconds
    samples: Positive
    calls_per_sample: Positive = 1
    in_graph: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.lower_quartile_s <= self.median_s <= self.upper_quartile_s:
            raise InputError("median_s", self.median_s, "must lie between the quartiles", _AGAIN)
        return self

    def work(self) -> tuple[float, float]:
        """Return the work of one call and the most that a device does in a second; work 0 where there is none."""
        return 0.0, MOST_FLOPS_PER_S

    def claim(self) -> Claim | None:
        """Half of the samples took the median or longer."""
        amount, most = self.work()
        return Claim(amount / self.median_s, most, 0.5 * self.samples * self.calls_per_sample * self.median_s)


class Machine(BaseModel):
    """What identifies a machine or server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device_kind: Literal["cuda", "rocm", "cpu", "server"]
    device_name: Name
    device_memory_bytes: Amount | None = None
    multiprocessors: Positive | None = None
    cpu_name: Text | None = None
    cpu_threads: Positive | None = None


class Header(Row):
    """Begins each run of a collector."""

    kind: ClassVar[str] = "header"
    format: Literal["headroom-collected"]
    format_version: Literal[1]
    collector: Literal["torch", "links", "vllm", "http"]
    machine: Machine
    software: dict[Name, Text | None] = Field(max_length=20)
    settings: dict[Name, Any] = Field(max_length=20)
    command: Annotated[str, Field(max_length=20_000)]
    state: dict[Name, Amount | bool | None] | None = None


class Launch(Timed):
    """An empty kernel."""

    kind: ClassVar[str] = "launch"
    graph: bool


class DeviceCopy(Timed):
    """A copy within the device's memory: size_bytes are read and as many written."""

    kind: ClassVar[str] = "device_copy"
    size_bytes: Positive

    def work(self) -> tuple[float, float]:
        """Bytes read and written."""
        return 2.0 * self.size_bytes, MOST_BYTES_PER_S


class HostCopy(Timed):
    """A pinned copy between host and GPU; both: size_bytes each way at once."""

    kind: ClassVar[str] = "host_copy"
    way: Literal["to_device", "from_device", "both"]
    size_bytes: Positive

    def work(self) -> tuple[float, float]:
        """Bytes of one way."""
        return float(self.size_bytes), MOST_BYTES_PER_S


class Gemm(Timed):
    """A product of [tokens, k] by [k, n]."""

    kind: ClassVar[str] = "gemm"
    layer: Literal["qkv", "output", "gate_up", "down", "head"]
    dtype: Dtype
    tokens: Positive
    k: Positive
    n: Positive

    def work(self) -> tuple[float, float]:
        """FLOPs."""
        return 2.0 * self.tokens * self.k * self.n, MOST_FLOPS_PER_S


class Attention(Timed):
    """Attention of one layer on one GPU."""

    dtype: Dtype
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    context_tokens: Count


class DecodeAttention(Attention):
    """One query of each sequence on its cached tokens."""

    kind: ClassVar[str] = "decode_attention"
    sequences: Positive

    def work(self) -> tuple[float, float]:
        """FLOPs of both products."""
        return 4.0 * self.sequences * self.heads * self.head_dim * self.context_tokens, MOST_FLOPS_PER_S


class PrefillAttention(Attention):
    """A chunk of new tokens after cached ones, causal."""

    kind: ClassVar[str] = "prefill_attention"
    new_tokens: Positive

    def work(self) -> tuple[float, float]:
        """FLOPs of both products over the pairs that the mask leaves."""
        pairs = causal_pairs(self.context_tokens, self.new_tokens)
        return 4.0 * pairs * self.heads * self.head_dim, MOST_FLOPS_PER_S


class AllReduce(Timed):
    """An all-reduce of size_bytes among gpus processes."""

    kind: ClassVar[str] = "all_reduce"
    gpus: Annotated[int, Field(ge=2, le=4096, strict=True)]
    size_bytes: Positive
    backend: Name

    def work(self) -> tuple[float, float]:
        """Bytes that a ring sends over one link."""
        return 2.0 * (self.gpus - 1) / self.gpus * self.size_bytes, MOST_BYTES_PER_S


class Engine(Row):
    """One engine that was started: its settings as it resolved them, its KV blocks and its memory."""

    kind: ClassVar[str] = "engine"
    model: Name
    config: dict[str, Any]
    mode: Literal["sync", "async"]
    max_num_seqs: Positive
    max_num_batched_tokens: Positive
    max_model_len: Positive
    async_scheduling: bool
    tensor_parallel_size: Positive
    block_size: Positive
    num_gpu_blocks: Positive
    gpu_memory_utilization: Amount | None = None
    cache_dtype: Name
    enable_prefix_caching: bool | None = None
    enforce_eager: bool | None = None
    quantization: Name | None = None
    dtype: Name
    free_bytes: Amount | None = None
    total_bytes: Amount | None = None
    allocated_bytes: Amount | None = None
    log_lines: tuple[Text, ...] = Field(default=(), max_length=100)


class DecodeRun(NamedTuple):
    """Equal decode rows of a batch: how many, new tokens of each, cached tokens of each."""

    sequences: Positive
    tokens: Positive
    cached: Count


class PrefillRun(NamedTuple):
    """Equal prefill chunks of a batch: how many, new and cached tokens of each, and whether they end their prompts."""

    sequences: Positive
    tokens: Positive
    cached: Count
    ends: Annotated[int, Field(ge=0, le=1)]


class Step(Row):
    """One engine step; moments count from the engine's first burst."""

    kind: ClassVar[str] = "step"
    engine: Name
    point: Name
    decode: tuple[DecodeRun, ...] = Field(max_length=4096)
    prefill: tuple[PrefillRun, ...] = Field(max_length=4096)
    preempted: Count | None = None
    free_blocks: Count | None = None
    waiting: Count | None = None
    scheduled_at_s: Moment
    schedule_s: Moment
    output_at_s: Moment
    processed_at_s: Moment
    step_s: Seconds

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.scheduled_at_s <= self.output_at_s <= self.processed_at_s:
            raise InputError("output_at_s", self.output_at_s, "must lie between scheduled_at_s and processed_at_s", _AGAIN)
        if self.step_s > (self.processed_at_s - self.scheduled_at_s) * (1 + 1e-6) + 1e-6:
            raise InputError("step_s", self.step_s, "exceeds the time from decision to result: times must share one unit", _AGAIN)
        if not self.decode and not self.prefill:
            raise InputError("decode", [], "must hold a row where prefill is empty", _AGAIN)
        return self


class Point(Watched):
    """Ends the steps of one burst."""

    kind: ClassVar[str] = "point"
    engine: Name
    sequences: Positive
    prompt_tokens: Positive
    output_tokens: Positive
    injected_tokens: Count
    steps: Count


class Ttft(Timed):
    """Time to the first token of lone requests."""

    kind: ClassVar[str] = "ttft"
    prompt_tokens: Amount


class Request(BaseModel):
    """One request of a plateau, as the client saw it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: Positive
    output_tokens: Positive
    chunks: Positive
    ttft_s: Seconds
    e2e_s: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.ttft_s > self.e2e_s:
            raise InputError("ttft_s", self.ttft_s, "must not exceed e2e_s", _AGAIN)
        return self


class Plateau(Timed):
    """Time between chunks while `concurrency` requests decode."""

    kind: ClassVar[str] = "plateau"
    concurrency: Positive
    context_tokens: Amount
    tokens_per_chunk: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
    requests: tuple[Request, ...] = Field(max_length=100_000)

    def claim(self) -> Claim | None:
        """The clients work side by side: the longest request alone must fit."""
        return Claim(None, MOST_FLOPS_PER_S, max((request.e2e_s for request in self.requests), default=self.median_s))


class Injection(Timed):
    """Longest time between chunks of decoding requests while another prompt is computed; its own TTFT."""

    kind: ClassVar[str] = "injection"
    concurrency: Positive
    context_tokens: Amount
    injected_tokens: Positive
    ttft_s: Seconds

    def claim(self) -> Claim | None:
        """The injected request must fit."""
        return Claim(None, MOST_FLOPS_PER_S, self.ttft_s)


class Skipped(Row):
    """A point that wasn't measured, and why."""

    kind: ClassVar[str] = "skipped"
    reason: Text


class End(Row):
    """Ends a run; complete when nothing was left to measure."""

    kind: ClassVar[str] = "end"
    complete: bool
    state: dict[Name, Amount | bool | None] | None = None


_CLASSES: tuple[type[Row], ...] = (
    Header, Launch, DeviceCopy, HostCopy, Gemm, DecodeAttention, PrefillAttention, AllReduce, Engine, Step, Point, Ttft, Plateau,
    Injection, Skipped, End,
)  # fmt: skip
KINDS: dict[str, type[Row]] = {row.kind: row for row in _CLASSES}
