"""What can't be simulated is refused with the field, the value, the bound and the remedy; nothing hangs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.errors import InputError
from planner.simulator.cluster import (
    Cluster,
    Decision,
    EngineSpec,
    Handover,
    Outcome,
    Pool,
    ReplicaTimes,
    bounded_queue,
    predicted_ttft,
    run_cluster,
    run_engine,
)
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits, predict_outputs
from planner.simulator.limits import EngineLimits
from planner.simulator.policies import ClassLimit, Discipline
from planner.simulator.static_batching import StaticBatching, simulate_static
from planner.simulator.variants import SglangSettings, TensorrtLlmSettings, sglang, tensorrt_llm
from planner.step_model import StepCoefficients

NAN = float("nan")


@pytest.fixture(scope="module")
def one(table: Callable[..., RequestTable]) -> RequestTable:
    return table([0.0], 10, 5)


@pytest.mark.parametrize(
    ("field", "discipline"),
    [
        ("policy", Discipline(policy="<b>fcfs</b>")),
        ("prompt_weight", Discipline(prompt_weight=-1.0)),
        ("output_weight", Discipline(output_weight=NAN)),
        ("tenant_weights[1]", Discipline(tenant_weights=(1.0, 0.0))),
        ("level_costs", Discipline(level_costs=())),
        ("level_costs", Discipline(level_costs=(5.0, 5.0))),
        ("ageing_s", Discipline(ageing_s=NAN)),
        ("ageing_s", Discipline(ageing_s=-1.0)),
        ("class_limits[0].max_kv_tokens", Discipline(class_limits=(ClassLimit(max_kv_tokens=15),))),
        ("class_limits[1].prefill_share", Discipline(class_limits=(ClassLimit(), ClassLimit(prefill_share=1.5)))),
        ("class_limits[0].prefill_share", Discipline(class_limits=(ClassLimit(prefill_share=0.001),))),
    ],
)
def test_disciplines(field: str, discipline: Discipline, limits: EngineLimits, usual: StepCoefficients, one: RequestTable) -> None:
    with pytest.raises(InputError) as error:
        run_engine(EngineSpec(limits, usual, discipline), one)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("field", "traits"),
    [
        ("priority", Traits(priority=np.array([1, 2], np.int64))),
        ("class_index[0]", Traits(class_index=np.array([-1], np.int64))),
        ("tenant[0]", Traits(tenant=np.array([-7], np.int64))),
        ("max_new_tokens[0]", Traits(max_new_tokens=np.array([4], np.int64))),
        ("predicted_output_tokens", Traits(predicted_output_tokens=np.array([NAN]))),
        ("predicted_output_tokens[0]", Traits(predicted_output_tokens=np.array([-1.0]))),
    ],
)
def test_traits(field: str, traits: Traits, limits: EngineLimits, usual: StepCoefficients, one: RequestTable) -> None:
    with pytest.raises(InputError) as error:
        run_engine(EngineSpec(limits, usual), one, traits)
    assert error.value.field == field


@pytest.mark.parametrize("sigma", [-0.1, NAN, float("inf"), 11.0])
def test_predictors(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma"):
        predict_outputs(np.array([1], np.int64), sigma, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("pools", {"pools": ()}),
        ("router", {"router": "nearest"}),
        ("pools.a.replicas", {"replicas": ()}),
        ("pools.a.replicas", {"replicas": (ReplicaTimes(drained_s=5.0),)}),
        ("pools.a.replicas[0]", {"replicas": (ReplicaTimes(NAN), ReplicaTimes())}),
        ("pools.a.replicas[1]", {"replicas": (ReplicaTimes(), ReplicaTimes(0.0, -1.0))}),
        ("pools.a.replicas[1].drained_s", {"replicas": (ReplicaTimes(), ReplicaTimes(5.0, 5.0, 7.0))}),
        ("handover", {"handover": Handover("a", "c", 1.0, 1.0)}),
        ("handover", {"handover": Handover("a", "a", 1.0, 1.0)}),
        ("handover.kv_bytes_per_token", {"handover": Handover("a", "b", 0.0, 1.0)}),
        ("handover.link_bytes_per_s", {"handover": Handover("a", "b", 1.0, NAN)}),
        ("handover.latency_s", {"handover": Handover("a", "b", 1.0, 1.0, -1.0)}),
        ("handover.first_output_from", {"handover": Handover("a", "b", 1.0, 1.0, 0.0, "both")}),  # type: ignore[arg-type]
        ("stop", {"stop": "never"}),
        ("deadline_s", {"deadline_s": 0.0}),
        ("deadline_s", {"deadline_s": NAN}),
        ("admission", {"admission": lambda _offer, _pools: Decision("divert", "c")}),
    ],
)
def test_clusters(field: str, changes: dict[str, Any], limits: EngineLimits, usual: StepCoefficients, one: RequestTable) -> None:
    spec = EngineSpec(limits, usual, stop=changes.get("stop", "length"))
    pools = (
        Pool("a", spec, changes.get("replicas", (ReplicaTimes(),)), changes.get("router", "random")),
        Pool("b", EngineSpec(limits, usual)),
    )
    whole = {name: changes[name] for name in ("handover", "admission", "pools", "deadline_s") if name in changes}
    with pytest.raises(InputError) as error:
        run_cluster(Cluster(**({"pools": pools} | whole)), one, np.random.default_rng(0))
    assert error.value.field == field


def test_two_pools_of_one_name(limits: EngineLimits, usual: StepCoefficients, one: RequestTable) -> None:
    with pytest.raises(InputError, match="pools"):
        run_cluster(Cluster((Pool("a", EngineSpec(limits, usual)),) * 2), one, np.random.default_rng(0))


def test_steps_without_time(limits: EngineLimits, costs: Callable[..., StepCoefficients], one: RequestTable) -> None:
    for wrong in (costs(), costs(layers_s=NAN), costs(layers_s=-1.0)):
        with pytest.raises(InputError, match="coefficients"):
            run_engine(EngineSpec(limits, wrong), one)


def test_hooks() -> None:
    for build in (
        lambda: bounded_queue(max_num_queued_reqs=0),
        lambda: bounded_queue(max_num_queued_tokens=-3),
        lambda: predicted_ttft("a", NAN, 1.0),
        lambda: predicted_ttft("a", 1.0, 0.0),
    ):
        with pytest.raises(InputError):
            build()


@pytest.mark.parametrize(
    "settings", [SglangSettings(decay_steps=0), SglangSettings(initial_ratio=2.0), SglangSettings(lowest_ratio=NAN)]
)
def test_sglangs_knobs(settings: SglangSettings) -> None:
    with pytest.raises(InputError, match=r"sglang\."):
        sglang(settings)


def test_variants_take_no_policy_of_ours_and_no_budget_below_a_block(
    limits: EngineLimits, usual: StepCoefficients, one: RequestTable
) -> None:
    with pytest.raises(InputError, match="capacity_policy"):
        tensorrt_llm(TensorrtLlmSettings("static_batch"))  # type: ignore[arg-type]
    for scheduler in (sglang(), tensorrt_llm()):
        with pytest.raises(InputError, match="discipline"):
            run_engine(EngineSpec(limits, usual, Discipline(policy="shortest-prompt"), scheduler=scheduler), one)
        with pytest.raises(InputError, match="max_num_batched_tokens"):
            run_engine(EngineSpec(limits._replace(max_num_seqs=1, max_num_batched_tokens=8), usual, scheduler=scheduler), one)


@pytest.mark.parametrize("batching", [StaticBatching(0), StaticBatching(1, kv_tokens=0), StaticBatching(1, wait_s=NAN)])
def test_static_batches(batching: StaticBatching, usual: StepCoefficients, one: RequestTable) -> None:
    with pytest.raises(InputError):
        simulate_static(one, batching, usual)


def test_a_run_that_would_not_end_is_stopped_and_says_so(
    limits: EngineLimits, usual: StepCoefficients, table: Callable[..., RequestTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.simulator.cluster.events.STEPS_PER_TOKEN", 0)
    run = run_engine(EngineSpec(limits, usual), table([0.0, 0.0, 500.0], 10, 5))
    assert run.outcome.tolist() == [Outcome.UNFINISHED] * 3
    assert run.judgement.verdict == "overloaded"
    assert np.isnan(run.finish_s).all()


def test_no_requests_and_impossible_requests(
    limits: EngineLimits, usual: StepCoefficients, table: Callable[..., RequestTable]
) -> None:
    spec = EngineSpec(limits, usual)
    for by_events in (True, False):
        empty = run_cluster(Cluster((Pool("a", spec),)), table([], [], []), np.random.default_rng(0), by_events=by_events)
        assert (len(empty.finish_s), empty.makespan_s, empty.mean_in_system) == (0, 0.0, 0.0)
        wrong = run_cluster(
            Cluster((Pool("a", spec),)),
            table([0.0] * 4, [0, 5, 10**6, 7], [5, 0, 5, 5]),
            np.random.default_rng(0),
            by_events=by_events,
        )
        assert wrong.outcome.tolist() == [Outcome.REFUSED] * 3 + [Outcome.SERVED]
        assert np.isnan(wrong.finish_s).tolist() == [True, True, True, False]
    static = simulate_static(table([0.0, 0.0, 3.0], [0, 50, 5], [5, 60, 5]), StaticBatching(2, kv_tokens=100), usual)
    assert static.batch_index.tolist() == [-1, -1, 0]
    assert simulate_static(table([], [], []), StaticBatching(2), usual).makespan_s == 0.0
