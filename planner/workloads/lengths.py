"""Joint laws of prompt and output tokens: whole rows of a trace, or two sides with a stated dependence."""

import functools
from abc import ABC, abstractmethod
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy import special

from planner.errors import InputError
from planner.workloads.laws import (
    MAX_TOKENS,
    LengthStats,
    PairLaw,
    TokenLaw,
    Tokens,
    independent_pair_law,
    rows_pair_law,
    running_context_mean,
)
from planner.workloads.marginals import AnyMarginal, Constant, Gamma, HistogramSide, Lognormal, Mixture, Weibull
from planner.workloads.trace import Slug, Trace, load_trace

_JOINT_SAMPLES = 2**18
_JOINT_SEED = 0

L = TypeVar("L", bound="LengthLaw")
Factor = Annotated[float, Field(gt=0, le=1000, description="factor on every length of this side [1]")]
Correlation = Annotated[float, Field(gt=-1, lt=1, description="Spearman rank correlation of prompt and output [1]")]


class LengthLaw(BaseModel, ABC):
    """A joint law of prompt and output tokens, as a document."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return n (prompt, output) pairs [token]; same generator state, same pairs."""

    @abstractmethod
    def pair_law(self) -> PairLaw:
        """Return the law that `stats` and mixtures of classes read."""

    @abstractmethod
    def scaled(self, prompt_factor: float, output_factor: float) -> Self:
        """Return the same shape with prompts and outputs multiplied by the factors."""

    def stats(self) -> LengthStats:
        """Return means, percentiles and the mean running context; its `method` says whether they are exact."""
        return self.pair_law().stats()


class RowFilter(BaseModel):
    """Which rows of a trace are kept; None leaves a bound open."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_prompt_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    min_output_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    max_prompt_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    max_output_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    max_total_tokens: int | None = Field(default=None, ge=2, le=2 * MAX_TOKENS)

    def kept(self, trace: Trace) -> Tokens:
        """Return the indices of the kept rows, in order."""
        prompts, outputs = trace.prompt_tokens, trace.output_tokens
        keep = np.ones(len(trace), dtype=bool)
        for bound, values in ((self.min_prompt_tokens, prompts), (self.min_output_tokens, outputs)):
            keep &= True if bound is None else values >= bound
        pairs = ((self.max_prompt_tokens, prompts), (self.max_output_tokens, outputs), (self.max_total_tokens, prompts + outputs))
        for bound, values in pairs:
            keep &= True if bound is None else values <= bound
        return np.flatnonzero(keep)


class RowsLengths(LengthLaw):
    """Whole rows of a trace: prompt and output always come from the same request, so any dependence is kept.

    draw = "bootstrap" picks rows with equal probability; "in_order" gives them as recorded, which prefix caches need, and
    starts again at the first row when more are asked.
    """

    kind: Literal["rows"] = "rows"
    trace: Slug
    draw: Literal["bootstrap", "in_order"] = "bootstrap"
    keep: RowFilter | None = None
    prompt_factor: Factor = 1.0
    output_factor: Factor = 1.0

    @model_validator(mode="after")
    def _recorded_rows_are_whole(self) -> Self:
        changed = self.keep is not None or self.prompt_factor != 1 or self.output_factor != 1
        if self.draw == "in_order" and changed:
            raise InputError("draw", self.draw, "must be bootstrap when rows are filtered or scaled", "Set draw to bootstrap")
        return self

    def rows(self) -> tuple[Tokens, Tokens]:
        """Return the kept and scaled rows [token]."""
        return _rows(load_trace(self.trace), self.keep, self.prompt_factor, self.output_factor)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return n rows [token]."""
        prompts, outputs = self.rows()
        index = np.arange(n) % len(prompts) if self.draw == "in_order" else rng.integers(0, len(prompts), n)
        return prompts[index], outputs[index]

    def pair_law(self) -> PairLaw:
        """Return the exact empirical law of the rows."""
        return _rows_law(load_trace(self.trace), self.keep, self.prompt_factor, self.output_factor)

    def scaled(self, prompt_factor: float, output_factor: float) -> Self:
        """Multiply and round every row; in_order becomes bootstrap, as scaled prompts no longer match recorded blocks."""
        factors = {"prompt_factor": self.prompt_factor * prompt_factor, "output_factor": self.output_factor * output_factor}
        return self.model_validate(self.model_dump() | factors | {"draw": "bootstrap"})


