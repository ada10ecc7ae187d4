"""Batch work simulated: the engine with its queue never empty, and static batches with and without sorting by length."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.batching import harmonic_number
from planner.analysis.case import Case
from planner.analysis.offline import DailyWork
from planner.analysis.offline_levers import Bill, Engine, Terms
from planner.analysis.served import all_at_once, stretched
from planner.analysis.speculation_simulated import refilled
from planner.errors import InputError
from planner.simulator import EngineLimits, SimulationOptions, simulate
from planner.simulator.static_batching import StaticBatching, simulate_static
from planner.units import DAY_S
from planner.workloads import Requests, expected_max_ratio

Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 16
_OPTIONS = SimulationOptions(over_time=False)
_WAVES, _LEAST, _MOST = 5, 600, 6000
_STATIC_BATCH, _STATIC_WAVES = 64, 24
_STREAM = 13


class SimulatedBill(NamedTuple):
    """The same work in the simulated engine.

    gpu_days : for the day's tokens [GPU·day/day]; running : sequences in the engine on average [seq]; preemptions : in the run
    requests : served in it; too_long : requests left out, as the KV cache never holds them [request]
    """

    gpu_days: float
    running: float
    preemptions: int
    requests: int
    too_long: int


@dataclass(frozen=True, slots=True)
class StaticWaste:
    """Static batches on the same engine, each as large as its padded requests leave room for, 64 at most.

    formula : decode steps over those of an engine that refills, E[longest of B] / E[output] [1]
    unsorted, sorted_ : output tokens a second in order of arrival, and longest first [token/s]
    continuous : with refilling [token/s]
    """

    batch: int
    formula: float
    unsorted: float
    sorted_: float
    continuous: float
    requests: int

    @property
    def unsorted_cost(self) -> float:
        """GPU time of static batches in order of arrival over that of an engine that refills [1]."""
        return self.continuous / self.unsorted

    @property
    def sorted_cost(self) -> float:
        """The same with requests sorted by length [1]."""
        return self.continuous / self.sorted_


@dataclass(frozen=True, slots=True)
class SimulatedOffline:
    """The day's work simulated: as it is done now, with every lever that saves, and in static batches on the present engine."""

    now: SimulatedBill
    then: SimulatedBill
    waste: StaticWaste


def simulated_offline(case: Case, bills: tuple[Bill, Bill], work: DailyWork, terms: Terms) -> SimulatedOffline:
    """Serve the day's requests as both bills say, and in static batches; bills : now, and with every lever that saves."""
    found = []
    engines = []
    for bill in bills:
        engine = terms.engines(bill.way.machine, bill.way.weights, bill.way.kv_dtype)
        if engine is None:
            raise InputError("way", bill.way.machine.gpu_name, "has no engine that starts", "Choose another GPU")
        cached = terms.cached_share * work.prompt_tokens if bill.way.cached else 0.0
        found.append(simulated_bill(case, bill, engine, work._replace(cached_tokens=cached)))
        engines.append(engine)
    return SimulatedOffline(found[0], found[1], static_waste(case, engines[0], work))


def simulated_bill(case: Case, bill: Bill, engine: Engine, work: DailyWork) -> SimulatedBill:
    """Serve requests like the day's with one replica of a bill, all waiting from the start; same case, same requests.

    work : lengths of the day's requests; the workload's own are stretched to them
    """
    way, batch = bill.way, max(int(bill.fleet.batch), 1)
    count = min(max(_WAVES * batch, _LEAST), _MOST)
    requests = _requests(case, work, count, engine.kv_tokens)
    if way.cached:
        share = work.cached_tokens / work.prompt_tokens
        cached = (requests.prompt_tokens * share).astype(np.int64) // BLOCK_TOKENS * BLOCK_TOKENS
        requests = replace(requests, cached_prompt_tokens=np.minimum(cached, requests.prompt_tokens - 1))
    seqs = int(min(way.max_num_seqs, 4.0 * batch))
    limits = EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=max(case.limits.max_num_batched_tokens, seqs),
        block_size=BLOCK_TOKENS,
        num_blocks=int(engine.kv_tokens) // BLOCK_TOKENS,
        enable_prefix_caching=way.cached,
        async_scheduling=case.limits.async_scheduling,
    )
    run = simulate(requests, limits, engine.coefficients, _OPTIONS)
    served = ~run.rejected
    columns = [column[served] for column in (run.first_scheduled_s, run.first_token_s, run.finish_s)]
    tokens_per_s, running = refilled(columns[0], columns[1], columns[2], run.output_tokens[served].astype(np.float64))
    return SimulatedBill(
        gpu_days=work.outputs_total / tokens_per_s / DAY_S * way.machine.gpus,
        running=running,
        preemptions=run.totals.preemptions,
        requests=int(served.sum()),
        too_long=count - int(served.sum()),
    )


