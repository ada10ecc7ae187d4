"""What the mean-field model reads from a workload: moments and quantile bins of prompts, outputs and running contexts."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from planner.attention_pairs import causal_pairs
from planner.errors import InputError
from planner.queueing.arrival_counts import check_cv2
from planner.workloads import Requests
from planner.workloads.arrivals import (
    Arrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    ProfileArrivals,
    WeibullArrivals,
)

Floats = npt.NDArray[np.float64]

_EDGES = np.unique(np.concatenate([np.linspace(0.0, 1.0, 25), [0.002, 0.005, 0.01, 0.02, 0.98, 0.99, 0.995, 0.998, 0.999]]))
_BURST_SAMPLES = 2**15


class Bins(NamedTuple):
    """A law in quantile bins, finer at its ends; every bin stands for its mean, so that the law's mean is kept.

    tokens : mean of each bin, rising [token]; pairs : mean of what goes with it [token²]; weights : probability of each bin [1]
    """

    tokens: Floats
    pairs: Floats
    weights: Floats

    def mean_of(self, values: Floats) -> Floats:
        """Return the mean of values given per bin along the last axis."""
        return np.asarray(values @ self.weights)


class WorkMoments(NamedTuple):
    """Raw moments of a prompt's new tokens q and query-key pairs r; the work of a prompt is a·q + b·r."""

    q: float
    r: float
    qq: float
    qr: float
    rr: float
    qqq: float
    qqr: float
    qrr: float
    rrr: float

    def first(self, a: Floats, b: float) -> Floats:
        """Return E[a·q + b·r]."""
        return a * self.q + b * self.r

    def second(self, a: Floats, b: float) -> Floats:
        """Return E[(a·q + b·r)²]."""
        return a * a * self.qq + 2.0 * a * b * self.qr + b * b * self.rr

    def third(self, a: Floats, b: float) -> Floats:
        """Return E[(a·q + b·r)³]."""
        return a**3 * self.qqq + 3.0 * a * a * b * self.qqr + 3.0 * a * b * b * self.qrr + b**3 * self.rrr


