"""A plan as Kubernetes manifests: the replicas, the service before them, and the rule that scales them with the load.

Images: Docker Hub's vllm/vllm-openai, tagged by release (docs.vllm.ai, Using Docker; read December 2026); vllm/vllm-openai-rocm is
tagged alike in public deployment files (v0.17.1 to v0.27.1), which vLLM's own pages don't confirm.
Scaling: KEDA's Prometheus trigger (keda.sh/docs, scalers, Prometheus), whose `AverageValue` asks for query ÷ threshold replicas,
rounded up.
"""

import json
import re
from typing import NamedTuple

from planner.deployment import Deployment
from planner.errors import InputError
from planner.exporters.alerts import arrivals_expression, selector_of
from planner.exporters.flags import serve_command, served_name
from planner.fleet import Replicas
from planner.hardware import load_gpu
from planner.plans import Candidate, Plan
from planner.pricing import Tariff
from planner.units import GIB

_LONGEST_NAME = 52  # of a Deployment, whose pods' names add eleven characters to it and may have 63
_PORT = 8000
# Assumed, for the reader to change: half an hour to fetch and load the largest weights, a look every ten seconds, ten quiet minutes
# before a replica is let go (the queries average over as long), and room for NCCL's and the workers' shared memory.
_STARTS_S = 1800
_POLL_S = 10
_SETTLES_S = 600
_SHARED_MEMORY_BYTES = 16 * GIB
PROMETHEUS_URL = "http://prometheus-operated.monitoring.svc:9090"
"""Where the Prometheus operator's own service answers; the reader's may lie elsewhere."""

INSTANCE_LABEL_PROVIDERS = frozenset({"aws", "azure", "gcp"})
"""Providers whose managed Kubernetes labels nodes with the instance's name (node.kubernetes.io/instance-type)."""


class _Platform(NamedTuple):
    image: str
    resource: str


_PLATFORMS = {
    "NVIDIA": _Platform("vllm/vllm-openai", "nvidia.com/gpu"),
    "AMD": _Platform("vllm/vllm-openai-rocm", "amd.com/gpu"),
}


def deployment_manifest(plan: Plan) -> str:
    """Return a Deployment with the plan's replicas and command, and the Service before it, as YAML.

    Raises InputError for a plan without an answer, for offline work, and for GPUs without an official image.
    """
    fleet = _fleet(plan)
    name, platform = fleet.name, _platform(fleet.candidate)
    labels = f"{{app.kubernetes.io/name: {name}}}"
    lines = [
        f"# {_one_line(plan.summary)}",
        *(f"# {_one_line(note)}" for note in serve_command(fleet.deployment).notes),
        "apiVersion: apps/v1",
        "kind: Deployment",
        "metadata:",
        f"  name: {name}",
        f"  labels: {labels}",
        "spec:",
        f"  replicas: {fleet.replicas.total}",
        "  selector:",
        f"    matchLabels: {labels}",
        "  template:",
        "    metadata:",
        f"      labels: {labels}",
        "    spec:",
        *_node_selector(fleet.candidate.tariff),
        "      containers:",
        "        - name: vllm",
        f"          image: {platform.image}:v{_release(fleet.deployment.engine.version)}",
        f"          command: {json.dumps(list(serve_command(fleet.deployment).arguments), ensure_ascii=False)}",
        "          env:",
        "            - name: HF_TOKEN",
        "              valueFrom: {secretKeyRef: {name: hugging-face, key: token, optional: true}}",
        "          ports:",
        f"            - {{name: http, containerPort: {_PORT}}}",
        "          resources:",
        f'            limits: {{{json.dumps(platform.resource)}: "{fleet.candidate.tensor_parallel}"}}',
        *_probes(),
        "          volumeMounts:",
        "            - {name: shared-memory, mountPath: /dev/shm}",
        "      volumes:",
        "        - name: shared-memory",
        f"          emptyDir: {{medium: Memory, sizeLimit: {_SHARED_MEMORY_BYTES / GIB:.0f}Gi}}",
        "---",
        "apiVersion: v1",
        "kind: Service",
        "metadata:",
        f"  name: {name}",
        f"  labels: {labels}",
        "spec:",
        f"  selector: {labels}",
        "  ports:",
        "    - {name: http, port: 80, targetPort: http}",
    ]
    return "\n".join(lines) + "\n"


