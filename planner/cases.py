"""The cases that the questions are asked of: a replica of the plan, or the textbook's."""

from functools import lru_cache

from planner.analysis.case import Case
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.plans.results import Plan
from planner.provenance import Source
from planner.questions import ENGINE_VERSION, MEMORY_BYTES, MEMORY_UTILIZATION, SMALL_MODEL, textbook_setting
from planner.replay import ReplaySettings, planned_rate_rps, replayed_candidate
from planner.replay.setup import setup_of
from planner.simulator import EngineLimits
from planner.workloads import Constant, ConstantLengths, PoissonArrivals, ProfileArrivals, Workload

TEXTBOOK_GPU = "h100-80g-sxm"
_BLOCK_TOKENS = 16
_OTHER_BYTES = 2e9


def planned_case(plan: Plan) -> Case:
    """Return one replica of the plan at its planned rate; where the plan has no answer, the candidate that comes nearest.

    Raises InputError when no candidate starts.
    """
    candidate = replayed_candidate(plan)
    if candidate is None or candidate.deployment is None:
        raise InputError("plan", plan.summary, "has no engine that starts", "Change the scenario until a candidate fits")
    setup = setup_of(plan, candidate, ReplaySettings())
    deployment, targets, workload = candidate.deployment, plan.scenario.targets, plan.workload
    if isinstance(workload.arrivals, ProfileArrivals):
        workload = workload.model_copy(update={"arrivals": workload.arrivals.base})
    gpus = deployment.gpus_per_replica
    tariff = candidate.tariff
    return Case(
        key=plan.scenario.to_json(),
        label=f"{gpus} × {candidate.gpu_name}" if gpus > 1 else candidate.gpu_name,
        textbook=False,
        deployment=deployment,
        limits=setup.limits,
        coefficients=setup.coefficients,
        request_s=setup.request_s,
        workload=workload,
        lengths=plan.lengths,
        rate_rps=planned_rate_rps(plan),
        usd_per_hour=None if tariff is None else tariff.usd_per_gpu_hour * gpus,
        ttft_p99_s=targets.ttft_p99_s,
        tpot_p99_s=targets.tpot_p99_s,
        seed=plan.scenario.seed,
    )


@lru_cache(maxsize=1)
def textbook_case() -> Case:
    """Return the setting of the published figures: an 8B model on one H100 at its hard limits, 10 equal requests a second."""
    gpu = load_gpu(TEXTBOOK_GPU)
    setting = textbook_setting(gpu, SMALL_MODEL, 1, 0.97, 0.475)
    deployment = Deployment(
        gpu=gpu,
        model=load_model(SMALL_MODEL),
        quantization=QUANTIZATIONS["bf16"],
        kv_dtype="bf16",
        parallelism=Parallelism(tp=1),
        engine=engine_defaults("vllm", ENGINE_VERSION, gpu, 1),
    )
    kv_tokens = (MEMORY_BYTES * MEMORY_UTILIZATION - float(setting.shard.weights.total) - _OTHER_BYTES) / setting.kv_bytes_per_token
    workload = _textbook_workload()
    return Case(
        key="textbook",
        label="the textbook H100",
        textbook=True,
        deployment=deployment,
        limits=EngineLimits(
            max_num_seqs=1024,
            max_num_batched_tokens=8192,
            block_size=_BLOCK_TOKENS,
            num_blocks=int(kv_tokens) // _BLOCK_TOKENS,
            async_scheduling=False,
        ),
        coefficients=setting.c,
        request_s=0.0,
        workload=workload,
        lengths=workload.length_stats(),
        rate_rps=10.0,
        usd_per_hour=None,
        ttft_p99_s=1.0,
        tpot_p99_s=0.030,
        seed=1,
    )


def _textbook_workload() -> Workload:
    source = Source(kind="assumed", ref="The textbook setting: requests of 500 prompt and 250 output tokens, Poisson arrivals")
    return Workload(
        id="textbook",
        name="Textbook",
        description="Equal requests, arrivals without memory.",
        lengths=ConstantLengths(prompt=Constant(tokens=500), output=Constant(tokens=250)),
        arrivals=PoissonArrivals(),
        licence="Apache-2.0",
        sources={"*": source},
    )
