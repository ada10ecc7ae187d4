"""A request on its way through a scheduler that knows classes, tenants and predictions."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.simulator.inputs import RequestArrays, known_hits
from planner.simulator.layout import Shorts
from planner.simulator.limits import EngineLimits
from planner.simulator.plain_loop import Sequence

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_POSITIONS = 2**32
_LARGEST_SIGMA = 10.0


@dataclass(slots=True, eq=False)
class Job(Sequence):
    """A sequence with what policies, caps and pools look at.

    class_index, tenant : position in the workload's classes; who sent it
    max_new_tokens : what the client allows; output_tokens is what comes out [token]
    predicted_output_tokens : what a predictor says of output_tokens before it is known [token]
    preloaded_tokens : tokens whose keys and values came from another engine; lost when the job is preempted [token]
    lost_tokens : tokens that had been computed when it was last preempted [token]
    waiting, entry : in the waiting queue, and how many times it has entered it
    stamp : the last decision that gave it tokens
    """

    class_index: int = 0
    tenant: int = 0
    max_new_tokens: int = 1
    predicted_output_tokens: float = 0.0
    preloaded_tokens: int = 0
    lost_tokens: int = 0
    waiting: bool = False
    entry: int = 0
    stamp: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """What requests have beside arrival and lengths, one number for each request; None: all alike.

    class_index : position in the workload's classes, at least 0; priority : lower is served first
    tenant : who sent the request, at least 0
    max_new_tokens : what the client allows, at least the output's length; None: exactly the output's length [token]
    predicted_output_tokens : of a predictor; None: a perfect one [token]
    """

    class_index: Ints | None = None
    priority: Ints | None = None
    tenant: Ints | None = None
    max_new_tokens: Ints | None = None
    predicted_output_tokens: Floats | None = None


NO_TRAITS = Traits()


def predict_outputs(output_tokens: Ints, sigma: float, rng: np.random.Generator) -> Floats:
    """Return what a predictor with log-normal error says of each output [token].

    output_tokens : the truth [token]; sigma : standard deviation of the error's logarithm, at most 10 [1]; 0 is a perfect predictor

    The error's median is 1: output · exp(sigma · Z). Half of the predictions are within a factor exp(0.674 · sigma).
    """
    if not 0.0 <= sigma <= _LARGEST_SIGMA:
        raise InputError(
            "sigma", sigma, f"must be from 0 to {_LARGEST_SIGMA:g}", "Give the standard deviation of ln(predicted / true)"
        )
    predicted: Floats = output_tokens.astype(np.float64) * np.exp(sigma * rng.standard_normal(len(output_tokens)))
    return predicted


def jobs_of(requests: RequestArrays, limits: EngineLimits, traits: Traits = NO_TRAITS) -> list[Job]:
    """Return one job for each request, in order of arrival (ties by position), outputs cut at max_model_len as the engine does."""
    _check_traits(requests, traits)
    count = len(requests)
    output = requests.output_tokens
    if limits.max_model_len is not None:
        output = np.minimum(output, limits.max_model_len - requests.prompt_tokens)
    zeros = np.zeros(count, np.int64)
    columns: tuple[Floats | Ints | Shorts, ...] = (
        requests.arrival_s,
        requests.prompt_tokens,
        output,
        zeros if traits.priority is None else traits.priority,
        zeros if traits.class_index is None else traits.class_index,
        zeros if traits.tenant is None else traits.tenant,
        output if traits.max_new_tokens is None else traits.max_new_tokens,
        output.astype(np.float64) if traits.predicted_output_tokens is None else traits.predicted_output_tokens,
        known_hits(requests, limits, np.arange(count)),
    )
    order = np.argsort(requests.arrival_s, kind="stable")
    rows = zip(order.tolist(), *(column[order].tolist() for column in columns), _shared_keys(requests, limits, order), strict=True)
    return [
        Job(
            index=index,
            arrival_s=arrival_s,
            prompt_tokens=prompt,
            output_tokens=outputs,
            priority=priority,
            shared_keys=keys,
            class_index=class_index,
            tenant=tenant,
            max_new_tokens=max_new,
            predicted_output_tokens=predicted,
            known_hit=hit,
        )
        for index, arrival_s, prompt, outputs, priority, class_index, tenant, max_new, predicted, hit, keys in rows
    ]


def never_fits(job: Job, limits: EngineLimits) -> bool:
    """Return whether the engine refuses a job: without prompt or output, or larger than the whole cache."""
    most_cached = job.prompt_tokens + job.output_tokens - 1
    return job.prompt_tokens < 1 or job.output_tokens < 1 or most_cached > limits.num_blocks * limits.block_size


def _shared_keys(requests: RequestArrays, limits: EngineLimits, order: Ints) -> Iterator[tuple[int, ...]]:
    """Yield, by `order`, the identity of each leading block of each prompt: that of the hashed block in which it ends."""
    hashes = requests.block_hashes if limits.enable_prefix_caching else None
    if hashes is None:
        yield from (() for _ in order)
        return
    for request in order.tolist():
        identities = hashes.row(request)
        known = min(len(identities) * hashes.block_tokens, int(requests.prompt_tokens[request])) // limits.block_size
        ends = (np.arange(1, known + 1) * limits.block_size - 1) // hashes.block_tokens
        yield tuple(identity * _POSITIONS + position for position, identity in enumerate(identities[ends].tolist()))


def _check_traits(requests: RequestArrays, traits: Traits) -> None:
    for name in ("class_index", "priority", "tenant", "max_new_tokens", "predicted_output_tokens"):
        column = getattr(traits, name)
        if column is None:
            continue
        if column.shape != (len(requests),):
            raise InputError(name, column.shape, f"must hold one number for each of {len(requests)} requests", "Give equal lengths")
        if not np.isfinite(column).all():
            raise InputError(name, "NaN or infinite", "must be finite", "Correct the column")
    _require(traits.class_index, 0, "class_index")
    _require(traits.tenant, 0, "tenant")
    _require(traits.predicted_output_tokens, 0, "predicted_output_tokens")
    if traits.max_new_tokens is not None and bool((traits.max_new_tokens < requests.output_tokens).any()):
        row = int(np.argmax(traits.max_new_tokens < requests.output_tokens))
        raise InputError(
            f"max_new_tokens[{row}]",
            int(traits.max_new_tokens[row]),
            "must be at least output_tokens",
            "Raise it or cut the output",
        )


def _require(column: Ints | Floats | None, least: int, name: str) -> None:
    if column is not None and bool((column < least).any()):
        row = int(np.argmax(column < least))
        raise InputError(f"{name}[{row}]", column[row].item(), f"must be at least {least}", "Correct or drop the row")
