"""Interactive and batch work on one engine, simulated: one queue, priority, priority with a cap on the batch class, two engines."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.class_sharing import BatchWork
from planner.analysis.littles_law import Stream
from planner.analysis.served import stretched
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.simulator import SimulationOptions, simulate, token_gaps_s, values_s
from planner.simulator.cluster import Cluster, EngineSpec, Pool, run_cluster
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits
from planner.simulator.limits import Policy
from planner.simulator.policies import ClassLimit, Discipline
from planner.workloads import Requests

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.bool_]
Say = Callable[[str, float], None]

INTERACTIVE, BATCH = 0, 1
ONE_QUEUE = "One queue"
PRIORITY = "Priority alone"
CAPPED = "Priority and a cap"
POOLS = "Separate pools"
CAP_SHARES = (0.5, 1.0)
LOAD_FACTORS = (1.0, 1.15, 1.3, 1.5, 1.7, 2.0, 2.4, 3.0, 4.0, 6.0)
# Share of the span left out [1]. The pile's prompts come first and all at once: with a tenth left out the interactive class's mean
# TPOT is 2 % low, from a fifth to a half it moves by less than that (32 sequences beside a cap of 100,000 tokens, equal and
# recorded lengths). A half would leave too few requests for the tail.
_WARM_UP = 1.0 / 3.0
_OUTPUT_SPREAD = (0.5, 1.5)  # so that batch sequences don't end in step
_TURNS = 4.5
_FEWEST_INTERACTIVE = 150
_MOST_INTERACTIVE = 1200
_MOST_PILED = 4000
_REFINEMENTS = 3
_PERCENTILE = 99.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """Two classes that share engines.

    interactive : its load on one engine; batch : its requests, of which there are always more; tpot_s : target of the first [s]
    """

    interactive: Stream
    batch: BatchWork
    tpot_s: float


class ClassRun(NamedTuple):
    """One way to share, simulated; figures are those of one engine.

    cap_tokens : KV that the batch class could hold [token]; None: no cap
    ttft_p99_s, tpot_p99_s, tpot_mean_s : of the interactive class [s]; None where none of its requests was measured, or ended
    batch_tokens_per_s : output of the batch class [token/s]
    interactive : requests measured; preemptions : of both classes
    """

    name: str
    cap_tokens: int | None
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    tpot_mean_s: float | None
    batch_tokens_per_s: float
    interactive: int
    preemptions: int

    def keeps(self, tpot_s: float) -> bool:
        """Whether p99 TPOT of the interactive class stays within a target [s]; not where none of its requests ended."""
        return self.tpot_p99_s is not None and self.tpot_p99_s <= tpot_s


@dataclass(frozen=True, slots=True)
class SimulatedSharing:
    """Every way to share.

    pools : None where one engine can't serve the interactive class alone; pool_share : of the engines that it needs then [1]
    capped : by rising cap; best : the largest cap simulated up to which p99 TPOT stays within the target, None where it never does
    span_s : of the runs, of which the first third is left out [s]
    """

    one_queue: ClassRun
    priority: ClassRun
    pools: ClassRun | None
    capped: tuple[ClassRun, ...]
    best: ClassRun | None
    pool_share: float | None
    span_s: float


class _Mix(NamedTuple):
    """Requests of both classes, batch work first, over a span.

    turn_s : how long an interactive request decodes at the target, at most a quarter of the span [s]
    """

    requests: RequestTable
    of_class: Ints
    span_s: float
    turn_s: float

    @property
    def measured(self) -> Masks:
        """Interactive requests that come after the warm-up and end, by and large, while batch work goes on."""
        at_s = self.requests.arrival_s
        inside: Masks = (at_s >= _WARM_UP * self.span_s) & (at_s <= self.span_s - self.turn_s)
        return inside & np.equal(self.of_class, INTERACTIVE)


def simulated_sharing(case: Case, sharing: Sharing, caps: tuple[float, float], say: Say) -> SimulatedSharing:
    """Return what each way to share makes of both classes.

    caps : the caps of the two formulas, without and with prefills [token]; the caps that are simulated lie around them
    say : told what is being done, and how much of it is done
    """
    mix = _mix(case, sharing)
    say("Simulating one queue, and priority", 0.05)
    one_queue = _on_one_engine(case, mix, ONE_QUEUE, None)
    priority = _on_one_engine(case, mix, PRIORITY, None)
    say("Simulating an engine for each class", 0.2)
    pools, pool_share = _on_pools(case, sharing, mix)
    capped: dict[int, ClassRun] = {}
    tried = _caps(case, mix, caps)
    for index, cap in enumerate(tried):
        say("Simulating caps on the batch class", 0.3 + 0.4 * index / len(tried))
        capped[cap] = _on_one_engine(case, mix, CAPPED, cap)
    for index in range(_REFINEMENTS):
        say("Narrowing the cap down", 0.7 + 0.1 * index)
        between = _between(capped, sharing.tpot_s, _least_cap(case, mix), case.limits.block_size)
        if between is None:
            break
        capped[between] = _on_one_engine(case, mix, CAPPED, between)
    runs = tuple(capped[cap] for cap in sorted(capped))
    held = list(takewhile(lambda run: run.keeps(sharing.tpot_s), runs))
    return SimulatedSharing(one_queue, priority, pools, runs, held[-1] if held else None, pool_share, mix.span_s)


def _caps(case: Case, mix: _Mix, formulas: tuple[float, float]) -> list[int]:
    """Return the caps to simulate: around the smaller formula's, and the larger's own."""
    centre = min(formulas) or max(formulas) / 4.0
    wanted = [share * centre for share in CAP_SHARES] + [max(formulas)]
    block = case.limits.block_size
    least = _least_cap(case, mix)
    return sorted({max(int(min(cap, case.kv_tokens)) // block * block, least) for cap in wanted})


def _least_cap(case: Case, mix: _Mix) -> int:
    """Return the smallest cap that every batch request fits [token]."""
    block = case.limits.block_size
    return (int((mix.requests.prompt_tokens + mix.requests.output_tokens)[mix.of_class == BATCH].max()) // block + 1) * block


def _between(capped: dict[int, ClassRun], tpot_s: float, least: int, block: int) -> int | None:
    """Return the cap half-way between the largest that meets the target, or the least one, and the next, which misses it."""
    caps = sorted(capped)
    missed = [cap for cap in caps if not capped[cap].keeps(tpot_s)]
    if not missed:
        return None
    held = [cap for cap in caps if cap < missed[0]]
    middle = ((held[-1] if held else least) + missed[0]) // 2 // block * block
    return None if middle in capped or middle < least else middle


def _mix(case: Case, sharing: Sharing) -> _Mix:
    """Return the workload's own requests at the lengths and the rate asked, and a pile of batch requests that outlasts them."""
    stream, batch = sharing.interactive, sharing.batch
    turn_s = stream.output_tokens * sharing.tpot_s
    count = min(max(int(stream.rate_rps * _TURNS * turn_s), _FEWEST_INTERACTIVE), _MOST_INTERACTIVE)
    requests = case.requests(count, stream.rate_rps)
    span_s = float(requests.arrival_s[-1])
    rng = np.random.default_rng(case.seed)
    piled = _piled(case, batch, span_s)
    outputs = np.maximum(np.rint(batch.output_tokens * rng.uniform(*_OUTPUT_SPREAD, piled)), 1)
    own = _interactive(case, sharing, requests)
    table = RequestTable(
        np.concatenate([np.zeros(piled), own.arrival_s]),
        np.concatenate([np.full(piled, round(batch.prompt_tokens), np.int64), own.prompt_tokens]),
        np.concatenate([outputs.astype(np.int64), own.output_tokens]),
    )
    of_class = np.concatenate([np.full(piled, BATCH, np.int64), np.full(count, INTERACTIVE, np.int64)])
    most = int((table.prompt_tokens + table.output_tokens).max())
    if most > case.kv_tokens:
        raise InputError("Tokens of a request", most, f"must fit the KV cache of {case.kv_tokens} tokens", "Shorten it")
    return _Mix(table, of_class, span_s, min(turn_s, span_s / 4.0))


