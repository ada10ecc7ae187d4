"""Headroom: capacity and cost planning for LLM serving.

>>> from planner import Scenario, plan
>>> answer = plan(Scenario())
>>> answer.chosen.replicas.total >= 2
True

The import name `planner` is shared with PyPI's llm-d-planner: the two can't live in one environment.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.errors import InputError
    from planner.hardware import GpuProfile, gpu_from_toml, list_gpus, load_gpu
    from planner.models import ModelSpec, list_models, load_model, model_from_config
    from planner.plans import Candidate, Plan, plan
    from planner.questions import answer_questions
    from planner.scenario import Scenario, patched, scenario_from_dict, scenario_from_json
    from planner.workloads import Workload, list_workloads, load_workload, workload_from_rows

__all__ = [
    "Candidate",
    "GpuProfile",
    "InputError",
    "ModelSpec",
    "Plan",
    "Scenario",
    "Workload",
    "answer_questions",
    "gpu_from_toml",
    "list_gpus",
    "list_models",
    "list_workloads",
    "load_gpu",
    "load_model",
    "load_workload",
    "model_from_config",
    "patched",
    "plan",
    "scenario_from_dict",
    "scenario_from_json",
    "workload_from_rows",
]

_HOMES = {
    "Candidate": "planner.plans",
    "GpuProfile": "planner.hardware",
    "InputError": "planner.errors",
    "ModelSpec": "planner.models",
    "Plan": "planner.plans",
    "Scenario": "planner.scenario",
    "Workload": "planner.workloads",
    "answer_questions": "planner.questions",
    "gpu_from_toml": "planner.hardware",
    "list_gpus": "planner.hardware",
    "list_models": "planner.models",
    "list_workloads": "planner.workloads",
    "load_gpu": "planner.hardware",
    "load_model": "planner.models",
    "load_workload": "planner.workloads",
    "model_from_config": "planner.models",
    "patched": "planner.scenario",
    "plan": "planner.plans",
    "scenario_from_dict": "planner.scenario",
    "scenario_from_json": "planner.scenario",
    "workload_from_rows": "planner.workloads",
}


def __dir__() -> list[str]:
    """Return the public names too, which are imported late: completion shows them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the public names
    """Import a public name when it is first used, so that `import planner` costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    return getattr(import_module(home), name)
