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
