"""Preemption, by link and model and in simulated runs: what it costs to lose a sequence's keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.analysis.case import Case
from planner.analysis.preemption import Copies, copy_bytes_per_s, recompute_s
from planner.analysis.steps import require_positive
from planner.deployment import shard
from planner.errors import InputError
from planner.models import ModelSpec, kv_bytes, load_model, token_flops
from planner.parallel import in_parallel
from planner.provenance import Source
from planner.simulator import SimulationOptions, percentile_s, simulate, values_s
from planner.simulator.inputs import RequestTable
from planner.units import GB, KIB, MIB

CACHE_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
_QUIET = SimulationOptions(over_time=False)
_LAYOUTS = ("llama-2-7b-hf", "llama-3.1-8b-instruct", "qwen2.5-72b-instruct", "deepseek-v2-lite", "deepseek-v3")


class HostPath(NamedTuple):
    """A path to host memory; bytes_per_s : achieved in one direction by large copies [B/s]."""

    name: str
    bytes_per_s: float
    source: Source


_NVBANDWIDTH = "nvbandwidth on an H200: 55.4 GB/s host to device, 55.1 back; stas00/ml-engineering@744d01e1"
HOST_PATHS = (
    HostPath("PCIe 3 x16", 12.4 * GB, Source(kind="published", ref="sample output in the nvbandwidth README, 12.4 GB/s")),
    HostPath("PCIe 4 x16", 25.0 * GB, Source(kind="assumed", ref="about 80 % of 31.5 GB/s, as Gen 3 and Gen 5 reach")),
    HostPath("PCIe 5 x16", 55.0 * GB, Source(kind="measured", ref=_NVBANDWIDTH)),
    HostPath(
        "PCIe 6 x16", 106.0 * GB, Source(kind="assumed", ref="the same 88 % of 121 GB/s as on Gen 5; nobody has published it")
    ),
    HostPath("NVLink-C2C", 450.0 * GB, Source(kind="datasheet", ref="Grace Hopper data sheet, 450 GB/s each way: a peak")),
)


def own_path(case: Case) -> HostPath:
    """Return the case's own path to host memory: its coherent link, or PCIe as its GPU's profile states it."""
    gpu = case.deployment.gpu
    if case.textbook:
        return HOST_PATHS[2]
    if gpu.host_link is not None:
        source = gpu.source_for("host_link.unidirectional_bytes_per_s")
        return HostPath(gpu.host_link.kind, gpu.host_link.unidirectional_bytes_per_s, source)
    pcie = gpu.pcie
    if pcie is None:
        return HOST_PATHS[2]._replace(source=Source(kind="assumed", ref=f"{gpu.name} states no link to its host; Gen 5 stands in"))
    name = "PCIe" if pcie.generation is None else f"PCIe {pcie.generation} x{pcie.lanes}"
    if pcie.achieved_bytes_per_s is not None:
        return HostPath(name, pcie.achieved_bytes_per_s, gpu.source_for("pcie.achieved_bytes_per_s"))
    source = Source(kind="assumed", ref="88 % of the link's payload rate, as measured on Gen 5")
    return HostPath(name, 0.88 * pcie.theoretical_bytes_per_s, source)


def block_copy_bytes(case: Case) -> float:
    """Return the keys, or the values, of one block in one layer: the copy that a layer-wise cache makes [B]."""
    layers = shard(case.deployment).layers
    return case.limits.block_size * case.kv_bytes_per_token / layers / 2.0


class RestorePoint(NamedTuple):
    """One context length [token]: time to compute it again and to copy it out and in [s]."""

    context_tokens: float
    recompute_s: float
    swap_s: float


def restore_curve(case: Case, copies: Copies, cached_share: float, most_tokens: float, points: int = 40) -> list[RestorePoint]:
    """Return both costs over context lengths from 128 tokens; cached_share : found again in the prefix cache [1]."""
    if not 0.0 <= cached_share < 1.0:
        raise InputError("cached_share", cached_share, "must be at least 0 and below 1", "Give the share found in the prefix cache")
    require_positive("most_tokens", most_tokens, "tokens")
    rate = copy_bytes_per_s(copies)
    found = []
    for context in np.geomspace(min(128.0, most_tokens / 2.0), most_tokens, points).tolist():
        cached = cached_share * context
        swap_s = 2.0 * case.kv_bytes_per_token_at(context) * (context - cached) / rate
        found.append(RestorePoint(context, recompute_s(context, case.coefficients, cached), swap_s))
    return found


def copy_sizes() -> list[float]:
    """Return copies from 4 KiB to 64 MiB [B]."""
    return [float(size) for size in np.geomspace(4 * KIB, 64 * MIB, 57)]


def least_copy_bytes(copies: Copies, bytes_per_s: float) -> float | None:
    """Return the copy size from which a rate is reached [B]; None where no size reaches it.

    From size / (size / rate + latency) = wanted: size = wanted · latency / (1 - wanted / rate).
    """
    if bytes_per_s >= copies.bytes_per_s:
        return None
    return bytes_per_s * copies.latency_s / (1.0 - bytes_per_s / copies.bytes_per_s)


class LayoutPoint(NamedTuple):
    """What one model's layout of keys and values means on the case's compute.

    break_even_bytes_per_s : below it, computing again is faster than one copy [B/s]
    """

    name: str
    attention: str
    kv_bytes_per_token: float
    break_even_bytes_per_s: float


def layout_points(case: Case) -> list[LayoutPoint]:
    """Return models with different attention, all with 16-bit keys and values, at the FLOP/s of the case's linear layers."""
    flops_per_s = shard(case.deployment).flops.linear_flops / case.coefficients.linear_s_per_token
    found = []
    for model in (load_model(model_id) for model_id in _LAYOUTS):
        held = float(kv_bytes(model, "bf16").full_bytes_per_token)
        computed = float(token_flops(model).linear_flops)
        found.append(LayoutPoint(model.name, attention_of(model), held, held * flops_per_s / computed))
    return found


