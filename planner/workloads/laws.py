"""Laws of token counts: the exact distribution of one length, and the figures that sizing needs from a pair of them."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy import fft

from planner.errors import InputError

MAX_TOKENS = 2**21
_ROUND_OFF = 1e-12
_SMALLEST_PROBABILITY = 1e-16

Tokens = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TokenLaw:
    """A distribution of whole tokens.

    values : tokens that occur, increasing, each at least 1 [token]
    cdf : probability of at most that many tokens; the last entry is exactly 1 [1]
    """

    values: Tokens
    cdf: Floats

    @classmethod
    def from_weights(cls, values: npt.ArrayLike, weights: npt.ArrayLike) -> Self:
        """Return the law that gives each value a probability in proportion to its weight; equal values are merged."""
        support, inverse = np.unique(np.asarray(values, dtype=np.int64), return_inverse=True)
        mass = np.bincount(inverse, weights=np.asarray(weights, dtype=np.float64))
        occurs = mass > _SMALLEST_PROBABILITY * mass.sum()
        cdf = np.cumsum(mass[occurs])
        cdf /= cdf[-1]
        return cls(support[occurs], cdf)

    @classmethod
    def from_rows(cls, tokens: Tokens) -> Self:
        """Return the empirical law of observed counts."""
        values, counts = np.unique(tokens, return_counts=True)
        return cls(values, np.cumsum(counts) / len(tokens))

    @property
    def probabilities(self) -> Floats:
        """Probability of each value [1]."""
        return np.diff(self.cdf, prepend=0.0)

    def moment(self, order: int) -> float:
        """Return E[X^order] [token^order]."""
        return float(self.probabilities @ self.values.astype(np.float64) ** order)

    @property
    def mean(self) -> float:
        """Return E[X] [token]."""
        return self.moment(1)

    @property
    def cv(self) -> float:
        """Standard deviation ÷ mean [1]."""
        return float(np.sqrt(max(self.moment(2) - self.mean**2, 0.0)) / self.mean)

    def quantile(self, probability: float) -> int:
        """Return the smallest value that at least `probability` of requests stay at or below [token]."""
        index = int(np.searchsorted(self.cdf, probability - _ROUND_OFF))
        return int(self.values[min(index, len(self.values) - 1)])

    def draw(self, uniforms: Floats) -> Tokens:
        """Return the value at each uniform number in [0, 1) (inverse transform)."""
        return self.values[np.searchsorted(self.cdf, uniforms, side="right")]


class LengthStats(NamedTuple):
    """What sizing reads from a law of (prompt, output) pairs; all in tokens except prompt_pairs_mean [token²].

    A percentile is the smallest count that this share of requests stays at or below.
    running_context_mean_tokens : E[O(P+O/2)] / E[O], see `running_context_mean`
    prompt_pairs_mean : E[P²/2], query-key pairs of one causal prefill
    total_p99_tokens : 99th percentile of P + O
    method : "exact", or how the joint figures were sampled
    """

    prompt_mean_tokens: float
    prompt_p50_tokens: float
    prompt_p95_tokens: float
    prompt_p99_tokens: float
    output_mean_tokens: float
    output_p50_tokens: float
    output_p95_tokens: float
    output_p99_tokens: float
    running_context_mean_tokens: float
    prompt_pairs_mean: float
    total_p99_tokens: float
    method: str


@dataclass(frozen=True, slots=True, eq=False)
class PairLaw:
    """The law of (prompt, output) pairs as far as its statistics need it.

    prompt, output, total : laws of P, O and P + O
    context_work_mean : E[O(P+O/2)], tokens in cache summed over the decode steps of a request [token²]
    method : "exact", or how total and context_work_mean were sampled
    """

    prompt: TokenLaw
    output: TokenLaw
    total: TokenLaw
    context_work_mean: float
    method: str

    def stats(self) -> LengthStats:
        """Return the figures that sizing reads."""
        prompt, output = self.prompt, self.output
        return LengthStats(
            prompt_mean_tokens=prompt.mean,
            prompt_p50_tokens=prompt.quantile(0.50),
            prompt_p95_tokens=prompt.quantile(0.95),
            prompt_p99_tokens=prompt.quantile(0.99),
            output_mean_tokens=output.mean,
            output_p50_tokens=output.quantile(0.50),
            output_p95_tokens=output.quantile(0.95),
            output_p99_tokens=output.quantile(0.99),
            running_context_mean_tokens=self.context_work_mean / output.mean,
            prompt_pairs_mean=prompt.moment(2) / 2,
            total_p99_tokens=self.total.quantile(0.99),
            method=self.method,
        )


def running_context_mean(prompt_tokens: Tokens | Floats, output_tokens: Tokens | Floats) -> float:
    """Mean tokens that a running sequence holds in the KV cache during decode [token].

    prompt_tokens, output_tokens : one pair per request [token]

    A request with prompt P and output O is seen for O steps, with P + O/2 tokens in cache on average, so long outputs
    weigh more: E[O(P+O/2)] / E[O]. It needs whole pairs: independent draws of P and O misstate it by a factor of 0.94 to
    2.1 on public traces. Valid while each step takes equally long; a cache pool ÷ this is the sustainable number of
    running sequences.
    """
    prompts, outputs = prompt_tokens.astype(np.float64), output_tokens.astype(np.float64)
    return float((outputs * (prompts + outputs / 2)).sum() / outputs.sum())


def expected_max_ratio(batch: int, outputs: TokenLaw | Tokens) -> float:
    """Steps of a static batch ÷ mean output: E[max of `batch` outputs] / E[O] [1].

    batch : requests that start together and wait for the longest [request], at least 1
    outputs : law of output tokens, or observed rows of them [token]

    A static batch of B runs until its longest output ends, P(max ≤ v) = F(v)^B; the ratio is the factor by which it
    decodes more steps than a batch that refills at once. Exact for independent requests.

    >>> expected_max_ratio(2, np.array([1, 3]))
    1.25
    """
    if batch < 1:
        raise InputError("batch", batch, "must be at least 1", "Give the number of requests in the static batch")
    law = outputs if isinstance(outputs, TokenLaw) else TokenLaw.from_rows(outputs)
    maximum_cdf = law.cdf**batch
    return float(np.diff(maximum_cdf, prepend=0.0) @ law.values) / law.mean


def rows_pair_law(prompt_tokens: Tokens, output_tokens: Tokens) -> PairLaw:
    """Return the exact law of drawing whole rows with equal probability."""
    prompts, outputs = prompt_tokens.astype(np.float64), output_tokens.astype(np.float64)
    return PairLaw(
        prompt=TokenLaw.from_rows(prompt_tokens),
        output=TokenLaw.from_rows(output_tokens),
        total=TokenLaw.from_rows(prompt_tokens + output_tokens),
        context_work_mean=float((outputs * (prompts + outputs / 2)).mean()),
        method="exact",
    )


def independent_pair_law(prompt: TokenLaw, output: TokenLaw) -> PairLaw:
    """Return the exact law of P and O drawn independently; the law of P + O is their convolution."""
    mass = _convolved(_dense(prompt), _dense(output))
    values = np.arange(len(mass), dtype=np.int64)
    occurs = mass > _ROUND_OFF
    return PairLaw(
        prompt=prompt,
        output=output,
        total=TokenLaw.from_weights(values[occurs], mass[occurs]),
        context_work_mean=output.mean * prompt.mean + output.moment(2) / 2,
        method="exact",
    )


def mixed_pair_law(parts: list[tuple[float, PairLaw]]) -> PairLaw:
    """Return the law of a request that is of kind i with share i; parts : (share, law), shares sum to 1."""

    def mixed(name: str) -> TokenLaw:
        laws: list[tuple[float, TokenLaw]] = [(share, getattr(law, name)) for share, law in parts]
        values = np.concatenate([law.values for _, law in laws])
        return TokenLaw.from_weights(values, np.concatenate([share * law.probabilities for share, law in laws]))

    methods = {law.method for _, law in parts}
    return PairLaw(
        prompt=mixed("prompt"),
        output=mixed("output"),
        total=mixed("total"),
        context_work_mean=sum(share * law.context_work_mean for share, law in parts),
        method=" and ".join(sorted(methods)),
    )


def _convolved(one: Floats, other: Floats) -> Floats:
    """Return the convolution; scipy.signal, whose fftconvolve this is, takes half a second to import."""
    size = len(one) + len(other) - 1
    padded = fft.next_fast_len(size, real=True)
    product = fft.rfft(one, padded) * fft.rfft(other, padded)
    return np.asarray(fft.irfft(product, padded)[:size], dtype=np.float64)


def _dense(law: TokenLaw) -> Floats:
    mass = np.zeros(int(law.values[-1]) + 1)
    mass[law.values] = law.probabilities
    return mass
