"""The names that `planner` hands out, in the way that a reader of the README takes them."""

import pickle
import subprocess
import sys

import pytest

import planner

_README = """
from planner import InputError, plan, scenario_from_dict
try:
    plan(scenario_from_dict({"workload": {"id": "unknown"}}))
except InputError as error:
    assert error.field == "workload.id"
else:
    raise AssertionError
"""


@pytest.mark.parametrize("first", ["", "from planner.plans import plan\n", "import planner.questions\n"])
def test_plan_can_be_called_in_every_order_of_imports(first: str) -> None:
    done = subprocess.run([sys.executable, "-c", first + _README], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", planner.__all__)
def test_every_public_name_is_there_and_can_be_used(name: str) -> None:
    assert callable(getattr(planner, name))


def test_completion_shows_the_public_names() -> None:
    assert set(planner.__all__) <= set(dir(planner))


@pytest.mark.parametrize("given", [{"seed": 1}, None, "scenario.json"])
def test_a_plan_of_what_is_no_scenario_says_how_to_make_one(given: object) -> None:
    with pytest.raises(planner.InputError, match="scenario_from_dict"):
        planner.plan(given)  # type: ignore[arg-type]


def test_a_plan_shows_itself_in_a_sentence_and_lives_through_a_pickle() -> None:
    answer = planner.plan(planner.scenario_from_dict({"hardware": {"gpu_ids": ["l40s"], "tensor_parallel": [1]}}))
    assert answer.chosen is not None
    assert repr(answer) == f"<Plan: {answer.summary}>"
    assert answer.chosen.replicas is not None
    assert repr(answer.chosen).startswith(f"<Candidate L40S: {answer.chosen.replicas.total} replicas, $")
    assert pickle.loads(pickle.dumps(answer)) == answer


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"workload": {"id": "no-such"}}, "workload.id"),
        ({"model": {"id": "no-such"}}, "model.id"),
        ({"model": {"quantization": "no-such"}}, "model.quantization"),
        ({"hardware": {"gpu_ids": ["no-such"]}}, "hardware.gpu_ids"),
        ({"hardware": {"provider": "no-such"}}, "hardware.provider"),
        ({"engine": {"version": "9.9.9"}}, "engine.version"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_name_that_nothing_has_is_refused_by_its_field_of_the_scenario(document: dict[str, object], field: str) -> None:
    with pytest.raises(planner.InputError) as caught:
        planner.plan(planner.scenario_from_dict(document))
    assert caught.value.field == field
