"""What a replay runs: how many requests at which rate, in which order, and which engine settings differ from the plan's."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from planner.errors import InputError, as_input_error

MAX_REQUESTS = 1_000_000
ENGINE_FIELDS = ("max_num_seqs", "max_num_batched_tokens", "async_scheduling", "enable_prefix_caching")


class ReplaySettings(BaseModel):
    """A replay's own inputs; None takes the plan's or the scenario's value.

    The defaults repeat the run that the plan's latencies come from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e7, description="arrival rate of the replica [request/s]")
    requests: int = Field(default=20_000, ge=1, le=MAX_REQUESTS, description="requests to serve")
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1, description="seed of arrivals and lengths")
    order: Literal["synthetic", "recorded"] = Field(
        default="synthetic", description="recorded: the trace's own requests in its order, its times stretched to the rate"
    )
    arrival_cv: float | None = Field(
        default=None, ge=0.05, le=30, description="coefficient of variation of the gaps between arrivals; 1 is Poisson [1]"
    )
    stop: Literal["length", "eos"] = Field(
        default="length",
        description="outputs end at max_tokens, which the scheduler foresees, or at a stop token, which it doesn't",
    )
    max_num_seqs: int | None = Field(default=None, ge=1, le=65536)
    max_num_batched_tokens: int | None = Field(default=None, ge=1, le=2**20)
    async_scheduling: bool | None = None
    enable_prefix_caching: bool | None = Field(default=None, description="the plan counts no prefix hits")

    @model_validator(mode="after")
    def _recorded_times_are_given(self) -> Self:
        if self.order == "recorded" and self.arrival_cv is not None:
            raise InputError(
                "arrival_cv", self.arrival_cv, "can't be set for recorded arrivals", "Leave it out, or replay synthetic requests"
            )
        return self

    def engine_changes(self) -> dict[str, Any]:
        """Return the engine settings that are given here."""
        return {name: value for name in ENGINE_FIELDS if (value := getattr(self, name)) is not None}


def settings_from_dict(document: dict[str, Any]) -> ReplaySettings:
    """Read settings; every fault is an InputError that names the field, the value, the bound and the remedy.

    >>> settings_from_dict({"requests": 0})
    Traceback (most recent call last):
        ...
    planner.errors.InputError: requests is 0: must be greater than or equal to 1. Correct the field in the replay.
    """
    try:
        return ReplaySettings.model_validate(document)
    except ValidationError as error:
        raise as_input_error(error, "replay") from error
