"""Intervals of step times: a fit's own scatter sets how far groups that it hasn't seen may lie."""

import numpy as np
import pytest

from planner.accuracy.steps import HeldOut, coverage_of, departure_ratio, range_parts
from planner.calibration.fit import StepGroup
from planner.calibration.spread import Z80
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_model import StepShape


def groups(scatter: float, beyond: float, count: int = 6, seed: int = 1, gpu: str = "a") -> list[HeldOut]:
    """Groups whose held-out errors are normal with `beyond` times the scatter of their fits."""
    rows, rng = 400, np.random.default_rng(seed)
    return [
        HeldOut(gpu, f"group {place}", np.expm1(rng.normal(0, beyond * scatter, rows)), np.zeros(rows), scatter, (True, True))
        for place in range(count)
    ]


@pytest.mark.parametrize("beyond", [0.7, 1.0, 2.5])
def test_a_known_ratio_is_recovered(beyond: float) -> None:
    assert departure_ratio(groups(0.05, beyond)) == pytest.approx(beyond, rel=0.06)


def test_a_gpu_that_the_form_describes_half_as_well_has_twice_the_width_and_the_same_coverage() -> None:
    well, badly = groups(0.03, 1.3), groups(0.06, 1.3, count=2, seed=2, gpu="b")
    found = [coverage_of(part, well + badly) for part in (well, badly)]
    assert all(part is not None and 76.0 < part.covered_pct < 84.0 for part in found)
    assert found[1].half_width_pct == pytest.approx(2.0 * found[0].half_width_pct, rel=0.05)  # type: ignore[union-attr]


def test_covariance_adds_to_the_scatter_and_alone_holds_nothing_without_others() -> None:
    (alone,) = groups(0.05, 1.0, count=1)
    assert coverage_of([alone], [alone]) is None
    certain, unsure = groups(0.05, 1.0, count=2), alone._replace(gpu="b", parameter_sd=np.full(400, 0.2))
    covered = coverage_of([unsure], [unsure, *certain])
    assert covered is not None
    assert covered.half_width_pct == pytest.approx(100 * np.sinh(Z80 * np.hypot(0.2, 0.05)), rel=0.03)


def test_thirds_of_the_range_go_by_tokens_within_each_phase() -> None:
    gpu = load_gpu("l40s")
    engine = engine_defaults("vllm", "0.19.0", gpu, 1)
    deployment = Deployment(gpu, load_model("llama-3.1-8b-instruct"), QUANTIZATIONS["bf16"], "bf16", Parallelism(), engine)
    scheduled = np.array([1.0, 4.0, 2.0, 900.0, 8.0, 300.0, 600.0, 3.0, 5.0])
    context = np.array([500.0, 10.0, 10.0, 0.0, 0.0, 0.0, 0.0, 90.0, 800.0])
    phase = np.where(np.isin(np.arange(9), [3, 5, 6]), "prefill", "decode")
    shape = StepShape(scheduled, scheduled, scheduled, decode_context_tokens=context)
    group = StepGroup("one", deployment, shape, np.ones(9), phase, np.arange(9))
    # Decode by tokens read or computed: 8, 12, 14, 93, 501, 805; prefill: 300, 600, 900.
    assert range_parts(group).tolist() == [2, 1, 0, 2, 0, 0, 1, 1, 2]