class Decoding(NamedTuple):
    """What the lengths say about decode.

    outputs : output tokens of the requests with more than one, which alone have a TPOT
    share : share of such requests [1]
    output_mean : mean output of all requests [token]; output_cv2 : squared CV [1]
    shorter_of_two : mean of the shorter of two outputs ÷ mean output [1]
    contexts : tokens in the KV cache of a sequence seen while decoding; context_mean [token], context_cv2 [1]
    kv_work_cv2 : squared CV of output × running context, the KV cache that a request occupies over its life [1]
    """

    outputs: Bins
    share: float
    output_mean: float
    output_cv2: float
    shorter_of_two: float
    contexts: Bins
    context_mean: float
    context_cv2: float
    kv_work_cv2: float

    @property
    def steps_mean(self) -> float:
        """Mean decode steps of a request: its output but the first token, which prefill gives [step]."""
        return self.output_mean - 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Lengths and burstiness of a request stream, without its rate.

    prompts : new prompt tokens of a request (a prefix-cache hit is not computed) with their query-key pairs q·(p + q/2)
    work : their raw moments
    decode : outputs and running contexts
    arrival_cv2 : squared CV of the gaps between arrivals [1]; 1 for Poisson
    """

    prompts: Bins
    work: WorkMoments
    decode: Decoding
    arrival_cv2: float

    @classmethod
    def from_rows(
        cls,
        prompt_tokens: npt.ArrayLike,
        output_tokens: npt.ArrayLike,
        *,
        cached_prompt_tokens: npt.ArrayLike | None = None,
        arrival_cv2: float = 1.0,
    ) -> Self:
        """Build from whole rows; a few thousand give stable 99th percentiles.

        prompt_tokens, output_tokens : one pair per request, at least 1 each [token]
        cached_prompt_tokens : how much of each prompt the prefix cache holds [token]; None for nothing
        arrival_cv2 : squared CV of the gaps between arrivals [1]

        Raises InputError for empty, unequal, negative or non-finite rows.
        """
        prompt, output = _rows("prompt_tokens", prompt_tokens, 1.0), _rows("output_tokens", output_tokens, 1.0)
        cached = np.zeros_like(prompt) if cached_prompt_tokens is None else _rows("cached_prompt_tokens", cached_prompt_tokens, 0.0)
        for name, values in (("output_tokens", output), ("cached_prompt_tokens", cached)):
            if len(values) != len(prompt):
                raise InputError(name, len(values), f"must have one entry per prompt ({len(prompt)})", "Give whole rows")
        if bool((cached >= prompt).any()):
            raise InputError("cached_prompt_tokens", float(cached.max()), "must be below the prompt", "The last token is computed")
        q = prompt - cached
        r = causal_pairs(cached, q)
        moments = {name: float(np.mean(q ** name.count("q") * r ** name.count("r"))) for name in WorkMoments._fields}
        return cls(_bins(q, r), WorkMoments(**moments), _decoding(prompt, output), check_cv2(arrival_cv2))

    @classmethod
    def from_requests(cls, requests: Requests, arrival_cv2: float) -> Self:
        """Build from sampled or recorded requests; arrival_cv2 : see arrival_cv2_of."""
        return cls.from_rows(
            requests.prompt_tokens,
            requests.output_tokens,
            cached_prompt_tokens=requests.cached_prompt_tokens,
            arrival_cv2=arrival_cv2,
        )


def arrival_cv2_of(arrivals: Arrivals, rng: np.random.Generator) -> float:
    """Return the squared CV of the gaps of an arrival law [1].

    rng : used for recorded arrivals only, whose gaps are sampled

    A profile over the hours has the squared CV of its base process: within the planned hour the rate is steady.
    """
    match arrivals:
        case PoissonArrivals():
            return 1.0
        case ConstantArrivals():
            return 0.0
        case GammaArrivals() | WeibullArrivals():
            return arrivals.cv**2
        case ProfileArrivals():
            return arrival_cv2_of(arrivals.base, rng)
    gaps = np.diff(arrivals.sample(_BURST_SAMPLES, 1.0, rng))
    return float(gaps.var() / gaps.mean() ** 2)


def _rows(field: str, values: npt.ArrayLike, least: float) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 1 or len(rows) == 0:
        raise InputError(field, rows.shape, "must be a list with at least one entry", "Give one entry per request")
    if not bool(np.isfinite(rows).all()) or bool((rows < least).any()):
        raise InputError(field, float(rows.min()), f"must be finite and at least {least:g}", "Correct or drop these rows")
    return rows


def _decoding(prompt: Floats, output: Floats) -> Decoding:
    mean = float(output.mean())
    many = output[output > 1.0]
    ordered = np.sort(output)
    rank = np.arange(len(ordered))
    shorter = float((ordered * (2.0 * (len(ordered) - rank) - 1.0)).sum()) / len(ordered) ** 2
    kv_work = output * (prompt + output / 2.0)
    context_mean = float(kv_work.mean()) / mean
    square = float((output * (prompt**2 + prompt * output + output**2 / 3.0)).mean()) / mean
    spread = np.concatenate([prompt + output * share for share in (1 / 6, 1 / 2, 5 / 6)])
    return Decoding(
        outputs=_bins(many if len(many) else np.array([2.0])),
        share=len(many) / len(output),
        output_mean=mean,
        output_cv2=float(output.var()) / mean**2,
        shorter_of_two=shorter / mean,
        contexts=_bins(spread, weights=np.tile(output, 3)),
        context_mean=context_mean,
        context_cv2=max(square / context_mean**2 - 1.0, 0.0),
        kv_work_cv2=float(kv_work.var()) / float(kv_work.mean()) ** 2,
    )


def _bins(tokens: Floats, pairs: Floats | None = None, weights: Floats | None = None) -> Bins:
    order = np.argsort(tokens, kind="stable")
    mass = np.ones(len(tokens)) if weights is None else weights[order]
    cumulated = np.concatenate([[0.0], np.cumsum(mass)])
    edges = np.unique(np.searchsorted(cumulated, _EDGES * cumulated[-1] * (1.0 - 1e-12)))
    edges = np.unique(np.concatenate([edges, [0, len(tokens)]]))
    share = np.diff(cumulated[edges])

    def mean(values: Floats) -> Floats:
        return np.asarray(np.diff(np.concatenate([[0.0], np.cumsum(values[order] * mass)])[edges]) / share)

    second = tokens * 0.0 if pairs is None else pairs
    return Bins(mean(tokens), mean(second), share / cumulated[-1])
