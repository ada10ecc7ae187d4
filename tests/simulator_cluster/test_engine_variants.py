"""SGLang's and TensorRT-LLM's schedulers do what their source says; neither was recorded."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.engines import ENGINE_VERSIONS, engine_defaults
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.simulator.cluster import EngineSpec, Outcome, engine_steps, run_engine
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits
from planner.simulator.limits import EngineLimits
from planner.simulator.variants import SglangSettings, TensorrtLlmSettings, evidence_of, scheduler_for, sglang, tensorrt_llm
from planner.step_model import StepCoefficients

SCHEDULERS: dict[str, Any] = {
    "sglang": sglang(),
    "no-evict": tensorrt_llm(),
    "no-evict-chunked": tensorrt_llm(TensorrtLlmSettings(enable_chunked_prefill=True)),
    "max-utilisation": tensorrt_llm(TensorrtLlmSettings("max_utilization")),
    "max-utilisation-chunked": tensorrt_llm(TensorrtLlmSettings("max_utilization", enable_chunked_prefill=True)),
}


def test_each_engines_configuration_names_its_scheduler_and_how_well_it_is_known() -> None:
    gpu = load_gpu("h100-80g-sxm")
    by_engine = {name: engine_defaults(name, ENGINE_VERSIONS[name][-1], gpu, 1) for name in ("vllm", "sglang", "tensorrt-llm")}
    assert scheduler_for(by_engine["vllm"]) is None
    assert scheduler_for(by_engine["sglang"]) == sglang()
    assert scheduler_for(by_engine["tensorrt-llm"]) == tensorrt_llm()
    fuller = by_engine["tensorrt-llm"].model_copy(update={"policy": "max_utilization", "enable_chunked_prefill": True})
    assert scheduler_for(fuller) == SCHEDULERS["max-utilisation-chunked"]
    assert evidence_of(by_engine["sglang"]) == evidence_of(by_engine["tensorrt-llm"]) == "read from source, not recorded"
    assert "recorded schedules" in evidence_of(by_engine["vllm"])
    with pytest.raises(InputError, match=r"engine\.policy"):
        scheduler_for(by_engine["sglang"].model_copy(update={"policy": "lpm"}))


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("stop", ["length", "eos"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_each_serves_all_under_kv_pressure_within_its_limits(
    name: str, stop: Any, asynchronous: bool, usual: StepCoefficients
) -> None:
    rng = np.random.default_rng(7)
    requests = RequestTable(np.sort(rng.uniform(0, 0.4, 80)), rng.integers(1, 100, 80), rng.integers(1, 90, 80))
    traits = Traits(max_new_tokens=requests.output_tokens + (rng.integers(0, 30, 80) if stop == "eos" else 0))
    limits = EngineLimits(16, 128, 8, 60, async_scheduling=asynchronous, enable_prefix_caching=asynchronous)
    spec = EngineSpec(limits, usual, stop=stop, scheduler=SCHEDULERS[name])
    by_step, steps = engine_steps(spec, requests, traits)
    run = run_engine(spec, requests, traits)
    assert run.count(Outcome.SERVED) == 80
    assert np.allclose(run.finish_s, by_step.finish_s, rtol=1e-12)
    assert np.array_equal(run.preemptions, by_step.preemptions)
    tokens: dict[int, int] = defaultdict(int)
    for step in steps:
        assert step.used_blocks <= 60
        assert step.running <= 16
        assert step.tokens <= 128
        for job in step.token_takers():
            tokens[job.index] += 1
    counted = np.array([tokens[index] for index in range(80)])
    assert ((counted - requests.output_tokens) >= 0).all()
    assert (counted - requests.output_tokens).sum() == run.replicas[0].wasted_rows
    assert (run.preemptions.sum() == 0) == name.startswith("no-evict")


def test_sglang_stops_decoding_while_it_prefills(usual: StepCoefficients, table: Callable[..., RequestTable]) -> None:
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, block_size=1, num_blocks=20_000)
    requests = table([0.0, 0.1], [100, 5000], [100, 10])
    spec = EngineSpec(limits, usual, scheduler=sglang())
    run, steps = engine_steps(spec, requests)
    assert not any(step.chunks and step.decoders for step in steps)
    chunks = [row.tokens for step in steps for row in step.chunks if row.sequence.index == 1]
    assert chunks == [512] * 9 + [392]
    vllm = run_engine(EngineSpec(limits, usual), requests)
    assert run.tpot_s[0] > 1.0 * vllm.tpot_s[0]
    stalled_s = sum(step.duration_s for step in steps if step.chunks and step.chunks[0].sequence.index == 1)
    assert run.e2e_s[0] > stalled_s


def test_sglangs_request_in_mid_prompt_takes_the_chunk_budget_first(
    usual: StepCoefficients, table: Callable[..., RequestTable]
) -> None:
    """Short prompts behind a long one wait for all of it, whatever their number."""
    limits = EngineLimits(max_num_seqs=32, max_num_batched_tokens=512, block_size=1, num_blocks=40_000)
    _, steps = engine_steps(EngineSpec(limits, usual, scheduler=sglang()), table([0.0] * 6, [5000] + [50] * 5, 5))
    first = [next(i for i, step in enumerate(steps) for row in step.chunks if row.sequence.index == job) for job in range(6)]
    assert first == [0, 9, 9, 9, 10, 10]  # 9 · 512 + 392, then 50 + 50 + 20 in the rest of that pass


def test_sglang_reserves_a_share_of_the_outputs_that_decays(usual: StepCoefficients, table: Callable[..., RequestTable]) -> None:
    """100 prompt tokens and 1,000 outputs each, 10,000 tokens of KV, worked by hand.

    In its own pass a request counts with all its outputs: nine fit. After it, 0.7 of what they have left is reserved: two more fit,
    then one. Then the reserved share decays with each decode step until another one fits.
    """
    limits = EngineLimits(max_num_seqs=64, max_num_batched_tokens=8192, block_size=1, num_blocks=10_000, async_scheduling=False)
    run, steps = engine_steps(EngineSpec(limits, usual, scheduler=sglang()), table([0.0] * 20, 100, 1000))
    assert [len(step.chunks) for step in steps[:4]] == [9, 2, 1, 0]
    decodes = next(k for k in range(1000) if 8800 - 12 * k - 12 * (999 - k) * (0.7 - k * (0.7 - 0.098) / 600) > 1100)
    assert next(i for i, step in enumerate(steps) if i > 2 and step.chunks) == 3 + decodes
    assert run.count(Outcome.SERVED) == 20


def test_sglang_retracts_the_fewest_outputs_and_then_the_longest_prompt(
    usual: StepCoefficients, table: Callable[..., RequestTable]
) -> None:
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, block_size=1, num_blocks=420, async_scheduling=False)
    settings = SglangSettings(initial_ratio=0.01, lowest_ratio=0.01)
    requests = table([0.0, 0.001, 0.001], [100, 110, 60], [120, 80, 100])
    _, steps = engine_steps(EngineSpec(limits, usual, scheduler=sglang(settings)), requests)
    assert next([job.index for job in step.preempted] for step in steps if step.preempted) == [1]


def test_no_evict_runs_as_many_as_fit_with_all_that_clients_allow(
    usual: StepCoefficients, table: Callable[..., RequestTable]
) -> None:
    """Concurrency follows max_tokens, not what comes out: 100 + 412 tokens are 16 blocks of 32, and 100 blocks hold six."""
    limits = EngineLimits(max_num_seqs=64, max_num_batched_tokens=8192, block_size=32, num_blocks=100)
    requests = table([0.0] * 30, 100, 20)
    allowed = Traits(max_new_tokens=np.full(30, 412, np.int64))
    no_evict = run_engine(EngineSpec(limits, usual, stop="eos", scheduler=tensorrt_llm()), requests, allowed)
    utilised = run_engine(EngineSpec(limits, usual, stop="eos", scheduler=SCHEDULERS["max-utilisation"]), requests, allowed)
    assert no_evict.replicas[0].totals.peak_running == 6
    assert utilised.replicas[0].totals.peak_running > 20
    assert utilised.makespan_s < no_evict.makespan_s


def test_max_utilisation_pauses_the_last_started(usual: StepCoefficients, table: Callable[..., RequestTable]) -> None:
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, block_size=8, num_blocks=60)
    _, steps = engine_steps(
        EngineSpec(limits, usual, scheduler=SCHEDULERS["max-utilisation"]), table([0.0, 0.001, 0.002], 100, 100)
    )
    assert next(job.index for step in steps for job in step.preempted) == 2
    assert all(not step.chunks for step in steps if step.preempted)


def test_whole_contexts_stop_at_the_first_that_doesnt_fit_the_budget(
    usual: StepCoefficients, table: Callable[..., RequestTable]
) -> None:
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, block_size=32, num_blocks=500)
    requests = table([0.0] * 4, [300, 300, 100, 600], 5)
    run, steps = engine_steps(EngineSpec(limits, usual, scheduler=tensorrt_llm()), requests)
    assert run.outcome.tolist() == [0, 0, 0, Outcome.REFUSED]
    assert [[row.tokens for row in step.chunks] for step in steps if step.chunks] == [[300], [300, 100]]
    chunked, steps = engine_steps(EngineSpec(limits, usual, scheduler=SCHEDULERS["no-evict-chunked"]), requests)
    assert chunked.count(Outcome.SERVED) == 4
    assert [[row.tokens for row in step.chunks] for step in steps if step.chunks][:2] == [[300, 192], [108, 100, 288]]