def static_waste(case: Case, engine: Engine, work: DailyWork) -> StaticWaste:
    """Serve the day's requests in static batches on one replica, in order of arrival and sorted by output length.

    Outputs are the workload's own, stretched; exponential ones where they are all alike, as batches of equal ones waste nothing.
    """
    drawn = _requests(case, work, _STATIC_BATCH * _STATIC_WAVES, engine.kv_tokens)
    alike = int(drawn.output_tokens.min()) == int(drawn.output_tokens.max())
    if alike:
        drawn = replace(drawn, output_tokens=_exponential(case, work.output_tokens, len(drawn)))
    batch = static_batch(drawn, engine.kv_tokens)
    drawn = _first(drawn, batch * _STATIC_WAVES)
    outputs = drawn.output_tokens
    formula = harmonic_number(batch) if alike else expected_max_ratio(batch, outputs)
    order = np.argsort(-outputs, kind="stable")
    longest_first = replace(drawn, prompt_tokens=drawn.prompt_tokens[order], output_tokens=outputs[order])
    batching = StaticBatching(batch)
    total = float(outputs.sum())
    limits = EngineLimits(
        batch, max(case.limits.max_num_batched_tokens, batch), BLOCK_TOKENS, int(engine.kv_tokens) // BLOCK_TOKENS
    )
    run = simulate(drawn, limits, engine.coefficients, _OPTIONS)
    tokens_per_s, _ = refilled(run.first_scheduled_s, run.first_token_s, run.finish_s, outputs.astype(np.float64))
    return StaticWaste(
        batch=batch,
        formula=formula,
        unsorted=total / simulate_static(drawn, batching, engine.coefficients).makespan_s,
        sorted_=total / simulate_static(longest_first, batching, engine.coefficients).makespan_s,
        continuous=tokens_per_s,
        requests=len(drawn),
    )


def static_batch(requests: Requests, kv_tokens: float) -> int:
    """Return the most requests in a static batch that the KV cache holds on average, from 1 to 64 [request].

    Each takes the longest prompt and the longest output of its batch.
    """
    prompts, outputs = requests.prompt_tokens, requests.output_tokens

    def padded_tokens(batch: int) -> float:
        prompt = float(prompts.mean()) * expected_max_ratio(batch, prompts)
        return batch * (prompt + float(outputs.mean()) * expected_max_ratio(batch, outputs))

    return next((batch for batch in range(_STATIC_BATCH, 1, -1) if padded_tokens(batch) <= kv_tokens), 1)


def _exponential(case: Case, mean_tokens: float, count: int) -> Ints:
    rng = np.random.default_rng([case.seed, _STREAM])
    return np.ceil(rng.exponential(mean_tokens, count)).astype(np.int64)


def _requests(case: Case, work: DailyWork, count: int, kv_tokens: float) -> Requests:
    """Return the workload's requests with the day's lengths, all waiting, without those that the KV cache never holds."""
    prompt, output = work.prompt_tokens / case.lengths.prompt_mean_tokens, work.output_tokens / case.lengths.output_mean_tokens
    drawn = all_at_once(stretched(case.requests(count), prompt, output))
    kept = drawn.prompt_tokens + drawn.output_tokens <= kv_tokens
    if not bool(kept.any()):
        raise InputError("kv_tokens", kv_tokens, "must hold one request", "Use more GPUs or shorter requests")
    return _rows(drawn, np.flatnonzero(kept))


def _first(requests: Requests, count: int) -> Requests:
    return _rows(requests, np.arange(min(count, len(requests))))


def _rows(requests: Requests, rows: Ints) -> Requests:
    """Return some of the requests, none of their prompts cached."""
    lengths = requests.prompt_tokens[rows], requests.output_tokens[rows]
    return Requests(requests.arrival_s[rows], *lengths, requests.class_index[rows], None, None)
