"""Deployments: what is refused, what a GPU holds, and what an all-reduce travels over."""

from typing import Any

import pytest

from planner.deployment import Deployment, Parallelism, activation_bytes_per_token, link_for, shard
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import load_gpu, load_node, nodes_for
from planner.models import QUANTIZATIONS, kv_bytes, load_model, token_flops, weight_bytes


def deployment(model_id: str = "llama-3.1-8b-instruct", quantization: str = "bf16", tp: int = 1, **changes: Any) -> Deployment:
    gpu = load_gpu(changes.pop("gpu_id", "h100-80g-sxm"))
    return Deployment(
        gpu=gpu,
        model=load_model(model_id),
        quantization=QUANTIZATIONS[quantization],
        kv_dtype=changes.pop("kv_dtype", "bf16"),
        parallelism=Parallelism(tp=tp, **changes),
        engine=engine_defaults("vllm", "0.33.0", gpu, tp),
    )


@pytest.mark.parametrize("value", [0, -1, 1.5, True, 10**9, "2"])
@pytest.mark.parametrize("field", ["tp", "pp", "ep", "dp"])
def test_degrees_of_parallelism_are_whole_and_positive(field: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        Parallelism(**{field: value})
    assert caught.value.field == f"parallelism.{field}"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"tp": 3}, "parallelism.tp"),
        ({"pp": 33}, "parallelism.pp"),
        ({"tp": 2, "ep": 2}, "parallelism.ep"),
        ({"kv_dtype": "fp7"}, "kv_dtype"),
    ],
)
def test_parts_that_do_not_fit_are_refused(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        deployment(**arguments)
    assert caught.value.field == field


def test_engine_and_deployment_agree_on_the_cache_dtype() -> None:
    base = deployment(kv_dtype="fp8")
    with pytest.raises(InputError, match="kv_cache_dtype"):
        Deployment(base.gpu, base.model, base.quantization, "fp8", base.parallelism, base.engine.replace(kv_cache_dtype="bf16"))


def test_a_shard_is_the_arithmetic_of_its_layout() -> None:
    held = shard(deployment("llama-3.1-70b-instruct", "fp8", tp=4, pp=2))
    model, quantization = load_model("llama-3.1-70b-instruct"), QUANTIZATIONS["fp8"]
    assert held.weights == weight_bytes(model, quantization, tp=4, pp=2)
    assert held.kv == kv_bytes(model, "bf16", tp=4, pp=2)
    assert held.flops == token_flops(model, tp=4, pp=2)
    assert held.layers == 40
    assert deployment("llama-3.1-70b-instruct", "fp8", tp=4, pp=2).gpus_per_replica == 8


def test_all_reduces_are_two_a_layer() -> None:
    held = shard(deployment(tp=2))
    assert held.all_reduces == 2 * 32
    assert held.all_reduce_bytes_per_token == 2 * 32 * 4096 * 2
    assert shard(deployment()).all_reduces == 0
    assert shard(deployment("llama-3.1-70b-instruct", "fp8", tp=4, pp=3)).all_reduces == 54, "160 over three stages, rounded up"


def test_activations_of_a_dense_layer() -> None:
    # 2 B · (8 · 4096 + 2 · (32 + 8) · 128 + 3 · 14336) in each of 32 layers.
    assert activation_bytes_per_token(load_model("llama-3.1-8b-instruct"), Parallelism()) == 32 * 2 * (
        8 * 4096 + 2 * 40 * 128 + 3 * 14336
    )


def test_more_gpus_never_hold_more() -> None:
    totals = [shard(deployment("llama-3.1-70b-instruct", tp=tp)).weights.total for tp in (1, 2, 4, 8)]
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize(
    ("gpu_id", "tp", "kind", "topology", "fast"),
    [
        ("h100-80g-sxm", 8, "NVLink", "switch", True),
        ("l40s", 2, "PCIe", "host", False),
        ("mi300x", 2, "xGMI", "mesh", True),
        ("h100-94g-nvl", 2, "PCIe", "host", False),
        ("h100-94g-nvl", 4, "PCIe", "host", False),
    ],
)
def test_the_link_depends_on_how_many_reduce(gpu_id: str, tp: int, kind: str, topology: str, *, fast: bool) -> None:
    link = link_for(load_gpu(gpu_id), tp)
    assert link is not None
    assert link.kind.startswith(kind)
    assert (link.topology, link.in_fast_domain) == (topology, fast)
    assert str(tp) in link.reason


def test_a_bridge_is_only_where_the_machine_has_it() -> None:
    gpu = load_gpu("h100-94g-nvl")
    anywhere, bridged, beyond = link_for(gpu, 2), link_for(gpu, 2, load_node("h100-nvl-pair")), link_for(gpu, 4)
    assert anywhere is not None
    assert "sold separately" in anywhere.reason
    assert bridged is not None
    assert (bridged.kind, bridged.unidirectional_bytes_per_s) == ("NVLink4 bridge", 300e9)
    assert beyond is not None
    assert beyond.unidirectional_bytes_per_s == 63e9
    only = link_for(load_gpu("gb10-dgx-spark"), 2)
    assert only is not None
    assert (only.kind, only.unidirectional_bytes_per_s) == ("ConnectX-7 200 GbE", 25e9)
    plain = link_for(load_gpu("h100-80g-pcie"), 2, load_node("h100-pcie-host"))
    assert plain is not None
    assert "Server with eight H100 PCIe has no NVLink4 bridge" in plain.reason


def test_one_gpu_needs_no_link_and_none_is_an_error() -> None:
    assert link_for(load_gpu("h100-80g-sxm"), 1) is None
    with pytest.raises(InputError, match=r"parallelism\.tp"):
        link_for(load_gpu("h100-80g-sxm"), 0)


def test_a_machine_ends_the_fast_link_where_it_says() -> None:
    node = next(node for node in nodes_for("h100-80g-sxm") if node.gpu_count == 8)
    inside = link_for(load_gpu("h100-80g-sxm"), 8, load_node(node.id))
    beyond = link_for(load_gpu("h100-80g-sxm"), 16, load_node(node.id))
    assert inside is not None
    assert inside.in_fast_domain
    assert beyond is not None
    assert (beyond.kind, beyond.unidirectional_bytes_per_s) == ("network", None)


def test_a_group_within_a_mesh_uses_only_its_own_links() -> None:
    gpu = load_gpu("mi300x")
    assert gpu.link is not None
    rates = {tp: link.unidirectional_bytes_per_s for tp in (2, 4, 8) if (link := link_for(gpu, tp)) is not None}
    assert rates == {
        2: pytest.approx(gpu.link.unidirectional_bytes_per_s / 7),
        4: pytest.approx(gpu.link.unidirectional_bytes_per_s * 3 / 7),
        8: pytest.approx(gpu.link.unidirectional_bytes_per_s),
    }


def test_behind_a_switch_every_group_has_the_whole_link() -> None:
    gpu = load_gpu("h100-80g-sxm")
    assert gpu.link is not None
    for tp in (2, 4, 8):
        link = link_for(gpu, tp)
        assert link is not None
        assert link.unidirectional_bytes_per_s == gpu.link.unidirectional_bytes_per_s
