"""A decode step with its parts is the same step as without them."""

import math

import pytest

from planner.analysis.steps import Decoders, decode_step, decode_step_s
from planner.calibration.records import record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients


@pytest.fixture(scope="module")
def coefficients() -> StepCoefficients:
    gpu = load_gpu("h100-80g-sxm")
    engine = engine_defaults("vllm", "0.33.0", gpu, 1)
    deployment = Deployment(gpu, load_model("llama-3.1-8b-instruct"), QUANTIZATIONS["bf16"], "bf16", Parallelism(), engine)
    return coefficients_for(deployment, record_for(gpu, "vllm", "0.33.0", "bf16"))


@pytest.mark.parametrize("sequences", [1.0, 11.3, 256.0])
def test_parts_belong_to_the_step(coefficients: StepCoefficients, sequences: float) -> None:
    step = decode_step(Decoders(sequences, 1200.0), coefficients)
    assert math.isclose(step.total_s, float(decode_step_s(sequences, 1200.0, coefficients)), rel_tol=1e-12)
    assert math.isclose(sum(step.parts().values()), step.total_s + step.hidden_s, rel_tol=1e-9)
    assert step.prefill_attention_s == 0.0


def test_a_step_without_sequences_is_refused(coefficients: StepCoefficients) -> None:
    with pytest.raises(InputError):
        decode_step(Decoders(0.0, 1200.0), coefficients)