def scaling_manifest(plan: Plan) -> str:
    """Return a KEDA ScaledObject that keeps as many replicas as the load of the moment needs, and the plan's spares, as YAML.

    A replica counts for what it carries within its headroom. At most the plan's replicas run, and never fewer than one and the
    spares: a new one is minutes away. Raises InputError as `deployment_manifest` does.
    """
    fleet = _fleet(plan)
    name, replicas = fleet.name, fleet.replicas
    each_rps = replicas.capacity_rps * (1.0 - replicas.headroom)
    query = arrivals_expression(selector_of(fleet.deployment.model))
    if replicas.spares:
        query = f"{query} + {replicas.spares * each_rps:.4g}"
    lines = [
        f"# One replica for every {each_rps:.4g} requests a second, and {replicas.spares} spare; at most {replicas.total}.",
        f"# Prometheus must read /metrics of every pod (port {_PORT}); correct serverAddress where yours answers elsewhere.",
        "apiVersion: keda.sh/v1alpha1",
        "kind: ScaledObject",
        "metadata:",
        f"  name: {name}",
        "spec:",
        f"  scaleTargetRef: {{name: {name}}}",
        f"  minReplicaCount: {min(1 + replicas.spares, replicas.total)}",
        f"  maxReplicaCount: {replicas.total}",
        f"  pollingInterval: {_POLL_S}",
        "  advanced:",
        "    horizontalPodAutoscalerConfig:",
        f"      behavior: {{scaleDown: {{stabilizationWindowSeconds: {_SETTLES_S}}}}}",
        "  triggers:",
        "    - type: prometheus",
        "      metricType: AverageValue",
        "      metadata:",
        f"        serverAddress: {json.dumps(PROMETHEUS_URL)}",
        f"        query: {json.dumps(query)}",
        f'        threshold: "{each_rps:.4g}"',
    ]
    return "\n".join(lines) + "\n"


class _Fleet(NamedTuple):
    """What is deployed; name : of the Deployment and its Service."""

    candidate: Candidate
    deployment: Deployment
    replicas: Replicas
    name: str


def _fleet(plan: Plan) -> _Fleet:
    chosen = plan.chosen
    if chosen is None or chosen.deployment is None or chosen.replicas is None:
        raise InputError("plan", plan.summary, "has nothing to deploy", "Change the scenario until the plan has an answer")
    if plan.scenario.targets.offline:
        raise InputError("targets", "offline", "is a batch job, not a service", "Run the plan's own command as a Job")
    return _Fleet(chosen, chosen.deployment, chosen.replicas, object_name(served_name(chosen.deployment.model)))


def object_name(text: str) -> str:
    """Return a name that Kubernetes takes (RFC 1123): small letters, digits and hyphens, a letter first.

    >>> object_name("meta-llama/Llama-3.1-8B-Instruct"), object_name("/models/7B_ü"), object_name("//")
    ('llama-3-1-8b-instruct', 'model-7b', 'model')
    """
    words = re.sub(r"[^a-z0-9]+", "-", text.rstrip("/").rpartition("/")[2].lower()).strip("-")
    named = words if words[:1].isalpha() else f"model-{words}"
    return named[:_LONGEST_NAME].strip("-")


def _one_line(text: str) -> str:
    """A name with a line break must not end a comment."""
    return " ".join(text.split())


def _platform(candidate: Candidate) -> _Platform:
    vendor = load_gpu(candidate.gpu_id).vendor
    if vendor not in _PLATFORMS:
        raise InputError("gpu", candidate.gpu_name, f"has no official vLLM image for {vendor}", "Build one and write its manifest")
    return _PLATFORMS[vendor]


def _release(version: str) -> str:
    return version if version.count(".") == 2 else f"{version}.0"


def _node_selector(tariff: Tariff | None) -> list[str]:
    if tariff is None or tariff.provider not in INSTANCE_LABEL_PROVIDERS:
        return []
    return [f"      nodeSelector: {{node.kubernetes.io/instance-type: {json.dumps(tariff.instance)}}}"]


def _probes() -> list[str]:
    """The server answers /health once it serves; until then it loads weights, compiles and captures graphs."""
    get = f"httpGet: {{path: /health, port: {_PORT}}}"
    return [
        f"          startupProbe: {{{get}, periodSeconds: {_POLL_S}, failureThreshold: {_STARTS_S // _POLL_S}}}",
        f"          readinessProbe: {{{get}, periodSeconds: {_POLL_S}}}",
    ]