class SidedLengths(LengthLaw):
    """Two sides drawn independently, or tied by a rank correlation through a Gaussian copula where evidence exists."""

    prompt: AnyMarginal
    output: AnyMarginal
    rank_correlation: Correlation | None = None

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return n pairs by inverse transform [token]."""
        if self.rank_correlation is None:
            return self.prompt.law().draw(rng.random(n)), self.output.law().draw(rng.random(n))
        return _copula_pairs(self.prompt.law(), self.output.law(), self.rank_correlation, rng.standard_normal((2, n)))

    def pair_law(self) -> PairLaw:
        """Exact when the sides are independent; else sides exact, joint figures from 2^18 pairs with a fixed seed."""
        if self.rank_correlation is None:
            return _independent_law(self.prompt.law(), self.output.law())
        return _copula_law(self.prompt.law(), self.output.law(), self.rank_correlation)

    def scaled(self, prompt_factor: float, output_factor: float) -> Self:
        """Multiply the sides, their caps included."""
        sides = {"prompt": self.prompt.scaled(prompt_factor), "output": self.output.scaled(output_factor)}
        return self.model_validate({name: getattr(self, name) for name in type(self).model_fields} | sides)


class MixtureLengths(SidedLengths):
    """Both sides are mixtures of lognormals with a cap."""

    kind: Literal["mixture"] = "mixture"
    prompt: Mixture
    output: Mixture


class GammaLengths(SidedLengths):
    """Both sides from mean and CV."""

    kind: Literal["gamma"] = "gamma"
    prompt: Gamma
    output: Gamma


class WeibullLengths(SidedLengths):
    """Both sides from percentiles."""

    kind: Literal["weibull"] = "weibull"
    prompt: Weibull
    output: Weibull


class LognormalLengths(SidedLengths):
    """Both sides lognormal; a choice that must be made, never a default."""

    kind: Literal["lognormal"] = "lognormal"
    prompt: Lognormal
    output: Lognormal


class ConstantLengths(SidedLengths):
    """Every request alike, as benchmarks with fixed lengths are."""

    kind: Literal["constant"] = "constant"
    prompt: Constant
    output: Constant


class HistogramLengths(SidedLengths):
    """Both sides from published histograms, whose joint law is not known."""

    kind: Literal["histogram"] = "histogram"
    prompt: HistogramSide
    output: HistogramSide


class MixedLengths(SidedLengths):
    """Sides of different families, each with its own kind."""

    kind: Literal["mixed"] = "mixed"


Lengths = Annotated[
    RowsLengths
    | MixtureLengths
    | GammaLengths
    | WeibullLengths
    | LognormalLengths
    | ConstantLengths
    | HistogramLengths
    | MixedLengths,
    Field(discriminator="kind"),
]


def constant_lengths(prompt_tokens: int, output_tokens: int) -> ConstantLengths:
    """Return lengths that are the same for every request [token].

    >>> constant_lengths(1024, 128).stats().running_context_mean_tokens
    1088.0
    """
    return ConstantLengths(prompt=Constant(tokens=prompt_tokens), output=Constant(tokens=output_tokens))


def with_means(lengths: L, prompt_mean_tokens: float | None = None, output_mean_tokens: float | None = None) -> L:
    """Return the same shape scaled to the stated means; None leaves a side as it is.

    For someone who knows only the means of a service that resembles a public trace. Whole tokens and caps are kept, so
    the means hold to within rounding.
    """
    stats = lengths.stats()
    for field, value in (("prompt_mean_tokens", prompt_mean_tokens), ("output_mean_tokens", output_mean_tokens)):
        if value is not None and not 1 <= value <= MAX_TOKENS:
            raise InputError(field, value, f"must be between 1 and {MAX_TOKENS}", "Give mean tokens per request")
    prompt_factor = 1.0 if prompt_mean_tokens is None else prompt_mean_tokens / stats.prompt_mean_tokens
    output_factor = 1.0 if output_mean_tokens is None else output_mean_tokens / stats.output_mean_tokens
    return lengths.scaled(prompt_factor, output_factor)


@functools.lru_cache(maxsize=32)
def _rows(trace: Trace, keep: RowFilter | None, prompt_factor: float, output_factor: float) -> tuple[Tokens, Tokens]:
    prompts, outputs = trace.prompt_tokens, trace.output_tokens
    if keep is not None:
        index = keep.kept(trace)
        if len(index) == 0:
            raise InputError("keep", trace.meta.id, "must leave at least one row", "Widen the filter")
        prompts, outputs = prompts[index], outputs[index]
    return _scaled_rows(prompts, prompt_factor, "prompt_factor"), _scaled_rows(outputs, output_factor, "output_factor")


def _scaled_rows(tokens: Tokens, factor: float, field: str) -> Tokens:
    if factor == 1:
        return tokens
    scaled: Tokens = np.maximum(np.rint(tokens * factor), 1).astype(np.int64)
    if scaled.max() > MAX_TOKENS:
        raise InputError(field, factor, f"must keep lengths at or below {MAX_TOKENS} tokens", "Give a smaller factor")
    return scaled


@functools.lru_cache(maxsize=32)
def _rows_law(trace: Trace, keep: RowFilter | None, prompt_factor: float, output_factor: float) -> PairLaw:
    return rows_pair_law(*_rows(trace, keep, prompt_factor, output_factor))


@functools.lru_cache(maxsize=32)
def _independent_law(prompt: TokenLaw, output: TokenLaw) -> PairLaw:
    return independent_pair_law(prompt, output)


def _copula_pairs(prompt: TokenLaw, output: TokenLaw, rank_correlation: float, normals: np.ndarray) -> tuple[Tokens, Tokens]:
    """Return pairs whose normal scores have Pearson r = 2 sin(π ρ/6) for the Spearman ρ asked (exact for continuous laws)."""
    r = 2 * np.sin(np.pi * rank_correlation / 6)
    tied = r * normals[0] + np.sqrt(1 - r**2) * normals[1]
    below_one = np.nextafter(1.0, 0.0)
    return prompt.draw(np.minimum(special.ndtr(normals[0]), below_one)), output.draw(np.minimum(special.ndtr(tied), below_one))


@functools.lru_cache(maxsize=32)
def _copula_law(prompt: TokenLaw, output: TokenLaw, rank_correlation: float) -> PairLaw:
    normals = np.random.default_rng(_JOINT_SEED).standard_normal((2, _JOINT_SAMPLES))
    prompts, outputs = _copula_pairs(prompt, output, rank_correlation, normals)
    return PairLaw(
        prompt=prompt,
        output=output,
        total=TokenLaw.from_rows(prompts + outputs),
        context_work_mean=running_context_mean(prompts, outputs) * output.mean,
        method=f"joint figures from {_JOINT_SAMPLES} pairs, seed {_JOINT_SEED}",
    )
