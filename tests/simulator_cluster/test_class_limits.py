"""Two classes on one engine: priority orders the queue, only limits protect the running."""

from collections.abc import Callable

import numpy as np
import pytest

from planner.simulator.cluster import EngineSpec, Outcome, engine_steps, run_engine
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits
from planner.simulator.limits import EngineLimits
from planner.simulator.policies import ClassLimit, Discipline
from planner.step_model import StepCoefficients

INTERACTIVE, BATCH = 0, 1


@pytest.fixture(scope="module")
def mixed() -> tuple[RequestTable, Traits]:
    """Short interactive requests all along, and a pile of long-context batch requests at the start."""
    count, piled = 60, 40
    arrival_s = np.concatenate([np.arange(count) * 0.5 + 5.0, np.zeros(piled)])
    prompt = np.array([512] * count + [8192] * piled, np.int64)
    output = np.array([50] * count + [400] * piled, np.int64)
    of_class = np.array([INTERACTIVE] * count + [BATCH] * piled, np.int64)
    return RequestTable(arrival_s, prompt, output), Traits(class_index=of_class, priority=of_class)


def test_priority_alone_leaves_interactive_tpot_damaged_and_a_kv_limit_repairs_it(
    mixed: tuple[RequestTable, Traits], usual: StepCoefficients
) -> None:
    requests, traits = mixed
    limits = EngineLimits(max_num_seqs=256, max_num_batched_tokens=2048, block_size=16, num_blocks=25_000)
    target_s = 0.012
    tpot = {}
    for name, batch in (("priority", ClassLimit()), ("limited", ClassLimit(max_kv_tokens=40_000, prefill_share=0.1))):
        spec = EngineSpec(limits, usual, Discipline(policy="priority", class_limits=(ClassLimit(), batch)))
        run = run_engine(spec, requests, traits)
        assert run.count(Outcome.SERVED) == len(requests)
        tpot[name] = float(np.percentile(run.tpot_s[run.of_class(INTERACTIVE)], 95))
        if name == "limited":
            assert run.replicas[0].peak_class_blocks[BATCH] <= 40_000 // 16
    assert tpot["limited"] < target_s < 0.7 * tpot["priority"]


def test_prefill_share_bounds_a_classs_chunks_in_each_step(mixed: tuple[RequestTable, Traits], usual: StepCoefficients) -> None:
    requests, traits = mixed
    limits = EngineLimits(max_num_seqs=64, max_num_batched_tokens=1000, block_size=16, num_blocks=25_000)
    spec = EngineSpec(limits, usual, Discipline(class_limits=(ClassLimit(), ClassLimit(prefill_share=0.25))))
    _, steps = engine_steps(spec, requests, traits)
    chunks = [sum(row.tokens for row in step.chunks if row.sequence.prompt_tokens == 8192) for step in steps]
    assert max(chunks) == 250


def test_what_its_class_could_never_hold_is_refused(usual: StepCoefficients, table: Callable[..., RequestTable]) -> None:
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64, block_size=16, num_blocks=100)
    spec = EngineSpec(limits, usual, Discipline(class_limits=(ClassLimit(max_kv_tokens=64),)))
    run = run_engine(spec, table([0.0, 0.0], [60, 40], [10, 10]))
    assert run.outcome.tolist() == [Outcome.REFUSED, Outcome.SERVED]


def test_a_class_at_its_limit_doesnt_hold_up_the_others(usual: StepCoefficients, table: Callable[..., RequestTable]) -> None:
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, block_size=16, num_blocks=100)
    spec = EngineSpec(limits, usual, Discipline(class_limits=(ClassLimit(), ClassLimit(max_kv_tokens=160))))
    requests = table([0.0, 0.0, 0.0, 0.01], 100, 50)
    run = run_engine(spec, requests, Traits(class_index=np.array([1, 1, 1, 0], np.int64)))
    assert run.first_scheduled_s[3] < run.finish_s[0] <= run.first_scheduled_s[1] < run.finish_s[1] <= run.first_scheduled_s[2]


def test_a_class_over_its_limit_preempts_its_own_and_the_others_decode_on(
    usual: StepCoefficients, table: Callable[..., RequestTable]
) -> None:
    """Two batch requests grow past their class's blocks; the interactive one behind them loses no step by that."""
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, block_size=16, num_blocks=100, async_scheduling=False)
    spec = EngineSpec(limits, usual, Discipline(class_limits=(ClassLimit(), ClassLimit(max_kv_tokens=240))))
    requests = table([0.0, 0.0, 0.0], [100, 100, 100], [60, 60, 100])
    run, steps = engine_steps(spec, requests, Traits(class_index=np.array([1, 1, 0], np.int64)))
    preempting = [step for step in steps if step.preempted]
    assert [job.index for step in preempting for job in step.preempted] == [1]
    assert all(2 in [job.index for job in step.decoders] for step in preempting)
    assert run.preemptions.tolist() == [0, 1, 0]
