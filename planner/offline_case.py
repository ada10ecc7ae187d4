"""The offline question on a case: its present way to work, the machines that it may move to, and the engines behind them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from planner.analysis.case import Case
from planner.analysis.offline import DailyWork
from planner.analysis.offline_levers import Engine, Engines, Machine, Terms, Way
from planner.calibration.priors import completed
from planner.calibration.records import TEXTBOOK as TEXTBOOK_RECORD
from planner.calibration.records import CalibrationRecord, host_for, load_record, record_for
from planner.cases import TEXTBOOK_GPU
from planner.deployment import Deployment, Parallelism, shard
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import load_market
from planner.memory import memory_budget
from planner.models import QUANTIZATIONS, ModelSpec, load_model
from planner.plans.candidates import Layout, layouts, quantization_for
from planner.plans.load import planned_load
from planner.plans.machines import record_over
from planner.pricing import Tariff
from planner.questions import ENGINE_VERSION, LARGE_MODEL, MEMORY_BYTES, MEMORY_UTILIZATION
from planner.scenario import HardwareChoice, ModelChoice, Scenario, scenario_from_json
from planner.step_coefficients import coefficients_for
from planner.units import DAY_S, percentage

_TEXTBOOK_WORK = DailyWork(1000.0, 250.0, 8e9, 2e9)
_TEXTBOOK_TP, _TEXTBOOK_SEQS, _TEXTBOOK_OTHER_BYTES = 4, 1024.0, 4e9
_UNKNOWN_SHARE, _SPOT_LOST_MINUTES, _WINDOW_HOURS = 0.5, 20.0, 24.0
_TEXTBOOK_IDLE_HOURS = 24.0
_FP8 = "fp8"
_SIXTEEN_BITS = 16.0


@dataclass(frozen=True, slots=True)
class OfflineCase:
    """What the offline question starts from.

    model : that does the work; way : how it is done now; work : of a day
    terms : what the levers may use, at their first values
    cached_source : where the share of repeated prompt tokens comes from; cached_assumed : from nowhere but our assumption
    """

    model: ModelSpec
    way: Way
    work: DailyWork
    terms: Terms
    cached_source: str
    cached_assumed: bool


def offline_case(case: Case) -> OfflineCase:
    """Return the offline question on a case: a 70B model's ten billion tokens a day for the textbook's, else the scenario's load.

    A machine that nobody rents has no price; its bill can't be told.
    """
    return _textbook() if case.textbook else _own(case)


def check_context(asked: OfflineCase) -> None:
    """Raise InputError when a mean request is longer than the model's context."""
    most, work = asked.model.max_positions, asked.work
    if most is not None and work.prompt_tokens + work.output_tokens > most:
        request = f"{work.prompt_tokens:,.0f} prompt + {work.output_tokens:,.0f} output tokens"
        bound = f"must be at most {most:,} tokens, the context of {asked.model.name}"
        raise InputError("request", request, bound, "Shorten the prompt or lower the output tokens a day, or take another model")


@lru_cache(maxsize=1)
def _textbook() -> OfflineCase:
    model = load_model(LARGE_MODEL)
    scenario = Scenario(model=ModelChoice(id=LARGE_MODEL))
    machines = _machines(scenario, model)
    own = next(each for each in machines if each.gpu_id == TEXTBOOK_GPU and each.gpus == _TEXTBOOK_TP)
    gpus = {layout.gpu.id: layout.gpu for layout in _layouts(scenario, model)}
    record = load_record(TEXTBOOK_RECORD)

    def deploy(machine: Machine, weights: str, kv_dtype: str) -> Deployment:
        gpu = gpus[machine.gpu_id]
        config = engine_defaults("vllm", ENGINE_VERSION, gpu, machine.gpus)
        return Deployment(gpu, model, QUANTIZATIONS[weights], kv_dtype, Parallelism(tp=machine.gpus), config)

    def kv_tokens(deployment: Deployment) -> float:
        total = MEMORY_BYTES if deployment.gpu.id == TEXTBOOK_GPU else deployment.gpu.memory_reported_bytes
        part = shard(deployment)
        free = total * MEMORY_UTILIZATION - _TEXTBOOK_OTHER_BYTES - float(part.weights.total)
        return max(free, 0.0) / float(part.kv.full_bytes_per_token)

    way = Way(own, "bf16", "bf16", _TEXTBOOK_SEQS)
    engines = _engines(deploy, lambda _: record, kv_tokens)
    terms = _terms(engines, machines, (_UNKNOWN_SHARE, _TEXTBOOK_IDLE_HOURS), model)
    return OfflineCase(model, way, _TEXTBOOK_WORK, terms, "assumed", cached_assumed=True)


