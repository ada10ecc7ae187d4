"""The shape of the code: sizes, types and docstrings that reviewers rely on."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON_FILES = sorted([ROOT / "app.py", *(ROOT / "planner").rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
PLANNER_FILES = [path for path in PYTHON_FILES if path.is_relative_to(ROOT / "planner")]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    docstring = ast.get_docstring(node, clean=False)
    return (node.end_lineno or node.lineno) - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)


@pytest.mark.parametrize("path", PYTHON_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES
    too_long = {node.name: code_lines(node) for node in functions(path) if code_lines(node) > MAX_FUNCTION_LINES}
    assert not too_long


@pytest.mark.parametrize("path", PLANNER_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_public_names_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module says what it is for"
    public = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


def test_pages_hold_no_logic() -> None:
    for path in (ROOT / "planner" / "ui" / "pages").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 120, path.name
        assert "import pandas" not in text, path.name
        assert "import numpy" not in text, path.name


WHERE = r"(; sys_platform != \"win32\")?"


def test_requirements_have_a_lower_and_an_upper_bound() -> None:
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(rf"[A-Za-z0-9._-]+>=[\d.]+,<[\d.]+{WHERE}", line), line


def test_development_requirements_are_exact() -> None:
    lines = [line for line in (ROOT / "requirements-dev.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(rf"[A-Za-z0-9._-]+==[A-Za-z0-9.]+{WHERE}", line), line


def test_project_metadata_names_the_licence() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert metadata["project"]["license"] == "Apache-2.0"
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")


def test_every_data_file_is_installed_with_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = settings["package-data"]["*"]
    folders = (ROOT / "hardware_profiles", ROOT / "workloads", ROOT / "planner")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    left_out = [path.name for path in files if path.suffix != ".py" and not any(path.match(pattern) for pattern in patterns)]
    assert left_out == []
    assert {folder.name + "*" for folder in folders} == set(settings["packages"]["find"]["include"])


def test_every_source_under_the_mit_licence_is_named_in_the_notice() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    sources = json.loads((ROOT / "hardware_profiles" / "evidence" / "accuracy" / "sources.json").read_text(encoding="utf-8"))
    named = {each["source"].partition(" ")[0] for each in sources if each["terms"].startswith("MIT")}
    for path in (ROOT / "workloads" / "traces").glob("*.toml"):
        trace = tomllib.loads(path.read_text(encoding="utf-8"))
        named |= {trace["source"]["ref"].partition(" ")[0]} if trace["licence"].startswith("MIT") else set()
    assert named
    for repository in named:
        owner, _, name = repository.removeprefix("github.com/").partition("/")
        assert f"{name} ({owner})" in notice, repository
    assert "MLPerf is a registered trademark of MLCommons Association" in notice