def attention_of(model: ModelSpec) -> str:
    """Return the kind of attention of the first attention layers, in the field's letters."""
    group = next(group for group in model.groups if group.heads is not None or group.kind == "mla")
    if group.kind == "mla":
        return "MLA"
    heads, kv_heads = group.heads or 1, group.kv_heads or 1
    return "MHA" if kv_heads == heads else f"GQA, {heads // kv_heads} heads share one"


@dataclass(frozen=True, slots=True)
class TightRun:
    """One run with a smaller KV cache.

    kv_tokens : of the cache [token]; prefix_caching : lost blocks may be found again
    preemptions : in the run; lost_tokens : computed again [token]; lost_share : of all tokens computed [1]
    ttft_p99_s, tpot_p99_s : [s]; None where the engine served nothing
    """

    kv_tokens: int
    prefix_caching: bool
    preemptions: int
    lost_tokens: int
    lost_share: float
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    requests: int


def peak_kv_tokens(case: Case, count: int, rate_rps: float) -> int:
    """Return the most KV cache that the requests ever hold when nothing binds [token]."""
    result = simulate(case.requests(count, rate_rps), case.limits, case.coefficients, _QUIET)
    return max(int(result.averages.peak_kv_share * case.kv_tokens), case.limits.block_size)


def tight_runs(case: Case, count: int, rate_rps: float, kv_tokens: Sequence[int]) -> list[TightRun]:
    """Return runs of the same requests on caches of these sizes, without and with the prefix cache."""
    wanted = [(tokens, caching) for caching in (False, True) for tokens in kv_tokens]
    return in_parallel(lambda one: tight_run(case, count, rate_rps, one[0], prefix_caching=one[1]), wanted)


def tight_run(case: Case, count: int, rate_rps: float, kv_tokens: int, *, prefix_caching: bool) -> TightRun:
    """Return what a cache of so many tokens makes of the requests; those that it could never hold are refused."""
    blocks = max(kv_tokens // case.limits.block_size, 1)
    limits = case.limits._replace(num_blocks=blocks, enable_prefix_caching=prefix_caching)
    drawn = case.requests(count, rate_rps)
    result = simulate(RequestTable(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens), limits, case.coefficients, _QUIET)
    totals = result.totals
    waits, paces = (values_s(result, metric) for metric in ("ttft", "tpot"))
    waits, paces = waits[np.isfinite(waits)], paces[np.isfinite(paces)]
    return TightRun(
        kv_tokens=blocks * case.limits.block_size,
        prefix_caching=prefix_caching,
        preemptions=totals.preemptions,
        lost_tokens=totals.recomputed_tokens,
        lost_share=totals.recomputed_tokens / max(totals.computed_tokens, 1),
        ttft_p99_s=percentile_s(waits, 99.0) + case.request_s if len(waits) else None,
        tpot_p99_s=percentile_s(paces, 99.0) if len(paces) else None,
        requests=count - int(result.rejected.sum()),
    )


def tight_sizes(peak_tokens: int) -> list[int]:
    """Return the cache sizes to try, from what the run needs down to two fifths of it [token]."""
    return [max(int(share * peak_tokens), 1) for share in CACHE_SHARES]


def recompute_measured_s(case: Case, context_tokens: int) -> float | None:
    """Return the time that the simulated engine takes to compute a context when it has nothing else to do [s]; None where it can't.

    A request of that prompt alone, decided after a first one has ended: what a resumed sequence costs on an idle engine.
    """
    limits = case.limits._replace(max_model_len=None, enable_prefix_caching=False)
    table = RequestTable(np.zeros(1), np.array([context_tokens], np.int64), np.ones(1, np.int64))
    result = simulate(table, limits, case.coefficients, _QUIET)
    return None if result.rejected[0] else float(result.first_token_s[0])