def _own(case: Case) -> OfflineCase:
    scenario = scenario_from_json(case.key)
    model = case.deployment.model
    machines = _machines(scenario, model)
    gpu_id, gpus = case.deployment.gpu.id, case.deployment.gpus_per_replica
    unpriced = Machine(gpu_id, case.deployment.gpu.name, gpus, None, None, "no price is known", "no spot price is known")
    own = next((each for each in machines if each.gpu_id == gpu_id and each.gpus == gpus), unpriced)
    ways = _layouts(scenario, model)
    known = {layout.gpu.id: layout.gpu for layout in ways} | {gpu_id: case.deployment.gpu}
    links = {key: layout.link for key, layout in _cheapest_of(ways).items()}
    choice = scenario.engine
    held = {name: value for name in ("gpu_memory_utilization", "block_size") if (value := getattr(choice, name)) is not None}

    def deploy(machine: Machine, weights: str, kv_dtype: str) -> Deployment:
        gpu = known[machine.gpu_id]
        config = engine_defaults(choice.engine, choice.version, gpu, machine.gpus, "offline")
        config = config.replace(max_model_len=case.limits.max_model_len, **held)
        quantization = case.deployment.quantization if weights == case.deployment.quantization.id else QUANTIZATIONS[weights]
        return Deployment(gpu, model, quantization, kv_dtype, Parallelism(tp=machine.gpus), config)

    def record_of(deployment: Deployment) -> CalibrationRecord:
        link = links.get((deployment.gpu.id, deployment.parallelism.tp))
        return record_over(record_of_gpu(deployment), deployment.gpu, link)

    def record_of_gpu(deployment: Deployment) -> CalibrationRecord:
        if choice.calibration_id is not None:
            named = load_record(choice.calibration_id)
            if named.gpu_id is None:
                return named
            if named.gpu_id == deployment.gpu.id:
                return completed(named.with_host(host_for(choice.engine, "offline")), deployment.gpu)
        return record_for(deployment.gpu, choice.engine, choice.version, deployment.quantization.compute_dtype, "offline")

    def kv_tokens(deployment: Deployment) -> float:
        budget = memory_budget(deployment)
        if not budget.fits:
            return 0.0
        return float(budget.one_group_blocks(max(round(case.context_tokens), 1)) * budget.block_size)

    load = planned_load(scenario, case.workload, case.lengths)
    prompt, output = float(case.lengths.prompt_mean_tokens), float(case.lengths.output_mean_tokens)
    work = DailyWork(prompt, output, load.mean_rps * DAY_S * prompt, load.mean_rps * DAY_S * output)
    hits = case.workload.prefix_hits
    share = _UNKNOWN_SHARE if hits is None else min(hits.unbounded_hit_rate, 0.99)
    source = "assumed: this workload's reuse isn't known" if hits is None else hits.source.ref
    way = Way(own, case.deployment.quantization.id, case.deployment.kv_dtype, float(case.limits.max_num_seqs))
    terms = _terms(_engines(deploy, record_of, kv_tokens), machines, (share, 0.0), model)
    return OfflineCase(model, way, work, terms, source, cached_assumed=hits is None)


def _terms(engines: Engines, machines: tuple[Machine, ...], own: tuple[float, float], model: ModelSpec) -> Terms:
    """Return what the levers may use at first; own : share of repeated prompt tokens [1], and idle GPU-hours [h/day]."""
    cached_share, idle_hours = own
    return Terms(engines, machines, cached_share, _SPOT_LOST_MINUTES, idle_hours, _WINDOW_HOURS, _eight_bit_weights(model))


def _eight_bit_weights(model: ModelSpec) -> str | None:
    """Return the quantization to move to; None for a model that comes in fewer than 16 bits."""
    native = model.native_quantization
    return None if native is not None and native.weight_bits < _SIXTEEN_BITS else _FP8


