"""With the policies that vLLM has, the policy engine makes the plain loop's decisions, with and without stretches."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from planner.simulator.cluster import ClusterResult, EngineSpec, Outcome, engine_steps, run_engine
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits
from planner.simulator.limits import EngineLimits
from planner.simulator.plain_loop import Sequence
from planner.simulator.plain_run import PlainResult, run_plain, step_time_of
from planner.simulator.policies import Discipline

_PATH = Path(__file__).parent.parent / "simulator" / "engines.py"
_SPEC = importlib.util.spec_from_file_location("cluster_test_engines", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
engines = importlib.util.module_from_spec(_SPEC)
sys.modules["cluster_test_engines"] = engines
_SPEC.loader.exec_module(engines)

LIGHT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def spec_of(case: Any) -> tuple[EngineSpec, Traits]:
    spec = EngineSpec(case.limits, case.coefficients, Discipline(policy=case.limits.policy), case.stop)
    return spec, Traits(priority=np.array(case.priority, np.int64))


def assert_same_requests(mine: ClusterResult, plain: PlainResult) -> None:
    for index, sequence in enumerate(plain.sequences):
        assert sequence.index == index
        assert (mine.outcome[index] == Outcome.REFUSED) == sequence.rejected
        assert mine.preemptions[index] == sequence.preemptions
        assert mine.cached_tokens[index] == (sequence.cached_tokens or 0)
        for one, other in (
            (mine.first_scheduled_s[index], sequence.first_scheduled_s),
            (mine.first_token_s[index], sequence.first_token_s),
            (mine.finish_s[index], sequence.finish_s),
        ):
            assert (np.isnan(one) and other is None) or one == other


@LIGHT
@given(engines.cases(known_hits=True))
def test_every_step_is_the_plain_loops(case: Any) -> None:
    plain, _ = engines.run_both(case)
    spec, traits = spec_of(case)
    mine, steps = engine_steps(spec, case.table(), traits)
    assert len(steps) == len(plain.steps)
    for step, other in zip(steps, plain.steps, strict=True):
        assert sorted((row.sequence.index, row.tokens, row.context) for row in step.chunks) == sorted(
            (row.sequence.index, row.tokens, row.context) for row in other.rows if not row.decodes
        )
        assert sorted(job.index for job in step.decoders) == sorted(row.sequence.index for row in other.rows if row.decodes)
        assert [job.index for job in step.preempted] == other.preempted
        assert (step.used_blocks, step.running, step.waiting) == (other.used_blocks, other.running, other.waiting)
        assert (step.scheduled_at_s, step.start_s, step.duration_s) == (other.scheduled_at_s, other.start_s, other.duration_s)
    assert_same_requests(mine, plain)


@LIGHT
@given(engines.cases(known_hits=True))
def test_stretches_change_nothing(case: Any) -> None:
    plain, _ = engines.run_both(case)
    spec, traits = spec_of(case)
    mine = run_engine(spec, case.table(), traits)
    assert_same_requests(mine, plain)
    totals = mine.replicas[0].totals
    assert totals.steps == len(plain.steps)
    assert totals.computed_tokens == sum(row.tokens for step in plain.steps for row in step.rows)
    assert totals.preemptions == sum(sequence.preemptions for sequence in plain.sequences)
    assert totals.peak_running == max((step.running for step in plain.steps), default=0)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("stop", ["length", "eos"])
def test_arrivals_at_a_steps_very_end_cut_a_stretch_short(asynchronous: bool, stop: Any) -> None:
    """Steps of exactly one second and arrivals at whole seconds: what arrives as a step ends takes part in the next decision."""
    costs = engines.coefficients(layers_s=1.0)
    limits = EngineLimits(4, 32, 4, 60, async_scheduling=asynchronous)
    rng = np.random.default_rng(2)
    rows = [(float(at), int(rng.integers(1, 30)), int(rng.integers(20, 90))) for at in np.sort(rng.integers(0, 1200, 40))]
    plain = run_plain([Sequence(index, *row) for index, row in enumerate(rows)], limits, step_time_of(costs), stop)
    table = RequestTable(*(np.array(column) for column in zip(*rows, strict=True)))
    mine = run_engine(EngineSpec(limits, costs, stop=stop), table)
    assert_same_requests(mine, plain)
    assert mine.replicas[0].totals.steps == len(plain.steps)
