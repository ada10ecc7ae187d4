"""Random engines and workloads for the simulator's tests, and comparisons of its two loops."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits, Stop
from planner.simulator.plain_loop import Sequence
from planner.simulator.plain_run import PlainResult, run_plain, step_time_of
from planner.simulator.run import SimulationOptions, simulate
from planner.step_model import StepCoefficients
from planner.workloads import BlockHashes

TICK_S = 2.0**-6
LIGHT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


class Case(NamedTuple):
    """An engine, its requests, and the identities of each request's leading blocks."""

    limits: EngineLimits
    coefficients: StepCoefficients
    stop: Stop
    arrival_s: list[float]
    prompt: list[int]
    output: list[int]
    priority: list[int]
    shared: list[list[int]]
    known_hit: list[int]

    def table(self) -> RequestTable:
        """Return the requests as the simulator takes them."""
        return RequestTable(
            np.array(self.arrival_s, np.float64),
            np.array(self.prompt, np.int64),
            np.array(self.output, np.int64),
            None if any(self.known_hit) else BlockHashes.from_lists(self.shared, self.limits.block_size),
            np.array(self.known_hit, np.int64) if any(self.known_hit) else None,
        )

    def options(self, *, log_steps: bool) -> SimulationOptions:
        """Return the options of a run."""
        return SimulationOptions(stop=self.stop, priorities=np.array(self.priority, np.int64), log_steps=log_steps)


def coefficients(**given: float) -> StepCoefficients:
    """Return coefficients that cost nothing but what is given."""
    neutral = {"mix_factor": 1.0, "expert_miss_ratio": 1.0, "expert_spread": 1.0}
    return StepCoefficients(**(dict.fromkeys(StepCoefficients._fields, 0.0) | neutral | given))


@st.composite
def engine_limits(draw: st.DrawFn, longest: int) -> EngineLimits:
    """Draw an engine whose cache holds at least one request of the longest kind."""
    block_size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    seqs = draw(st.integers(1, 10))
    least = -(-longest // block_size)
    return EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=max(seqs, draw(st.sampled_from([1, 3, 7, 16, 40, 200]))),
        block_size=block_size,
        num_blocks=draw(st.integers(least, 4 * least + 4)),
        max_model_len=draw(st.sampled_from([None, longest, longest - 1, longest + 5])),
        enable_prefix_caching=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.05, 0.3])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 5, 16])),
    )


@st.composite
def cases(draw: st.DrawFn, *, known_hits: bool = False) -> Case:
    """Draw a case whose times are sums of powers of two, so that ties are exact and both loops must agree on them."""
    count = draw(st.integers(1, 14))
    ticks = draw(st.lists(st.integers(0, 60), min_size=count, max_size=count))
    prompt = draw(st.lists(st.integers(1, 40), min_size=count, max_size=count))
    output = draw(st.lists(st.integers(1, 30), min_size=count, max_size=count))
    priority = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    groups = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), min_size=count, max_size=count))
    limits = draw(engine_limits(max(p + o for p, o in zip(prompt, output, strict=True)) + 1))
    shared = [
        [group * 1000 + position for position in range(min(length, tokens) // limits.block_size)]
        for (group, length), tokens in zip(groups, prompt, strict=True)
    ]
    window = float(draw(st.sampled_from([0, 0, 6, 24])))
    costs = coefficients(
        layers_s=TICK_S * draw(st.sampled_from([0.25, 1.0])),
        linear_s_per_token=TICK_S / draw(st.sampled_from([16, 128])),
        dense_weights_s=TICK_S * draw(st.sampled_from([0.0, 0.5])),
        decode_s_per_context_token=TICK_S / draw(st.sampled_from([128, 2048])),
        decode_s_per_window_token=TICK_S / 512 if window else 0.0,
        prefill_s_per_pair=TICK_S / 4096,
        prefill_s_per_window_pair=TICK_S / 2048 if window else 0.0,
        host_s=TICK_S * draw(st.sampled_from([0.0, 0.5, 1.5])),
        host_s_per_sequence=TICK_S / 64,
        mix_factor=draw(st.sampled_from([1.0, 1.5])),
        window_tokens=window,
        host_overlap=float(draw(st.booleans())),
    )
    known_hit = [0] * count
    if known_hits and draw(st.integers(0, 3)) == 0:
        shared = [[] for _ in range(count)]
        known_hit = [draw(st.integers(0, tokens)) for tokens in prompt]
    stop: Any = draw(st.sampled_from(["length", "eos"]))
    return Case(limits, costs, stop, [tick * TICK_S for tick in sorted(ticks)], prompt, output, priority, shared, known_hit)


def run_both(case: Case) -> tuple[PlainResult, Any]:
    """Run the plain loop, and the compiled one with its step log."""
    block_size = case.limits.block_size if case.limits.enable_prefix_caching else 10**9
    hits = [min(hit, tokens - 1) // block_size * block_size for hit, tokens in zip(case.known_hit, case.prompt, strict=True)]
    rows = zip(case.arrival_s, case.prompt, case.output, case.priority, case.shared, hits, strict=True)
    plain = run_plain(
        [Sequence(index, *row) for index, row in enumerate(rows)], case.limits, step_time_of(case.coefficients), case.stop
    )
    return plain, simulate(case.table(), case.limits, case.coefficients, case.options(log_steps=True))
