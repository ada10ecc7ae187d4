"""The sweep and its knee: half load for a single server, bounds on the p95, budgets that don't start."""

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.analysis.budget_sweep import BUDGETS, LOADS, Sweep, SweepPoint, bound_of, knee_of, sweep
from planner.analysis.case import Case
from planner.analysis.served import Served
from planner.cases import textbook_case
from planner.step_model import StepCoefficients
from planner.workloads import Constant, MixedLengths, Weibull

CASE = textbook_case()
STEADY = StepCoefficients(
    **(
        dict.fromkeys(StepCoefficients._fields, 0.0)
        | {"layers_s": 0.01, "mix_factor": 1.0, "expert_miss_ratio": 1.0, "host_overlap": 1.0}
    )
)


def point(budget: int, load: float, tokens_per_s: float, p95_s: float) -> SweepPoint:
    run = Served(tokens_per_s, 1.0, p95_s, p95_s, 0.01, 0.01, p95_s, 10.0 * p95_s, 1.0, 1.0, 1.0, 0, "stable")
    return SweepPoint(budget, load, load, run)


def test_the_knee_is_the_largest_power() -> None:
    points = (point(512, 0.5, 100.0, 1.0), point(512, 0.9, 160.0, 2.0), point(2048, 0.5, 100.0, 0.9), point(2048, 0.9, 190.0, 1.8))
    found = knee_of(Sweep(points, (), 10.0, 100), "ttft", 1.9)
    assert found.point == points[2]
    assert found.within == points[3]
    assert not found.beyond
    assert "budget 2,048 and 50\xa0% of the saturating rate" in found.explanation.answer
    assert knee_of(Sweep(points, (), 10.0, 100), "ttft", 0.5).within is None
    assert knee_of(Sweep(points, (), 10.0, 100), "ttft", None).within is None


def test_an_end_of_the_sweep_is_not_called_a_knee() -> None:
    rising = (point(512, 0.05, 100.0, 1.0), point(512, 0.1, 190.0, 1.1), point(2048, 0.1, 180.0, 1.1))
    found = knee_of(Sweep(rising, (), 10.0, 100), "ttft", None)
    assert found.beyond
    assert found.point == rising[1]
    assert found.explanation.answer.startswith("The knee lies beyond the highest load tried; best there is budget 512, at 10\xa0%")
    assert not knee_of(Sweep(rising[1:], (), 10.0, 100), "ttft", None).beyond  # one load alone has no end


def single_server() -> Case:
    """Return an engine that serves one request at a time for as long as its exponential output takes: M/M/1."""
    lengths = MixedLengths(
        prompt=Constant(tokens=1), output=Weibull(mean_tokens=300, p95_tokens=300 * math.log(20), cap_tokens=10_000)
    )
    workload = CASE.workload.model_copy(update={"lengths": lengths})
    return replace(
        CASE,
        workload=workload,
        lengths=workload.length_stats(),
        coefficients=STEADY,
        limits=CASE.limits._replace(max_num_seqs=1, max_num_batched_tokens=256),
    )


def test_a_single_server_has_its_knee_at_half_load() -> None:
    found = sweep(single_server(), 8000)
    assert found is not None
    knee = knee_of(found, "e2e", None).point
    assert knee.load == pytest.approx(0.5, abs=0.11)
    alike = found.of(256)
    half = next(each for each in alike if each.load == 0.5)
    # M/M/1: the sojourn is exponential with rate μ - λ.
    assert half.p95_s("e2e") == pytest.approx(np.log(20.0) / (found.saturated_rps - half.rate_rps), rel=0.1)


def test_an_engine_that_batches_bends_later() -> None:
    found = sweep(CASE, 1500)
    assert found is not None
    assert found.budgets == BUDGETS
    assert len(found.points) == len(BUDGETS) * len(LOADS)
    assert knee_of(found, "e2e", None).point.load >= 0.6
    for budget in found.budgets:
        loads = [each.load for each in found.of(budget)]
        assert loads == sorted(loads)
    small, large = found.of(256)[5], found.of(8192)[5]
    assert small.run.tpot_p95_s < large.run.tpot_p95_s


def test_bounds_follow_the_targets() -> None:
    assert bound_of(CASE, "ttft") == 1.0
    assert bound_of(CASE, "e2e") == pytest.approx(1.0 + 0.030 * 249)
    offline = replace(CASE, ttft_p99_s=None, tpot_p99_s=None)
    assert bound_of(offline, "ttft") is None
    assert bound_of(offline, "e2e") is None


def test_an_engine_that_serves_nothing_has_no_sweep() -> None:
    assert sweep(CASE.with_limits(num_blocks=4), 200) is None
