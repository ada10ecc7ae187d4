"""Manifests: YAML that says what the plan says, with names and arguments that no model name can break."""

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.exporters.flags import serve_command
from planner.exporters.kubernetes import deployment_manifest, object_name, scaling_manifest
from planner.plans import Plan, plan
from planner.scenario import scenario_from_dict
from tests.exporters.promql import check_promql

TWO_GPUS: dict[str, Any] = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [2]}}


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(scenario_from_dict(TWO_GPUS))


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def renamed(planned: Plan, name: str) -> Plan:
    chosen = planned.chosen
    assert chosen is not None
    assert chosen.deployment is not None
    model = chosen.deployment.model.model_copy(update={"hf_repo": name, "name": name})
    deployment = replace(chosen.deployment, model=model)
    return replace(planned, chosen=replace(chosen, deployment=deployment), summary=f"{name} is served")


def test_the_deployment_is_the_plan(planned: Plan) -> None:
    deployment, service = documents(deployment_manifest(planned))
    chosen = planned.chosen
    assert chosen is not None
    assert chosen.replicas is not None
    assert chosen.deployment is not None
    assert deployment["spec"]["replicas"] == chosen.replicas.total
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert shlex.join(container["command"]) == serve_command(chosen.deployment).line
    assert container["image"] == f"vllm/vllm-openai:v{planned.scenario.engine.version}"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert chosen.tariff is not None
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": chosen.tariff.instance}
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert deployment["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]


def test_an_amd_gpu_gets_its_own_image_and_resource() -> None:
    mine = plan(
        scenario_from_dict({"hardware": {"gpu_ids": ["mi300x"], "tensor_parallel": [1], "usd_per_gpu_hour": {"mi300x": 2.0}}})
    )
    (container,) = documents(deployment_manifest(mine))[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("vllm/vllm-openai-rocm:v")
    assert container["resources"]["limits"] == {"amd.com/gpu": "1"}


def test_an_own_price_names_no_instance(planned: Plan) -> None:
    mine = plan(scenario_from_dict({"hardware": {**TWO_GPUS["hardware"], "usd_per_gpu_hour": {"h100-80g-sxm": 1.5}}}))
    assert "nodeSelector" not in documents(deployment_manifest(mine))[0]["spec"]["template"]["spec"]
    assert "nodeSelector" in documents(deployment_manifest(planned))[0]["spec"]["template"]["spec"]


def test_scaling_asks_for_the_planned_replicas_at_the_planned_load(planned: Plan) -> None:
    (scaled,) = documents(scaling_manifest(planned))
    chosen = planned.chosen
    assert chosen is not None
    assert chosen.replicas is not None
    replicas = chosen.replicas
    (trigger,) = scaled["spec"]["triggers"]
    each_rps = float(trigger["metadata"]["threshold"])
    spare_rps = float(trigger["metadata"]["query"].rpartition(" + ")[2])
    assert each_rps * replicas.needed == pytest.approx(replicas.next_replica_at_rps, rel=1e-3)
    asked = -(-(planned.load.peak_rps + spare_rps) // each_rps)
    assert asked == replicas.total == scaled["spec"]["maxReplicaCount"]
    assert scaled["spec"]["minReplicaCount"] == 1 + replicas.spares
    check_promql(trigger["metadata"]["query"])
    assert scaled["spec"]["scaleTargetRef"]["name"] == documents(deployment_manifest(planned))[0]["metadata"]["name"]


@pytest.mark.parametrize("name", ['a"b', "x: y # z", "<script>", "$(rm -rf /)", "m{}[]&*!|>'%@`", "ünïcode/модель"])
def test_no_model_name_breaks_out_of_its_place(planned: Plan, name: str) -> None:
    plan_of = renamed(planned, name)
    deployment, _ = documents(deployment_manifest(plan_of))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][2] == name
    assert set(deployment) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(documents(scaling_manifest(plan_of))[0]) == {"apiVersion", "kind", "metadata", "spec"}


def test_a_line_break_in_a_summary_ends_no_comment(planned: Plan) -> None:
    broken = replace(planned, summary="one\nkind: Secret\n# two")
    assert [each["kind"] for each in documents(deployment_manifest(broken))] == ["Deployment", "Service"]


@given(st.text(max_size=80))
@settings(deadline=None)
def test_names_are_those_that_kubernetes_takes(text: str) -> None:
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", object_name(text))


def test_what_is_no_service_is_refused(planned: Plan) -> None:
    offline = plan(scenario_from_dict({**TWO_GPUS, "targets": {"ttft_p99_s": None, "tpot_p99_s": None}}))
    for write in (deployment_manifest, scaling_manifest):
        with pytest.raises(InputError, match="batch job"):
            write(offline)
        with pytest.raises(InputError, match="nothing to deploy"):
            write(replace(planned, chosen=None))
