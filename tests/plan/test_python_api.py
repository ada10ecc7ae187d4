"""The names that `planner` hands out, in the way that a reader of the README takes them."""

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
