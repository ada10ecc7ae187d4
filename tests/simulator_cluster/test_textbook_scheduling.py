"""Head-of-line blocking and class limits at the textbook setting: Llama-3.1-8B in BF16 on one H100 of 989 TFLOP/s and 3.35 TB/s."""

import numpy as np
import pytest

from planner.calibration.records import load_record
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.simulator.cluster import EngineSpec, engine_steps, run_engine
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits
from planner.simulator.limits import EngineLimits
from planner.simulator.policies import ClassLimit, Discipline
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients


@pytest.fixture(scope="module")
def textbook() -> StepCoefficients:
    gpu = load_gpu("h100-80g-sxm")
    rates = {**gpu.dense_flops_per_s, "bf16": 989e12}
    gpu = gpu.model_copy(update={"memory_bytes_per_s": 3.35e12, "dense_flops_per_s": rates})
    engine = engine_defaults("vllm", "0.33.0", gpu, 1)
    deployment = Deployment(gpu, load_model("llama-3.1-8b-instruct"), QUANTIZATIONS["bf16"], "bf16", Parallelism(tp=1), engine)
    return coefficients_for(deployment, load_record("textbook"))


def test_each_short_prompt_behind_a_long_one_pays_its_prefill(textbook: StepCoefficients) -> None:
    """One 32,768-token prompt takes 1.573 s: first come, first served, the ten behind it pay that; shortest first, none does."""
    limits = EngineLimits(max_num_seqs=64, max_num_batched_tokens=8192, block_size=16, num_blocks=20_000)
    requests = RequestTable(np.zeros(11), np.array([32_768] + [200] * 10, np.int64), np.full(11, 20, np.int64))
    fcfs = run_engine(EngineSpec(limits, textbook), requests)
    short = run_engine(EngineSpec(limits, textbook, Discipline(policy="shortest-prompt")), requests)
    assert fcfs.ttft_s[0] == pytest.approx(1.573, rel=0.002)
    assert fcfs.ttft_s[1:].min() > 1.573
    assert short.ttft_s[1:].max() < 0.3
    assert short.ttft_s[0] == pytest.approx(fcfs.ttft_s[0], rel=0.06)


def longest_joint_decode_s(textbook: StepCoefficients, kv_tokens: int | None) -> float:
    """Return the longest step in which 32 interactive sequences at 2,048 tokens decode, and nothing prefills."""
    batch, interactive = 60, 32
    requests = RequestTable(
        np.array([0.0] * batch + [20.0] * interactive),
        np.array([8000] * batch + [2016] * interactive, np.int64),
        np.array([4000] * batch + [64] * interactive, np.int64),
    )
    traits = Traits(class_index=np.array([1] * batch + [0] * interactive, np.int64))
    limits = EngineLimits(max_num_seqs=256, max_num_batched_tokens=8192, block_size=16, num_blocks=40_000)
    spec = EngineSpec(limits, textbook, Discipline(class_limits=(ClassLimit(), ClassLimit(kv_tokens, 0.1))))
    _, steps = engine_steps(spec, requests, traits)
    joint = [step for step in steps if not step.chunks and sum(job.class_index == 0 for job in step.decoders) == interactive]
    assert len(joint) > 20
    return max(step.duration_s for step in joint)


def test_batch_may_hold_191824_tokens_beside_32_interactive_sequences_at_15_ms(textbook: StepCoefficients) -> None:
    assert longest_joint_decode_s(textbook, 191_824) == pytest.approx(0.015, rel=0.02)
    assert longest_joint_decode_s(textbook, 400_000) > 0.02