def _engines(
    deploy: Callable[[Machine, str, str], Deployment],
    record_of: Callable[[Deployment], CalibrationRecord],
    kv_tokens: Callable[[Deployment], float],
) -> Engines:
    """Return the replicas by machine, weights and KV dtype, each worked out once.

    None where the model can't be split so, the GPU lacks the precision, or nothing is left for the cache.
    """

    @cache
    def engines(machine: Machine, weights: str, kv_dtype: str) -> Engine | None:
        try:
            deployment = deploy(machine, weights, kv_dtype)
            coefficients = coefficients_for(deployment, record_of(deployment))
        except InputError:
            return None
        tokens = kv_tokens(deployment)
        return Engine(coefficients, tokens) if tokens > 0.0 else None

    return engines


def _layouts(scenario: Scenario, model: ModelSpec, basis: Literal["on_demand", "spot"] = "on_demand") -> tuple[Layout, ...]:
    """Return every layout with a price, whatever GPU the scenario names."""
    own = scenario.hardware
    wide = HardwareChoice(provider=own.provider, region=own.region, usd_per_gpu_hour=own.usd_per_gpu_hour, price_basis=basis)
    asked = scenario.model_copy(update={"hardware": wide, "engine": scenario.engine.model_copy(update={"logged_kv_tokens": None})})
    return layouts(asked, model, quantization_for(scenario, model))


def _machines(scenario: Scenario, model: ModelSpec) -> tuple[Machine, ...]:
    """Return the layouts that the work may move to, with their cheapest price a GPU-hour."""
    try:
        spot = _cheapest_of(_layouts(scenario, model, "spot"))
    except InputError:
        spot = {}
    ways = _cheapest_of(_layouts(scenario, model))
    return tuple(_machine(layout, spot.get(key)) for key, layout in ways.items() if layout.refusal is None)


def _cheapest_of(ways: Sequence[Layout]) -> dict[tuple[str, int], Layout]:
    """Return the layouts by GPU and TP size; where machines differ in their link, those that rent a GPU for least."""
    found: dict[tuple[str, int], Layout] = {}
    for layout in sorted(ways, key=_usd_or_nothing):
        found.setdefault((layout.gpu.id, layout.tensor_parallel), layout)
    return {(layout.gpu.id, layout.tensor_parallel): found[layout.gpu.id, layout.tensor_parallel] for layout in ways}


def _usd_or_nothing(layout: Layout) -> float:
    tariff = _cheapest(layout)
    return math.inf if tariff is None else _usd_per_gpu_hour(tariff, layout.tensor_parallel)


def _machine(layout: Layout, spot: Layout | None) -> Machine:
    tariff = _cheapest(layout)
    interruptible = None if spot is None else _cheapest(spot)
    usd = None if tariff is None else _usd_per_gpu_hour(tariff, layout.tensor_parallel)
    spot_usd, spot_source = None, _spot_range(tariff)
    if interruptible is not None and interruptible.as_of is not None:
        spot_usd = _usd_per_gpu_hour(interruptible, layout.tensor_parallel)
        spot_source = _named(interruptible)
    return Machine(
        layout.gpu.id,
        layout.gpu.name,
        layout.tensor_parallel,
        usd,
        spot_usd,
        "no price is known" if tariff is None else _named(tariff),
        spot_source,
    )


def _spot_range(tariff: Tariff | None) -> str:
    """Return what is known of spot where no dated price is: a provider's range, which is no price."""
    provider = "" if tariff is None else tariff.provider
    for each in load_market().spot_discounts:
        if each.provider == provider and each.low is not None and each.high is not None:
            return f"no dated spot price is known; discounts of {provider} span {percentage(each.low)} to {percentage(each.high)}"
    return "no dated spot price is known"


def _cheapest(layout: Layout) -> Tariff | None:
    holding = (tariff for tariff in layout.tariffs if tariff.gpus_per_instance >= layout.tensor_parallel)
    return min(holding, key=lambda tariff: _usd_per_gpu_hour(tariff, layout.tensor_parallel), default=None)


def _usd_per_gpu_hour(tariff: Tariff, gpus: int) -> float:
    """Return the price of a used GPU when a machine holds as many replicas as fit [USD/h]."""
    return tariff.usd_per_instance_hour / (tariff.gpus_per_instance // gpus * gpus)


def _named(tariff: Tariff) -> str:
    day = "" if tariff.as_of is None else f", {tariff.as_of}"
    return f"{tariff.provider} {tariff.instance} {tariff.region}{day}: {tariff.source}"
