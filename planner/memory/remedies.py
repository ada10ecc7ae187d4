"""What would help a deployment that doesn't fit: each change tried on its own, and what it gives."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from planner.deployment import Deployment
from planner.errors import InputError
from planner.memory.budget import memory_budget
from planner.models import QUANTIZATIONS, legal_tp

RemedyKind = Literal[
    "tensor parallelism",
    "weight quantization",
    "kv dtype",
    "max_num_batched_tokens",
    "max_num_seqs",
    "gpu_memory_utilization",
    "max_model_len",
]

_MOST_GPUS = 16
_TOKENS_PER_STEP = (8192, 4096, 2048)
_SEQS = (256, 128, 64)
_UTILIZATIONS = (0.95,)
_NARROWER = ("fp8", "int4-awq")


class Remedy(NamedTuple):
    """One change and what it gives.

    kind, value : the setting and what to set it to
    fits : whether the deployment starts with this change alone
    kv_tokens : tokens of cache then [token]; None when it doesn't start
    text : one sentence for the user
    """

    kind: RemedyKind
    value: int | float | str
    fits: bool
    kv_tokens: int | None
    text: str


@lru_cache(maxsize=512)
def what_would_help(deployment: Deployment) -> tuple[Remedy, ...]:
    """Return for each setting the smallest change that makes a deployment start, else the largest one tried; empty when it starts.

    Tried: more GPUs (legal sizes up to 16), fp8 and 4-bit weights, an fp8 cache, smaller max_num_batched_tokens and max_num_seqs,
    utilisation 0.95, and the longest max_model_len that fits. Changes that start come first.
    """
    budget = memory_budget(deployment)
    if budget.fits:
        return ()
    remedies: list[Remedy] = []
    for kind, options in _options(deployment):
        tried = [_tried(kind, value, changed) for value, changed in options]
        if tried:
            remedies.append(next((remedy for remedy in tried if remedy.fits), tried[-1]))
    if budget.shortfall is not None and budget.shortfall.kind == "one sequence" and budget.max_model_len:
        longest = budget.max_model_len
        remedies.append(_tried("max_model_len", longest, _with_engine(deployment, max_model_len=longest)))
    return tuple(sorted(remedies, key=lambda remedy: not remedy.fits))


def _options(deployment: Deployment) -> Iterator[tuple[RemedyKind, list[tuple[int | float | str, Deployment]]]]:
    layout, engine = deployment.parallelism, deployment.engine
    sizes = [tp for tp in legal_tp(deployment.model, _MOST_GPUS, deployment.quantization) if tp > layout.tp]
    yield "tensor parallelism", _legal(sizes, lambda tp: replace(deployment, parallelism=replace(layout, tp=tp)))
    narrower = [name for name in _NARROWER if QUANTIZATIONS[name].weight_bits < deployment.quantization.bits_of("mlp")]
    yield "weight quantization", _legal(narrower, lambda name: replace(deployment, quantization=QUANTIZATIONS[name]))
    if deployment.kv_dtype != "fp8" and engine.kv_cache_dtype == "auto":
        yield "kv dtype", _legal(["fp8"], lambda dtype: replace(deployment, kv_dtype=dtype))
    tokens = [n for n in _TOKENS_PER_STEP if engine.max_num_seqs <= n < engine.max_num_batched_tokens]
    yield "max_num_batched_tokens", _legal(tokens, lambda n: _with_engine(deployment, max_num_batched_tokens=n))
    seqs = [n for n in _SEQS if n < engine.max_num_seqs]
    yield "max_num_seqs", _legal(seqs, lambda n: _with_engine(deployment, max_num_seqs=n))
    shares = [share for share in _UTILIZATIONS if share > engine.gpu_memory_utilization]
    yield "gpu_memory_utilization", _legal(shares, lambda share: _with_engine(deployment, gpu_memory_utilization=share))


def _legal(values: Sequence[Any], change: Callable[[Any], Deployment]) -> list[tuple[int | float | str, Deployment]]:
    """Pair each value with the changed deployment, without those that the model or the engine refuses."""
    pairs: list[tuple[int | float | str, Deployment]] = []
    for value in values:
        try:
            pairs.append((value, change(value)))
        except InputError:
            continue
    return pairs


def _with_engine(deployment: Deployment, **changes: float) -> Deployment:
    return replace(deployment, engine=deployment.engine.replace(**changes))


def _tried(kind: RemedyKind, value: float | str, changed: Deployment) -> Remedy:
    budget = memory_budget(changed)
    outcome = f"leaves {budget.kv_tokens:,} tokens of cache" if budget.fits and budget.kv_tokens else "isn't enough alone"
    return Remedy(kind, value, budget.fits, budget.kv_tokens if budget.fits else None, f"{kind} {value} {outcome}")
