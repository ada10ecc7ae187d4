"""Batch work simulated: the engine with its queue never empty, and static batches with and without sorting by length."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.batching import harmonic_number
from planner.analysis.case import Case
from planner.analysis.offline import DailyWork
from planner.analysis.offline_levers import Bill, Engine, Terms
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
    requests : served in it
    """

    gpu_days: float
    running: float
    preemptions: int
    requests: int


@dataclass(frozen=True, slots=True)
class StaticWaste:
    """Static batches on the same engine.

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
        requests=len(requests),
    )


def static_waste(case: Case, engine: Engine, work: DailyWork) -> StaticWaste:
    """Serve the day's requests in static batches on one replica, in order of arrival and sorted by output length.

    Outputs are the workload's own, stretched; exponential ones where they are all alike, as batches of equal ones waste nothing.
    """
    batch = min(_STATIC_BATCH, max(int(engine.kv_tokens / (work.prompt_tokens + 8.0 * work.output_tokens)), 1))
    drawn = _requests(case, work, batch * _STATIC_WAVES, engine.kv_tokens)
    outputs = drawn.output_tokens
    formula = expected_max_ratio(batch, outputs)
    if int(outputs.min()) == int(outputs.max()):
        rng = np.random.default_rng([case.seed, _STREAM])
        outputs = np.ceil(rng.exponential(work.output_tokens, len(outputs))).astype(np.int64)
        formula = harmonic_number(batch)
    drawn = replace(drawn, output_tokens=outputs)
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


def _requests(case: Case, work: DailyWork, count: int, kv_tokens: float) -> Requests:
    drawn = case.requests(count)
    prompts = _stretched(drawn.prompt_tokens, work.prompt_tokens / float(case.lengths.prompt_mean))
    outputs = _stretched(drawn.output_tokens, work.output_tokens / float(case.lengths.output_mean))
    kept = prompts + outputs <= kv_tokens
    if not bool(kept.any()):
        raise InputError("kv_tokens", kv_tokens, "must hold one request", "Use more GPUs or shorter requests")
    return Requests(np.zeros(int(kept.sum())), prompts[kept], outputs[kept], drawn.class_index[kept], None, None)


def _stretched(tokens: Ints, factor: float) -> Ints:
    stretched: Ints = np.maximum(np.rint(tokens * factor), 1.0).astype(np.int64)
    return stretched