def _piled(case: Case, batch: BatchWork, span_s: float) -> int:
    """Return how many batch requests outlast the span: their prompts alone keep the engine busy for longer [request]."""
    prompt_s = batch.prompt_tokens * case.coefficients.linear_s_per_token
    running = min(case.limits.max_num_seqs, int(case.kv_tokens / batch.running_context_tokens) + 1)
    return running + int(span_s / max(prompt_s, span_s / _MOST_PILED)) + 1


class _Seen(NamedTuple):
    """What became of each request of a mix; NaN and 0 for one that was dropped [s]."""

    first_token_s: Floats
    finish_s: Floats
    preemptions: Ints


def _on_one_engine(case: Case, mix: _Mix, name: str, cap_tokens: int | None) -> ClassRun:
    if cap_tokens is None:
        seen = _uncapped(case, mix, "fcfs" if name == ONE_QUEUE else "priority")
    else:
        seen = _capped(case, mix, cap_tokens)
    ttft_s = seen.first_token_s - mix.requests.arrival_s
    tpot_s = token_gaps_s(seen.first_token_s, seen.finish_s, mix.requests.output_tokens)
    batch, measured = mix.of_class == BATCH, mix.measured
    waits_s = np.where(np.isfinite(ttft_s), ttft_s, mix.span_s)[measured] + case.request_s
    return ClassRun(
        name=name,
        cap_tokens=cap_tokens,
        ttft_p99_s=_percentile(waits_s),
        tpot_p99_s=_percentile(tpot_s[measured]),
        tpot_mean_s=_mean(tpot_s[measured]),
        batch_tokens_per_s=_output_rate(mix, seen.first_token_s[batch], seen.finish_s[batch]),
        interactive=int(measured.sum()),
        preemptions=int(seen.preemptions.sum()),
    )


