"""max_num_seqs and max_num_batched_tokens: which ceiling binds, and by how much the others don't."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.analysis.admission import largest_chunk
from planner.analysis.batching import knee_tokens
from planner.analysis.explanation import Explanation
from planner.analysis.goodput import best_batch
from planner.analysis.steps import Decoders, require_positive, require_tokens
from planner.errors import InputError
from planner.step_model import StepCoefficients
from planner.units import plural

Ceiling = Literal["KV memory", "compute ridge", "TPOT target"]


class MemorySplit(NamedTuple):
    """What the KV cache is left with on one GPU.

    total_bytes : of the GPU [B]; utilization : share that the engine may use [1]
    weights_bytes, other_bytes : weights, and activations with everything else [B]
    """

    total_bytes: float
    utilization: float
    weights_bytes: float
    other_bytes: float


def kv_tokens_of(memory: MemorySplit, kv_bytes_per_token: float) -> float:
    """Return the tokens that the KV cache holds, (total · utilization - weights - other) / bytes per token [token]; 0 if none fit.

    kv_bytes_per_token : on one GPU [B/token]. For planning use planner.memory, which knows what an engine sets aside.
    """
    for field, value in zip(MemorySplit._fields, memory, strict=True):
        if not value >= 0.0:
            raise InputError(field, value, "must be at least 0", "Give bytes, and a share for the utilization")
    require_positive("kv_bytes_per_token", kv_bytes_per_token, "bytes")
    free = memory.total_bytes * memory.utilization - memory.weights_bytes - memory.other_bytes
    return max(free, 0.0) / kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Three ceilings of the number of sequences, and the one that binds.

    kv_seqs, ridge_seqs : by KV memory and by the compute ridge [seq]; tpot_seqs : by the TPOT target [seq], None without one
    binds : the lowest of them; max_num_seqs : that ceiling in whole sequences
    margins : each ceiling over the lowest [1]; None where the lowest holds no sequence
    max_num_batched_tokens : decode rows and the largest chunk within the TPOT target [token]; None without a target
    """

    kv_seqs: float
    ridge_seqs: float
    tpot_seqs: int | None
    binds: Ceiling
    max_num_seqs: int
    margins: dict[Ceiling, float | None]
    max_num_batched_tokens: int | None
    explanation: Explanation


_SUBJECT: dict[Ceiling, str] = {
    "KV memory": "KV memory",
    "compute ridge": "The compute ridge",
    "TPOT target": "The TPOT target",
}


def ceilings(kv_tokens: float, context_tokens: float, tpot_s: float | None, c: StepCoefficients) -> Ceilings:
    """Return which ceiling binds max_num_seqs, and the token budget that goes with it.

    kv_tokens : of the KV cache [token]; context_tokens : mean tokens of a running sequence [token]; tpot_s : target [s]

    Past the compute ridge a larger batch still adds throughput, but each step grows with it; the KV memory is a hard wall.
    """
    require_tokens("kv_tokens", kv_tokens, least=0.0)
    require_tokens("context_tokens", context_tokens)
    by_limit: dict[Ceiling, float] = {"KV memory": kv_tokens / context_tokens, "compute ridge": knee_tokens(c)}
    tpot_seqs = None if tpot_s is None else best_batch(context_tokens, tpot_s, c).batch
    if tpot_seqs is not None:
        by_limit["TPOT target"] = float(tpot_seqs)
    binds = min(by_limit, key=lambda name: by_limit[name])
    lowest = by_limit[binds]
    seqs = int(lowest)
    budget = None
    if tpot_s is not None and seqs:
        budget = seqs + largest_chunk(Decoders(float(seqs), context_tokens), tpot_s, c).chunk_tokens
    margins = {name: value / lowest if lowest else None for name, value in by_limit.items()}
    listed = ", ".join(f"{name} {value:.1f}" for name, value in by_limit.items())
    return Ceilings(
        by_limit["KV memory"],
        by_limit["compute ridge"],
        tpot_seqs,
        binds,
        seqs,
        margins,
        budget,
        Explanation(
            f"{_SUBJECT[binds]} binds first: {plural(seqs, 'sequence')} at "
            f"{plural(context_tokens, 'token', f'{context_tokens:,.0f}')}.",
            listed + " sequences",
            f"--max-num-seqs {seqs}" + ("" if budget is None else f" --max-num-batched-tokens {budget}"),
        ),
    )
