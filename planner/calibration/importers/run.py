"""One schema for what benchmark tools report: the load that was offered and the latencies that were seen, in SI units."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.errors import InputError

Arrivals = Literal["closed", "poisson", "gamma", "constant", "trace", "burst"]
Weight = Literal["request", "token", "chunk"]
Metric = Literal["ttft", "tpot", "itl", "e2e"]

MAX_REQUESTS = 200_000
MOST_S = 1e6
"""Longest time that a result may state [s]."""

Text = Annotated[str, Field(max_length=300)]
Seconds = Annotated[float, Field(ge=0, le=MOST_S)]
Tokens = Annotated[float, Field(ge=1, le=1e7)]
Count = Annotated[int, Field(ge=0, le=10**8)]
Rate = Annotated[float, Field(gt=0, le=1e7)]
Setting = Annotated[int, Field(ge=1, le=2**27)]
Length = Annotated[int, Field(ge=1, le=10**7)]


class Spread(BaseModel):
    """Mean and percentiles of one latency; None where the tool doesn't state it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mean_s: Seconds | None = None
    p50_s: Seconds | None = None
    p90_s: Seconds | None = None
    p99_s: Seconds | None = None
    weight: Weight = Field(default="request", description="what the percentiles are over: requests, tokens, or streamed chunks")

    def __bool__(self) -> bool:
        """Say whether anything is stated."""
        return any(value is not None for value in (self.mean_s, self.p50_s, self.p90_s, self.p99_s))


class RequestDetail(BaseModel):
    """The requests of a run that completed, in the order of sending.

    sent_s : when each was sent, from the first one [s]; None where the tool doesn't say
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    prompt_tokens: tuple[Length, ...] = Field(max_length=MAX_REQUESTS)
    output_tokens: tuple[Length, ...] = Field(max_length=MAX_REQUESTS)
    sent_s: tuple[Seconds, ...] | None = Field(default=None, max_length=MAX_REQUESTS)

    @model_validator(mode="after")
    def _equal_lengths(self) -> Self:
        counts = {len(self.prompt_tokens), len(self.output_tokens), len(self.sent_s or self.prompt_tokens)}
        if len(counts) != 1:
            raise InputError("detail", sorted(counts), "must hold as many lengths as times", "Export the benchmark again")
        return self


class StatedSettings(BaseModel):
    """How the server was started, as far as whoever ran the tool told it; None: not stated.

    `vllm bench serve --metadata NAME=VALUE` keeps such facts in its result.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantization: Text | None = Field(default=None, description="weights, by an id of the quantization table")
    kv_dtype: Annotated[str, Field(max_length=16)] | None = None
    max_num_seqs: Setting | None = None
    max_num_batched_tokens: Setting | None = None
    max_model_len: Setting | None = None


class BenchmarkRun(BaseModel):
    """One operating point of a benchmark: one load, held until its requests were done.

    Throughputs count the whole deployment. What a tool doesn't state is None; `remarks` say what was corrected or left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    tool: Text = Field(description="as the tool calls itself, such as vllm bench serve")
    tool_version: Text | None = None
    label: Text = Field(default="", description="what tells the run from others of its file")
    date: Text = ""
    engine: Text | None = None
    engine_version: Text | None = None
    model: Text | None = None
    gpu: Text | None = Field(default=None, description="as the user named it to the tool")
    tp: Annotated[int, Field(ge=1, le=1024)] | None = None
    settings: StatedSettings = StatedSettings()
    arrivals: Arrivals = Field(description="a fixed number in flight, all at once, a trace's times, or how gaps are drawn")
    rate_rps: Rate | None = Field(default=None, description="requests offered a second; None in a closed loop or burst")
    burstiness: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="shape of the gaps' gamma distribution: 1 is Poisson, more is more even"
    )
    concurrency: Annotated[int, Field(ge=1, le=10**6)] | None = Field(
        default=None, description="requests in flight at most; also a cap on an open loop where the tool had one"
    )
    requests: Annotated[int, Field(ge=1, le=10**7)] = Field(description="completed requests")
    failed: Count = 0
    speculative: bool = Field(default=False, description="ran with draft tokens")
    prompt_tokens: Tokens = Field(description="mean, as the server counted where it said so [token]")
    output_tokens: Tokens = Field(description="mean [token]")
    duration_s: Annotated[float, Field(gt=0, le=1e7)] | None = None
    ttft: Spread = Spread()
    tpot: Spread = Spread()
    itl: Spread = Spread(weight="chunk")
    e2e: Spread = Spread()
    requests_per_s: Rate | None = None
    output_tokens_per_s: Rate | None = None
    detail: RequestDetail | None = Field(default=None, repr=False)
    remarks: tuple[Annotated[str, Field(max_length=500)], ...] = Field(default=(), max_length=50)

    @model_validator(mode="after")
    def _load_is_stated(self) -> Self:
        if self.arrivals == "closed" and self.concurrency is None:
            raise InputError(
                "concurrency", None, "is missing in a closed loop", "Export a result that states the requests in flight"
            )
        if self.arrivals in {"poisson", "gamma", "constant"} and self.rate_rps is None:
            raise InputError("rate_rps", None, "is missing in an open loop", "Export a result that states the request rate")
        if self.arrivals == "trace" and (self.rate_rps is None or self.detail is None or self.detail.sent_s is None):
            raise InputError("detail", None, "lacks the times of a trace", "Export the benchmark with the times of sending")
        return self

    @property
    def load_text(self) -> str:
        """The load in words.

        >>> BenchmarkRun(tool="x", arrivals="closed", concurrency=8, requests=9, prompt_tokens=5, output_tokens=5).load_text
        '8 in flight'
        """
        if self.arrivals == "closed":
            return f"{self.concurrency} in flight"
        if self.arrivals == "burst":
            return f"{self.requests} at once"
        gamma = f"gamma (shape {self.burstiness or 1.0:g})"
        kind = {"poisson": "Poisson", "constant": "even", "trace": "a trace's times", "gamma": gamma}[self.arrivals]
        return f"{kind}, {self.rate_rps:.4g} requests/s"

    @property
    def saturated(self) -> bool:
        """Whether fewer requests were served than offered: 0.95 of the rate or less, when the last outputs may take their time.

        Recorded times of sending say what was offered; the rate does where there are none.
        """
        if self.rate_rps is None or self.requests_per_s is None:
            return False
        sent_s = self.detail.sent_s if self.detail is not None else None
        offering_s = sent_s[-1] - sent_s[0] if sent_s else self.requests / self.rate_rps
        drain_s = _DRAIN * self.output_tokens * (self.tpot.mean_s or 0.0)
        return self.requests / self.requests_per_s > offering_s / SATURATED_SHARE + drain_s

    def spread(self, metric: Metric) -> Spread:
        """Return one latency's statistics."""
        found: Spread = getattr(self, metric)
        return found


SATURATED_SHARE = 0.95
_DRAIN = 2.0