def _uncapped(case: Case, mix: _Mix, policy: Policy) -> _Seen:
    """Serve the mix by the compiled loop: once to see who begins within the span, and again without the batch work that doesn't."""
    limits, options = case.limits._replace(policy=policy), SimulationOptions(priorities=mix.of_class, over_time=False)
    first = simulate(mix.requests, limits, case.coefficients, options)
    rows = np.flatnonzero((first.first_scheduled_s <= mix.span_s) | (mix.of_class == INTERACTIVE))
    asked = mix.requests
    kept = RequestTable(asked.arrival_s[rows], asked.prompt_tokens[rows], asked.output_tokens[rows])
    run = simulate(kept, limits, case.coefficients, replace(options, priorities=mix.of_class[rows]))
    begun = run.first_scheduled_s - run.arrival_s <= mix.span_s
    times_s, preemptions = np.full((2, len(mix.of_class)), np.nan), np.zeros(len(mix.of_class), np.int64)
    times_s[:, rows] = np.where(begun, (run.first_token_s, run.finish_s), np.nan)
    preemptions[rows] = run.preemptions
    return _Seen(times_s[0], times_s[1], preemptions)


def _capped(case: Case, mix: _Mix, cap_tokens: int) -> _Seen:
    """Serve the mix by priority with a cap on the batch class, which the compiled loop doesn't know."""
    discipline = Discipline("priority", class_limits=(ClassLimit(), ClassLimit(max_kv_tokens=cap_tokens)))
    cluster = Cluster((Pool("engine", EngineSpec(case.limits, case.coefficients, discipline)),), deadline_s=mix.span_s)
    traits = Traits(class_index=mix.of_class, priority=mix.of_class)
    run = run_cluster(cluster, mix.requests, np.random.default_rng(case.seed), traits, by_events=True)
    return _Seen(run.first_token_s, run.finish_s, run.preemptions)


def _on_pools(case: Case, sharing: Sharing, mix: _Mix) -> tuple[ClassRun | None, float | None]:
    """Return what pools for each class make of the same load on as many engines, per engine, and the interactive pool's share.

    The interactive pool is as small as p99 TPOT allows; None where one engine misses it alone.
    """
    count = 2 * int((mix.of_class == INTERACTIVE).sum())
    base = case.requests(count, sharing.interactive.rate_rps)

    def at(factor: float) -> ClassRun:
        own = _interactive(case, sharing, replace(base, arrival_s=base.arrival_s / factor))
        run = case.serve(own)
        measured = own.arrival_s >= _WARM_UP * own.arrival_s[-1]
        ttft_s, tpot_s = values_s(run, "ttft")[measured], values_s(run, "tpot")[measured]
        return ClassRun(POOLS, None, _percentile(ttft_s), _percentile(tpot_s), _mean(tpot_s), 0.0, len(tpot_s), 0)

    runs = in_parallel(at, LOAD_FACTORS)
    held = list(takewhile(lambda pair: pair[1].keeps(sharing.tpot_s), zip(LOAD_FACTORS, runs, strict=True)))
    if not held:
        return None, None
    factor, alone = held[-1]
    share = 1.0 / factor
    batch = mix.of_class == BATCH
    pile = RequestTable(np.zeros(int(batch.sum())), mix.requests.prompt_tokens[batch], mix.requests.output_tokens[batch])
    piled = simulate(pile, case.limits, case.coefficients)
    rate = (1.0 - share) * _output_rate(mix, piled.first_token_s, piled.finish_s)
    return alone._replace(batch_tokens_per_s=rate, preemptions=piled.totals.preemptions), share


def _interactive(case: Case, sharing: Sharing, requests: Requests) -> Requests:
    """Return the workload's requests with lengths scaled to the means asked, none of their prompts cached."""
    prompt = sharing.interactive.prompt_tokens / case.lengths.prompt_mean_tokens
    output = sharing.interactive.output_tokens / case.lengths.output_mean_tokens
    return replace(stretched(requests, prompt, output), cached_prompt_tokens=None)


def _output_rate(mix: _Mix, first_token_s: Floats, finish_s: Floats) -> float:
    """Return the batch class's output from the warm-up to the end of the span, each request's spread evenly over its decode."""
    outputs = mix.requests.output_tokens[mix.of_class == BATCH]
    from_s, to_s = _WARM_UP * mix.span_s, mix.span_s
    lasted_s = np.maximum(finish_s - first_token_s, 1e-9)
    inside_s = np.clip(np.minimum(finish_s, to_s) - np.maximum(first_token_s, from_s), 0.0, None)
    return float(np.nansum(outputs * inside_s / lasted_s)) / (to_s - from_s)


def _percentile(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, _PERCENTILE)) if len(known) else None


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
