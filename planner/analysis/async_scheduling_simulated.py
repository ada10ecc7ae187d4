"""Asynchronous scheduling in simulated runs: on steps of a given length, and on the case's own engine."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.analysis.async_scheduling import mean_ttft_s
from planner.analysis.case import Case
from planner.analysis.steps import Chunk, decode_step, mixed_step_s
from planner.parallel import in_parallel
from planner.simulator import EngineLimits, SimulationOptions, Stop, measured_s, simulate, summarise
from planner.step_model import StepCoefficients
from planner.units import plural
from planner.workloads import Requests

_PLENTY_BLOCKS = 2**24


class Sides(NamedTuple):
    """What host and GPU take of a step [s]."""

    gpu_s: float
    host_s: float


@dataclass(frozen=True, slots=True)
class FixedSteps:
    """A run whose steps take a given time on host and GPU whatever they hold, with every prompt in one step.

    step_s : mean step [s]; ttft_s : mean TTFT [s]; formula_ttft_s : the same by formula
    wasted_rows : rows a request computed after its end [row]
    """

    step_s: float
    ttft_s: float
    formula_ttft_s: float
    wasted_rows: float


class OwnEngine(NamedTuple):
    """The case's engine at the case's load: p99 TTFT and p99 TPOT [s]."""

    ttft_p99_s: float
    tpot_p99_s: float


@dataclass(frozen=True, slots=True)
class SimulatedOverlap:
    """Both ways.

    serial, overlapped : with outputs that end at max_tokens; stopping : overlapped, every output ending at a stop token
    own_serial, own_overlapped : the case's engine at its planned load
    """

    requests: int
    sequences: float
    serial: FixedSteps
    overlapped: FixedSteps
    stopping: FixedSteps
    own_serial: OwnEngine
    own_overlapped: OwnEngine


def own_sides(case: Case, sequences: float) -> Sides:
    """Return GPU and host time of the case's decode step at so many sequences [s]; what no scheduling hides is left out."""
    step = decode_step(case.decoders(sequences), case.coefficients)
    exposed_s = case.coefficients.exposed_host_s_per_sequence * sequences
    return Sides(step.gpu_s, step.host_s - exposed_s)


def own_steps(case: Case, sequences: float) -> list[tuple[str, float]]:
    """Return the case's own steps by name with their GPU time [s]: decode alone, and with a whole budget of prefill."""
    chunk = Chunk(max(1.0, case.limits.max_num_batched_tokens - sequences), ends_prompt=True)
    mixed_s = mixed_step_s(case.decoders(sequences), chunk, case.coefficients._replace(host_s=0.0, host_s_per_sequence=0.0))
    return [
        (f"own step, {plural(sequences, 'decoder')}", own_sides(case, sequences).gpu_s),
        (f"own full step, {case.limits.max_num_batched_tokens:,} tokens", mixed_s),
    ]


def simulated_overlap(case: Case, sides: Sides, sequences: float, count: int) -> SimulatedOverlap:
    """Return what overlap does; sequences : that decode together on average [seq]; count : requests of each run."""
    requests = _busy_requests(case, sides, sequences, count)
    wanted: list[tuple[bool, Stop]] = [(False, "length"), (True, "length"), (True, "eos")]
    serial, overlapped, stopping = in_parallel(lambda one: _fixed(requests, sides, overlapped=one[0], stop=one[1]), wanted)
    own = case.requests(count)
    own_serial, own_overlapped = in_parallel(lambda on: _own(case, own, overlapped=on), [False, True])
    return SimulatedOverlap(count, sequences, serial, overlapped, stopping, own_serial, own_overlapped)


def _busy_requests(case: Case, sides: Sides, sequences: float, count: int) -> Requests:
    """Return the workload's requests at a rate that keeps so many sequences decoding on steps without overlap."""
    drawn = case.requests(count, 1.0)
    stay_s = float(drawn.output_tokens.mean()) * (sides.gpu_s + sides.host_s)
    return case.requests(count, sequences / stay_s)


def _fixed(requests: Requests, sides: Sides, *, overlapped: bool, stop: Stop) -> FixedSteps:
    """Serve requests on steps of a fixed length: prompts of one token take as long as any others, and all fit every step."""
    short = replace(requests, prompt_tokens=np.ones(len(requests), np.int64), cached_prompt_tokens=None)
    zero = dict.fromkeys(StepCoefficients._fields, 0.0)
    costs = {"layers_s": sides.gpu_s, "host_s": sides.host_s, "host_overlap": float(overlapped), "expert_miss_ratio": 1.0}
    limits = EngineLimits(len(requests), 2 * len(requests), 16, _PLENTY_BLOCKS, async_scheduling=overlapped)
    result = simulate(short, limits, StepCoefficients(**zero | costs), SimulationOptions(stop=stop, over_time=False))
    return FixedSteps(
        step_s=result.averages.step_s,
        ttft_s=float(measured_s(result, "ttft").mean()),
        formula_ttft_s=mean_ttft_s(sides.gpu_s, sides.host_s, overlapped=overlapped),
        wasted_rows=result.totals.wasted_rows / len(requests),
    )


def _own(case: Case, requests: Requests, *, overlapped: bool) -> OwnEngine:
    limits = case.limits._replace(async_scheduling=overlapped)
    costs = case.coefficients._replace(host_overlap=float(overlapped))
    summary = summarise(simulate(requests, limits, costs, SimulationOptions(over_time=False)))
    return OwnEngine(summary.ttft.percentiles[99.0].value + case.request_s, summary.tpot.percentiles[99.0].value)
