"""What is said of fitted parameters at the ends of their ranges: too fast for the hardware, or too slow to be it."""

import pytest

from planner.calibration.schema import bounds_of
from planner.tuning.results import FittedValue
from planner.tuning.warnings import of_parameters

FAST, SLOW = "more than the hardware can do", "longer than this hardware explains"


def fitted(path: str, value: float, prior: float) -> FittedValue:
    return FittedValue(path, value, value, value, "data", prior, 0.8 * prior, 1.25 * prior)


@pytest.mark.parametrize(
    ("path", "end", "words"),
    [
        ("memory_efficiency.bf16", 1, FAST),
        ("kv_read_efficiency", 0, SLOW),
        ("kv_read_efficiency", 1, FAST),
        ("attention_efficiency", 0, SLOW),
        ("activation_bandwidth_fraction", 0, SLOW),
        ("all_reduce.2.beta_bytes_per_s", 0, SLOW),
        ("all_reduce.2.beta_bytes_per_s", 1, FAST),
        ("all_reduce.2.alpha_s", 1, SLOW),
        ("layer_s", 1, SLOW),
        ("host.request_s", 1, SLOW),
        ("mix_factor", 1, SLOW),
    ],
)
def test_each_end_is_said_for_what_it_is(path: str, end: int, words: str) -> None:
    at = bounds_of(path)[end]
    (said,) = of_parameters([fitted(path, at, at)])
    assert words in said
    assert path in said


@pytest.mark.parametrize(("path", "value"), [("mix_factor", 1.0), ("expert_spread", 1.0), ("smoothness", 1.0), ("layer_s", 1e-5)])
def test_an_ordinary_value_says_nothing(path: str, value: float) -> None:
    assert of_parameters([fitted(path, value, value)]) == []


def test_what_lies_far_from_the_prior_is_named_apart_from_both_ends() -> None:
    said = of_parameters(
        [fitted("layer_s", 1e-3, 1e-5), fitted("kv_read_efficiency", 0.01, 0.8), fitted("compute_efficiency.bf16", 1.0, 0.7)]
    )
    assert len(said) == 3
    assert [("layer_s" in each, "kv_read" in each, "compute" in each) for each in said] == [
        (False, False, True), (False, True, False), (True, False, False),
    ]  # fmt: skip
