"""The Workload: lengths × arrivals × classes, with the sources of its figures."""

from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.errors import InputError
from planner.provenance import Source
from planner.workloads.arrivals import Arrivals, PoissonArrivals, TraceArrivals
from planner.workloads.classes import RequestClass, Streams, child_streams, draw_classes, streams
from planner.workloads.laws import LengthStats, PairLaw, Tokens, mixed_pair_law
from planner.workloads.lengths import Lengths, RowsLengths
from planner.workloads.prefix import PrefixHitCurve
from planner.workloads.requests import BlockHashes, Requests
from planner.workloads.trace import Slug, Text, load_trace

_SHARE_ROUND_OFF = 1e-6


MAX_PEAK_FACTOR = 1000


class ExpectedMeans(BaseModel):
    """Mean lengths stated in the preset, so that a list needn't read the rows [token]."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    prompt_mean_tokens: float = Field(gt=0)
    output_mean_tokens: float = Field(gt=0)


class Workload(BaseModel):
    """Who asks for what, and when; the amount is given apart, as a rate.

    lengths : joint law of prompt and output tokens
    arrivals : law of the arrival times at a given rate
    classes : kinds of request; one class of all requests when none are given
    peak_factor, peak_minute_factor : busiest hour and busiest minute ÷ mean rate; None: unknown, ask the user [1]
    profile : id of the hourly profile that the peak belongs to
    prefix_hits : hit rate of a prefix cache by its size; None: reuse unknown, plan with none
    sources : by field name, "*" for the rest
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: Literal[1] = 1
    id: Slug
    name: Text
    description: Text
    lengths: Lengths
    arrivals: Arrivals = PoissonArrivals()
    classes: tuple[RequestClass, ...] = Field(default=(RequestClass(name="all", share=1.0),), min_length=1, max_length=64)
    expected_means: ExpectedMeans | None = None
    peak_factor: float | None = Field(default=None, ge=1, le=MAX_PEAK_FACTOR)
    peak_minute_factor: float | None = Field(default=None, ge=1, le=1e7)
    profile: Slug | None = None
    prefix_hits: PrefixHitCurve | None = None
    licence: Text
    attribution: Text | None = None
    sources: dict[str, Source] = Field(min_length=1, max_length=32)

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        total = sum(each.share for each in self.classes)
        if abs(total - 1) > _SHARE_ROUND_OFF:
            raise InputError("classes.share", total, "must sum to 1 over the classes", "Divide the shares by their sum")
        unknown = [name for name in self.sources if name != "*" and name not in type(self).model_fields]
        if unknown:
            raise InputError("sources", unknown[0], "must name a field of the workload", "Correct its spelling")
        for name in ("lengths", "arrivals", "peak_factor"):
            if getattr(self, name) is not None and name not in self.sources and "*" not in self.sources:
                raise InputError(f"sources.{name}", None, "is required", "State where the figure comes from")
        self._check_recorded_order()
        return self

    def _check_recorded_order(self) -> None:
        in_order = isinstance(self.lengths, RowsLengths) and self.lengths.draw == "in_order"
        if in_order and any(each.lengths is not None for each in self.classes):
            raise InputError(
                "classes.lengths", "given", "must be absent when rows are replayed in order", "Set lengths.draw to bootstrap"
            )
        if in_order and isinstance(self.arrivals, TraceArrivals) and self.arrivals.window != "first":
            raise InputError(
                "arrivals.window", self.arrivals.window, "must be first when rows are replayed in order", "Set it to first"
            )

    def source_for(self, field: str) -> Source:
        """Return the source of a field, or that of the whole."""
        found = self.sources.get(field, self.sources.get("*"))
        if found is None:
            raise InputError("field", field, "must have a source", f"Known: {', '.join(self.sources)}")
        return found

    def pair_law(self) -> PairLaw:
        """Return the law of a request of any class."""
        if all(each.lengths is None for each in self.classes):
            return self.lengths.pair_law()
        return mixed_pair_law([(each.share, (each.lengths or self.lengths).pair_law()) for each in self.classes])

    def length_stats(self) -> LengthStats:
        """Return means, percentiles and the mean running context over all classes."""
        return self.pair_law().stats()

    def sample(self, n: int, rate_rps: float, rng: np.random.Generator) -> Requests:
        """Return n requests at a mean rate [request/s]; arrivals, lengths and classes come from streams spawned from `rng`."""
        return self._sample(n, rate_rps, child_streams(rng))

    def sample_requests(self, n: int, rate_rps: float, seed: int) -> Requests:
        """Return n requests at a mean rate [request/s]; same seed, same requests."""
        return self._sample(n, rate_rps, streams(seed))

    def _sample(self, n: int, rate_rps: float, rng: Streams) -> Requests:
        arrival_s = self.arrivals.sample(n, rate_rps, rng.arrivals)
        class_index = draw_classes(self.classes, rng.classes.random(n))
        prompts, outputs = self.lengths.sample(n, rng.lengths)
        for index, each in enumerate(self.classes):
            if each.lengths is not None:
                members = np.flatnonzero(class_index == index)
                prompts, outputs = _replaced(prompts, outputs, members, each.lengths.sample(len(members), rng.lengths))
        return Requests(arrival_s, prompts, outputs, class_index, block_hashes=self._block_hashes(n))

    def _block_hashes(self, n: int) -> BlockHashes | None:
        if not isinstance(self.lengths, RowsLengths) or self.lengths.draw != "in_order":
            return None
        recorded = load_trace(self.lengths.trace).block_hashes
        return None if recorded is None else recorded.cycled(n)


def _replaced(prompts: Tokens, outputs: Tokens, members: Tokens, drawn: tuple[Tokens, Tokens]) -> tuple[Tokens, Tokens]:
    prompts, outputs = prompts.copy(), outputs.copy()
    prompts[members], outputs[members] = drawn
    return prompts, outputs
